//! Every configuration key, once: the flag, the environment variable, the path
//! in the file, the default and the schema all come from this table.

use std::ops::RangeInclusive;

use clap::ValueEnum;
use clap::builder::PossibleValue;

use super::{ApiAccess, ClientMechanism, Collisions, DrainUntil, LogFormat, Mechanism, Mode};

/// One configuration key.
#[derive(Debug)]
pub struct Key {
    /// Where it is in the file, such as `sequence.windowBatches`.
    pub path: &'static str,
    /// Its flag, without the dashes.
    pub flag: &'static str,
    /// The heading of its flag in the help; empty for the first ones.
    pub heading: &'static str,
    /// What its values are.
    pub kind: Kind,
    /// What it is when nothing sets it, as it would be typed; empty stands
    /// for none.
    pub default: &'static str,
    /// What it does, in a sentence.
    pub doc: &'static str,
}

/// What the values of a key are.
#[derive(Debug)]
pub enum Kind {
    /// `HOST:PORT`, several.
    Servers,
    /// Advertised addresses and reachable ones.
    Mappings,
    /// An address to listen on.
    Listen,
    /// A range of ports.
    Ports,
    /// A host, or none.
    Host,
    /// Words on one line, or none.
    Text,
    /// A directory, or none.
    Directory,
    /// A file, or none.
    File,
    /// Ports by node id.
    Slots,
    /// What producers have to do, by topic.
    Policies,
    /// A time, zero too.
    Time,
    /// A time that is not zero.
    Wait,
    /// A whole number.
    Count(RangeInclusive<usize>),
    /// A whole number of bytes.
    Bytes(RangeInclusive<usize>),
    /// True or false.
    Switch,
    /// One of these.
    Choice(fn() -> Vec<PossibleValue>),
    /// Some of these.
    Choices(fn() -> Vec<PossibleValue>),
    /// A log level, or directives.
    Level,
}

