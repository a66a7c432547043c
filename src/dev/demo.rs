//! The demo: the same messages straight to the broker and through hapax, with
//! acknowledgements that get lost.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::time;

use super::console::{Console, Tone};
use super::producer::{Delivery, DemoError, Fate, Producer};
use super::upstream::Upstream;
use crate::metrics::Metrics;

/// The topic that is written through hapax, and the one that is not.
const TOPIC: &str = "hapax-demo";
const TOPIC_WITHOUT: &str = "hapax-demo-without";
/// Messages of a demo that ends.
const MESSAGES: u64 = 100;
/// Of so many messages one acknowledgement is lost.
const LOST_EVERY: u64 = 10;
const LOST_EVERY_LIVE: u64 = 5;
/// The first to be lost where someone waits for it.
const LOST_FIRST_LIVE: u64 = 2;
/// Lost acknowledgements that are told one by one where the demo ends.
const TOLD: u64 = 3;
/// From one message to the next where it does not end.
const PAUSE: Duration = Duration::from_millis(400);
/// Messages from one tally to the next.
const TALLY_EVERY: u64 = 20;

/// Two producers that send the same, and what came of it.
pub(super) struct Demo {
    console: Console,
    metrics: Arc<Metrics>,
    without: Producer,
    with: Producer,
    /// Messages `lost_first`, `lost_first + lost_every` and so on lose theirs.
    lost_first: u64,
    lost_every: u64,
    sent: u64,
    retried: u64,
    /// Retries before which the broker had forgotten the producer.
    forgotten: u64,
}

/// The sums of both rows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Tally {
    sent: u64,
    retried: u64,
    forgotten: u64,
    absorbed: u64,
    /// In the log, and how many of them once more: without hapax, and with it.
    written: [u64; 2],
    duplicates: [u64; 2],
}

impl Demo {
    /// Two producers, one of them straight to `upstream`.
    pub(super) async fn start(
        console: Console,
        upstream: &Upstream,
        proxy: SocketAddr,
        metrics: Arc<Metrics>,
        once: bool,
    ) -> Result<Self, DemoError> {
        let direct = upstream.address();
        Ok(Self {
            console,
            metrics,
            without: Producer::start(direct, upstream.clone(), TOPIC_WITHOUT).await?,
            with: Producer::start(proxy, upstream.clone(), TOPIC).await?,
            lost_first: if once { LOST_EVERY } else { LOST_FIRST_LIVE },
            lost_every: if once { LOST_EVERY } else { LOST_EVERY_LIVE },
            sent: 0,
            retried: 0,
            forgotten: 0,
        })
    }

    /// Runs to the end and prints the tally; whether its sums agree.
    pub(super) async fn run_once(&mut self) -> Result<bool, DemoError> {
        self.explain(&format!("A producer sends {MESSAGES} messages"), "tenth")?;
        let mut told = 0;
        for number in 1..=MESSAGES {
            let (fate, delivery) = self.send(number).await?;
            if fate != Fate::Heard && told < TOLD {
                self.tell(number, fate, delivery)?;
                told += 1;
            }
        }
        let more = self.retried - told;
        self.console
            .line(&format!("  and {more} more like these\n"))?;
        let tally = self.tally().await?;
        self.print(&tally)?;
        self.console.line(&self.console.tone(
            Tone::Faint,
            "\nWritten and duplicates are read back from the log; absorbed is hapax's own metric.\n\
             Next: `hapax dev` goes on and on, `hapax dev --no-demo` waits for your own client.",
        ))?;
        Ok(self.agrees(&tally))
    }

    /// Runs until it is told to end, between two messages; prints the tally.
    pub(super) async fn run(
        &mut self,
        told_to_end: &mut (impl Future<Output = ()> + Unpin),
    ) -> Result<(), DemoError> {
        self.explain("A producer sends messages until Ctrl-C", "fifth")?;
        let mut heard_from = 1;
        for number in 1_u64.. {
            let (fate, delivery) = self.send(number).await?;
            if fate != Fate::Heard {
                self.tell_heard(heard_from, number - 1)?;
                heard_from = number + 1;
                self.tell(number, fate, delivery)?;
            }
            if number % TALLY_EVERY == 0 {
                let tally = self.tally().await?;
                self.console.line("")?;
                self.print(&tally)?;
                self.console.line("")?;
            }
            tokio::select! {
                () = time::sleep(PAUSE) => {}
                () = &mut *told_to_end => break,
            }
        }
        let tally = self.tally().await?;
        self.console.line("")?;
        self.print(&tally)
    }

    fn explain(&self, what: &str, nth: &str) -> Result<(), DemoError> {
        self.console.line(&format!(
            "{what}, each through hapax and again without it.\n\
             Every {nth} acknowledgement gets lost, so it sends that message again, as Kafka\n\
             clients do. Kafka recognises the repetition, unless it has forgotten the\n\
             producer, as it does when record times are a day old: here before every other\n\
             retry.\n"
        ))?;
        Ok(())
    }

