//! The settle rules: automatic consequences of the state. Here the machines meet, and nowhere else.
//!
//! Each rule is small and pure, in a file of its own: it reads one session and returns the facts that are due, or
//! nothing. Rules are evaluated in order until none returns a fact.

mod abort_ends;
mod ask_model;
mod ask_peer;
mod ask_questions;
mod asks_to_go_on;
mod backoff_over;
mod breaker_trips;
mod call_starts;
mod contract;
mod firing_over;
mod gate_expires;
mod gate_settles;
mod grant_covers;
mod judge;
mod next_begins;
mod peer_missed;
mod queue_goes_on;
mod run_continues;
mod steer_skips;
mod turn_closes;
mod wait_question;

use std::borrow::Cow;

use crate::{
    call::{self, Call},
    call_subject::subject_of_call,
    decision::{BranchBuilder, DecisionContext, DecisionView, Event, Fact, texts},
    gate::{self, ApprovalScope, Gate},
    id::{GateId, SessionId},
    policy::{self, PolicySubject, Verdict},
    principal::agent_principal,
    run::{AbortState, Run},
    session::{self, AgentRequests, Breaker, DenialReach, Session, SessionEntryKind},
    time::Millis,
    unattended::{self, UnattendedContract},
};

pub(crate) use breaker_trips::LIMIT as MOST_DENIALS;
pub(crate) use contract::{ask_for_wider, breach_facts};
pub(crate) use queue_goes_on::{begin_own, continue_with};
pub(crate) use run_continues::forget_run;
pub(crate) use wait_question::withdraw_question as withdrawn_wait;

/// The open calls of one session: those of a run's turn, or those of an agent's requests.
#[derive(Clone, Copy)]
struct OpenCalls<'a> {
    view: DecisionView<'a>,
    session: &'a Session,
    /// The run whose calls they are.
    run: Option<&'a Run>,
    /// The calls in the order of the message, or in that of the requests: looked up once for all rules.
    calls: &'a [&'a Call],
}

/// A run with its session and the calls of its open turn.
#[derive(Clone, Copy)]
struct RunContext<'a> {
    docket: OpenCalls<'a>,
    run: &'a Run,
}

impl<'a> std::ops::Deref for RunContext<'a> {
    type Target = OpenCalls<'a>;

    fn deref(&self) -> &Self::Target {
        &self.docket
    }
}

