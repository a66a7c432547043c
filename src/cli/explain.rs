//! `hapax explain`.

use std::io;
use std::process::ExitCode;

use clap::Args;

use super::write_output;
use crate::explain;

/// `hapax explain`.
#[derive(Args, Clone, Debug)]
pub struct ExplainArgs {
    /// An error code, a name of Kafka, of a client or of hapax, or a line of a log. Without it:
    /// a list.
    #[arg(value_name = "CODE|NAME", allow_negative_numbers = true)]
    what: Vec<String>,
    /// Print JSON, one object a line.
    #[arg(long)]
    json: bool,
}

impl ExplainArgs {
    /// Prints what is asked for; 64 when nothing has that name.
    pub fn run(&self) -> ExitCode {
        match self.answer() {
            Ok(answer) => match write_output(&mut io::stdout(), answer.as_bytes()) {
                Ok(()) => ExitCode::SUCCESS,
                Err(error) => {
                    eprintln!("hapax: cannot print: {error}");
                    ExitCode::FAILURE
                }
            },
            Err(unknown) => {
                eprintln!("hapax: {unknown}");
                ExitCode::from(USAGE)
            }
        }
    }

    fn answer(&self) -> Result<String, explain::Unknown> {
        // A shell's empty variable asks for no more than nothing does.
        if self.what.iter().all(|word| word.trim().is_empty()) {
            let list = if self.json {
                explain::list_json()
            } else {
                explain::list()
            };
            return Ok(list);
        }
        let entry = explain::find(&self.what.join(" "))?;
        Ok(if self.json {
            explain::json(entry) + "\n"
        } else {
            explain::text(entry)
        })
    }
}

/// `EX_USAGE` of sysexits.h.
const USAGE: u8 = 64;
