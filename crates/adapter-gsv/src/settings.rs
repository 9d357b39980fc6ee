//! Tree of settings, as the parts of the adapter read it, and changes of it. Source: docs/protocol/gsv.md, Settings.

mod secrets;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use countersign_config::Config;
use countersign_core::{
    digest::Digest as Known,
    engine::{Command, Event, RecordedFact},
    id::PrincipalId,
    schedule::Zone,
    session::{
        CompactionThresholds, CompactionTiming, DenialReach, ModelRef, RenewalMode, RenewalSettings, RetryPolicy,
        SessionProfile, Settings as SessionSettings,
    },
    settings::{self, SettingsPath, State},
};
use countersign_protocol::gsv::{
    GsvError, code,
    directive::ModelSelector,
    key::{DmScope, SessionKeyScheme, agent_id},
    settings::{self as wire, ConfigSetParams, GsvSettingChange, MASK, default_settings, merge_trees, put_value},
};
use countersign_runtime::{InboxLane, OwnerError, OwnerHandle};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

use super::GsvContext;

use secrets::SecretsFile;

pub(crate) use secrets::SecretsError;

/// Longest wait of a call that has not started for its node to come back.
const AWAY: Duration = Duration::from_secs(5);

/// Settings in force.
pub(super) struct GsvSettings {
    /// Defaults, and the values of the configuration.
    base: Value,
    /// Token `clients.token` of the configuration; `auth.token` takes precedence.
    token: Option<SecretString>,
    /// True if the adapter serves only this machine while no token is required.
    is_loopback: bool,
    secrets: Arc<SecretsFile>,
    now: ArcSwap<CurrentSettings>,
    /// Lock for reads of the record: the last reader brings its state into force last.
    reading: tokio::sync::Mutex<()>,
    /// Lock for changes: each is checked with the earlier ones in force.
    changing: tokio::sync::Mutex<()>,
}

/// Current settings.
#[derive(Default)]
struct CurrentSettings {
    set: State,
    tree: Arc<Value>,
    secrets: BTreeMap<SettingsPath, SecretString>,
}

/// Returns a path that is a literal in this program.
fn path_of(text: &str) -> Option<SettingsPath> {
    SettingsPath::from_names(text.split('.').map(str::to_owned))
}

/// Returns a random token that no peer has.
fn random_token() -> SecretString {
    let two = [uuid::Uuid::new_v4(), uuid::Uuid::new_v4()];
    two.map(|one| one.simple().to_string()).concat().into()
}

/// Path of the token that peers must show.
const TOKEN: &str = "auth.token";

impl GsvSettings {
    /// Returns the settings of a gateway with this configuration, without values that users set: [`GsvSettings::refresh`] has to follow.
    ///
    /// # Errors
    /// If stored secrets cannot be read.
    pub(super) fn from_config(config: &Config) -> Result<Self, SecretsError> {
        let mut base = default_settings();
        if let Some(model) = &config.model {
            base["model"]["provider"] = model.provider.as_str().into();
            base["model"]["id"] = model.id.as_str().into();
        }
        let now = CurrentSettings { tree: Arc::new(base.clone()), ..CurrentSettings::default() };
        Ok(Self {
            base,
            token: config.clients.clone(),
            is_loopback: config.gateway.is_loopback(),
            secrets: Arc::new(SecretsFile::open(&config.storage.folder)?),
            now: ArcSwap::from_pointee(now),
            reading: tokio::sync::Mutex::default(),
            changing: tokio::sync::Mutex::default(),
        })
    }

    /// Returns the whole tree, with defaults. Secrets are [`MASK`] in it.
    pub(super) fn tree(&self) -> Arc<Value> {
        Arc::clone(&self.now.load().tree)
    }

    /// Returns a secret that was set, such as `apiKeys.anthropic`.
    pub(super) fn secret_at(&self, path: &str) -> Option<SecretString> {
        self.now.load().secrets.get(&path_of(path)?).cloned()
    }

    /// Returns the token that peers must show. `None` if any token or none will do.
    pub(super) fn peer_token(&self) -> Option<SecretString> {
        let is_set = self.tree()["auth"]["token"].is_string();
        // A token that was set and is not in the file any more opens nothing.
        let set = is_set.then(|| self.secret_at(TOKEN).unwrap_or_else(random_token));
        set.or_else(|| self.token.clone())
    }