type RunRule = fn(RunContext<'_>, &mut DecisionContext) -> Option<Vec<Fact>>;
type CallsRule = fn(OpenCalls<'_>, &mut DecisionContext) -> Option<Vec<Fact>>;

/// The rules of an agent's requests, in order of evaluation.
const OF_REQUESTS: [CallsRule; 8] = [
    gate_expires::due_facts,
    grant_covers::due_facts,
    gate_settles::due_facts,
    asks_to_go_on::due_facts,
    peer_missed::due_facts,
    judge::due_facts,
    call_starts::due_facts,
    ask_questions::due_facts,
];

/// The rules of a run, in order of evaluation.
const OF_RUNS: [RunRule; 16] = [
    |scene, context| gate_expires::due_facts(scene.docket, context),
    |scene, context| grant_covers::due_facts(scene.docket, context),
    |scene, context| gate_settles::due_facts(scene.docket, context),
    abort_ends::due_facts,
    breaker_trips::due_facts,
    steer_skips::due_facts,
    |scene, _| ask_peer::due_facts(scene.docket),
    |scene, context| peer_missed::due_facts(scene.docket, context),
    |scene, context| judge::due_facts(scene.docket, context),
    |scene, context| call_starts::due_facts(scene.docket, context),
    |scene, context| ask_questions::due_facts(scene.docket, context),
    turn_closes::due_facts,
    wait_question::due_facts,
    backoff_over::due_facts,
    run_continues::due_facts,
    ask_model::due_facts,
];

/// The rules of a run whose rules are not loaded: deadlines pass, and stopped work ends. Nothing is judged, started or
/// requested.
const WITHOUT_RULES: [RunRule; 7] = [
    |scene, context| gate_expires::due_facts(scene.docket, context),
    |scene, context| peer_missed::due_facts(scene.docket, context),
    abort_ends::due_facts,
    |scene, context| scene.is_stopped().then(|| turn_closes::due_facts(scene, context)).flatten(),
    wait_question::due_facts,
    backoff_over::due_facts,
    |scene, context| scene.is_stopped().then(|| run_continues::due_facts(scene, context)).flatten(),
];

/// Returns the next facts that follow for a session, or `None` at the fixed point.
pub(crate) fn next_facts(view: DecisionView<'_>, id: &SessionId, context: &mut DecisionContext) -> Option<Vec<Fact>> {
    let session = view.state.session(id)?;
    if let Some(facts) = contract::due_facts(view, session, context) {
        return Some(facts);
    }
    if let Some(facts) = firing_over::due_facts(view, session, context.now) {
        return Some(facts);
    }
    let run = session.run().and_then(|run| view.state.run(run));
    let calls_of = |run: &Run| -> Vec<&Call> { run.calls().iter().filter_map(|call| view.state.call(*call)).collect() };
    let Some(view) = view.for_session(session) else {
        let run = run?;
        let docket = OpenCalls { view, session, run: Some(run), calls: &calls_of(run) };
        return WITHOUT_RULES.iter().find_map(|rule| rule(RunContext { docket, run }, context));
    };
    if let Some(run) = run {
        let docket = OpenCalls { view, session, run: Some(run), calls: &calls_of(run) };
        let scene = RunContext { docket, run };
        if let Some(facts) = OF_RUNS.iter().find_map(|rule| rule(scene, context)) {
            return Some(facts);
        }
    }
    let acts = OpenCalls { view, session, run: None, calls: &[] };
    if let Some(facts) = ask_peer::of_acts(acts).or_else(|| peer_missed::of_acts(acts, context)) {
        return Some(facts);
    }
    let is_at_rest = |of: &AgentRequests| of.open_requests().is_empty() && of.breaker() == &Breaker::default();
    if let Some(facts) = next_begins::due_facts(view, session, context) {
        return Some(facts);
    }
    let requester = session.agent_requests().filter(|requester| !is_at_rest(requester))?;
    let calls: Vec<&Call> = requester.open_requests().keys().filter_map(|call| view.state.call(*call)).collect();
    let docket = OpenCalls { view, session, run: None, calls: &calls };
    OF_REQUESTS.iter().find_map(|rule| rule(docket, context))
}

impl RunContext<'_> {
    fn is_stopped(self) -> bool {
        self.run.abort_state() == AbortState::Requested
    }
}

impl<'a> OpenCalls<'a> {
    /// Returns the calls in the order of the message, or in that of the requests.
    fn open_calls(self) -> impl DoubleEndedIterator<Item = &'a Call> {
        self.calls.iter().copied()
    }

    /// Returns the actions of peers that people started.
    fn peer_actions(self) -> impl Iterator<Item = &'a Call> {
        self.session.commands().filter_map(move |call| self.view.state.call(call)).filter(|call| call.is_act())
    }

    /// Returns the pending gates: of the calls, about the wait of the run, and of the breaker.
    fn open_gates(self) -> impl Iterator<Item = &'a Gate> {
        let of_calls = self.open_calls().filter_map(move |call| self.view.state.gate_of(call.id()));
        let requester = self.session.agent_requests().filter(|_| self.run.is_none());
        let of_agent = requester.and_then(|requester| requester.breaker().pending_gate());
        let of_wait = self.run.and_then(|run| run.gate);
        of_calls.chain(of_wait.or(of_agent).and_then(|gate| self.view.state.gate(gate)))
    }

    /// Reports whether the contract of the session, if there is one, lets new work begin.
    fn may_begin(self) -> bool {
        self.session.unattended().is_none_or(UnattendedContract::is_in_force)
    }

    /// Reports whether the contract of the session is used up.
    fn is_over(self) -> bool {
        self.session.unattended().is_some_and(|unattended| unattended.final_breach().is_some())
    }

    /// Ends a call that policy refuses. A gap of the contract is a fact of its own.
    fn deny_call(
        self,
        branch: &mut BranchBuilder<'_>,
        call: &Call,
        why: &policy::VerdictReason,
        context: &mut DecisionContext,
    ) {
        if let policy::VerdictCause::Contract { lacks } = &why.cause {
            let (lacks, call) = (lacks.clone(), Some(call.id()));
            branch.push_event(Event::Unattended(unattended::Event::Denied { lacks, call, command: None }));
        }
        self.end_call(branch, call, call::CallEnd::Denied, &format!("Denied by policy: {why}"), context);
    }

    /// Reports whether the breaker holds the agent whose requests these are.
    fn is_held(self) -> bool {
        let requester = self.session.agent_requests().filter(|_| self.run.is_none());
        requester.is_some_and(|requester| requester.breaker().is_open())
    }

    /// Returns the number of a person's denials in a row.
    fn denial_count(self) -> u32 {
        self.run.map_or(0, |run| run.denials)
    }

    fn session_fact(self, event: Event) -> Fact {
        Fact::without_content(event, Some(self.session.id().clone()))
    }

    /// Ends a call with a text as its result. A gate that it waits for is withdrawn.
    fn end_call(
        self,
        branch: &mut BranchBuilder<'_>,
        call: &Call,
        end: call::CallEnd,
        text: &str,
        context: &mut DecisionContext,
    ) {
        withdraw_gate(self.view, branch, call);
        if self.run.is_none() {
            // The adapter reports it to the requester in its own words.
            let ended = call::Event::Ended { call: call.id(), end, entry: None };
            return branch.push_with(Event::Call(ended), Some(text.into()));
        }
        let result = texts::tool_result(self.view.admitted.call_content(call.id()), text, end.is_error());
        self.end_call_with(branch, call, end, result, context);
    }

    /// Ends a call with a result.
    fn end_call_with(
        self,
        branch: &mut BranchBuilder<'_>,
        call: &Call,
        end: call::CallEnd,
        result: session::MessageContent,
        context: &mut DecisionContext,
    ) {
        let entry = branch.push_message(SessionEntryKind::ToolResult { prunable: false }, result, context);
        branch.push_event(Event::Call(call::Event::Ended { call: call.id(), end, entry: Some(entry) }));
    }

    /// Returns the subject of a call for policy.
    fn policy_subject(self, call: &Call) -> Option<PolicySubject> {
        let content = self.view.admitted.call_content(call.id())?;
        Some(subject_of_call(self.session, content, call.effect, agent_principal()))
    }
}

