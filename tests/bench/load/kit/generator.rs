//! The load: connections that keep requests in flight, or one that sends at a
//! steady rate. Every answer is checked; a wrong one ends the process with a
//! message, so that no figure comes from a load that went wrong.

use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};
use rustix::net::{RecvFlags, recv};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use super::null;
use super::process::{cpu_nanoseconds, raise_file_limit, resident_kib, rest};
use super::wire::{self, BatchShape, Client, FETCH_HEAD, Fetch, Produce, Topic};

/// What to do to whom, and whom to watch meanwhile.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Load {
    /// Where to bootstrap.
    pub target: SocketAddr,
    /// Whether to connect to where Metadata says that the leader is, or to
    /// `target`: for proxies that do not rewrite addresses.
    pub follow: bool,
    pub topic: String,
    /// Whether base offsets equal sequences, as those of the null upstream do.
    pub exact: bool,
    pub pace: Pace,
    /// Connections that produce, and how many requests each keeps in flight.
    pub producers: usize,
    pub depth: usize,
    pub version: i16,
    pub acks: i16,
    pub idempotent: bool,
    pub batch_bytes: usize,
    pub records: i32,
    /// Partitions in each request.
    pub fan_out: usize,
    /// Percent of the requests that repeat an acknowledged one.
    pub again: u32,
    /// Pairs of a producer and a partition that are touched in random order,
    /// after each has been touched once; nobody may know them yet. 0: each
    /// connection has its producer.
    pub windows: usize,
    /// Connections that fetch, one request in flight each. Together with
    /// producers they get as many bytes as those have sent, and no more.
    pub consumers: usize,
    pub warm_up: f64,
    pub seconds: f64,
    /// Process ids.
    pub watch: Vec<u32>,
}

