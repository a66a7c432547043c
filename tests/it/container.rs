//! hapax as a container has it: process 1, of a user that nothing belongs to,
//! where nothing can be written, told what to do by its environment alone.

use std::fs;
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

use crate::broker::{self, OPAQUE};
use crate::support::await_until;
use crate::support::hapax;
use crate::support::raw::Client;
use crate::world::{SOON, ping};

/// A user that no machine has.
const NOBODYS_ID: u32 = 65_532;

/// hapax in namespaces of its own; killed with the test.
struct Contained {
    unshare: Child,
    first: u16,
}

impl Contained {
    fn start(upstream: &str) -> Self {
        let first = hapax::free_range(4);
        let script = "mount --make-rprivate / && mount -o remount,bind,ro / \
             && ! touch /written 2>/dev/null \
             && exec setpriv --reuid \"$1\" --regid \"$1\" --clear-groups --no-new-privs \
                --inh-caps=-all --bounding-set=-all \"$0\" run";
        let unshare = Command::new("/usr/bin/unshare")
            .args([
                "--mount",
                "--pid",
                "--fork",
                "--kill-child",
                "sh",
                "-c",
                script,
            ])
            .arg(hapax::binary())
            .arg(NOBODYS_ID.to_string())
            .current_dir("/")
            .env_clear()
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .env("HAPAX_UPSTREAM", upstream)
            .env("HAPAX_LISTEN", format!("127.0.0.1:{first}"))
            .env("HAPAX_ADMIN_LISTEN", format!("127.0.0.1:{}", first + 1))
            .env("HAPAX_BROKER_PORTS", format!("{}-{}", first + 2, first + 3))
            // What Kubernetes says of a Service of this name.
            .env("HAPAX_PORT", "tcp://10.0.0.1:9092")
            .env("HAPAX_SERVICE_HOST", "10.0.0.1")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("unshare runs, as root");
        let contained = Self { unshare, first };
        await_until("hapax to listen", SOON * 2, || {
            contained.page("/startupz").starts_with("HTTP/1.1 200")
                && TcpStream::connect(contained.bootstrap()).is_ok()
        });
        contained
    }

    fn bootstrap(&self) -> String {
        format!("127.0.0.1:{}", self.first)
    }

    fn page(&self, path: &str) -> String {
        hapax::page(&format!("127.0.0.1:{}", self.first + 1), path)
    }

    /// Its process id out here.
    fn pid(&self) -> u32 {
        let own = self.unshare.id();
        let children = fs::read_to_string(format!("/proc/{own}/task/{own}/children"));
        children.unwrap().trim().parse().unwrap()
    }

    fn signal(&self, name: &str) {
        let kill = Command::new("kill")
            .args([format!("-{name}"), self.pid().to_string()])
            .status();
        assert!(kill.unwrap().success());
    }
}

impl Drop for Contained {
    fn drop(&mut self) {
        // Which kills hapax.
        let _ = self.unshare.kill();
        let _ = self.unshare.wait();
    }
}

#[test]
fn a_container_has_to_give_nothing_but_an_environment() {
    let upstream = broker::start();
    let mut contained = Contained::start(&upstream.address);
    let status = fs::read_to_string(format!("/proc/{}/status", contained.pid())).unwrap();
    let line = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace()
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    assert_eq!(line("NSpid:").last().unwrap(), "1");
    assert_eq!(line("Uid:")[1..], vec![NOBODYS_ID.to_string(); 4]);
    assert_eq!(line("CapEff:")[1], "0000000000000000");

    let mut client = Client::connect(&contained.bootstrap()).unwrap();
    let asked = ping(&mut client);
    let mut served = upstream.accept();
    let heard = served.next();
    assert_eq!(heard.key, OPAQUE);
    served.answer_raw(&heard, b"pong");
    assert_eq!(client.receive_frame().unwrap()[..4], asked.to_be_bytes());

    // A process 1 hears no signal that it has not asked for.
    contained.signal("HUP");
    contained.signal("TERM");
    await_until("hapax to drain", SOON, || {
        contained.page("/readyz").starts_with("HTTP/1.1 503")
    });
    drop(client);
    let mut ended = None;
    await_until("its end", SOON, || {
        ended = contained.unshare.try_wait().unwrap();
        ended.is_some()
    });
    assert_eq!(ended.unwrap().code(), Some(0));
}
