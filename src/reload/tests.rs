use super::*;
use crate::cli::RunArgs;
use crate::config::keys::{KEYS, Key, Kind};
use crate::listen::share;
use crate::session::Shared;
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::symlink;
use tempfile::TempDir;

/// Takes numbers from a file; 13 is refused.
struct Number {
    file: PathBuf,
    value: Arc<Mutex<i64>>,
}

impl Reloadable for Number {
    fn name(&self) -> &'static str {
        "number"
    }

    fn files(&self) -> Vec<PathBuf> {
        vec![self.file.clone()]
    }

    fn reload(&mut self) -> Result<Changes, Fault> {
        let text = fs::read_to_string(&self.file).map_err(|error| bad(&error.to_string()))?;
        let number: i64 = text.trim().parse().map_err(|_| bad("no number"))?;
        if number == 13 {
            return Err(Fault::Refused(vec!["thirteen".to_owned()]));
        }
        let mut value = self.value.lock().unwrap();
        let changed = *value != number;
        *value = number;
        Ok(if changed {
            vec!["number".to_owned()]
        } else {
            Vec::new()
        })
    }
}

fn bad(text: &str) -> Fault {
    Fault::Invalid(vec![text.to_owned()])
}

struct Numbers {
    dir: TempDir,
    value: Arc<Mutex<i64>>,
    watch: Watch,
}

impl Numbers {
    fn new(text: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("number");
        fs::write(&file, text).unwrap();
        let value = Arc::new(Mutex::new(text.parse().unwrap()));
        let number = Number {
            file,
            value: Arc::clone(&value),
        };
        let metrics = Metrics::new(1);
        metrics.config_last_reload_successful.set(1);
        let watch = Watch {
            all: vec![Watched::new(Box::new(number))],
            newest: Arc::default(),
            metrics,
        };
        Self { dir, value, watch }
    }

    fn write(&self, text: &str) {
        fs::write(self.dir.path().join("number"), text).unwrap();
    }

    /// The value, the gauge, and how often each outcome was counted, after a look.
    fn look(&mut self, everything: bool) -> (i64, i64, [u64; 4]) {
        let _ = self.watch.look(everything);
        let metrics = &self.watch.metrics;
        let outcomes = [
            ReloadOutcome::Applied,
            ReloadOutcome::Unchanged,
            ReloadOutcome::Invalid,
            ReloadOutcome::Refused,
        ];
        let counts = outcomes.map(|outcome| metrics.config_reloads.with(outcome).get());
        let gauge = metrics.config_last_reload_successful.get();
        (*self.value.lock().unwrap(), gauge, counts)
    }
}

#[test]
fn contents_that_change_are_used_and_those_that_cannot_be_leave_what_was() {
    let mut numbers = Numbers::new("1");
    assert_eq!(numbers.look(false), (1, 1, [0; 4]), "nothing has changed");
    numbers.write("2");
    assert_eq!(numbers.look(false), (2, 1, [1, 0, 0, 0]));
    assert_eq!(numbers.look(false), (2, 1, [1, 0, 0, 0]));
    numbers.write("two");
    assert_eq!(numbers.look(false), (2, 0, [1, 0, 1, 0]));
    assert_eq!(numbers.look(false), (2, 0, [1, 0, 1, 0]), "told once");
    let report = numbers.watch.newest.lock().unwrap().clone().unwrap();
    assert_eq!(
        (report.successful, &*report.errors[0]),
        (false, "no number")
    );
    numbers.write("13");
    assert_eq!(numbers.look(false), (2, 0, [1, 0, 1, 1]));
    numbers.write("2");
    assert_eq!(
        numbers.look(false),
        (2, 1, [1, 1, 1, 1]),
        "as it was is right again"
    );
    fs::remove_file(numbers.dir.path().join("number")).unwrap();
    assert_eq!(
        numbers.look(false),
        (2, 0, [1, 1, 2, 1]),
        "a file that is gone"
    );
    numbers.write("3");
    assert_eq!(numbers.look(false), (3, 1, [2, 1, 2, 1]));
}

