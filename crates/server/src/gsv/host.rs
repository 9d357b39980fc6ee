//! What works for the sessions of this door: their models, their tools, their prompt.

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use countersign_core::{
    id::{RunId, SessionId},
    message::{Message, Summary},
    session::ModelRef,
    tool::Spec,
};
use countersign_protocol::gsv::key;
use countersign_runtime::{
    Chosen, Host, Summaries, Wing,
    tools::{Context, Registry},
};

use super::{Door, native, registry::key_of};
use crate::{chats::Workrooms, prompt::compaction};

/// Where the door will be once it is open. Until then nothing of its sessions is begun.
#[derive(Default)]
pub(crate) struct Wings(OnceLock<(Arc<Door>, Arc<Workrooms>)>);

impl Wings {
    /// Has the door work for its sessions from now on.
    pub(super) fn open(&self, door: &Arc<Door>, rooms: &Arc<Workrooms>) {
        // A gateway opens its door once.
        let _ = self.0.set((Arc::clone(door), Arc::clone(rooms)));
    }

    /// Who works for a session.
    pub(crate) fn of(&self, session: &SessionId, run: Option<RunId>) -> Wing {
        let Some(key) = key_of(session) else { return Wing::Here };
        let Some((door, rooms)) = self.0.get() else { return Wing::NotYet };
        let agent = key::agent_of(key).map_or_else(|| door.settings.agent(), key::agent_id);
        let place = native::Place { key: key.to_owned(), agent, run };
        Wing::Other(Arc::new(OfSession { door: Arc::clone(door), rooms: Arc::clone(rooms), place }))
    }
}

/// What works for one session.
struct OfSession {
    door: Arc<Door>,
    rooms: Arc<Workrooms>,
    place: native::Place,
}

impl Host for OfSession {
    fn model(&self, model: &ModelRef) -> Result<Chosen, String> {
        self.door.site.chats.models().choose(model)
    }

    fn tools(&self, _: &SessionId) -> Arc<Registry> {
        let mut tools = native::tools(&self.door, &self.place);
        tools.extend(self.rooms.registry().tools().cloned());
        Arc::new(Registry::of(tools))
    }

    fn system_prompt(&self, _: &SessionId, cwd: &str, tools: &[&Spec]) -> String {
        self.rooms.system_prompt(cwd, tools)
    }

    fn context(&self, session: &SessionId, cwd: &str) -> Context {
        self.rooms.context(session, cwd)
    }

    fn silence(&self) -> Duration {
        let tree = self.door.settings.tree();
        Duration::from_millis(tree["timeouts"]["llmMs"].as_u64().unwrap_or(300_000))
    }

    fn summaries(
        &self,
        history: &[Message],
        turn: &[Message],
        previous: Option<&Summary>,
        instructions: Option<&str>,
    ) -> Summaries {
        compaction::summaries(history, turn, previous, instructions)
    }

    fn join_summary(&self, history: &str, turn: Option<&str>, details: &serde_json::Value) -> String {
        compaction::join_summary(history, turn, details)
    }
}