    /// Sets a value over the wire. It counts once this returns. `on_other_token` is called if
    /// peers must show another token since, also if it is not known whether that was recorded.
    ///
    /// # Errors
    /// 400 for an unknown setting or an invalid value; 500 if it was not recorded.
    pub(super) async fn set_value(
        &self,
        context: &GsvContext,
        by: PrincipalId,
        set: &ConfigSetParams,
        on_other_token: impl FnOnce(),
    ) -> Result<(), GsvError> {
        let GsvSettingChange { value, secrets } = GsvSettingChange::for_value(&set.path, &set.value)?;
        let path = SettingsPath::from_names(set.path.names().iter().cloned());
        let path = path.ok_or_else(|| GsvError::bad_request("path required"))?;
        let _turn = self.changing.lock().await;
        let own = |(path, secret): (wire::SettingPath, String)| {
            Some((SettingsPath::from_names(path.names().iter().cloned())?, secret))
        };
        let secrets: Vec<(SettingsPath, String)> = secrets.into_iter().filter_map(own).collect();
        self.check_change(&path, value.as_ref(), &secrets)?;
        let before = self.peer_token();
        let failed = |why: &dyn std::fmt::Display| GsvError::new(code::FAILED, why.to_string());
        let file = Arc::clone(&self.secrets);
        let kept =
            tokio::task::spawn_blocking(move || file.keep_secrets(secrets)).await.map_err(|error| failed(&error))?;
        let kept = kept.map_err(|error| failed(&error))?;
        let command = settings::Command::Set { by, path, value, secrets: kept };
        let result = context.handle.source(InboxLane::Request).send_command(Command::Settings(command)).await;
        // Also if it is not known whether it was recorded: the record decides.
        self.refresh(&context.handle).await.ok_or_else(|| failed(&"the gateway is closing"))?;
        let shown = |token: Option<SecretString>| token.map(|token| token.expose_secret().to_owned());
        if shown(self.peer_token()) != shown(before) {
            on_other_token();
        }
        self.forget_unused().await;
        match result {
            Ok(_) => Ok(()),
            Err(OwnerError::Refusal(refusal)) => Err(GsvError::bad_request(refusal.to_string())),
            Err(refused) => Err(failed(&refused)),
        }
    }

    /// Appends a text to a list of texts, if it is not in it. It counts once this returns.
    ///
    /// # Errors
    /// 500 if it was not recorded.
    pub(super) async fn add_item(
        &self,
        context: &GsvContext,
        by: PrincipalId,
        names: &[&str],
        item: &str,
    ) -> Result<(), GsvError> {
        let failed = |why: &dyn std::fmt::Display| GsvError::new(code::FAILED, why.to_string());
        let path = SettingsPath::from_names(names.iter().map(|name| (*name).to_owned()));
        let path = path.ok_or_else(|| GsvError::bad_request("path required"))?;
        let _turn = self.changing.lock().await;
        let command = settings::Command::Add { by, path, item: item.to_owned() };
        context
            .handle
            .source(InboxLane::Request)
            .send_command(Command::Settings(command))
            .await
            .map_err(|refused| failed(&refused))?;
        self.refresh(&context.handle).await.ok_or_else(|| failed(&"the gateway is closing"))
    }

    /// Decides whether a change leaves settings that a gateway can work with.
    fn check_change(
        &self,
        path: &SettingsPath,
        value: Option<&Value>,
        secrets: &[(SettingsPath, String)],
    ) -> Result<(), GsvError> {
        let secrets = secrets.iter().map(|(path, _)| (path.clone(), Known::hash_bytes(&[]))).collect();
        let by = PrincipalId::new("nobody");
        let mut next = self.now.load().set.clone();
        next.apply_event(&settings::Event::Set { by, path: path.clone(), value: value.cloned(), secrets });
        let tree = self.merged_tree(&next);
        let is_open = tree["auth"]["token"].is_null() && self.token.is_none();
        if is_open && !self.is_loopback {
            let what = "without a token nobody may connect from another machine, and this gateway serves them";
            return Err(GsvError::bad_request(format!("Invalid value for {path}: {what}")));
        }
        let agents = tree["agents"]["list"].as_array().into_iter().flatten().enumerate();
        let of_agents = agents.map(|(place, agent)| {
            let path = format!("agents.list.{place}.heartbeat.activeHours.timezone");
            (path, &agent["heartbeat"]["activeHours"]["timezone"])
        });
        let usual = &tree["agents"]["defaultHeartbeat"]["activeHours"]["timezone"];
        let zones = [
            ("userTimezone".to_owned(), &tree["userTimezone"]),
            ("agents.defaultHeartbeat.activeHours.timezone".to_owned(), usual),
        ];
        for (path, zone) in zones.into_iter().chain(of_agents) {
            if zone.as_str().is_some_and(|name| name.parse::<Zone>().is_err()) {
                let what = "a time zone such as Europe/Berlin is wanted";
                return Err(GsvError::bad_request(format!("Invalid value for {path}: {what}")));
            }
        }
        Ok(())
    }

