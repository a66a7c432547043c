//! An upstream, hapax before it, and a producer that behaves.

use std::net::TcpStream;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::secure::{self, Ca, Files, VERSIONS};
use crate::support::batch::Batch;
use crate::support::hapax::{self, Hapax};
use crate::support::peer::{self, ACKNOWLEDGED, Peer};
use crate::support::raw::{Client, Produce, Topic};
use crate::support::{await_until, pause};

pub(crate) const MIB: usize = 1 << 20;
/// Where hapax listens, and so what its certificate is for.
pub(crate) const HERE: &str = "127.0.0.1";
/// What hapax may take beyond what is said of connections.
pub(crate) const SLACK: usize = 16 * MIB;
/// How long anything may take on a machine with other work.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);
/// Requests of the bystander in each phase, at least.
const REQUESTS: usize = 50;

/// How much of an attack is run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Scale {
    Small,
    Full,
}

impl Scale {
    pub(crate) fn of(self, small: usize, full: usize) -> usize {
        match self {
            Self::Small => small,
            Self::Full => full,
        }
    }
}

/// A stage with its audience.
pub(crate) struct Scene {
    pub(crate) peer: Peer,
    pub(crate) hapax: Hapax,
    /// Resident memory before the attack.
    pub(crate) before: usize,
    bystander: Bystander,
}

/// What clients in TLS go by.
pub(crate) struct Secured {
    pub(crate) ca: Ca,
    /// What puts clients in plaintext into TLS.
    pub(crate) front: String,
    /// hapax looks at them again and again.
    #[expect(dead_code, reason = "they are kept for as long as this is")]
    files: Files,
}

impl Scene {
    pub(crate) fn new(flags: &[&str]) -> Self {
        Self::seen_through(flags, |hapax| hapax.bootstrap.clone())
    }

    /// The bystander takes the way that `way` gives.
    pub(crate) fn seen_through(flags: &[&str], way: impl FnOnce(&Hapax) -> String) -> Self {
        let peer = peer::start();
        let hapax = hapax::start(&peer.address, "absorb", flags);
        let bystander = Bystander::start(way(&hapax));
        bystander.await_requests(CALM);
        let before = hapax.memory();
        bystander.enter(ATTACKED);
        Self {
            peer,
            hapax,
            before,
            bystander,
        }
    }

    /// Clients speak TLS with hapax, the bystander too.
    pub(crate) fn in_tls(flags: &[&str]) -> (Self, Secured) {
        let (ca, files) = (Ca::new("CA of an attack"), Files::new());
        let own = ca.issue(&[HERE]);
        let certificate = files.write("listen.crt", &own.certificate);
        let key = files.write("listen.key", &own.key);
        let (certificate, key) = (
            format!("--listen-tls-cert-file={certificate}"),
            format!("--listen-tls-key-file={key}"),
        );
        let own = [certificate.as_str(), key.as_str()];
        let flags: Vec<_> = own.into_iter().chain(flags.iter().copied()).collect();
        let mut front = String::new();
        let scene = Self::seen_through(&flags, |hapax| {
            let config = secure::client(&ca, None, &VERSIONS);
            front = secure::sealing(&hapax.bootstrap, config, HERE);
            front.clone()
        });
        (scene, Secured { ca, front, files })
    }

    pub(crate) fn connect(&self) -> TcpStream {
        TcpStream::connect(&self.hapax.bootstrap).unwrap()
    }

    /// The value of a metric whose labels contain these.
    pub(crate) fn metric(&self, name: &str, labels: &[&str]) -> usize {
        let value = self.hapax.metric(name, labels);
        format!("{value}").parse().unwrap()
    }

    /// Waits until so many clients are connected, the bystander not counted.
    pub(crate) fn await_connections(&self, count: usize) {
        let what = format!("{count} connections");
        await_until(&what, PATIENCE, || {
            self.metric("hapax_client_connections", &[]) == count + 1
        });
    }

    pub(crate) fn refused_for_memory(&self) -> usize {
        self.metric("hapax_limit_reached_total", &["limit=\"memory\""])
    }

    /// Nobody but the bystander says anything while `check` runs.
    pub(crate) fn in_silence<T>(&self, check: impl FnOnce() -> T) -> T {
        self.bystander.enter(PAUSED);
        await_until("silence", PATIENCE, || {
            self.bystander.shared.resting.load(Ordering::SeqCst) == 1
        });
        let checked = check();
        self.bystander.enter(ATTACKED);
        checked
    }

    /// The attack is at its height: the bystander must get through.
    pub(crate) fn await_bystander(&self) {
        self.bystander.await_requests(ATTACKED);
    }

    /// The attackers have gone: so has what they cost, and the bystander saw
    /// nothing but its answers.
    pub(crate) fn end(mut self, what: &str) -> Outcome {
        self.await_bystander();
        self.bystander.enter(OVER);
        let [calm, attacked] = self.bystander.end();
        self.hapax.assert_well();
        Outcome {
            what: what.to_owned(),
            before: self.before,
            peak: self.hapax.memory_peak(),
            calm,
            attacked,
            notes: Vec::new(),
        }
    }
}

