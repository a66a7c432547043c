//! A file of users: who they are, and what is kept of their passwords. Pure.
//!
//! ```text
//! # one user and mechanism a line
//! alice:SCRAM-SHA-256$16384:SALT$STORED-KEY:SERVER-KEY
//! alice:SCRAM-SHA-512$16384:SALT$STORED-KEY:SERVER-KEY
//! ```

use super::credential::{BadCredential, Credential, Look};
use crate::scram::Hash;
use std::collections::{BTreeMap, HashMap};

/// Why a file is no list of users. It says nothing of what the file has.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BadLine {
    /// Nobody is in it.
    #[error(" has no user, so nobody could get in: hapax user NAME makes a line")]
    Nobody,
    /// It is no text.
    #[error(" is no text in UTF-8")]
    NotUtf8,
    /// A line that is none.
    #[error(":{0}: no NAME:CREDENTIAL: hapax user NAME makes a line")]
    NoName(usize),
    /// A credential that is none.
    #[error(":{0}: no credential, {1}: hapax user NAME makes a line")]
    Credential(usize, BadCredential),
    /// The same user and mechanism again.
    #[error(":{0}: this user already has a line of this mechanism: remove one of them")]
    Twice(usize),
}

/// The users.
pub struct List {
    of: HashMap<String, Vec<Credential>>,
    /// What users who do not exist are made by.
    model: Credential,
    /// What users look like who prove that they know a password.
    proving: Looks,
    /// What they look like who say it.
    saying: Looks,
}

/// How many users there are of each look. Where some have more iterations than
/// others, those of nobody are as those of somebody are: as often, and always
/// the same for a name.
#[derive(Default)]
struct Looks(BTreeMap<Look, u64>);

/// What is known of somebody who says a name.
pub struct Known {
    /// What he has to prove.
    pub credential: Credential,
    /// Whether there is such a user: if not, nothing proves anything.
    pub exists: bool,
}

impl List {
    /// The users of a file.
    ///
    /// # Errors
    ///
    /// The first line that is wrong.
    pub fn parse(bytes: &[u8]) -> Result<Self, BadLine> {
        let text = str::from_utf8(bytes).map_err(|_| BadLine::NotUtf8)?;
        let mut of: HashMap<String, Vec<Credential>> = HashMap::new();
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let (name, credential) = line.split_once(':').ok_or(BadLine::NoName(number))?;
            if !is_name(name) {
                return Err(BadLine::NoName(number));
            }
            let credential: Credential = credential
                .parse()
                .map_err(|error| BadLine::Credential(number, error))?;
            let own = of.entry(name.to_owned()).or_default();
            if own.iter().any(|other| other.hash == credential.hash) {
                return Err(BadLine::Twice(number));
            }
            own.push(credential);
            own.sort_by_key(|credential| credential.hash);
        }
        let all = of.values().flatten();
        // Of the hash by which a password is looked at, where users have several.
        let model = all.min_by(|a, b| (a.hash, a.rank()).cmp(&(b.hash, b.rank())));
        let model = model.ok_or(BadLine::Nobody)?.clone();
        let proving = Looks::of(of.values().flatten());
        let saying = Looks::of(of.values().filter_map(|own| own.first()));
        Ok(Self {
            of,
            model,
            proving,
            saying,
        })
    }

    /// How many users there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.of.len()
    }

    /// Whether there is none, which no file says.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.of.is_empty()
    }

    /// Whether there is a user of this name.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.of.contains_key(name)
    }

    /// What somebody who says this name has to prove by a SCRAM mechanism.
    #[must_use]
    pub fn by_scram(&self, name: &str, hash: Hash) -> Known {
        let mut own = self.of.get(name).into_iter().flatten();
        let own = own.find(|own| own.hash == hash);
        let look = || {
            let looks = self.proving.0.iter().filter(|(look, _)| look.hash == hash);
            let nobody_has_it = || Look {
                hash,
                ..self.model.look()
            };
            choose(looks, &self.model, name).unwrap_or_else(nobody_has_it)
        };
        self.known(own, look, name)
    }

    /// What he has to prove by his password itself.
    #[must_use]
    pub fn by_password(&self, name: &str) -> Known {
        let own = self.of.get(name).and_then(|own| own.first());
        let look = || {
            let looks = self.saying.0.iter();
            choose(looks, &self.model, name).unwrap_or_else(|| self.model.look())
        };
        self.known(own, look, name)
    }

    fn known(&self, own: Option<&Credential>, look: impl FnOnce() -> Look, name: &str) -> Known {
        Known {
            credential: own.map_or_else(|| self.model.pretended(look(), name), Clone::clone),
            exists: own.is_some(),
        }
    }
}

impl Looks {
    fn of<'a>(all: impl Iterator<Item = &'a Credential>) -> Self {
        let mut looks = Self::default();
        for credential in all {
            *looks.0.entry(credential.look()).or_default() += 1;
        }
        looks
    }
}

