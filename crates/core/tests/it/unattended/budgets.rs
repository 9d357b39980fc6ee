use countersign_core::{
    call::{self, CallProgress},
    engine::{Command, Event, ResumeMode},
    ledger::{BudgetAmount, BudgetLimits, LedgerMetric},
    message::StopReason,
    session::{self, CompactionOutcome, ModelPrice, ModelRef, SessionEntryKind, SessionSetting, WhenBusy},
    time::Millis,
    unattended,
};

use super::{asking, calling, contract, limited, spend, standing, terms, thinking, tokens, under};
use crate::engine_fixture::{EngineFixture, EngineOutcome, open_rules, returned_result, sample_message, tool_call};

/// Facts about runs, calls, gates and the contract.
fn facts(outcome: &EngineOutcome) -> String {
    let of_note = |fact: &&String| !fact.starts_with("session");
    outcome.0.iter().filter(of_note).cloned().collect::<Vec<_>>().join(", ")
}

fn breach(stage: &EngineFixture) -> Option<(LedgerMetric, u64, u64)> {
    contract(stage).final_breach().map(|breach| (breach.metric, breach.limit, breach.observed))
}

fn tick(stage: &mut EngineFixture, now: u64) -> EngineOutcome {
    stage.now = Millis(now);
    stage.send_command(Command::Tick)
}

#[test]
fn twenty_calls_at_once_never_pass_the_limit() {
    let budget = BudgetLimits { calls: Some(7), ..BudgetLimits::default() };
    let stage = calling(asking(budget), 20, "look");
    let started = stage.engine.state().calls().filter(|call| !call.is_before_start()).count();
    assert_eq!((started, contract(&stage).ledger().reserved().calls), (7, 7));
    assert_eq!(standing(&stage), ("asked", true));
}

#[test]
fn a_call_too_many_cancels_those_that_run() {
    let mut stage = calling(limited(BudgetLimits { calls: Some(1), ..BudgetLimits::default() }), 2, "look");
    assert_eq!(breach(&stage), Some((LedgerMetric::ToolCalls, 1, 2)));
    let aborting = stage.engine.state().calls().filter(|call| matches!(call.phase(), call::CallPhase::Started { .. }));
    assert_eq!(aborting.count(), 1);
    assert_eq!(standing(&stage), ("over", true));
    let outcome = stage.end_call(0);
    assert_eq!(
        facts(&outcome),
        "call ended done, call ended cancelled, run turn_closed, run ended aborted, unattended settled"
    );
}

#[test]
fn an_answer_that_took_too_much_ends_the_run_before_its_calls_begin() {
    for (case, budget, spent, want) in [
        (
            "tokens",
            BudgetLimits { tokens: Some(50), ..BudgetLimits::default() },
            tokens(51),
            (LedgerMetric::Tokens, 50, 51),
        ),
        (
            "money",
            BudgetLimits { cost_micros: Some(50), ..BudgetLimits::default() },
            BudgetAmount { cost_micros: 51, ..BudgetAmount::default() },
            (LedgerMetric::Cost, 50, 51),
        ),
    ] {
        let mut stage = thinking(limited(budget));
        let outcome = spend(&mut stage, StopReason::ToolUse, vec![tool_call("write", "a")], Some(spent));
        assert_eq!(
            facts(&outcome),
            "run answered, call wanted, unattended breached, run aborting, call ended cancelled, run turn_closed, \
             run ended aborted, unattended settled",
            "{case}"
        );
        assert_eq!(breach(&stage), Some(want), "{case}");
    }
}

#[test]
fn what_was_used_up_to_the_limit_is_no_breach() {
    let mut stage = thinking(limited(BudgetLimits { tokens: Some(50), ..BudgetLimits::default() }));
    spend(&mut stage, StopReason::Stop, Vec::new(), Some(tokens(50)));
    assert_eq!(standing(&stage), ("in force", false));
}

#[test]
fn no_model_request_starts_without_a_token_left() {
    let mut stage = thinking(limited(BudgetLimits { tokens: Some(50), ..BudgetLimits::default() }));
    let outcome = spend(&mut stage, StopReason::ToolUse, vec![tool_call("look", "a")], Some(tokens(50)));
    assert_eq!(facts(&outcome), "run answered, call wanted, call allowed, call started");
    let outcome = stage.end_call(0);
    assert_eq!(
        facts(&outcome),
        "call ended done, run turn_closed, run turn_opened, unattended breached, run aborting, run turn_closed, run ended \
         aborted, unattended settled"
    );
}

