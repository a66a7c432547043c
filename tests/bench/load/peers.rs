//! The proxies that are compared, and how each is started.

use std::env;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::kit::generator::Load;
use crate::kit::limit;
use crate::kit::process::Listener;
use crate::support::hapax::free_range;

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Peer {
    /// Copies bytes.
    Limit,
    /// A hapax of this name.
    Hapax {
        name: String,
        program: PathBuf,
        mode: &'static str,
    },
    Haproxy,
    Envoy,
    Shotover,
}

/// Those that come from registries.
pub(crate) const OTHERS: [Peer; 3] = [Peer::Haproxy, Peer::Envoy, Peer::Shotover];

impl Peer {
    /// The hapax that cargo has built for this benchmark.
    pub(crate) fn own() -> Self {
        Self::hapax("hapax", Path::new(env!("CARGO_BIN_EXE_hapax")))
    }

    pub(crate) fn hapax(name: &str, program: &Path) -> Self {
        Self::Hapax {
            name: name.to_owned(),
            program: program.to_owned(),
            mode: "absorb",
        }
    }

    /// The same hapax, which only counts.
    pub(crate) fn observing(&self) -> Self {
        let mut other = self.clone();
        if let Self::Hapax { mode, .. } = &mut other {
            *mode = "observe";
        }
        other
    }

    pub(crate) fn is_hapax(&self) -> bool {
        matches!(self, Self::Hapax { .. })
    }

    /// Whether repetitions end here.
    pub(crate) fn absorbs(&self) -> bool {
        matches!(self, Self::Hapax { mode: "absorb", .. })
    }

    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Limit => "limit",
            Self::Hapax { name, .. } => name,
            Self::Haproxy => "haproxy",
            Self::Envoy => "Envoy",
            Self::Shotover => "shotover",
        }
    }

    /// Whether clients follow Metadata through it; the others give the
    /// upstream's own addresses on.
    pub(crate) fn rewrites_addresses(&self) -> bool {
        self.is_hapax()
    }

    /// The one version of Produce that it does well.
    pub(crate) fn produce_version(&self) -> Option<i16> {
        // At 12 it writes an error to its log for every message.
        (*self == Self::Shotover).then_some(9)
    }

    /// Whether it takes part: shotover knows Fetch up to version 12 and no topic ids.
    pub(crate) fn can(&self, load: &Load) -> bool {
        *self != Self::Shotover || (load.consumers == 0 && load.version < 13)
    }

    /// What its report names, version and all.
    pub(crate) fn version(&self) -> String {
        match self {
            Self::Limit => "tokio copy_bidirectional, 256 KiB, 2 workers".into(),
            Self::Hapax { program, .. } => said(Command::new(program).arg("version")),
            Self::Haproxy => {
                let text = said(Command::new("haproxy").arg("-v"));
                let number = text.split_whitespace().nth(2);
                format!("haproxy {}", number.unwrap_or(&text))
            }
            Self::Envoy => {
                let text = said(Command::new(envoy_program()).arg("--version"));
                let number = text.split('/').rev().nth(3);
                format!("Envoy {}", number.unwrap_or(&text))
            }
            Self::Shotover => "shotover 0.7.4".into(),
        }
    }

    /// The file that runs, where its size says something.
    pub(crate) fn program(&self) -> Option<PathBuf> {
        match self {
            Self::Limit | Self::Haproxy => None,
            Self::Hapax { program, .. } => Some(program.clone()),
            Self::Envoy => Some(envoy_program()),
            Self::Shotover => Some(shotover_program()),
        }
    }

    /// Starts it in front of `upstream`.
    pub(crate) fn start(&self, upstream: SocketAddr, flags: &[&str]) -> Listener {
        let first = free_range(6);
        let address = SocketAddr::from(([127, 0, 0, 1], first));
        let mut command = match self {
            Self::Limit => return limit::start(upstream),
            Self::Hapax { program, mode, .. } => {
                let mut command = Command::new(program);
                command
                    .args(["run", "--mode", mode, "--upstream", &upstream.to_string()])
                    .arg(format!("--listen={address}"))
                    .arg(format!("--admin-listen=127.0.0.1:{}", first + 1))
                    .arg(format!("--broker-ports={}-{}", first + 2, first + 5))
                    .args(flags);
                command
            }
            Self::Haproxy => haproxy(address, upstream),
            Self::Envoy => envoy(address, upstream),
            Self::Shotover => shotover(address, upstream),
        };
        let log = folder().join(format!("{}-{first}.log", self.name()));
        Listener::program(&mut command, address, &log)
    }
}

