//! `upstream.sasl.*`: by which credentials hapax logs in to the brokers.

use std::fmt;
use std::path::PathBuf;

use super::Conflict;

/// `upstream.sasl.*`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UpstreamSasl {
    /// How hapax proves who it is; never [`Mechanism::None`].
    pub mechanism: Mechanism,
    /// Where what it proves that by is.
    pub credentials: SaslCredentials,
}

/// How hapax proves to a broker who it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, clap::ValueEnum)]
pub enum Mechanism {
    /// It does not: clients do.
    #[default]
    #[value(name = "none")]
    None,
    /// It shows its password.
    #[value(name = "PLAIN")]
    Plain,
    /// It proves that it knows its password.
    #[value(name = "SCRAM-SHA-256")]
    ScramSha256,
    /// The same, by a longer hash.
    #[value(name = "SCRAM-SHA-512")]
    ScramSha512,
    /// It shows a token.
    #[value(name = "OAUTHBEARER")]
    OauthBearer,
}

impl Mechanism {
    /// As brokers call it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Plain => "PLAIN",
            Self::ScramSha256 => "SCRAM-SHA-256",
            Self::ScramSha512 => "SCRAM-SHA-512",
            Self::OauthBearer => "OAUTHBEARER",
        }
    }
}

impl fmt::Display for Mechanism {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Where credentials are. What is secret is in a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SaslCredentials {
    /// A user's.
    Password {
        /// Who.
        username: Name,
        /// The file of the password.
        password_file: PathBuf,
    },
    /// The file of a token.
    Token(PathBuf),
    /// Those by which tokens are got.
    Client(Oauth),
}

/// A name that is no secret.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Name {
    /// It is this.
    Given(String),
    /// A file has it.
    InFile(PathBuf),
}

/// `upstream.sasl.oauth.*`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Oauth {
    /// Where tokens are got.
    pub endpoint: Endpoint,
    /// Who asks.
    pub client_id: Name,
    /// The file of its secret.
    pub client_secret_file: PathBuf,
    /// What for.
    pub scope: Option<String>,
    /// The CAs of the endpoint; those of the system without it.
    pub ca_file: Option<PathBuf>,
}

/// A URL of HTTP.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Endpoint {
    /// Whether it is https.
    pub secure: bool,
    /// A name, or an address without brackets.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// Path and query, from the first slash on.
    pub path: String,
}

impl Endpoint {
    /// Reads a URL; `None` where it is none, or has a user in it.
    #[must_use]
    pub fn parse(url: &str) -> Option<Self> {
        let (secure, rest) = match url.split_once("://")? {
            ("https", rest) => (true, rest),
            ("http", rest) => (false, rest),
            _ => return None,
        };
        let at = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(at);
        let path = match path.as_bytes().first() {
            None => "/".to_owned(),
            Some(b'/') => path.to_owned(),
            Some(_) => return None,
        };
        let printable = |c: char| c.is_ascii_graphic() && c != '#';
        let (host, port) = match authority.strip_prefix('[') {
            Some(rest) => {
                let (host, port) = rest.split_once(']')?;
                (
                    host,
                    port.strip_prefix(':')
                        .or_else(|| port.is_empty().then_some(""))?,
                )
            }
            None => authority.split_once(':').unwrap_or((authority, "")),
        };
        let port = match port {
            "" if secure => 443,
            "" => 80,
            port => port.parse().ok().filter(|port| *port != 0)?,
        };
        let sound = !host.is_empty() && !host.contains('@') && path.chars().all(printable);
        (sound && host.chars().all(printable)).then(|| Self {
            secure,
            host: host.to_owned(),
            port,
            path,
        })
    }

    /// `HOST:PORT`, as the header Host has it.
    #[must_use]
    pub fn authority(&self) -> String {
        match self.host.contains(':') {
            true => format!("[{}]:{}", self.host, self.port),
            false => format!("{}:{}", self.host, self.port),
        }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.secure { "https" } else { "http" };
        write!(f, "{scheme}://{}{}", self.authority(), self.path)
    }
}

