//! The tree of settings, as the parts of the door read it.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use countersign_core::{
    schedule::Zone,
    session::{ModelRef, Profile, Renewal, RenewalMode, Settings as SessionSettings, Sums, Thresholds},
};
use countersign_protocol::gsv::{
    directive::Model,
    key::{DmScope, Keys, agent_id},
    settings::defaults,
};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

use crate::{config::Config, site::Site};

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

    /// The agent that is meant where none is named.
    pub(super) fn agent(&self) -> String {
        let tree = self.tree();
        let listed = tree["agents"]["list"].as_array().into_iter().flatten();
        let chosen = listed.clone().find(|agent| agent["default"] == true).or_else(|| listed.clone().next());
        chosen.and_then(|agent| agent["id"].as_str()).map_or_else(|| "main".to_owned(), agent_id)
    }

    /// How keys of sessions are made.
    pub(super) fn keys(&self) -> Keys {
        let tree = self.tree();
        let session = &tree["session"];
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let links = session["identityLinks"].as_object().into_iter().flatten();
        let identities: BTreeMap<String, Vec<String>> = links
            .map(|(name, ids)| (name.clone(), ids.as_array().into_iter().flatten().filter_map(text).collect()))
            .collect();
        Keys {
            agent: self.agent(),
            main_key: text(&session["mainKey"]).unwrap_or_else(|| "main".to_owned()),
            scope: session["dmScope"].as_str().and_then(DmScope::named).unwrap_or_default(),
            identities,
        }
    }

    /// The zone of the clock that people live by.
    pub(super) fn zone(&self) -> Zone {
        self.tree()["userTimezone"].as_str().and_then(|name| name.parse().ok()).unwrap_or(Zone::UTC)
    }

    /// The model of sessions that have none of their own.
    pub(super) fn model(&self) -> Model {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let model = &self.tree()["model"];
        Model { provider: text(&model["provider"]), id: text(&model["id"]) }
    }

    /// A model as the engine knows it. One that there is not is asked for all the same, and its run says so.
    pub(super) fn reference(&self, site: &Site, model: &Model) -> ModelRef {
        let found = site.chats.models().find(Some(&model.provider), &model.id);
        found.unwrap_or_else(|| ModelRef {
            provider: model.provider.clone(),
            id: model.id.clone(),
            context_window: 128_000,
            max_tokens: 8192,
            price: None,
        })
    }

    /// When new sessions begin anew by themselves.
    pub(super) fn renewal(&self) -> Renewal {
        let tree = self.tree();
        let policy = &tree["session"]["defaultResetPolicy"];
        let mode = match policy["mode"].as_str() {
            Some("daily") => RenewalMode::Daily,
            Some("idle") => RenewalMode::Idle,
            _ => RenewalMode::Manual,
        };
        let hour = policy["atHour"].as_u64().and_then(|hour| u8::try_from(hour).ok());
        let minutes = policy["idleMinutes"].as_u64().and_then(|minutes| u32::try_from(minutes).ok());
        Renewal { mode, hour, minutes }
    }

    /// What is set for a session that is opened.
    pub(super) fn of_session(&self, site: &Site) -> SessionSettings {
        let tree = self.tree();
        let compaction = &tree["compaction"];
        let usual = SessionSettings::default();
        let thresholds = Thresholds {
            auto: compaction["enabled"].as_bool().unwrap_or(true),
            reserve: compaction["reserveTokens"].as_u64().unwrap_or(usual.thresholds.reserve),
            keep_recent: compaction["keepRecentTokens"].as_u64().unwrap_or(usual.thresholds.keep_recent),
            ..usual.thresholds
        };
        SessionSettings {
            model: Some(self.reference(site, &self.model())),
            thinking: tree["model"]["thinkingLevel"].as_str().map(str::to_owned),
            thresholds,
            approval_timeout: site.config.approval_timeout,
            clarify_timeout: site.config.clarify_timeout,
            profile: Profile { renewal: Some(self.renewal()), ..Profile::default() },
            sums: Sums::BeforeRuns,
            ..usual
        }
    }

    /// How long a tool of a node may take.
    pub(super) fn tool_timeout(&self) -> Duration {
        Duration::from_millis(self.tree()["timeouts"]["toolMs"].as_u64().unwrap_or(60_000))
    }
}
