//! Hands the work over: the agent writes down what another session needs, and a session that knows no more begins with that.

use std::path::PathBuf;

use countersign_core::{
    engine::Command as EngineCommand,
    id::{EntryId, Lsn},
    message::{self, ExtensionMessage, MessageBlock, StopReason, StoredMessage, estimate_tokens, text_of},
    session::{Command, ImportedEntry, MessageContent, SessionEntryKind, Settings},
};
use countersign_files::replace::{FileAccess, replace_file};
use countersign_protocol::{
    RawJson,
    gjc::state::HandoffResult,
    omp::{OmpRequestId, OmpResponse},
};

use super::{
    adapter::{ActiveOperation, AdapterCallback, OmpAdapter, SessionSwitch, WaitUntil},
    open_session::{OpenSession, SessionStart, first_entries},
    refusal_text::refusal_message,
    session_store::SessionStore,
};

const NAME: &str = "handoff";
/// Error text if there is nothing to hand over.
const NOTHING: &str = "Nothing to hand off (no messages yet)";
/// Error text if the session ends meanwhile.
const CLOSING: &str = "the session is closing";
/// Prompt for the agent.
const HANDOFF_PROMPT: &str = "Your work goes on in a new session that has seen nothing of this one. Write down everything that whoever takes \
over has to know: what was asked for, what is decided and why, what is done and how you know, what is left and in which order, the \
files and commands that matter, and what went wrong and must not be tried again. Be exact with names, paths and numbers. Use no \
tools; answer with that text alone.";

/// Next step once the run that writes has been reported.
enum HandoffStep {
    /// It continues, and is looked at again after this.
    After(WaitUntil),
    /// It has written this.
    Begin(Box<HandoffSummary>),
}

/// Source of a summary of the work.
struct HandoffSummary {
    content: Lsn,
    settings: Settings,
}

/// Has the agent write down where it stands and begins a session with that.
pub(super) async fn hand_off(adapter: &mut OmpAdapter, id: Option<OmpRequestId>, instructions: Option<String>) {
    if std::mem::take(&mut adapter.is_given_up) {
        // As of one whose run was stopped.
        return adapter.write_frame(&OmpResponse::success(id, NAME, &()));
    }
    let Some(seat) = adapter.current_session() else { return };
    let session = seat.id.clone();
    let read =
        seat.requests.read_state(move |engine| Some(engine.state().session(&session)?.model_context().is_empty()));
    if !matches!(read.await, Some((Some(false), _))) {
        return adapter.write_frame(&OmpResponse::failure(id, NAME, NOTHING));
    }
    let Some(seat) = adapter.current_session() else { return };
    if !adapter.encoder.is_running() {
        seat.environment.release_halt();
    }
    let prompt = EngineCommand::Session(seat.id.clone(), Command::HandOff { message: handoff_prompt(instructions) });
    adapter.operation = ActiveOperation::HandOff;
    adapter
        .send_command(prompt, move |adapter, replied| match replied {
            Ok(_) => adapter.run_after(WaitUntil::RunEnded, Box::new(move |adapter| follow_handoff(adapter, id))),
            Err(refused) => {
                adapter.operation = ActiveOperation::Free;
                adapter.write_frame(&OmpResponse::failure(id, NAME, refusal_message(&refused)));
            }
        })
        .await;
}

fn handoff_prompt(instructions: Option<String>) -> MessageContent {
    let instructions = instructions.map(|text| text.trim().to_owned()).filter(|text| !text.is_empty());
    let text = match instructions {
        Some(more) => format!("{HANDOFF_PROMPT}\n\n{more}"),
        None => HANDOFF_PROMPT.to_owned(),
    };
    let tokens = estimate_tokens(text.len());
    let attribution = Some("agent".to_owned());
    let message = StoredMessage::User(message::InputMessage {
        content: vec![MessageBlock::from_text(&text)],
        attribution,
        ..message::InputMessage::default()
    });
    MessageContent { content: serde_json::to_string(&message).unwrap_or_default().into(), tokens }
}

