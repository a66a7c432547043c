//! How much memory the process may use, and who has how much of it.
//!
//! ```text
//!  memory.limit
//!  +-------+-----------+---------------------------------------------+
//!  | fixed |  windows  |                  buffers                    |
//!  | 40 MiB| <= a half | connections: <= a half | plenty  |  scarce  |
//!  +-------+-----------+---------------------------------------------+
//! ```
//!
//! Sessions account in coarse steps for what they keep beyond a small
//! guaranteed amount, which the price of their connection contains. Where the
//! buffers are scarce (the last eighth), a session reads no more than that
//! amount at once, and beyond it only what it could reserve as a whole: whoever
//! holds memory waits for nothing but its peer.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

/// What a connection may keep in each direction whatever others do: most
/// requests fit in it, and larger ones pass in pieces of it.
pub const GUARANTEED: usize = 4 * 1024;
/// What sessions account by.
const STEP: usize = 16 * 1024;
/// What a connection costs that keeps nothing but the guaranteed amounts; by
/// measurement it is less than this.
pub const CONNECTION: usize = 16 * 1024;
/// The same where one of its sides is TLS, for each: keys, and records that
/// have not wholly come or gone.
pub const SECURED: usize = 48 * 1024;
/// What is read whole may be there so many times while it is changed: as it
/// came, as it is to be, and on its way out.
pub const COPIES: usize = 3;
/// The process without connections and windows: code, the buffers of workers,
/// the event ring, metrics, and what the allocator keeps back.
pub const FIXED: usize = 40 << 20;
/// What is left for buffers at least, however small `memory.limit` is.
const BUFFERS_MIN: usize = 8 << 20;
/// Of the memory that a machine or a container has, what is used by default,
/// in quarters: sockets and pipes are the kernel's, and count there too.
const QUARTERS: usize = 3;

/// What `memory.limit` is where nobody sets it: three quarters of what the
/// container may use, or of what the machine has.
#[must_use]
pub fn default_limit() -> usize {
    let known = [
        container(Path::new("/proc/self/cgroup"), Path::new("/sys/fs/cgroup")),
        physical(Path::new("/proc/meminfo")),
    ];
    let least = known.into_iter().flatten().min();
    least.map_or(usize::MAX, |least| least / 4 * QUARTERS)
}

/// What a process in these control groups may use: the least that its group or
/// one above it says, of version 2 (`memory.max`) or 1.
fn container(membership: &Path, root: &Path) -> Option<usize> {
    let membership = fs::read_to_string(membership).ok()?;
    let mut least = None;
    for line in membership.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(group)) = (parts.next(), parts.next()) else {
            continue;
        };
        let (mounted, file) = match controllers {
            "" => (vec![root.to_owned(), root.join("unified")], "memory.max"),
            _ if controllers.split(',').any(|name| name == "memory") => {
                (vec![root.join("memory")], "memory.limit_in_bytes")
            }
            _ => continue,
        };
        for mounted in mounted {
            for group in up_from(&mounted, group) {
                let said = fs::read_to_string(group.join(file)).ok();
                let said = said.and_then(|said| said.trim().parse::<usize>().ok());
                // Version 1 says "none" by nearly the largest number there is.
                let said = said.filter(|said| *said < usize::MAX / 4);
                least = least.into_iter().chain(said).min();
            }
        }
    }
    least
}

/// A group below where groups are mounted, and all above it. In a container
/// the group may be named as the host sees it, and be mounted as the root.
fn up_from(mounted: &Path, group: &str) -> Vec<PathBuf> {
    let group = Path::new(group.trim_start_matches('/'));
    group.ancestors().map(|above| mounted.join(above)).collect()
}

fn physical(meminfo: &Path) -> Option<usize> {
    let meminfo = fs::read_to_string(meminfo).ok()?;
    let total = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: usize = total.split_whitespace().next()?.parse().ok()?;
    Some(kib.saturating_mul(1024))
}

/// What a window takes with its newest facts and its place in the ledger's map
/// (measured by tests/bench/memory.rs).
const WINDOW: usize = 293;
/// The facts that are in that.
const FACTS_WITHIN: usize = 5;
/// What one fact beyond those takes.
const FACT: usize = 53;

/// What a window of so many batches takes.
#[must_use]
pub fn window_bytes(batches: usize) -> usize {
    WINDOW + batches.saturating_sub(FACTS_WITHIN) * FACT
}

/// What a connection costs of which so many sides are TLS.
#[must_use]
pub fn connection_bytes(secured_sides: usize) -> usize {
    CONNECTION + secured_sides * SECURED
}

/// How the memory of a process is divided.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Division {
    /// Windows that fit, at most those that were asked for.
    pub windows: usize,
    /// Bytes for connections and what they keep.
    pub buffers: usize,
    /// Whether `limit` is too little for hapax to keep to it.
    pub too_little: bool,
}

impl Division {
    /// Of `limit` bytes, where `windows` of `window_bytes` each are asked for.
    #[must_use]
    pub fn of(limit: usize, windows: usize, window_bytes: usize) -> Self {
        let left = limit.saturating_sub(FIXED);
        let windows = windows.min(left / 2 / window_bytes.max(1)).max(1);
        let buffers = left.saturating_sub(windows.saturating_mul(window_bytes));
        Self {
            windows,
            buffers: buffers.max(BUFFERS_MIN),
            too_little: buffers < BUFFERS_MIN,
        }
    }

