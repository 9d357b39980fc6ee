//! The adapter: decides the calls of all programs that run its hooks.

use std::{sync::Arc, time::Duration};

use countersign_core::id::{GateId, PrincipalId, SessionId};
use countersign_foreign_calls::{
    CallOutcome, CallProblem, Delivery, ForeignCall, ForeignCalls, OutcomeSharing, ProgressSink, Requester,
    build_program_request,
};
use countersign_view::Protocol;
use serde::{Deserialize, Serialize};
use serde_json::Map;
use tokio_util::sync::CancellationToken;

use crate::{
    answers::{HookDecision, HookReply},
    decided_calls::{DecidedCalls, call_digest},
    input::{HookEvent, HookInput},
    open_hooks::OpenHooks,
    ran_calls::{self, RanCall},
    real_paths,
};

/// Wait for a decision if the hook names none: well inside the 600 s after which most programs go on without an answer.
const USUAL_WAIT: Duration = Duration::from_secs(540);
/// Longest wait.
const LONGEST_WAIT: Duration = Duration::from_secs(24 * 3600);

/// Text in a call that is always denied: with it the proof of a guard shows that the program obeys.
pub const PROOF_MARK: &str = "countersign-proof-of-guard";

/// Input of one hook, as its process or its program sends it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HookRequest {
    /// The program: `claude`, `codex`, `gemini` or `copilot`.
    pub program: String,
    /// Standard input of the hook.
    pub input: String,
    /// Longest wait for a person, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait: Option<u64>,
    /// True if nobody sits at the program, and it can end and be resumed.
    #[serde(default)]
    pub is_headless: bool,
}

/// Adapter of hooks. One serves all programs of a gateway.
pub struct HookAdapter {
    calls: Arc<ForeignCalls>,
    open: OpenHooks,
    decided: DecidedCalls,
}

/// Receiver of the progress of a call: a hook has no way to show it.
struct NoProgress;

impl ProgressSink for NoProgress {
    async fn report_wait(&mut self, _: Option<GateId>) {}
}

impl HookAdapter {
    /// Creates the adapter for the calls of a gateway.
    pub fn new(calls: Arc<ForeignCalls>) -> Arc<Self> {
        Arc::new(Self { calls, open: OpenHooks::default(), decided: DecidedCalls::default() })
    }