#[test]
fn who_asks_has_everything_read_again() {
    let mut numbers = Numbers::new("1");
    assert_eq!(numbers.look(true), (1, 1, [0, 1, 0, 0]));
    numbers.write("x");
    assert_eq!(numbers.look(true), (1, 0, [0, 1, 1, 0]));
    assert_eq!(numbers.look(true), (1, 0, [0, 1, 2, 0]));
}

#[test]
fn what_changed_between_the_start_and_the_first_look_is_not_missed() {
    let mut numbers = Numbers::new("1");
    numbers.write("5");
    assert_eq!(numbers.look(false), (5, 1, [1, 0, 0, 0]));
}

/// As Kubernetes does: files are links into `..data`, which is a link itself.
#[test]
fn a_volume_that_is_swapped_behind_a_link_is_seen() {
    let mut numbers = Numbers::new("1");
    let dir = numbers.dir.path();
    let (old, new) = (dir.join("..1"), dir.join("..2"));
    for (at, text) in [(&old, "1"), (&new, "7")] {
        fs::create_dir(at).unwrap();
        fs::write(at.join("number"), text).unwrap();
    }
    symlink("..1", dir.join("..data")).unwrap();
    fs::remove_file(dir.join("number")).unwrap();
    symlink("..data/number", dir.join("number")).unwrap();
    assert_eq!(numbers.look(false), (1, 1, [0; 4]));
    let dir = numbers.dir.path();
    symlink("..2", dir.join("..data_tmp")).unwrap();
    fs::rename(dir.join("..data_tmp"), dir.join("..data")).unwrap();
    assert_eq!(numbers.look(false), (7, 1, [1, 0, 0, 0]));
}

#[test]
fn the_thread_answers_who_asks_and_looks_by_itself() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("number");
    fs::write(&file, "1").unwrap();
    let value = Arc::new(Mutex::new(1));
    let number = Number {
        file: file.clone(),
        value: Arc::clone(&value),
    };
    let metrics = Metrics::new(1);
    let soon = Duration::from_millis(20);
    let reloader = Reloader::start(Arc::clone(&metrics), vec![Box::new(number)], soon).unwrap();
    fs::write(&file, "x").unwrap();
    let report = reloader.ask().blocking_recv().unwrap();
    assert!(!report.successful);
    fs::write(&file, "2").unwrap();
    while *value.lock().unwrap() != 2 {
        thread::yield_now();
    }
}

/// A process with a file that says this, in the order of sections.
struct Process {
    _dir: TempDir,
    path: PathBuf,
    shared: Arc<Shared>,
    file: ConfigFile,
}

impl Process {
    fn new(says: &Value, flags: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("hapax.yaml");
        fs::write(&path, says.to_string()).unwrap();
        let config = format!("--config={}", path.display());
        let args = RunArgs::from_flags(flags.iter().copied().chain([&*config])).unwrap();
        let (settings, errors) = args.settle_with(&|_| None);
        assert!(errors.is_empty(), "{errors:?}");
        let shared = Arc::new(share(settings.config().unwrap()));
        let file = ConfigFile::new(&shared);
        Self {
            _dir: dir,
            path,
            shared,
            file,
        }
    }

    fn reload(&mut self, says: &Value) -> Result<Changes, Fault> {
        fs::write(&self.path, says.to_string()).unwrap();
        self.file.reload()
    }
}

/// A file that sets only what is needed.
fn plain() -> Value {
    json!({ "upstream": { "bootstrap": ["kafka:9092"] } })
}

/// A file that sets every file of TLS too: one alone is not enough.
fn secured() -> Value {
    let own = json!({ "certFile": "/a.crt", "keyFile": "/a.key" });
    let mut says = plain();
    says["listen"]["tls"] = own.clone();
    says["listen"]["tls"]["clientCaFile"] = json!("/ca.crt");
    says["listen"]["sasl"]["usersFile"] = json!("/users");
    says["upstream"]["tls"] = own;
    says["upstream"]["tls"]["enabled"] = json!(true);
    says["upstream"]["tls"]["caFile"] = json!("/ca.crt");
    says
}

