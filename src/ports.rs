//! What to do where a port cannot be bound.

use std::io::ErrorKind;
use std::net::SocketAddr;

/// From here on systems lend ports to outgoing connections: Linux from 32768,
/// others from 49152.
const LENT_FROM: u16 = 32_768;

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
