//! `hapax dev`: a broker in memory, the proxy in front of it, and a producer
//! that loses acknowledgements.
//!
//! Nothing of it can be reached from another machine, and it does not run in
//! Kubernetes: it is to try hapax, not to keep anything.

mod apis;
mod code;
mod compression;
mod console;
mod demo;
mod groups;
mod log;
mod producer;
mod records;
mod shape;
mod topics;
mod upstream;

use std::env;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Notify, oneshot};
use tokio::time::timeout;

use self::console::{Console, Tone};
use self::demo::Demo;
use self::producer::DemoError;
use crate::cli::{DevArgs, RunArgs, exit};
use crate::config::Config;
use crate::listen::{self, RunError, Started};
use crate::metrics::Verdict;

pub use upstream::{RETENTION_BYTES, Upstream};

/// Why `hapax dev` does not start, or cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum DevError {
    /// It would be the broker of a cluster's applications.
    #[error(
        "dev is not for Kubernetes (KUBERNETES_SERVICE_HOST is set): what it is given is gone when \
         it ends; in front of a Kafka: hapax run --upstream HOST:PORT"
    )]
    Kubernetes,
    /// Anyone could reach it.
    #[error(
        "{flag} {address} can be reached from other machines, and dev is for this one only: give an \
         address of 127.0.0.1 or [::1]"
    )]
    Reachable {
        /// Which flag.
        flag: &'static str,
        /// What it says.
        address: SocketAddr,
    },
    /// The port after it is the broker's.
    #[error("--listen {0} has no port after it, which is the broker's: choose a lower one")]
    NoNextPort(SocketAddr),
    /// The proxy's configuration is not valid.
    #[error("{0}")]
    Config(String),
    /// A port is taken.
    #[error("{address} is taken ({source}): {flag} moves it, as in {flag} {example}")]
    Taken {
        /// The address.
        address: SocketAddr,
        /// Which flag moves it.
        flag: &'static str,
        /// Another address.
        example: SocketAddr,
        /// What the system says.
        source: io::Error,
    },
    /// The proxy could not start.
    #[error("{0}")]
    Run(#[from] RunError),
    /// The operating system refused what every process needs.
    #[error("cannot start: {0}")]
    Start(#[from] io::Error),
    /// The demo could not go on.
    #[error("{0}")]
    Demo(#[from] DemoError),
    /// A signal ended a demo that was to run to its end.
    #[error("interrupted before the demo had come to its end")]
    Interrupted,
    /// The demo's sums do not agree.
    #[error("the demo's sums do not agree: this is an error in hapax, please report it")]
    Sums,
}

impl DevError {
    /// The exit code of the process.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Kubernetes | Self::Reachable { .. } | Self::NoNextPort(_) | Self::Config(_) => {
                exit::CONFIGURATION
            }
            // Whoever closed the output has seen enough.
            Self::Demo(DemoError::Print(error)) if error.kind() == ErrorKind::BrokenPipe => {
                exit::DONE
            }
            Self::Taken { .. }
            | Self::Run(_)
            | Self::Start(_)
            | Self::Demo(_)
            | Self::Interrupted
            | Self::Sums => exit::FAILED,
        }
    }
}

/// Runs `hapax dev` until it is told to end, or the demo has.
///
/// # Errors
///
/// See [`DevError`].
pub fn run(args: &DevArgs) -> Result<(), DevError> {
    check(args, env::var_os("KUBERNETES_SERVICE_HOST").is_some())?;
    let console = Console::new();
    let title = console.tone(Tone::Strong, "DEV UPSTREAM: in memory, not Kafka");
    let printed = console.line(&format!("hapax dev   {title}\n"));
    printed.map_err(DemoError::Print)?;
    let mut runtime = runtime::Builder::new_current_thread();
    runtime.enable_all().build()?.block_on(serve(args, console))
}

fn check(args: &DevArgs, in_kubernetes: bool) -> Result<(), DevError> {
    if in_kubernetes {
        return Err(DevError::Kubernetes);
    }
    let listens = [("--listen", args.listen), ("--admin-listen", args.admin())];
    match listens
        .into_iter()
        .find(|(_, address)| !address.ip().is_loopback())
    {
        Some((flag, address)) => Err(DevError::Reachable { flag, address }),
        None => Ok(()),
    }
}

async fn serve(args: &DevArgs, console: Console) -> Result<(), DevError> {
    let (upstream, listener) = Upstream::bind(0, RETENTION_BYTES).await?;
    tokio::spawn(upstream.clone().serve(listener));
    let config = configure(args, upstream.address())?;
    let (admin, broker) = (config.admin.listen, *config.broker_ports.start());
    let (tell, started) = oneshot::channel();
    let ended = Arc::new(Notify::new());
    let show = tokio::spawn(show(
        args.clone(),
        console,
        upstream,
        started,
        Arc::clone(&ended),
    ));
    let begun = |started| drop(tell.send(started));
    let served = listen::serve(config, begun, async || ended.notified().await).await;
    if let Err(RunError::Bind {
        address, source, ..
    }) = served
    {
        show.abort();
        return Err(taken(address, admin, broker, source));
    }
    served?;
    // It has come to its end, unless the API ended the proxy.
    match timeout(SHOW_MAX, show).await {
        Ok(shown) => shown.unwrap_or_else(|error| Err(io::Error::other(error).into())),
        Err(_) => Ok(()),
    }
}

