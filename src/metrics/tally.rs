//! What the workers count: each for itself, so that no two threads write to
//! one cache line for every request. The counts are added up when somebody
//! looks, so that what is shown is never behind.

use super::{
    Api, Label, Metrics, Outcome, Policy, REGISTERED_ONCE, Register, Side, TopicMetrics,
    VALID_NAME, Verdict, lock,
};
use prometheus::Registry;
use prometheus::core::{Collector, Desc};
use prometheus::proto::{Bucket, Histogram, LabelPair, Metric, MetricFamily, MetricType};
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// From an acknowledgement in memory (under a millisecond) over acks=all
/// (milliseconds) and a waiting fetch (half a second) to the client's own
/// time-out (30 s).
const DURATION_BUCKETS_MICROSECONDS: [u32; 13] = [
    500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000,
    5_000_000, 30_000_000,
];

/// A count that one thread adds to and others read.
#[derive(Default, Debug)]
struct Count(AtomicU64);

impl Count {
    /// Only ever called by the thread that the count belongs to, which makes
    /// a read and a write enough.
    fn add(&self, n: u64) {
        let before = self.0.load(Ordering::Relaxed);
        self.0.store(before.wrapping_add(n), Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

type PerSide = [Count; Side::ALL.len()];
type PerVerdict = [Count; Verdict::ALL.len()];

/// The counts of one worker. Aligned so that no other worker's lie beside them.
#[derive(Default, Debug)]
#[repr(align(128))]
struct Counts {
    received: PerSide,
    sent: PerSide,
    asked: Count,
    answered: Count,
    requests: [[Count; Outcome::ALL.len()]; Api::ALL.len()],
    durations: [Durations; Api::ALL.len()],
}

/// How long the requests of one API took.
#[derive(Default, Debug)]
struct Durations {
    /// Requests by the first bucket that they fit in; the last are those that
    /// fit in none.
    buckets: [Count; DURATION_BUCKETS_MICROSECONDS.len() + 1],
    nanoseconds: Count,
}

impl Durations {
    fn observe(&self, nanoseconds: u64) {
        let mut bounds = DURATION_BUCKETS_MICROSECONDS.iter();
        let bucket = bounds.position(|bound| nanoseconds <= u64::from(*bound) * 1_000);
        self.buckets[bucket.unwrap_or(DURATION_BUCKETS_MICROSECONDS.len())].add(1);
        self.nanoseconds.add(nanoseconds);
    }
}

/// The counts of one worker for one topic.
#[derive(Default, Debug)]
#[repr(align(128))]
pub(super) struct TopicCounts {
    batches: PerVerdict,
    records: PerVerdict,
    violations: [Count; Policy::ALL.len()],
}

/// Where one worker counts. It stays on the thread that made it.
pub struct Tally {
    counts: Arc<Counts>,
    topics: RefCell<HashMap<*const TopicMetrics, Rc<TopicTally>>>,
}

/// Where one worker counts what it sees of one topic.
pub struct TopicTally {
    counts: Arc<TopicCounts>,
    /// What is counted for all workers together, being rare.
    pub shared: Arc<TopicMetrics>,
}

impl Metrics {
    /// A place for a thread to count in.
    pub fn tally(&self) -> Tally {
        let counts = Arc::<Counts>::default();
        lock(&self.request_duration.tallies).push(Arc::clone(&counts));
        Tally {
            counts,
            topics: RefCell::default(),
        }
    }

    /// Adds up what the workers have counted, for the metrics that are read
    /// one by one.
    pub fn add_up(&self) {
        let tallies = lock(&self.request_duration.tallies);
        let sum = |of: &dyn Fn(&Counts) -> u64| tallies.iter().map(|counts| of(counts)).sum();
        for side in Side::ALL {
            let at = side.index();
            raise(
                self.received_bytes.with(*side),
                sum(&|c| c.received[at].get()),
            );
            raise(self.sent_bytes.with(*side), sum(&|c| c.sent[at].get()));
        }
        for api in Api::ALL {
            for outcome in Outcome::ALL {
                let of = |c: &Counts| c.requests[api.index()][outcome.index()].get();
                raise(self.requests.with(*api, *outcome), sum(&of));
            }
        }
        let (asked, answered): (u64, u64) = (sum(&|c| c.asked.get()), sum(&|c| c.answered.get()));
        // A worker that is read between the two may have answered since.
        let in_flight = asked.saturating_sub(answered);
        self.requests_in_flight
            .set(i64::try_from(in_flight).unwrap_or(i64::MAX));
        let mut verdicts = [0; Verdict::ALL.len()];
        for topic in self.topics.all() {
            for (at, total) in verdicts.iter_mut().enumerate() {
                *total += topic.add_up(Verdict::ALL[at]);
            }
            topic.add_up_violations();
        }
        for (verdict, total) in Verdict::ALL.iter().zip(verdicts) {
            raise(self.verdicts.with(*verdict), total);
        }
    }
}

impl TopicMetrics {
    /// Adds up the batches and the records of a verdict; returns the batches.
    fn add_up(&self, verdict: Verdict) -> u64 {
        let at = verdict.index();
        let counts = lock(&self.tallies);
        let batches = counts.iter().map(|c| c.batches[at].get()).sum();
        let records = counts.iter().map(|c| c.records[at].get()).sum();
        raise(self.batches.with(verdict), batches);
        raise(self.records.with(verdict), records);
        batches
    }
}

impl TopicMetrics {
    fn add_up_violations(&self) {
        let counts = lock(&self.tallies);
        for policy in Policy::ALL {
            let of = |c: &Arc<TopicCounts>| c.violations[policy.index()].get();
            raise(
                self.policy_violations.with(*policy),
                counts.iter().map(of).sum(),
            );
        }
    }
}

/// Brings a counter up to a sum that nothing else adds to.
fn raise(counter: &prometheus::IntCounter, sum: u64) {
    counter.inc_by(sum.saturating_sub(counter.get()));
}

impl Tally {
    /// Bytes came from a side.
    pub fn received(&self, side: Side, bytes: usize) {
        self.counts.received[side.index()].add(bytes as u64);
    }

    /// Bytes went to a side.
    pub fn sent(&self, side: Side, bytes: u64) {
        self.counts.sent[side.index()].add(bytes);
    }

    /// A request came that awaits an answer.
    pub fn asked(&self) {
        self.counts.asked.add(1);
    }

    /// A request came that asks for no answer.
    pub fn unanswered(&self, api: Api) {
        self.counts.requests[api.index()][Outcome::Ok.index()].add(1);
    }

    /// A request has its answer, or will get none, so many nanoseconds after it came.
    pub fn answered(&self, api: Api, outcome: Outcome, nanoseconds: u64) {
        self.counts.answered.add(1);
        self.counts.requests[api.index()][outcome.index()].add(1);
        self.counts.durations[api.index()].observe(nanoseconds);
    }

    /// Where to count what is seen of a topic.
    pub fn topic(&self, topic: &Arc<TopicMetrics>) -> Rc<TopicTally> {
        let mut topics = self.topics.borrow_mut();
        let tally = topics.entry(Arc::as_ptr(topic)).or_insert_with(|| {
            let counts = Arc::<TopicCounts>::default();
            lock(&topic.tallies).push(Arc::clone(&counts));
            Rc::new(TopicTally {
                counts,
                shared: Arc::clone(topic),
            })
        });
        Rc::clone(tally)
    }
}

impl TopicTally {
    /// Counts a batch without what a policy requires.
    pub fn violation(&self, policy: Policy) {
        self.counts.violations[policy.index()].add(1);
    }

    /// Counts a batch of `records` under its verdict.
    pub fn batch(&self, verdict: Verdict, records: u64) {
        self.counts.batches[verdict.index()].add(1);
        self.counts.records[verdict.index()].add(records);
    }
}

/// The workers' counts for one topic.
pub(super) type TopicTallies = Mutex<Vec<Arc<TopicCounts>>>;

/// The histogram of what the workers time, and the list of their counts.
#[derive(Clone)]
pub struct RequestDurations {
    desc: Desc,
    tallies: Arc<Mutex<Vec<Arc<Counts>>>>,
}

impl Register for RequestDurations {
    fn register(registry: &Registry, name: &str, help: &str) -> Self {
        let labels = vec![Api::NAME.to_owned()];
        let desc = Desc::new(name.to_owned(), help.to_owned(), labels, HashMap::new());
        let family = Self {
            desc: desc.expect(VALID_NAME),
            tallies: Arc::default(),
        };
        registry
            .register(Box::new(family.clone()))
            .expect(REGISTERED_ONCE);
        family
    }
}

impl RequestDurations {
    fn of(&self, api: Api) -> Metric {
        let tallies = lock(&self.tallies);
        let sum = |of: &dyn Fn(&Durations) -> u64| -> u64 {
            let durations = tallies.iter().map(|counts| &counts.durations[api.index()]);
            durations.map(of).sum()
        };
        let mut so_far = 0;
        let mut buckets = Vec::with_capacity(DURATION_BUCKETS_MICROSECONDS.len());
        for (at, bound) in DURATION_BUCKETS_MICROSECONDS.iter().enumerate() {
            so_far += sum(&|durations| durations.buckets[at].get());
            let mut bucket = Bucket::default();
            bucket.set_upper_bound(f64::from(*bound) / 1e6);
            bucket.set_cumulative_count(so_far);
            buckets.push(bucket);
        }
        let beyond = sum(&|durations| durations.buckets[DURATION_BUCKETS_MICROSECONDS.len()].get());
        let took = Duration::from_nanos(sum(&|durations| durations.nanoseconds.get()));
        let mut histogram = Histogram::default();
        histogram.set_sample_count(so_far + beyond);
        histogram.set_sample_sum(took.as_secs_f64());
        histogram.set_bucket(buckets);
        let mut label = LabelPair::default();
        label.set_name(Api::NAME.to_owned());
        label.set_value(api.label().to_owned());
        let mut metric = Metric::from_label(vec![label]);
        metric.set_histogram(histogram);
        metric
    }
}

impl Collector for RequestDurations {
    fn desc(&self) -> Vec<&Desc> {
        vec![&self.desc]
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let mut family = MetricFamily::default();
        family.set_name(self.desc.fq_name.clone());
        family.set_help(self.desc.help.clone());
        family.set_field_type(MetricType::HISTOGRAM);
        family.set_metric(Api::ALL.iter().map(|api| self.of(*api)).collect());
        vec![family]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_workers_count_adds_up() {
        let metrics = Metrics::new(2);
        let topic = metrics.topic("orders");
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let tally = metrics.tally();
                    let topic = tally.topic(&topic);
                    for n in 0..1000 {
                        tally.received(Side::Client, 3);
                        tally.sent(Side::Upstream, 2);
                        tally.asked();
                        topic.batch(Verdict::Gap, 5);
                        if n % 2 == 0 {
                            tally.answered(Api::Fetch, Outcome::Error, 600_000);
                        }
                    }
                });
            }
        });
        // Twice: what was added up once is not added again.
        for _ in 0..2 {
            let text = String::from_utf8(metrics.render()).unwrap();
            for line in [
                r#"hapax_received_bytes_total{side="client"} 12000"#,
                r#"hapax_sent_bytes_total{side="upstream"} 8000"#,
                r#"hapax_verdicts_total{verdict="gap"} 4000"#,
                r#"hapax_produce_batches_total{topic="orders",verdict="gap"} 4000"#,
                r#"hapax_produce_records_total{topic="orders",verdict="gap"} 20000"#,
                "hapax_requests_in_flight 2000",
                r#"hapax_requests_total{api="fetch",outcome="error"} 2000"#,
                r#"hapax_request_duration_seconds_bucket{api="fetch",le="0.0005"} 0"#,
                r#"hapax_request_duration_seconds_bucket{api="fetch",le="0.001"} 2000"#,
                r#"hapax_request_duration_seconds_bucket{api="fetch",le="30"} 2000"#,
                r#"hapax_request_duration_seconds_bucket{api="fetch",le="+Inf"} 2000"#,
                r#"hapax_request_duration_seconds_sum{api="fetch"} 1.2"#,
                r#"hapax_request_duration_seconds_count{api="fetch"} 2000"#,
            ] {
                assert!(text.lines().any(|found| found == line), "{line}");
            }
        }
    }

    #[test]
    fn a_duration_beyond_all_buckets_is_in_none() {
        let metrics = Metrics::new(2);
        metrics
            .tally()
            .answered(Api::Produce, Outcome::Ok, 31_000_000_000);
        let text = String::from_utf8(metrics.render()).unwrap();
        for line in [
            r#"hapax_request_duration_seconds_bucket{api="produce",le="30"} 0"#,
            r#"hapax_request_duration_seconds_bucket{api="produce",le="+Inf"} 1"#,
        ] {
            assert!(text.lines().any(|found| found == line), "{line}");
        }
    }
}
