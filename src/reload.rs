//! What is read again while the process runs: when SIGHUP comes, when somebody
//! asks for it, and when the contents of a file are others than they were.
//!
//! Contents are compared, not times: a Kubernetes volume is swapped behind a
//! symbolic link. Whatever cannot be used leaves everything as it was, and says
//! so by a log line, by `hapax_config_last_reload_successful` and in
//! `/api/v1/config`. What is to be read again is one [`Reloadable`] each; the
//! list of them is made in `listen`.

mod certificates;
mod credentials;
mod file;
mod users;

use crate::metrics::{Metrics, ReloadOutcome};
use serde::Serialize;
use std::hash::{DefaultHasher, Hasher};
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, SystemTime};
use tokio::sync::oneshot;

pub use certificates::Certificates;
pub use credentials::Credentials;
pub use file::ConfigFile;
pub use users::UsersFile;

/// How often the contents of files are looked at.
pub const LOOK_EVERY: Duration = Duration::from_secs(10);
/// What is written in parts has its last part after this time.
const SETTLED_AFTER: Duration = Duration::from_millis(200);
/// How often one look waits for that.
const SETTLE_TRIES: usize = 10;
/// More of a file is not looked at.
const BYTES_MAX: u64 = 16 << 20;

/// Something that comes from files and can be replaced while clients are served.
pub trait Reloadable: Send {
    /// What it is, as log lines and the API name it.
    fn name(&self) -> &'static str;

    /// The files whose contents and permissions decide. What is no regular file, and cannot be
    /// read twice, is left out.
    fn files(&self) -> Vec<PathBuf>;

    /// Reads the files again and uses what they say from now on; on an error
    /// everything is as it was before. Called on a thread of its own.
    ///
    /// # Errors
    ///
    /// Why what the files say cannot be used.
    fn reload(&mut self) -> Result<Changes, Fault>;
}

/// What changed, by name; empty when everything means what it meant.
pub type Changes = Vec<String>;

/// Why something cannot be read again. Every text is a sentence for whoever
/// wrote the file, and holds no secret.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Fault {
    /// It is wrong.
    Invalid(Vec<String>),
    /// It is right, and changes what only a restart can change.
    Refused(Vec<String>),
}

/// What came of reading everything again.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Report {
    /// Whether all of it is in use.
    pub successful: bool,
    /// When that was, in seconds since 1970.
    pub at_unix_seconds: u64,
    /// What changed.
    pub changed: Vec<String>,
    /// What is wrong.
    pub errors: Vec<String>,
    /// What only a restart can change.
    pub refused: Vec<String>,
}

/// Asks for everything to be read again.
#[derive(Clone)]
pub struct Reloader {
    asks: mpsc::Sender<oneshot::Sender<Report>>,
    newest: Arc<Mutex<Option<Report>>>,
}

impl Reloader {
    /// Starts to look at files, and to wait for who asks. The thread ends when
    /// nobody can ask any more.
    ///
    /// # Errors
    ///
    /// Where the system gives no thread.
    pub fn start(
        metrics: Arc<Metrics>,
        all: Vec<Box<dyn Reloadable>>,
        look_every: Duration,
    ) -> io::Result<Self> {
        let (asks, asked) = mpsc::channel();
        let newest = Arc::default();
        let watch = Watch {
            all: all.into_iter().map(Watched::new).collect(),
            newest: Arc::clone(&newest),
            metrics,
        };
        watch.metrics.config_last_reload_successful.set(1);
        let now = i64::try_from(unix_seconds()).unwrap_or(i64::MAX);
        watch.metrics.config_last_reload_success.set(now);
        thread::Builder::new()
            .name("reload".to_owned())
            .spawn(move || watch.run(&asked, look_every))?;
        Ok(Self { asks, newest })
    }

    /// Has everything read again. Nothing is answered where the process ends
    /// before that.
    #[must_use]
    pub fn ask(&self) -> oneshot::Receiver<Report> {
        let (answer, answered) = oneshot::channel();
        let _ = self.asks.send(answer);
        answered
    }

    /// What came of it last; nothing before the first time.
    #[must_use]
    pub fn newest(&self) -> Option<Report> {
        let newest = self.newest.lock();
        newest.unwrap_or_else(PoisonError::into_inner).clone()
    }
}

struct Watch {
    all: Vec<Watched>,
    newest: Arc<Mutex<Option<Report>>>,
    metrics: Arc<Metrics>,
}

struct Watched {
    what: Box<dyn Reloadable>,
    /// What the files were when they were read last; nothing at first, since
    /// they may have changed between the start and the first look.
    seen: Option<Digest>,
    /// Why what they say is not in use.
    fault: Option<Fault>,
}

impl Watched {
    fn new(what: Box<dyn Reloadable>) -> Self {
        Self {
            what,
            seen: None,
            fault: None,
        }
    }
}

