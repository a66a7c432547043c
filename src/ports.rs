//! What to do where a port cannot be bound.

use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, SocketAddr};

use rustix::io::Errno;

/// From here on systems lend ports to outgoing connections: Linux from 32768,
/// others from 49152.
const LENT_FROM: u16 = 32_768;

/// What to bind in place of `address` when binding it failed with `error`:
/// `[::]` means every address of the machine, and where its kernel has no IPv6
/// at all (`ipv6.disable=1`), those are the ones of IPv4.
#[must_use]
pub fn instead(address: SocketAddr, error: &io::Error) -> Option<SocketAddr> {
    let without_ipv6 = error.raw_os_error() == Some(Errno::AFNOSUPPORT.raw_os_error());
    let every = address.is_ipv6() && address.ip().is_unspecified();
    (without_ipv6 && every).then(|| (Ipv4Addr::UNSPECIFIED, address.port()).into())
}

/// What to do about `address`, which `flag` sets, when binding it failed so.
#[must_use]
pub fn advice(flag: &str, address: SocketAddr, kind: ErrorKind) -> String {
    match kind {
        ErrorKind::AddrInUse if address.port() >= LENT_FROM => format!(
            "free the port, or move {flag} below {LENT_FROM}: higher ones are lent to outgoing connections"
        ),
        ErrorKind::AddrInUse => format!("free the port, or move {flag} to another"),
        ErrorKind::AddrNotAvailable => {
            format!("this machine does not have that address, correct {flag}")
        }
        ErrorKind::PermissionDenied => {
            format!("ports below 1024 are for root, move {flag} to a higher one")
        }
        _ => format!("move {flag} to another address or port"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_address_is_that_of_ipv4_where_there_is_no_ipv6() {
        let missing = io::Error::from(Errno::AFNOSUPPORT);
        let check = |address: &str, error: &io::Error, expected: Option<&str>| {
            let found = instead(address.parse().unwrap(), error);
            assert_eq!(found.map(|a| a.to_string()).as_deref(), expected);
        };
        check("[::]:9180", &missing, Some("0.0.0.0:9180"));
        check("[::1]:9180", &missing, None);
        check("0.0.0.0:9180", &missing, None);
        check("[::]:9180", &io::Error::from(Errno::ADDRINUSE), None);
    }

    #[test]
    fn every_advice_names_the_flag() {
        let check = |port, kind, says: &str| {
            let advice = advice("--listen", SocketAddr::from(([127, 0, 0, 1], port)), kind);
            assert!(advice.contains("--listen"), "{advice}");
            assert!(advice.contains(says), "{advice}");
        };
        check(19_092, ErrorKind::AddrInUse, "to another");
        check(40_000, ErrorKind::AddrInUse, "below 32768");
        check(19_092, ErrorKind::AddrNotAvailable, "correct");
        check(80, ErrorKind::PermissionDenied, "for root");
        check(80, ErrorKind::Other, "another address");
    }
}
