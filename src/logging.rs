//! Where log lines go and how they look.
//!
//! A message is constant text and its data is in fields. Keys, values and
//! credentials are never logged.

use std::env;
use std::io::{self, IsTerminal};

use std::sync::{Mutex, OnceLock, PoisonError};

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::{MakeWriter, fmt};

use crate::config::{LogConfig, LogFormat};

/// Sends the log of this process to standard error. Called once.
pub fn init(config: &LogConfig) {
    let terminal = io::stderr().is_terminal();
    let colour = terminal && env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let text = match config.format {
        LogFormat::Auto => terminal,
        LogFormat::Text => true,
        LogFormat::Json => false,
    };
    let look = match (text, colour) {
        (false, _) => Look::Json,
        (true, false) => Look::Text,
        (true, true) => Look::Colour,
    };
    let (subscriber, change) = subscriber(look, filter(&config.level), io::stderr);
    // Fails only when a test has set one already.
    if tracing::dispatcher::set_global_default(subscriber).is_ok() {
        let level = Mutex::new(config.level.clone());
        LEVEL.get_or_init(|| Level { level, change });
    }
}

/// What is logged now: a level, or directives; empty where nothing is.
pub fn level() -> String {
    let level = LEVEL.get().map(|known| &known.level);
    let level = level.map(|level| level.lock().unwrap_or_else(PoisonError::into_inner));
    level.map(|level| level.clone()).unwrap_or_default()
}

/// Logs by this level, or these directives, from now on. Which ones there are
/// [`crate::config::parse_level`] says.
pub fn set_level(level: &str) {
    let Some(known) = LEVEL.get() else { return };
    let mut shown = known.level.lock().unwrap_or_else(PoisonError::into_inner);
    (known.change)(filter(level));
    level.clone_into(&mut shown);
}

/// Changes what the log of this process lets through.
static LEVEL: OnceLock<Level> = OnceLock::new();

struct Level {
    level: Mutex<String>,
    change: Change,
}

type Change = Box<dyn Fn(EnvFilter) + Send + Sync>;

#[derive(Clone, Copy)]
enum Look {
    Json,
    Text,
    Colour,
}

fn filter(level: &str) -> EnvFilter {
    EnvFilter::builder().parse_lossy(level)
}

/// What writes lines, and what changes its filter.
fn subscriber<W>(look: Look, filter: EnvFilter, writer: W) -> (tracing::Dispatch, Change)
where
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    let lines = fmt().with_env_filter(filter).with_writer(writer);
    // Each kind of line has a handle of a type of its own.
    macro_rules! finish {
        ($lines:expr) => {{
            let lines = $lines.with_filter_reloading();
            let handle = lines.reload_handle();
            let change: Change = Box::new(move |filter| {
                // Fails only when the subscriber is gone, and with it the log.
                let _ = handle.reload(filter);
            });
            (lines.finish().into(), change)
        }};
    }
    match look {
        Look::Json => finish!(lines.json().flatten_event(true).with_span_list(false)),
        Look::Text => finish!(lines.with_ansi(false)),
        Look::Colour => finish!(lines.with_ansi(true)),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::events::{Event, Events, Kind};
    use crate::ids::ProducerId;
    use crate::metrics::{GapKind, Metrics};

    #[derive(Clone, Default)]
    struct Buffer(Arc<Mutex<Vec<u8>>>);

    impl Write for Buffer {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn lines_of(look: Look, level: &str, log: impl FnOnce()) -> String {
        let buffer = Buffer::default();
        let writer = buffer.clone();
        let (subscriber, _) = subscriber(look, filter(level), move || writer.clone());
        tracing::dispatcher::with_default(&subscriber, log);
        let bytes = buffer.0.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap()
    }

    fn record_gap() {
        let events = Events::new(&Metrics::new(1));
        events.record(Event {
            producer: ProducerId::from_wire(7),
            client_id: Some("\u{1b}[31mred\nnew line".into()),
            missing: Some(2),
            ..Event::new(Kind::Gap(GapKind::NeverSeen))
        });
    }

    #[test]
    fn an_event_is_one_json_object_with_a_constant_message() {
        let line = lines_of(Look::Json, "info", record_gap);
        let line: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(line["message"], "gap in a sequence");
        assert_eq!(line["level"], "WARN");
        assert_eq!(line["event"], "gap");
        assert_eq!(line["kind"], "never_seen");
        assert_eq!(line["producer_id"], 7);
        assert_eq!(line["missing"], 2);
        assert_eq!(line.get("epoch"), None);
    }

    #[test]
    fn what_a_client_sends_cannot_forge_a_line() {
        let line = lines_of(Look::Text, "info", record_gap);
        assert_eq!(line.matches('\n').count(), 1);
        assert!(!line.contains('\u{1b}'), "{line}");
    }

    #[test]
    fn the_level_changes_while_it_logs() {
        let buffer = Buffer::default();
        let writer = buffer.clone();
        let (subscriber, change) = subscriber(Look::Json, filter("error"), move || writer.clone());
        let lines = || {
            let bytes = buffer.0.lock().unwrap();
            bytes.iter().filter(|byte| **byte == b'\n').count()
        };
        tracing::dispatcher::with_default(&subscriber, || {
            record_gap();
            assert_eq!(lines(), 0);
            change(filter("warn"));
            record_gap();
            assert_eq!(lines(), 1);
            change(filter("error,hapax::events=info"));
            record_gap();
            assert_eq!(lines(), 2);
            change(filter("error"));
            record_gap();
            assert_eq!(lines(), 2);
        });
    }

    #[test]
    fn the_level_filters() {
        assert_eq!(lines_of(Look::Json, "error", record_gap), "");
    }
}