    /// Connections that fit, of which each costs so much: half of the buffers
    /// are left for what they keep.
    #[must_use]
    pub fn connections(&self, each: usize) -> usize {
        self.buffers / 2 / each.max(1)
    }
}

/// What connections have of the memory, and may have.
#[derive(Debug)]
pub struct Budget {
    buffers: usize,
    /// From here on it is scarce.
    plenty: usize,
    used: AtomicUsize,
}

impl Budget {
    /// One of so many bytes, of which nobody has any.
    #[must_use]
    pub fn new(buffers: usize) -> Self {
        Self {
            buffers,
            plenty: buffers - buffers / 8,
            used: AtomicUsize::new(0),
        }
    }

    /// Whether sessions may no longer read as they like.
    #[inline]
    #[must_use]
    pub fn is_scarce(&self) -> bool {
        self.used() >= self.plenty
    }

    /// Bytes that are used.
    #[inline]
    #[must_use]
    pub fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// Whether there are as many `bytes`.
    #[must_use]
    pub fn has(&self, bytes: usize) -> bool {
        self.used().saturating_add(bytes) <= self.buffers
    }

    /// Takes `bytes` if there are as many.
    #[must_use]
    pub fn try_take(&self, bytes: usize) -> bool {
        let taken = |used: usize| used.checked_add(bytes).filter(|used| *used <= self.buffers);
        let order = Ordering::Relaxed;
        self.used.fetch_update(order, order, taken).is_ok()
    }

    /// Takes `bytes` if the memory is not scarce then.
    #[must_use]
    pub fn try_take_spare(&self, bytes: usize) -> bool {
        let taken = |used: usize| used.checked_add(bytes).filter(|used| *used < self.plenty);
        let order = Ordering::Relaxed;
        self.used.fetch_update(order, order, taken).is_ok()
    }

    /// Takes `bytes` that are there already.
    pub fn take(&self, bytes: usize) {
        self.used.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Gives `bytes` back that were taken.
    pub fn give(&self, bytes: usize) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// What is accounted for so many bytes.
#[must_use]
pub fn in_steps(bytes: usize) -> usize {
    bytes.checked_next_multiple_of(STEP).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    /// What a process finds where these files are.
    fn found(membership: &str, files: &[(&str, &str)]) -> Option<usize> {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("cgroup");
        for (path, said) in files {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, said).unwrap();
        }
        let own = folder.path().join("self");
        fs::write(&own, membership).unwrap();
        container(&own, &root)
    }

    #[test]
    fn the_least_of_a_group_and_those_above_it_holds() {
        let max = |pod, own| {
            [
                ("pods/one/memory.max", pod),
                ("pods/one/own/memory.max", own),
            ]
        };
        let of = |pod, own| found("0::/pods/one/own\n", &max(pod, own));
        assert_eq!(of("max\n", "268435456\n"), Some(256 * MIB));
        assert_eq!(of("134217728\n", "268435456\n"), Some(128 * MIB));
        assert_eq!(of("134217728\n", "max\n"), Some(128 * MIB));
        assert_eq!(of("max\n", "max\n"), None);
    }

    #[test]
    fn a_container_sees_its_group_as_the_root() {
        assert_eq!(
            found("0::/\n", &[("memory.max", "67108864\n")]),
            Some(64 * MIB)
        );
        // Version 1 without a namespace names what only the host has.
        let old = "12:pids:/docker/abc\n4:cpu,memory:/docker/abc\n0::/\n";
        let limit = [("memory/memory.limit_in_bytes", "67108864\n")];
        assert_eq!(found(old, &limit), Some(64 * MIB));
    }

    #[test]
    fn no_limit_is_none() {
        let none = [("memory/memory.limit_in_bytes", "9223372036854771712\n")];
        assert_eq!(found("4:memory:/\n", &none), None);
        assert_eq!(found("0::/\n", &[]), None);
        assert_eq!(found("nonsense\n4:memory\n", &none), None);
        assert_eq!(
            container(Path::new("/does/not/exist"), Path::new("/")),
            None
        );
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_machine_says_what_it_has() {
        let physical = physical(Path::new("/proc/meminfo")).unwrap();
        assert!(physical > 64 * MIB, "{physical}");
        assert!(default_limit() < physical, "{} of it", default_limit());
    }

    #[test]
    fn windows_have_half_at_most_and_the_rest_is_for_buffers() {
        let small = Division::of(FIXED + 60 * MIB, 1_000_000, 300);
        assert_eq!(small.windows, 30 * MIB / 300);
        assert!(small.buffers >= 30 * MIB && !small.too_little);
        let large = Division::of(1024 * MIB, 100_000, 300);
        assert_eq!(large.windows, 100_000);
        assert_eq!(large.buffers, 1024 * MIB - FIXED - 30_000_000);
        let none = Division::of(10 * MIB, 100_000, 300);
        assert!(none.too_little && none.windows > 0 && none.buffers > 0);
        let all = Division::of(usize::MAX, 100_000, 300);
        assert_eq!(all.windows, 100_000);
    }

    #[test]
    fn nobody_reserves_more_than_there_is() {
        let budget = Budget::new(80);
        assert!(!budget.is_scarce());
        assert!(budget.try_take(70));
        assert!(budget.is_scarce());
        assert!(!budget.try_take(11));
        assert!(!budget.try_take(usize::MAX));
        assert!(budget.try_take(10));
        budget.take(100);
        assert!(!budget.try_take(1));
        budget.give(170);
        assert!(!budget.is_scarce());
        assert_eq!(budget.used(), 10);
    }
}