    /// Merges the values that users set over the defaults.
    fn merged_tree(&self, set: &State) -> Value {
        let mut over = Value::Object(set.tree().clone());
        for (path, _) in set.secrets() {
            if let Ok(path) = wire::SettingPath::from_text(&path.to_string()) {
                put_value(&mut over, &path, &Value::from(MASK));
            }
        }
        merge_trees(&self.base, &over)
    }

    /// Brings the state of the record into force. `None` if the gateway closes.
    pub(super) async fn refresh(&self, handle: &OwnerHandle) -> Option<()> {
        let _turn = self.reading.lock().await;
        let (set, _) = handle.source(InboxLane::Request).read_state(|engine| engine.state().settings().clone()).await?;
        let secrets = set.secrets().filter_map(|(path, digest)| {
            let secret = self.secrets.get(path, digest);
            if secret.is_none() {
                tracing::warn!(%path, "a secret is missing from secrets.yaml: set it again");
            }
            Some((path.clone(), secret?))
        });
        let now = CurrentSettings { secrets: secrets.collect(), tree: Arc::new(self.merged_tree(&set)), set };
        self.now.store(Arc::new(now));
        Some(())
    }

    /// Removes secrets from their file that the record does not name any more. Not while one is about to be recorded.
    async fn forget_unused(&self) {
        let set: BTreeMap<SettingsPath, Known> =
            self.now.load().set.secrets().map(|(path, digest)| (path.clone(), digest)).collect();
        let file = Arc::clone(&self.secrets);
        let named = move |path: &SettingsPath, digest| set.get(path) == Some(&digest);
        let done = tokio::task::spawn_blocking(move || file.keep_only(named)).await;
        if let Ok(Err(error)) = done {
            tracing::warn!(%error, "failed to remove unused secrets from secrets.yaml");
        }
    }

    /// Brings the settings into force, and follows changes made by others than [`GsvSettings::set_value`]. `None` if the gateway closes.
    pub(super) async fn follow_changes(self: &Arc<Self>, handle: &OwnerHandle) -> Option<()> {
        let of_settings =
            |recorded: &Arc<RecordedFact>| matches!(recorded.fact.event, Event::Settings(_)).then_some(());
        let mut changes = handle.follow_facts(of_settings).await?;
        self.refresh(handle).await?;
        self.forget_unused().await;
        let (settings, handle) = (Arc::clone(self), handle.clone());
        tokio::spawn(async move {
            while let Some(()) = changes.next().await {
                if settings.refresh(&handle).await.is_none() {
                    return;
                }
            }
        });
        Some(())
    }

    /// Reports whether a peer may connect that shows this token, or none.
    pub(super) fn trusts_token(&self, shown: Option<&str>) -> bool {
        let Some(token) = self.peer_token() else { return true };
        let digest = |text: &str| -> [u8; 32] { Sha256::digest(text.as_bytes()).into() };
        let is_it = digest(token.expose_secret()).ct_eq(&digest(shown.unwrap_or_default()));
        bool::from(is_it) && shown.is_some()
    }

    /// Returns the agent that is used where none is named.
    pub(super) fn default_agent(&self) -> String {
        let tree = self.tree();
        let listed = tree["agents"]["list"].as_array().into_iter().flatten();
        let chosen = listed.clone().find(|agent| agent["default"] == true).or_else(|| listed.clone().next());
        chosen.and_then(|agent| agent["id"].as_str()).map_or_else(|| "main".to_owned(), agent_id)
    }

    /// Returns the scheme of session keys.
    pub(super) fn key_scheme(&self) -> SessionKeyScheme {
        let tree = self.tree();
        let session = &tree["session"];
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let links = session["identityLinks"].as_object().into_iter().flatten();
        let identities: BTreeMap<String, Vec<String>> = links
            .map(|(name, ids)| (name.clone(), ids.as_array().into_iter().flatten().filter_map(text).collect()))
            .collect();
        SessionKeyScheme {
            agent: self.default_agent(),
            main_key: text(&session["mainKey"]).unwrap_or_else(|| "main".to_owned()),
            scope: session["dmScope"].as_str().and_then(DmScope::from_name).unwrap_or_default(),
            identities,
        }
    }

    /// Returns the longest time in which a model may send nothing.
    pub(super) fn silence_timeout(&self) -> Duration {
        Duration::from_millis(self.tree()["timeouts"]["llmMs"].as_u64().unwrap_or(300_000))
    }

    /// Returns the time zone of the users.
    pub(super) fn user_zone(&self) -> Zone {
        self.tree()["userTimezone"].as_str().and_then(|name| name.parse().ok()).unwrap_or(Zone::UTC)
    }