/// A file in which hapax logs in, in the way that a key belongs to.
fn logged_in(key: &str) -> Value {
    let mut says = plain();
    let name = key.rsplit('.').next().unwrap();
    says["upstream"]["sasl"] = match key {
        "upstream.sasl.tokenFile" => json!({ "mechanism": "OAUTHBEARER", "tokenFile": "/token" }),
        key if key.starts_with("upstream.sasl.oauth.") => {
            let mut oauth = json!({
                "tokenEndpoint": "https://id.example/token",
                "clientId": "hapax",
                "clientSecretFile": "/secret",
                "scope": "kafka",
                "caFile": "/ca.crt",
            });
            if name == "clientIdFile" {
                oauth["clientId"] = Value::Null;
                oauth[name] = json!("/id");
            }
            json!({ "mechanism": "OAUTHBEARER", "oauth": oauth })
        }
        _ => {
            let who = match name {
                "usernameFile" => json!("/user"),
                _ => Value::Null,
            };
            let user = if who.is_null() {
                json!("hapax")
            } else {
                Value::Null
            };
            json!({
                "mechanism": "SCRAM-SHA-256",
                "username": user,
                "usernameFile": who,
                "passwordFile": "/password",
            })
        }
    };
    says
}

/// The same with another value for one key.
fn with(says: &Value, key: &str, value: &Value) -> Value {
    let mut says = says.clone();
    let place = key
        .split('.')
        .fold(&mut says, |place, name| &mut place[name]);
    *place = value.clone();
    says
}

/// A value that is not the default and fits to the defaults of the others.
fn another(key: &Key) -> Value {
    match &key.kind {
        Kind::Servers => json!(["other:9092"]),
        Kind::Mappings => json!({ "a:1": "b:2" }),
        Kind::Listen => json!("127.0.0.1:29000"),
        Kind::Ports => json!("30000-30010"),
        Kind::Host => json!("gateway.example"),
        Kind::Text => json!("https://other.example/token"),
        Kind::Directory => json!("/nowhere/at/all"),
        Kind::File => json!("/nowhere/at/all.pem"),
        Kind::Slots => json!({ "1": 19_100 }),
        Kind::Policies => json!([{ "topics": "orders", "require": "idempotence" }]),
        Kind::Time | Kind::Wait => json!("77s"),
        Kind::Count(_) | Kind::Bytes(_) => json!(key.default.parse::<usize>().unwrap() + 1),
        Kind::Switch => json!(key.default != "true"),
        Kind::Choice(choices) => {
            let other = choices().into_iter().find(|c| c.get_name() != key.default);
            json!(other.unwrap().get_name())
        }
        Kind::Choices(_) => json!(["PLAIN"]),
        Kind::Level => json!("debug"),
    }
}

#[test]
fn every_key_takes_effect_or_is_refused_by_name_and_then_nothing_changes() {
    for key in KEYS {
        let beside_files = ["upstream.tls.serverName", "listen.sasl.mechanisms"];
        let needs_files = matches!(key.kind, Kind::File) || beside_files.contains(&key.path);
        let says = match key.path {
            path if path.starts_with("upstream.sasl.") => logged_in(path),
            _ if needs_files => secured(),
            _ => plain(),
        };
        let mut process = Process::new(&says, &[]);
        let before = process.shared.current().settings.to_json();
        // A change that could be used does not come through beside one that cannot.
        let mut says = with(&says, key.path, &another(key));
        if key.path != "limits.orphans" {
            says["limits"]["orphans"] = json!(77);
        }
        let reloaded = process.reload(&says);
        let now = process.shared.current();
        let orphans = now.limits.orphans;
        if key.changes_at_run_time() {
            let changed = reloaded.unwrap_or_else(|fault| panic!("{}: {fault:?}", key.path));
            assert!(changed.contains(&key.path.to_owned()), "{changed:?}");
            assert_ne!(now.settings.to_json(), before, "{}", key.path);
        } else {
            let Err(Fault::Refused(refused)) = reloaded else {
                panic!("{}: {reloaded:?}", key.path);
            };
            assert_eq!(refused.len(), 1, "{refused:?}");
            assert!(refused[0].starts_with(key.path), "{refused:?}");
            assert_eq!(now.settings.to_json(), before, "{}", key.path);
            assert_eq!(orphans, 1024);
        }
    }
}

