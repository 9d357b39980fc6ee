//! Data of a session for a host: its state, its messages, its counts.

use std::sync::Arc;

use countersign_core::{
    id::Lsn,
    message::{MessageBlock, StopReason, StoredMessage, text_of},
    session::{CompactionCause, Session, SessionEntry, SessionEntryKind},
};
use countersign_protocol::{
    JsNumber, RawJson,
    gjc::state::ContextUsage,
    omp::{
        OmpRequestId, OmpResponse,
        state::{
            BranchMessage, BranchMessages, ContextMessages, ExtendedState, LastAssistantText, RpcSessionState,
            SessionStats, TokenSums,
        },
    },
};
use countersign_runtime::ContentCache;

use crate::{
    adapter::{AdapterCallback, OmpAdapter},
    entries, models, todos,
};

/// Reads something of the session in the order of the other answers, then fetches the content that it names, then answers.
async fn answer_from_session<T: Send + 'static>(
    adapter: &mut OmpAdapter,
    id: Option<OmpRequestId>,
    name: &'static str,
    what: impl FnOnce(&Session) -> (T, Vec<Lsn>) + Send + 'static,
    answer: impl FnOnce(T, Vec<Option<Arc<str>>>) -> RawJson + Send + 'static,
) {
    let Some(seat) = adapter.current_session() else { return };
    let (session, requests) = (seat.id.clone(), seat.requests.clone());
    let contents: ContentCache = seat.handle.contents().clone();
    adapter.reply_in_order(async move {
        let read = requests.read_state(move |engine| engine.state().session(&session).map(what)).await;
        let (position, answer) = match read {
            Some((Some((value, lsns)), position)) => match contents.get(&lsns).await {
                Ok(texts) => (position, Ok(answer(value, texts))),
                Err(error) => (position, Err(format!("the conversation cannot be read: {error}"))),
            },
            _ => (0, Err("the session is closed".to_owned())),
        };
        let then: AdapterCallback = Box::new(move |adapter| match answer {
            Ok(data) => adapter.write_frame(&OmpResponse::success(id, name, &data)),
            Err(problem) => adapter.write_frame(&OmpResponse::failure(id, name, problem)),
        });
        (position, then)
    });
}

/// Reports whether a compaction is under way that belongs to the work of runs.
fn goes_on_by_itself(session: &Session) -> bool {
    session.active_compaction().is_some_and(|compaction| compaction.reason != CompactionCause::Manual)
}

/// Current state of a session.
pub struct StateReply {
    /// As omp has it.
    pub state: RpcSessionState,
    /// Number of tokens of its context, and the maximum of the model.
    pub context: Option<(u64, u64)>,
}

pub(super) async fn get_state(adapter: &mut OmpAdapter, id: Option<OmpRequestId>) {
    reply_with_state(adapter, id, |adapter, snapshot| RawJson::from_wire(&extended_state(adapter, snapshot))).await;
}

/// Returns the state with what clients of later versions read.
fn extended_state(adapter: &OmpAdapter, snapshot: StateReply) -> ExtendedState {
    let todo_phases = adapter.current_session().map(|seat| seat.environment.todo_list().get()).unwrap_or_default();
    ExtendedState {
        todo_phases: todo_phases.iter().map(todos::to_wire).collect(),
        context_usage: snapshot.context.map(|(tokens, window)| context_usage(tokens, window)),
        pending_message_count: snapshot.state.queued_message_count,
        fast_mode_enabled: false,
        fast_mode_active: false,
        shared: snapshot.state,
    }
}

/// Returns the usage of a context.
#[expect(clippy::cast_precision_loss, reason = "no context has so many tokens")]
pub fn context_usage(tokens: u64, window: u64) -> ContextUsage {
    let percent = (window > 0).then(|| JsNumber(tokens as f64 / window as f64 * 100.0));
    ContextUsage { tokens: Some(tokens), context_window: window, percent, source: None }
}

/// Answers `get_state` with what `data` makes of the session's state.
pub async fn reply_with_state(
    adapter: &mut OmpAdapter,
    id: Option<OmpRequestId>,
    data: impl FnOnce(&mut OmpAdapter, StateReply) -> RawJson + Send + 'static,
) {
    let Some(seat) = adapter.current_session() else { return };
    let (session_id, requests) = (seat.id.clone(), seat.requests.clone());
    let path = seat.path().map(|path| path.display().to_string());
    adapter.reply_in_order(async move {
        let read = requests.read_state(move |engine| {
            let session = engine.state().session(&session_id)?;
            let settings = session.settings();
            let messages = session.model_context().len();
            Some((
                settings.model.clone(),
                settings.thinking.clone(),
                session.run().is_some() || goes_on_by_itself(session),
                session.active_compaction().is_some(),
                session.name().map(str::to_owned),
                settings.thresholds.auto,
                messages,
                session.queued_count(),
                session_id.to_string(),
                settings.model.as_ref().map(|model| (session.context_tokens(), model.context_window)),
            ))
        });
        let Some((Some(read), position)) = read.await else {
            let then: AdapterCallback = Box::new(move |adapter| {
                adapter.write_frame(&OmpResponse::failure(id, "get_state", "the session is closed"))
            });
            return (0, then);
        };
        let (model, thinking, is_streaming, is_compacting, name, auto, messages, queued, session_id, context) = read;
        let then: AdapterCallback = Box::new(move |adapter| {
            let entry = model.and_then(|model| adapter.store.common.model_entry(&model.provider, &model.id));
            let [steering, follow_up, interrupt] = adapter.modes.clone();
            let state = RpcSessionState {
                model: entry.as_ref().map(models::to_wire),
                thinking_level: thinking,
                is_streaming,
                is_compacting,
                steering_mode: steering,
                follow_up_mode: follow_up,
                interrupt_mode: interrupt,
                session_file: path,
                session_id,
                session_name: name,
                auto_compaction_enabled: auto,
                message_count: messages,
                queued_message_count: queued,
            };
            let data = data(adapter, StateReply { state, context });
            adapter.write_frame(&OmpResponse::success(id, "get_state", &data));
        });
        (position, then)
    });
}

