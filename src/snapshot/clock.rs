//! How much time has passed since another process wrote something down.
//!
//! The clock on the wall is all that outlives a machine, and anybody may set
//! it. While the machine has not been started anew its own clock says at least
//! how long it was: whichever says more is believed, so that nothing is ever
//! taken for younger than it is.

use super::format::{Boot, Stamp};
use std::fs;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

impl Stamp {
    /// Now.
    #[must_use]
    pub fn now() -> Self {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH);
        Self {
            wall_ms: u64::try_from(wall.unwrap_or_default().as_millis()).unwrap_or(u64::MAX),
            boot: boot(),
        }
    }

    /// How long ago `earlier` was; `None` where the clock on the wall went
    /// backwards since, so that nobody knows.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Option<Duration> {
        let wall = self.wall_ms.checked_sub(earlier.wall_ms)?;
        let machine = match (&self.boot, &earlier.boot) {
            (Some(now), Some(then)) if now.id == then.id => now.up_ms.checked_sub(then.up_ms),
            _ => None,
        };
        Some(Duration::from_millis(wall.max(machine.unwrap_or(0))))
    }

    /// Whole seconds since 1970.
    #[must_use]
    pub fn seconds(&self) -> u64 {
        self.wall_ms / 1000
    }
}

/// The machine's own clock, where Linux shows it.
fn boot() -> Option<Boot> {
    let id = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let uptime = fs::read_to_string("/proc/uptime").ok()?;
    let (seconds, hundredths) = uptime.split_whitespace().next()?.split_once('.')?;
    let seconds: u64 = seconds.parse().ok()?;
    let hundredths: u64 = hundredths.parse().ok()?;
    Some(Boot {
        id: id.trim().to_owned(),
        up_ms: seconds.checked_mul(1000)? + (hundredths * 10).min(999),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stamp(wall_ms: u64, boot: Option<(&str, u64)>) -> Stamp {
        let boot = boot.map(|(id, up_ms)| Boot {
            id: id.to_owned(),
            up_ms,
        });
        Stamp { wall_ms, boot }
    }

    #[test]
    fn whichever_clock_says_more_is_believed() {
        let check = |now: Stamp, then: Stamp, expected: Option<u64>| {
            assert_eq!(now.since(&then), expected.map(Duration::from_millis));
        };
        check(stamp(5_000, None), stamp(1_000, None), Some(4_000));
        check(stamp(1_000, None), stamp(1_000, None), Some(0));
        // The clock on the wall was set back: for long, and for a moment.
        check(stamp(900, None), stamp(1_000, None), None);
        let then = stamp(1_000, Some(("a", 50_000)));
        check(stamp(900, Some(("a", 90_000))), then.clone(), None);
        check(
            stamp(2_000, Some(("a", 90_000))),
            then.clone(),
            Some(40_000),
        );
        check(
            stamp(99_000, Some(("a", 60_000))),
            then.clone(),
            Some(98_000),
        );
        // Another start of the machine, or a container that counts by itself.
        check(stamp(2_000, Some(("b", 90_000))), then.clone(), Some(1_000));
        check(stamp(2_000, Some(("a", 3))), then, Some(1_000));
    }

    #[test]
    fn time_passes() {
        let (one, two) = (Stamp::now(), Stamp::now());
        assert!(two.since(&one).is_some_and(|d| d < Duration::from_secs(60)));
        assert!(one.seconds() > 1_700_000_000);
        assert_eq!(cfg!(target_os = "linux"), one.boot.is_some());
    }
}
