//! The adapter: decides the calls of all programs that run its hooks.

use std::{sync::Arc, time::Duration};

use countersign_core::{
    call::AgentRequest,
    id::{GateId, PrincipalId, SessionId},
    policy::reads_open_input,
};
use countersign_foreign_calls::{
    CallOutcome, CallProblem, Delivery, ForeignCall, ForeignCalls, OutcomeSharing, ProgressSink, Requester,
    build_program_request,
};
use countersign_view::Protocol;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use crate::{
    answers::{HookDecision, HookReply},
    closed_input::{self, CommandInput},
    decided_calls::{AllowedCall, DecidedCalls},
    input::{CallAsker, CallInput, HookEvent, HookInput},
    input_reader::event_of,
    open_hooks::{OpenHooks, PromptCall},
    ran_calls::{self, RanCall},
    real_paths,
};

/// Wait for a decision if the hook names none: well inside the 600 s after which most programs go on without an answer.
const USUAL_WAIT: Duration = Duration::from_secs(540);
/// Longest wait.
const LONGEST_WAIT: Duration = Duration::from_secs(24 * 3600);

/// Text in a call that is always denied: with it the proof of a guard shows that the program obeys.
pub const PROOF_MARK: &str = "countersign-proof-of-guard";
/// Reason for its denial.
pub const PROOF_REASON: &str = "This call proves a guard: it is always denied";

/// Reason against a call whose files are others than those that were decided about.
const MOVED: &str =
    "A path of this call leads elsewhere than when it was decided: a link has changed. Try the same call again";

/// Input of one hook, as its process or its program sends it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HookRequest {
    /// The program: `claude`, `codex`, `gemini`, `copilot` or `opencode`.
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

