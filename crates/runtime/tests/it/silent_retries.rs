//! Requests that fail before anything of an answer was shown: they are sent again, without a report.

use std::time::Duration;

use countersign_core::{
    engine::{Command, Event},
    ledger::BudgetLimits,
    message::StopReason,
    policy::{Contract, ContractScope, DefaultPolicy},
    run::{self, RunOutcome},
    session::{self, SessionEntryKind},
    time::Millis,
    unattended::{self, ContractTerms},
};
use countersign_runtime::{
    Clock, InboxLane, LiveKind, OwnerHandle, ReleasedItem, SilentRetries,
    models::{
        FailureKind, ModelEvent as Said, ModelFailure,
        scripted::{ReplyStep, ScriptedModel, ScriptedReply},
    },
};

use crate::fixture::{RetrySettings, begin, name, open_trying, prompt};

const BEGIN: Millis = Millis(1_800_000_000_000);

fn fails(kind: FailureKind, after: Option<u64>) -> ScriptedReply {
    ScriptedReply::from_failure(ModelFailure {
        retry_after: after.map(Duration::from_millis),
        ..ModelFailure::new(kind, "it failed")
    })
}

/// Outcome of a prompt: how the run ended, the stops of its answers, the wait if that was reported, and the
/// milliseconds that all of it took.
#[derive(Debug, Default, PartialEq)]
struct RunReport {
    end: Option<RunOutcome>,
    stops: Vec<StopReason>,
    waits: Vec<u64>,
    messages_begun: usize,
    took: u64,
}

async fn owner(attempts: RetrySettings, model: &ScriptedModel) -> OwnerHandle {
    open_trying(attempts, Clock::starting_at(BEGIN), model, DefaultPolicy::Stdio).await
}

/// Prompts, and aborts after so many milliseconds, if at all.
async fn seen(model: &ScriptedModel, abort: Option<u64>) -> RunReport {
    seen_with(RetrySettings::default(), None, model, abort).await
}

/// Does the same under a contract with this budget, if there is one.
async fn seen_under(budget: Option<BudgetLimits>, model: &ScriptedModel, abort: Option<u64>) -> RunReport {
    seen_with(RetrySettings::default(), budget, model, abort).await
}

async fn seen_with(
    attempts: RetrySettings,
    budget: Option<BudgetLimits>,
    model: &ScriptedModel,
    abort: Option<u64>,
) -> RunReport {
    let owner = owner(attempts, model).await;
    let requests = begin(&owner, &std::env::temp_dir()).await;
    if let Some(budget) = budget {
        let scopes = [ContractScope::Prompt];
        let may = Contract { scopes: scopes.into(), commands: scopes.into(), ..Contract::default() };
        let terms = Box::new(ContractTerms { actor: "ci".to_owned(), may, budget, ..ContractTerms::default() });
        let declare = unattended::Command::Declare { session: name(), terms, carried: None };
        requests.send_command(Command::Unattended(declare)).await.unwrap();
    }
    let mut released = owner.subscribe().await.unwrap();
    requests.send_command(prompt()).await.unwrap();
    if let Some(abort) = abort {
        let requests = owner.source(InboxLane::Request);
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(abort)).await;
            requests.send_command(Command::Run(run::Command::Abort { session: name() })).await.unwrap();
        });
    }
    let mut seen = RunReport::default();
    while seen.end.is_none() {
        let recorded = match released.next().await.unwrap() {
            ReleasedItem::Fact(recorded) => recorded,
            ReleasedItem::Live(live) => {
                seen.messages_begun += usize::from(matches!(live.kind, LiveKind::MessageStarted { .. }));
                continue;
            }
        };
        match &recorded.fact.event {
            Event::Session(session::Event::Entry { kind: SessionEntryKind::Assistant { stop, .. }, .. }) => {
                seen.stops.push(*stop)
            }
            Event::Run(run::Event::BackedOff { delay, .. }) => {
                seen.waits.push(u64::try_from(delay.as_millis()).unwrap());
            }
            Event::Run(run::Event::Ended { end, .. }) => {
                seen.end = Some(*end);
                seen.took = recorded.meta.at.0 - BEGIN.0;
            }
            _ => {}
        }
    }
    owner.close().await;
    seen
}

#[tokio::test(start_paused = true)]
async fn a_failure_before_the_answer_is_known_to_nobody() {
    let limited = || fails(FailureKind::RateLimit, Some(1_000));
    for (case, failures, took) in [
        ("one that says when to come again", vec![limited()], 1_000),
        ("one that does not", vec![fails(FailureKind::Server, None)], 400),
        ("several", vec![limited(), fails(FailureKind::Network, None), fails(FailureKind::Broken, None)], 3_400),
    ] {
        let model = ScriptedModel::new(failures.into_iter().chain([ScriptedReply::from_text("Recovered")]));
        let want = RunReport {
            end: Some(RunOutcome::Completed),
            stops: vec![StopReason::Stop],
            messages_begun: 1,
            took,
            ..RunReport::default()
        };
        assert_eq!(seen(&model, None).await, want, "{case}");
        assert_eq!(model.replies_left(), 0, "{case}");
    }
}

