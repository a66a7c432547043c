//! Every metric, named and explained once: the sentence above a field is also
//! its `HELP` line.
//!
//! Series with a fixed set of labels exist at 0 from the start, so that an
//! alert sees the first event; every open set of labels is capped. A producer
//! id, transactional id, client id or peer address is never a label.

mod tally;

use std::collections::HashMap;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use prometheus::{
    Histogram, HistogramOpts, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry,
    TextEncoder,
};

use crate::ids::NodeId;
pub use tally::{RequestDurations, Tally, TopicTally};

/// Defines [`Metrics`]: the doc comment of a field is the metric's help.
macro_rules! metrics {
    ($($(#[doc = $help:literal])+ $field:ident: $kind:ty = $name:literal,)+) => {
        /// All metrics of the process.
        pub struct Metrics {
            registry: Registry,
            topics: Topics,
            $($(#[doc = $help])+ pub $field: $kind,)+
        }

        impl Metrics {
            fn register(registry: Registry, max_topics: usize) -> Self {
                Self {
                    $($field: <$kind>::register(&registry, $name, concat!($($help),+).trim()),)+
                    topics: Topics::new(&registry, max_topics),
                    registry,
                }
            }
        }
    };
}

metrics! {
    /// Always 1; its labels say which build runs. Compare them when pods of one deployment behave differently.
    build_info: BuildInfo = "hapax_build_info",
    /// Open client connections. At limits.connections new ones are closed: raise the limit or find the client that leaks them.
    client_connections: IntGauge = "hapax_client_connections",
    /// Client connections accepted since the start. A high rate means that a client reconnects in a loop: read its log.
    client_connections_accepted: IntCounter = "hapax_client_connections_accepted_total",
    /// Client connections ended, by what ended them. Anything but client, idle and drain deserves a look at the log.
    client_disconnects: Labelled<DisconnectCause> = "hapax_client_disconnects_total",
    /// Clients that authenticated to hapax itself (listen.sasl.usersFile), by mechanism and by what came of it. refused is a wrong password, or somebody who tries: the log has the address; unauthenticated is a client without SASL settings.
    client_authentications: Labelled2<SaslMechanism, Authentication> = "hapax_client_authentications_total",
    /// Open connections to brokers, by node id (bootstrap: not yet known which broker). 0 while clients wait means that the upstream is unreachable.
    upstream_connections: ByNode = "hapax_upstream_connections",
    /// Connections to brokers that could not be made, by cause. Check the address that the log line names; left_alone counts clients that came right after such a failure.
    upstream_connect_errors: Labelled<ConnectError> = "hapax_upstream_connect_errors_total",
    /// Logins to brokers by hapax's own credentials (upstream.sasl), by what came of each; renewed is one on an open connection before its time was over. Alert on refused: the credentials, or the broker's copy of them, have changed.
    upstream_logins: Labelled<Login> = "hapax_upstream_logins_total",
    /// Tokens asked for at upstream.sasl.oauth.tokenEndpoint, by what came of it. Failed while the last token is good harms nobody yet: the log line names the reason.
    oauth_tokens: Labelled<OauthToken> = "hapax_oauth_tokens_total",
    /// Until when the token is good by which hapax logs in to brokers, in seconds since 1970; 0 where none was got. Alert when time() comes near it: a new one is got after four fifths of its time.
    oauth_token_expiry: IntGauge = "hapax_oauth_token_expiry_timestamp_seconds",
    /// Requests of clients, by API and by how they ended; short_circuit was answered by hapax itself. Errors: look for the code in the client's log.
    requests: Labelled2<Api, Outcome> = "hapax_requests_total",
    /// Requests that wait for their answer. Growing without end means that a broker has stopped answering.
    requests_in_flight: IntGauge = "hapax_requests_in_flight",
    /// Time from a request's first byte to its answer, brokers and client reading included. Compare with the brokers' own request times before blaming hapax.
    request_duration: RequestDurations = "hapax_request_duration_seconds",
    /// How late a worker came to what waited for it, looked at once a second and worker: what hapax itself adds to a way of a request. Above a few milliseconds the process lacks processor time: raise the CPU limit of its container, or spread the clients.
    worker_delay: Histogram = "hapax_worker_delay_seconds",
    /// Bytes received, by the side they came from. Use it to size the Pod and to find a client that floods.
    received_bytes: Labelled<Side> = "hapax_received_bytes_total",
    /// Bytes sent, by the side they went to. Upstream far below what clients sent means that much was absorbed.
    sent_bytes: Labelled<Side> = "hapax_sent_bytes_total",
    /// Bytes of large record runs that the kernel moved from socket to socket, by the side they came from. None although batches or fetched partitions are large means that splice is not available here: more CPU, nothing else.
    spliced_bytes: Labelled<Side> = "hapax_spliced_bytes_total",
    /// Produced batches, by the one verdict that each got. Alert on gap and sequence_reuse; a rise of duplicate_absorbed means that acknowledgements get lost.
    verdicts: Labelled<Verdict> = "hapax_verdicts_total",
    /// Sequence, epoch and fencing errors that brokers returned. Any rise is worth the event list: /api/v1/events.
    sequence_errors: Labelled<SequenceError> = "hapax_sequence_errors_total",
    /// Gaps in the sequence of a producer, by kind. never_seen means records that no broker will get: look at the producer of the event.
    gaps: Labelled<GapKind> = "hapax_gaps_total",
    /// Events recorded, by kind; one per occurrence, not per retry. Read them at /api/v1/events or with hapax events.
    events: Labelled<EventName> = "hapax_events_total",
    /// Events that a reader of /api/v1/events asked for too late. Follow the stream, or poll more often.
    events_dropped: IntCounter = "hapax_events_dropped_total",
    /// Transactional producers fenced, once per producer id and epoch, by who said so. Two instances share a transactional id, or a transaction timed out.
    fenced_producers: Labelled<FencedBy> = "hapax_fenced_producers_total",
    /// Producer ids handed out to clients. A high rate means that producers restart, or are made per message.
    producer_ids_issued: IntCounter = "hapax_producer_ids_issued_total",
    /// Producer epochs that rose without a coordinator saying so. A client met an error and started its sequence again: duplicates may follow.
    producer_epoch_bumps: IntCounter = "hapax_producer_epoch_bumps_total",
    /// Batches with the records of one of a former epoch, by what is known of that original: acknowledged is a duplicate in the log, unknown may be one. The event names the producer; sequence.shield45 spares librdkafka many such bumps.
    epoch_resends: Labelled<Original> = "hapax_epoch_resends_total",
    /// Errors 45 shown as the retriable error of the batch before them (sequence.shield45), so that the client retries instead of raising its epoch. A steady rate means that the error behind it does not end.
    shielded_errors: IntCounter = "hapax_shielded_errors_total",
    /// Producers with at least one window. Growing without end means that producers are made per message.
    producers: IntGauge = "hapax_producers",
    /// Windows held: one producer on one partition each. Near hapax_windows_limit raise sequence.maxWindows.
    windows: IntGauge = "hapax_windows",
    /// Most windows that are held (sequence.maxWindows). At the limit new producers pass untracked.
    windows_limit: IntGauge = "hapax_windows_limit",
    /// Memory of the windows. Lower sequence.windowBatches or sequence.maxWindows when it is too much.
    windows_bytes: IntGauge = "hapax_windows_bytes",
    /// Windows dropped, by reason. limit means that retries may pass unrecognised: raise sequence.maxWindows.
    window_evictions: Labelled<EvictionReason> = "hapax_window_evictions_total",
    /// Produce requests held until the batch before them is settled. Lasting values mean that a broker does not answer.
    held_requests: IntGauge = "hapax_held_requests",
    /// Holds that reached sequence.holdMax: the client was told to send the batch again, the fourth time it was forwarded. A batch before it is stuck on another connection.
    holds_expired: IntCounter = "hapax_holds_expired_total",
    /// Batches looked for in the log because the broker may have forgotten them, by what came of it. refused: grant the producer's user READ on the topic, or set sequence.resolve to false; late, and looked for again when the client tries again: the brokers answered too slowly for sequence.resolveTimeout, more logs are read than limits.resolves allows, or the leader moved; gave_up: see sequence.resolveBytes.
    resolves: Labelled<Resolve> = "hapax_resolves_total",
    /// Broker connections kept after their client went, until its batches are settled. At limits.orphans acknowledgements get lost.
    orphan_sessions: IntGauge = "hapax_orphan_sessions",
    /// Local ports that lead to a broker. Compare with listen.brokerPorts.
    broker_slots_used: IntGauge = "hapax_broker_slots_used",
    /// Until when the certificate is valid that hapax shows to that side, in seconds since 1970; the side has no series where it shows none. Alert a week ahead: a new one in its file is taken without a restart.
    tls_certificate_expiry: PerSide = "hapax_tls_certificate_expiry_timestamp_seconds",
    /// Brokers that got no local port. Widen listen.brokerPorts.
    broker_slots_exhausted: IntCounter = "hapax_broker_slots_exhausted_total",
    /// Bytes that were no Kafka frame, by the side they came from and by what they were. Someone speaks TLS or HTTP to this port, or the wrong port is configured.
    bad_frames: Labelled2<Side, BadFrame> = "hapax_bad_frames_total",
    /// Memory that the process may use (memory.limit, or three quarters of what its container may use). Raise it, and the container's, when hapax_memory_buffers_bytes comes near its limit.
    memory_limit: IntGauge = "hapax_memory_limit_bytes",
    /// Memory that is reserved for connections and for what they keep of requests and responses. Near hapax_memory_buffers_limit_bytes sessions are read more slowly, then new connections are closed: raise memory.limit, or find who does not read (/api/v1/connections).
    memory_buffers: IntGauge = "hapax_memory_buffers_bytes",
    /// How much of memory.limit there is for that: what windows and the process itself need is taken off. It follows memory.limit and sequence.maxWindows.
    memory_buffers_limit: IntGauge = "hapax_memory_buffers_limit_bytes",
    /// Times a limit was reached, by limit. Raise it, or find out who needs so much.
    limit_reached: Labelled<Limit> = "hapax_limit_reached_total",
    /// Label values counted as other because their label is full. Raise metrics.maxTopics when it is the topic.
    label_overflows: Labelled<CappedLabel> = "hapax_label_overflows_total",
    /// Snapshots written to state.dir. None although it is set means that no client has asked for metadata yet, that another hapax has the directory, or that writing fails: see the log.
    snapshot_writes: IntCounter = "hapax_snapshot_writes_total",
    /// Snapshots that could not be written. Clients are served on, but a restart finds old state: the log says what state.dir lacks.
    snapshot_failures: IntCounter = "hapax_snapshot_failures_total",
    /// When the newest snapshot was written, in seconds since 1970; 0 before the first. Alert when time() is far ahead of it while state.dir is set.
    snapshot_last_success: IntGauge = "hapax_snapshot_last_success_timestamp_seconds",
    /// Size of the newest snapshot. Give the volume three times as much: two exist while one is replaced, and up to three that could not be read are kept.
    snapshot_bytes: IntGauge = "hapax_snapshot_bytes",
    /// Acknowledgements in the newest snapshot. Only those younger than sequence.ttl are written: lower that to write less.
    snapshot_facts: IntGauge = "hapax_snapshot_facts",
    /// Acknowledgements of before the restart that were loaded. 0 after a restart with state.dir means that retries are left to the broker: the log says why.
    snapshot_loaded_facts: IntGauge = "hapax_snapshot_loaded_facts",
    /// Snapshots that could not be read and were set aside. hapax started empty: look at the file that the log names, then delete it.
    snapshots_set_aside: IntCounter = "hapax_snapshots_set_aside_total",
    /// 1 after SIGTERM, while clients are served to their end. If it lasts, clients do not hang up.
    draining: IntGauge = "hapax_draining",
    /// Requests without an answer that were cut when drain.timeout was over. Their clients send them again: give a longer drain.timeout, and the Pod a longer grace period.
    drain_cut_requests: IntCounter = "hapax_drain_cut_requests_total",
    /// Times that the configuration or a file it names was read again, by what came of it: invalid and refused changed nothing. The log line, and /api/v1/config, say what to correct.
    config_reloads: Labelled<ReloadOutcome> = "hapax_config_reloads_total",
    /// 0 while a file that is read again is invalid, or asks for what only a restart can change; hapax goes on as it was. Correct the file that the log names.
    config_last_reload_successful: IntGauge = "hapax_config_last_reload_successful",
    /// When everything that hapax reads was last read without an error, in seconds since 1970. Compare it with the time at which you changed a file.
    config_last_reload_success: IntGauge = "hapax_config_last_reload_success_timestamp_seconds",
}

impl Metrics {
    /// All metrics, with at most `max_topics` topics named.
    pub fn new(max_topics: usize) -> Arc<Self> {
        let registry = Registry::new();
        // The crate reads /proc, which other systems do not have.
        #[cfg(target_os = "linux")]
        registry
            .register(Box::new(
                prometheus::process_collector::ProcessCollector::for_self(),
            ))
            .expect(REGISTERED_ONCE);
        Arc::new(Self::register(registry, max_topics))
    }

    /// The counters of a topic: a connection keeps them, so that a batch needs
    /// no look-up. A topic beyond the cap is counted as `other`.
    pub fn topic(&self, name: &str) -> Arc<TopicMetrics> {
        let (topic, overflowed) = self.topics.find(name, self);
        if overflowed {
            self.label_overflows.with(CappedLabel::Topic).inc();
            self.limit_reached.with(Limit::Topics).inc();
        }
        topic
    }

    /// Changes how many topics are named; those that are named stay so.
    pub fn name_topics(&self, max: usize) {
        self.topics.max.store(max, Ordering::Relaxed);
    }

    /// The gauge of connections to a broker, `None` being a bootstrap server
    /// of which the node id is not known. A node beyond the cap is `other`.
    pub fn upstream_connections_of(&self, node: Option<NodeId>) -> IntGauge {
        let (gauge, overflowed) = self.upstream_connections.find(node);
        if overflowed {
            self.label_overflows.with(CappedLabel::Node).inc();
        }
        gauge
    }

    /// Shows that the upstream is the one of `hapax dev`, which nothing else has.
    pub fn show_dev_upstream(&self) {
        let help = "Always 1, under hapax dev only: what clients write is kept in memory and gone with the process. Alert where it is scraped in production.";
        IntGauge::register(&self.registry, "hapax_dev_upstream_info", help).set(1);
    }

    /// The counters of what happened to batches and producers, by series: what
    /// is worth knowing beyond the life of a process.
    pub fn totals(&self) -> Vec<(String, u64)> {
        self.add_up();
        let plain = [
            ("hapax_producer_ids_issued_total", &self.producer_ids_issued),
            (
                "hapax_producer_epoch_bumps_total",
                &self.producer_epoch_bumps,
            ),
        ];
        let mut totals: Vec<_> = plain
            .map(|(name, counter)| (name.to_owned(), counter.get()))
            .into();
        totals.extend(self.verdicts.totals("hapax_verdicts_total"));
        totals.extend(self.sequence_errors.totals("hapax_sequence_errors_total"));
        totals.extend(self.gaps.totals("hapax_gaps_total"));
        totals.extend(self.events.totals("hapax_events_total"));
        totals.extend(self.fenced_producers.totals("hapax_fenced_producers_total"));
        totals
    }

    /// The text exposition format, version 0.0.4.
    pub fn render(&self) -> Vec<u8> {
        self.add_up();
        let mut text = String::new();
        TextEncoder::new()
            .encode_utf8(&self.registry.gather(), &mut text)
            .expect("every family was linted by a test");
        text.into_bytes()
    }
}

/// Adds one to a gauge for as long as it lives.
#[must_use]
pub struct Presence(IntGauge);

impl Presence {
    /// Counts one more in `gauge`, until it is dropped.
    pub fn of(gauge: &IntGauge) -> Self {
        gauge.inc();
        Self(gauge.clone())
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// The counters of one topic, all of which exist at 0 once the topic is seen.
pub struct TopicMetrics {
    batches: Labelled<Verdict>,
    records: Labelled<Verdict>,
    broker_errors: Labelled<SequenceError>,
    sequence_errors: Labelled<SequenceError>,
    /// Records that a gap says are missing.
    pub missing_records: IntCounter,
    policy_violations: Labelled<Policy>,
    tallies: tally::TopicTallies,
}

impl TopicMetrics {
    /// Counts a broker's error for the topic and in total, when it is one of
    /// [`SequenceError`]; any other code is not counted.
    pub fn broker_error(&self, code: i16) {
        let Some(error) = SequenceError::from_code(code) else {
            return;
        };
        self.broker_errors.with(error).inc();
        self.sequence_errors.with(error).inc();
    }
}

/// The values of a label that are known beforehand.
pub trait Label: Copy + 'static {
    /// Name of the label.
    const NAME: &'static str;
    /// Every value.
    const ALL: &'static [Self];
    /// The value as a metric shows it.
    fn label(self) -> &'static str;
    /// Its place in [`Label::ALL`].
    fn index(self) -> usize;
}

/// Defines a label's values: variant = the text that a metric shows.
macro_rules! labels {
    ($(#[doc = $doc:literal])+ $enum:ident = $name:literal {
        $($(#[doc = $variant_doc:literal])+ $variant:ident = $text:literal,)+
    }) => {
        $(#[doc = $doc])+
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum $enum {
            $($(#[doc = $variant_doc])+ $variant,)+
        }

        impl $enum {
            /// Every value, in the order of the definition.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// The value as metrics, logs and the API show it.
            pub const fn label(self) -> &'static str {
                match self {
                    $(Self::$variant => $text,)+
                }
            }
        }

        impl Label for $enum {
            const NAME: &'static str = $name;
            const ALL: &'static [Self] = Self::ALL;

            fn label(self) -> &'static str {
                self.label()
            }

            fn index(self) -> usize {
                self as usize
            }
        }
    };
}

labels! {
    /// The one verdict of a batch. What was done wins over what the batch was.
    Verdict = "verdict" {
        /// Sent to the broker as it came, nothing being known against it.
        Forwarded = "forwarded",
        /// A retry of an acknowledged batch, answered with that acknowledgement.
        DuplicateAbsorbed = "duplicate_absorbed",
        /// A retry that the broker has to judge.
        DuplicateForwarded = "duplicate_forwarded",
        /// A retry of unknown outcome that was found in the log.
        DuplicateResolved = "duplicate_resolved",
        /// It starts after the end of the batch before it.
        Gap = "gap",
        /// It repeats part of an acknowledged range.
        Overlap = "overlap",
        /// It has the range of an acknowledged batch, and other bytes.
        SequenceReuse = "sequence_reuse",
        /// Its epoch is older than the newest seen.
        StaleEpoch = "stale_epoch",
        /// Answered as the broker answered the batch before it.
        Mirrored = "mirrored",
        /// Rejected by a proof or by a policy.
        Refused = "refused",
        /// Not followed: no idempotence, or not in a shape that can be.
        Untracked = "untracked",
    }
}

labels! {
    /// A broker's error about sequences, epochs or fencing.
    SequenceError = "error" {
        /// Code 45.
        OutOfOrderSequenceNumber = "out_of_order_sequence_number",
        /// Code 46.
        DuplicateSequenceNumber = "duplicate_sequence_number",
        /// Code 47.
        InvalidProducerEpoch = "invalid_producer_epoch",
        /// Code 90.
        ProducerFenced = "producer_fenced",
        /// Code 59.
        UnknownProducerId = "unknown_producer_id",
    }
}

impl SequenceError {
    /// The error of that code, if it is one of these.
    pub fn from_code(code: i16) -> Option<Self> {
        match code {
            45 => Some(Self::OutOfOrderSequenceNumber),
            46 => Some(Self::DuplicateSequenceNumber),
            47 => Some(Self::InvalidProducerEpoch),
            90 => Some(Self::ProducerFenced),
            59 => Some(Self::UnknownProducerId),
            _ => None,
        }
    }
}

labels! {
    /// Why a batch starts after the end of what is known.
    GapKind = "kind" {
        /// The batch before it failed and is still open: its retry will close the gap.
        PredecessorFailed = "predecessor_failed",
        /// The batch before it was never received here.
        NeverSeen = "never_seen",
        /// Nothing of this epoch was seen before, and it does not start at 0.
        NoBaseline = "no_baseline",
        /// A higher epoch goes on without having begun at sequence 0 here.
        NewEpochMidway = "new_epoch_midway",
    }
}

labels! {
    /// What an event is about.
    EventName = "event" {
        /// A retry was answered from an earlier acknowledgement.
        DuplicateAbsorbed = "duplicate_absorbed",
        /// A retry was left to the broker.
        DuplicateForwarded = "duplicate_forwarded",
        /// Records are missing before a batch.
        Gap = "gap",
        /// A sequence range came again with other bytes.
        SequenceReuse = "sequence_reuse",
        /// A batch repeats part of an acknowledged range.
        Overlap = "overlap",
        /// A batch of an older epoch.
        StaleEpoch = "stale_epoch",
        /// An epoch rose without a coordinator's answer saying so.
        EpochBump = "epoch_bump",
        /// A transactional producer was fenced.
        FencedProducer = "fenced_producer",
        /// A broker refused as out of order what follows on its own acknowledgement.
        Disagreement = "disagreement",
        /// A broker gave an offset out again: its log was cut.
        LogTruncated = "log_truncated",
        /// A batch that the broker may have forgotten, or did, was found in the log.
        DuplicateResolved = "duplicate_resolved",
        /// The records of a batch came again under a new epoch.
        EpochResend = "epoch_resend",
        /// Error 45 was shown as the error of the batch before it.
        Shielded = "shielded",
        /// A client does not do what a policy of the topic requires.
        PolicyViolation = "policy_violation",
    }
}

labels! {
    /// What came of a look into the log for a batch.
    Resolve = "outcome" {
        /// The log has it: the client got its offset.
        Found = "found",
        /// The log does not have it: the broker judged.
        Absent = "absent",
        /// The client's user may not read the topic: the broker judged.
        Refused = "refused",
        /// It could not be told yet: the client was told REQUEST_TIMED_OUT, or
        /// that another broker leads. It is looked for again when it comes again.
        Late = "late",
        /// It could not be told at all, or within the bounds: the broker judged.
        GaveUp = "gave_up",
    }
}

labels! {
    /// What is known of a batch whose records came again under a new epoch.
    Original = "original" {
        /// The cluster acknowledged it.
        Acknowledged = "acknowledged",
        /// It may be in the log.
        Unknown = "unknown",
    }
}

labels! {
    /// What a policy requires.
    Policy = "policy" {
        /// A producer id.
        Idempotence = "idempotence",
        /// acks=all.
        AcksAll = "acks_all",
        /// A transaction.
        Transactional = "transactional",
    }
}

labels! {
    /// Who fenced a producer.
    FencedBy = "source" {
        /// hapax, by a proof or a policy.
        Proxy = "proxy",
        /// A broker or coordinator.
        Broker = "broker",
    }
}

labels! {
    /// What ended a client connection.
    DisconnectCause = "cause" {
        /// The client hung up.
        Client = "client",
        /// Its broker connection was lost.
        Upstream = "upstream",
        /// Nothing was sent for too long.
        Idle = "idle",
        /// hapax drained, and no request was open.
        Drain = "drain",
        /// hapax drained, and the time for it was over.
        DrainTimeout = "drain_timeout",
        /// Bytes that are no Kafka request.
        Protocol = "protocol",
        /// TLS failed.
        Tls = "tls",
        /// A request took too long to arrive.
        Slow = "slow",
        /// A policy refused what asks for no answer.
        Policy = "policy",
        /// It held memory that others waited for, or waited for too long.
        Memory = "memory",
        /// It did not authenticate, or its user is none any more.
        Sasl = "sasl",
    }
}

labels! {
    /// How a client authenticates to hapax.
    SaslMechanism = "mechanism" {
        /// By its password.
        Plain = "PLAIN",
        /// By a proof.
        ScramSha256 = "SCRAM-SHA-256",
        /// By a proof with the longer hash.
        ScramSha512 = "SCRAM-SHA-512",
        /// It has not chosen one that is offered.
        None = "none",
    }
}

labels! {
    /// What came of it.
    Authentication = "outcome" {
        /// It is a user.
        Ok = "ok",
        /// The password is another one, or there is no such user.
        Refused = "refused",
        /// The mechanism is not offered.
        Unsupported = "unsupported",
        /// It asked for something else first.
        Unauthenticated = "unauthenticated",
        /// It cannot be understood, or came out of turn.
        Malformed = "malformed",
        /// It took too long, or hung up on the way.
        Unfinished = "unfinished",
    }
}

labels! {
    /// What came of reading files again.
    ReloadOutcome = "outcome" {
        /// What changed holds now.
        Applied = "applied",
        /// They mean what they meant.
        Unchanged = "unchanged",
        /// They cannot be used; what was before holds.
        Invalid = "invalid",
        /// They change what only a restart can; what was before holds.
        Refused = "refused",
    }
}

labels! {
    /// Why a broker could not be reached.
    ConnectError = "cause" {
        /// The connection was refused.
        Refused = "refused",
        /// No answer within timeouts.connect.
        Timeout = "timeout",
        /// The name did not resolve.
        Resolve = "resolve",
        /// The address leads back to hapax.
        Loop = "loop",
        /// It was reached, and there was no TLS with it.
        Tls = "tls",
        /// Not tried, because that had failed a moment ago (upstream.reconnectBackoff).
        LeftAlone = "left_alone",
        /// It was reached, and refused the login, or could not be logged in to.
        Sasl = "sasl",
        /// Anything else.
        Other = "other",
    }
}

labels! {
    /// What came of a login to a broker.
    Login = "outcome" {
        /// hapax is logged in.
        Ok = "ok",
        /// It is logged in again, on the same connection.
        Renewed = "renewed",
        /// The broker refused the credentials, or has not got the mechanism.
        Refused = "refused",
        /// Anything else.
        Failed = "failed",
    }
}

labels! {
    /// What came of asking for a token.
    OauthToken = "outcome" {
        /// It was got.
        Ok = "ok",
        /// It was not.
        Failed = "failed",
    }
}

labels! {
    /// A Kafka API, those of interest by name.
    Api = "api" {
        /// Key 0.
        Produce = "produce",
        /// Key 1.
        Fetch = "fetch",
        /// Key 3.
        Metadata = "metadata",
        /// Key 10.
        FindCoordinator = "find_coordinator",
        /// Key 18.
        ApiVersions = "api_versions",
        /// Key 22.
        InitProducerId = "init_producer_id",
        /// Key 26.
        EndTxn = "end_txn",
        /// Key 36.
        SaslAuthenticate = "sasl_authenticate",
        /// Every other key.
        Other = "other",
    }
}

impl Api {
    /// The label of an API key.
    pub fn from_key(key: i16) -> Self {
        match key {
            0 => Self::Produce,
            1 => Self::Fetch,
            3 => Self::Metadata,
            10 => Self::FindCoordinator,
            18 => Self::ApiVersions,
            22 => Self::InitProducerId,
            26 => Self::EndTxn,
            36 => Self::SaslAuthenticate,
            _ => Self::Other,
        }
    }
}

labels! {
    /// How a request ended.
    Outcome = "outcome" {
        /// Answered by the broker without an error that hapax reads.
        Ok = "ok",
        /// Answered with an error, or never answered.
        Error = "error",
        /// Answered by hapax: nothing of it went to the broker.
        ShortCircuit = "short_circuit",
    }
}

labels! {
    /// Which side of the proxy.
    Side = "side" {
        /// Clients.
        Client = "client",
        /// Brokers.
        Upstream = "upstream",
    }
}

labels! {
    /// Why a window was dropped.
    EvictionReason = "reason" {
        /// Nothing happened in it for longer than sequence.ttl.
        Idle = "idle",
        /// sequence.maxWindows was reached.
        Limit = "limit",
    }
}

labels! {
    /// What bytes were that should have been a Kafka frame.
    BadFrame = "reason" {
        /// A negative length.
        Negative = "negative",
        /// Too short for its header.
        Short = "short",
        /// Longer than limits.frameBytes.
        TooLong = "too_long",
        /// TLS on a plaintext port, or a TLS alert.
        Tls = "tls",
        /// No TLS where only TLS is spoken.
        Plaintext = "plaintext",
        /// HTTP.
        Http = "http",
        /// A PROXY protocol header.
        ProxyProtocol = "proxy_protocol",
        /// A response that answers no request.
        Unpaired = "unpaired",
        /// Of a right length, and not what its header says.
        Malformed = "malformed",
    }
}

labels! {
    /// A configured bound.
    Limit = "limit" {
        /// limits.connections.
        Connections = "connections",
        /// limits.orphans.
        Orphans = "orphans",
        /// limits.resolves.
        Resolves = "resolves",
        /// limits.inFlight.
        InFlight = "in_flight",
        /// limits.collectedBytes.
        CollectedBytes = "collected_bytes",
        /// memory.limit.
        Memory = "memory",
        /// Brokers without a port that are remembered.
        Brokers = "brokers",
        /// sequence.maxWindows.
        Windows = "windows",
        /// Open attempts of one window.
        Attempts = "attempts",
        /// metrics.maxTopics.
        Topics = "topics",
    }
}

labels! {
    /// A label whose values are capped.
    CappedLabel = "label" {
        /// topic, by metrics.maxTopics.
        Topic = "topic",
        /// node, by [`MAX_NODES`].
        Node = "node",
    }
}

/// Counters of one family, one for each value of a label.
pub struct Labelled<L> {
    counters: Box<[IntCounter]>,
    label: PhantomData<L>,
}

impl<L: Label> Labelled<L> {
    /// The counter of a value.
    pub fn with(&self, value: L) -> &IntCounter {
        &self.counters[value.index()]
    }

    /// What each series of the family `name` has come to.
    fn totals(&self, name: &str) -> impl Iterator<Item = (String, u64)> {
        L::ALL.iter().map(move |value| {
            let series = format!("{name}{{{}=\"{}\"}}", L::NAME, value.label());
            (series, self.with(*value).get())
        })
    }

    fn of(counter: impl Fn(&'static str) -> IntCounter) -> Self {
        Self {
            counters: L::ALL.iter().map(|value| counter(value.label())).collect(),
            label: PhantomData,
        }
    }
}

impl<L> Clone for Labelled<L> {
    fn clone(&self) -> Self {
        Self {
            counters: self.counters.clone(),
            label: PhantomData,
        }
    }
}

/// Counters of one family, one for each pair of values of two labels.
pub struct Labelled2<A, B> {
    rows: Box<[Labelled<B>]>,
    label: PhantomData<A>,
}

impl<A: Label, B: Label> Labelled2<A, B> {
    /// The counter of a pair.
    pub fn with(&self, first: A, second: B) -> &IntCounter {
        self.rows[first.index()].with(second)
    }
}

/// A gauge for each broker, at most [`MAX_NODES`] of them.
pub struct ByNode {
    family: IntGaugeVec,
    nodes: Mutex<HashMap<NodeId, IntGauge>>,
    bootstrap: IntGauge,
    other: IntGauge,
}

impl ByNode {
    fn find(&self, node: Option<NodeId>) -> (IntGauge, bool) {
        let Some(node) = node else {
            return (self.bootstrap.clone(), false);
        };
        let mut nodes = lock(&self.nodes);
        if let Some(gauge) = nodes.get(&node) {
            return (gauge.clone(), false);
        }
        if nodes.len() >= MAX_NODES {
            return (self.other.clone(), true);
        }
        let gauge = self.family.with_label_values(&[&node.to_string()]);
        nodes.insert(node, gauge.clone());
        (gauge, false)
    }
}

/// A gauge for each side of which there is something to show.
pub struct PerSide(IntGaugeVec);

impl PerSide {
    /// That of a side, which is shown from now on.
    pub fn with(&self, side: Side) -> IntGauge {
        self.0.with_label_values(&[side.label()])
    }
}

/// The info metric of the build.
pub struct BuildInfo(());

/// Families that have a topic label.
struct Topics {
    batches: IntCounterVec,
    records: IntCounterVec,
    missing_records: IntCounterVec,
    policy_violations: IntCounterVec,
    broker_errors: IntCounterVec,
    max: AtomicUsize,
    by_name: Mutex<HashMap<Box<str>, Arc<TopicMetrics>>>,
}

impl Topics {
    fn new(registry: &Registry, max: usize) -> Self {
        let family = |name, help, labels: &[&str]| counters(registry, name, help, labels);
        Self {
            batches: family(
                "hapax_produce_batches_total",
                "Produced batches, by topic and by the one verdict that each got. Find the topic here when hapax_verdicts_total moves.",
                &[TOPIC, Verdict::NAME],
            ),
            records: family(
                "hapax_produce_records_total",
                "Records of the produced batches, by topic and verdict. What the log must have gained is all but the absorbed, resolved, mirrored and refused.",
                &[TOPIC, Verdict::NAME],
            ),
            missing_records: family(
                "hapax_missing_records_total",
                "Records that gaps say are missing, by topic. Look for the producer in /api/v1/events: it gave up on a batch.",
                &[TOPIC],
            ),
            policy_violations: family(
                "hapax_policy_violations_total",
                "Batches without what a policy of their topic requires, refused in mode enforce and forwarded in the others. Find the client in /api/v1/events before you enforce.",
                &[TOPIC, Policy::NAME],
            ),
            broker_errors: family(
                "hapax_broker_sequence_errors_total",
                "Sequence, epoch and fencing errors that brokers returned, by topic. Find the producer in /api/v1/events.",
                &[TOPIC, SequenceError::NAME],
            ),
            max: AtomicUsize::new(max),
            by_name: Mutex::default(),
        }
    }

    fn all(&self) -> Vec<Arc<TopicMetrics>> {
        lock(&self.by_name).values().cloned().collect()
    }

    /// The counters of the topic, and whether it was folded into `other`.
    fn find(&self, name: &str, totals: &Metrics) -> (Arc<TopicMetrics>, bool) {
        let mut by_name = lock(&self.by_name);
        if let Some(topic) = by_name.get(name) {
            return (topic.clone(), false);
        }
        let named = by_name.len() - usize::from(by_name.contains_key(OTHER));
        if named < self.max.load(Ordering::Relaxed)
            && name != OTHER
            && name.len() <= TOPIC_NAME_BYTES_MAX
        {
            let topic = Arc::new(self.counters(name, totals));
            by_name.insert(name.into(), topic.clone());
            return (topic, false);
        }
        let other = by_name
            .entry(OTHER.into())
            .or_insert_with(|| Arc::new(self.counters(OTHER, totals)));
        (other.clone(), name != OTHER)
    }

    fn counters(&self, name: &str, totals: &Metrics) -> TopicMetrics {
        TopicMetrics {
            batches: Labelled::of(|verdict| self.batches.with_label_values(&[name, verdict])),
            records: Labelled::of(|verdict| self.records.with_label_values(&[name, verdict])),
            broker_errors: Labelled::of(|error| {
                self.broker_errors.with_label_values(&[name, error])
            }),
            sequence_errors: totals.sequence_errors.clone(),
            missing_records: self.missing_records.with_label_values(&[name]),
            policy_violations: Labelled::of(|policy| {
                self.policy_violations.with_label_values(&[name, policy])
            }),
            tallies: tally::TopicTallies::default(),
        }
    }
}

/// What can be made from a name and a help text.
trait Register {
    fn register(registry: &Registry, name: &str, help: &str) -> Self;
}

impl Register for IntCounter {
    fn register(registry: &Registry, name: &str, help: &str) -> Self {
        let counter = Self::new(name, help).expect(VALID_NAME);
        registry
            .register(Box::new(counter.clone()))
            .expect(REGISTERED_ONCE);
        counter
    }
}

impl Register for IntGauge {
    fn register(registry: &Registry, name: &str, help: &str) -> Self {
        let gauge = Self::new(name, help).expect(VALID_NAME);
        registry
            .register(Box::new(gauge.clone()))
            .expect(REGISTERED_ONCE);
        gauge
    }
}

impl Register for Histogram {
    fn register(registry: &Registry, name: &str, help: &str) -> Self {
        let options = HistogramOpts::new(name, help).buckets(DELAY_BUCKETS_SECONDS.to_vec());
        let histogram = Self::with_opts(options).expect(VALID_NAME);
        registry
            .register(Box::new(histogram.clone()))
            .expect(REGISTERED_ONCE);
        histogram
    }
}

impl<L: Label> Register for Labelled<L> {
    fn register(registry: &Registry, name: &str, help: &str) -> Self {
        let family = counters(registry, name, help, &[L::NAME]);
        Self::of(|value| family.with_label_values(&[value]))
    }
}

impl<A: Label, B: Label> Register for Labelled2<A, B> {
    fn register(registry: &Registry, name: &str, help: &str) -> Self {
        let family = counters(registry, name, help, &[A::NAME, B::NAME]);
        let row = |first: &A| Labelled::of(|b| family.with_label_values(&[first.label(), b]));
        Self {
            rows: A::ALL.iter().map(row).collect(),
            label: PhantomData,
        }
    }
}

impl Register for ByNode {
    fn register(registry: &Registry, name: &str, help: &str) -> Self {
        let family = IntGaugeVec::new(Opts::new(name, help), &["node"]).expect(VALID_NAME);
        registry
            .register(Box::new(family.clone()))
            .expect(REGISTERED_ONCE);
        Self {
            bootstrap: family.with_label_values(&["bootstrap"]),
            other: family.with_label_values(&[OTHER]),
            family,
            nodes: Mutex::default(),
        }
    }
}

impl Register for PerSide {
    fn register(registry: &Registry, name: &str, help: &str) -> Self {
        let family = IntGaugeVec::new(Opts::new(name, help), &[Side::NAME]).expect(VALID_NAME);
        registry
            .register(Box::new(family.clone()))
            .expect(REGISTERED_ONCE);
        Self(family)
    }
}

impl Register for BuildInfo {
    fn register(registry: &Registry, name: &str, help: &str) -> Self {
        let options = Opts::new(name, help)
            .const_label("version", VERSION)
            .const_label("revision", REVISION)
            .const_label("rustc", RUSTC);
        let info = IntGauge::with_opts(options).expect(VALID_NAME);
        info.set(1);
        registry.register(Box::new(info)).expect(REGISTERED_ONCE);
        Self(())
    }
}

fn counters(registry: &Registry, name: &str, help: &str, labels: &[&str]) -> IntCounterVec {
    let family = IntCounterVec::new(Opts::new(name, help), labels).expect(VALID_NAME);
    registry
        .register(Box::new(family.clone()))
        .expect(REGISTERED_ONCE);
    family
}

/// A panic elsewhere leaves a map of counters whole: keep counting.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Version of this build.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
/// Revision that this build was made from, when the build said it.
pub const REVISION: &str = match option_env!("HAPAX_REVISION") {
    Some(revision) => revision,
    None => "unknown",
};
/// Version of the compiler, which `rust-toolchain.toml` pins.
pub const RUSTC: &str = env!("CARGO_PKG_RUST_VERSION");
/// From what a timer cannot tell from none (a millisecond) to what a client
/// takes for a broker that is gone.
const DELAY_BUCKETS_SECONDS: [f64; 6] = [0.001, 0.005, 0.01, 0.05, 0.2, 1.0];
/// Most brokers that have a series of their own.
pub const MAX_NODES: usize = 64;

const TOPIC: &str = "topic";
/// The longest name that Kafka allows: what is longer was made up.
const TOPIC_NAME_BYTES_MAX: usize = 249;
/// The value of a capped label beyond its cap, and of topics that no broker confirmed.
pub const OTHER: &str = "other";
const VALID_NAME: &str = "names and labels are constants that a test lints";
const REGISTERED_ONCE: &str = "each family is registered once, in a registry of its own";

#[cfg(test)]
mod tests {
    use prometheus::proto::{MetricFamily, MetricType};

    use super::*;

    /// The value of the series written as `name{labels}`.
    fn value(metrics: &Metrics, series: &str) -> Option<u64> {
        let text = String::from_utf8(metrics.render()).unwrap();
        let mut lines = text.lines();
        lines.find_map(|line| line.strip_prefix(series)?.trim().parse().ok())
    }

    fn series_count(metrics: &Metrics) -> usize {
        let text = String::from_utf8(metrics.render()).unwrap();
        text.lines().filter(|line| !line.starts_with('#')).count()
    }

    fn families() -> Vec<MetricFamily> {
        let metrics = Metrics::new(1);
        metrics.topic("orders");
        metrics.registry.gather()
    }

    #[test]
    fn every_family_keeps_the_naming_rules() {
        for family in families() {
            let name = family.name();
            let counter = family.get_field_type() == MetricType::COUNTER;
            assert!(
                name.starts_with("hapax_") || name.starts_with("process_"),
                "{name}"
            );
            assert_eq!(counter, name.ends_with("_total"), "{name}");
            assert!(family.help().ends_with('.'), "{name}: {}", family.help());
            for word in name.split('_') {
                let unit = [
                    "ms",
                    "milliseconds",
                    "us",
                    "sec",
                    "secs",
                    "kb",
                    "mb",
                    "kilobytes",
                    "megabytes",
                    "minutes",
                    "counter",
                    "gauge",
                    "histogram",
                    "summary",
                    "count",
                    "sum",
                    "bucket",
                ];
                assert!(!unit.contains(&word), "{name}");
            }
        }
    }

    #[test]
    fn help_says_what_to_do() {
        for family in families() {
            if family.name().starts_with("hapax_") {
                assert!(
                    family.help().matches(". ").count() >= 1,
                    "{}",
                    family.name()
                );
            }
        }
    }

    #[test]
    fn labels_are_never_an_identity() {
        let allowed = [
            "version",
            "revision",
            "rustc",
            "cause",
            "node",
            "api",
            "outcome",
            "side",
            "verdict",
            "error",
            "topic",
            "kind",
            "event",
            "source",
            "reason",
            "limit",
            "label",
            "original",
            "policy",
            "mechanism",
        ];
        for family in families() {
            for label in family.get_metric().iter().flat_map(|m| m.get_label()) {
                assert!(allowed.contains(&label.name()), "{}", label.name());
            }
        }
    }

    #[test]
    fn rare_events_are_at_zero_before_the_first() {
        let metrics = Metrics::new(50);
        for series in [
            r#"hapax_verdicts_total{verdict="gap"}"#,
            r#"hapax_verdicts_total{verdict="duplicate_absorbed"}"#,
            r#"hapax_sequence_errors_total{error="out_of_order_sequence_number"}"#,
            r#"hapax_gaps_total{kind="never_seen"}"#,
            r#"hapax_epoch_resends_total{original="acknowledged"}"#,
            r#"hapax_epoch_resends_total{original="unknown"}"#,
            "hapax_shielded_errors_total",
            r#"hapax_events_total{event="epoch_bump"}"#,
            r#"hapax_fenced_producers_total{source="broker"}"#,
            r#"hapax_client_disconnects_total{cause="drain_timeout"}"#,
            r#"hapax_upstream_connect_errors_total{cause="loop"}"#,
            r#"hapax_upstream_connections{node="bootstrap"}"#,
            r#"hapax_requests_total{api="produce",outcome="error"}"#,
            r#"hapax_request_duration_seconds_count{api="produce"}"#,
            "hapax_worker_delay_seconds_count",
            r#"hapax_bad_frames_total{reason="tls",side="client"}"#,
            r#"hapax_limit_reached_total{limit="windows"}"#,
            r#"hapax_label_overflows_total{label="topic"}"#,
            r#"hapax_window_evictions_total{reason="limit"}"#,
            r#"hapax_resolves_total{outcome="refused"}"#,
            "hapax_producer_epoch_bumps_total",
            "hapax_events_dropped_total",
            "hapax_snapshot_failures_total",
            "hapax_snapshots_set_aside_total",
            "hapax_snapshot_last_success_timestamp_seconds",
            "hapax_draining",
            "hapax_drain_cut_requests_total",
            r#"hapax_config_reloads_total{outcome="invalid"}"#,
            r#"hapax_config_reloads_total{outcome="refused"}"#,
        ] {
            assert_eq!(value(&metrics, series), Some(0), "{series}");
        }
    }

    #[test]
    fn a_topic_has_every_series_once_it_is_seen() {
        let metrics = Metrics::new(50);
        metrics.topic("orders");
        for verdict in Verdict::ALL {
            let labels = format!(r#"{{topic="orders",verdict="{}"}}"#, verdict.label());
            let batches = format!("hapax_produce_batches_total{labels}");
            let records = format!("hapax_produce_records_total{labels}");
            assert_eq!(value(&metrics, &batches), Some(0), "{batches}");
            assert_eq!(value(&metrics, &records), Some(0), "{records}");
        }
        let missing = r#"hapax_missing_records_total{topic="orders"}"#;
        assert_eq!(value(&metrics, missing), Some(0));
    }

    #[test]
    fn verdicts_add_up_to_batches_by_topic_and_in_total() {
        let metrics = Metrics::new(2);
        let tally = metrics.tally();
        for (at, name) in ["a", "b", "folded", "folded too"].iter().enumerate() {
            for (times, verdict) in Verdict::ALL.iter().enumerate() {
                for _ in 0..=times + at {
                    tally.topic(&metrics.topic(name)).batch(*verdict, 3);
                }
            }
        }
        for verdict in Verdict::ALL {
            let of = |family: &str, topic: &str| {
                let verdict = verdict.label();
                let series = format!(r#"{family}{{topic="{topic}",verdict="{verdict}"}}"#);
                value(&metrics, &series).unwrap()
            };
            let sum = |family: &str| of(family, "a") + of(family, "b") + of(family, OTHER);
            let batches = sum("hapax_produce_batches_total");
            assert_eq!(metrics.verdicts.with(*verdict).get(), batches);
            assert_eq!(sum("hapax_produce_records_total"), batches * 3);
        }
        let total: u64 = Verdict::ALL
            .iter()
            .map(|v| metrics.verdicts.with(*v).get())
            .sum();
        assert_eq!(total, 4 * 66 + 11 * 6);
    }

    #[test]
    fn sequence_errors_add_up_and_other_codes_are_not_counted() {
        let metrics = Metrics::new(1);
        for code in [45, 46, 47, 90, 59, 0, 3, -1] {
            metrics.topic("orders").broker_error(code);
        }
        for error in SequenceError::ALL {
            let error_label = error.label();
            let series = format!(
                r#"hapax_broker_sequence_errors_total{{error="{error_label}",topic="orders"}}"#
            );
            assert_eq!(value(&metrics, &series), Some(1), "{series}");
            assert_eq!(metrics.sequence_errors.with(*error).get(), 1);
        }
    }

    #[test]
    fn topics_and_nodes_beyond_the_cap_are_other_and_the_ceiling_holds() {
        let metrics = Metrics::new(50);
        let tally = metrics.tally();
        let batch = |name: &str| {
            tally
                .topic(&metrics.topic(name))
                .batch(Verdict::Forwarded, 1)
        };
        for at in 0..300 {
            batch(&format!("topic-{at}"));
            metrics.upstream_connections_of(NodeId::from_wire(at)).inc();
        }
        batch(&"x".repeat(30_000));
        batch(OTHER);
        let other = r#"hapax_produce_batches_total{topic="other",verdict="forwarded"}"#;
        assert_eq!(value(&metrics, other), Some(252));
        assert_eq!(metrics.label_overflows.with(CappedLabel::Topic).get(), 251);
        assert_eq!(metrics.label_overflows.with(CappedLabel::Node).get(), 236);
        let other = r#"hapax_upstream_connections{node="other"}"#;
        assert_eq!(value(&metrics, other), Some(236));

        let series = series_count(&metrics);
        assert!(series <= 2000, "{series} series");
    }

    #[test]
    fn more_topics_can_be_named_and_fewer_leave_those_that_are() {
        let metrics = Metrics::new(1);
        let count = |name: &str| {
            metrics
                .tally()
                .topic(&metrics.topic(name))
                .batch(Verdict::Gap, 1)
        };
        let of = |topic: &str| {
            let labels = format!(r#"{{topic="{topic}",verdict="gap"}}"#);
            value(&metrics, &format!("hapax_produce_batches_total{labels}"))
        };
        ["a", "b"].into_iter().for_each(count);
        metrics.name_topics(2);
        ["b", "c"].into_iter().for_each(count);
        metrics.name_topics(0);
        ["a", "b", "d"].into_iter().for_each(count);
        assert_eq!(
            [of("a"), of("b"), of("c"), of("d")],
            [Some(2), Some(2), None, None]
        );
        assert_eq!(of(OTHER), Some(3));
    }

    #[test]
    fn totals_are_what_the_series_of_the_same_name_say() {
        let metrics = Metrics::new(10);
        let tally = metrics.tally();
        tally.topic(&metrics.topic("a")).batch(Verdict::Gap, 3);
        metrics.producer_epoch_bumps.inc();
        metrics.gaps.with(GapKind::NeverSeen).inc_by(4);
        let totals = metrics.totals();
        for (series, count) in &totals {
            assert_eq!(value(&metrics, series), Some(*count), "{series}");
        }
        let sum: u64 = totals.iter().map(|(_, count)| count).sum();
        assert_eq!(sum, 1 + 1 + 4);
    }

    #[test]
    fn a_presence_counts_until_it_is_dropped() {
        let metrics = Metrics::new(1);
        let presence = Presence::of(&metrics.held_requests);
        assert_eq!(metrics.held_requests.get(), 1);
        drop(presence);
        assert_eq!(metrics.held_requests.get(), 0);
    }
}
