//! Requests of a running command for a host beyond its sandbox: policy decides as if the call had named it, and then approvers.
//!
//! An approval is for that call, while it runs. A command that was denied continues, without the host.

// Only the text form of addresses is parsed; no network access happens here.
use core::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use serde_json::json;

use crate::{
    call::{CallPhase, Executor},
    call_subject,
    decision::{BranchBuilder, CommandError, DecisionContext, DecisionResult, DecisionView, EngineReply, Event},
    digest::Digest,
    gate::{ApprovalScope, Event as Happened, Fallback, GateContent, Kind},
    id::{CallId, GateId},
    policy::Verdict,
    principal, settle,
};

/// Maximum length of a host name.
const LONGEST: usize = 300;

pub(super) fn request_host(
    view: DecisionView<'_>,
    id: CallId,
    gate: GateId,
    host: &Arc<str>,
    context: &mut DecisionContext,
) -> Result<DecisionResult, CommandError> {
    const OVER: CommandError = CommandError::OutOfPlace("the command has ended, or is to end");
    if host.len() > LONGEST {
        return Err(CommandError::TooLong { what: "the name of a host", limit: LONGEST });
    }
    let is_asking = |call: &&crate::call::Call| {
        matches!(call.phase(), CallPhase::Started { .. }) && *call.executor() == Executor::Builtin && !call.aborting
    };
    let call = view.state.call(id).filter(is_asking).ok_or(OVER)?;
    let run = call.run().and_then(|run| view.state.run(run)).ok_or(OVER)?;
    let session = super::find_session(view, call.session())?;
    let view = view.for_session(session).filter(|view| !view.closing).ok_or(OVER)?;
    if view.state.gate_of(id).is_some_and(|gate| gate.is_pending()) || view.state.gate(gate).is_some() {
        return Err(CommandError::OutOfPlace("the command asks for something else already"));
    }
    let mut content = view.admitted.call_content(id).map(|content| (**content).clone()).ok_or(OVER)?;
    let line = content.signature.clone();
    content.arguments.insert("needs".to_owned(), json!({ "hosts": [&**host] }));
    let subject = call_subject::subject_of_call(session, &content, call.effect, principal::agent_principal());
    let steps = match settle::evaluate_policy(view, session, &subject, context.now) {
        Verdict::Deny(why) => return Err(CommandError::Denied(format!("policy denies it: {why}"))),
        Verdict::Allow(why) | Verdict::Ask(why) => why.approval_steps().to_vec(),
    };
    if run.denials >= settle::MOST_DENIALS {
        return Err(CommandError::Denied("several requests in a row were denied".to_owned()));
    }
    let shown = GateContent::GoOn {
        asker: session.id().to_string(),
        question: format!("May this command reach {host} while it runs?{} It runs already: {line}", address_note(host)),
        why: Some(format!("because it tries to, and sandbox.network.hosts does not list {host}")),
        about: serde_json::Map::from_iter([("host".to_owned(), json!(host))]),
    };
    let shown = serde_json::to_string(&shown).expect("content is plain data with text keys");
    let (stage, number) = session.next_place(Kind::Budget.stage());
    let within = steps.first().and_then(|step| step.within);
    let opened = Happened::Opened {
        gate,
        kind: Kind::Budget,
        ordinal: view.state.next_ordinal(session.id()),
        number,
        stage,
        run: Some(run.id()),
        call: Some(id),
        subject: Digest::hash_bytes(shown.as_bytes()),
        scopes: vec![ApprovalScope::Once],
        deadline: Some(context.now + within.unwrap_or_else(|| session.settings().approval_timeout)),
        fallback: Fallback::Deny,
        remind_at: None,
        steps,
    };
    let mut branch = BranchBuilder::new(session);
    branch.push_with(Event::Gate(opened), Some(shown.into()));
    Ok(DecisionResult { facts: branch.into_facts(), reply: EngineReply::Done })
}

/// Returns a note for the approver if the address is inside the gateway's network and not in the internet.
fn address_note(host: &str) -> &'static str {
    let Ok(address) = host.parse::<SocketAddr>() else { return "" };
    let (is_here, is_private) = match address.ip().to_canonical() {
        IpAddr::V4(ip) => {
            let is_shared = matches!(ip.octets(), [100, 64..=127, ..]);
            (ip.is_loopback() || ip.is_unspecified(), ip.is_private() || ip.is_link_local() || is_shared)
        }
        IpAddr::V6(ip) => (ip.is_loopback() || ip.is_unspecified(), ip.is_unique_local() || ip.is_unicast_link_local()),
    };
    match (is_here, is_private) {
        (true, _) => " That is the machine of the gateway.",
        (false, true) => " That is in a private network.",
        (false, false) => "",
    }
}