/// Withdraws the pending gate of a call that no longer waits for the answer.
pub(crate) fn withdraw_gate(view: DecisionView<'_>, branch: &mut BranchBuilder<'_>, call: &Call) {
    if let Some(gate) = view.state.gate_of(call.id()).filter(|gate| gate.is_pending()) {
        let (gate, resolution) = (gate.id(), gate::GateResolution::Withdrawn);
        branch.push_event(Event::Gate(gate::Event::auto_resolved(gate, resolution)));
    }
}

/// Returns a reason as a fact may hold it. The whole text is in the gate's content, or is sent to the model.
pub(crate) fn short_reason(why: &policy::VerdictReason) -> String {
    why.to_string().chars().take(500).collect()
}

/// Reports whether an agent requested a tool that does not exist: nothing runs, after any answer.
fn is_for_nothing(content: &call::CallDetails) -> bool {
    content.request.as_ref().is_some_and(|request| request.service.is_none())
}

/// Returns the reason for an approval, as an approver is shown it: with every secret that the call would get.
fn shown_reason(content: &call::CallDetails, subject: &PolicySubject, why: &policy::VerdictReason) -> String {
    if is_for_nothing(content) {
        return format!("{why}; this gateway has no tool {}: allowing it runs nothing", content.tool);
    }
    let used = subject.secret_names().unwrap_or_default();
    if used.is_empty() {
        return why.to_string();
    }
    let used: Vec<String> = used.into_iter().collect();
    format!("{why}; the secrets that it would be given: {}", used.join(", "))
}

/// Returns the session whose calls alone a denial at `gate` stops; none if it stops those of all sessions.
pub(crate) fn denial_session(view: DecisionView<'_>, gate: &Gate) -> Option<SessionId> {
    let session = view.state.session(gate.session()?)?;
    (session.settings().denials == DenialReach::Session).then(|| session.id().clone())
}

