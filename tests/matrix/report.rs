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
    text += "A cell is one run direct and one through hapax (absorb) against one node: 300 records on three partitions \
        (transactions: three of ten, the second aborted), acknowledged, then read from the log by Kafka's own tool, \
        each once, in order, at the acknowledged offset, with or without producer id as it should be; committed records \
        by another client; groups read 300 records, and in a second run only the 30 that were added. A cell is `ok` when all that \
        holds both ways and hapax counted every batch as followed (plain: `untracked`) and nothing as a duplicate, a gap \
        or an error; the number is that of hapax's batches.\n\n";
    let _ = writeln!(text, "{BEGIN}\n{}{END}", table(cells));
    for kafka in KAFKAS {
        let _ = write!(text, "\n## Kafka {kafka}\n\n| client |");
        for operation in Operation::ALL {
            let _ = write!(text, " {} |", operation.name());
        }
        text += "\n|---|---|---|---|---|\n";
        for client in Client::ALL {
            let _ = write!(text, "| {} |", client.title());
            for operation in Operation::ALL {
                let _ = write!(text, " {} |", detail(find(cells, kafka, client, operation)));
            }
            text += "\n";
        }
    }
    text += "\n## Cells that fail both ways\n\n";
    let mut failing = cells.iter().filter(|cell| !cell.is_good()).peekable();
    if failing.peek().is_none() {
        text += "None.\n";
    }
    for cell in failing {
        let error = cell.direct.as_ref().err().map_or("", String::as_str);
        let _ = writeln!(
            text,
            "- {}, {}, Kafka {}: {} (`{}`)",
            cell.client.title(),
            cell.operation.name(),
            cell.kafka,
            cell.known().unwrap_or("no known reason"),
            error.replace('`', "'"),
        );
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

fn detail(cell: Option<&Cell>) -> String {
    match cell {
        None => "not offered".to_owned(),
        Some(cell) if cell.is_good() && cell.counted > 0 => format!("ok, {}", cell.counted),
        Some(cell) if cell.is_good() => "ok".to_owned(),
        Some(_) => "fails both ways".to_owned(),
    }
}

/// A row for each client, a column for each operation, in each cell the Kafkas.
fn table(cells: &[Cell]) -> String {
    let mut text =
        "| client | plain | idempotent | transactional | consumer group |\n|---|---|---|---|---|\n"
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