#[test]
fn time_that_is_up_ends_what_works_and_nothing_else() {
    let budget = BudgetLimits { wall_time: Some(500), ..BudgetLimits::default() };
    let mut working = thinking(limited(budget));
    assert_eq!(working.engine.state().next_deadline(), Some(Millis(1_500)));
    assert_eq!(facts(&tick(&mut working, 1_499)), "");
    assert_eq!(facts(&tick(&mut working, 1_500)), "unattended breached, run aborting");
    assert_eq!(breach(&working), Some((LedgerMetric::WallTime, 500, 500)));
    assert_eq!(working.engine.state().next_deadline(), None);

    let mut idle = under(limited(budget), open_rules());
    assert_eq!(idle.engine.state().next_deadline(), None);
    assert_eq!(facts(&tick(&mut idle, 9_000)), "");
    let outcome = idle.send_prompt(WhenBusy::Refuse);
    assert_eq!(
        facts(&outcome),
        "run started prompt, run turn_opened, unattended breached, run aborting, run turn_closed, run ended aborted, \
         unattended settled"
    );
}

#[test]
fn gates_of_calls_end_with_the_run() {
    let mut stage = under(
        limited(BudgetLimits { wall_time: Some(500), ..BudgetLimits::default() }),
        crate::engine_fixture::asking_rules(),
    );
    stage.send_prompt(WhenBusy::Refuse);
    stage.request_calls([tool_call("write", "a")]);
    let outcome = tick(&mut stage, 1_500);
    assert_eq!(
        facts(&outcome),
        "unattended breached, run aborting, gate resolved withdrawn, call ended cancelled, run turn_closed, run ended \
         aborted, unattended settled"
    );
    assert_eq!(stage.last_result(), "unattended run aborted: unattended abort");
}

#[test]
fn a_question_that_waits_ends_with_the_run_and_says_why() {
    let questioned = |budget| {
        let mut stage = under(limited(budget), crate::engine_fixture::open_rules());
        stage.send_prompt(WhenBusy::Refuse);
        stage.request_calls([tool_call("ask", ""), tool_call("look", "a")]);
        stage
    };
    let mut over = questioned(BudgetLimits { wall_time: Some(500), ..BudgetLimits::default() });
    tick(&mut over, 1_500);
    let texts = [
        "unattended run aborted: unattended abort",
        "Tool execution was aborted: the run was stopped before this call began.",
    ];
    assert_eq!(over.call_results(), texts);
    let mut stopped = questioned(BudgetLimits::default());
    stopped.abort();
    assert_eq!(stopped.call_results()[0], "Tool execution was aborted: the run was stopped before anybody answered.");
}

#[test]
fn commands_and_compactions_end_too() {
    let budget = BudgetLimits { wall_time: Some(500), ..BudgetLimits::default() };
    let everything = || countersign_core::unattended::ContractTerms {
        may: countersign_core::policy::Contract {
            scopes: [countersign_core::policy::ContractScope::Bash].into(),
            classes: [countersign_core::policy::Class::BashReadonly].into(),
            ..terms().may
        },
        ..limited(budget)
    };
    let mut stage = under(everything(), open_rules());
    crate::states::compact(&mut stage);
    crate::states::run_command(&mut stage);
    let outcome = tick(&mut stage, 1_500);
    assert_eq!(outcome.0, ["unattended breached", "call aborting", "session compaction_aborting"]);
}

#[test]
fn an_answer_may_give_out_what_is_left_and_one_that_is_cut_off_there_is_a_breach() {
    // The prompt is one token, and the model can write ten.
    let mut stage = thinking(limited(BudgetLimits { tokens: Some(5), ..BudgetLimits::default() }));
    let run = stage.current_run();
    assert_eq!(stage.engine.state().run(run).unwrap().token_cap(), Some(4));
    spend(&mut stage, StopReason::Length, Vec::new(), Some(tokens(5)));
    assert_eq!(breach(&stage), Some((LedgerMetric::Tokens, 5, 15)));

    let mut wide = thinking(limited(BudgetLimits { tokens: Some(500), ..BudgetLimits::default() }));
    let run = wide.current_run();
    assert_eq!(wide.engine.state().run(run).unwrap().token_cap(), None);
    spend(&mut wide, StopReason::Length, Vec::new(), Some(tokens(11)));
    assert_eq!(standing(&wide), ("in force", false), "it was its own limit");
}

#[test]
fn money_is_reserved_at_the_price_of_the_model() {
    let mut stage = under(limited(BudgetLimits { cost_micros: Some(200), ..BudgetLimits::default() }), open_rules());
    let model = ModelRef {
        price: Some(ModelPrice { input: 3_000_000, output: 15_000_000 }),
        ..stage.current_session().settings().model.clone().unwrap()
    };
    stage.change_setting(SessionSetting::Model(model));
    stage.send_prompt(WhenBusy::Refuse);
    let reserved = contract(&stage).ledger().reserved();
    assert_eq!(reserved, BudgetAmount { tokens: 11, calls: 0, cost_micros: 3 + 10 * 15 });
}

