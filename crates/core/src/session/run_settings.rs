//! The settings of a session that apply to one of its runs.

use super::settings::Settings;
use crate::run::Run;

impl Run {
    /// Returns the settings that apply to it, if these are its session's.
    pub fn effective_settings(&self, of_session: &Settings) -> Settings {
        let mut settings = of_session.clone();
        if let Some(model) = &self.run_metadata().model {
            settings.model = Some(model.clone());
        }
        if let Some(level) = &self.run_metadata().thinking {
            settings.thinking = Some(level.clone());
        }
        settings
    }
}
