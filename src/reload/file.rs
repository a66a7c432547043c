//! The configuration file.

use super::{Changes, Fault, Reloadable};
use crate::config::settings::Setting;
use crate::config::{Config, LogConfig};
use crate::logging;
use crate::session::Shared;
use crate::window::Rules;
use std::path::PathBuf;
use std::sync::Arc;

/// The `--config` file. It is used as a whole or not at all, so that what holds
/// is never half of one file and half of another.
pub struct ConfigFile {
    shared: Arc<Shared>,
    /// The file, where there is one that can be read twice.
    path: Option<PathBuf>,
}

impl ConfigFile {
    /// That which the process has read.
    #[must_use]
    pub fn new(shared: &Arc<Shared>) -> Self {
        let path = shared.config.settings.path();
        // What a pipe has said it does not say again.
        let path = path.filter(|path| path.is_file());
        Self {
            shared: Arc::clone(shared),
            path: path.map(Into::into),
        }
    }

    fn apply(&self, before: &Config, config: Config) -> Result<(), Fault> {
        let rules = Rules {
            ttl: config.sequence.ttl,
            absorb_transactional: config.sequence.absorb_transactional,
            shield45: config.sequence.shield45,
            ..*self.shared.ledger.rules()
        };
        if !self.shared.ledger.change_rules(rules) {
            let often = "sequence.ttl, sequence.absorbTransactional and sequence.shield45 have had too many values since the start".to_owned();
            return Err(Fault::Refused(vec![often]));
        }
        self.shared.metrics.name_topics(config.metrics_max_topics);
        let LogConfig { level, .. } = &config.log;
        // Otherwise what the API set stays.
        if *level != before.log.level {
            logging::set_level(level);
        }
        self.shared.change(config);
        Ok(())
    }
}

impl Reloadable for ConfigFile {
    fn name(&self) -> &'static str {
        "configuration"
    }

    fn files(&self) -> Vec<PathBuf> {
        self.path.iter().cloned().collect()
    }

    fn reload(&mut self) -> Result<Changes, Fault> {
        if self.path.is_none() {
            return Ok(Changes::new());
        }
        let before = self.shared.current();
        let (settings, errors) = before.settings.read_again();
        let invalid = |errors: Vec<String>| Fault::Invalid(errors);
        if !errors.is_empty() {
            return Err(invalid(errors.iter().map(ToString::to_string).collect()));
        }
        let config = settings.config();
        let config = config
            .map_err(|errors| invalid(errors.errors.iter().map(ToString::to_string).collect()))?;
        let changes: Vec<_> = before.settings.changes(&settings).collect();
        let fixed = changes
            .iter()
            .filter(|(_, after)| !after.key.changes_at_run_time());
        let fixed: Vec<_> = fixed
            .map(|(before, after)| refusal(before, after))
            .collect();
        if !fixed.is_empty() {
            return Err(Fault::Refused(fixed));
        }
        let changed = changes.iter().map(|(_, after)| after.key.path.to_owned());
        let changed = changed.collect();
        // What the start made of them, such as the port that the system gave.
        let config = Config {
            listen: before.listen,
            workers: before.workers,
            ..config
        };
        self.apply(&before, config)?;
        Ok(changed)
    }
}

fn refusal(before: &Setting, after: &Setting) -> String {
    let (was, is) = (before.value.to_yaml(), after.value.to_yaml());
    let (path, origin) = (after.key.path, &after.origin);
    format!("{path} is {is} ({origin}) and was {was}: restart hapax, or change it back")
}