    /// Answers a hook. `sender` names the token with which it came, if it came over HTTP. `delivery` is confirmed by the caller once the
    /// answer was taken; a cancelled wait leaves the gate open.
    pub async fn answer(
        &self,
        hook: &HookRequest,
        sender: Option<&str>,
        delivery: &Delivery,
        cancel: &CancellationToken,
    ) -> HookReply {
        let Some(protocol) = Protocol::HOOKS.into_iter().find(|known| known.name() == hook.program) else {
            let known = Protocol::HOOKS.map(Protocol::name).join(", ");
            return HookReply::failure(format!("unknown program {:?}: expected one of {known}", hook.program));
        };
        let input = match HookInput::parse(protocol, &hook.input) {
            Ok(input) => input,
            Err(problem) => return HookReply::failure(problem),
        };
        let requester = self.requester(protocol, &input, sender);
        let mut request = match build_program_request(&requester, &input.tool, input.arguments.clone(), &input.cwd) {
            Ok(request) => request,
            // What cannot be decided cannot have been allowed.
            Err(problem) if input.event == HookEvent::AfterCall => {
                let ran = RanCall { signature: format!("{}: {problem}", input.tool), arguments: Map::new() };
                return reply_after(
                    ran_calls::report_incident(&self.calls, &requester, ran, input.call.as_deref()).await,
                );
            }
            Err(problem) => return HookReply::encode(protocol, input.event, &HookDecision::Deny(problem)),
        };
        if input.event == HookEvent::AfterCall {
            let was_allowed = match input.call.as_deref().and_then(|id| self.decided.find(requester.session(), id)) {
                Some(allowed) => Ok(allowed.is_some_and(|allowed| allowed == call_digest(&request))),
                // Of a call before the last start only the record knows.
                None => self.calls.was_allowed(&requester, &request).await,
            };
            return match was_allowed {
                Ok(true) => HookReply::silence(),
                Ok(false) => {
                    let signature = request.signatures.first().cloned().unwrap_or_default();
                    let ran = RanCall { signature, arguments: request.arguments };
                    let id = input.call.as_deref();
                    reply_after(ran_calls::report_incident(&self.calls, &requester, ran, id).await)
                }
                Err(problem) => HookReply::unchecked(problem.to_string()),
            };
        }
        real_paths::follow_links(&mut request).await;
        // The token with which it came must not decide about it.
        request.for_principals = sender.map(PrincipalId::new).into_iter().collect();
        if request.arguments.values().any(|value| value.as_str().is_some_and(|text| text.contains(PROOF_MARK))) {
            let denied = HookDecision::Deny("This call proves a guard: it is always denied".to_owned());
            return HookReply::encode(protocol, input.event, &denied);
        }
        let open = self.open.enter(requester.session());
        let wait = hook.wait.map_or(USUAL_WAIT, Duration::from_secs).min(LONGEST_WAIT);
        let (cancelled, digest) = (cancel.child_token(), call_digest(&request));
        let call = ForeignCall {
            calls: &self.calls,
            requester: &requester,
            request,
            sharing: OutcomeSharing::One,
            delivery,
            progress: NoProgress,
            cancel: cancelled.clone(),
        };
        let mut running = Box::pin(call.run());
        let decided = tokio::select! {
            decided = &mut running => decided,
            () = tokio::time::sleep(wait) => {
                cancelled.cancel();
                running.await
            }
        };
        let may_defer =
            protocol == Protocol::Claude && hook.is_headless && input.subagent.is_none() && open.was_alone();
        let decision = decision_of(decided, may_defer);
        if let Some(id) = input.call {
            let allowed = (decision == HookDecision::Allow).then_some(digest);
            self.decided.insert(requester.session(), id, allowed);
        }
        HookReply::encode(protocol, input.event, &decision)
    }

    /// Returns the requester of a program's session, or of an agent in it, whose calls are kept in the same session. One that came with a
    /// token is of that token alone.
    fn requester(&self, protocol: Protocol, input: &HookInput, sender: Option<&str>) -> Arc<Requester> {
        let from = sender.map(|from| format!("@{from}")).unwrap_or_default();
        let session = format!("{}:{}{from}", protocol.name(), input.session);
        let agent = input.subagent.as_ref().map(|agent| format!("/{agent}")).unwrap_or_default();
        let principal = format!("{}:{}{agent}{from}", protocol.name(), input.session);
        self.calls.requester(protocol, &PrincipalId::new(principal), &SessionId::new(session), &input.cwd)
    }
}

fn reply_after(reported: Result<(), CallProblem>) -> HookReply {
    match reported {
        Ok(()) => HookReply::silence(),
        Err(problem) => HookReply::unchecked(problem.to_string()),
    }
}

fn decision_of(decided: Result<CallOutcome, CallProblem>, may_defer: bool) -> HookDecision {
    match decided {
        Ok(outcome) if outcome.is_done() => HookDecision::Allow,
        Ok(outcome) => {
            let gate = outcome.gate.map(|gate| format!(" (gate {gate})")).unwrap_or_default();
            HookDecision::Deny(format!("{}{gate}", outcome.reason()))
        }
        Err(CallProblem::Cancelled(Some(gate))) => {
            let text = format!("Gate {gate} is still open: no approver has decided yet. Try the same call again");
            if may_defer { HookDecision::Defer(text) } else { HookDecision::Deny(text) }
        }
        Err(CallProblem::Cancelled(None)) => {
            HookDecision::Deny("The gateway has not decided in time. Try the same call again".to_owned())
        }
        Err(problem) => HookDecision::Deny(problem.to_string()),
    }
}

impl std::fmt::Debug for HookAdapter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HookAdapter").finish_non_exhaustive()
    }
}