impl Default for Load {
    fn default() -> Self {
        Self {
            target: SocketAddr::from(([127, 0, 0, 1], 0)),
            follow: false,
            topic: "load".into(),
            exact: true,
            pace: Pace::Closed,
            producers: 8,
            depth: 5,
            version: 12,
            acks: -1,
            idempotent: true,
            batch_bytes: 1024,
            records: 1,
            fan_out: 1,
            again: 0,
            windows: 0,
            consumers: 0,
            warm_up: 0.5,
            seconds: 1.5,
            watch: Vec::new(),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Pace {
    /// As fast as answers come.
    Closed,
    /// One connection, one in flight, so many requests a second.
    Paced(u32),
    /// Each connection sends one request and stays open: for memory.
    Hold,
}

/// What came of it, between the end of the warm-up and the end.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Outcome {
    pub seconds: f64,
    /// Requests that were answered, or sent without asking for an answer.
    pub requests: u64,
    /// Bytes of batches, of those.
    pub bytes: u64,
    /// Batches and repetitions of batches sent, from the first to the last.
    pub batches: u64,
    pub repetitions: u64,
    /// Microseconds from a request to its answer; only where paced.
    pub p50: f64,
    pub p99: f64,
    /// CPU nanoseconds of this process, and of those watched.
    pub own_cpu: u64,
    pub cpu: Vec<u64>,
    /// Resident KiB of those watched, before the first connection and after
    /// the last request.
    pub resident_before: Vec<u64>,
    pub resident: Vec<u64>,
}

/// Without an answer for so long, the load has failed.
const PATIENCE: Duration = Duration::from_secs(15);
/// Frames longer than this are written from where they were encoded.
const LARGE: usize = 32 * 1024;
/// Sent without asking for an answer for each that asks, where acks is 0.
const SILENT: i32 = 63;
/// Partitions of a request that touches windows for the first time.
const FIRST_TOUCH: usize = 100;

/// Runs the load that the JSON describes and prints its outcome.
pub(super) fn run(json: &str) {
    raise_file_limit();
    let load: Load = serde_json::from_str(json).unwrap();
    let before = load.watch.iter().map(|id| resident_kib(*id)).collect();
    let mut outcome = match load.pace {
        Pace::Closed => Closed::new(&load).run(),
        Pace::Paced(rate) => paced(&load, rate),
        Pace::Hold => hold(&load),
    };
    outcome.resident_before = before;
    println!("{}", serde_json::to_string(&outcome).unwrap());
}

/// From here on until `stop`.
struct Stopwatch {
    start: Instant,
    own_cpu: u64,
    cpu: Vec<u64>,
}

impl Stopwatch {
    fn start(load: &Load) -> Self {
        Self {
            start: Instant::now(),
            own_cpu: cpu_nanoseconds(std::process::id()),
            cpu: load.watch.iter().map(|id| cpu_nanoseconds(*id)).collect(),
        }
    }

    fn stop(&self, load: &Load) -> Outcome {
        let now = Self::start(load);
        let cpu = now.cpu.iter().zip(&self.cpu).map(|(now, then)| now - then);
        Outcome {
            seconds: (now.start - self.start).as_secs_f64(),
            own_cpu: now.own_cpu - self.own_cpu,
            cpu: cpu.collect(),
            resident: load.watch.iter().map(|id| resident_kib(*id)).collect(),
            ..Outcome::default()
        }
    }
}

/// Where the load goes.
fn find_topic(load: &Load) -> (Topic, SocketAddr) {
    let mut client = Client::connect(load.target);
    client.api_versions();
    let topic = client.topic(&load.topic);
    let target = if load.follow {
        topic.leader
    } else {
        load.target
    };
    (topic, target)
}

/// The Produce requests of the connection of this number.
struct Source {
    frame: Produce,
    sequence: i32,
    partitions: Vec<i32>,
    windows: Option<Windows>,
}

impl Source {
    fn new(load: &Load, topic: &Topic, client: &mut Client, number: usize) -> Self {
        let producer = load.idempotent.then(|| {
            if load.windows > 0 {
                (Windows::FIRST_PRODUCER, 0)
            } else {
                client.producer()
            }
        });
        let partitions: Vec<i32> = (0..load.fan_out)
            .map(|nth| (number * load.fan_out + nth) % topic.partitions)
            .map(|partition| i32::try_from(partition).unwrap())
            .collect();
        let shape = BatchShape {
            bytes: load.batch_bytes,
            records: load.records,
            producer,
        };
        Self {
            frame: Produce::new(load.version, load.acks, topic, &partitions, &shape),
            sequence: 0,
            partitions,
            windows: (load.windows > 0).then(|| Windows::new(load, topic, number)),
        }
    }

    /// Makes the frame the next batch, gives its sequence and partition.
    fn next(&mut self, correlation: i32) -> (i32, i32) {
        if let Some(windows) = &mut self.windows {
            let (producer, partition, sequence) = windows.next();
            self.frame.patch_partitions(partition);
            self.frame.patch_all(correlation, producer, sequence);
            return (sequence, partition);
        }
        let sequence = self.sequence;
        self.frame.patch(correlation, sequence);
        self.sequence = sequence
            .checked_add(self.frame.records)
            .expect("a short run");
        (sequence, self.partitions[0])
    }
}

/// The pairs of a producer and a partition that one connection touches.
struct Windows {
    first_producer: i64,
    partitions: i32,
    /// The next sequence of each pair, producer by producer.
    sequences: Vec<i32>,
    random: u64,
}

impl Windows {
    const FIRST_PRODUCER: i64 = 1 << 20;

    fn new(load: &Load, topic: &Topic, number: usize) -> Self {
        assert_eq!(load.windows % load.producers, 0, "equal parts");
        let pairs = load.windows / load.producers;
        let partitions = topic.partitions.min(pairs).min(1000);
        assert_eq!(pairs % partitions, 0, "every producer on every partition");
        let producers = i64::try_from(pairs / partitions * number).unwrap();
        Self {
            first_producer: Self::FIRST_PRODUCER + producers,
            partitions: i32::try_from(partitions).unwrap(),
            sequences: vec![0; pairs],
            random: 0x9e37_79b9_7f4a_7c15 ^ u64::try_from(number + 1).unwrap(),
        }
    }

    fn next(&mut self) -> (i64, i32, i32) {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let pairs = u64::try_from(self.sequences.len()).unwrap();
        let pair = usize::try_from((self.random >> 16) % pairs).unwrap();
        let sequence = self.sequences[pair];
        self.sequences[pair] += 1;
        let (producer, partition) = self.pair(pair);
        (producer, partition, sequence)
    }

    fn pair(&self, pair: usize) -> (i64, i32) {
        let pair = i64::try_from(pair).unwrap();
        let partitions = i64::from(self.partitions);
        let partition = i32::try_from(pair % partitions).unwrap();
        (self.first_producer + pair / partitions, partition)
    }

    /// Touches every pair once, many partitions a request.
    fn touch_all(&mut self, load: &Load, topic: &Topic, client: &mut Client) {
        let width = FIRST_TOUCH.min(usize::try_from(self.partitions).unwrap());
        let shape = BatchShape {
            bytes: 128,
            records: 1,
            producer: Some((Self::FIRST_PRODUCER, 0)),
        };
        let all: Vec<i32> = (0..i32::try_from(width).unwrap()).collect();
        let mut frame = Produce::new(load.version, load.acks, topic, &all, &shape);
        for first in (0..self.sequences.len()).step_by(width) {
            let (producer, partition) = self.pair(first);
            frame.patch_partitions(partition);
            frame.patch_all(1, producer, 0);
            client.0.write_all(&frame.frame).unwrap();
            let body = client.receive();
            wire::answers(load.version, &body, |answer| {
                assert_eq!(answer.error, 0, "the first touch of a window");
            });
        }
        self.sequences.fill(1);
    }
}

/// A request that is in flight.
struct Owed {
    /// Of a batch its sequence, of a fetch the offset.
    from: i64,
    partition: i32,
    /// The offset that a repetition must get.
    again: Option<i64>,
    /// Requests that its answer completes.
    counts: u64,
}

/// A batch that was acknowledged and may be repeated.
struct Acknowledged {
    sequence: i32,
    offset: i64,
}

enum Work {
    Produce(Box<Source>),
    Fetch(Fetch, i64),
}

struct Connection {
    stream: TcpStream,
    work: Work,
    next_correlation: i32,
    next_answer: i32,
    owed: VecDeque<Owed>,
    out: Vec<u8>,
    out_at: usize,
    /// How much of a large frame has been written, straight from the frame.
    large_at: Option<usize>,
    /// Bytes of an answer that is not complete.
    inbox: Vec<u8>,
    /// Bytes of fetched records that are still to be dropped.
    drop: usize,
    repeatable: Option<Acknowledged>,
    /// In percent, what the share of repetitions is short of.
    short: u32,
}

/// All that the connections share.
struct Closed {
    load: Load,
    poll: Poll,
    connections: Vec<Connection>,
    tally: Tally,
    buffer: Vec<u8>,
}

#[derive(Default)]
struct Tally {
    requests: u64,
    bytes: u64,
    batches: u64,
    repetitions: u64,
    /// Bytes that producers have sent and consumers have asked for.
    sent: u64,
    asked: u64,
    /// Nothing new is sent any more.
    closing: bool,
}

impl Closed {
    fn new(load: &Load) -> Self {
        let (topic, target) = find_topic(load);
        let poll = Poll::new().unwrap();
        let mut tally = Tally::default();
        let all = load.producers + load.consumers;
        let connections = (0..all).map(|number| {
            let mut client = Client::connect(target);
            client.api_versions();
            let work = if number < load.producers {
                let mut source = Source::new(load, &topic, &mut client, number);
                if let Some(windows) = &mut source.windows {
                    windows.touch_all(load, &topic, &mut client);
                    tally.batches += u64::try_from(windows.sequences.len()).unwrap();
                }
                Work::Produce(Box::new(source))
            } else {
                let partition = (number - load.producers) % topic.partitions;
                let partition = i32::try_from(partition).unwrap();
                let bytes = i32::try_from(null::FETCH_BYTES).unwrap();
                Work::Fetch(Fetch::new(&topic, partition, bytes), 0)
            };
            Connection::new(client, work, &poll, Token(number))
        });
        let connections = connections.collect();
        Self {
            load: load.clone(),
            poll,
            connections,
            tally,
            buffer: vec![0; 256 * 1024],
        }
    }

    fn run(mut self) -> Outcome {
        let mut events = Events::with_capacity(1024);
        let warm = Instant::now() + Duration::from_secs_f64(self.load.warm_up);
        let mut watch: Option<Stopwatch> = None;
        self.push_all();
        let mut outcome = loop {
            let now = Instant::now();
            match &watch {
                None if now >= warm => {
                    self.tally.requests = 0;
                    self.tally.bytes = 0;
                    watch = Some(Stopwatch::start(&self.load));
                }
                Some(watch) if (now - watch.start).as_secs_f64() >= self.load.seconds => {
                    break watch.stop(&self.load);
                }
                _ => {}
            }
            self.turn(&mut events);
        };
        outcome.requests = self.tally.requests;
        outcome.bytes = self.tally.bytes;
        assert!(outcome.requests > 0, "nothing was answered");
        self.tally.closing = true;
        while self.connections.iter().any(Connection::is_owed) {
            self.turn(&mut events);
        }
        outcome.batches = self.tally.batches;
        outcome.repetitions = self.tally.repetitions;
        outcome
    }

    fn turn(&mut self, events: &mut Events) {
        match self.poll.poll(events, Some(PATIENCE)) {
            Err(error) if error.kind() == ErrorKind::Interrupted => return,
            result => result.unwrap(),
        }
        assert!(!events.is_empty(), "no answer for {PATIENCE:?}");
        for event in &*events {
            let connection = &mut self.connections[event.token().0];
            connection.pull(&self.load, &mut self.tally, &mut self.buffer);
            connection.push(&self.load, &mut self.tally);
        }
        if self.load.producers > 0 && self.load.consumers > 0 {
            // Who waited for the other kind may go on.
            self.push_all();
        }
    }

    fn push_all(&mut self) {
        for connection in &mut self.connections {
            connection.push(&self.load, &mut self.tally);
        }
    }
}

impl Connection {
    fn new(client: Client, work: Work, poll: &Poll, token: Token) -> Self {
        client.0.set_nonblocking(true).unwrap();
        let mut stream = TcpStream::from_std(client.0);
        let both = Interest::READABLE | Interest::WRITABLE;
        poll.registry().register(&mut stream, token, both).unwrap();
        Self {
            stream,
            work,
            next_correlation: 10,
            next_answer: 10,
            owed: VecDeque::new(),
            out: Vec::new(),
            out_at: 0,
            large_at: None,
            inbox: Vec::new(),
            drop: 0,
            repeatable: None,
            short: 0,
        }
    }

    fn is_owed(&self) -> bool {
        !self.owed.is_empty() || self.large_at.is_some() || self.out_at < self.out.len()
    }

    /// Sends what the depth allows, as far as the socket takes it.
    fn push(&mut self, load: &Load, tally: &mut Tally) {
        while self.write() {
            self.out.clear();
            self.out_at = 0;
            while !tally.closing && self.may_send(load, tally) {
                self.next(load, tally);
                let frame = self.frame();
                if frame.len() > LARGE {
                    self.large_at = Some(0);
                    break;
                }
                match &self.work {
                    Work::Produce(source) => self.out.extend_from_slice(&source.frame.frame),
                    Work::Fetch(fetch, _) => self.out.extend_from_slice(&fetch.frame),
                }
                if self.out.len() > LARGE {
                    break;
                }
            }
            if self.out.is_empty() && self.large_at.is_none() {
                return;
            }
        }
    }

    /// Writes what is left; `false` where the socket is full.
    fn write(&mut self) -> bool {
        loop {
            let rest = match self.large_at {
                Some(at) => &self.frame()[at..],
                None => &self.out[self.out_at..],
            };
            if rest.is_empty() {
                self.large_at = None;
                return true;
            }
            let written = match (&self.stream).write(rest) {
                Ok(written) => written,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return false,
                Err(error) => panic!("{error} after {} answers", self.next_answer - 10),
            };
            match &mut self.large_at {
                Some(at) => *at += written,
                None => self.out_at += written,
            }
        }
    }

    fn frame(&self) -> &[u8] {
        match &self.work {
            Work::Produce(source) => &source.frame.frame,
            Work::Fetch(fetch, _) => &fetch.frame,
        }
    }

    fn may_send(&self, load: &Load, tally: &Tally) -> bool {
        let mixed = load.producers > 0 && load.consumers > 0;
        let fetch = null::FETCH_BYTES as u64;
        match &self.work {
            Work::Fetch(..) => {
                self.owed.is_empty() && (!mixed || tally.asked + fetch <= tally.sent)
            }
            Work::Produce(_) => {
                let ahead = 2 * load.consumers as u64 * fetch;
                self.owed.len() < load.depth && (!mixed || tally.sent <= tally.asked + ahead)
            }
        }
    }

    /// Makes the frame the next request, which is owed from now on.
    fn next(&mut self, load: &Load, tally: &mut Tally) {
        let correlation = self.next_correlation;
        let mut owed = Owed {
            from: 0,
            partition: 0,
            again: None,
            counts: 1,
        };
        match &mut self.work {
            Work::Fetch(fetch, offset) => {
                tally.asked += null::FETCH_BYTES as u64;
                fetch.patch(correlation, *offset);
                owed.from = *offset;
                if load.exact {
                    *offset += i64::from(null::FETCH_RECORDS);
                }
            }
            Work::Produce(source) => {
                tally.sent += source.frame.payload as u64;
                tally.batches += load.fan_out as u64;
                self.short += load.again;
                let again = self.repeatable.take_if(|_| self.short >= 100);
                if let Some(again) = again {
                    self.short -= 100;
                    tally.repetitions += load.fan_out as u64;
                    source.frame.patch(correlation, again.sequence);
                    owed.from = i64::from(again.sequence);
                    owed.partition = source.partitions[0];
                    owed.again = Some(again.offset);
                } else {
                    let (sequence, partition) = source.next(correlation);
                    owed.from = i64::from(sequence);
                    owed.partition = partition;
                }
                if load.acks == 0 {
                    let asks = correlation % (SILENT + 1) == 0;
                    source.frame.patch_acks(if asks { -1 } else { 0 });
                    owed.counts += u64::from(SILENT.cast_unsigned());
                    if !asks {
                        self.next_correlation += 1;
                        return;
                    }
                }
            }
        }
        self.next_correlation = correlation.checked_add(1).expect("a short run");
        self.owed.push_back(owed);
    }

    /// Reads and checks all answers that are there.
    fn pull(&mut self, load: &Load, tally: &mut Tally, buffer: &mut [u8]) {
        loop {
            let result = if self.drop > 0 {
                let length = self.drop.min(buffer.len());
                recv(&self.stream, &mut buffer[..length], RecvFlags::TRUNC)
                    .map(|(_, dropped)| dropped)
                    .map_err(std::io::Error::from)
            } else {
                let kept = self.inbox.len();
                buffer[..kept].copy_from_slice(&self.inbox);
                self.stream.read(&mut buffer[kept..])
            };
            let read = match result {
                Ok(0) => panic!("closed after {} answers", self.next_answer - 10),
                Ok(read) => read,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) => panic!("{error} after {} answers", self.next_answer - 10),
            };
            if self.drop > 0 {
                self.drop -= read;
                continue;
            }
            let have = self.inbox.len() + read;
            self.inbox.clear();
            let used = self.take(&buffer[..have], load, tally);
            self.inbox.extend_from_slice(&buffer[used..have]);
            if have < buffer.len() {
                return;
            }
        }
    }

    /// Checks the answers that are complete, gives how many bytes they have.
    fn take(&mut self, bytes: &[u8], load: &Load, tally: &mut Tally) -> usize {
        let mut at = 0;
        while let Some(length) = bytes[at..].first_chunk::<4>() {
            let length = u32::from_be_bytes(*length) as usize;
            let body = &bytes[at + 4..bytes.len().min(at + 4 + length)];
            let enough = match self.work {
                Work::Produce(_) => length,
                Work::Fetch(..) => length.min(FETCH_HEAD),
            };
            if body.len() < enough {
                break;
            }
            self.check(body, load, tally);
            at += 4 + body.len();
            self.drop = length - body.len();
        }
        at
    }

    fn check(&mut self, body: &[u8], load: &Load, tally: &mut Tally) {
        let correlation = i32::from_be_bytes(*body.first_chunk().unwrap());
        if load.acks == 0 {
            self.next_answer = correlation.max(self.next_answer);
        }
        assert_eq!(correlation, self.next_answer, "the order of the answers");
        self.next_answer += 1;
        let owed = self.owed.pop_front().expect("an answer to a request");
        tally.requests += owed.counts;
        match &self.work {
            Work::Produce(source) => {
                tally.bytes += owed.counts * source.frame.payload as u64;
                let offset = check_produce(body, load, source, &owed);
                if owed.again.is_none() {
                    self.repeatable = Some(Acknowledged {
                        sequence: i32::try_from(owed.from).unwrap(),
                        offset,
                    });
                }
            }
            Work::Fetch(..) => {
                let fetched = wire::fetched(body);
                assert_eq!(fetched.error, 0, "the error of a fetch");
                assert!(fetched.records > 0, "nothing was fetched");
                let right = fetched.base_offset <= owed.from
                    && (!load.exact || fetched.base_offset == owed.from);
                assert!(right, "asked for {}, got {fetched:?}", owed.from);
                tally.bytes += fetched.records as u64;
            }
        }
    }
}

/// Panics unless it is what a right broker would say; gives the offset.
fn check_produce(body: &[u8], load: &Load, source: &Source, owed: &Owed) -> i64 {
    let mut answered = 0;
    let mut base = -1;
    wire::answers(load.version, body, |answer| {
        let (partition, error) = (answer.partition, answer.error);
        assert_eq!(
            error, 0,
            "the error of sequence {}, partition {partition}",
            owed.from
        );
        if load.fan_out == 1 {
            assert_eq!(partition, owed.partition, "the partition of an answer");
        } else {
            assert!(source.partitions.contains(&partition), "{partition}");
        }
        if let Some(first) = owed.again {
            assert_eq!(answer.offset, first, "the offset of a repetition");
        }
        if load.exact && load.idempotent {
            assert_eq!(answer.offset, owed.from, "the offset of a batch");
        }
        answered += 1;
        base = answer.offset;
    });
    assert_eq!(answered, load.fan_out, "an answer for every partition");
    base
}

fn paced(load: &Load, rate: u32) -> Outcome {
    let (topic, target) = find_topic(load);
    let mut client = Client::connect(target);
    client.api_versions();
    let mut source = Source::new(load, &topic, &mut client, 0);
    let gap = Duration::from_secs(1) / rate;
    let warm = Instant::now() + Duration::from_secs_f64(load.warm_up);
    let mut watch: Option<Stopwatch> = None;
    let mut nanoseconds: Vec<u64> = Vec::new();
    let mut batches = 0;
    let mut due = Instant::now();
    let mut outcome = loop {
        let now = Instant::now();
        match &watch {
            None if now >= warm => {
                nanoseconds.clear();
                watch = Some(Stopwatch::start(load));
            }
            Some(watch) if (now - watch.start).as_secs_f64() >= load.seconds => {
                break watch.stop(load);
            }
            _ => {}
        }
        // One in flight: what was late is not caught up with.
        due = (due + gap).max(now);
        rest(due - now);
        batches += 1;
        let sent = Instant::now();
        exchange(load, &mut client, &mut source, batches);
        nanoseconds.push(u64::try_from(sent.elapsed().as_nanos()).unwrap());
    };
    nanoseconds.sort_unstable();
    let at = |percent: usize| nanoseconds[(nanoseconds.len() - 1) * percent / 100] as f64 / 1e3;
    (outcome.p50, outcome.p99) = (at(50), at(99));
    outcome.requests = nanoseconds.len() as u64;
    outcome.bytes = outcome.requests * source.frame.payload as u64;
    outcome.batches = u64::try_from(batches).unwrap();
    outcome
}

/// One request and its answer.
fn exchange(load: &Load, client: &mut Client, source: &mut Source, correlation: i32) {
    let (sequence, partition) = source.next(correlation);
    client.0.write_all(&source.frame.frame).unwrap();
    let body = client.receive();
    let answered = i32::from_be_bytes(*body.first_chunk().unwrap());
    assert_eq!(answered, correlation, "the order of the answers");
    let owed = Owed {
        from: i64::from(sequence),
        partition,
        again: None,
        counts: 1,
    };
    check_produce(&body, load, source, &owed);
}

fn hold(load: &Load) -> Outcome {
    let (topic, target) = find_topic(load);
    let watch = Stopwatch::start(load);
    let held = (0..load.producers).map(|number| {
        let mut client = Client::connect(target);
        client.api_versions();
        let mut source = Source::new(load, &topic, &mut client, number);
        exchange(load, &mut client, &mut source, 1);
        client
    });
    let held: Vec<Client> = held.collect();
    // What a proxy gives back some time after the last request does not count.
    rest(Duration::from_secs_f64(load.seconds));
    let mut outcome = watch.stop(load);
    outcome.requests = held.len() as u64;
    outcome.batches = outcome.requests;
    outcome
}
