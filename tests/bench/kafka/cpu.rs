//! CPU time of other processes, from /proc.

use std::fs;
use std::time::Duration;

use crate::kit::process::cpu_nanoseconds;

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
    let threads = pids.iter().map(|pid| cpu_nanoseconds(*pid));
    Duration::from_nanos(threads.sum())
}

/// Fields of /proc/PID/stat, counted from one as proc(5) does.
const USER: usize = 14;
const SYSTEM: usize = 15;
