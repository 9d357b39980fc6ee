//! Deciders for calls: what comes back from whoever ran one, and a person's own commands.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::{answered::want, find, requests};
use crate::{
    call::{self, End, Event as Happened, Executor, Known, Phase, Progress, Returned},
    engine::{Context, Decision, Event, Fact, Refusal, Reply, View, texts, tree::Branch},
    id::{CallId, SessionId},
    peer,
    policy::Verdict,
    run::Wanted,
    session::{self, Kind, Queue},
    settle,
    tool::{Effect, Lane, Repeat},
};

/// A folder with a longer name is not followed: what runs in it is refused by the shell's own check.
const LONGEST_FOLDER: usize = 4096;

/// A command that a person runs beside the run.
pub(super) struct Own {
    pub(super) tool: Arc<str>,
    pub(super) arguments: Map<String, Value>,
    pub(super) signature: String,
    pub(super) executor: Executor,
}

/// A person's command needs nobody's approval, but what rules deny stays denied.
pub(super) fn run_own(view: View<'_>, id: &SessionId, own: Own, context: &mut Context) -> Result<Decision, Refusal> {
    if view.closing {
        return Err(Refusal::OutOfPlace("the session is closing"));
    }
    let session = find(view, id)?;
    let view = view.of(session).ok_or_else(|| Refusal::WaitsForHost(id.clone()))?;
    let call = CallId::new(context.fresh.uuid(context.now));
    let wanted = Wanted {
        tool_call_id: call.to_string().into(),
        tool: own.tool,
        arguments: own.arguments,
        intent: None,
        signature: own.signature,
        named: vec!["command".to_owned()],
        lane: Lane::Exclusive,
        repeat: Repeat::Once,
        effect: Effect::Changes,
        executor: own.executor,
        class: None,
        problem: None,
    };
    let (event, content) = want(call, None, wanted);
    let parsed: call::Content = serde_json::from_str(&content).expect("it was written a line ago");
    let subject = settle::subject(session, &parsed, Effect::Changes, settle::host());
    if let Verdict::Deny(why) = settle::evaluate(view, session, &subject, context.now) {
        return Err(Refusal::Denied(format!("Denied by policy: {why}")));
    }
    let mut branch = Branch::new(session);
    branch.push_with(Event::Call(event), Some(content.into()));
    branch.push(Event::Call(Happened::Allowed {
        call,
        why: "a person's own command".to_owned(),
        policy: view.rules.digest(),
        by: None,
    }));
    branch.push(Event::Call(Happened::Started { call, boot: view.state.boot(), line: None }));
    Ok(Decision { facts: branch.finish(), reply: Reply::Running(call) })
}

pub(super) fn ended(view: View<'_>, id: CallId, progress: Progress, context: &mut Context) -> Decision {
    let is_awaited = |call: &&call::Call| match &progress {
        Progress::Unsent { start } => *start == call.starts(),
        Progress::Returned(_) | Progress::NotBegun(_) | Progress::Left { .. } | Progress::Broke => true,
    };
    let call = view.state.call(id).filter(|call| matches!(call.phase(), Phase::Started { .. })).filter(is_awaited);
    let session = call.and_then(|call| view.state.session(call.session()));
    let (Some(call), Some(session)) = (call, session) else {
        let content = match progress {
            Progress::Returned(returned) => Some(returned.said.content),
            Progress::NotBegun(text) | Progress::Left { text, .. } => Some(text),
            Progress::Broke | Progress::Unsent { .. } => None,
        };
        let session = view.state.call(id).map(|call| call.session().clone());
        let event = Event::Call(Happened::ResultDropped { call: id });
        return Decision { facts: vec![Fact { event, session, content }], reply: Reply::Dropped };
    };
    let mut branch = Branch::new(session);
    if *call.executor() == Executor::Service {
        requests::ended(&mut branch, id, progress);
        return Decision { facts: branch.finish(), reply: Reply::Done };
    }
    if let Progress::Unsent { .. } = progress {
        unsent(view, &mut branch, call);
        return Decision { facts: branch.finish(), reply: Reply::Done };
    }
    let content = view.admitted.call(id);
    let mut problem: Arc<str> = Arc::from("");
    let (end, returned) = match progress {
        Progress::Returned(returned) => (End::Done { error: returned.error }, *returned),
        Progress::NotBegun(text) => {
            let result = plain(texts::result(content, &text, true));
            problem = text;
            (End::Failed, result)
        }
        Progress::Left { text, since } => {
            branch.push(Event::Call(Happened::InDoubt { call: id, since }));
            (End::Unknown, plain(texts::result(content, &text, true)))
        }
        Progress::Broke | Progress::Unsent { .. } => {
            branch.push(Event::Call(Happened::InDoubt { call: id, since: Known::TaskBroke }));
            (End::Unknown, plain(texts::result(content, texts::UNKNOWN, true)))
        }
    };
    let open_tasks = returned.open_tasks;
    let folder = returned.folder.clone().filter(|folder| folder != session.folder() && folder.len() <= LONGEST_FOLDER);
    if call.run().is_some() {
        let entry = branch.say(Kind::ToolResult { prunable: returned.prunable }, returned.said, context);
        branch.push(Event::Call(Happened::Ended { call: id, end, entry: Some(entry) }));
    } else {
        let said = match end {
            End::Done { .. } => returned.said,
            End::Failed => texts::command_failed(content, &problem, call.aborting),
            End::Denied | End::Refused | End::Expired | End::Limited | End::Skipped | End::Cancelled | End::Unknown => {
                texts::command_unknown(content)
            }
        };
        let kind = Kind::Bash { in_context: true };
        if session.run().is_some() {
            let queued = session::Event::Queued { queue: Queue::Held, tokens: said.tokens, kind, marks: None };
            branch.push_with(Event::Session(queued), Some(said.content));
            branch.push(Event::Call(Happened::Ended { call: id, end, entry: None }));
        } else {
            let entry = branch.say(kind, said, context);
            branch.push(Event::Call(Happened::Ended { call: id, end, entry: Some(entry) }));
        }
    }
    if let Some(path) = folder {
        branch.push(Event::Session(session::Event::Folder { path }));
    }
    if let Some(open) = open_tasks {
        branch.push(Event::Session(session::Event::Tasks { open }));
    }
    Decision { facts: branch.finish(), reply: Reply::Done }
}

/// A call that its peer never saw may start again, over another line.
fn unsent(view: View<'_>, branch: &mut Branch<'_>, call: &call::Call) {
    // The line is gone whether or not its door has said so yet; else the call would be started on it once more.
    if let Some(peer) = call.peer().filter(|peer| call.line().is_some() && view.state.line_of(peer) == call.line()) {
        branch.push(Event::Peer(peer::Event::Gone { peer: peer.clone() }));
    }
    branch.push(Event::Call(Happened::Again { call: call.id() }));
}

fn plain(said: session::Said) -> Returned {
    Returned { said, error: true, open_tasks: None, folder: None, prunable: false }
}