/// The table. Keys of one section of the file need not stand together.
pub static KEYS: &[Key] = &[
    Key {
        path: "upstream.bootstrap",
        flag: "upstream",
        heading: "",
        kind: Kind::Servers,
        default: "",
        doc: "Bootstrap servers of the cluster; at least one is needed.",
    },
    Key {
        path: "listen.bootstrap",
        flag: "listen",
        heading: "",
        kind: Kind::Listen,
        default: "127.0.0.1:19092",
        doc: "Where clients bootstrap.",
    },
    Key {
        path: "listen.brokerPorts",
        flag: "broker-ports",
        heading: "",
        kind: Kind::Ports,
        default: "19093-19192",
        doc: "One local port per broker, on the same address.",
    },
    Key {
        path: "sequence.mode",
        flag: "mode",
        heading: "",
        kind: Kind::Choice(choices::<Mode>),
        default: "absorb",
        doc: "How far hapax may go with produce requests.",
    },
    Key {
        path: "listen.advertisedHost",
        flag: "listen-advertised-host",
        heading: ADDRESSES,
        kind: Kind::Host,
        default: "",
        doc: "Host that clients are told to connect to. Without it: the bind address, or the one \
              that the client reached. {slot} in it is the place of the broker's port in \
              listen.brokerPorts, from 0, where each port has a name of its own.",
    },
    Key {
        path: "listen.nodeSlots",
        flag: "listen-node-slots",
        heading: ADDRESSES,
        kind: Kind::Slots,
        default: "",
        doc: "Fixed ports of brokers, for gateways with replicas.",
    },
    Key {
        path: "listen.slotCollisions",
        flag: "listen-slot-collisions",
        heading: ADDRESSES,
        kind: Kind::Choice(choices::<Collisions>),
        default: "move",
        doc: "Where the ids of two brokers lead to one port: what becomes of the one that is not in \
              listen.nodeSlots.",
    },
    Key {
        path: "listen.slotGrace",
        flag: "listen-slot-grace",
        heading: ADDRESSES,
        kind: Kind::Time,
        default: "10m",
        doc: "How long a vanished broker keeps its port.",
    },
    Key {
        path: "upstream.addressMap",
        flag: "upstream-address-map",
        heading: ADDRESSES,
        kind: Kind::Mappings,
        default: "",
        doc: "Where to connect for brokers whose advertised address cannot be reached from here.",
    },
    Key {
        path: "upstream.reconnectBackoff",
        flag: "upstream-reconnect-backoff",
        heading: ADDRESSES,
        kind: Kind::Time,
        default: "50ms",
        doc: "How long a broker that could not be reached is left alone, clients being reset meanwhile; twice as \
              long after each further failure, a random part of it less. 0 tries for every client.",
    },
    Key {
        path: "upstream.reconnectBackoffMax",
        flag: "upstream-reconnect-backoff-max",
        heading: ADDRESSES,
        kind: Kind::Wait,
        default: "1s",
        doc: "The longest that this becomes: once the broker is back, the first client that comes later finds it.",
    },
    Key {
        path: "upstream.tls.enabled",
        flag: "upstream-tls-enabled",
        heading: TLS,
        kind: Kind::Switch,
        default: "false",
        doc: "Speak TLS to the brokers, for listeners that are SSL or SASL_SSL: 1.2 or newer; each broker is \
              verified by the name that it advertises.",
    },
    Key {
        path: "upstream.tls.caFile",
        flag: "upstream-tls-ca-file",
        heading: TLS,
        kind: Kind::File,
        default: "",
        doc: "PEM file of the CAs that the brokers' certificates come from. Without it: those of the system \
              (SSL_CERT_FILE, SSL_CERT_DIR, /etc/ssl).",
    },
    Key {
        path: "upstream.tls.certFile",
        flag: "upstream-tls-cert-file",
        heading: TLS,
        kind: Kind::File,
        default: "",
        doc: "PEM file of the certificate that hapax shows to the brokers, the CAs between it and the root behind it.",
    },
    Key {
        path: "upstream.tls.keyFile",
        flag: "upstream-tls-key-file",
        heading: TLS,
        kind: Kind::File,
        default: "",
        doc: "PEM file of its private key, without a passphrase and not readable by everyone.",
    },
    Key {
        path: "upstream.tls.serverName",
        flag: "upstream-tls-server-name",
        heading: TLS,
        kind: Kind::Host,
        default: "",
        doc: "Name that the certificates of all brokers are for, where it is not the name that each is reached by.",
    },
    Key {
        path: "upstream.sasl.mechanism",
        flag: "upstream-sasl-mechanism",
        heading: SASL,
        kind: Kind::Choice(choices::<Mechanism>),
        default: "none",
        doc: "Log in to the brokers by hapax's own credentials, so that clients need none: for listeners that are \
              SASL_PLAINTEXT or SASL_SSL. With none clients log in themselves, through hapax.",
    },
    Key {
        path: "upstream.sasl.username",
        flag: "upstream-sasl-username",
        heading: SASL,
        kind: Kind::Text,
        default: "",
        doc: "Who hapax is to the brokers, for PLAIN and SCRAM.",
    },
    Key {
        path: "upstream.sasl.usernameFile",
        flag: "upstream-sasl-username-file",
        heading: SASL,
        kind: Kind::File,
        default: "",
        doc: "File that has that name, in place of upstream.sasl.username.",
    },
    Key {
        path: "upstream.sasl.passwordFile",
        flag: "upstream-sasl-password-file",
        heading: SASL,
        kind: Kind::File,
        default: "",
        doc: "File that has the password, not readable by everyone; a new one in it is taken without a restart.",
    },
    Key {
        path: "upstream.sasl.tokenFile",
        flag: "upstream-sasl-token-file",
        heading: SASL,
        kind: Kind::File,
        default: "",
        doc: "File that has the token of OAUTHBEARER, not readable by everyone, which somebody else keeps fresh.",
    },
    Key {
        path: "upstream.sasl.oauth.tokenEndpoint",
        flag: "upstream-sasl-oauth-token-endpoint",
        heading: SASL,
        kind: Kind::Text,
        default: "",
        doc: "URL at which hapax gets that token itself, by client credentials, and a new one well before it ends.",
    },
    Key {
        path: "upstream.sasl.oauth.clientId",
        flag: "upstream-sasl-oauth-client-id",
        heading: SASL,
        kind: Kind::Text,
        default: "",
        doc: "Who hapax is there.",
    },
    Key {
        path: "upstream.sasl.oauth.clientIdFile",
        flag: "upstream-sasl-oauth-client-id-file",
        heading: SASL,
        kind: Kind::File,
        default: "",
        doc: "File that has that name, in place of upstream.sasl.oauth.clientId.",
    },
    Key {
        path: "upstream.sasl.oauth.clientSecretFile",
        flag: "upstream-sasl-oauth-client-secret-file",
        heading: SASL,
        kind: Kind::File,
        default: "",
        doc: "File that has its secret, not readable by everyone; a new one in it is taken without a restart.",
    },
    Key {
        path: "upstream.sasl.oauth.scope",
        flag: "upstream-sasl-oauth-scope",
        heading: SASL,
        kind: Kind::Text,
        default: "",
        doc: "What the token is asked for, where the endpoint wants to be told.",
    },
    Key {
        path: "upstream.sasl.oauth.caFile",
        flag: "upstream-sasl-oauth-ca-file",
        heading: SASL,
        kind: Kind::File,
        default: "",
        doc: "PEM file of the CAs that the endpoint's certificate comes from. Without it: those of the system.",
    },
    Key {
        path: "listen.tls.certFile",
        flag: "listen-tls-cert-file",
        heading: TLS,
        kind: Kind::File,
        default: "",
        doc: "PEM file of the certificate for clients, the CAs between it and the root behind it. With it every port \
              for clients speaks TLS only, 1.2 or newer; it has to be for the host that clients are told.",
    },
    Key {
        path: "listen.tls.keyFile",
        flag: "listen-tls-key-file",
        heading: TLS,
        kind: Kind::File,
        default: "",
        doc: "PEM file of its private key, without a passphrase and not readable by everyone.",
    },
    Key {
        path: "listen.tls.clientCaFile",
        flag: "listen-tls-client-ca-file",
        heading: TLS,
        kind: Kind::File,
        default: "",
        doc: "PEM file of the CAs that clients' certificates have to come from. Without it clients need none.",
    },
    Key {
        path: "listen.sasl.usersFile",
        flag: "listen-sasl-users-file",
        heading: LISTEN_SASL,
        kind: Kind::File,
        default: "",
        doc: "File of the users that clients have to authenticate as to hapax, before anything of them reaches a \
              broker; hapax user makes its lines. Without it clients authenticate to the brokers, through hapax.",
    },
    Key {
        path: "listen.sasl.mechanisms",
        flag: "listen-sasl-mechanisms",
        heading: LISTEN_SASL,
        kind: Kind::Choices(choices::<ClientMechanism>),
        default: "SCRAM-SHA-256,SCRAM-SHA-512",
        doc: "How they may prove that they are; PLAIN shows the password, so give hapax a certificate with it \
              (listen.tls.certFile) where clients are on other machines.",
    },
    Key {
        path: "sequence.windowBatches",
        flag: "sequence-window-batches",
        heading: SEQUENCES,
        kind: Kind::Count(1..=1024),
        default: "5",
        doc: "Acknowledged batches to remember per producer and partition.",
    },
    Key {
        path: "sequence.ttl",
        flag: "sequence-ttl",
        heading: SEQUENCES,
        kind: Kind::Wait,
        default: "5m",
        doc: "How long an acknowledgement may answer a retry.",
    },
    Key {
        path: "sequence.holdMax",
        flag: "sequence-hold-max",
        heading: SEQUENCES,
        kind: Kind::Time,
        default: "5s",
        doc: "How long a batch waits for the one before it, at most a quarter of its request's own timeout. A \
              retry of old records waits three quarters of that while its first copy is on its way.",
    },
    Key {
        path: "sequence.maxWindows",
        flag: "sequence-max-windows",
        heading: SEQUENCES,
        kind: Kind::Count(1..=100_000_000),
        default: "100000",
        doc: "Producers times partitions to follow; more pass untracked.",
    },
    Key {
        path: "sequence.shield45",
        flag: "sequence-shield45",
        heading: SEQUENCES,
        kind: Kind::Switch,
        default: "false",
        doc: "Show error 45 right behind a failed batch as that batch's retriable error, three times at \
              most: librdkafka then raises no epoch; a client that gave the batch up hears of it later.",
    },
    Key {
        path: "sequence.absorbTransactional",
        flag: "sequence-absorb-transactional",
        heading: SEQUENCES,
        kind: Kind::Switch,
        default: "false",
        doc: "Absorb retries of transactional batches too.",
    },
    Key {
        path: "sequence.resolve",
        flag: "sequence-resolve",
        heading: SEQUENCES,
        kind: Kind::Switch,
        default: "true",
        doc: "Look into the log where the broker may have forgotten a batch; the client's user needs READ on the topic.",
    },
    Key {
        path: "sequence.resolveTimeout",
        flag: "sequence-resolve-timeout",
        heading: SEQUENCES,
        kind: Kind::Wait,
        default: "2s",
        doc: "How long that may take for one request, at most half of its own timeout; then the client is told \
              REQUEST_TIMED_OUT and tries again.",
    },
    Key {
        path: "sequence.resolveBytes",
        flag: "sequence-resolve-bytes",
        heading: SEQUENCES,
        kind: Kind::Bytes(1024..=1 << 30),
        default: "8388608",
        doc: "Bytes of the log that may be read for one request.",
    },
    Key {
        path: "sequence.brokerProducerExpiry",
        flag: "sequence-broker-producer-expiry",
        heading: SEQUENCES,
        kind: Kind::Wait,
        default: "24h",
        doc: "The brokers' producer.id.expiration.ms: they forget producers whose records are older.",
    },
    Key {
        path: "limits.connections",
        flag: "limits-connections",
        heading: LIMITS,
        kind: Kind::Count(1..=1_000_000),
        default: "10000",
        doc: "Client connections.",
    },
    Key {
        path: "limits.frameBytes",
        flag: "limits-frame-bytes",
        heading: LIMITS,
        kind: Kind::Bytes(1024..=0x7fff_ffff),
        default: "104857600",
        doc: "Bytes of one frame.",
    },
    Key {
        path: "limits.orphans",
        flag: "limits-orphans",
        heading: LIMITS,
        kind: Kind::Count(0..=1_000_000),
        default: "1024",
        doc: "Broker connections kept after their client went.",
    },
    Key {
        path: "limits.resolves",
        flag: "limits-resolves",
        heading: LIMITS,
        kind: Kind::Count(0..=10_000),
        default: "16",
        doc: "Connections that look into a log at once; a retry beyond them is told REQUEST_TIMED_OUT. 0 never looks.",
    },
    Key {
        path: "limits.inFlight",
        flag: "limits-in-flight",
        heading: LIMITS,
        kind: Kind::Count(1..=1_000_000),
        default: "1024",
        doc: "Unanswered requests of one connection.",
    },
    Key {
        path: "limits.collectedBytes",
        flag: "limits-collected-bytes",
        heading: LIMITS,
        kind: Kind::Bytes(0..=1 << 40),
        default: "268435456",
        doc: "Bytes of unfinished requests that are collected, of all connections together.",
    },
    Key {
        path: "memory.limit",
        flag: "memory-limit",
        heading: LIMITS,
        kind: Kind::Bytes(0..=1 << 50),
        default: "0",
        doc: "Bytes of memory that the process may use; 0 is three quarters of what its container may use, or of \
              what the machine has.",
    },
    Key {
        path: "allowOpenListener",
        flag: "allow-open-listener",
        heading: TLS,
        kind: Kind::Switch,
        default: "false",
        doc: "Let clients that prove nothing use hapax's own credentials from other machines.",
    },
    Key {
        path: "timeouts.firstRequest",
        flag: "timeouts-first-request",
        heading: LIMITS,
        kind: Kind::Wait,
        default: "10m",
        doc: "How long a client may be connected before its first request.",
    },
    Key {
        path: "timeouts.idle",
        flag: "timeouts-idle",
        heading: LIMITS,
        kind: Kind::Time,
        default: "0s",
        doc: "How long a connection may be silent on both sides with nothing open on it before it is closed; \
              0 leaves that to clients and brokers (connections.max.idle.ms).",
    },
    Key {
        path: "timeouts.request",
        flag: "timeouts-request",
        heading: LIMITS,
        kind: Kind::Time,
        default: "60s",
        doc: "How long a request that has begun to arrive may come at less than 1 KiB a second, while hapax \
              waits for nothing else, before its client is closed; 0 waits for ever.",
    },
    Key {
        path: "timeouts.keepAlive",
        flag: "timeouts-keep-alive",
        heading: LIMITS,
        kind: Kind::Time,
        default: "60s",
        doc: "How long a connection may be silent, on either side, before TCP asks whether its peer is still \
              there: four times, a quarter of this apart; 0 never asks.",
    },
    Key {
        path: "timeouts.connect",
        flag: "timeouts-connect",
        heading: LIMITS,
        kind: Kind::Wait,
        default: "10s",
        doc: "How long an address of a broker may take to answer; where there are several, the next one is \
              tried too once a quarter of a second has passed.",
    },
    Key {
        path: "timeouts.tls",
        flag: "timeouts-tls",
        heading: LIMITS,
        kind: Kind::Wait,
        default: "10s",
        doc: "How long a TLS handshake may take, of a client or with a broker.",
    },
    Key {
        path: "timeouts.sasl",
        flag: "timeouts-sasl",
        heading: LIMITS,
        kind: Kind::Wait,
        default: "10s",
        doc: "How long a client may take to authenticate to hapax, and hapax to log in to a broker or to get a token for that.",
    },
    Key {
        path: "timeouts.upstreamResponse",
        flag: "timeouts-upstream-response",
        heading: LIMITS,
        kind: Kind::Wait,
        default: "60s",
        doc: "How long a broker's answer may take, on top of the request's own timeout.",
    },
    Key {
        path: "drain.timeout",
        flag: "drain-timeout",
        heading: LIMITS,
        kind: Kind::Time,
        default: "25s",
        doc: "How long SIGTERM waits for clients; those that are left are cut.",
    },
    Key {
        path: "drain.until",
        flag: "drain-until",
        heading: OPERATION,
        kind: Kind::Choice(choices::<DrainUntil>),
        default: "connections",
        doc: "What SIGTERM serves to its end.",
    },
    Key {
        path: "drain.minDelay",
        flag: "drain-min-delay",
        heading: OPERATION,
        kind: Kind::Time,
        default: "0s",
        doc: "How long everything goes on as before after SIGTERM, but for /readyz, so that a load \
              balancer or a late application notices; a part of drain.timeout.",
    },
    Key {
        path: "startup.requireUpstream",
        flag: "startup-require-upstream",
        heading: OPERATION,
        kind: Kind::Switch,
        default: "false",
        doc: "Whether /startupz also waits until a broker has been reached once.",
    },
    Key {
        path: "admin.listen",
        flag: "admin-listen",
        heading: OPERATION,
        kind: Kind::Listen,
        default: "127.0.0.1:9180",
        doc: "Where metrics, probes and the API answer.",
    },
    Key {
        path: "admin.api",
        flag: "admin-api",
        heading: OPERATION,
        kind: Kind::Choice(choices::<ApiAccess>),
        default: "loopback",
        doc: "Who may read the API; metrics and probes answer everyone.",
    },
    Key {
        path: "metrics.maxTopics",
        flag: "metrics-max-topics",
        heading: OPERATION,
        kind: Kind::Count(0..=10_000),
        default: "50",
        doc: "Topics that have series of their own; the others are `other`.",
    },
    Key {
        path: "state.dir",
        flag: "state-dir",
        heading: OPERATION,
        kind: Kind::Directory,
        default: "",
        doc: "Directory for what a restart should not lose: acknowledgements, the ports of brokers, \
              totals. One for each hapax; without it a restart starts empty.",
    },
    Key {
        path: "state.interval",
        flag: "state-interval",
        heading: OPERATION,
        kind: Kind::Wait,
        default: "10s",
        doc: "How often that is written.",
    },
    Key {
        path: "workers",
        flag: "workers",
        heading: OPERATION,
        kind: Kind::Count(0..=1024),
        default: "0",
        doc: "Worker threads; 0 is one less than the CPUs that the process may use, and at least one: the client beside it needs them too.",
    },
    Key {
        path: "policies",
        flag: "policies",
        heading: SEQUENCES,
        kind: Kind::Policies,
        default: "",
        doc: "What producers have to do, by topic: sequence.mode enforce refuses what does not, \
              the other modes count it.",
    },
    Key {
        path: "log.level",
        flag: "log-level",
        heading: OPERATION,
        kind: Kind::Level,
        default: "info",
        doc: "What is logged: a level, or directives such as `info,hapax::session=debug`.",
    },
    Key {
        path: "log.format",
        flag: "log-format",
        heading: OPERATION,
        kind: Kind::Choice(choices::<LogFormat>),
        default: "auto",
        doc: "How log lines look; auto is text on a terminal and JSON otherwise.",
    },
];

