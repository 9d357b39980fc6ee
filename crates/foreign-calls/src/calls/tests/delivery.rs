//! Decisions of calls whose clients go, with an engine in memory.

use std::{path::Path, pin::Pin, sync::Arc, time::Duration};

use countersign_core::{
    call::CallDetails,
    engine::{ActiveRules, Command, ResumeMode},
    gate::{self, ApprovalScope, Gate, GateReply, IdentityMap},
    id::{CallId, GateId, PrincipalId, SessionId},
    policy::{CompiledRules, DefaultPolicy, PathContext},
    session::ModelRef,
    time::Millis,
    tool::ToolSpec,
};
use countersign_runtime::{
    Clock, OwnerHandle, OwnerOptions, ResolvedModel, RunEnvironment, ServiceOutcome,
    store::MemoryLog,
    system_entropy,
    tools::{self, ToolRegistry},
};
use countersign_view::Protocol;
use serde_json::{Map, json};
use tokio_util::sync::CancellationToken;

use crate::{
    CallLimits, CallOutcome, CallProblem, Delivery, ForeignCall, ForeignCalls, OutcomeSharing, ProgressSink, Requester,
    new_decision,
};

/// Gateway that does nothing for a decision.
struct Decider;

impl RunEnvironment for Decider {
    fn resolve_model(&self, _: &ModelRef) -> Result<ResolvedModel, String> {
        Err("there is no model".to_owned())
    }

    fn tool_registry(&self, _: &SessionId) -> Arc<ToolRegistry> {
        Arc::new(ToolRegistry::standard())
    }

    fn system_prompt(&self, _: &SessionId, _: &str, _: &[&ToolSpec]) -> String {
        String::new()
    }

    fn call_service<'a>(
        &'a self,
        _: &'a CallDetails,
        _: CancellationToken,
    ) -> Pin<Box<dyn Future<Output = ServiceOutcome> + Send + 'a>> {
        Box::pin(async { ServiceOutcome::Done("null".to_owned()) })
    }

    fn tool_context(&self, _: &SessionId, cwd: &str) -> tools::ToolContext {
        let launcher = tools::exec::ExecLauncher::new(Path::new("/bin/false"));
        let environment = tools::CommandEnvironment::clean_with([]);
        let (roots, shell) = (tools::AllowedRoots::whole_filesystem([]), tools::SessionShell::new(launcher));
        tools::ToolContext::new(cwd.into(), roots, environment, shell)
    }
}

struct NoProgress;

impl ProgressSink for NoProgress {
    async fn report_wait(&mut self, _: Option<GateId>) {}
}

/// Gateway with one client, whose calls need an approval each.
struct Fixture {
    calls: ForeignCalls,
    requester: Arc<Requester>,
}

impl Fixture {
    async fn open() -> Self {
        let rules = ActiveRules {
            compiled: CompiledRules::default(),
            default_policy: DefaultPolicy::Gateway,
            path_context: PathContext::default(),
            people: IdentityMap::default(),
        };
        let clock = Clock::starting_at(Millis(1_000));
        let options = OwnerOptions {
            rules,
            resume: ResumeMode::Go,
            clock: clock.clone(),
            entropy: system_entropy(),
            environment: Arc::new(Decider),
            merge: Duration::ZERO,
            idle: None,
        };
        let owner = OwnerHandle::open(MemoryLog::new().into(), options).await.unwrap();
        let hour = Duration::from_secs(3600);
        let limits = CallLimits { per_minute: 60, pending: 10, approval_timeout: hour, question_timeout: hour };
        let calls = ForeignCalls::open(owner, clock, limits).await.unwrap();
        let (principal, session) = (PrincipalId::new("token:ci"), SessionId::new("mcp:token:ci"));
        let requester = calls.requester(Protocol::Mcp, &principal, &session, "");
        Self { calls, requester }
    }

    /// Runs the call that all tests repeat.
    async fn run(&self, sharing: OutcomeSharing, delivery: &Delivery) -> Result<CallOutcome, CallProblem> {
        let arguments = Map::from_iter([("action".to_owned(), json!("deploy"))]);
        let call = ForeignCall {
            calls: &self.calls,
            requester: &self.requester,
            request: new_decision(&self.requester, "deploy", arguments, "deploy(deploy)".to_owned()),
            sharing,
            delivery,
            progress: NoProgress,
            cancel: CancellationToken::new(),
        };
        call.run().await
    }

