//! Deciders for what an agent asks for, without a run.

use std::sync::Arc;

use super::find;
use crate::{
    call::{self, Content, End, Event as Happened, Executor, Known, Progress, Request, Requested},
    decision::{BranchBuilder, CommandError, DecisionContext, DecisionResult, DecisionView, EngineReply, Event, texts},
    digest::{Digest, canonical},
    id::{CallId, SessionId},
    policy::{self, Grant, GrantId},
    principal,
    session::Session,
    tool::Lane,
};

/// How long an agent's id of a request, and a key, may be.
const LONGEST_NAME: usize = 1024;

pub(super) fn request(
    view: DecisionView<'_>,
    request: Request,
    context: &mut DecisionContext,
) -> Result<DecisionResult, CommandError> {
    if view.closing {
        return Err(CommandError::OutOfPlace("the gateway is closing"));
    }
    let session = find(view, &request.session)?;
    for name in [Some(&*request.wire), request.key.as_deref()].into_iter().flatten() {
        if name.len() > LONGEST_NAME {
            return Err(CommandError::TooLong { what: "the id or key of a request", limit: LONGEST_NAME });
        }
    }
    // One text of both, in which neither can pretend to be part of the other.
    let asks = canonical(&serde_json::json!([&*request.tool, &request.arguments]));
    let asks = Some(Digest::of(asks.as_bytes()));
    let requester = session.requester();
    if let Some(known) = request.key.as_deref().and_then(|key| requester?.keyed(key)) {
        if known.asks != asks {
            return Err(CommandError::KeyTaken(request.key.unwrap_or_default()));
        }
        let reply = EngineReply::Requested { call: known.call, over: known.over };
        return Ok(DecisionResult { facts: Vec::new(), reply });
    }
    let generation = requester.map_or(1, |requester| requester.generation_of(&request.wire));
    let call = CallId::new(context.fresh.uuid(context.now));
    let mut signatures = request.signatures.into_iter();
    let content = Content {
        signature: signatures.next().unwrap_or_else(|| request.tool.to_string()),
        tool: request.tool,
        tool_call_id: Arc::clone(&request.wire),
        intent: None,
        named: request.named,
        class: None,
        shell: None,
        problem: None,
        pins: None,
        leads_to: None,
        request: Some(Box::new(Requested {
            session: generation_session(&request.session, generation),
            principal: request.principal,
            door: Some(request.door),
            service: request.service,
            further_signatures: signatures.collect(),
            undeclared: request.undeclared,
        })),
        arguments: request.arguments,
    };
    let arguments = serde_json::Value::Object(content.arguments.clone());
    let of_former = if generation > 1 { grants_of_former(view, &request.session, generation) } else { Vec::new() };
    let mut branch = BranchBuilder::new(session);
    for grant in of_former {
        let by = content.request.as_ref().map_or_else(principal::agent, |request| request.principal.clone());
        branch.push_event(Event::Policy(policy::Event::Revoked { id: grant, by }));
    }
    let asked = Happened::Requested { call, wire: request.wire, key: request.key, generation, asks };
    branch.push_event(Event::Call(asked));
    let wanted = Happened::Wanted {
        call,
        run: None,
        executor: Executor::Service,
        lane: Lane::Shared,
        repeat: request.repeat,
        effect: request.effect,
        arguments: Digest::of(canonical(&arguments).as_bytes()),
        pins: None,
    };
    let content = serde_json::to_string(&content).expect("content is plain data with text keys");
    branch.push_with(Event::Call(wanted), Some(content.into()));
    Ok(DecisionResult { facts: branch.into_facts(), reply: EngineReply::Requested { call, over: None } })
}

/// What grants for a session are bound to: one generation of the agent's program.
fn generation_session(session: &SessionId, generation: u32) -> SessionId {
    SessionId::new(format!("{session}#{generation}"))
}

/// The grants for a session that an agent's program had before it began anew: they cover nothing any more.
fn grants_of_former(view: DecisionView<'_>, session: &SessionId, generation: u32) -> Vec<GrantId> {
    let requester = view.state.session(session).and_then(Session::requester);
    // Looked at once a generation: there may be many grants.
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

pub(super) fn received(
    view: DecisionView<'_>,
    id: &SessionId,
    calls: &[CallId],
) -> Result<DecisionResult, CommandError> {
    let session = find(view, id)?;
    let mut branch = BranchBuilder::new(session);
    for call in calls.iter().filter(|call| session.requester().is_some_and(|of| of.results().contains_key(call))) {
        branch.push_event(Event::Call(Happened::Received { call: *call }));
    }
    Ok(DecisionResult { facts: branch.into_facts(), reply: EngineReply::Done })
}

/// The end of a request, or of what a person has a peer do, that was started: what came back is its content.
pub(super) fn ended(branch: &mut BranchBuilder<'_>, call: CallId, progress: Progress) {
    let (end, content) = match progress {
        Progress::Returned(returned) => (End::Done { error: returned.error }, returned.said.content),
        Progress::NotBegun(text) => (End::Failed, text),
        Progress::Broke => {
            branch.push_event(Event::Call(Happened::InDoubt { call, since: Known::TaskBroke, until: None }));
            (End::Unknown, texts::REQUEST_UNKNOWN.into())
        }
        Progress::Left { text, since } => {
            branch.push_event(Event::Call(Happened::InDoubt { call, since, until: None }));
            (End::Unknown, text)
        }
        Progress::Unsent { .. } => (End::Failed, texts::PEER_AWAY.into()),
    };
    branch.push_with(Event::Call(Happened::Ended { call, end, entry: None }), Some(content));
}

/// What becomes of the requests of a session whose process ended.
pub(super) fn recover(view: DecisionView<'_>, session: &Session, branch: &mut BranchBuilder<'_>) {
    let open = session.requester().into_iter().flat_map(|requester| requester.open().keys());
    for call in open.filter_map(|call| view.state.call(*call)) {
        if !matches!(call.phase(), call::Phase::Started { .. } | call::Phase::InDoubt(_)) {
            continue;
        }
        let doubt = Happened::InDoubt { call: call.id(), since: Known::ProcessEnded, until: None };
        branch.push_event(Event::Call(doubt));
        if call.repeat == crate::tool::Repeat::Idempotent {
            branch.push_event(Event::Call(Happened::Again { call: call.id() }));
        } else {
            let ended = Happened::Ended { call: call.id(), end: End::Unknown, entry: None };
            branch.push_with(Event::Call(ended), Some(texts::REQUEST_UNKNOWN.into()));
        }
    }
}
