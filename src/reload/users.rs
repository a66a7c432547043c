//! The users that clients authenticate as.

use super::{Changes, Fault, Reloadable};
use crate::session::Shared;
use std::path::PathBuf;
use std::sync::Arc;

/// The file of users. What is read counts for clients that authenticate from
/// then on; who is connected stays so as long as there is such a user.
pub struct UsersFile {
    shared: Arc<Shared>,
    file: PathBuf,
}

impl UsersFile {
    /// That of this process, where there is one.
    #[must_use]
    pub fn of(shared: &Arc<Shared>) -> Option<Self> {
        let file = shared.users.as_ref()?.file();
        let shared = Arc::clone(shared);
        Some(Self { shared, file })
    }
}

impl Reloadable for UsersFile {
    fn name(&self) -> &'static str {
        "listen.sasl.usersFile"
    }

    fn files(&self) -> Vec<PathBuf> {
        vec![self.file.clone()]
    }

    fn reload(&mut self) -> Result<Changes, Fault> {
        match self.shared.reload_users() {
            Ok(true) => Ok(vec![self.name().to_owned()]),
            Ok(false) => Ok(Changes::new()),
            Err(error) => Err(Fault::Invalid(vec![error.to_string()])),
        }
    }
}