/// Returns the entries of the context, without their text.
fn context_entries(session: &Session) -> (Vec<SessionEntry>, Vec<Lsn>) {
    let entries: Vec<SessionEntry> = session.model_context().iter().map(|piece| piece.entry().clone()).collect();
    let lsns = entries.iter().map(|entry| entry.content).collect();
    (entries, lsns)
}

pub(super) async fn get_messages(adapter: &mut OmpAdapter, id: Option<OmpRequestId>) {
    answer_from_session(adapter, id, "get_messages", context_entries, move |entries, texts| {
        let messages: Vec<RawJson> =
            entries.iter().zip(texts).filter_map(|(entry, text)| entries::to_wire(entry, &text?)).collect();
        RawJson::from_wire(&ContextMessages { messages })
    })
    .await;
}

pub(super) async fn branch_messages(adapter: &mut OmpAdapter, id: Option<OmpRequestId>, name: &'static str) {
    let users = |session: &Session| {
        let entries: Vec<SessionEntry> =
            session.entries().iter().filter(|entry| entry.kind == SessionEntryKind::User).cloned().collect();
        let lsns = entries.iter().map(|entry| entry.content).collect();
        (entries, lsns)
    };
    answer_from_session(adapter, id, name, users, move |entries, texts| {
        let messages = entries
            .iter()
            .zip(texts)
            .filter_map(|(entry, text)| {
                let text = user_text(&text?)?;
                (!text.is_empty()).then(|| BranchMessage { entry_id: entry.id.to_string(), text })
            })
            .collect();
        RawJson::from_wire(&BranchMessages { messages })
    })
    .await;
}

/// Returns the text of a user message's content.
pub(super) fn user_text(content: &str) -> Option<String> {
    match serde_json::from_str(content) {
        Ok(StoredMessage::User(message)) => Some(text_of(&message.content)),
        _ => None,
    }
}

pub(super) async fn last_text(adapter: &mut OmpAdapter, id: Option<OmpRequestId>) {
    answer_from_session(adapter, id, "get_last_assistant_text", context_entries, move |entries, texts| {
        let text = entries.iter().zip(texts).rev().find_map(|(entry, text)| {
            if !matches!(entry.kind, SessionEntryKind::Assistant { .. }) {
                return None;
            }
            let Ok(StoredMessage::Assistant(assistant)) = serde_json::from_str(&text?) else { return None };
            let is_nothing = assistant.stop_reason == StopReason::Aborted && assistant.content.is_empty();
            (!is_nothing).then(|| text_of(&assistant.content).trim().to_owned())
        });
        let text = text.filter(|text| !text.is_empty());
        RawJson::from_wire(&LastAssistantText { text })
    })
    .await;
}

pub(super) async fn get_session_stats(adapter: &mut OmpAdapter, id: Option<OmpRequestId>) {
    let Some(seat) = adapter.current_session() else { return };
    let (session_id, path) = (seat.id.to_string(), seat.path().map(|path| path.display().to_string()));
    answer_from_session(adapter, id, "get_session_stats", context_entries, move |entries, texts| {
        let mut stats = SessionStats { session_file: path, session_id, ..SessionStats::default() };
        let mut cost = 0.0;
        for (_, text) in entries.iter().zip(texts) {
            let Some(Ok(message)) = text.map(|text| serde_json::from_str::<StoredMessage>(&text)) else { continue };
            stats.total_messages += 1;
            match message {
                StoredMessage::User(_) => stats.user_messages += 1,
                StoredMessage::ToolResult(_) => stats.tool_results += 1,
                StoredMessage::Assistant(assistant) => {
                    stats.assistant_messages += 1;
                    stats.tool_calls +=
                        assistant.content.iter().filter(|block| matches!(block, MessageBlock::ToolCall(_))).count();
                    let usage = assistant.usage;
                    let sums: &mut TokenSums = &mut stats.tokens;
                    sums.input += usage.input;
                    sums.output += usage.output;
                    sums.cache_read += usage.cache_read;
                    sums.cache_write += usage.cache_write;
                    cost += usage.cost.total;
                }
                StoredMessage::Developer(_)
                | StoredMessage::BashExecution(_)
                | StoredMessage::CompactionSummary(_)
                | StoredMessage::BranchSummary(_)
                | StoredMessage::FileMention(_)
                | StoredMessage::Custom(_) => {}
            }
        }
        let sums = &mut stats.tokens;
        sums.total = sums.input + sums.output + sums.cache_read + sums.cache_write;
        stats.cost = JsNumber(cost);
        RawJson::from_wire(&stats)
    })
    .await;
}
