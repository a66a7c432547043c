//! hapax as a child process, and the choice of going through it or not.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::cluster::Cluster;
use crate::tools::{free_ports, unique, wait_for};

/// How clients reach the cluster.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Route {
    Direct,
    Hapax,
}

impl Route {
    /// Through hapax, unless `TEST_ROUTE=direct` asks for the baseline.
    pub(crate) fn chosen() -> Self {
        match std::env::var("TEST_ROUTE").as_deref() {
            Err(_) | Ok("hapax") => Self::Hapax,
            Ok("direct") => Self::Direct,
            Ok(other) => panic!("TEST_ROUTE is {other:?}, not direct or hapax"),
        }
    }
}

/// What clients are given: a bootstrap address, and hapax behind it if any.
pub(crate) struct Front {
    pub(crate) bootstrap: String,
    pub(crate) hapax: Option<Hapax>,
}

impl Front {
    /// The cluster, through hapax by listeners that advertise names which lead
    /// nowhere: a client that got hold of one could not connect.
    pub(crate) fn of(cluster: &Cluster) -> Self {
        if Route::chosen() == Route::Direct {
            return Self {
                bootstrap: cluster.bootstrap(),
                hapax: None,
            };
        }
        Self::hapax(Hapax::in_front_of(cluster, &[]))
    }

    /// The listeners that ask for SASL.
    pub(crate) fn of_sasl(cluster: &Cluster) -> Self {
        if Route::chosen() == Route::Direct {
            return Self {
                bootstrap: cluster.sasl_bootstrap(),
                hapax: None,
            };
        }
        Self::hapax(Hapax::start(&["--upstream", &cluster.sasl_bootstrap()]))
    }

    fn hapax(hapax: Hapax) -> Self {
        Self {
            bootstrap: hapax.bootstrap(),
            hapax: Some(hapax),
        }
    }
}

/// Where hapax listens; picked before it starts, so that others can be told.
#[derive(Clone)]
pub(crate) struct Ports {
    pub(crate) host: String,
    pub(crate) bootstrap: u16,
    /// First and last of the brokers' ports.
    pub(crate) brokers: (u16, u16),
    pub(crate) admin: u16,
}

impl Ports {
    pub(crate) fn free(brokers: u16) -> Self {
        let first = free_ports(brokers + 2);
        Self {
            host: "127.0.0.1".to_owned(),
            bootstrap: first,
            brokers: (first + 1, first + brokers),
            admin: first + brokers + 1,
        }
    }
}

/// A running hapax; killed when dropped.
pub(crate) struct Hapax {
    child: Child,
    ports: Ports,
    log: PathBuf,
}

impl Hapax {
    /// `hapax run` with free ports and these arguments, listening already.
    pub(crate) fn start(arguments: &[&str]) -> Self {
        Self::start_on(Ports::free(8), arguments)
    }

    /// In front of a cluster's FRONT listeners.
    pub(crate) fn in_front_of(cluster: &Cluster, arguments: &[&str]) -> Self {
        Self::on_ports_in_front_of(Ports::free(8), cluster, arguments)
    }

    /// The same on ports that are known.
    pub(crate) fn on_ports_in_front_of(
        ports: Ports,
        cluster: &Cluster,
        arguments: &[&str],
    ) -> Self {
        let upstream = cluster.front_bootstrap();
        let map: Vec<String> = cluster
            .fronts()
            .map(|(real, advertised)| format!("{advertised}={real}"))
            .collect();
        let map = map.join(",");
        let mut all = vec!["--upstream", &upstream, "--upstream-address-map", &map];
        all.extend(arguments);
        Self::start_on(ports, &all)
    }

    pub(crate) fn start_on(ports: Ports, arguments: &[&str]) -> Self {
        let mut command = Command::new(binary());
        command
            .arg("run")
            .args(["--listen", &format!("{}:{}", ports.host, ports.bootstrap)])
            .args([
                "--broker-ports",
                &format!("{}-{}", ports.brokers.0, ports.brokers.1),
            ])
            .args(["--admin-listen", &format!("127.0.0.1:{}", ports.admin)])
            .args(arguments);
        Self::spawn(command, ports)
    }

    /// hapax with nothing but its defaults and these arguments.
    pub(crate) fn start_with_defaults(arguments: &[&str]) -> Self {
        let ports = Ports {
            host: "127.0.0.1".to_owned(),
            bootstrap: 19092,
            brokers: (19093, 19192),
            admin: 9180,
        };
        let mut command = Command::new(env!("CARGO_BIN_EXE_hapax"));
        command.arg("run").args(arguments);
        Self::spawn(command, ports)
    }

