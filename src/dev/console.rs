//! What `hapax dev` prints: plain words, and colours where someone looks.

use std::env;
use std::io::{self, IsTerminal, Write};

/// Standard output.
#[derive(Clone, Copy)]
pub(super) struct Console {
    colour: bool,
}

/// What a word means.
#[derive(Clone, Copy)]
pub(super) enum Tone {
    /// Look here.
    Strong,
    /// As it should be.
    Good,
    /// As it should not be.
    Bad,
    /// For those who want to know more.
    Faint,
}

impl Console {
    pub(super) fn new() -> Self {
        let plain = |name, value: &str| env::var(name).is_ok_and(|found| found == value);
        let refused = env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Self {
            colour: io::stdout().is_terminal() && !refused && !plain("TERM", "dumb"),
        }
    }

    pub(super) fn line(self, text: &str) -> io::Result<()> {
        let mut out = io::stdout().lock();
        writeln!(out, "{text}")?;
        out.flush()
    }

    /// A text in its tone, where colours are shown.
    pub(super) fn tone(self, tone: Tone, text: &str) -> String {
        let code = match tone {
            Tone::Strong => "1",
            Tone::Good => "32",
            Tone::Bad => "33",
            Tone::Faint => "2",
        };
        if self.colour {
            format!("\x1b[{code}m{text}\x1b[0m")
        } else {
            text.to_owned()
        }
    }
}
