//! Task that follows the log for all streams.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use countersign_conversations::pending_turn::{NeverBegins, PendingTurn};
use countersign_core::{
    call,
    engine::{Engine, Event, RecordedFact},
    gate,
    id::{CallId, RunId, SessionId},
    message::{MessageBlock, StopReason, StoredMessage},
    run::{self, RunOutcome, RunTrigger},
    session::{self, ListingFlags, SessionEntryKind, SessionSetting},
};
use countersign_runtime::{CommandSource, FactFollower, InboxLane};
use countersign_view::{LineMode, escape};
use serde_json::{Value, json};

use super::{
    super::{transcript, turn_stream},
    SessionPrompts, prompt_card,
};

/// Most facts in one step.
const TOGETHER: usize = 512;
/// Number of streams from which the updates take longer than an answer may take.
const CROWD: usize = 1_000;
/// Delay of the updates of so many streams, so that the reply to the request that caused them arrives before.
const BEFORE_A_CROWD: Duration = Duration::from_millis(3);
/// Longest part of an answer in a notification, in characters.
const SUMMARY: usize = 200;

/// State between facts, of sessions with an open stream.
struct PromptFollower {
    prompts: Arc<SessionPrompts>,
    answers: CommandSource,
    /// Last answer of the model in a run that works.
    last_answers: BTreeMap<SessionId, LastAnswer>,
    /// Tools of calls that have not ended.
    tools: BTreeMap<CallId, String>,
    /// Turns that wait for a compaction: they count as begun.
    awaited: BTreeMap<SessionId, PendingTurn>,
    /// Sessions whose queues changed.
    touched: BTreeSet<SessionId>,
    /// Sessions in which a run ended.
    ended: BTreeSet<SessionId>,
}

#[derive(Default)]
struct LastAnswer {
    text: String,
    problem: Option<String>,
}

/// Returns the fact if it is about a session.
pub(super) fn fact_of_session(recorded: &Arc<RecordedFact>) -> Option<Arc<RecordedFact>> {
    recorded.meta.session.is_some().then(|| Arc::clone(recorded))
}

/// Follows the log to its end.
pub(super) async fn follow_log(prompts: Arc<SessionPrompts>, mut facts: FactFollower<Arc<RecordedFact>>) {
    let mut follower = PromptFollower {
        answers: prompts.handle.source(InboxLane::Result),
        prompts: Arc::clone(&prompts),
        last_answers: BTreeMap::new(),
        tools: BTreeMap::new(),
        awaited: BTreeMap::new(),
        touched: BTreeSet::new(),
        ended: BTreeSet::new(),
    };
    while let Some(batch) = facts.next_batch(TOGETHER).await {
        for recorded in batch {
            follower.handle_fact(&recorded).await;
        }
        if follower.publish_changes().await.is_none() {
            break;
        }
    }
    prompts.close();
}

impl PromptFollower {
    async fn handle_fact(&mut self, recorded: &RecordedFact) {
        let Some(session) = &recorded.meta.session else { return };
        match &recorded.fact.event {
            Event::Gate(gate::Event::Shown { .. } | gate::Event::Updated { .. }) => {}
            Event::Gate(event) => {
                if let Some(allow) = self.prompts.covering_answer(session, event) {
                    self.answers.post_command(allow).await;
                }
                self.touched.insert(session.clone());
            }
            Event::Session(event) => self.handle_session(session, event, recorded),
            Event::Run(event) => self.handle_run(session, event, recorded),
            Event::Call(event) => self.handle_call(session, event, recorded),
            Event::Booted
            | Event::Peer(_)
            | Event::Channel(_)
            | Event::Policy(_)
            | Event::Settings(_)
            | Event::Unattended(_)
            | Event::Schedule(_) => {}
        }
    }