    /// Returns the model of sessions that have none of their own.
    pub(super) fn default_model(&self) -> ModelSelector {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let model = &self.tree()["model"];
        ModelSelector { provider: text(&model["provider"]), id: text(&model["id"]) }
    }

    /// Returns the model of an agent's sessions that have none of their own.
    pub(super) fn agent_model(&self, agent: &str) -> ModelSelector {
        let usual = self.default_model();
        let tree = self.tree();
        let listed = tree["agents"]["list"].as_array().into_iter().flatten();
        let mut its = listed.filter(|listed| listed["id"].as_str().is_some_and(|id| agent_id(id) == agent));
        let Some(model) = its.next().map(|listed| &listed["model"]) else { return usual };
        let text = |value: &Value| value.as_str().map(str::to_owned);
        ModelSelector {
            provider: text(&model["provider"]).unwrap_or(usual.provider),
            id: text(&model["id"]).unwrap_or(usual.id),
        }
    }

    /// Returns a model as the engine knows it. An unknown one is used all the same, and its run fails with that.
    pub(super) fn model_ref(&self, context: &GsvContext, model: &ModelSelector) -> ModelRef {
        let found = context.chats.models().find_known(&model.provider, &model.id);
        found.unwrap_or_else(|| ModelRef {
            provider: model.provider.clone(),
            id: model.id.clone(),
            context_window: 128_000,
            max_tokens: 8192,
            price: None,
        })
    }

    /// Returns the renewal rule of new sessions.
    pub(super) fn default_renewal(&self) -> RenewalSettings {
        let tree = self.tree();
        let policy = &tree["session"]["defaultResetPolicy"];
        let mode = match policy["mode"].as_str() {
            Some("daily") => RenewalMode::Daily,
            Some("idle") => RenewalMode::Idle,
            _ => RenewalMode::Manual,
        };
        let hour = policy["atHour"].as_u64().and_then(|hour| u8::try_from(hour).ok());
        let minutes = policy["idleMinutes"].as_u64().and_then(|minutes| u32::try_from(minutes).ok());
        RenewalSettings { mode, hour, minutes }
    }

    /// Returns the settings of a new session of an agent.
    pub(super) fn session_settings(&self, context: &GsvContext, agent: &str) -> SessionSettings {
        let tree = self.tree();
        let compaction = &tree["compaction"];
        let usual = SessionSettings::default();
        let thresholds = CompactionThresholds {
            auto: compaction["enabled"].as_bool().unwrap_or(true),
            reserve: compaction["reserveTokens"].as_u64().unwrap_or(usual.thresholds.reserve),
            keep_recent: compaction["keepRecentTokens"].as_u64().unwrap_or(usual.thresholds.keep_recent),
            ..usual.thresholds
        };
        SessionSettings {
            // A client gets a failure after all attempts: their waits take seven seconds together.
            retry: RetryPolicy { max: 3, base: Duration::from_secs(1), ..context.config.retry_policy() },
            model: Some(self.model_ref(context, &self.agent_model(agent))),
            thinking: tree["model"]["thinkingLevel"].as_str().map(str::to_owned),
            thresholds,
            approval_timeout: context.config.approval_timeout,
            clarify_timeout: context.config.clarify_timeout,
            profile: SessionProfile { renewal: Some(self.default_renewal()), ..SessionProfile::default() },
            sums: CompactionTiming::BeforeRuns,
            // Sessions are chats of different people: none is denied what somebody refused in another.
            denials: DenialReach::Session,
            peer_timeout: AWAY,
            ..usual
        }
    }

    /// Reports whether runs of an agent have the tools of the gateway's MCP servers.
    pub(super) fn uses_servers(&self, agent: &str) -> bool {
        let tree = self.tree();
        let listed = tree["agents"]["list"].as_array().into_iter().flatten();
        let mut its = listed.filter(|listed| listed["id"].as_str().is_some_and(|id| agent_id(id) == agent));
        its.any(|listed| listed["mcp"] == true)
    }

    /// Returns an agent's text in place of the default beginning of the prompt, if it is set.
    pub(super) fn own_prompt(&self, agent: &str) -> Option<String> {
        let tree = self.tree();
        let listed = tree["agents"]["list"].as_array().into_iter().flatten();
        let mut its = listed.filter(|listed| listed["id"].as_str().is_some_and(|id| agent_id(id) == agent));
        let own = its.find_map(|listed| listed["systemPrompt"].as_str());
        own.or_else(|| tree["systemPrompt"].as_str()).map(str::to_owned)
    }

    /// Returns the longest time of a node's tool.
    pub(super) fn tool_timeout(&self) -> Duration {
        Duration::from_millis(self.tree()["timeouts"]["toolMs"].as_u64().unwrap_or(60_000))
    }
}