/// Keys that take effect while hapax runs, for open connections too, when the
/// file says something else than it did.
const AT_RUN_TIME: &[&str] = &[
    "sequence.ttl",
    "sequence.holdMax",
    "sequence.shield45",
    "sequence.absorbTransactional",
    "sequence.resolve",
    "sequence.resolveTimeout",
    "sequence.resolveBytes",
    "sequence.brokerProducerExpiry",
    "policies",
    "limits.connections",
    "limits.frameBytes",
    "limits.orphans",
    "limits.resolves",
    "limits.inFlight",
    "limits.collectedBytes",
    "timeouts.firstRequest",
    "timeouts.idle",
    "timeouts.request",
    "timeouts.keepAlive",
    "timeouts.connect",
    "timeouts.tls",
    "timeouts.sasl",
    "timeouts.upstreamResponse",
    "upstream.reconnectBackoff",
    "upstream.reconnectBackoffMax",
    "drain.timeout",
    "drain.until",
    "drain.minDelay",
    "metrics.maxTopics",
    "log.level",
];

const ADDRESSES: &str = "Addresses";
const TLS: &str = "TLS";
const SASL: &str = "SASL";
const LISTEN_SASL: &str = "Users";
const SEQUENCES: &str = "Sequences";
const LIMITS: &str = "Limits";
const OPERATION: &str = "Operation";

