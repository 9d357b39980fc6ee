//! Decides the consequences of a model's answer.

use super::channels;
use crate::{
    call,
    decision::{BranchBuilder, DecisionContext, DecisionResult, DecisionView, EngineReply, Event, Fact},
    digest::{Digest, canonical_json},
    id::{CallId, RunId},
    run::{Event as Happened, ModelAnswer, ResolvedCall, RunPhase},
    session::SessionEntryKind,
    tool::ShellInput,
};

/// Maximum number of calls of one message that are run. Every rule visits all of them.
const MOST_CALLS: usize = 128;

pub(super) fn record_answer(
    view: DecisionView<'_>,
    id: RunId,
    epoch: u32,
    answer: ModelAnswer,
    context: &mut DecisionContext,
) -> DecisionResult {
    let run = view.state.run(id).filter(|run| run.epoch() == epoch && matches!(run.phase(), RunPhase::Thinking { .. }));
    let session = run.and_then(|run| view.state.session(run.session()));
    let Some(session) = session else {
        let session = view.state.run(id).map(|run| run.session().clone());
        let event = Event::Run(Happened::ResultDropped { run: id, epoch });
        return DecisionResult {
            facts: vec![Fact { event, session, content: Some(answer.message.content) }],
            reply: EngineReply::Dropped,
        };
    };
    let forwarded = run.map(|run| channels::forward_answer(view, run, answer.stop, &answer.message.content, context));
    let mut branch = BranchBuilder::new(session);
    let kind = SessionEntryKind::Assistant { stop: answer.stop, total_tokens: answer.total_tokens };
    // A message has one time: that at which it was begun.
    let made_at = run.map(crate::run::Run::asked_at);
    let entry = branch.push_message_at(kind, answer.message, made_at, context);
    branch.push_event(Event::Run(Happened::Answered {
        run: id,
        epoch,
        entry,
        stop: answer.stop,
        calls: u32::try_from(answer.calls.len()).unwrap_or(u32::MAX),
        failure: answer.failure,
        others: answer.others,
        spent: answer.spent.filter(|_| session.unattended().is_some()),
    }));
    for (at, mut requested) in answer.calls.into_iter().enumerate() {
        if at >= MOST_CALLS {
            let problem = format!("Not run: this is call {} of one message, which may have {MOST_CALLS}.", at + 1);
            requested.problem = Some(problem.into());
        }
        let call = CallId::new(context.fresh.next_uuid(context.now));
        let (event, content) = proposed_call(call, Some(id), requested);
        branch.push_with(Event::Call(event), Some(content.into()));
    }
    let mut facts = branch.into_facts();
    facts.extend(forwarded.unwrap_or_default());
    DecisionResult { facts, reply: EngineReply::Done }
}

/// Returns the fact that a call is proposed, with its content.
pub(super) fn proposed_call(call: CallId, run: Option<RunId>, requested: ResolvedCall) -> (call::Event, String) {
    let arguments = serde_json::Value::Object(requested.arguments.clone());
    let event = call::Event::Proposed {
        call,
        run,
        executor: requested.executor,
        concurrency: requested.concurrency,
        repeat: requested.repeat,
        effect: requested.effect,
        arguments: Digest::hash_bytes(canonical_json(&arguments).as_bytes()),
        pins: requested.pins.as_deref().map(call::pins::Pins::digest),
    };
    let shell = requested.shell.filter(|shell| *shell != ShellInput::of_own(&requested.tool));
    let content = call::CallDetails {
        tool: requested.tool,
        tool_call_id: requested.tool_call_id,
        arguments: requested.arguments,
        intent: requested.intent,
        signature: requested.signature,
        named: requested.named,
        class: requested.class,
        shell,
        problem: requested.problem,
        request: None,
        pins: requested.pins,
        leads_to: requested.leads_to,
    };
    (event, serde_json::to_string(&content).expect("content is plain data with text keys"))
}
