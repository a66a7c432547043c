//! Where Kafka has forgotten what it wrote, the log answers: a clean restart
//! (hole B3) and records older than the producer's expiry (hole C2).

use std::fs;
use std::io::Write as _;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::SystemTime;

use bytes::Bytes;
use kafka_protocol::messages::create_acls_request::AclCreation;
use kafka_protocol::messages::{CreateAclsRequest, SaslAuthenticateRequest, SaslHandshakeRequest};
use kafka_protocol::protocol::StrBytes;

use crate::cluster::{Cluster, Options};
use crate::forgotten::wait_until_forgotten;
use crate::hapax::{Hapax, Route};
use crate::raw::{Connection, batch, read_frame};

const OUT_OF_ORDER_SEQUENCE_NUMBER: i16 = 45;

/// A line to a broker that can lose answers: the broker has written what they
/// acknowledge.
struct Lossy {
    address: String,
    /// Answers that are lost before the connection is.
    losing: Arc<AtomicU32>,
}

impl Lossy {
    fn to(broker: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("it is bound").to_string();
        let losing = Arc::new(AtomicU32::new(0));
        let shared = Arc::clone(&losing);
        thread::spawn(move || {
            for near in listener.incoming().flatten() {
                // A broker that is down refuses, and so does the line.
                if let Ok(far) = TcpStream::connect(&broker) {
                    carry(&near, &far, &shared);
                }
            }
        });
        Self { address, losing }
    }

    fn lose(&self, answers: u32) {
        self.losing.store(answers, Ordering::SeqCst);
    }
}

fn carry(near: &TcpStream, far: &TcpStream, losing: &Arc<AtomicU32>) {
    let clone = |stream: &TcpStream| stream.try_clone().expect("a second handle");
    let (mut from, mut to) = (clone(near), clone(far));
    thread::spawn(move || {
        let _ = std::io::copy(&mut from, &mut to);
        let _ = to.shutdown(Shutdown::Both);
    });
    let (mut from, mut to, losing) = (clone(far), clone(near), Arc::clone(losing));
    thread::spawn(move || {
        while let Ok(Some(frame)) = read_frame(&mut from) {
            match losing.load(Ordering::SeqCst) {
                0 if to.write_all(&frame).is_ok() => {}
                2.. => {
                    losing.fetch_sub(1, Ordering::SeqCst);
                }
                last => {
                    losing.fetch_sub(last, Ordering::SeqCst);
                    break;
                }
            }
        }
        let _ = to.shutdown(Shutdown::Both);
        let _ = from.shutdown(Shutdown::Both);
    });
}

/// One broker, a line to one of its listeners and, on that way, a hapax.
struct Setting {
    cluster: Cluster,
    line: Lossy,
    hapax: Option<Hapax>,
    login: Login,
    /// As long as hapax may look at it.
    _password: tempfile::NamedTempFile,
}

/// Who logs in to the broker.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Login {
    Nobody,
    /// The client, as bob.
    Client,
    /// hapax, as bob, with the password in a file; on the way direct the client.
    Hapax,
}

impl Setting {
    fn new(options: Options, route: Route, login: Login) -> Self {
        let cluster = Cluster::start(options);
        let broker = match login {
            Login::Nobody => cluster.bootstrap(),
            Login::Client | Login::Hapax => cluster.sasl_bootstrap(),
        };
        let line = Lossy::to(broker);
        let password = tempfile::NamedTempFile::new().expect("a temporary file");
        fs::write(password.path(), "bob-secret").expect("it is ours");
        let file = format!(
            "--upstream-sasl-password-file={}",
            password.path().display()
        );
        let mut flags = vec!["--upstream", &line.address];
        if login == Login::Hapax {
            flags.extend([
                "--upstream-sasl-mechanism=PLAIN",
                "--upstream-sasl-username=bob",
            ]);
            flags.push(&file);
        }
        let hapax = (route == Route::Hapax).then(|| Hapax::start(&flags));
        Self {
            cluster,
            line,
            hapax,
            login,
            _password: password,
        }
    }

