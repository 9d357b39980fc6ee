//! What everything over HTTP works with: the record's owner, conversations, and who comes in.

use std::{path::PathBuf, sync::Arc};

use countersign_core::time::Millis;
use countersign_runtime::{Clock, Handle};

use crate::{chats::Chats, config::Config, web::Auth};

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
}

impl Site {
    /// The folder of a front end that the user has, if one is served.
    pub(crate) fn webui(&self) -> Option<&PathBuf> {
        self.config.webui.as_ref()
    }
}
