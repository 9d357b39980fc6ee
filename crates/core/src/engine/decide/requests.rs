//! Deciders for requests of an agent, which have no run.

use std::sync::Arc;

use super::find_session;
use crate::{
    call::{
        self, AgentRequest, CallDetails, CallEnd, CallProgress, DoubtCause, Event as Happened, Executor, RequestContent,
    },
    call_subject::subject_of_call,
    decision::{BranchBuilder, CommandError, DecisionContext, DecisionResult, DecisionView, EngineReply, Event, texts},
    digest::{Digest, canonical_json},
    id::{CallId, SessionId},
    policy::{self, Grant, GrantId, Verdict},
    principal,
    session::Session,
    settle::evaluate_policy,
    time::Millis,
    tool::CallConcurrency,
};

/// Maximum length of an agent's id of a request, and of a key.
const LONGEST_NAME: usize = 1024;

pub(super) fn submit_request(
    view: DecisionView<'_>,
    mut request: AgentRequest,
    context: &mut DecisionContext,
) -> Result<DecisionResult, CommandError> {
    if view.closing {
        return Err(CommandError::OutOfPlace("the gateway is closing"));
    }
    let session = find_session(view, &request.session)?;
    for name in [Some(&*request.wire), request.key.as_deref()].into_iter().flatten() {
        if name.len() > LONGEST_NAME {
            return Err(CommandError::TooLong { what: "the id or key of a request", limit: LONGEST_NAME });
        }
    }
    // One text of tool and arguments, in which neither can imitate a part of the other.
    let asks = canonical_json(&serde_json::json!([&*request.tool, &request.arguments]));
    let asks = Some(Digest::hash_bytes(asks.as_bytes()));
    let requester = session.agent_requests();
    if let Some(known) = request.key.as_deref().and_then(|key| requester?.keyed_request(key)) {
        if known.asks != asks {
            return Err(CommandError::KeyTaken(request.key.unwrap_or_default()));
        }
        let reply = EngineReply::Requested { call: known.call, over: known.over };
        return Ok(DecisionResult { facts: Vec::new(), reply });
    }
    let generation = requester.map_or(1, |requester| requester.generation_of(&request.wire));
    let call = CallId::new(context.fresh.next_uuid(context.now));
    let (wire, key, executor) = (Arc::clone(&request.wire), request.key.take(), request.executor);
    let (repeat, effect) = (request.repeat, request.effect);
    let content = request_content(request, generation);
    let arguments = serde_json::Value::Object(content.arguments.clone());
    let of_former = if generation > 1 { grants_of_former(view, session.id(), generation) } else { Vec::new() };
    let mut branch = BranchBuilder::new(session);
    for grant in of_former {
        let by = content.request.as_ref().map_or_else(principal::agent_principal, |request| request.principal.clone());
        branch.push_event(Event::Policy(policy::Event::Revoked { id: grant, by }));
    }
    let requested = Happened::Requested { call, wire, key, generation, asks };
    branch.push_event(Event::Call(requested));
    let proposed = Happened::Proposed {
        call,
        run: None,
        executor: executor.into(),
        concurrency: CallConcurrency::Shared,
        repeat,
        effect,
        arguments: Digest::hash_bytes(canonical_json(&arguments).as_bytes()),
        pins: None,
    };
    let content = serde_json::to_string(&content).expect("content is plain data with text keys");
    branch.push_with(Event::Call(proposed), Some(content.into()));
    Ok(DecisionResult { facts: branch.into_facts(), reply: EngineReply::Requested { call, over: None } })
}

/// Returns the content of the call that a request becomes.
fn request_content(request: AgentRequest, generation: u32) -> CallDetails {
    let mut signatures = request.signatures.into_iter();
    CallDetails {
        signature: signatures.next().unwrap_or_else(|| request.tool.to_string()),
        tool: request.tool,
        tool_call_id: Arc::clone(&request.wire),
        intent: None,
        named: request.named,
        class: None,
        shell: None,
        problem: None,
        pins: None,
        leads_to: request.leads_to,
        request: Some(Box::new(RequestContent {
            session: generation_session(&request.session, generation),
            principal: request.principal,
            door: Some(request.door),
            service: request.service,
            for_principals: request.for_principals,
            further_signatures: signatures.collect(),
            undeclared: request.undeclared,
            paths: request.paths,
            cwd: request.cwd,
        })),
        arguments: request.arguments,
    }
}

