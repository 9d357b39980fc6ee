//! What everything over HTTP works with: the record's owner, conversations, and who comes in.

use std::{path::PathBuf, sync::Arc};

use countersign_core::time::Millis;
use countersign_runtime::{Clock, Handle, services::Services};
use tokio::sync::Semaphore;

use crate::{
    agent_gate::Door,
    chats::Chats,
    policy_admin::{household::Household, rulebook::Rulebook},
    web::Auth,
};
use countersign_config::Config;
use countersign_telegram::Report;

/// One gateway, as its pages see it.
pub(crate) struct Site {
    /// The owner of the record.
    pub(crate) handle: Handle,
    /// The gateway's own conversations.
    pub(crate) chats: Chats,
    /// Who comes in.
    pub(crate) auth: Arc<Auth>,
    /// The time.
    pub(crate) clock: Clock,
    /// Since when it runs.
    pub(crate) started_at: Millis,
    /// What it was told.
    pub(crate) config: Arc<Config>,
    /// What its rules are about.
    pub(crate) household: Household,
    /// The file of its rules.
    pub(crate) rulebook: Arc<Rulebook>,
    /// Walking along the whole chain is work: one at a time, whoever asks.
    pub(crate) verifying: Semaphore,
    /// The services that agents ask for.
    pub(crate) services: Arc<Services>,
    /// The door of agents.
    pub(crate) agents: Arc<Door>,
    /// How the messenger is doing, if there is one.
    pub(crate) telegram: Option<Reporter>,
    /// Where it can be reached.
    pub(crate) address: String,
}

/// Tells how the messenger is doing.
pub(crate) type Reporter = Arc<dyn Fn() -> Report + Send + Sync>;

impl Site {
    /// The folder of a front end that the user has, if one is served.
    pub(crate) fn webui(&self) -> Option<&PathBuf> {
        self.config.webui.as_ref()
    }
}
