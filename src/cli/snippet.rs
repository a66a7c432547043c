//! `hapax snippet`.

use clap::Args;

use crate::config::{HostPort, Mode};
use crate::snippet::{Form, IMAGE, Snippet};

/// Print the sidecar's container, for a chart that only takes containers: to
/// be pasted into its values. A chart of your own has the library chart
/// hapax-sidecar instead.
#[derive(Args, Clone, Debug)]
pub struct SnippetArgs {
    /// How hapax stands beside the application.
    #[arg(long, value_name = "FORM", value_enum, default_value_t = Form::Native)]
    pub form: Form,
    /// Bootstrap servers of the cluster.
    #[arg(
        long,
        env = "HAPAX_UPSTREAM",
        value_name = "HOST:PORT,…",
        value_delimiter = ',',
        required = true
    )]
    pub upstream: Vec<HostPort>,
    /// How far hapax may go with produce requests; observe is the first step
    /// of a rollout.
    #[arg(long, value_name = "NAME", value_enum)]
    pub mode: Option<Mode>,
    /// The image.
    #[arg(long, value_name = "IMAGE", default_value = IMAGE, value_parser = parse_image)]
    pub image: String,
}

impl SnippetArgs {
    /// The fragment.
    #[must_use]
    pub fn render(&self) -> String {
        let snippet = Snippet {
            form: self.form,
            upstream: &self.upstream,
            mode: self.mode,
            image: &self.image,
        };
        snippet.render()
    }
}

/// It becomes a text in quotes.
fn parse_image(text: &str) -> Result<String, String> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "._-/:@[]".contains(c);
    if text.is_empty() || !text.chars().all(allowed) {
        return Err(String::from(
            "give REPOSITORY, REPOSITORY:TAG or REPOSITORY@sha256:DIGEST",
        ));
    }
    Ok(text.to_owned())
}
