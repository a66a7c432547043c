//! Start-up checklist and exit codes.

use std::env;
use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::Context;
use clap::Parser;
use hapax::admin::client::{self, ClientError};
use hapax::cli::dev::DevArgs;
use hapax::cli::{self, Cli, Command, RunArgs, VersionArgs};
use hapax::config::Config;
use hapax::metrics::{REVISION, RUSTC, VERSION};
use hapax::{Exit, logging};
use serde_json::json;
use tokio::runtime;

fn main() -> ExitCode {
    let command = match Cli::try_parse() {
        Ok(cli) => cli.command,
        Err(error) => {
            // Help and version are no errors, and go to standard output.
            let code = if error.use_stderr() { USAGE } else { DONE };
            let _ = error.print();
            return ExitCode::from(code);
        }
    };
    match command {
        Command::Run(args) => run(*args),
        Command::Dev(args) => dev(&args),
        Command::Producers(args) => ask(async |out| client::producers(&args, out).await),
        Command::Events(args) => ask(async |out| client::events(&args, out).await),
        Command::Version(args) => version(&args),
    }
}

fn run(args: RunArgs) -> ExitCode {
    logging::init(&args.log());
    for name in cli::unknown_variables(env::vars_os().map(|(name, _)| name)) {
        tracing::warn!(name, "unknown environment variable, see hapax run --help");
    }
    let config = match args.into_config() {
        Ok(config) => config,
        Err(error) => {
            tracing::error!(%error, "configuration is not valid");
            return ExitCode::from(CONFIGURATION);
        }
    };
    banner(&config);
    match hapax::run(config) {
        Ok(Exit::Drained) => {
            tracing::info!("drained");
            ExitCode::from(DONE)
        }
        Ok(Exit::Forced) => {
            tracing::warn!("ended by a second signal before it had drained");
            ExitCode::from(FAILED)
        }
        Err(error) => {
            tracing::error!(%error, "run failed");
            ExitCode::from(FAILED)
        }
    }
}

fn dev(args: &DevArgs) -> ExitCode {
    logging::init(&args.log());
    let error = match hapax::dev::run(args) {
        Ok(()) => return ExitCode::from(DONE),
        Err(error) => error,
    };
    if error.exit_code() != DONE {
        eprintln!("hapax: {error}");
    }
    ExitCode::from(error.exit_code())
}

fn banner(config: &Config) {
    let upstream: Vec<_> = config.upstream.iter().map(ToString::to_string).collect();
    tracing::info!(
        version = VERSION,
        revision = REVISION,
        upstream = upstream.join(","),
        listen = %config.listen,
        broker_ports = %format_args!(
            "{}-{}",
            config.broker_ports.start(),
            config.broker_ports.end()
        ),
        admin = %config.admin.listen,
        mode = %config.mode,
        workers = config.workers,
        "hapax starts"
    );
}

fn ask(command: impl AsyncFnOnce(&mut io::Stdout) -> Result<(), ClientError>) -> ExitCode {
    let asked = runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start")
        .map(|runtime| runtime.block_on(command(&mut io::stdout())));
    let error = match asked {
        Ok(Ok(())) => return ExitCode::from(DONE),
        Ok(Err(error)) if error.is_closed_output() => return ExitCode::from(DONE),
        Ok(Err(error)) => anyhow::Error::from(error),
        Err(error) => error,
    };
    eprintln!("hapax: {error:#}");
    ExitCode::from(FAILED)
}

fn version(args: &VersionArgs) -> ExitCode {
    let line = if args.json {
        json!({ "version": VERSION, "revision": REVISION, "rustc": RUSTC }).to_string()
    } else {
        format!("hapax {VERSION} (revision {REVISION}, rustc {RUSTC})")
    };
    // Whoever closed the output does not want it.
    let _ = writeln!(io::stdout(), "{line}");
    ExitCode::from(DONE)
}

const DONE: u8 = 0;
const FAILED: u8 = 1;
/// `EX_USAGE` of sysexits.h.
const USAGE: u8 = 64;
/// `EX_CONFIG` of sysexits.h.
const CONFIGURATION: u8 = 78;
