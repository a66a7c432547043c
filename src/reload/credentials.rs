//! What hapax logs in to brokers by.

use super::{Changes, Fault, Reloadable};
use crate::config::{Name, SaslCredentials, UpstreamSasl};
use crate::session::Shared;
use std::path::PathBuf;
use std::sync::Arc;

/// The files of `upstream.sasl`, used as a whole or not at all. A connection
/// keeps what it is logged in by until that has to be renewed.
pub struct Credentials {
    shared: Arc<Shared>,
    files: Vec<PathBuf>,
}

impl Credentials {
    /// Those of the configuration, where hapax logs in itself.
    #[must_use]
    pub fn of(shared: &Arc<Shared>) -> Option<Self> {
        let sasl = shared.config.upstream_sasl.as_ref()?;
        Some(Self {
            shared: Arc::clone(shared),
            files: files(sasl),
        })
    }
}

fn files(sasl: &UpstreamSasl) -> Vec<PathBuf> {
    let of_name = |name: &Name| match name {
        Name::Given(_) => None,
        Name::InFile(path) => Some(path.clone()),
    };
    match &sasl.credentials {
        SaslCredentials::Password {
            username,
            password_file,
        } => {
            let user = of_name(username).into_iter();
            user.chain([password_file.clone()]).collect()
        }
        SaslCredentials::Token(file) => vec![file.clone()],
        SaslCredentials::Client(oauth) => {
            let user = of_name(&oauth.client_id).into_iter();
            user.chain([oauth.client_secret_file.clone()])
                .chain(oauth.ca_file.clone())
                .collect()
        }
    }
}

impl Reloadable for Credentials {
    fn name(&self) -> &'static str {
        "upstream.sasl"
    }

    fn files(&self) -> Vec<PathBuf> {
        self.files.clone()
    }

    fn reload(&mut self) -> Result<Changes, Fault> {
        match self.shared.sasl.reload() {
            Ok(true) => Ok(vec![self.name().to_owned()]),
            Ok(false) => Ok(Changes::new()),
            Err(error) => Err(Fault::Invalid(vec![error.to_string()])),
        }
    }
}
