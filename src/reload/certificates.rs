//! The certificates, keys and CAs of one side.

use super::{Changes, Fault, Reloadable};
use crate::config::{CertificateFiles, Config};
use crate::metrics::Side;
use crate::session::Shared;
use std::path::PathBuf;
use std::sync::Arc;

/// What one side shows and believes. Each side is used as a whole or not at
/// all; connections keep what they began with.
pub struct Certificates {
    shared: Arc<Shared>,
    side: Side,
    files: Vec<PathBuf>,
}

impl Certificates {
    /// Those of each side that speaks TLS.
    pub fn all(shared: &Arc<Shared>) -> impl Iterator<Item = Self> {
        [Side::Client, Side::Upstream]
            .into_iter()
            .filter_map(|side| {
                Some(Self {
                    shared: Arc::clone(shared),
                    side,
                    files: files(&shared.config, side)?,
                })
            })
    }
}

/// The CAs of the system are not among them: they are looked at when somebody
/// asks.
fn files(config: &Config, side: Side) -> Option<Vec<PathBuf>> {
    let (own, authorities) = match side {
        Side::Client => {
            let tls = config.listen_tls.as_ref()?;
            (Some(&tls.certificate), &tls.client_ca_file)
        }
        Side::Upstream => {
            let tls = config.upstream_tls.as_ref()?;
            (tls.certificate.as_ref(), &tls.ca_file)
        }
    };
    let own = own.into_iter();
    let own = own.flat_map(|CertificateFiles { certificate, key }| [certificate, key]);
    Some(own.chain(authorities).cloned().collect())
}

impl Reloadable for Certificates {
    fn name(&self) -> &'static str {
        match self.side {
            Side::Client => "listen.tls",
            Side::Upstream => "upstream.tls",
        }
    }

    fn files(&self) -> Vec<PathBuf> {
        self.files.clone()
    }

    fn reload(&mut self) -> Result<Changes, Fault> {
        match self.shared.reload_tls(self.side) {
            Ok(true) => Ok(vec![self.name().to_owned()]),
            Ok(false) => Ok(Changes::new()),
            Err(error) => Err(Fault::Invalid(vec![error.to_string()])),
        }
    }
}
