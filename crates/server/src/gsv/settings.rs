//! The tree of settings, as the parts of the door read it.

use std::{sync::Arc, time::Duration};

use countersign_protocol::gsv::settings::defaults;
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

use crate::config::Config;

/// The settings that are in force.
pub(super) struct Settings {
    tree: Arc<Value>,
    /// `clients.token` of the configuration; `auth.token` goes before it.
    token: Option<SecretString>,
}

impl Settings {
    /// Those of a gateway with this configuration.
    pub(super) fn of(config: &Config) -> Self {
        let mut tree = defaults();
        if let Some(model) = &config.model {
            tree["model"]["provider"] = model.provider.as_str().into();
            tree["model"]["id"] = model.id.as_str().into();
        }
        Self { tree: Arc::new(tree), token: config.clients.clone() }
    }

    /// The whole tree, with what counts where nothing is set.
    pub(super) fn tree(&self) -> Arc<Value> {
        Arc::clone(&self.tree)
    }

    /// What peers have to show. `None` if any token or none will do.
    pub(super) fn token(&self) -> Option<SecretString> {
        let set = self.tree()["auth"]["token"].as_str().map(SecretString::from);
        set.or_else(|| self.token.clone())
    }

    /// Whether a peer may connect that shows this token, or none.
    pub(super) fn trusts(&self, shown: Option<&str>) -> bool {
        let Some(token) = self.token() else { return true };
        let digest = |text: &str| -> [u8; 32] { Sha256::digest(text.as_bytes()).into() };
        let is_it = digest(token.expose_secret()).ct_eq(&digest(shown.unwrap_or_default()));
        bool::from(is_it) && shown.is_some()
    }

    /// How long a tool of a node may take.
    pub(super) fn tool_timeout(&self) -> Duration {
        Duration::from_millis(self.tree()["timeouts"]["toolMs"].as_u64().unwrap_or(60_000))
    }
}
