//! What the files of `upstream.sasl` say.

use super::scram::{Keys, Salted};
use super::token::Token;
use crate::config::{Name, SaslCredentials, UpstreamSasl};
use crate::scram::Hash;
use crate::tls;
use std::hash::{DefaultHasher, Hash as _, Hasher};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

const USERNAME_FILE: &str = "upstream.sasl.usernameFile";
const PASSWORD_FILE: &str = "upstream.sasl.passwordFile";
const TOKEN_FILE: &str = "upstream.sasl.tokenFile";
const CLIENT_ID_FILE: &str = "upstream.sasl.oauth.clientIdFile";
const CLIENT_SECRET_FILE: &str = "upstream.sasl.oauth.clientSecretFile";
/// Longer than any password, and than tokens that brokers take.
const BYTES_MAX: usize = 512 * 1024;

/// What is wrong with a file of credentials.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// It cannot be read, or everyone can.
    #[error(transparent)]
    File(#[from] tls::LoadError),
    /// What is in it cannot be meant.
    #[error("{key} {path} {problem}")]
    Contents {
        /// The configuration key.
        key: &'static str,
        /// The file.
        path: String,
        /// What is wrong with it.
        problem: &'static str,
    },
}

/// What hapax logs in by. Nothing of it is ever shown.
pub(super) enum Secret {
    Password(Password),
    Token(Token),
    Client(Client),
}

/// A user and its password.
pub(super) struct Password {
    pub(super) user: String,
    pub(super) password: String,
    /// What was made of it for the salt that was asked for last: a broker has
    /// one for each user and mechanism, and making it takes milliseconds.
    made: Mutex<Option<(Salted, Arc<Keys>)>>,
}

/// Who asks for tokens.
pub(super) struct Client {
    pub(super) id: String,
    pub(super) secret: String,
}

impl Secret {
    pub(super) fn read(config: &UpstreamSasl) -> Result<Self, LoadError> {
        Ok(match &config.credentials {
            SaslCredentials::Password {
                username,
                password_file,
            } => {
                let user = name(username, USERNAME_FILE)?;
                let password = secret(PASSWORD_FILE, password_file)?;
                // PLAIN ends a password there, and nobody types one.
                if password.contains('\0') || user.contains('\0') {
                    return Err(contents(PASSWORD_FILE, password_file, "has a byte 0 in it"));
                }
                Self::Password(Password {
                    user,
                    password,
                    made: Mutex::new(None),
                })
            }
            SaslCredentials::Token(path) => {
                let text = secret(TOKEN_FILE, path)?;
                let token = Token::new(text.trim());
                let problem = "has no token: one line without blanks is expected";
                Self::Token(token.ok_or_else(|| contents(TOKEN_FILE, path, problem))?)
            }
            SaslCredentials::Client(oauth) => Self::Client(Client {
                id: name(&oauth.client_id, CLIENT_ID_FILE)?,
                secret: secret(CLIENT_SECRET_FILE, &oauth.client_secret_file)?,
            }),
        })
    }

    /// The same for the same words, and as good as never for others.
    pub(super) fn digest(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        match self {
            Self::Password(own) => (&own.user, &own.password).hash(&mut hasher),
            Self::Token(own) => own.text.hash(&mut hasher),
            Self::Client(own) => (&own.id, &own.secret).hash(&mut hasher),
        }
        hasher.finish()
    }
}

impl Password {
    /// What was made of the password for this salt, if that is known.
    pub(super) fn made(&self, salted: &Salted) -> Option<Arc<Keys>> {
        let made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        let (of, keys) = made.as_ref()?;
        (of == salted).then(|| Arc::clone(keys))
    }

    /// Makes it, which takes a while.
    pub(super) fn make(&self, hash: Hash, salted: Salted) -> Arc<Keys> {
        // Whoever logged in at the same time may have made it.
        if let Some(keys) = self.made(&salted) {
            return keys;
        }
        let keys = Arc::new(Keys::derive(hash, self.password.as_bytes(), &salted));
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        *made = Some((salted, Arc::clone(&keys)));
        keys
    }
}

fn name(name: &Name, key: &'static str) -> Result<String, LoadError> {
    match name {
        Name::Given(name) => Ok(name.clone()),
        Name::InFile(path) => {
            let bytes = tls::read_open(key, path)?;
            text(key, path, bytes)
        }
    }
}

fn secret(key: &'static str, path: &Path) -> Result<String, LoadError> {
    let bytes = tls::read_secret(key, path)?;
    text(key, path, bytes)
}

/// One line, whose end editors add.
fn text(key: &'static str, path: &Path, bytes: Vec<u8>) -> Result<String, LoadError> {
    if bytes.len() > BYTES_MAX {
        return Err(contents(key, path, "is too large to be meant"));
    }
    let Ok(text) = String::from_utf8(bytes) else {
        return Err(contents(key, path, "is not UTF-8"));
    };
    let line = text.strip_suffix('\n').unwrap_or(&text);
    let line = line.strip_suffix('\r').unwrap_or(line);
    match line {
        "" => Err(contents(key, path, "is empty")),
        line if line.contains(['\n', '\r']) => Err(contents(key, path, "has more than one line")),
        line => Ok(line.to_owned()),
    }
}

fn contents(key: &'static str, path: &Path, problem: &'static str) -> LoadError {
    LoadError::Contents {
        key,
        path: path.display().to_string(),
        problem,
    }
}
