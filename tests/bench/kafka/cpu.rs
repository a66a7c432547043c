//! CPU time of other processes, from /proc.

use std::fs;
use std::time::Duration;

/// What these processes have used so far, with threads that have ended.
pub(crate) fn of_processes(pids: &[u32]) -> Duration {
    pids.iter().map(|pid| of_process(*pid)).sum()
}

/// To a clock tick, which is a hundredth of a second on every Linux.
fn of_process(pid: u32) -> Duration {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("the process runs");
    // The second field is a name in brackets, which may hold anything.
    let (_, rest) = stat.rsplit_once(')').expect("a name in brackets");
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let ticks = |field: usize| fields[field - 3].parse::<u64>().expect("ticks");
    Duration::from_millis(10 * (ticks(USER) + ticks(SYSTEM)))
}

/// What the threads of these processes have used so far, to the nanosecond;
/// without those that have ended, so for processes that keep theirs.
pub(crate) fn of_threads(pids: &[u32]) -> Duration {
    let threads = pids.iter().flat_map(|pid| {
        let folder = format!("/proc/{pid}/task");
        let threads = fs::read_dir(folder).expect("the process runs");
        threads.map(|thread| thread.expect("a thread").path().join("schedstat"))
    });
    threads
        .map(|file| {
            let text = fs::read_to_string(file).expect("a thread that stays");
            let first = text.split(' ').next().expect("three numbers");
            Duration::from_nanos(first.parse().expect("nanoseconds"))
        })
        .sum()
}

/// Fields of /proc/PID/stat, counted from one as proc(5) does.
const USER: usize = 14;
const SYSTEM: usize = 15;