/// Returns the reason for which a request that is about to act on an earlier decision is denied now.
pub(in crate::engine) fn denial_now(view: DecisionView<'_>, request: AgentRequest, now: Millis) -> Option<String> {
    let session = view.state.session(&request.session)?;
    let view = view.for_session(session)?;
    let generation = session.agent_requests().map_or(1, |requester| requester.generation());
    let effect = request.effect;
    let subject = subject_of_call(session, &request_content(request, generation), effect, principal::agent_principal());
    match evaluate_policy(view, session, &subject, now) {
        Verdict::Deny(why) => Some(format!("Denied by policy: {why}")),
        Verdict::Allow(_) | Verdict::Ask(_) => None,
    }
}

/// Returns the id to which session grants are bound: one generation of the agent's program.
fn generation_session(session: &SessionId, generation: u32) -> SessionId {
    SessionId::new(format!("{session}#{generation}"))
}

/// Returns the session grants that an agent's program had before its restart: they are void.
fn grants_of_former(view: DecisionView<'_>, session: &SessionId, generation: u32) -> Vec<GrantId> {
    let requester = view.state.session(session).and_then(Session::agent_requests);
    // Checked once a generation: there may be many grants.
    if requester.is_none_or(|requester| requester.generation() == generation) {
        return Vec::new();
    }
    let former = |grant: &&Grant| match &grant.scope {
        policy::GrantReach::Session(of) => {
            let number = of.as_str().strip_prefix(session.as_str()).and_then(|rest| rest.strip_prefix('#'));
            number.and_then(|number| number.parse().ok()).is_some_and(|of: u32| of < generation)
        }
        policy::GrantReach::Always | policy::GrantReach::Realm(_) => false,
    };
    view.state.policy().grants().iter().filter(former).map(|grant| grant.id).collect()
}

pub(super) fn mark_received(
    view: DecisionView<'_>,
    id: &SessionId,
    calls: &[CallId],
) -> Result<DecisionResult, CommandError> {
    let session = find_session(view, id)?;
    let mut branch = BranchBuilder::new(session);
    for call in calls.iter().filter(|call| session.agent_requests().is_some_and(|of| of.results().contains_key(call))) {
        branch.push_event(Event::Call(Happened::Received { call: *call }));
    }
    Ok(DecisionResult { facts: branch.into_facts(), reply: EngineReply::Done })
}

/// Ends a started request, or a person's action of a peer: the result is its content.
pub(super) fn end_request(branch: &mut BranchBuilder<'_>, call: CallId, progress: CallProgress) {
    let (end, content) = match progress {
        CallProgress::Returned(returned) => (CallEnd::Done { error: returned.error }, returned.message.content),
        CallProgress::NotBegun(text) => (CallEnd::Failed, text),
        CallProgress::Broke => {
            branch.push_event(Event::Call(Happened::InDoubt { call, since: DoubtCause::TaskBroke, until: None }));
            (CallEnd::Unknown, texts::REQUEST_UNKNOWN.into())
        }
        CallProgress::Left { text, since } => {
            branch.push_event(Event::Call(Happened::InDoubt { call, since, until: None }));
            (CallEnd::Unknown, text)
        }
        CallProgress::Unsent { .. } => (CallEnd::Failed, texts::PEER_AWAY.into()),
    };
    branch.push_with(Event::Call(Happened::Ended { call, end, entry: None }), Some(content));
}

/// Recovers the requests of a session whose process ended.
pub(super) fn recover_requests(view: DecisionView<'_>, session: &Session, branch: &mut BranchBuilder<'_>) {
    let open = session.agent_requests().into_iter().flat_map(|requester| requester.open_requests().keys());
    for call in open.filter_map(|call| view.state.call(*call)) {
        if !matches!(call.phase(), call::CallPhase::Started { .. } | call::CallPhase::InDoubt(_)) {
            continue;
        }
        // Its gate is still pending, or the answer is derived from it.
        if *call.executor() == Executor::Person {
            continue;
        }
        let doubt = Happened::InDoubt { call: call.id(), since: DoubtCause::ProcessEnded, until: None };
        branch.push_event(Event::Call(doubt));
        if call.repeat == crate::tool::RepeatMode::Idempotent {
            branch.push_event(Event::Call(Happened::Again { call: call.id() }));
        } else {
            let ended = Happened::Ended { call: call.id(), end: CallEnd::Unknown, entry: None };
            branch.push_with(Event::Call(ended), Some(texts::REQUEST_UNKNOWN.into()));
        }
    }
}