#[test]
fn what_is_read_again_reaches_those_who_follow_it() {
    let mut process = Process::new(&plain(), &[]);
    let says = json!({
        "upstream": { "bootstrap": "kafka:9092" },
        "sequence": { "ttl": "7m", "shield45": true, "absorbTransactional": true, "holdMax": "1s" },
        "limits": { "connections": 3 },
        "drain": { "timeout": "1m", "until": "requests" },
        "policies": [{ "topics": "orders", "require": "idempotence" }],
    });
    let changed = process.reload(&says).unwrap();
    assert_eq!(changed.len(), 8, "{changed:?}");
    let shared = &process.shared;
    let rules = *shared.ledger.rules();
    assert_eq!(rules.ttl, Duration::from_secs(420));
    assert!(rules.shield45 && rules.absorb_transactional);
    let now = shared.current();
    assert_eq!(now.limits.connections, 3);
    assert_eq!(now.sequence.hold_max, Duration::from_secs(1));
    assert_eq!(now.drain.timeout, Duration::from_secs(60));
    assert!(!now.policies.is_empty());
    assert_eq!(
        process.reload(&says),
        Ok(Vec::new()),
        "it means what it meant"
    );
}

#[test]
fn a_file_that_is_wrong_leaves_everything_and_is_told_with_its_line() {
    let mut process = Process::new(&plain(), &[]);
    fs::write(
        &process.path,
        "upstream:\n  bootstrap: [kafka:9092]\nlimits:\n  orfans: 3\n",
    )
    .unwrap();
    let Err(Fault::Invalid(errors)) = process.file.reload() else {
        panic!("it is valid");
    };
    assert!(errors[0].contains("hapax.yaml:4: "), "{errors:?}");
    assert!(errors[0].contains("limits.orphans"), "{errors:?}");
    fs::write(&process.path, "").unwrap();
    let Err(Fault::Invalid(errors)) = process.file.reload() else {
        panic!("a hapax without an upstream is valid");
    };
    assert!(errors[0].contains("no upstream"), "{errors:?}");
    fs::remove_file(&process.path).unwrap();
    assert!(matches!(process.file.reload(), Err(Fault::Invalid(_))));
    assert_eq!(process.shared.current().limits.orphans, 1024);
}

#[test]
fn what_a_flag_says_holds_whatever_the_file_says_later() {
    let mut process = Process::new(
        &plain(),
        &["--limits-orphans", "5", "--listen", "127.0.0.1:0"],
    );
    let says = with(&plain(), "limits.orphans", &json!(9));
    assert_eq!(process.reload(&says), Ok(Vec::new()));
    assert_eq!(process.shared.current().limits.orphans, 5);
    let says = with(&plain(), "listen.bootstrap", &json!("127.0.0.1:29000"));
    assert_eq!(process.reload(&says), Ok(Vec::new()));
}

#[test]
fn what_cannot_be_read_twice_is_not() {
    let args = ["--upstream=kafka:9092", "--config=/dev/null"];
    let (settings, errors) = RunArgs::from_flags(args).unwrap().settle_with(&|_| None);
    assert!(errors.is_empty());
    let shared = Arc::new(share(settings.config().unwrap()));
    let mut file = ConfigFile::new(&shared);
    assert!(file.files().is_empty());
    assert_eq!(file.reload(), Ok(Vec::new()));
}