impl Watch {
    fn run(mut self, asked: &mpsc::Receiver<oneshot::Sender<Report>>, look_every: Duration) {
        loop {
            match asked.recv_timeout(look_every) {
                Ok(answer) => {
                    let report = self.look(true);
                    // Who asked may have gone.
                    let _ = answer.send(report);
                }
                Err(mpsc::RecvTimeoutError::Timeout) => drop(self.look(false)),
                Err(mpsc::RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// Reads again what has changed, or everything.
    fn look(&mut self, everything: bool) -> Report {
        let mut changed = Vec::new();
        let mut news = everything;
        let mut due: Vec<_> = self
            .all
            .iter_mut()
            .filter_map(|watched| {
                let files = watched.what.files();
                let is_due = everything || watched.seen != Some(digest(&files));
                is_due.then_some((watched, files))
            })
            .collect();
        // All at once: what is swapped together comes into use together.
        settle(due.iter().flat_map(|(_, files)| files));
        for (watched, files) in &mut due {
            let first = watched.seen.is_none();
            watched.seen = Some(digest(files));
            let name = watched.what.name();
            let read = watched.what.reload();
            let outcome = match &read {
                // Nobody asked, and nothing has happened since the start.
                Ok(changes) if changes.is_empty() && first && !everything => continue,
                Ok(changes) if changes.is_empty() => ReloadOutcome::Unchanged,
                Ok(_) => ReloadOutcome::Applied,
                Err(Fault::Invalid(_)) => ReloadOutcome::Invalid,
                Err(Fault::Refused(_)) => ReloadOutcome::Refused,
            };
            news = true;
            tell(name, &read, watched.fault.is_some());
            self.metrics.config_reloads.with(outcome).inc();
            match read {
                Ok(changes) => {
                    changed.extend(changes);
                    watched.fault = None;
                }
                Err(fault) => watched.fault = Some(fault),
            }
        }
        let report = self.report(changed);
        if news {
            self.show(&report);
        }
        report
    }

    fn report(&self, changed: Vec<String>) -> Report {
        let (mut errors, mut refused) = (Vec::new(), Vec::new());
        for fault in self.all.iter().filter_map(|watched| watched.fault.as_ref()) {
            match fault {
                Fault::Invalid(all) => errors.extend_from_slice(all),
                Fault::Refused(all) => refused.extend_from_slice(all),
            }
        }
        Report {
            successful: errors.is_empty() && refused.is_empty(),
            at_unix_seconds: unix_seconds(),
            changed,
            errors,
            refused,
        }
    }

    fn show(&self, report: &Report) {
        let metrics = &self.metrics;
        let successful = i64::from(report.successful);
        metrics.config_last_reload_successful.set(successful);
        if report.successful {
            let at = i64::try_from(report.at_unix_seconds).unwrap_or(i64::MAX);
            metrics.config_last_reload_success.set(at);
        }
        let mut newest = self.newest.lock().unwrap_or_else(PoisonError::into_inner);
        *newest = Some(report.clone());
    }
}

/// One line, or one for each thing that is wrong.
fn tell(what: &'static str, read: &Result<Changes, Fault>, was_wrong: bool) {
    match read {
        Ok(changed) if changed.is_empty() && was_wrong => {
            tracing::info!(what, "read again: it is valid again, and what it was");
        }
        Ok(changed) if changed.is_empty() => tracing::info!(what, "read again: nothing changed"),
        Ok(changed) => {
            let changed = changed.join(", ");
            tracing::info!(what, changed, "read again, and in use");
        }
        Err(Fault::Invalid(errors)) => {
            for error in errors {
                tracing::error!(
                    what,
                    error,
                    "read again: not valid, hapax goes on as it was"
                );
            }
        }
        Err(Fault::Refused(all)) => {
            for refused in all {
                tracing::error!(
                    what,
                    refused,
                    "read again: only a restart can change this, hapax goes on as it was"
                );
            }
        }
    }
}

/// What the contents and permissions of files are, in short.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Digest(u64);

/// Waits until the contents do not change any more: who writes a file in parts
/// has first emptied it.
fn settle<'a>(files: impl Iterator<Item = &'a PathBuf>) {
    let files: Vec<_> = files.collect();
    let mut before = digest(&files);
    for _ in 0..SETTLE_TRIES {
        if files.is_empty() {
            break;
        }
        pause(SETTLED_AFTER);
        let now = digest(&files);
        if now == before {
            break;
        }
        before = now;
    }
}

fn digest(files: &[impl AsRef<Path>]) -> Digest {
    let mut hasher = DefaultHasher::new();
    for file in files {
        // A file that has gone is another one than it was.
        if let Err(error) = add(file.as_ref(), &mut hasher) {
            hasher.write_u8(1);
            hasher.write(error.kind().to_string().as_bytes());
        }
    }
    Digest(hasher.finish())
}

/// Piece by piece: a file may be as large as it likes.
fn add(file: &Path, hasher: &mut DefaultHasher) -> io::Result<()> {
    let file = std::fs::File::open(file)?;
    hasher.write_u8(0);
    hasher.write_u32(file.metadata()?.mode());
    let mut file = BufReader::new(file.take(BYTES_MAX));
    let mut length = 0;
    loop {
        let piece = file.fill_buf()?;
        if piece.is_empty() {
            break;
        }
        hasher.write(piece);
        let read = piece.len();
        length += read;
        file.consume(read);
    }
    hasher.write_usize(length);
    Ok(())
}

#[expect(
    clippy::disallowed_methods,
    reason = "this thread serves nobody, and nothing tells when a writer is done"
)]
fn pause(time: Duration) {
    thread::sleep(time);
}

fn unix_seconds() -> u64 {
    SystemTime::UNIX_EPOCH
        .elapsed()
        .unwrap_or_default()
        .as_secs()
}

#[cfg(test)]
mod tests;