#[tokio::test(start_paused = true)]
async fn failures_are_reported_after_the_silent_attempts() {
    let down = || fails(FailureKind::Overloaded, None);
    let model = ScriptedModel::new((0..6).map(|_| down()).chain([down(), ScriptedReply::from_text("back")]));
    let (stops, waits) = (vec![StopReason::Error, StopReason::Stop], vec![2_000]);
    let took = 12_400 + 2_000 + 400;
    let want = RunReport { end: Some(RunOutcome::Completed), stops, waits, messages_begun: 1, took };
    assert_eq!(seen(&model, None).await, want);
}

#[tokio::test(start_paused = true)]
async fn a_long_wait_and_a_permanent_failure_are_reported_at_once() {
    let model = ScriptedModel::new([fails(FailureKind::RateLimit, Some(30_000)), ScriptedReply::from_text("later")]);
    let want = RunReport {
        end: Some(RunOutcome::Completed),
        stops: vec![StopReason::Error, StopReason::Stop],
        waits: vec![30_000],
        messages_begun: 1,
        took: 30_000,
    };
    assert_eq!(seen(&model, None).await, want);
    let model = ScriptedModel::new([fails(FailureKind::Auth, None)]);
    let want = RunReport { end: Some(RunOutcome::Failed), stops: vec![StopReason::Error], ..RunReport::default() };
    assert_eq!(seen(&model, None).await, want);
}

#[tokio::test(start_paused = true)]
async fn a_fault_in_the_middle_of_an_answer_is_reported() {
    let broken = || ReplyStep::Fail(ModelFailure::new(FailureKind::Network, "it broke"));
    let model = ScriptedModel::new([
        ScriptedReply::new().add_text(["half"]).add_step(broken()),
        ScriptedReply::from_text("whole"),
    ]);
    let report = seen(&model, None).await;
    assert_eq!(
        (report.stops, report.waits, report.took),
        (vec![StopReason::Error, StopReason::Stop], vec![2_000], 2_000)
    );
    let limit = Duration::from_secs(120);
    let idle =
        ScriptedReply::default().add_step(ReplyStep::Say(Said::Idle { since: limit / 2, limit })).add_step(broken());
    let report = seen(&ScriptedModel::new([idle, ScriptedReply::from_text("whole")]), None).await;
    assert_eq!((report.stops, report.took), (vec![StopReason::Stop], 400), "a sign of life is no part of an answer");
}

#[tokio::test(start_paused = true)]
async fn an_abort_ends_a_silent_wait_at_once() {
    let model = ScriptedModel::new([fails(FailureKind::RateLimit, Some(15_000)), ScriptedReply::from_text("never")]);
    let want = RunReport {
        end: Some(RunOutcome::Aborted),
        stops: vec![StopReason::Aborted],
        took: 5_000,
        ..RunReport::default()
    };
    assert_eq!(seen(&model, Some(5_000)).await, want);
    assert_eq!(model.replies_left(), 1, "it is not asked again");
}

#[tokio::test(start_paused = true)]
async fn a_budget_counts_what_a_request_may_have_cost_before_another_is_sent() {
    let counted = || Some(BudgetLimits { tokens: Some(1_000_000), ..BudgetLimits::default() });
    for (case, kind, waits) in [
        ("it was refused", FailureKind::Overloaded, vec![]),
        ("it may have been answered", FailureKind::Server, vec![2_000]),
    ] {
        let model = ScriptedModel::new([fails(kind, None), ScriptedReply::from_text("Recovered")]);
        let seen = seen_under(counted(), &model, None).await;
        assert_eq!((seen.end, seen.waits), (Some(RunOutcome::Completed), waits), "{case}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_wall_time_of_a_contract_ends_a_silent_wait() {
    let short = BudgetLimits { wall_time: Some(5_000), ..BudgetLimits::default() };
    let model = ScriptedModel::new([fails(FailureKind::RateLimit, Some(15_000)), ScriptedReply::from_text("never")]);
    let seen = seen_under(Some(short), &model, None).await;
    assert_eq!((seen.end, seen.took, model.replies_left()), (Some(RunOutcome::Aborted), 5_000, 1));
}

#[tokio::test(start_paused = true)]
async fn what_an_environment_does_not_repeat_ends_the_run_at_once() {
    let attempts = RetrySettings { repeats: |failure| failure.kind != FailureKind::Empty, ..RetrySettings::default() };
    let model = ScriptedModel::new([fails(FailureKind::Empty, None), ScriptedReply::from_text("never")]);
    let want = RunReport { end: Some(RunOutcome::Failed), stops: vec![StopReason::Error], ..RunReport::default() };
    assert_eq!(seen_with(attempts, None, &model, None).await, want);
    assert_eq!(model.replies_left(), 1, "it is not asked again");
}

#[tokio::test(start_paused = true)]
async fn without_silent_attempts_the_visible_ones_are_all() {
    let attempts = RetrySettings { silent: SilentRetries::NONE, ..RetrySettings::default() };
    let model = ScriptedModel::new((0..5).map(|_| fails(FailureKind::Server, None)));
    let seen = seen_with(attempts, None, &model, None).await;
    assert_eq!((seen.waits, seen.took, model.replies_left()), (vec![2_000, 4_000, 8_000], 14_000, 1));
}
