//! `hapax explain`.

use clap::Args;

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
    /// What is asked for.
    ///
    /// # Errors
    ///
    /// Where nothing has that name.
    pub fn answer(&self) -> Result<String, explain::Unknown> {
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
