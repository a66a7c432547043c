//! hapax as the system sees it, over time.

use std::fs;
use std::time::{Duration, Instant};

use crate::hapax::Hapax;

/// How often it is looked at.
const EVERY: Duration = Duration::from_secs(5);

/// One look.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    pub(crate) at: Duration,
    /// Resident memory, in KiB.
    pub(crate) rss: u64,
    pub(crate) descriptors: usize,
    pub(crate) threads: u64,
}

/// All looks so far.
pub(crate) struct Watch {
    pid: u32,
    start: Instant,
    pub(crate) samples: Vec<Sample>,
}

impl Watch {
    pub(crate) fn new(hapax: &Hapax) -> Self {
        Self {
            pid: hapax.pid(),
            start: Instant::now(),
            samples: Vec::new(),
        }
    }

    /// Looks, if it is time to.
    pub(crate) fn look(&mut self) {
        let last = self
            .samples
            .last()
            .map_or(Duration::ZERO, |sample| sample.at);
        if self.samples.is_empty() || self.start.elapsed() >= last + EVERY {
            let sample = self.sample();
            self.samples.push(sample);
        }
    }

    pub(crate) fn sample(&self) -> Sample {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid)).expect("it runs");
        let number = |name: &str| {
            let line = status.lines().find(|line| line.starts_with(name));
            let word = line.and_then(|line| line.split_whitespace().nth(1));
            word.expect("a number").parse::<u64>().expect("a number")
        };
        let open = fs::read_dir(format!("/proc/{}/fd", self.pid)).expect("it runs");
        Sample {
            at: self.start.elapsed(),
            rss: number("VmRSS:"),
            descriptors: open.count(),
            threads: number("Threads:"),
        }
    }

    /// The median memory in a part of the time, from and to in hundredths.
    pub(crate) fn median_rss(&self, from: usize, to: usize) -> u64 {
        let count = self.samples.len();
        let mut part: Vec<u64> = self.samples[count * from / 100..count * to / 100]
            .iter()
            .map(|sample| sample.rss)
            .collect();
        part.sort_unstable();
        part.get(part.len() / 2).copied().unwrap_or_default()
    }
}