fn choices<T: ValueEnum>() -> Vec<PossibleValue> {
    let values = T::value_variants().iter();
    values.filter_map(ValueEnum::to_possible_value).collect()
}

impl Key {
    /// The key at this path of the file.
    pub fn at(path: &str) -> Option<&'static Self> {
        KEYS.iter().find(|key| key.path == path)
    }

    /// Whether a change of it in the file takes effect while hapax runs; any
    /// other one is refused until a restart.
    pub fn changes_at_run_time(&self) -> bool {
        AT_RUN_TIME.contains(&self.path)
    }

    /// Its environment variable.
    pub fn variable(&self) -> String {
        format!("HAPAX_{}", self.flag.to_uppercase().replace('-', "_"))
    }

    /// The section it is in, such as `upstream.tls` and empty for the top of the
    /// file, and its name there.
    pub fn place(&self) -> (&'static str, &'static str) {
        self.path.rsplit_once('.').unwrap_or(("", self.path))
    }
}

impl Kind {
    /// Whether a key takes several values, in the file and separated by commas.
    pub fn is_many(&self) -> bool {
        matches!(
            self,
            Self::Servers | Self::Mappings | Self::Slots | Self::Policies | Self::Choices(_)
        )
    }

    /// What the help writes for a value.
    pub fn placeholder(&self) -> &'static str {
        match self {
            Self::Servers => "HOST:PORT,…",
            Self::Mappings => "ADVERTISED=REACHABLE,…",
            Self::Listen => "ADDRESS:PORT",
            Self::Ports => "FIRST-LAST",
            Self::Host => "HOST",
            Self::Text => "TEXT",
            Self::Directory => "DIRECTORY",
            Self::File => "FILE",
            Self::Slots => "ID=PORT,…",
            Self::Policies => "TOPICS=REQUIREMENTS,…",
            Self::Time | Self::Wait => "TIME",
            Self::Count(_) => "N",
            Self::Bytes(_) => "BYTES",
            Self::Switch => "BOOL",
            Self::Choice(_) => "NAME",
            Self::Choices(_) => "NAME,…",
            Self::Level => "LEVEL",
        }
    }

    /// What the file expects, in words that follow "give".
    pub fn expected(&self) -> String {
        match self {
            Self::Servers => "a list of HOST:PORT, such as [kafka:9092]".to_owned(),
            Self::Mappings => {
                "a map of ADVERTISED: REACHABLE, such as {kafka-0.svc:9092: localhost:9092}"
                    .to_owned()
            }
            Self::Listen => "ADDRESS:PORT, such as 127.0.0.1:19092".to_owned(),
            Self::Ports => "FIRST-LAST, such as 19093-19192".to_owned(),
            Self::Host => "a name or an address, or null".to_owned(),
            Self::Text => "words on one line, or null".to_owned(),
            Self::Directory => "a path such as /var/lib/hapax, or null".to_owned(),
            Self::File => "the path of a file such as /etc/hapax/tls/ca.crt, or null".to_owned(),
            Self::Slots => "a map of ID: PORT, such as {1: 19093}".to_owned(),
            Self::Policies => {
                "a list of policies, such as [{topics: payments.*, require: [idempotence, \
                 acks_all]}]: topics are names in which * stands for anything and ? for one \
                 character, a ! before one takes topics out; require is one or several of \
                 idempotence, acks_all and transactional"
                    .to_owned()
            }
            Self::Time => "a time such as 300ms, 5s, 10m or 1h".to_owned(),
            Self::Wait => "a time above 0, such as 300ms, 5s, 10m or 1h".to_owned(),
            Self::Count(range) => {
                format!("a whole number from {} to {}", range.start(), range.end())
            }
            Self::Bytes(range) => {
                format!("bytes, a number from {} to {}", range.start(), range.end())
            }
            Self::Switch => "true or false".to_owned(),
            Self::Choice(choices) => {
                let choices = choices();
                let names: Vec<_> = choices.iter().map(PossibleValue::get_name).collect();
                match names.split_last() {
                    Some((last, [])) => (*last).to_owned(),
                    Some((last, others)) => format!("{} or {last}", others.join(", ")),
                    None => String::new(),
                }
            }
            Self::Choices(choices) => {
                let choices = choices();
                let names: Vec<_> = choices.iter().map(PossibleValue::get_name).collect();
                let first = names.first().copied().unwrap_or_default();
                format!("a list such as [{first}] of {}", names.join(", "))
            }
            Self::Level => {
                "error, warn, info, debug or trace, or directives such as info,hapax::session=debug"
                    .to_owned()
            }
        }
    }
}