/// The keys as they are set.
pub(super) struct Read<'s> {
    pub(super) mechanism: Mechanism,
    pub(super) text: &'s dyn Fn(&'static str) -> Option<String>,
    pub(super) file: &'s dyn Fn(&'static str) -> Option<PathBuf>,
}

const MECHANISM: &str = "upstream.sasl.mechanism";
const USERNAME: &str = "upstream.sasl.username";
const USERNAME_FILE: &str = "upstream.sasl.usernameFile";
const PASSWORD_FILE: &str = "upstream.sasl.passwordFile";
const TOKEN_FILE: &str = "upstream.sasl.tokenFile";
const ENDPOINT: &str = "upstream.sasl.oauth.tokenEndpoint";
const CLIENT_ID: &str = "upstream.sasl.oauth.clientId";
const CLIENT_ID_FILE: &str = "upstream.sasl.oauth.clientIdFile";
const CLIENT_SECRET_FILE: &str = "upstream.sasl.oauth.clientSecretFile";
const SCOPE: &str = "upstream.sasl.oauth.scope";
const CA_FILE: &str = "upstream.sasl.oauth.caFile";

const TEXTS: [&str; 4] = [USERNAME, ENDPOINT, CLIENT_ID, SCOPE];
const OF_PASSWORDS: [&str; 3] = [USERNAME, USERNAME_FILE, PASSWORD_FILE];
const OF_CLIENTS: [&str; 6] = [
    ENDPOINT,
    CLIENT_ID,
    CLIENT_ID_FILE,
    CLIENT_SECRET_FILE,
    SCOPE,
    CA_FILE,
];

