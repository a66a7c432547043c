//! Who a client has proven to be, as a number that windows can compare.

use crate::window::Realm;
use dashmap::DashMap;
use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU32, Ordering};

/// Identities remembered; a client beyond them is never absorbed for.
const LIMIT: u32 = 100_000;

/// What a client has proven to the cluster (SEMANTICS 7.3, A5).
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Identity {
    /// It never tried to authenticate.
    Anonymous,
    /// It authenticated as this user by this mechanism.
    User {
        /// The SASL mechanism.
        mechanism: String,
        /// The user name.
        user: String,
    },
    /// It authenticated by a mechanism whose user cannot be read, and is on
    /// this machine.
    Local {
        /// The SASL mechanism.
        mechanism: String,
    },
    /// It has not proven anything that could be compared.
    Unproven,
}

#[derive(Default)]
pub(super) struct Realms {
    map: DashMap<Identity, Realm>,
    made: AtomicU32,
}

impl Realms {
    pub(super) fn of(&self, identity: &Identity) -> Option<Realm> {
        if *identity == Identity::Unproven {
            return None;
        }
        if let Some(known) = self.map.get(identity) {
            return Some(*known);
        }
        if self.made.load(Ordering::Relaxed) >= LIMIT {
            return None;
        }
        let made = *self.map.entry(identity.clone()).or_insert_with(|| {
            let number = self.made.fetch_add(1, Ordering::Relaxed).saturating_add(1);
            Realm(NonZeroU32::new(number).unwrap_or(NonZeroU32::MIN))
        });
        Some(made)
    }

    pub(super) fn all(&self) -> HashMap<Realm, Identity> {
        let realms = self.map.iter();
        realms.map(|e| (*e.value(), e.key().clone())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_realm_an_identity_and_none_for_the_unproven() {
        let realms = Realms::default();
        let user = |user: &str| Identity::User {
            mechanism: "PLAIN".to_owned(),
            user: user.to_owned(),
        };
        assert_eq!(realms.of(&user("a")), realms.of(&user("a")));
        assert_ne!(realms.of(&user("a")), realms.of(&user("b")));
        assert_ne!(realms.of(&user("a")), realms.of(&Identity::Anonymous));
        assert_eq!(realms.of(&Identity::Unproven), None);
    }
}
