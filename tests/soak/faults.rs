//! What goes wrong, every few seconds.

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use kafka_protocol::messages::alter_partition_reassignments_request::{
    ReassignablePartition, ReassignableTopic,
};
use kafka_protocol::messages::elect_leaders_request::TopicPartitions;
use kafka_protocol::messages::{AlterPartitionReassignmentsRequest, ElectLeadersRequest};

use crate::cluster::Cluster;
use crate::producers::PARTITIONS;
use crate::raw::{Connection, topic_name};
use crate::relay::Relay;
use crate::tools::Random;

/// A kind of fault.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Fault {
    /// Every connection between clients and hapax ends.
    CutClients,
    /// Every connection between hapax and the brokers ends.
    CutBrokers,
    /// A broker is killed and started again.
    Kill,
    /// A broker stands still for a while.
    Pause,
    /// The leaders of a topic move.
    Move,
}

impl Fault {
    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::CutClients => "all connections of clients cut",
            Self::CutBrokers => "all connections to brokers cut",
            Self::Kill => "a broker killed with -9 and started again",
            Self::Pause => "a broker stopped for 1 to 8 s",
            Self::Move => "the leaders of a topic moved",
        }
    }
}

/// What faults are made of.
pub(crate) struct Trouble<'a> {
    pub(crate) cluster: &'a Cluster,
    pub(crate) clients: &'a Relay,
    pub(crate) brokers: &'a Relay,
    pub(crate) topics: &'a [String],
    pub(crate) random: Random,
    pub(crate) made: BTreeMap<Fault, u32>,
}

impl Trouble<'_> {
    /// Makes faults until then; what is between them is for `look`.
    pub(crate) fn until(&mut self, end: Instant, mut look: impl FnMut()) {
        while Instant::now() < end {
            let calm = Duration::from_millis(1500 + self.random.below(4000));
            let again = Instant::now() + calm;
            while Instant::now() < again.min(end) {
                pause(Duration::from_millis(250));
                look();
            }
            let fault = self.draw();
            self.make(fault);
            *self.made.entry(fault).or_default() += 1;
            look();
        }
    }

    fn draw(&mut self) -> Fault {
        match self.random.below(10) {
            0..=2 => Fault::CutClients,
            3..=5 => Fault::CutBrokers,
            6 => Fault::Kill,
            7 => Fault::Pause,
            _ => Fault::Move,
        }
    }

    fn make(&mut self, fault: Fault) {
        let node = usize::try_from(self.random.below(3)).expect("one of three");
        match fault {
            Fault::CutClients => {
                self.clients.cut();
            }
            Fault::CutBrokers => {
                self.brokers.cut();
            }
            Fault::Kill => {
                self.cluster.kill(node);
                pause(Duration::from_millis(self.random.below(3000)));
                self.cluster.restart(node);
            }
            Fault::Pause => {
                self.cluster.signal(node, "STOP");
                pause(Duration::from_millis(1000 + self.random.below(7000)));
                self.cluster.signal(node, "CONT");
            }
            Fault::Move => self.move_leaders(),
        }
    }

    /// Turns the replicas of a topic, then has the new first ones lead.
    fn move_leaders(&mut self) {
        let at = self
            .random
            .below(u64::try_from(self.topics.len()).expect("few topics"));
        let topic = &self.topics[usize::try_from(at).expect("few topics")];
        let turn = self.random.below(3);
        let partitions = 0..i32::try_from(PARTITIONS).expect("few partitions");
        let replicas = |partition: i32| {
            let of = |n: i32| {
                let turned =
                    i64::from(n) + i64::from(partition) + i64::try_from(turn).expect("few");
                i32::try_from(turned % 3 + 1).expect("a node id").into()
            };
            (0..3).map(of).collect()
        };
        let moved = partitions.clone().map(|partition| {
            ReassignablePartition::default()
                .with_partition_index(partition)
                .with_replicas(Some(replicas(partition)))
        });
        let name = topic_name(topic);
        let reassign = AlterPartitionReassignmentsRequest::default()
            .with_timeout_ms(10_000)
            .with_topics(vec![
                ReassignableTopic::default()
                    .with_name(name.clone())
                    .with_partitions(moved.collect()),
            ]);
        let elect = ElectLeadersRequest::default()
            .with_timeout_ms(10_000)
            .with_topic_partitions(Some(vec![
                TopicPartitions::default()
                    .with_topic(name)
                    .with_partitions(partitions.collect()),
            ]));
        let mut connection: Connection = self.cluster.connect(0);
        // A replica that is not in sync yet cannot lead: then nothing moves, which is no fault.
        let _ = connection.try_call(0, &reassign);
        let _ = connection.try_call(2, &elect);
    }
}

pub(crate) fn pause(time: Duration) {
    #[expect(clippy::disallowed_methods, reason = "time is what a soak is made of")]
    thread::sleep(time);
}
