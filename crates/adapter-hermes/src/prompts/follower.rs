//! The one task that follows the log for all streams.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use countersign_core::{
    call,
    engine::{Engine, Event, RecordedFact},
    gate,
    id::{CallId, RunId, SessionId},
    message::{MessageBlock, StopReason, StoredMessage},
    run::{self, RunOutcome, RunTrigger},
    session::{self, SessionEntryKind},
};
use countersign_runtime::{CommandSource, FactFollower, InboxLane};
use countersign_view::{Lines, escape};
use serde_json::{Value, json};

use super::{
    super::{
        awaited::{Awaited, NeverBegins},
        journal, transcript,
    },
    Prompts, card,
};

/// How many facts are looked at together.
const TOGETHER: usize = 512;
/// How many streams are a crowd: telling it keeps the machine busy for longer than an answer may take.
const CROWD: usize = 1_000;
/// How long a crowd waits for its news, so that the reply to whoever caused it has arrived before.
const BEFORE_A_CROWD: Duration = Duration::from_millis(3);
/// How much of what was said a notification shows, in characters.
const SUMMARY: usize = 200;

/// What is remembered between facts, of sessions whose stream somebody holds.
struct Follower {
    prompts: Arc<Prompts>,
    answers: CommandSource,
    /// What the model said last in a run that works.
    said: BTreeMap<SessionId, Said>,
    /// The tools of calls that have not ended.
    tools: BTreeMap<CallId, String>,
    /// Turns that wait until what came before is summed up: they count as begun.
    awaited: BTreeMap<SessionId, Awaited>,
    /// Sessions in whose queues something changed.
    touched: BTreeSet<SessionId>,
    /// Sessions in which a run ended.
    ended: BTreeSet<SessionId>,
}

#[derive(Default)]
struct Said {
    text: String,
    problem: Option<String>,
}

/// Returns the fact if it is about a session.
pub(super) fn fact_of_session(recorded: &Arc<RecordedFact>) -> Option<Arc<RecordedFact>> {
    recorded.meta.session.is_some().then(|| Arc::clone(recorded))
}

/// Follows the log to its end.
pub(super) async fn follow(prompts: Arc<Prompts>, mut facts: FactFollower<Arc<RecordedFact>>) {
    let mut follower = Follower {
        answers: prompts.handle.source(InboxLane::Result),
        prompts: Arc::clone(&prompts),
        said: BTreeMap::new(),
        tools: BTreeMap::new(),
        awaited: BTreeMap::new(),
        touched: BTreeSet::new(),
        ended: BTreeSet::new(),
    };
    while let Some(batch) = facts.next_batch(TOGETHER).await {
        for recorded in batch {
            follower.recorded(&recorded).await;
        }
        if follower.settle().await.is_none() {
            break;
        }
    }
    prompts.close();
}

impl Follower {
    async fn recorded(&mut self, recorded: &RecordedFact) {
        let Some(session) = &recorded.meta.session else { return };
        match &recorded.fact.event {
            Event::Gate(gate::Event::Shown { .. } | gate::Event::Updated { .. }) => {}
            Event::Gate(event) => {
                if let Some(allow) = self.prompts.covering(session, event) {
                    self.answers.post_command(allow).await;
                }
                self.touched.insert(session.clone());
            }
            Event::Session(event) => self.session(session, event, recorded),
            Event::Run(event) => self.run(session, event, recorded),
            Event::Call(event) => self.call(session, event, recorded),
            Event::Booted
            | Event::Peer(_)
            | Event::Channel(_)
            | Event::Policy(_)
            | Event::Settings(_)
            | Event::Unattended(_)
            | Event::Schedule(_) => {}
        }
    }

    fn session(&mut self, session: &SessionId, event: &session::Event, recorded: &RecordedFact) {
        match event {
            session::Event::Opened { .. } => self.changed("session_new", session, recorded),
            session::Event::Named { .. } => self.changed("session_rename", session, recorded),
            session::Event::Entry { kind: SessionEntryKind::Assistant { .. }, .. } if self.is_heard(session) => {
                let message = recorded.fact.content.as_ref().and_then(|content| serde_json::from_str(content).ok());
                if let Some(StoredMessage::Assistant(message)) = message {
                    let text = message.content.iter().rev().find_map(|block| match block {
                        MessageBlock::Text(text) if !text.text.trim().is_empty() => Some(summary(&text.text)),
                        _ => None,
                    });
                    let problem = message.error_message.filter(|_| message.stop_reason == StopReason::Error);
                    let said = Said { text: text.unwrap_or_default(), problem: problem.as_deref().map(summary) };
                    self.said.insert(session.clone(), said);
                }
            }
            _ => {}
        }
        if let Some(awaited) = Awaited::of(event) {
            self.began(session, awaited.run(), awaited.is_for_prompt(), recorded);
            self.awaited.insert(session.clone(), awaited);
        } else if let Some(awaited) = self.awaited.get_mut(session)
            && let Some(why) = awaited.never_begins(event)
        {
            let (run, end) = match why {
                NeverBegins::Stopped => (awaited.run(), RunOutcome::Aborted),
                NeverBegins::TooLong => (awaited.run(), RunOutcome::Overflowed),
            };
            self.awaited.remove(session);
            self.ended(session, run, end, recorded);
        }
    }

