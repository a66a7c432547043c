//! Real Kafka, real clients, and hapax as a process of its own between them.
//!
//! `tests/run` installs what this needs; what is missing fails a test with the
//! name of the stage that installs it. `TEST_ROUTE=direct` leaves hapax out:
//! the same claims, less those about hapax, must then hold of Kafka alone.

#[cfg(test)]
mod addresses;
#[cfg(test)]
mod announcements;
#[cfg(test)]
mod bumps;
#[cfg(test)]
mod check;
#[cfg(test)]
#[allow(dead_code, reason = "the tests of security use it too")]
mod clients;
#[cfg(test)]
#[allow(dead_code, reason = "the fault matrix uses it too")]
mod cluster;
#[cfg(test)]
mod door;
#[cfg(test)]
mod enforce;
#[cfg(test)]
mod experiments;
#[cfg(test)]
mod faults;
#[cfg(test)]
mod forgotten;
#[cfg(test)]
mod hapax;
#[cfg(test)]
mod kfaked;
#[cfg(test)]
mod lifecycle;
#[cfg(test)]
mod line;
#[cfg(test)]
mod listeners;
#[cfg(test)]
mod login;
#[cfg(test)]
mod lost_acks;
#[cfg(test)]
#[path = "../support/oidc.rs"]
mod oidc;
#[cfg(test)]
#[allow(dead_code, reason = "the tests of security use it too")]
mod raw;
#[cfg(test)]
mod readback;
#[cfg(test)]
mod readme;
#[cfg(test)]
mod sasl;
#[cfg(test)]
mod scale;
#[cfg(test)]
mod state;
#[cfg(test)]
mod tap;
#[cfg(test)]
mod tools;
#[cfg(test)]
mod traffic;
#[cfg(test)]
mod users;
