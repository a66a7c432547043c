//! The addresses that lead back to hapax itself.

use std::net::{IpAddr, SocketAddr};

/// Addresses that are hapax's own.
#[derive(Clone, Debug)]
pub struct Own(Vec<SocketAddr>);

impl Own {
    /// Those of listeners on these ports of one address.
    #[must_use]
    pub fn new(ip: IpAddr, ports: impl IntoIterator<Item = u16>) -> Self {
        let addresses = ports.into_iter().map(|port| SocketAddr::new(ip, port));
        Self(addresses.collect())
    }

    /// Whether an address leads back to hapax, once connected by what local
    /// address. One that is bound to every address of this machine is met
    /// wherever both ends have the same one.
    #[must_use]
    pub fn contains(&self, address: SocketAddr, local: Option<SocketAddr>) -> bool {
        let ip = address.ip().to_canonical();
        let here = ip.is_loopback() || local.is_some_and(|l| l.ip().to_canonical() == ip);
        self.0.iter().any(|own| {
            own.port() == address.port()
                && (own.ip().to_canonical() == ip || (own.ip().is_unspecified() && here))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_own_port_is_met_at_the_address_it_is_bound_to() {
        let check = |bound: &str, address: &str, local: Option<&str>, expected| {
            let own = Own::new(bound.parse().unwrap(), [19_092]);
            let local = local.map(|local| local.parse().unwrap());
            let met = own.contains(address.parse().unwrap(), local);
            assert_eq!(met, expected, "{bound} {address} {local:?}");
        };
        check("127.0.0.1", "127.0.0.1:19092", None, true);
        check("127.0.0.1", "127.0.0.1:19093", None, false);
        check("127.0.0.1", "10.0.0.1:19092", None, false);
        check("0.0.0.0", "127.0.0.1:19092", None, true);
        check("0.0.0.0", "10.0.0.1:19092", None, false);
        check("0.0.0.0", "10.0.0.1:19092", Some("10.0.0.1:5"), true);
        check("::", "[::ffff:127.0.0.1]:19092", None, true);
    }
}
