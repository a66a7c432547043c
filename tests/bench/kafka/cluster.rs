//! One Kafka 4.4.0 of one node or three, and what leads to it.

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process;

use crate::kit::limit;
use crate::kit::process::Listener;
use crate::support::kafka::VERSION;
use crate::tools::{free_ports, kafka, source, unique};

/// A running cluster; taken down when dropped, or when this process ends.
pub(crate) struct Cluster {
    folder: PathBuf,
    ports: Vec<u16>,
    /// One for each node, where its FRONT listener sends clients.
    limits: Vec<Listener>,
}

/// Ports that a node takes.
const PORTS: u16 = 6;
/// Of those the listener for clients that come by the limit.
const FRONT: u16 = 2;

impl Cluster {
    pub(crate) fn start(nodes: usize) -> Self {
        let ports: Vec<u16> = (0..nodes).map(|_| free_ports(PORTS)).collect();
        let fronts = ports.iter().map(|port| port + FRONT);
        let cluster = Self {
            folder: source("../target/tests/clusters").join(unique("bench")),
            limits: fronts
                .map(|port| limit::start(SocketAddr::from(([127, 0, 0, 1], port))))
                .collect(),
            ports,
        };
        let advertised = cluster.limits.iter().map(|limit| limit.address.to_string());
        let advertised: Vec<String> = advertised.collect();
        let ports: Vec<String> = cluster.ports.iter().map(u16::to_string).collect();
        kafka(&cluster.folder, &["up"], |command| {
            command
                .env("KAFKA_VERSION", VERSION)
                .env("NODE_PORTS", ports.join(" "))
                .env("FRONT_ADVERTISED", advertised.join(" "))
                .env("JAVA_TIER", "4")
                .env("OWNER_PID", process::id().to_string());
        });
        cluster
    }

    pub(crate) fn nodes(&self) -> usize {
        self.ports.len()
    }

    /// Where clients reach the nodes directly.
    pub(crate) fn bootstrap(&self) -> String {
        let addresses = self.ports.iter().map(|port| format!("127.0.0.1:{port}"));
        addresses.collect::<Vec<_>>().join(",")
    }

    /// Where clients reach them by way of the limits.
    pub(crate) fn limit_bootstrap(&self) -> String {
        let addresses = self.limits.iter().map(|limit| limit.address.to_string());
        addresses.collect::<Vec<_>>().join(",")
    }

    /// The limits' processes.
    pub(crate) fn limit_pids(&self) -> Vec<u32> {
        self.limits.iter().map(Listener::id).collect()
    }

    /// The nodes' processes.
    pub(crate) fn pids(&self) -> Vec<u32> {
        let pid = |node| {
            let text = fs::read_to_string(self.folder.join(format!("n{node}/pid"))).unwrap();
            text.trim().parse().unwrap()
        };
        (1..=self.nodes()).map(pid).collect()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        kafka(&self.folder, &["down"], |_| {});
    }
}