#[test]
fn an_answer_of_which_nobody_knows_what_it_took_counts_whole() {
    let mut stage = thinking(limited(BudgetLimits { tokens: Some(1_000), ..BudgetLimits::default() }));
    spend(&mut stage, StopReason::Stop, Vec::new(), None);
    assert_eq!(contract(&stage).ledger().spent(), tokens(11));
}

#[test]
fn what_was_under_way_when_the_process_ended_counts_whole_and_meters_go_on() {
    let budget =
        BudgetLimits { tokens: Some(1_000), calls: Some(9), wall_time: Some(5_000), ..BudgetLimits::default() };
    let mut requesting = thinking(limited(budget));
    requesting.restart(open_rules(), ResumeMode::Wait);
    assert_eq!(contract(&requesting).ledger().spent(), tokens(11));

    let mut called = calling(limited(budget), 1, "write");
    called.restart(open_rules(), ResumeMode::Wait);
    assert_eq!(contract(&called).ledger().spent(), BudgetAmount { tokens: 11, calls: 1, cost_micros: 0 });
    assert_eq!(contract(&called).ledger().reserved(), BudgetAmount::default());
    assert_eq!(contract(&called).ledger().began_at(), Some(Millis(1_000)));
}

#[test]
fn a_call_that_never_began_takes_nothing() {
    let mut stage = calling(limited(BudgetLimits { calls: Some(9), ..BudgetLimits::default() }), 1, "write");
    stage.end_with(0, CallProgress::NotBegun("no".into()));
    assert_eq!(contract(&stage).ledger().spent().calls, 0);
    let mut stage = calling(limited(BudgetLimits { calls: Some(9), ..BudgetLimits::default() }), 1, "write");
    stage.end_with(0, returned_result());
    assert_eq!(contract(&stage).ledger().spent().calls, 1);
}

#[test]
fn a_compaction_takes_of_the_budget_and_is_not_begun_where_it_does_not_fit() {
    let begin = |tokens| {
        let mut stage = under(limited(BudgetLimits { tokens: Some(tokens), ..BudgetLimits::default() }), open_rules());
        stage.import([("u", SessionEntryKind::User, 60), ("a", SessionEntryKind::User, 60)]);
        let response = stage.session_command(session::Command::Compact { instructions: None });
        (stage, response)
    };
    let (mut stage, response) = begin(100_000);
    response.1.unwrap();
    let reserved = contract(&stage).ledger().reserved().tokens;
    assert!(reserved > 16_384, "{reserved}");
    stage.session_command(session::Command::Compacted { epoch: 1, outcome: CompactionOutcome::Aborted });
    assert_eq!(contract(&stage).ledger().spent().tokens, reserved);
    let (mut counted, _) = begin(100_000);
    let outcome = CompactionOutcome::Done { summary: sample_message(1), spent: Some(tokens(70)) };
    counted.session_command(session::Command::Compacted { epoch: 1, outcome });
    assert_eq!(contract(&counted).ledger().total_taken().tokens, 70, "what it said that it took");
    let (_, response) = begin(100);
    assert!(matches!(super::refused(&response), Some(unattended::DeclareError::Exceeds(_))), "{response:?}");
}

#[test]
fn a_request_that_no_provider_has_counted_yet_is_counted_with_its_preamble() {
    let budget = BudgetLimits { tokens: Some(100_000), ..BudgetLimits::default() };
    let reserved = |preamble| {
        let mut stage = under(limited(budget), open_rules());
        stage.change_setting(SessionSetting::Preamble(preamble));
        stage.send_prompt(WhenBusy::Refuse);
        contract(&stage).ledger().reserved().tokens
    };
    assert_eq!(reserved(700), reserved(0) + 700);
    let tight = |preamble| {
        let mut stage = under(limited(BudgetLimits { tokens: Some(500), ..BudgetLimits::default() }), open_rules());
        stage.change_setting(SessionSetting::Preamble(preamble));
        stage.send_prompt(WhenBusy::Refuse);
        breach(&stage).map(|(metric, ..)| metric)
    };
    assert_eq!((tight(100), tight(600)), (None, Some(LedgerMetric::Tokens)));
}

#[test]
fn every_fact_of_a_breach_is_read_back_as_it_was_written() {
    let mut stage = calling(asking(BudgetLimits { calls: Some(1), ..BudgetLimits::default() }), 2, "look");
    stage.restart(open_rules(), ResumeMode::Wait);
    assert_eq!(standing(&stage).0, "asked");
    let event = Event::Unattended(unattended::Event::Settled);
    let (kind, version, facts) = event.encode();
    assert_eq!(Event::decode(kind, version, &facts).unwrap(), event);
}