/// The path or flag that somebody may have meant by `name`, which is neither.
pub fn nearest_path(name: &str) -> Option<&'static str> {
    let own = fold(name);
    let leaf = |path: &str| fold(path.rsplit('.').next().unwrap_or(path));
    let own_leaf = leaf(name);
    let far = |key: &&Key| {
        let folded = [fold(key.path), fold(key.flag)];
        let whole = folded.iter().map(|other| strsim::osa_distance(&own, other));
        // The right name in the wrong section, or in none.
        let moved = strsim::osa_distance(&own_leaf, &leaf(key.path)) + 1;
        whole.min().unwrap_or(moved).min(moved)
    };
    let nearest = KEYS.iter().min_by_key(far)?;
    let close = far(&nearest) <= tolerance(&own_leaf);
    close.then_some(nearest.path)
}

/// The one of `names` that somebody may have meant by `name`.
pub fn nearest<'n>(name: &str, names: impl IntoIterator<Item = &'n str>) -> Option<&'n str> {
    let far = |other: &&str| strsim::osa_distance(name, other);
    let nearest = names.into_iter().min_by_key(far)?;
    (far(&nearest) <= tolerance(name)).then_some(nearest)
}

/// As far apart as a typing error may be.
fn tolerance(name: &str) -> usize {
    (name.len() / 3).clamp(1, 4)
}