/// Where configurations, logs and raw figures go.
pub(crate) fn folder() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("load");
    fs::create_dir_all(&folder).unwrap();
    folder
}

/// Where `tests/lib/install.sh` installs.
fn installed(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("target/tests")
        .join(path)
}

fn said(command: &mut Command) -> String {
    let output = command.output();
    let output = output.unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = String::from_utf8_lossy(&output.stdout);
    let mut lines = text.lines().filter(|line| !line.trim().is_empty());
    lines.next().unwrap_or_default().trim().to_owned()
}

fn write(name: &str, text: &str) -> PathBuf {
    let path = folder().join(name);
    fs::write(&path, text).unwrap();
    path
}

/// As a TCP proxy.
fn haproxy(address: SocketAddr, upstream: SocketAddr) -> Command {
    let text = format!(
        "global\n  nbthread 2\n  maxconn 9000\n\
         defaults\n  mode tcp\n  timeout connect 10s\n  timeout client 10m\n  timeout server 10m\n\
         frontend clients\n  bind {address}\n  default_backend brokers\n\
         backend brokers\n  server broker {upstream}\n"
    );
    let mut command = Command::new("haproxy");
    let name = format!("haproxy-{}.cfg", address.port());
    command.arg("-db").arg("-f").arg(write(&name, &text));
    command
}

fn envoy_program() -> PathBuf {
    let library = installed("bench/lib");
    let mut pythons = fs::read_dir(&library)
        .unwrap_or_else(|_| panic!("no Envoy: tests/run bench installs it"))
        .map(|entry| entry.unwrap().path());
    let python = pythons.next().expect("a Python of the virtual environment");
    python.join("site-packages/envoy/_bin/envoy")
}

/// As a TCP proxy; its circuit breakers are opened for 2,000 connections.
fn envoy(address: SocketAddr, upstream: SocketAddr) -> Command {
    let socket = |address: SocketAddr| {
        let (ip, port) = (address.ip().to_string(), address.port());
        serde_json::json!({"socket_address": {"address": ip, "port_value": port}})
    };
    let proxy = serde_json::json!({
        "name": "envoy.filters.network.tcp_proxy",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy",
            "stat_prefix": "clients",
            "cluster": "brokers",
        },
    });
    let configuration = serde_json::json!({"static_resources": {
        "listeners": [{
            "name": "clients",
            "address": socket(address),
            "filter_chains": [{"filters": [proxy]}],
        }],
        "clusters": [{
            "name": "brokers",
            "type": "STATIC",
            "connect_timeout": "10s",
            "circuit_breakers": {"thresholds": [
                {"max_connections": 10_000, "max_pending_requests": 10_000},
            ]},
            "load_assignment": {"cluster_name": "brokers", "endpoints": [
                {"lb_endpoints": [{"endpoint": {"address": socket(upstream)}}]},
            ]},
        }],
    }});
    let name = format!("envoy-{}.json", address.port());
    let mut command = Command::new(envoy_program());
    command
        .arg("--config-path")
        .arg(write(&name, &configuration.to_string()))
        .args([
            "--concurrency",
            "2",
            "--use-dynamic-base-id",
            "--log-level",
            "error",
        ]);
    command
}

fn shotover_program() -> PathBuf {
    installed("shotover/release/peer-shotover")
}

/// With its Kafka source and sink, which decode every message.
fn shotover(address: SocketAddr, upstream: SocketAddr) -> Command {
    let topology = serde_json::json!({"sources": [{"Kafka": {
        "name": "clients",
        "listen_addr": address.to_string(),
        "connection_limit": 10_000,
        "chain": [{"KafkaSinkSingle": {
            "destination_port": upstream.port(),
            "connect_timeout_ms": 10_000,
        }}],
    }}]});
    let settings = "main_log_level: error\n";
    let port = address.port();
    let mut command = Command::new(shotover_program());
    command
        .arg("--topology-file")
        .arg(write(
            &format!("shotover-{port}.yaml"),
            &topology.to_string(),
        ))
        .arg("--config-file")
        .arg(write(&format!("shotover-{port}-settings.yaml"), settings))
        .args(["--core-threads", "2"]);
    command
}
