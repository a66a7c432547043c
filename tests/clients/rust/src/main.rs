//! The Rust clients of the tests; `tests/clients/README.md` has the command
//! line and the output. A first word, `rdkafka` or `rskafka`, says which.

mod with_rdkafka;
mod with_rskafka;

use std::collections::HashMap;
use std::error::Error;

type Failure = Box<dyn Error>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failure> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [client, operation, rest @ ..] = words.as_slice() else {
        return Err("a client and an operation are missing".into());
    };
    let options = Options::of(rest);
    match (client.as_str(), operation.as_str()) {
        ("rdkafka", "produce") => with_rdkafka::produce(&options).await,
        ("rdkafka", "transact") => with_rdkafka::transact(&options).await,
        ("rdkafka", "consume") => with_rdkafka::consume(&options).await,
        ("rskafka", "produce") => with_rskafka::produce(&options).await,
        _ => Err(format!("{client} has no operation {operation}").into()),
    }
}

/// The options by name; a flag has the value `true`.
struct Options(HashMap<String, String>);

impl Options {
    fn of(words: &[String]) -> Self {
        let mut options = HashMap::new();
        let mut words = words.iter().peekable();
        while let Some(name) = words.next() {
            let value = words.next_if(|next| !next.starts_with("--"));
            let value = value.map_or("true", String::as_str);
            options.insert(name.trim_start_matches("--").to_owned(), value.to_owned());
        }
        Self(options)
    }

    fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    fn is_idempotent(&self) -> bool {
        self.0
            .get("idempotence")
            .is_none_or(|value| value == "true")
    }

    fn text(&self, name: &str) -> Result<&str, Failure> {
        let value = self.0.get(name).map(String::as_str);
        value.ok_or_else(|| format!("--{name} is missing").into())
    }

    fn number(&self, name: &str, otherwise: u64) -> Result<u64, Failure> {
        Ok(match self.0.get(name) {
            Some(value) => value.parse()?,
            None => otherwise,
        })
    }

    /// The records to be produced, each with its partition.
    fn records(&self) -> Result<Vec<(u64, i32)>, Failure> {
        let first = self.number("first", 0)?;
        let partitions = self.number("partitions", 1)?;
        (first..first + self.number("count", 0)?)
            .map(|n| Ok((n, i32::try_from(n % partitions)?)))
            .collect()
    }
}

fn line(members: &serde_json::Value) {
    println!("{members}");
}
