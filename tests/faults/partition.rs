//! A node that the other nodes cannot reach, nor it them, while clients reach
//! all: rules of the kernel's packet filter, by the user that a node runs as.

use std::io::Write;
use std::process::{Command, Stdio};

use crate::cluster::Cluster;
use crate::tools::unique;

/// The rules; they go when dropped.
pub(crate) struct Cut {
    table: String,
}

/// Cuts a node off from the others.
pub(crate) fn cut_off(cluster: &Cluster, node: usize) -> Cut {
    let table = unique("hapax_faults").replace('-', "_");
    let list = |ports: Vec<u16>| {
        let ports: Vec<String> = ports.iter().map(u16::to_string).collect();
        ports.join(", ")
    };
    let user = Cluster::user(node);
    let own = list(cluster.ports_between_nodes(node));
    let others = (0..cluster.nodes()).filter(|other| *other != node);
    let others = list(
        others
            .flat_map(|other| cluster.ports_between_nodes(other))
            .collect(),
    );
    let cut = Cut { table };
    // A node talks to itself too, which goes on.
    nft(&format!(
        "table inet {} {{
            chain out {{
                type filter hook output priority 0
                meta skuid != {user} tcp dport {{ {own} }} drop
                meta skuid {user} tcp dport {{ {others} }} drop
            }}
        }}
        ",
        cut.table
    ));
    cut
}

impl Drop for Cut {
    fn drop(&mut self) {
        nft(&format!("delete table inet {}", self.table));
    }
}

fn nft(rules: &str) {
    let mut child = Command::new("nft")
        .args(["-f", "-"])
        .stdin(Stdio::piped())
        .spawn()
        .expect("nft is installed");
    let mut input = child.stdin.take().expect("it is piped");
    input.write_all(rules.as_bytes()).expect("nft reads");
    drop(input);
    let status = child.wait().expect("a child can be waited for");
    assert!(status.success(), "nft takes {rules}");
}