/// A name as it is meant, in whichever style it is written.
fn fold(name: &str) -> String {
    let letters = name.chars().filter(|c| !matches!(c, '-' | '_' | '.'));
    letters.flat_map(char::to_lowercase).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn paths_flags_and_variables_are_one_a_key() {
        let count = |names: Vec<String>| names.into_iter().collect::<BTreeSet<_>>().len();
        let names = |name: fn(&Key) -> String| KEYS.iter().map(name).collect();
        assert_eq!(count(names(|key| key.path.to_owned())), KEYS.len());
        assert_eq!(count(names(|key| key.flag.to_owned())), KEYS.len());
        assert_eq!(count(names(Key::variable)), KEYS.len());
    }

    #[test]
    fn a_flag_is_its_path_in_kebab_case_but_for_the_four_that_are_typed_most() {
        let short = ["upstream", "listen", "broker-ports", "mode"];
        for key in KEYS.iter().filter(|key| !short.contains(&key.flag)) {
            let mut kebab = String::new();
            for c in key.path.chars() {
                match c {
                    '.' => kebab.push('-'),
                    c if c.is_uppercase() => kebab.extend(['-', c.to_ascii_lowercase()]),
                    c => kebab.push(c),
                }
            }
            assert_eq!(key.flag, kebab);
        }
    }

    #[test]
    fn what_changes_at_run_time_is_a_key() {
        for path in AT_RUN_TIME {
            assert!(Key::at(path).is_some(), "{path}");
        }
    }

    /// What a secret is belongs into a file of its own: what a key holds is
    /// shown by `/api/v1/config`, `hapax config print` and errors.
    #[test]
    fn no_key_holds_a_secret() {
        for key in KEYS {
            let name = key.path.to_lowercase();
            let secret = ["password", "secret", "token", "credential", "privatekey"];
            let secret = secret.iter().any(|word| name.contains(word)) || name.ends_with("key");
            let elsewhere = ["file", "url", "endpoint", "expiry", "timeout"];
            let elsewhere = elsewhere.iter().any(|end| name.ends_with(end));
            assert!(!secret || elsewhere, "{} would hold a secret", key.path);
        }
    }

    #[test]
    fn a_mistyped_name_finds_its_key() {
        for (name, expected) in [
            ("sequence.windowBatchs", Some("sequence.windowBatches")),
            ("sequence.window_batches", Some("sequence.windowBatches")),
            ("mode", Some("sequence.mode")),
            ("broker-ports", Some("listen.brokerPorts")),
            ("upstream.bootstrapServers", None),
            ("admin.lisen", Some("admin.listen")),
            ("limits.frame-bytes", Some("limits.frameBytes")),
            ("drain.timout", Some("drain.timeout")),
            ("logLevel", Some("log.level")),
            ("worker", Some("workers")),
            ("entirely.different", None),
        ] {
            assert_eq!(nearest_path(name), expected, "{name}");
        }
    }
}
