//! The users that clients may authenticate as to hapax itself: who they are,
//! what proves it, and the conversation until one has.
//!
//! ```text
//! file --> list --> login <-- frames of a client that nobody knows yet
//!          |
//!          credential: what is kept of a password
//! ```

mod credential;
mod list;
mod login;
mod scram;

use crate::config::{Config, ListenSasl};
use crate::exposure;
use ring::rand::{SecureRandom, SystemRandom};
use std::fs::File;
use std::hash::{DefaultHasher, Hash as _, Hasher};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

pub use credential::{Credential, ITERATIONS_DEFAULT};
pub(crate) use list::is_name;
pub use list::{BadLine, List};
pub use login::{Claim, FRAME_MAX, Login, Refusal, SASL_APIS, Step};

/// The largest file: more than fifty thousand users.
const BYTES_MAX: u64 = 16 * 1024 * 1024;
/// The key that names the file.
const KEY: &str = "listen.sasl.usersFile";

/// Why there are no users.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The file cannot be read.
    #[error("{KEY} {path} cannot be read ({source})")]
    Read {
        /// The file.
        path: String,
        /// What happened.
        source: io::Error,
    },
    /// Everyone can read it.
    #[error("{KEY} {path} can be read or written by everyone (mode {mode:04o}): chmod o-rw")]
    Open {
        /// The file.
        path: String,
        /// The mode of the file.
        mode: u32,
    },
    /// It is too large to be meant.
    #[error("{KEY} {path} has more than {BYTES_MAX} bytes, which is no list of users")]
    TooLarge {
        /// The file.
        path: String,
    },
    /// It is no list of users.
    #[error("{KEY} {path}{error}")]
    Bad {
        /// The file.
        path: String,
        /// What is wrong.
        error: BadLine,
    },
}

/// The users of the file, as it was when it was last read.
pub struct Users {
    settings: ListenSasl,
    current: RwLock<Contents>,
}

struct Contents {
    list: Arc<List>,
    digest: u64,
}

impl Users {
    /// Those of the configuration; `None` where clients need not authenticate
    /// to hapax.
    ///
    /// # Errors
    ///
    /// What is wrong with the file.
    pub fn load(config: &Config) -> Result<Option<Self>, LoadError> {
        let Some(settings) = config.listen_sasl.clone() else {
            return Ok(None);
        };
        let bytes = read(&settings.users_file)?;
        let current = RwLock::new(parse(&settings.users_file, &bytes)?);
        Ok(Some(Self { settings, current }))
    }

    /// Reads the file again, for clients that authenticate from now on. Returns
    /// whether it says anything new.
    ///
    /// # Errors
    ///
    /// What is wrong with the file; all stays as it was.
    pub fn reload(&self) -> Result<bool, LoadError> {
        let bytes = read(&self.settings.users_file)?;
        let before = self.current.read().map(|current| current.digest);
        if before.is_ok_and(|before| before == digest(&bytes)) {
            return Ok(false);
        }
        let parsed = parse(&self.settings.users_file, &bytes)?;
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = parsed;
        Ok(true)
    }

    /// The users now.
    #[must_use]
    pub fn list(&self) -> Arc<List> {
        let current = self.current.read();
        Arc::clone(&current.unwrap_or_else(PoisonError::into_inner).list)
    }

    /// Where they stand, and how clients may prove that they are one of them.
    #[must_use]
    pub fn settings(&self) -> &ListenSasl {
        &self.settings
    }

    /// The file.
    #[must_use]
    pub fn file(&self) -> PathBuf {
        self.settings.users_file.clone()
    }
}

/// Bytes that nobody can guess.
///
/// # Errors
///
/// Where the system gives none.
pub fn random<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    let filled = SystemRandom::new().fill(&mut bytes);
    filled.map_err(|_| io::Error::other("the system gives no random bytes"))?;
    Ok(bytes)
}

fn read(path: &Path) -> Result<Vec<u8>, LoadError> {
    let shown = || path.display().to_string();
    let failed = |source| LoadError::Read {
        path: shown(),
        source,
    };
    let file = File::open(path).map_err(failed)?;
    let metadata = file.metadata().map_err(failed)?;
    if let Some(mode) = exposure::open_mode(path, &metadata) {
        return Err(LoadError::Open {
            path: shown(),
            mode,
        });
    }
    let mut bytes = Vec::new();
    file.take(BYTES_MAX + 1)
        .read_to_end(&mut bytes)
        .map_err(failed)?;
    if u64::try_from(bytes.len()).is_ok_and(|len| len > BYTES_MAX) {
        return Err(LoadError::TooLarge { path: shown() });
    }
    Ok(bytes)
}

fn parse(path: &Path, bytes: &[u8]) -> Result<Contents, LoadError> {
    let list = List::parse(bytes).map_err(|error| LoadError::Bad {
        path: path.display().to_string(),
        error,
    })?;
    Ok(Contents {
        list: Arc::new(list),
        digest: digest(bytes),
    })
}

fn digest(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    hasher.finish()
}
