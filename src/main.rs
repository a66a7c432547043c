//! Start-up checklist and exit codes.

use std::env;
use std::io;
use std::process::ExitCode;

use anyhow::Context;
use hapax::admin::client::{self, ClientError};
use hapax::cli::exit::{CONFIGURATION, DONE, FAILED, USAGE};
use hapax::cli::{
    self, Cli, Command, ConfigCommand, DevArgs, PrintArgs, RunArgs, UserArgs, VersionArgs,
};
use hapax::config::settings::ConfigErrors;
use hapax::config::{Config, Mode, document, schema};
use hapax::metrics::{LIBC, REVISION, RUSTC, VERSION};
use hapax::snapshot::StartError;
use hapax::{Exit, RunError, check, logging};
use serde_json::json;
use tokio::runtime;

fn main() -> ExitCode {
    let command = match Cli::from_typed() {
        Ok(cli) => cli.command,
        Err(error) => return unread(&error),
    };
    match command {
        Command::Run(args) => run(*args),
        Command::Dev(args) => dev(&args),
        Command::Check(args) => ExitCode::from(check::command(*args, &mut io::stdout())),
        Command::Wait(args) => ExitCode::from(check::wait(&args)),
        Command::Drain(args) => ask(async |out| client::drain(&args, out).await),
        Command::Reload(args) => ask(async |out| client::reload(&args, out).await),
        Command::LogLevel(args) => ask(async |out| client::log_level(&args, out).await),
        Command::Config(args) => match args.command {
            ConfigCommand::Print(args) => print_config(*args),
            ConfigCommand::Schema => show(format!("{:#}\n", schema::schema()).as_bytes()),
        },
        Command::Producers(args) => ask(async |out| client::producers(&args, out).await),
        Command::User(args) => user(&args),
        Command::Events(args) => ask(async |out| client::events(&args, out).await),
        Command::Explain(args) => match args.answer() {
            Ok(answer) => show(answer.as_bytes()),
            Err(unknown) => fail(USAGE, &unknown),
        },
        Command::Snippet(args) => show(args.render().as_bytes()),
        Command::Completion(args) => show(&args.script()),
        Command::Man => match cli::man() {
            Ok(page) => show(&page),
            Err(error) => fail(FAILED, &error),
        },
        Command::Version(args) => version(&args),
    }
}

/// A command line that is none, or asks for help.
fn unread(error: &clap::Error) -> ExitCode {
    let _ = error.print();
    let typed: Vec<_> = env::args_os().skip(1).collect();
    match cli::variable_behind(error, &typed) {
        Some(name) => fail(CONFIGURATION, &format!("the value is that of {name}")),
        // Help and version are no errors, and go to standard output.
        None if error.use_stderr() => ExitCode::from(USAGE),
        None => ExitCode::from(DONE),
    }
}

fn run(args: RunArgs) -> ExitCode {
    let (settings, errors) = args.settle();
    let config = match errors.as_slice() {
        [] => settings.config(),
        _ => Err(errors.into()),
    };
    if let Err(errors @ ConfigErrors { usage: true, .. }) = &config {
        // What is missing may be there under a name with a typing error.
        warn_of_variables();
        return fail(USAGE, errors);
    }
    logging::init(&settings.log());
    for variable in cli::unknown_variables(env::vars_os().map(|(name, _)| name)) {
        let (name, nearest) = (variable.name, variable.nearest);
        tracing::warn!(
            name,
            nearest,
            "unknown environment variable, see hapax run --help"
        );
    }
    let config = match config {
        Ok(config) => config,
        Err(ConfigErrors { errors, .. }) => {
            for error in errors {
                tracing::error!(%error, "configuration is not valid");
            }
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
        Err(RunError::State(StartError::Directory(error))) => {
            tracing::error!(%error, "configuration is not valid");
            ExitCode::from(CONFIGURATION)
        }
        Err(error @ (RunError::Tls(_) | RunError::Sasl(_))) => {
            tracing::error!(%error, "configuration is not valid");
            ExitCode::from(CONFIGURATION)
        }
        Err(RunError::Users(error)) => {
            tracing::error!(%error, "configuration is not valid");
            ExitCode::from(CONFIGURATION)
        }
        Err(error) => {
            tracing::error!(%error, "run failed");
            ExitCode::from(FAILED)
        }
    }
}

/// Prints the lines of a user for `listen.sasl.usersFile`.
fn user(args: &UserArgs) -> ExitCode {
    match args.password().map(|password| args.lines(&password)) {
        Ok(Ok(lines)) => show(lines.as_bytes()),
        Ok(Err(error)) => fail(FAILED, &error),
        Err(error) => fail(USAGE, &error),
    }
}

fn dev(args: &DevArgs) -> ExitCode {
    logging::init(&args.log());
    match hapax::dev::run(args) {
        Ok(()) => ExitCode::from(DONE),
        Err(error) if error.exit_code() == DONE => ExitCode::from(DONE),
        Err(error) => fail(error.exit_code(), &error),
    }
}

fn banner(config: &Config) {
    let upstream: Vec<_> = config.upstream.iter().map(ToString::to_string).collect();
    tracing::info!(
        version = VERSION,
        revision = REVISION,
        config = config.settings.file(),
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
    if config.passwords_in_the_clear() {
        tracing::warn!(
            listen = %config.listen,
            "clients may send passwords (PLAIN) to this address, which other machines reach, and whoever is on the way reads them: give hapax a certificate (listen.tls.certFile), or leave PLAIN out of listen.sasl.mechanisms"
        );
    }
    if !config.policies.is_empty() && config.mode != Mode::Enforce {
        tracing::info!(
            mode = %config.mode,
            "policies only count in this mode, see hapax_policy_violations_total: --mode enforce refuses"
        );
    }
}

/// Shows what can be read even where it makes no sense together; then says so.
fn print_config(args: PrintArgs) -> ExitCode {
    warn_of_variables();
    let (settings, errors) = args.run.settle();
    if !errors.is_empty() {
        return fail(CONFIGURATION, &ConfigErrors::from(errors));
    }
    let done = show(document::effective(&settings, args.origins).as_bytes());
    match settings.config() {
        Ok(_) => done,
        Err(errors) => fail(CONFIGURATION, &errors),
    }
}

/// Variables that mean nothing, for a person.
fn warn_of_variables() {
    for variable in cli::unknown_variables(env::vars_os().map(|(name, _)| name)) {
        let nearest = variable
            .nearest
            .map(|name| format!(": did you mean {name}?"));
        let (name, nearest) = (variable.name, nearest.unwrap_or_default());
        eprintln!("hapax: warning: {name} is no variable of hapax{nearest}");
    }
}

fn show(text: &[u8]) -> ExitCode {
    match cli::write_output(&mut io::stdout(), text) {
        Ok(()) => ExitCode::from(DONE),
        Err(error) => fail(FAILED, &format!("cannot print: {error}")),
    }
}

/// Says what is wrong, a line each.
fn fail(code: u8, error: &impl ToString) -> ExitCode {
    for line in error.to_string().lines() {
        eprintln!("hapax: {line}");
    }
    ExitCode::from(code)
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
    fail(FAILED, &format!("{error:#}"))
}

fn version(args: &VersionArgs) -> ExitCode {
    let target = format!("{}-{}{LIBC}", env::consts::ARCH, env::consts::OS);
    let line = if args.json {
        json!({ "version": VERSION, "revision": REVISION, "rustc": RUSTC, "target": target })
            .to_string()
    } else {
        format!("hapax {VERSION} (revision {REVISION}, rustc {RUSTC}, {target})")
    };
    show(format!("{line}\n").as_bytes())
}