    /// Waits until an open call waits for a gate, and its request knows that.
    async fn wait_gate(&self) -> (CallId, GateId) {
        loop {
            let session = self.requester.session().clone();
            let read = self.calls.requests().read_state(move |engine| {
                let gate = engine.state().pending_gates().map(Gate::id).next()?;
                let requests = engine.state().session(&session)?.agent_requests()?;
                Some((*requests.open_requests().keys().next()?, gate))
            });
            if let Some((call, gate)) = read.await.unwrap().0
                && self.calls.outcomes.gate_of(call) == Some(gate)
            {
                return (call, gate);
            }
            tokio::task::yield_now().await;
        }
    }

    /// Allows a call, and waits until its outcome was sent to those that wait for it.
    async fn allow(&self, call: CallId, gate: GateId) {
        let answer = GateReply::Allow(ApprovalScope::Once);
        let command = gate::Command::Answer { gate, answer, by: PrincipalId::new("ana"), key: None };
        self.calls.requests().send_command(Command::Gate(command)).await.unwrap();
        while self.calls.outcomes.gate_of(call).is_some() {
            tokio::task::yield_now().await;
        }
    }

    /// Checks that the same call repeated gets the decision at `gate`, and that the call after it is a new one.
    async fn assert_kept(&self, sharing: OutcomeSharing, gate: GateId, case: &str) {
        let delivery = Delivery::default();
        let outcome = self.run(sharing, &delivery).await.expect(case);
        assert_eq!((outcome.gate, outcome.is_done()), (Some(gate), true), "{case}");
        delivery.confirm();
        let next = Delivery::default();
        tokio::select! {
            outcome = self.run(sharing, &next) => panic!("{case}: {outcome:?}"),
            (_, other) = self.wait_gate() => assert_ne!(other, gate, "{case}"),
        }
    }
}

/// Time at which a client goes.
#[derive(Clone, Copy, Debug)]
enum Departure {
    BeforeDecision,
    /// Before its call has taken the outcome that is on its way to it.
    AfterDecision,
}

#[tokio::test]
async fn a_decision_whose_client_has_gone_is_kept_for_the_same_call() {
    for sharing in [OutcomeSharing::One, OutcomeSharing::All] {
        for departure in [Departure::BeforeDecision, Departure::AfterDecision] {
            let case = format!("{sharing:?} {departure:?}");
            let fixture = Fixture::open().await;
            let lost = Delivery::default();
            let mut waiting = Box::pin(fixture.run(sharing, &lost));
            let (call, gate) = tokio::select! {
                outcome = &mut waiting => panic!("{case}: {outcome:?}"),
                found = fixture.wait_gate() => found,
            };
            match departure {
                Departure::BeforeDecision => {
                    lost.abandon();
                    assert_eq!(waiting.await, Err(CallProblem::Cancelled(Some(gate))), "{case}");
                }
                Departure::AfterDecision => {
                    fixture.allow(call, gate).await;
                    lost.abandon();
                    assert!(matches!(waiting.await, Err(CallProblem::Cancelled(_))), "{case}");
                }
            }
            if matches!(departure, Departure::BeforeDecision) {
                fixture.allow(call, gate).await;
            }
            fixture.assert_kept(sharing, gate, &case).await;
        }
    }
}

#[tokio::test]
async fn a_waiting_call_gets_the_decision_after_the_same_call_was_abandoned() {
    let fixture = Fixture::open().await;
    let (kept, lost) = (Delivery::default(), Delivery::default());
    let mut first = Box::pin(fixture.run(OutcomeSharing::One, &kept));
    let (call, gate) = tokio::select! {
        outcome = &mut first => panic!("{outcome:?}"),
        found = fixture.wait_gate() => found,
    };
    let mut last = Box::pin(fixture.run(OutcomeSharing::One, &lost));
    while fixture.calls.outcomes.count_waiting(call) < 2 {
        tokio::select! {
            biased;
            outcome = &mut last => panic!("{outcome:?}"),
            () = tokio::task::yield_now() => {}
        }
    }
    lost.abandon();
    fixture.allow(call, gate).await;
    assert!(matches!(last.await, Err(CallProblem::Cancelled(_))));
    assert_eq!(first.await.map(|outcome| outcome.gate), Ok(Some(gate)));
}