/// How long what is shown may take to come to its end.
const SHOW_MAX: Duration = Duration::from_secs(1);

/// The port that is taken, by the flag that moves it.
fn taken(address: SocketAddr, admin: SocketAddr, broker: u16, source: io::Error) -> DevError {
    let (flag, port) = if address == admin {
        ("--admin-listen", 9181)
    } else if address.port() == broker {
        ("--listen", broker.wrapping_add(99))
    } else {
        ("--listen", address.port().wrapping_add(100))
    };
    let example = SocketAddr::new(address.ip(), port);
    DevError::Taken {
        address,
        flag,
        example,
        source,
    }
}

/// The proxy as it always is, in front of one broker on this machine.
fn configure(args: &DevArgs, upstream: SocketAddr) -> Result<Config, DevError> {
    let listen = match args.listen.port() {
        0 => SocketAddr::new(args.listen.ip(), free_pair(args.listen.ip())?),
        _ => args.listen,
    };
    let broker = listen.port().checked_add(1);
    let broker = broker.ok_or(DevError::NoNextPort(listen))?;
    let flags = [
        format!("--upstream={upstream}"),
        format!("--listen={listen}"),
        format!("--broker-ports={broker}-{broker}"),
        format!("--admin-listen={}", args.admin()),
        "--mode=absorb".to_owned(),
        // Clients of the user stay connected: they are told by the closing.
        "--drain-timeout=0".to_owned(),
    ];
    let args = RunArgs::from_flags(flags.iter().map(String::as_str));
    let args = args.map_err(|error| DevError::Config(error.to_string()))?;
    // Variables and files for a hapax in front of a Kafka are none of its business.
    let (settings, errors) = args.settle_with(&|_| None);
    let config = match errors.as_slice() {
        [] => settings.config(),
        _ => Err(errors.into()),
    };
    config.map_err(|error| DevError::Config(error.to_string()))
}

/// The first of two ports in a row that nobody has.
fn free_pair(ip: IpAddr) -> io::Result<u16> {
    loop {
        let first = TcpListener::bind((ip, 0))?.local_addr()?.port();
        let Some(next) = first.checked_add(1) else {
            continue;
        };
        if TcpListener::bind((ip, next)).is_ok() {
            return Ok(first);
        }
    }
}

/// What a person sees, from when everything listens to the end.
async fn show(
    args: DevArgs,
    console: Console,
    upstream: Upstream,
    started: oneshot::Receiver<Started>,
    ended: Arc<Notify>,
) -> Result<(), DevError> {
    let Ok(started) = started.await else {
        return Ok(());
    };
    started.metrics.show_dev_upstream();
    let shown = tell(&args, console, &upstream, &started).await;
    ended.notify_one();
    shown
}

async fn tell(
    args: &DevArgs,
    console: Console,
    upstream: &Upstream,
    started: &Started,
) -> Result<(), DevError> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let told_to_end = async {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    };
    tokio::pin!(told_to_end);
    if args.no_demo {
        introduce(console, upstream, started).map_err(DemoError::Print)?;
        told_to_end.await;
        started.metrics.add_up();
        let verdicts = Verdict::ALL.iter();
        let count = |verdict: &Verdict| started.metrics.verdicts.with(*verdict).get();
        let batches: u64 = verdicts.map(count).sum();
        let text = format!("\nended: {batches} batches went through hapax");
        return Ok(console.line(&text).map_err(DemoError::Print)?);
    }
    if !args.once {
        addresses(console, upstream, started).map_err(DemoError::Print)?;
    }
    let metrics = Arc::clone(&started.metrics);
    let demo = Demo::start(console, upstream, started.listen, metrics, args.once);
    let mut demo = demo.await?;
    if !args.once {
        return Ok(demo.run(&mut told_to_end).await?);
    }
    tokio::select! {
        agrees = demo.run_once() => if agrees? { Ok(()) } else { Err(DevError::Sums) },
        () = told_to_end => Err(DevError::Interrupted),
    }
}

fn addresses(console: Console, upstream: &Upstream, started: &Started) -> io::Result<()> {
    let clients = console.tone(Tone::Strong, &started.listen.to_string());
    console.line(&format!(
        "  clients    {clients}   through hapax\n  \
         upstream   {}   the same broker, without hapax\n  \
         metrics    http://{}/metrics\n",
        upstream.address(),
        started.admin,
    ))
}

/// How to point a client here.
fn introduce(console: Console, upstream: &Upstream, started: &Started) -> io::Result<()> {
    addresses(console, upstream, started)?;
    let listen = started.listen;
    let admin = match started.admin.port() {
        9180 => String::new(),
        _ => format!(" --admin {}", started.admin),
    };
    console.line(&format!(
        "  kafka-console-producer.sh --bootstrap-server {listen} --topic orders
  kcat -b {listen} -t orders -P -X enable.idempotence=true
  Python   KafkaProducer(bootstrap_servers=\"{listen}\", enable_idempotence=True)
  Node     new Kafka({{ brokers: [\"{listen}\"] }})
  Go       kgo.NewClient(kgo.SeedBrokers(\"{listen}\"))

Topics are made when they are first used. Messages are kept in memory, up to 256 MiB of
them, then the oldest go; nothing is left when this ends. There are no transactions.
To see what happens: hapax events --follow{admin}

Ctrl-C ends it."
    ))
}