/// One of these looks for nobody: each as often as users have it.
fn choose<'a>(
    looks: impl Iterator<Item = (&'a Look, &'a u64)> + Clone,
    model: &Credential,
    name: &str,
) -> Option<Look> {
    let total = looks.clone().map(|(_, count)| count).sum();
    let mut place = model.place(name, total);
    for (look, count) in looks {
        if place < *count {
            return Some(*look);
        }
        place -= count;
    }
    None
}

/// Whether a line can begin with it, and a client say it.
pub(crate) fn is_name(name: &str) -> bool {
    let odd = |c: char| c == ':' || c.is_control();
    let edge = |c: char| c.is_whitespace() || c == '#';
    !name.is_empty() && !name.contains(odd) && !name.starts_with(edge) && !name.ends_with(edge)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(name: &str, hash: Hash, password: &str) -> String {
        let salt = format!("salt of {name}");
        let made = Credential::of(hash, password.as_bytes(), salt.as_bytes(), 4096);
        format!("{name}:{made}\n")
    }

    #[test]
    fn users_are_found_by_the_mechanism() {
        let text = format!(
            "# users\n\n{}{}  {}",
            line("alice", Hash::Sha512, "a"),
            line("alice", Hash::Sha256, "a"),
            line("bób smith", Hash::Sha512, "b")
        );
        let list = List::parse(text.as_bytes()).unwrap();
        assert_eq!(list.len(), 2);
        let alice = list.by_scram("alice", Hash::Sha512);
        assert!(alice.exists && alice.credential.is_of(b"a"));
        assert!(list.by_password("bób smith").credential.is_of(b"b"));
        assert!(list.by_password("alice").credential.is_of(b"a"));
        let none = list.by_scram("bób smith", Hash::Sha256);
        assert!(!none.exists && none.credential.hash == Hash::Sha256);
        let nobody = list.by_password("carol");
        assert!(!nobody.exists && nobody.credential.iterations == 4096);
    }

    /// A client that asks again and again must not see who exists by what
    /// changes, neither over a restart nor on another replica.
    #[test]
    fn nobody_is_always_the_same() {
        let text = line("alice", Hash::Sha256, "a") + &line("bob", Hash::Sha256, "b");
        let salt = |text: &str| {
            let list = List::parse(text.as_bytes()).unwrap();
            list.by_scram("carol", Hash::Sha256).credential.salt
        };
        assert_eq!(salt(&text), salt(&format!("# new\n{text}")));
    }

    /// A password is looked at by the first hash of its user, which takes its
    /// own time: one of nobody must take the same.
    #[test]
    fn the_password_of_nobody_takes_as_long_as_that_of_a_user() {
        for name in ["alice", "bob", "carol", "dave", "eve"] {
            let text = line(name, Hash::Sha512, "a") + &line(name, Hash::Sha256, "a");
            let list = List::parse(text.as_bytes()).unwrap();
            let (user, nobody) = (list.by_password(name), list.by_password("nobody"));
            assert_eq!(user.credential.hash, nobody.credential.hash, "{name}");
        }
    }

    /// Otherwise a file in which some have more iterations than others tells by
    /// them, and by the time that they take, who exists.
    #[test]
    fn nobody_has_iterations_as_often_as_users_do() {
        let line = |name: &str, iterations| {
            let salt = format!("salt of {name}");
            let made = Credential::of(Hash::Sha256, b"secret", salt.as_bytes(), iterations);
            format!("{name}:{made}\n")
        };
        let mut text: String = (3..6).map(|n| line(&format!("old {n}"), 4096)).collect();
        text += &line("new 1", 4097);
        let count = |text: &str, name: &str| {
            let list = List::parse(text.as_bytes()).unwrap();
            let proving = list.by_scram(name, Hash::Sha256).credential.iterations;
            assert_eq!(list.by_password(name).credential.iterations, proving);
            proving
        };
        let names: Vec<_> = (0..400).map(|n| format!("nobody {n}")).collect();
        let counts = names.iter().map(|name| count(&text, name));
        let new = counts.filter(|count| *count == 4097).count();
        assert!((60..140).contains(&new), "{new} of 400");
        // One user more, who is not the one that names are looked up by, changes
        // what few of them have.
        let more = text.clone() + &line("old 0", 4096);
        let other = names
            .iter()
            .filter(|name| count(&text, name) != count(&more, name));
        let other = other.count();
        assert!(other < 60, "{other} of 400");
    }

    #[test]
    fn a_wrong_line_is_named_and_not_shown() {
        let good = line("alice", Hash::Sha256, "a");
        let check = |text: &str, error| {
            let got = List::parse(text.as_bytes()).err();
            assert_eq!(got, Some(error), "{text}");
        };
        check("", BadLine::Nobody);
        check("# nobody\n", BadLine::Nobody);
        check(&format!("{good}alice\n"), BadLine::NoName(2));
        check(":secret", BadLine::NoName(1));
        let shape = BadLine::Credential(2, BadCredential::Shape);
        check(&format!("{good}bob:secret"), shape);
        check(&format!("{good}{good}"), BadLine::Twice(2));
        assert_eq!(List::parse(b"\xff").err(), Some(BadLine::NotUtf8));
    }
}