    fn run(&mut self, session: &SessionId, event: &run::Event, recorded: &RecordedFact) {
        match event {
            run::Event::Started { run, trigger } => {
                let is_told = self.awaited.remove(session).is_some_and(|awaited| awaited.run() == *run);
                if !is_told {
                    self.began(session, *run, *trigger == RunTrigger::Prompt, recorded);
                }
            }
            run::Event::Ended { run, end, .. } => self.ended(session, *run, *end, recorded),
            _ => {}
        }
    }

    fn began(&self, session: &SessionId, run: RunId, is_for_prompt: bool, recorded: &RecordedFact) {
        let mut started = json!({
            "session_id": session,
            "run_id": run.to_string(),
            "stream_id": journal::stream_id(run),
            "pending_started_at": transcript::seconds(recorded.meta.at),
            "route": card::route(session.as_str()),
        });
        // A client whose own message began it knows of its stream. It would take any other for a second turn.
        let event = if is_for_prompt { "turn_started" } else { "server_turn_started" };
        started["input_type"] = if is_for_prompt { "chat" } else { "follow-up" }.into();
        self.tell(session, event, &started);
        self.changed("turn_started", session, recorded);
    }

    fn ended(&mut self, session: &SessionId, run: RunId, end: RunOutcome, recorded: &RecordedFact) {
        let said = self.said.remove(session).unwrap_or_default();
        let (event, status, otherwise) = match end {
            RunOutcome::Completed => ("turn_completed", "completed", "The turn is complete."),
            RunOutcome::Aborted | RunOutcome::RetryCancelled => {
                ("turn_completed", "cancelled", "The turn was stopped.")
            }
            RunOutcome::Failed => ("turn_failed", "error", "The model's provider failed."),
            RunOutcome::Overflowed => ("turn_failed", "error", "The conversation is too long for the model."),
            RunOutcome::Interrupted => ("turn_failed", "error", "The gateway ended in the middle of the turn."),
        };
        let text = Some(said.text).filter(|text| !text.is_empty());
        let mut ended = json!({
            "session_id": session,
            "run_id": run.to_string(),
            "stream_id": journal::stream_id(run),
            "status": status,
            "summary": text.as_deref().unwrap_or(otherwise),
            "route": card::route(session.as_str()),
        });
        if event == "turn_failed" {
            ended["error"] = said.problem.as_deref().unwrap_or(otherwise).into();
        }
        self.tell(session, event, &ended);
        self.changed("turn_ended", session, recorded);
        if self.is_heard(session) {
            self.ended.insert(session.clone());
        }
    }

    fn call(&mut self, session: &SessionId, event: &call::Event, recorded: &RecordedFact) {
        match event {
            call::Event::Proposed { call, .. } if self.is_heard(session) => {
                let content = recorded.fact.content.as_deref();
                let content = content.and_then(|content| serde_json::from_str::<call::CallDetails>(content).ok());
                if let Some(content) = content {
                    self.tools.insert(*call, escape(&content.tool, Lines::One).into_owned());
                }
            }
            call::Event::Started { call, .. } => {
                if let Some(tool) = self.tools.get(call) {
                    self.tell(session, "activity_summary", &activity(session, tool, "running"));
                }
            }
            call::Event::Ended { call, end, .. } => {
                if let Some(tool) = self.tools.remove(call) {
                    let status = if end.is_error() { "failed" } else { "completed" };
                    self.tell(session, "activity_summary", &activity(session, &tool, status));
                }
            }
            _ => {}
        }
    }

    /// Shows how the sessions stand in which something happened. `None` once the owner has ended.
    async fn settle(&mut self) -> Option<()> {
        if !self.touched.is_empty() {
            if self.audience() >= CROWD {
                tokio::time::sleep(BEFORE_A_CROWD).await;
            }
            self.prompts.refresh(&std::mem::take(&mut self.touched)).await.ok()?;
        }
        if self.ended.is_empty() {
            return Some(());
        }
        let ended = std::mem::take(&mut self.ended);
        let count = move |engine: &Engine| -> Vec<(SessionId, usize)> {
            ended.iter().map(|session| (session.clone(), transcript::count(engine, session))).collect()
        };
        let (counts, _) = self.answers.read_state(count).await?;
        for (session, count) in counts {
            self.tell(&session, "session-updated", &json!({ "session_id": session, "message_count": count }));
        }
        Some(())
    }

    /// How many will be told of what changed.
    fn audience(&self) -> usize {
        let boards = self.prompts.boards.lock();
        let touched = self.touched.iter().filter_map(|session| boards.by_session.get(session));
        touched.map(super::Board::audience).sum()
    }

    fn is_heard(&self, session: &SessionId) -> bool {
        let boards = self.prompts.boards.lock();
        boards.by_session.get(session).is_some_and(super::Board::is_heard)
    }

    fn tell(&self, session: &SessionId, event: &str, data: &Value) {
        if let Some(board) = self.prompts.boards.lock().by_session.get_mut(session) {
            board.tell(event, data);
        }
    }

    fn changed(&self, reason: &str, session: &SessionId, recorded: &RecordedFact) {
        self.prompts.boards.lock().change(reason, session, recorded.meta.lsn);
    }
}

fn activity(session: &SessionId, tool: &str, status: &str) -> Value {
    json!({
        "session_id": session,
        "summary": if status == "running" { "The agent is at work." } else { "The agent goes on." },
        "tool": { "name": tool, "status": status },
        "route": card::route(session.as_str()),
    })
}

/// The beginning of a text, in one line.
fn summary(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let line = escape(&line, Lines::One);
    if line.chars().count() <= SUMMARY {
        return line.into_owned();
    }
    let cut: String = line.chars().take(SUMMARY - 1).collect();
    format!("{}…", cut.trim_end())
}
