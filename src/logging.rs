//! Where log lines go and how they look.
//!
//! A message is constant text and its data is in fields. Keys, values and
//! credentials are never logged.

use std::env;
use std::io::{self, IsTerminal};

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
    let subscriber = subscriber(look, filter(&config.level), io::stderr);
    // Fails only when a test has set one already.
    let _ = tracing::dispatcher::set_global_default(subscriber);
}

#[derive(Clone, Copy)]
enum Look {
    Json,
    Text,
    Colour,
}

fn filter(level: &str) -> EnvFilter {
    EnvFilter::builder().parse_lossy(level)
}

fn subscriber<W>(look: Look, filter: EnvFilter, writer: W) -> tracing::Dispatch
where
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    let lines = fmt().with_env_filter(filter).with_writer(writer);
    match look {
        Look::Json => lines
            .json()
            .flatten_event(true)
            .with_span_list(false)
            .finish()
            .into(),
        Look::Text => lines.with_ansi(false).finish().into(),
        Look::Colour => lines.with_ansi(true).finish().into(),
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
        let subscriber = subscriber(look, filter(level), move || writer.clone());
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
    fn the_level_filters() {
        assert_eq!(lines_of(Look::Json, "error", record_gap), "");
    }
}