    fn connect(&self) -> Connection {
        let hapax = self.hapax.as_ref();
        let mut client =
            Connection::open(&hapax.map_or_else(|| self.line.address.clone(), Hapax::bootstrap));
        let itself = self.login == Login::Hapax && self.hapax.is_some();
        if self.login != Login::Nobody && !itself {
            let mechanism = StrBytes::from_static_str("PLAIN");
            let request = SaslHandshakeRequest::default().with_mechanism(mechanism);
            assert_eq!(client.call(1, &request).error_code, 0);
            let token = Bytes::from_static(b"\0bob\0bob-secret");
            let request = SaslAuthenticateRequest::default().with_auth_bytes(token);
            assert_eq!(client.call(2, &request).error_code, 0);
        }
        client
    }

    fn resolves(&self, outcome: &str) -> f64 {
        let hapax = self.hapax.as_ref().expect("a way through hapax");
        hapax.metric("hapax_resolves_total", &[("outcome", outcome)])
    }
}

fn routes() -> Vec<Route> {
    match Route::chosen() {
        Route::Direct => vec![Route::Direct],
        Route::Hapax => vec![Route::Direct, Route::Hapax],
    }
}

/// Three batches are written, the answers to the last two are lost, and the
/// broker is restarted in good order: its snapshot has the last one. Returns
/// the answer to the second one's retry and the batches in the log.
fn retry_after_a_clean_restart(setting: &Setting, topic: &str) -> (i16, i64, usize) {
    let mut client = setting.connect();
    client.metadata(&[topic]);
    let producer = client.init_producer_id();
    let now = now_ms();
    let batches: Vec<Bytes> = (0..3)
        .map(|sequence| batch(producer, sequence, now, &sequence.to_string()))
        .collect();
    let first = client.produce(topic, &batches[0]);
    assert_eq!((first.error_code, first.base_offset), (0, 0));
    setting.line.lose(2);
    client.send_produce(topic, &batches[1]);
    client.send_produce(topic, &batches[2]);
    assert!(client.is_ended(), "the answers are lost");
    assert_eq!(setting.cluster.log(topic).len(), 3, "and all is written");
    setting.cluster.stop(0);
    setting.cluster.restart(0);

    let mut client = setting.connect();
    let retry = client.produce(topic, &batches[1]);
    let log = setting.cluster.log(topic).len();
    if retry.error_code == 0 {
        // The client goes on as if nothing had been.
        let retry = client.produce(topic, &batches[2]);
        assert_eq!((retry.error_code, retry.base_offset), (0, 2));
        let next = client.produce(topic, &batch(producer, 3, now, "3"));
        assert_eq!((next.error_code, next.base_offset), (0, 3));
    }
    (retry.error_code, retry.base_offset, log)
}

#[test]
fn the_second_last_batch_is_answered_from_the_log_after_a_clean_restart() {
    for route in routes() {
        let setting = Setting::new(Options::default(), route, Login::Nobody);
        let topic = setting.cluster.create_topic("restart", 1);
        let (code, offset, log) = retry_after_a_clean_restart(&setting, &topic);
        assert_eq!(log, 3, "nothing is written twice");
        if route == Route::Direct {
            assert_eq!(code, OUT_OF_ORDER_SEQUENCE_NUMBER, "Kafka has forgotten it");
        } else {
            assert_eq!((code, offset), (0, 1), "the log has not");
            assert_eq!(setting.resolves("found"), 1.0);
        }
    }
}

const ONLY_WHO_MAY: &str =
    "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:ANONYMOUS
allow.everyone.if.no.acl.found=true";

#[test]
fn whose_user_may_not_read_is_told_what_kafka_tells() {
    for route in routes() {
        let options = Options {
            properties: ONLY_WHO_MAY.to_owned(),
            ..Options::default()
        };
        let setting = Setting::new(options, route, Login::Client);
        let topic = setting.cluster.create_topic("write-only", 1);
        allow_bob(&setting.cluster, &topic, &[WRITE, DESCRIBE]);
        let (code, _, log) = retry_after_a_clean_restart(&setting, &topic);
        assert_eq!(code, OUT_OF_ORDER_SEQUENCE_NUMBER, "{route:?}");
        assert_eq!(log, 3);
        if route == Route::Hapax {
            assert_eq!(setting.resolves("refused"), 1.0);
            assert_eq!(setting.resolves("found"), 0.0);
        }
    }
}

