//! Records that come again under a new epoch: told where an original is known,
//! never otherwise, and without any effect on what is done.

use super::*;
use hapax::window::Resent;

/// One batch of a producer that raises its epoch as it likes.
#[derive(Clone, Debug)]
struct Sent {
    raise: bool,
    /// The records; batches with the same are equal but for their numbers.
    content: u32,
    count: u32,
    end: Ended,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Ended {
    Written,
    Lost,
    Refused,
}

fn sent() -> impl Strategy<Value = Sent> {
    let end = prop_oneof![
        6 => Just(Ended::Written),
        2 => Just(Ended::Lost),
        1 => Just(Ended::Refused),
    ];
    (prop::bool::weighted(0.3), 0..6_u32, 1..3_u32, end).prop_map(|(raise, content, count, end)| {
        Sent {
            raise,
            content,
            count,
            end,
        }
    })
}

/// A batch whose records, times and attributes are `content`.
fn of(content: u32, epoch: i16, first: i32, count: u32) -> BatchId {
    let bare = batch(Name {
        epoch,
        first,
        count,
        bytes: 0,
    });
    let bare = BatchId { crc: 0, ..bare };
    BatchId {
        crc: content ^ bare.neutral_crc(),
        ..bare
    }
}

fn arrival(batch: BatchId, transactional: bool) -> Arrival {
    Arrival {
        batch,
        transactional,
        acks: Acks::All,
        realm: NonZeroU32::new(1).map(Realm),
        node: NodeId::from_wire(1),
        link: Link(NonZeroU32::MIN),
        now: Time(0),
        patient: false,
        old: false,
    }
}

/// Windows that are sent the same, one of which can tell no records apart.
struct Twins {
    seeing: Window,
    blind: Window,
    rules: Rules,
    end: i64,
}

impl Twins {
    fn new(rules: Rules) -> Self {
        Self {
            seeing: Window::new(Time(0)),
            blind: Window::new(Time(0)),
            rules,
            end: 0,
        }
    }

    /// Sends a batch through both; what the seeing one says of its records.
    fn send(
        &mut self,
        batch: BatchId,
        transactional: bool,
        end: Ended,
    ) -> Result<Option<Resent>, TestCaseError> {
        let arrival = arrival(batch, transactional);
        // Bytes that nothing else has.
        let crc = u32::from(batch.epoch.0.unsigned_abs()) << 16 | batch.first.to_wire() as u32;
        let other = Arrival {
            batch: BatchId { crc, ..batch },
            ..arrival
        };
        let outcome = match end {
            Ended::Written => classify(0, Some(self.end), -1, Some(0)),
            Ended::Lost => Outcome::Unknown { candidate: None },
            Ended::Refused => Outcome::Refused(87),
        };
        self.end += i64::from(batch.count);
        let rules = self.rules;
        let verdicts =
            [(&mut self.seeing, arrival), (&mut self.blind, other)].map(|(window, arrival)| {
                let verdict = window.judge(&arrival, &rules);
                let sender = Sender {
                    acks: arrival.acks,
                    node: arrival.node,
                    realm: arrival.realm,
                    link: arrival.link,
                };
                if let Some(committed) = window.commit(&arrival, &verdict) {
                    let (id, batch) = (committed.id, &arrival.batch);
                    let _ = window.settle(id, batch, &sender, outcome, &rules, Time(0));
                }
                verdict
            });
        let done = verdicts.map(|verdict| (verdict.class, verdict.action, verdict.first_time));
        prop_assert_eq!(done[0], done[1], "records change nothing");
        prop_assert_eq!(verdicts[1].resent, None);
        Ok(verdicts[0].resent)
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn a_re_send_is_told_exactly_where_an_original_is_known(
        sent in prop::collection::vec(sent(), 1..30),
    ) {
        // Room for everything: nothing is forgotten.
        let rules = Rules {
            mode: Mode::Observe,
            ttl: Duration::from_secs(u64::from(TTL_S)),
            window_batches: 64,
            absorb_transactional: false,
            shield45: false,
        };
        let mut twins = Twins::new(rules);
        let mut known: Vec<(i16, u32, u32, Ended)> = Vec::new();
        let (mut epoch, mut first, mut lost) = (0_i16, 0_i32, 0);
        for sent in sent {
            if sent.raise {
                (epoch, first) = (epoch + 1, 0);
            }
            // A window keeps eight open attempts, one of which is the next to leave.
            let end = if sent.end != Ended::Written && lost + 1 >= OPEN_MAX {
                Ended::Written
            } else {
                sent.end
            };
            lost += usize::from(end != Ended::Written);
            let batch = of(sent.content, epoch, first, sent.count);
            let resent = twins.send(batch, false, end)?;
            let before = |end| known.iter().any(|(e, content, count, ended)| {
                *e < epoch && (*content, *count, *ended) == (sent.content, sent.count, end)
            });
            let expected = if before(Ended::Written) {
                Some(Resent::Acknowledged)
            } else {
                before(Ended::Lost).then_some(Resent::Unknown)
            };
            prop_assert_eq!(resent, expected, "{:?} in epoch {}", &sent, epoch);
            known.push((epoch, sent.content, sent.count, end));
            first += i32::try_from(sent.count).unwrap();
        }
    }

    #[test]
    fn a_transaction_is_never_told(
        sent in prop::collection::vec(sent(), 1..30),
    ) {
        let rules = Rules {
            mode: Mode::Observe,
            ttl: Duration::from_secs(u64::from(TTL_S)),
            window_batches: 5,
            absorb_transactional: false,
            shield45: false,
        };
        let mut twins = Twins::new(rules);
        let (mut epoch, mut first) = (0_i16, 0_i32);
        for sent in sent {
            if sent.raise {
                (epoch, first) = (epoch + 1, 0);
            }
            let batch = of(sent.content, epoch, first, sent.count);
            prop_assert_eq!(twins.send(batch, true, sent.end)?, None);
            first += i32::try_from(sent.count).unwrap();
        }
    }
}