/// What an attack came to.
pub(crate) struct Outcome {
    what: String,
    before: usize,
    pub(crate) peak: usize,
    calm: Latencies,
    attacked: Latencies,
    notes: Vec<String>,
}

pub(crate) const HEADER: &str = "\
| attack | what was done | memory before, MiB | most, MiB | bystander's requests, wrong answers | its median and 99th percentile, of those without attack | |
|---|---|--:|--:|--:|--:|---|
";

impl Outcome {
    #[must_use]
    pub(crate) fn note(mut self, note: String) -> Self {
        self.notes.push(note);
        self
    }

    /// It took no more than this beyond what hapax had before.
    #[must_use]
    pub(crate) fn grew_by_at_most(self, bytes: usize) -> Self {
        let grown = self.peak.saturating_sub(self.before);
        assert!(
            grown <= bytes,
            "grown by {} KiB, of {} KiB that it may",
            grown >> 10,
            bytes >> 10
        );
        self
    }

    pub(crate) fn row(&self) -> String {
        let ratio = |of: fn(&Latencies) -> Duration| {
            of(&self.attacked).as_secs_f64() / of(&self.calm).as_secs_f64().max(1e-6)
        };
        format!(
            "{} | {} | {} | {}, 0 | × {:.1}, × {:.1} | {}",
            self.what,
            self.before / MIB,
            self.peak / MIB,
            self.attacked.0.len(),
            ratio(Latencies::median),
            ratio(Latencies::p99),
            self.notes.join("; ")
        )
    }

    pub(crate) fn line(&self) -> String {
        self.row().replace(" | ", ", ")
    }
}

/// How long requests took, ascending.
pub(crate) struct Latencies(Vec<Duration>);

impl Latencies {
    fn median(&self) -> Duration {
        self.0[self.0.len() / 2]
    }

    fn p99(&self) -> Duration {
        self.0[self.0.len() * 99 / 100]
    }
}

const CALM: u8 = 0;
const ATTACKED: u8 = 1;
const PAUSED: u8 = 2;
const OVER: u8 = 3;

/// An idempotent producer that sends one batch after the other.
struct Bystander {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    phase: AtomicU8,
    resting: AtomicUsize,
    took: [Mutex<Vec<Duration>>; 2],
}

impl Bystander {
    fn start(address: String) -> Self {
        let shared = Arc::<Shared>::default();
        let own = Arc::clone(&shared);
        let thread = thread::spawn(move || produce_on(&address, &own));
        Self {
            shared,
            thread: Some(thread),
        }
    }

    fn enter(&self, phase: u8) {
        self.shared.phase.store(phase, Ordering::SeqCst);
    }

    fn await_requests(&self, phase: u8) {
        let took = &self.shared.took[usize::from(phase)];
        let before = took.lock().unwrap().len();
        await_until("the bystander's answers", PATIENCE, || {
            let failed = self.thread.as_ref().is_some_and(JoinHandle::is_finished);
            failed || took.lock().unwrap().len() >= before + REQUESTS
        });
        let failed = self.thread.as_ref().is_some_and(JoinHandle::is_finished);
        assert!(!failed, "the bystander met an error");
    }

    fn end(&mut self) -> [Latencies; 2] {
        self.thread.take().unwrap().join().unwrap();
        [0, 1].map(|phase: usize| {
            let mut took = std::mem::take(&mut *self.shared.took[phase].lock().unwrap());
            took.sort();
            Latencies(took)
        })
    }
}

/// Every answer has to be the right one.
fn produce_on(address: &str, shared: &Shared) {
    let mut client = Client::connect(address).unwrap();
    client.set_patience(PATIENCE);
    client.client_id = Some(ACKNOWLEDGED.to_owned());
    let topic = Topic::unknown("bystander");
    for sequence in 0.. {
        let phase = shared.phase.load(Ordering::SeqCst);
        match phase {
            OVER => return,
            PAUSED => {
                shared.resting.store(1, Ordering::SeqCst);
                while shared.phase.load(Ordering::SeqCst) == PAUSED {
                    pause(Duration::from_millis(5));
                }
                shared.resting.store(0, Ordering::SeqCst);
            }
            _ => {}
        }
        let batch = Batch::of(7, 0, sequence, [vec![b'x'; 1000]]).bytes();
        let produce = Produce::to(&topic, 0, batch).version(9);
        let start = Instant::now();
        let answer = client.produce(&produce).unwrap();
        assert_eq!((answer.code, answer.offset), (0, i64::from(sequence)));
        if let Some(took) = shared.took.get(usize::from(phase)) {
            took.lock().unwrap().push(start.elapsed());
        }
    }
}