/// Continues after the end of the run: its text begins the other session.
fn follow_handoff(adapter: &mut OmpAdapter, id: Option<OmpRequestId>) {
    let Some(seat) = adapter.seat.as_ref().filter(|_| !adapter.is_closing) else {
        adapter.operation = ActiveOperation::Free;
        return adapter.write_frame(&OmpResponse::failure(id, NAME, CLOSING));
    };
    let (session, requests, contents) = (seat.id.clone(), seat.requests.clone(), seat.handle.contents().clone());
    let (old, session_store) = (seat.path().map(PathBuf::from), adapter.store.clone());
    adapter.reply_in_order(async move {
        let read = requests.read_state(move |engine| {
            let session = engine.state().session(&session)?;
            // A reply stands before the facts that it speaks of: the run may only begin.
            if session.run().is_some() {
                return Some(HandoffStep::After(WaitUntil::RunEnded));
            }
            // After a summary it continues, or repeats the request that was too long.
            if session.active_compaction().is_some() {
                return Some(HandoffStep::After(WaitUntil::CompactionEnded));
            }
            let context = session.model_context();
            let newest = context.last()?.entry();
            let is_whole = matches!(newest.kind, SessionEntryKind::Assistant { stop: StopReason::Stop, .. });
            let written = || HandoffSummary { content: newest.content, settings: session.settings().clone() };
            is_whole.then(|| HandoffStep::Begin(Box::new(written())))
        });
        let (next, position) = read.await.unwrap_or((None, 0));
        let written = match next {
            Some(HandoffStep::After(until)) => {
                let then: AdapterCallback = Box::new(move |adapter| {
                    adapter.run_after(until, Box::new(move |adapter| follow_handoff(adapter, id)))
                });
                return (position, then);
            }
            Some(HandoffStep::Begin(written)) => Some(*written),
            None => None,
        };
        let text = match &written {
            Some(written) => contents.get(&[written.content]).await.ok().and_then(|mut texts| texts.pop().flatten()),
            None => None,
        };
        let text = text.and_then(|content| assistant_text(&content));
        let begun = match written.zip(text) {
            Some((written, text)) => begin_successor(&session_store, written.settings, old, text).await.map(Some),
            // It was stopped, or had no text.
            None => Ok(None),
        };
        let then: AdapterCallback = Box::new(move |adapter| {
            adapter.operation = ActiveOperation::Free;
            match begun {
                Ok(Some((seat, handed))) => {
                    adapter.operation = ActiveOperation::Session(Box::new(SessionSwitch::new(
                        id,
                        NAME,
                        seat,
                        RawJson::from_wire(&handed),
                    )));
                }
                Ok(None) => adapter.write_frame(&OmpResponse::success(id, NAME, &())),
                Err(problem) => adapter.write_frame(&OmpResponse::failure(id, NAME, problem)),
            }
        });
        (position, then)
    });
}

fn assistant_text(content: &str) -> Option<String> {
    let Ok(StoredMessage::Assistant(assistant)) = serde_json::from_str(content) else { return None };
    Some(text_of(&assistant.content).trim().to_owned()).filter(|text| !text.is_empty())
}

/// Opens a session that begins with `text`, which is also kept next to the file of the one before, if that has one.
async fn begin_successor(
    session_store: &SessionStore,
    settings: Settings,
    old: Option<PathBuf>,
    text: String,
) -> Result<(OpenSession, HandoffResult), String> {
    let saved = old.as_ref().map(|old| old.with_extension("handoff.md"));
    if let Some(path) = saved.clone() {
        let bytes = format!("{text}\n").into_bytes();
        let kept = tokio::task::spawn_blocking(move || {
            replace_file(&path, &bytes, FileAccess::Private).map_err(|error| format!("{}: {error}", path.display()))
        });
        kept.await.map_err(|error| error.to_string())??;
    }
    let mut entries = first_entries(&settings);
    let mut seed = [0; 4];
    getrandom::fill(&mut seed).map_err(|error| error.to_string())?;
    let tokens = estimate_tokens(text.len());
    let message = StoredMessage::Custom(ExtensionMessage {
        custom_type: NAME.to_owned(),
        content: vec![MessageBlock::from_text(&text)],
        display: true,
        details: None,
        extra: Default::default(),
    });
    let content = serde_json::to_string(&message).map_err(|error| error.to_string())?.into();
    entries.push(ImportedEntry {
        id: EntryId::new(hex::encode(seed)),
        parent: entries.last().map(|entry| entry.id.clone()),
        kind: SessionEntryKind::Custom,
        message: MessageContent { content, tokens },
        made_at: None,
    });
    let parent = old.map(|old| old.display().to_string());
    let beginning = SessionStart { path: None, parent, name: None, settings, entries };
    let seat = OpenSession::begin_new(session_store, beginning).await.map_err(|error| error.to_string())?;
    Ok((seat, HandoffResult { saved_path: saved.map(|path| path.display().to_string()) }))
}
