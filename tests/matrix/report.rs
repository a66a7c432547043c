//! The results as Markdown: `tests/results/clients.md`, and its table in the README.

use std::fmt::Write;
use std::path::PathBuf;

use crate::cells::{Cell, KAFKAS};
use crate::programs::{Client, Operation, root};

const BEGIN: &str = "<!-- clients:begin -->";
const END: &str = "<!-- clients:end -->";

/// The file of results.
pub(crate) fn results_file() -> PathBuf {
    root().join("tests/results/clients.md")
}

/// The README.
pub(crate) fn readme_file() -> PathBuf {
    root().join("README.md")
}

/// All results; `head` says when and with what they were made.
pub(crate) fn results(head: &str, cells: &[Cell]) -> String {
    let mut text = format!("# Every client with every Kafka\n\n{head}\n\n");
    text += "Each cell is one run direct and one through hapax (absorb), against one node: 300 records on three partitions \
        (transactions: three of ten, the second aborted), acknowledged, then read from the log by Kafka's own tool: \
        each once, in order, at the acknowledged offset (kcat tells none), with or without producer id as it should be; \
        committed records by another client. Groups read 300 records, and in a second run only the 30 that were added. \
        A lost acknowledgement: a relay before Kafka, or before hapax, swallows the second answer to a Produce request \
        and cuts the connection (kcat ends with its last connection and is left out).\n\n\
        A cell is `ok` when all that holds both ways, hapax followed every batch (plain: counted it as `untracked`) and \
        saw no gap, no duplicate and no error beside the retries after a lost acknowledgement. The number: batches that hapax \
        followed; after a lost acknowledgement, retries that hapax answered itself. KafkaJS puts new timestamps on \
        a retry, which is then another batch with the same sequence numbers (`sequence_reuse`): hapax leaves it to the \
        broker. With a `timestamp` in each message its retries are absorbed.\n\n";
    let _ = writeln!(text, "{BEGIN}\n{}{END}", table(cells));
    for kafka in KAFKAS {
        let _ = write!(text, "\n## Kafka {kafka}\n\n| client |");
        for operation in Operation::ALL {
            let _ = write!(text, " {} |", operation.name());
        }
        text += "\n|---|---|---|---|---|---|\n";
        for client in Client::ALL {
            let _ = write!(text, "| {} |", client.title());
            for operation in Operation::ALL {
                let cell = find(cells, kafka, client, operation);
                let _ = match cell {
                    _ if !client.offers(operation) => write!(text, " not offered |"),
                    None => write!(text, " not run |"),
                    Some(cell) if !cell.is_good() => write!(text, " fails |"),
                    Some(_) if operation == Operation::Group => write!(text, " ok |"),
                    Some(cell) if is_left_to_broker(client, operation) => {
                        write!(text, " ok, {} by the broker |", cell.counted)
                    }
                    Some(cell) => write!(text, " ok, {} |", cell.counted),
                };
            }
            text += "\n";
        }
    }
    text
}

fn find<'a>(
    cells: &'a [Cell],
    kafka: &str,
    client: Client,
    operation: Operation,
) -> Option<&'a Cell> {
    cells
        .iter()
        .find(|cell| (cell.kafka, cell.client, cell.operation) == (kafka, client, operation))
}

/// Whether hapax cannot know a retry of this client, so that it is the broker
/// that answers it.
fn is_left_to_broker(client: Client, operation: Operation) -> bool {
    operation == Operation::LostAck && !client.repeats_bytes()
}

/// A row for each client, a column for each operation, in each cell the Kafkas.
fn table(cells: &[Cell]) -> String {
    let mut text =
        "| client | plain | idempotent | a lost acknowledgement | transactional | consumer group |\n|---|---|---|---|---|---|\n"
            .to_owned();
    for client in Client::ALL {
        let _ = write!(text, "| {} |", client.title());
        for operation in Operation::ALL {
            let good: Vec<&str> = KAFKAS
                .into_iter()
                .filter(|kafka| find(cells, kafka, client, operation).is_some_and(Cell::is_good))
                .collect();
            let _ = match (client.offers(operation), good.len() == KAFKAS.len()) {
                (false, _) => write!(text, " not offered |"),
                (true, true) if is_left_to_broker(client, operation) => {
                    write!(text, " all, by the broker |")
                }
                (true, true) => write!(text, " all |"),
                (true, false) if good.is_empty() => write!(text, " none |"),
                (true, false) => write!(text, " {} |", good.join(", ")),
            };
        }
        text += "\n";
    }
    text
}

/// What stands between the markers, markers included.
///
/// # Panics
/// Where they are not there once each.
#[track_caller]
pub(crate) fn block(text: &str) -> &str {
    let begin = text.find(BEGIN).expect("a begin marker");
    let end = text.find(END).expect("an end marker") + END.len();
    assert_eq!(text.matches(BEGIN).count() + text.matches(END).count(), 2);
    &text[begin..end]
}

/// The README with the table of the results.
pub(crate) fn with_block(readme: &str, results: &str) -> String {
    readme.replace(block(readme), block(results))
}