/// Evaluates policy: the rules in force, denials and grants of people, and the contract of the session. While a plan is not
/// approved the agent only reads.
pub(crate) fn evaluate_policy(
    view: DecisionView<'_>,
    session: &Session,
    subject: &PolicySubject,
    now: Millis,
) -> Verdict {
    if let Some(withheld) = session.withheld_calls()
        && subject.principal == agent_principal()
        && !policy::only_reads(subject, &view.rules.path_context)
    {
        let cause = policy::VerdictCause::Unapproved { of: withheld.kind, decision: withheld.decision };
        return Verdict::Deny(policy::VerdictReason { cause, policy: view.rules.digest() });
    }
    let path_context = path_context_of(view, session);
    let layers = policy::PolicyLayers {
        compiled: &view.rules.compiled,
        constraints: view.state.policy().constraints(),
        contract: session.unattended().map(|unattended| &unattended.terms().may),
        grants: view.state.policy().grants(),
        default_policy: view.rules.default_policy,
        path_context: &path_context,
    };
    policy::evaluate(&layers, subject, now)
}

/// Returns the path context of a session's calls. Its approval mode is the stricter one of the rules and of the session.
fn path_context_of<'a>(view: DecisionView<'a>, session: &Session) -> Cow<'a, policy::PathContext> {
    let of_rules = &view.rules.path_context;
    let approval = session.settings().approval;
    if approval <= of_rules.approval {
        return Cow::Borrowed(of_rules);
    }
    Cow::Owned(policy::PathContext { approval, ..of_rules.clone() })
}

/// Result of a call that was judged in a folder which the shell has left.
const MOVED: &str = "Not run: the shell went to another folder after this call was looked at. Call again, so that it is decided for where the shell is now.";

/// Opens the gate of a call that requires an approval. The pins of the call were made in the folder of the shell: they are
/// not shown for another folder.
fn open_approval(
    scene: OpenCalls<'_>,
    branch: &mut BranchBuilder<'_>,
    call: &Call,
    why: &policy::VerdictReason,
    context: &mut DecisionContext,
) {
    let Some((content, subject)) = scene.view.admitted.call_content(call.id()).zip(scene.policy_subject(call)) else {
        return;
    };
    if content.pins.as_ref().is_some_and(|pins| pins.at != scene.session.folder()) {
        scene.end_call(branch, call, call::CallEnd::Failed, MOVED, context);
        return;
    }
    let shown = gate::GateContent::Approval {
        tool: content.tool.clone(),
        arguments: content.arguments.clone(),
        signature: content.signature.clone(),
        intent: content.intent.clone(),
        why: shown_reason(content, &subject, why),
        pins: content.pins.clone(),
    };
    let shown = serde_json::to_string(&shown).expect("content is plain data with text keys");
    let steps = why.approval_steps().to_vec();
    let is_once = why.is_floor() || !steps.is_empty() || is_for_nothing(content);
    let scopes = if is_once {
        vec![ApprovalScope::Once]
    } else {
        vec![ApprovalScope::Once, ApprovalScope::Session, ApprovalScope::Always]
    };
    let within = steps.first().and_then(|step| step.within);
    branch.push_event(Event::Call(call::Event::Gated {
        call: call.id(),
        why: short_reason(why),
        policy: scene.view.rules.digest(),
    }));
    let (stage, number) = scene.session.next_place(gate::Kind::Approval.stage());
    let opened = gate::Event::Opened {
        gate: GateId::new(context.fresh.next_uuid(context.now)),
        kind: gate::Kind::Approval,
        ordinal: scene.view.state.next_ordinal(scene.session.id()),
        number,
        stage,
        run: scene.run.map(Run::id),
        call: Some(call.id()),
        subject: subject.digest(),
        scopes,
        deadline: Some(context.now + within.unwrap_or_else(|| scene.session.settings().approval_timeout)),
        fallback: gate::Fallback::Deny,
        remind_at: None,
        steps,
    };
    branch.push_with(Event::Gate(opened), Some(shown.into()));
}