    fn spawn(mut command: Command, ports: Ports) -> Self {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/tests/logs");
        fs::create_dir_all(&folder).expect("target is writable");
        let log = folder.join(unique("hapax"));
        let file = File::create(&log).expect("a log file");
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("HAPAX_")) {
            command.env_remove(name);
        }
        let child = command
            .stdin(Stdio::null())
            .stdout(file.try_clone().expect("a second handle"))
            .stderr(file)
            .spawn()
            .expect("hapax starts");
        let mut hapax = Self { child, ports, log };
        wait_for("/startupz", Duration::from_secs(10), || {
            if let Some(status) = hapax.child.try_wait().expect("hapax is a child") {
                panic!("hapax ended with {status}: {}", hapax.log());
            }
            hapax.probe("/startupz").filter(|status| *status == 200)
        });
        hapax
    }

    pub(crate) fn bootstrap(&self) -> String {
        format!("{}:{}", self.ports.host, self.ports.bootstrap)
    }

    pub(crate) fn ports(&self) -> &Ports {
        &self.ports
    }

    /// Everything it has logged.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(&self.log).expect("the log is there")
    }

    /// The status of a probe; `None` while nothing listens.
    pub(crate) fn probe(&self, path: &str) -> Option<u16> {
        self.get(path).map(|(status, _)| status)
    }

    /// An answer of the admin API.
    pub(crate) fn api(&self, path: &str) -> Value {
        let (status, body) = self.get(path).expect("the admin listener answers");
        assert_eq!(status, 200, "{path}: {body}");
        serde_json::from_str(&body).unwrap_or_else(|error| panic!("{path}: {error} in {body:?}"))
    }

    /// The newest events, oldest first.
    pub(crate) fn events(&self) -> Vec<Value> {
        self.api("/api/v1/events")["events"]
            .as_array()
            .expect("a list of events")
            .clone()
    }

    /// A scrape, as text.
    pub(crate) fn scrape(&self) -> String {
        self.get("/metrics").expect("the admin listener answers").1
    }

    /// A scrape: `name{labels}` to value, as the text has them.
    pub(crate) fn metrics(&self) -> BTreeMap<String, f64> {
        self.scrape()
            .lines()
            .filter(|line| !line.starts_with('#'))
            .map(|line| {
                let (series, value) = line.rsplit_once(' ').expect("SERIES VALUE");
                (series.to_owned(), value.parse().expect("a number"))
            })
            .collect()
    }

    /// The sum over all series of that name that carry all of these labels.
    pub(crate) fn metric(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let labels: Vec<String> = labels
            .iter()
            .map(|(key, value)| format!("{key}=\"{value}\""))
            .collect();
        let series: Vec<f64> = self
            .metrics()
            .into_iter()
            .filter(|(series, _)| series.split('{').next() == Some(name))
            .filter(|(series, _)| labels.iter().all(|label| series.contains(label.as_str())))
            .map(|(_, value)| value)
            .collect();
        series.iter().sum()
    }

    /// Batches of a topic with a verdict.
    pub(crate) fn batches(&self, topic: &str, verdict: &str) -> u64 {
        let sum = self.metric(
            "hapax_produce_batches_total",
            &[("topic", topic), ("verdict", verdict)],
        );
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a counter is a whole number"
        )]
        let count = sum as u64;
        count
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn sigterm(&self) {
        let status = Command::new("kill")
            .arg("-TERM")
            .arg(self.pid().to_string())
            .status();
        assert!(status.expect("kill runs").success());
    }

    /// Its exit code, once it has ended.
    pub(crate) fn exit_code(&mut self, patience: Duration) -> Option<i32> {
        let child = &mut self.child;
        let status = wait_for("the end of hapax", patience, || {
            child.try_wait().expect("hapax is a child")
        });
        status.code()
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.try_wait().expect("hapax is a child").is_some()
    }

    fn get(&self, path: &str) -> Option<(u16, String)> {
        http("GET", &format!("127.0.0.1:{}", self.ports.admin), path, "")
    }
}

impl Drop for Hapax {
    fn drop(&mut self) {
        // It may have ended; then there is nothing to kill.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            let log = self.log();
            let lines: Vec<&str> = log.lines().collect();
            let newest = &lines[lines.len().saturating_sub(40)..];
            eprintln!("the end of {}:\n{}", self.log.display(), newest.join("\n"));
        }
    }
}

/// The hapax to start: the one in `TEST_HAPAX`, or that of this build.
fn binary() -> std::ffi::OsString {
    std::env::var_os("TEST_HAPAX").unwrap_or_else(|| env!("CARGO_BIN_EXE_hapax").into())
}

/// The lines of a user, as hapax makes them with its defaults.
pub(crate) fn user_lines(name: &str, password: &str) -> String {
    let mut made = Command::new(env!("CARGO_BIN_EXE_hapax"))
        .args(["user", name])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("hapax starts");
    let mut input = made.stdin.take().expect("stdin is piped");
    writeln!(input, "{password}").expect("it reads its input");
    drop(input);
    let made = made.wait_with_output().expect("hapax ends");
    assert!(made.status.success(), "{made:?}");
    String::from_utf8(made.stdout).expect("UTF-8")
}

/// One HTTP/1.0 exchange; `None` where nobody listens.
pub(crate) fn http(method: &str, address: &str, path: &str, body: &str) -> Option<(u16, String)> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream
        .set_read_timeout(Some(Duration::from_secs(10)))
        .expect("a socket takes a timeout");
    let length = body.len();
    let request = format!(
        "{method} {path} HTTP/1.0\r\nHost: {address}\r\nContent-Length: {length}\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    Some((status, body.to_owned()))
}