    fn handle_session(&mut self, session: &SessionId, event: &session::Event, recorded: &RecordedFact) {
        match event {
            session::Event::Opened { .. } => self.announce_change("session_new", session, recorded),
            session::Event::Set(SessionSetting::Listing(ListingFlags { deleted: true, .. })) => {
                self.prompts.covered.lock().remove(session);
            }
            session::Event::Named { .. } => self.announce_change("session_rename", session, recorded),
            session::Event::Entry { kind: SessionEntryKind::Assistant { .. }, .. } if self.has_listeners(session) => {
                let message = recorded.fact.content.as_ref().and_then(|content| serde_json::from_str(content).ok());
                if let Some(StoredMessage::Assistant(message)) = message {
                    let text = message.content.iter().rev().find_map(|block| match block {
                        MessageBlock::Text(text) if !text.text.trim().is_empty() => Some(one_line(&text.text)),
                        _ => None,
                    });
                    let problem = message.error_message.filter(|_| message.stop_reason == StopReason::Error);
                    let answer =
                        LastAnswer { text: text.unwrap_or_default(), problem: problem.as_deref().map(one_line) };
                    self.last_answers.insert(session.clone(), answer);
                }
            }
            _ => {}
        }
        if let Some(awaited) = PendingTurn::from_event(event) {
            self.announce_start(session, awaited.run(), awaited.is_for_prompt(), recorded);
            self.awaited.insert(session.clone(), awaited);
        } else if let Some(awaited) = self.awaited.get_mut(session)
            && let Some(why) = awaited.never_begins(event)
        {
            let (run, end) = match why {
                NeverBegins::Stopped => (awaited.run(), RunOutcome::Aborted),
                NeverBegins::TooLong => (awaited.run(), RunOutcome::Overflowed),
            };
            self.awaited.remove(session);
            self.announce_end(session, run, end, recorded);
        }
    }

    fn handle_run(&mut self, session: &SessionId, event: &run::Event, recorded: &RecordedFact) {
        match event {
            run::Event::Started { run, trigger } => {
                let is_told = self.awaited.remove(session).is_some_and(|awaited| awaited.run() == *run);
                if !is_told {
                    self.announce_start(session, *run, *trigger == RunTrigger::Prompt, recorded);
                }
            }
            run::Event::Ended { run, end, .. } => self.announce_end(session, *run, *end, recorded),
            _ => {}
        }
    }

    fn announce_start(&self, session: &SessionId, run: RunId, is_for_prompt: bool, recorded: &RecordedFact) {
        let mut started = json!({
            "session_id": session,
            "run_id": run.to_string(),
            "stream_id": turn_stream::stream_id(run),
            "pending_started_at": transcript::unix_seconds(recorded.meta.at),
            "route": prompt_card::session_route(session.as_str()),
        });
        // A client whose own message began it knows of its stream. It would take any other for a second turn.
        let event = if is_for_prompt { "turn_started" } else { "server_turn_started" };
        started["input_type"] = if is_for_prompt { "chat" } else { "follow-up" }.into();
        self.send_notice(session, event, &started);
        self.announce_change("turn_started", session, recorded);
    }

    fn announce_end(&mut self, session: &SessionId, run: RunId, end: RunOutcome, recorded: &RecordedFact) {
        let answer = self.last_answers.remove(session).unwrap_or_default();
        let (event, status, otherwise) = match end {
            RunOutcome::Completed => ("turn_completed", "completed", "The turn is complete."),
            RunOutcome::Aborted | RunOutcome::RetryCancelled => {
                ("turn_completed", "cancelled", "The turn was stopped.")
            }
            RunOutcome::Failed => ("turn_failed", "error", "The model's provider failed."),
            RunOutcome::Overflowed => ("turn_failed", "error", "The conversation is too long for the model."),
            RunOutcome::Interrupted => ("turn_failed", "error", "The gateway ended in the middle of the turn."),
        };
        let text = Some(answer.text).filter(|text| !text.is_empty());
        let mut ended = json!({
            "session_id": session,
            "run_id": run.to_string(),
            "stream_id": turn_stream::stream_id(run),
            "status": status,
            "summary": text.as_deref().unwrap_or(otherwise),
            "route": prompt_card::session_route(session.as_str()),
        });
        if event == "turn_failed" {
            ended["error"] = answer.problem.as_deref().unwrap_or(otherwise).into();
        }
        self.send_notice(session, event, &ended);
        self.announce_change("turn_ended", session, recorded);
        if self.has_listeners(session) {
            self.ended.insert(session.clone());
        }
    }