/// Call that waits for its decision.
pub(crate) struct RequestedCall<'a> {
    pub(crate) requester: &'a Requester,
    /// The call in the words of the program, of which `request` was made.
    pub(crate) call: CallInput<'a>,
    pub(crate) request: AgentRequest,
    /// Longest wait for a person; none lasts until the program goes.
    pub(crate) wait: Option<Duration>,
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
        let mut input = match HookInput::parse(protocol, &hook.input) {
            Ok(input) => input,
            Err(problem) if event_of(protocol, &hook.input) == Some(HookEvent::AfterCall) => {
                return HookReply::unchecked(problem);
            }
            Err(problem) => return HookReply::blocked(protocol.name(), problem),
        };
        let command_input = closed_input::remove_closing(protocol, &mut input);
        let requester = self.requester(protocol, &input.asker(), sender);
        if input.event == HookEvent::AfterCall {
            let compared = match command_input {
                CommandInput::Closed => self.compare_run(&requester, &input.requested_call()).await,
                CommandInput::Open => self.report_open_input(&requester, &input.requested_call()).await,
            };
            return match compared {
                Ok(()) => HookReply::silence(),
                Err(problem) => HookReply::unchecked(problem.to_string()),
            };
        }
        let call = input.requested_call();
        let request = match judged_request(&requester, &call, sender).await {
            Ok(request) => request,
            Err(problem) => return HookReply::encode(protocol, input.event, &HookDecision::Deny(problem)),
        };
        if let Some(problem) = open_input_problem(protocol, &request) {
            return HookReply::encode(protocol, input.event, &HookDecision::Deny(problem));
        }
        // The program asks about the call that it may run: one call is one question to people.
        if input.event == HookEvent::Permission && self.was_decided(&requester, &call, &request).await {
            return HookReply::encode(protocol, input.event, &HookDecision::Allow);
        }
        let open = self.open.enter(requester.session());
        let wait = hook.wait.map_or(USUAL_WAIT, Duration::from_secs).min(LONGEST_WAIT);
        let prompt_call = PromptCall { id: input.call.clone(), prompt: input.prompt.clone() };
        self.open.resume_deferred(requester.session(), &prompt_call);
        let requested = RequestedCall { requester: &requester, call, request, wait: Some(wait) };
        let decided = self.decide_call(requested, NoProgress, delivery, cancel).await;
        let is_open = matches!(decided, Err(CallProblem::Cancelled(Some(_))));
        let may_defer = is_open
            && protocol == Protocol::Claude
            && hook.is_headless
            && input.subagent.is_none()
            && open.was_alone()
            && self.open.defer_call(requester.session(), prompt_call);
        let decision = match (decision_of(decided, may_defer), closed_input::closed_arguments(protocol, &input)) {
            (HookDecision::Allow, Some(arguments)) => HookDecision::AllowAs(arguments),
            (decision, _) => decision,
        };
        HookReply::encode(protocol, input.event, &decision)
    }

    /// Decides the call of a program, and keeps the decision for its comparison with what runs.
    pub(crate) async fn decide_call(
        &self,
        requested: RequestedCall<'_>,
        progress: impl ProgressSink + Send,
        delivery: &Delivery,
        cancel: &CancellationToken,
    ) -> Result<CallOutcome, CallProblem> {
        let RequestedCall { requester, call: input, request, wait } = requested;
        let (cancelled, judged) = (cancel.child_token(), request.clone());
        let call = ForeignCall {
            calls: &self.calls,
            requester,
            request,
            sharing: OutcomeSharing::One,
            delivery,
            progress,
            cancel: cancelled.clone(),
        };
        let mut running = Box::pin(call.run());
        let decided = match wait {
            None => running.await,
            Some(wait) => tokio::select! {
                decided = &mut running => decided,
                () = tokio::time::sleep(wait) => {
                    cancelled.cancel();
                    running.await
                }
            },
        };
        let is_allowed = decided.as_ref().is_ok_and(CallOutcome::is_done);
        let was_asked = decided.as_ref().is_ok_and(|outcome| outcome.gate.is_some());
        let has_moved = is_allowed && was_asked && self.leads_elsewhere(requester, &input, &judged).await;
        if let Some(id) = input.id {
            let allowed = (is_allowed && !has_moved).then(|| AllowedCall::from_request(&judged));
            let decided_by = decided.as_ref().ok().map(|outcome| outcome.call);
            self.decided.insert(requester.session(), id.to_owned(), allowed, decided_by);
        }
        if has_moved { Err(CallProblem::Refused(MOVED.to_owned())) } else { decided }
    }

    /// Reports whether the paths of a call lead elsewhere than when it was judged: a person may decide hours later.
    async fn leads_elsewhere(&self, requester: &Requester, input: &CallInput<'_>, judged: &AgentRequest) -> bool {
        let now = judged_request(requester, input, None).await;
        now.map_or(true, |now| now.paths != judged.paths || now.leads_to != judged.leads_to)
    }

    /// Reports whether this call was allowed before under its own id, with the same files, and nothing forbids it now.
    async fn was_decided(&self, requester: &Requester, input: &CallInput<'_>, request: &AgentRequest) -> bool {
        let decided = input.id.and_then(|id| self.decided.find(requester.session(), id));
        decided.flatten() == Some(AllowedCall::from_request(request))
            && self.calls.denial_now(requester, request).await.is_ok_and(|denied| denied.is_none())
    }

    /// Compares a call that ran with the decision about it. A difference becomes an incident.
    ///
    /// # Errors
    /// The reason why it could not be compared, or the incident not be recorded.
    pub(crate) async fn compare_run(&self, requester: &Requester, call: &CallInput<'_>) -> Result<(), CallProblem> {
        let request = match build_program_request(requester, call.tool, call.arguments.clone(), call.cwd) {
            Ok(request) => request,
            // What cannot be decided cannot have been allowed.
            Err(problem) => {
                let ran = RanCall { signature: format!("{}: {problem}", call.tool), arguments: Map::new() };
                return ran_calls::report_incident(&self.calls, requester, ran, call.id).await;
            }
        };
        let was_allowed = match (call.id, call.id.and_then(|id| self.decided.find(requester.session(), id))) {
            (_, Some(allowed)) => allowed.is_some_and(|allowed| allowed.is_run(&request)),
            // Of a call before the last start only the record knows. Each request of it allowed one call.
            (Some(id), None) => {
                let requests = self.calls.allowed_requests(requester, &request).await?;
                self.decided.adopt(requester.session(), id, AllowedCall::from_request(&request), &requests)
            }
            (None, None) => !self.calls.allowed_requests(requester, &request).await?.is_empty(),
        };
        if was_allowed {
            return Ok(());
        }
        let signature = request.signatures.first().cloned().unwrap_or_default();
        let ran = RanCall { signature, arguments: request.arguments };
        ran_calls::report_incident(&self.calls, requester, ran, call.id).await
    }

    /// Reports a command that ran with an open input: another hook, or Codex itself, ran it as it was before the hook closed its input.
    async fn report_open_input(&self, requester: &Requester, call: &CallInput<'_>) -> Result<(), CallProblem> {
        let ran = RanCall { signature: format!("{} with an open input", call.tool), arguments: call.arguments.clone() };
        ran_calls::report_incident(&self.calls, requester, ran, call.id).await
    }

    /// Returns the requester of a program's session, or of an agent in it, whose calls are kept in the same session. One that came with a
    /// token is of that token alone.
    pub(crate) fn requester(&self, protocol: Protocol, asker: &CallAsker<'_>, sender: Option<&str>) -> Arc<Requester> {
        let from = sender.map(|from| format!("@{from}")).unwrap_or_default();
        let session = format!("{}:{}{from}", protocol.name(), asker.session);
        let agent = asker.subagent.map(|agent| format!("/{agent}")).unwrap_or_default();
        let principal = format!("{}:{}{agent}{from}", protocol.name(), asker.session);
        self.calls.requester(protocol, &PrincipalId::new(principal), &SessionId::new(session), asker.cwd)
    }
}

