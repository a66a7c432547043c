//! Configuration files that are none.

use std::fmt::Write;
use std::fs;
use std::process::Command;
use std::time::Instant;

use crate::scene::{Outcome, PATIENCE, SLACK, Scale, Scene};
use crate::support::await_until;

/// The address space in which a file has to be refused, in KiB.
const SPACE_KIB: usize = 256 << 10;

/// Lists of lists of lists, by aliases.
fn bomb() -> String {
    let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n".to_owned();
    for n in 1..30 {
        let before = n - 1;
        let many = vec![format!("*a{before}"); 9].join(", ");
        writeln!(text, "a{n}: &a{n} [{many}]").unwrap();
    }
    text
}

/// Tries a file in little memory.
fn refused(path: &str) -> String {
    for command in ["config print", "check", "run"] {
        let shell = format!("ulimit -v {SPACE_KIB}; exec \"$0\" {command} --config \"$1\"");
        let output = Command::new("bash")
            .args([
                "-c",
                &shell,
                crate::support::hapax::binary().to_str().unwrap(),
                path,
            ])
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(78), "{command}: {said}");
        assert!(said.len() < 4096, "{command} says {} bytes", said.len());
    }
    path.to_owned()
}

pub(crate) fn bombs(_: Scale) -> Outcome {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let start = Instant::now();
    fs::write(path("bomb.yaml"), bomb()).unwrap();
    refused(&path("bomb.yaml"));
    let nested = "[".repeat(1 << 19);
    fs::write(path("deep.yaml"), format!("upstream: {nested}")).unwrap();
    refused(&path("deep.yaml"));
    let huge = fs::File::create(path("huge.yaml")).unwrap();
    huge.set_len(1 << 30).unwrap();
    refused(&path("huge.yaml"));
    let took = start.elapsed();

    fs::write(path("hapax.yaml"), "log: {level: info}\n").unwrap();
    let scene = Scene::new(&[&format!("--config={}", path("hapax.yaml"))]);
    for other in ["bomb.yaml", "deep.yaml", "huge.yaml"] {
        let invalid = || {
            let label = ["outcome=\"invalid\""];
            scene.metric("hapax_config_reloads_total", &label)
        };
        let before = invalid();
        fs::rename(path(other), path("hapax.yaml")).unwrap();
        scene.hapax.signal("HUP");
        await_until("the refusal", PATIENCE, || invalid() > before);
    }
    assert_eq!(scene.metric("hapax_config_last_reload_successful", &[]), 0);
    scene
        .end("aliases of aliases, half a million brackets, a file of 1 GiB: to `config print`, `check`, `run` and a reload")
        .grew_by_at_most(SLACK)
        .note(format!("refused with exit code 78 in 256 MiB of address space, {took:.1?} for nine tries"))
}