    fn handle_call(&mut self, session: &SessionId, event: &call::Event, recorded: &RecordedFact) {
        match event {
            call::Event::Proposed { call, .. } if self.has_listeners(session) => {
                let content = recorded.fact.content.as_deref();
                let content = content.and_then(|content| serde_json::from_str::<call::CallDetails>(content).ok());
                if let Some(content) = content {
                    self.tools.insert(*call, escape(&content.tool, LineMode::One).into_owned());
                }
            }
            call::Event::Started { call, .. } => {
                if let Some(tool) = self.tools.get(call) {
                    self.send_notice(session, "activity_summary", &activity_summary(session, tool, "running"));
                }
            }
            call::Event::Ended { call, end, .. } => {
                if let Some(tool) = self.tools.remove(call) {
                    let status = if end.is_error() { "failed" } else { "completed" };
                    self.send_notice(session, "activity_summary", &activity_summary(session, &tool, status));
                }
            }
            _ => {}
        }
    }

    /// Publishes the state of changed sessions. `None` once the owner has ended.
    async fn publish_changes(&mut self) -> Option<()> {
        if !self.touched.is_empty() {
            if self.listener_count() >= CROWD {
                tokio::time::sleep(BEFORE_A_CROWD).await;
            }
            self.prompts.refresh_sessions(&std::mem::take(&mut self.touched)).await.ok()?;
        }
        if self.ended.is_empty() {
            return Some(());
        }
        let ended = std::mem::take(&mut self.ended);
        let count = move |engine: &Engine| -> Vec<(SessionId, usize)> {
            ended.iter().map(|session| (session.clone(), transcript::shown_count(engine, session))).collect()
        };
        let (counts, _) = self.answers.read_state(count).await?;
        for (session, count) in counts {
            self.send_notice(&session, "session-updated", &json!({ "session_id": session, "message_count": count }));
        }
        Some(())
    }

    /// Returns the number of streams that get the change.
    fn listener_count(&self) -> usize {
        let boards = self.prompts.broadcasts.lock();
        let touched = self.touched.iter().filter_map(|session| boards.by_session.get(session));
        touched.map(super::PromptBroadcast::stream_count).sum()
    }

    fn has_listeners(&self, session: &SessionId) -> bool {
        let boards = self.prompts.broadcasts.lock();
        boards.by_session.get(session).is_some_and(super::PromptBroadcast::has_listeners)
    }

    fn send_notice(&self, session: &SessionId, event: &str, data: &Value) {
        if let Some(board) = self.prompts.broadcasts.lock().by_session.get_mut(session) {
            board.send_notice(event, data);
        }
    }

    fn announce_change(&self, reason: &str, session: &SessionId, recorded: &RecordedFact) {
        self.prompts.broadcasts.lock().announce_change(reason, session, recorded.meta.lsn);
    }
}

fn activity_summary(session: &SessionId, tool: &str, status: &str) -> Value {
    json!({
        "session_id": session,
        "summary": if status == "running" { "The agent is at work." } else { "The agent goes on." },
        "tool": { "name": tool, "status": status },
        "route": prompt_card::session_route(session.as_str()),
    })
}

/// Returns the beginning of a text, in one line.
fn one_line(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let line = escape(&line, LineMode::One);
    if line.chars().count() <= SUMMARY {
        return line.into_owned();
    }
    let cut: String = line.chars().take(SUMMARY - 1).collect();
    format!("{}…", cut.trim_end())
}