/// Builds the request that rules judge: with the real paths of its files.
///
/// # Errors
/// A reason for the agent to deny the call.
pub(crate) async fn judged_request(
    requester: &Requester,
    call: &CallInput<'_>,
    sender: Option<&str>,
) -> Result<AgentRequest, String> {
    let mut request = build_program_request(requester, call.tool, call.arguments.clone(), call.cwd)?;
    real_paths::follow_links(&mut request).await?;
    // The token with which it came must not decide about it.
    request.for_principals = sender.map(PrincipalId::new).into_iter().collect();
    if request.arguments.values().any(|value| value.as_str().is_some_and(|text| text.contains(PROOF_MARK))) {
        return Err(PROOF_REASON.to_owned());
    }
    Ok(request)
}

/// Returns the reason against a command whose program obeys what is written to it later: Codex runs no hook for that.
fn open_input_problem(protocol: Protocol, request: &AgentRequest) -> Option<String> {
    let command = request.arguments.get("command").and_then(Value::as_str);
    let command = command.filter(|_| protocol == Protocol::Codex && &*request.tool == "bash")?;
    let program = reads_open_input(command)?;
    Some(format!(
        "{program} would read commands from its standard input, and no approver sees what is written there later (write_stdin). Put \
         the commands into the call, or give the command an input, for example `< /dev/null`"
    ))
}

/// Returns the reason of a denial with its gate, for the agent.
pub(crate) fn reason_of(outcome: &CallOutcome) -> String {
    let gate = outcome.gate.map(|gate| format!(" (gate {gate})")).unwrap_or_default();
    format!("{}{gate}", outcome.reason())
}

fn decision_of(decided: Result<CallOutcome, CallProblem>, may_defer: bool) -> HookDecision {
    match decided {
        Ok(outcome) if outcome.is_done() => HookDecision::Allow,
        Ok(outcome) => HookDecision::Deny(reason_of(&outcome)),
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
