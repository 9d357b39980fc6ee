//! Decides what a model's answer comes to.

use super::channels;
use crate::{
    call,
    decision::{BranchBuilder, DecisionContext, DecisionResult, DecisionView, EngineReply, Event, Fact},
    digest::{Digest, canonical},
    id::{CallId, RunId},
    run::{Answer, Event as Happened, Phase, Wanted},
    session::Kind,
    tool::Shell,
};

/// How many calls of one message are run. Every rule looks at all of them.
const MOST_CALLS: usize = 128;

pub(super) fn answered(
    view: DecisionView<'_>,
    id: RunId,
    epoch: u32,
    answer: Answer,
    context: &mut DecisionContext,
) -> DecisionResult {
    let run = view.state.run(id).filter(|run| run.epoch() == epoch && matches!(run.phase(), Phase::Thinking { .. }));
    let session = run.and_then(|run| view.state.session(run.session()));
    let Some(session) = session else {
        let session = view.state.run(id).map(|run| run.session().clone());
        let event = Event::Run(Happened::ResultDropped { run: id, epoch });
        return DecisionResult {
            facts: vec![Fact { event, session, content: Some(answer.said.content) }],
            reply: EngineReply::Dropped,
        };
    };
    let told = run.map(|run| channels::answered(view, run, answer.stop, &answer.said.content, context));
    let mut branch = BranchBuilder::new(session);
    let kind = Kind::Assistant { stop: answer.stop, total_tokens: answer.total_tokens };
    // Of one message there is one time: that at which it was begun.
    let made_at = run.map(crate::run::Run::asked_at);
    let entry = branch.push_message_at(kind, answer.said, made_at, context);
    branch.push_event(Event::Run(Happened::Answered {
        run: id,
        epoch,
        entry,
        stop: answer.stop,
        calls: u32::try_from(answer.wanted.len()).unwrap_or(u32::MAX),
        failure: answer.failure,
        others: answer.others,
        spent: answer.spent.filter(|_| session.unattended().is_some()),
    }));
    for (at, mut wanted) in answer.wanted.into_iter().enumerate() {
        if at >= MOST_CALLS {
            let problem = format!("Not run: this is call {} of one message, which may have {MOST_CALLS}.", at + 1);
            wanted.problem = Some(problem.into());
        }
        let call = CallId::new(context.fresh.uuid(context.now));
        let (event, content) = want(call, Some(id), wanted);
        branch.push_with(Event::Call(event), Some(content.into()));
    }
    let mut facts = branch.into_facts();
    facts.extend(told.unwrap_or_default());
    DecisionResult { facts, reply: EngineReply::Done }
}

/// The fact that a call is wanted, and its content.
pub(super) fn want(call: CallId, run: Option<RunId>, wanted: Wanted) -> (call::Event, String) {
    let arguments = serde_json::Value::Object(wanted.arguments.clone());
    let event = call::Event::Wanted {
        call,
        run,
        executor: wanted.executor,
        lane: wanted.lane,
        repeat: wanted.repeat,
        effect: wanted.effect,
        arguments: Digest::of(canonical(&arguments).as_bytes()),
        pins: wanted.pins.as_deref().map(call::pins::Pins::digest),
    };
    let shell = wanted.shell.filter(|shell| *shell != Shell::of_own(&wanted.tool));
    let content = call::Content {
        tool: wanted.tool,
        tool_call_id: wanted.tool_call_id,
        arguments: wanted.arguments,
        intent: wanted.intent,
        signature: wanted.signature,
        named: wanted.named,
        class: wanted.class,
        shell,
        problem: wanted.problem,
        request: None,
        pins: wanted.pins,
        leads_to: wanted.leads_to,
    };
    (event, serde_json::to_string(&content).expect("content is plain data with text keys"))
}