/// The log is read over the producer's connection, so as whoever hapax has
/// logged in as there.
#[test]
fn where_hapax_logs_in_its_own_user_reads_the_log() {
    for (route, operations) in routes().into_iter().flat_map(|route| {
        [
            (route, &[WRITE, DESCRIBE][..]),
            (route, &[WRITE, DESCRIBE, READ]),
        ]
    }) {
        let options = Options {
            properties: ONLY_WHO_MAY.to_owned(),
            ..Options::default()
        };
        let setting = Setting::new(options, route, Login::Hapax);
        let topic = setting.cluster.create_topic("of-hapax", 1);
        allow_bob(&setting.cluster, &topic, operations);
        let (code, offset, log) = retry_after_a_clean_restart(&setting, &topic);
        assert_eq!(log, 3);
        if route == Route::Hapax && operations.contains(&READ) {
            assert_eq!((code, offset), (0, 1));
            assert_eq!(setting.resolves("found"), 1.0);
        } else {
            assert_eq!(
                code, OUT_OF_ORDER_SEQUENCE_NUMBER,
                "{route:?} {operations:?}"
            );
        }
    }
}

const READ: i8 = 3;
const WRITE: i8 = 4;
const DESCRIBE: i8 = 8;

/// Bob may do this with the topic, and nothing else.
fn allow_bob(cluster: &Cluster, topic: &str, operations: &[i8]) {
    let text = |text: &str| StrBytes::from_string(text.to_owned());
    let creations = operations.iter().map(|operation| {
        AclCreation::default()
            .with_resource_type(2)
            .with_resource_name(text(topic))
            .with_resource_pattern_type(3)
            .with_principal(text("User:bob"))
            .with_host(text("*"))
            .with_operation(*operation)
            .with_permission_type(3)
    });
    let request = CreateAclsRequest::default().with_creations(creations.collect());
    let response = cluster.connect(0).call(3, &request);
    for result in response.results {
        assert_eq!(result.error_code, 0, "{:?}", result.error_message);
    }
}

#[test]
fn a_lost_batch_with_old_timestamps_is_written_once_though_its_producer_has_expired() {
    for route in routes() {
        let options = Options {
            fast_pid: true,
            ..Options::default()
        };
        let setting = Setting::new(options, route, Login::Nobody);
        let topic = setting.cluster.create_topic("yesterday", 1);
        let yesterday = now_ms() - 26 * 3600 * 1000;
        let mut client = setting.connect();
        client.metadata(&[&topic]);
        let producer = client.init_producer_id();
        let old = |sequence: i32| batch(producer, sequence, yesterday, &sequence.to_string());
        // The first batch too: nothing is known that lies before it.
        for sequence in 0..2 {
            setting.line.lose(1);
            let answer = client.try_produce(&topic, &old(sequence));
            assert!(answer.is_err(), "the answer is lost");
            wait_until_forgotten(&setting.cluster, &topic);
            client = setting.connect();
            let retry = client.produce(&topic, &old(sequence));
            assert_eq!(retry.error_code, 0);
            let written = setting.cluster.log(&topic).len();
            let sent = usize::try_from(sequence + 1).expect("it is small");
            if route == Route::Direct {
                assert_eq!(written, 2 * sent, "Kafka writes it again");
                wait_until_forgotten(&setting.cluster, &topic);
            } else {
                assert_eq!(written, sent, "the log holds it once");
                assert_eq!(retry.base_offset, i64::from(sequence));
                assert_eq!(setting.resolves("found"), f64::from(sequence + 1));
            }
        }
        if let Some(hapax) = &setting.hapax {
            assert_eq!(hapax.batches(&topic, "duplicate_resolved"), 2);
        }
    }
}

fn now_ms() -> i64 {
    let now = SystemTime::UNIX_EPOCH.elapsed().expect("after 1970");
    i64::try_from(now.as_millis()).expect("a time of this age")
}
