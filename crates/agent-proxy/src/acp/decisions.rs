//! What follows from a decision: an answer to the agent, or the message that was held.

use serde_json::{Value, json};

use super::{
    AcpProxy, AgentRequest, ClientRequest, FORM, HeldPurpose, PermissionOptions, known_calls::KnownDecision, to_agent,
    to_client,
};
use crate::{
    call_waits::DecidedMessage,
    interceptor::{ProxyAction, ProxyActions},
    json_line::DENIED,
};

impl AcpProxy {
    pub(super) fn finish(&mut self, decided: DecidedMessage<HeldPurpose>, actions: &mut ProxyActions) {
        let DecidedMessage { purpose, session, calls, outcome } = decided;
        match purpose {
            HeldPurpose::Permission { id, tool_call, options } => {
                self.from_agent.remove(&id);
                let outcome = outcome.and_then(|()| match &options.allow {
                    Some(_) => Ok(()),
                    None => Err("The agent offers no option, or several ones, to allow this once".to_owned()),
                });
                if let Err(reason) = &outcome {
                    actions.push(ProxyAction::Notice(format!("denied: {reason}")));
                }
                if let Some(tool_call) = &tool_call {
                    let known = match outcome {
                        Ok(()) => KnownDecision::Allowed(calls),
                        Err(_) => KnownDecision::Denied,
                    };
                    self.tool_calls.decide(&session, tool_call, known);
                }
                actions.push(to_agent(FORM.result(&id, &permission_answer(options, outcome))));
            }
            HeldPurpose::AgentRequest { id, method, params } => match outcome {
                Ok(()) => {
                    self.from_agent.remove(&id);
                    self.from_agent.insert(id.clone(), AgentRequest::Passed);
                    actions.push(to_client(FORM.request(&id, &method, &params)));
                }
                Err(reason) => {
                    self.from_agent.remove(&id);
                    actions.push(to_agent(FORM.error(&id.to_value(), DENIED, &reason)));
                }
            },
            HeldPurpose::ClientRequest { id, method, params, request } => {
                self.from_client.remove(&id);
                match outcome {
                    Ok(()) => {
                        if let ClientRequest::Change { session, change } = &request {
                            let state = self.sessions.entry(session.clone()).or_default();
                            state.modes.allowed.insert(change.clone());
                        }
                        self.from_client.insert(id.clone(), request);
                        actions.push(to_agent(FORM.request(&id, &method, &params)));
                    }
                    Err(reason) => actions.push(to_client(FORM.error(&id.to_value(), DENIED, &reason))),
                }
            }
        }
    }
}

/// Returns the answer to a permission: only ever for this one time.
fn permission_answer(options: PermissionOptions, outcome: Result<(), String>) -> Value {
    let selected = |option: String| json!({ "outcome": "selected", "optionId": option });
    let cancelled = || json!({ "outcome": "cancelled" });
    match outcome {
        Ok(()) => json!({ "outcome": options.allow.map_or_else(cancelled, selected) }),
        Err(reason) => json!({
            "outcome": options.reject.map_or_else(cancelled, selected),
            "_meta": { "countersign": { "reason": reason } },
        }),
    }
}
