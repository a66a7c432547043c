//! Whether hapax could listen where it is told to.

use std::io;
use std::net::{SocketAddr, TcpListener};

use crate::admin::client;
use crate::config::Config;
use crate::ports;

use super::advice;
use super::report::{PortRow, Problem};

/// Tries every port. Those that a running hapax has are no problem: `check` may
/// look beside it.
pub(super) async fn look(config: &Config, problems: &mut Vec<Problem>) -> Vec<PortRow> {
    let running = client::is_up(config.admin.listen).await;
    let ip = config.listen.ip();
    let broker_ports = config.broker_ports.clone();
    let range = match (broker_ports.start(), broker_ports.end()) {
        (first, last) if first == last => SocketAddr::new(ip, *first).to_string(),
        (first, last) => format!("{}-{last}", SocketAddr::new(ip, *first)),
    };
    let brokers = broker_ports.map(|port| SocketAddr::new(ip, port)).collect();
    let rows = [
        ("--listen", config.listen.to_string(), vec![config.listen]),
        ("--broker-ports", range, brokers),
        (
            "--admin-listen",
            config.admin.listen.to_string(),
            vec![config.admin.listen],
        ),
    ];
    let tried = rows.map(|(flag, address, addresses)| {
        let taken: Vec<_> = addresses.into_iter().filter_map(refused).collect();
        let state = match (taken.is_empty(), running) {
            (true, _) => "free",
            (false, true) => "hapax",
            (false, false) => "taken",
        };
        if let (Some((first, error)), "taken") = (taken.first(), state) {
            let others = match taken.len() {
                1 => String::new(),
                count => format!(" and {} more of {flag}", count - 1),
            };
            let which = format!("{first}{others}");
            problems.push(advice::taken(flag, &which, *first, error));
        }
        PortRow {
            flag,
            address,
            state,
            taken: taken.iter().map(|(address, _)| address.port()).collect(),
        }
    });
    tried.into()
}

/// An address that cannot be listened on, and why.
fn refused(address: SocketAddr) -> Option<(SocketAddr, io::Error)> {
    let error = TcpListener::bind(address).err()?;
    let instead = ports::instead(address, &error);
    let bound = instead.is_some_and(|instead| TcpListener::bind(instead).is_ok());
    (!bound).then_some((address, error))
}