    /// Sends one message on both ways; gives what happened on hapax's.
    async fn send(&mut self, number: u64) -> Result<(Fate, Delivery), DemoError> {
        let fate = match number % self.lost_every == self.lost_first % self.lost_every {
            false => Fate::Heard,
            true if self.retried % 2 == 1 => Fate::LostAndForgotten,
            true => Fate::Lost,
        };
        self.without.send(number, fate).await?;
        let delivery = self.with.send(number, fate).await?;
        self.sent += 1;
        self.retried += u64::from(fate != Fate::Heard);
        self.forgotten += u64::from(fate == Fate::LostAndForgotten);
        Ok((fate, delivery))
    }

    fn tell_heard(&self, first: u64, last: u64) -> Result<(), DemoError> {
        let text = match last.checked_sub(first) {
            None => return Ok(()),
            Some(0) => format!("  message {last:>4}   written, acknowledged"),
            Some(_) => format!("  messages {first} to {last}   written, acknowledged"),
        };
        self.console.line(&self.console.tone(Tone::Faint, &text))?;
        Ok(())
    }

    fn tell(&self, number: u64, fate: Fate, delivery: Delivery) -> Result<(), DemoError> {
        let lost = self.console.tone(Tone::Bad, "acknowledgement lost");
        let forgotten = match fate {
            Fate::LostAndForgotten => ", broker forgets the producer",
            Fate::Heard | Fate::Lost => "",
        };
        let again = if delivery.acknowledged == delivery.written {
            let absorbed = self.console.tone(Tone::Good, "absorbed");
            format!(
                "{absorbed}, hapax repeats the acknowledgement of offset {}",
                delivery.written
            )
        } else {
            let twice = self.console.tone(Tone::Bad, "written once more");
            format!("{twice}, at offset {}", delivery.acknowledged)
        };
        self.console.line(&format!(
            "  message {number:>4}   written at offset {}, {lost}{forgotten}\n                 sent again: {again}",
            delivery.written
        ))?;
        Ok(())
    }

    async fn tally(&mut self) -> Result<Tally, DemoError> {
        let (without, with) = (
            self.without.read_back().await?,
            self.with.read_back().await?,
        );
        Ok(Tally {
            sent: self.sent,
            retried: self.retried,
            forgotten: self.forgotten,
            absorbed: absorbed(&self.metrics),
            written: [without.written, with.written],
            duplicates: [without.duplicates, with.duplicates],
        })
    }

    fn print(&self, tally: &Tally) -> Result<(), DemoError> {
        let head =
            "                    sent   retried   absorbed   written   duplicates in the log";
        self.console.line(&self.console.tone(Tone::Strong, head))?;
        let absorbed = ["-".to_owned(), tally.absorbed.to_string()];
        for (at, way) in ["without hapax", "with hapax"].into_iter().enumerate() {
            let duplicates = format!("{:>24}", tally.duplicates[at]);
            let tone = if tally.duplicates[at] == 0 {
                Tone::Good
            } else {
                Tone::Bad
            };
            self.console.line(&format!(
                "  {way:<16}{:>6}{:>10}{:>11}{:>10}{}",
                tally.sent,
                tally.retried,
                absorbed[at],
                tally.written[at],
                self.console.tone(tone, &duplicates)
            ))?;
        }
        Ok(())
    }

    /// Whether every number of the tally follows from the others; says which
    /// does not.
    fn agrees(&self, tally: &Tally) -> bool {
        let [without, with] = tally.written;
        let sums = [
            ("absorbed is not retried", tally.absorbed, tally.retried),
            ("written with hapax is not sent", with, tally.sent),
            ("duplicates with hapax", tally.duplicates[1], 0),
            (
                "written without hapax",
                without,
                tally.sent + tally.forgotten,
            ),
            (
                "duplicates without hapax",
                tally.duplicates[0],
                tally.forgotten,
            ),
        ];
        let mut wrong = sums
            .iter()
            .filter(|(_, found, wanted)| found != wanted)
            .peekable();
        let agrees = wrong.peek().is_none();
        for (what, found, wanted) in wrong {
            tracing::error!(what, found, wanted, "the demo's sums do not agree");
        }
        agrees
    }
}

/// How many batches of the demo hapax says that it has absorbed.
fn absorbed(metrics: &Metrics) -> u64 {
    let text = String::from_utf8(metrics.render()).unwrap_or_default();
    let series =
        format!("hapax_produce_batches_total{{topic=\"{TOPIC}\",verdict=\"duplicate_absorbed\"}} ");
    let mut lines = text.lines();
    let value = lines.find_map(|line| line.strip_prefix(&series)?.parse().ok());
    value.unwrap_or(0)
}
