//! `hapax user`.

use std::fs::File;
use std::io::{self, IsTerminal, Read};
use std::path::PathBuf;

use clap::Args;

use crate::config::ClientMechanism;
use crate::scram::{Hash, ITERATIONS};
use crate::users::{self, Credential, ITERATIONS_DEFAULT};

/// Longer ones no client sends: a login has 8 KiB.
const PASSWORD_MAX: u64 = 4096;
const SALT_BYTES: usize = 24;

/// Make the lines of a user for listen.sasl.usersFile: what hapax needs to see
/// that a client knows the password, which is not in them. The password is the
/// first line of standard input, or of a file.
#[derive(Args, Clone, Debug)]
pub struct UserArgs {
    /// The user's name; neither a colon nor a control character.
    #[arg(value_name = "NAME", value_parser = parse_name)]
    pub name: String,
    /// File that has the password.
    #[arg(long, value_name = "FILE")]
    pub password_file: Option<PathBuf>,
    /// For this mechanism alone: PLAIN needs either one of the others.
    #[arg(long, value_name = "NAME", value_parser = parse_mechanism)]
    pub mechanism: Option<Hash>,
    /// How often the password is hashed, at every login.
    #[arg(
        long, value_name = "N", default_value_t = ITERATIONS_DEFAULT,
        value_parser = clap::value_parser!(u32).range(i64::from(*ITERATIONS.start())..=i64::from(*ITERATIONS.end())),
    )]
    pub iterations: u32,
}

impl UserArgs {
    /// The password, without the end of its line.
    ///
    /// # Errors
    ///
    /// Where none can be read.
    pub fn password(&self) -> io::Result<String> {
        let stdin = io::stdin();
        let mut text = String::new();
        match &self.password_file {
            Some(path) => {
                let file = File::open(path);
                let read = file.and_then(|f| f.take(PASSWORD_MAX).read_to_string(&mut text));
                read.map_err(|error| {
                    io::Error::other(format!("cannot read {}: {error}", path.display()))
                })?;
            }
            None if stdin.is_terminal() => {
                let advice = "the password comes from standard input, and a terminal would show it: read -rs P; printf %s \"$P\" | hapax user NAME, or give --password-file";
                return Err(io::Error::other(advice));
            }
            None => {
                stdin.take(PASSWORD_MAX).read_to_string(&mut text)?;
            }
        }
        let password = text.lines().next().unwrap_or_default();
        if password.is_empty() || password.contains('\0') {
            let empty = "no password: it is the first line of what is read, without NUL";
            return Err(io::Error::other(empty));
        }
        Ok(password.to_owned())
    }

    /// The lines, each with a salt of its own.
    ///
    /// # Errors
    ///
    /// Where the system gives no random bytes.
    pub fn lines(&self, password: &str) -> io::Result<String> {
        let mut lines = String::new();
        let wanted = |hash: &Hash| self.mechanism.is_none_or(|only| only == *hash);
        for hash in Hash::ALL.into_iter().filter(wanted) {
            let salt = users::random::<SALT_BYTES>()?;
            let made = Credential::of(hash, password.as_bytes(), &salt, self.iterations);
            lines.push_str(&format!("{}:{made}\n", self.name));
        }
        Ok(lines)
    }
}

fn parse_name(text: &str) -> Result<String, String> {
    match users::is_name(text) {
        true => Ok(text.to_owned()),
        false => Err(
            "a name has neither a colon nor a control character, and no space or # at either end"
                .to_owned(),
        ),
    }
}

fn parse_mechanism(text: &str) -> Result<Hash, String> {
    let found = Hash::ALL.into_iter().find(|hash| hash.mechanism() == text);
    found.ok_or_else(|| {
        format!(
            "give {} or {}; PLAIN is checked by either",
            ClientMechanism::ScramSha256.name(),
            ClientMechanism::ScramSha512.name()
        )
    })
}