impl Read<'_> {
    /// What they mean together.
    pub(super) fn settled(&self, conflicts: &mut Vec<Conflict>) -> Option<UpstreamSasl> {
        let credentials = match self.mechanism {
            Mechanism::None => {
                let mut all = OF_PASSWORDS.into_iter().chain([TOKEN_FILE]);
                let given = all.find(|key| self.is_set(key));
                let given = given.or_else(|| self.first_of(&OF_CLIENTS));
                // Whoever gives a password believes that hapax logs in.
                conflicts.extend(given.map(|given| Conflict::Incomplete {
                    given,
                    missing: MECHANISM,
                    advice: "set that to PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER, or leave this out to let clients log in themselves",
                }));
                return None;
            }
            Mechanism::Plain | Mechanism::ScramSha256 | Mechanism::ScramSha512 => {
                self.password(conflicts)?
            }
            Mechanism::OauthBearer => self.token(conflicts)?,
        };
        Some(UpstreamSasl {
            mechanism: self.mechanism,
            credentials,
        })
    }

    fn password(&self, conflicts: &mut Vec<Conflict>) -> Option<SaslCredentials> {
        let unused = self.first_of(&[TOKEN_FILE]);
        let unused = unused.or_else(|| self.first_of(&OF_CLIENTS));
        self.refuse(
            unused,
            "leave it out, or set that to OAUTHBEARER",
            conflicts,
        );
        let username = self.name(USERNAME, USERNAME_FILE, conflicts);
        let password_file = self.needed(PASSWORD_FILE, conflicts);
        Some(SaslCredentials::Password {
            username: username?,
            password_file: password_file?,
        })
    }

    fn token(&self, conflicts: &mut Vec<Conflict>) -> Option<SaslCredentials> {
        let unused = self.first_of(&OF_PASSWORDS);
        self.refuse(
            unused,
            "leave it out, or set that to PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512",
            conflicts,
        );
        let file = (self.file)(TOKEN_FILE);
        match (file, self.first_of(&OF_CLIENTS)) {
            (Some(file), None) => Some(SaslCredentials::Token(file)),
            (Some(_), Some(other)) => {
                let one = TOKEN_FILE;
                conflicts.push(Conflict::Both { one, other });
                None
            }
            (None, None) => {
                conflicts.push(Conflict::Incomplete {
                    given: MECHANISM,
                    missing: TOKEN_FILE,
                    advice: "name the file of a token there, or where hapax gets one itself in upstream.sasl.oauth.tokenEndpoint",
                });
                None
            }
            (None, Some(_)) => self.client(conflicts).map(SaslCredentials::Client),
        }
    }

    fn client(&self, conflicts: &mut Vec<Conflict>) -> Option<Oauth> {
        let endpoint = match (self.text)(ENDPOINT) {
            Some(url) => {
                let endpoint = Endpoint::parse(&url);
                if endpoint.is_none() {
                    // What stands before the host may be a password.
                    let shown = url.rsplit('@').next().unwrap_or_default();
                    conflicts.push(Conflict::NoEndpoint(shown.to_owned()));
                }
                endpoint
            }
            None => {
                conflicts.push(Conflict::Incomplete {
                    given: self.first_of(&OF_CLIENTS).unwrap_or(MECHANISM),
                    missing: ENDPOINT,
                    advice: "say where tokens are got",
                });
                None
            }
        };
        let client_id = self.name(CLIENT_ID, CLIENT_ID_FILE, conflicts);
        let client_secret_file = self.needed(CLIENT_SECRET_FILE, conflicts);
        Some(Oauth {
            endpoint: endpoint?,
            client_id: client_id?,
            client_secret_file: client_secret_file?,
            scope: (self.text)(SCOPE),
            ca_file: (self.file)(CA_FILE),
        })
    }

    /// A name that is given, or in a file: one of both.
    fn name(
        &self,
        given: &'static str,
        in_file: &'static str,
        conflicts: &mut Vec<Conflict>,
    ) -> Option<Name> {
        match ((self.text)(given), (self.file)(in_file)) {
            (Some(name), None) => Some(Name::Given(name)),
            (None, Some(file)) => Some(Name::InFile(file)),
            (Some(_), Some(_)) => {
                let (one, other) = (given, in_file);
                conflicts.push(Conflict::Both { one, other });
                None
            }
            (None, None) => {
                conflicts.push(Conflict::Incomplete {
                    given: MECHANISM,
                    missing: given,
                    advice: "say who hapax is, there or in the file that the key with File at its end names",
                });
                None
            }
        }
    }

    fn needed(&self, file: &'static str, conflicts: &mut Vec<Conflict>) -> Option<PathBuf> {
        let found = (self.file)(file);
        if found.is_none() {
            conflicts.push(Conflict::Incomplete {
                given: MECHANISM,
                missing: file,
                advice: "name the file of the secret there",
            });
        }
        found
    }

    fn refuse(
        &self,
        unused: Option<&'static str>,
        advice: &'static str,
        conflicts: &mut Vec<Conflict>,
    ) {
        let mechanism = self.mechanism;
        conflicts.extend(unused.map(|given| Conflict::Unused {
            given,
            mechanism,
            advice,
        }));
    }

    fn first_of(&self, keys: &[&'static str]) -> Option<&'static str> {
        keys.iter().copied().find(|key| self.is_set(key))
    }

    fn is_set(&self, key: &'static str) -> bool {
        match TEXTS.contains(&key) {
            true => (self.text)(key).is_some(),
            false => (self.file)(key).is_some(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_is_a_url_of_http() {
        let check = |url: &str, expected: Option<&str>| {
            let read = Endpoint::parse(url).map(|endpoint| endpoint.to_string());
            assert_eq!(read.as_deref(), expected, "{url}");
        };
        check(
            "https://id.example/token",
            Some("https://id.example:443/token"),
        );
        check("http://127.0.0.1:8080", Some("http://127.0.0.1:8080/"));
        check("http://[::1]:80/t?a=b", Some("http://[::1]:80/t?a=b"));
        check("https://[::1]/t", Some("https://[::1]:443/t"));
        for bad in [
            "id.example/token",
            "ftp://id.example/",
            "https://",
            "https:///token",
            "https://id.example:0/",
            "https://id.example:https/",
            "https://user:secret@id.example/",
            "https://id.example/a b",
            "https://id.example?a",
            "https://[::1]x/",
        ] {
            check(bad, None);
        }
    }
}
