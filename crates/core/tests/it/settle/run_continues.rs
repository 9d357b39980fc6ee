use countersign_core::{
    call::{CallProgress, CallResult},
    message::StopReason::{Aborted, Error, Stop},
    run::ProviderFailure,
    session::{self, Command, CompactionOutcome, MessageQueue, SessionEntryKind, SessionSetting, Settings, WhenBusy},
};

use super::facts_from;
use crate::{
    engine_fixture::{EngineFixture, open_rules, sample_message, tool_call},
    states::{idle, thinking},
};

type RunFixtureFn = fn() -> EngineFixture;

fn queued(queue: MessageQueue) -> EngineFixture {
    let mut stage = thinking(open_rules());
    stage.session_command(Command::Queue { queue, message: sample_message(1) });
    stage
}

#[test]
fn what_follows_a_turn_is_steering_then_results_then_follow_ups_then_the_end() {
    let opened = "run turn_opened, session dequeued";
    let nothing: RunFixtureFn = || thinking(open_rules());
    let (steering, follow_up): (RunFixtureFn, RunFixtureFn) =
        (|| queued(MessageQueue::Steering), || queued(MessageQueue::FollowUp));
    let steers = format!("{opened} steering, session entry user, run asked");
    let follows = format!("{opened} follow_up, session entry user, run asked");
    for (case, state, calls, want) in [
        ("nothing", nothing, false, "run ended completed"),
        ("results", nothing, true, "run turn_opened, run asked"),
        ("steering", steering, false, &steers),
        ("steering and results", steering, true, &steers),
        ("a follow-up", follow_up, false, &follows),
        ("results before a follow-up", follow_up, true, "run turn_opened, run asked"),
    ] {
        let mut stage = state();
        let outcome = if calls {
            stage.request_calls([tool_call("write", "a")]);
            stage.end_call(0)
        } else {
            stage.answer(Stop, Vec::new(), None)
        };
        assert_eq!(facts_from(&outcome, "run turn_closed"), format!("run turn_closed, {want}"), "{case}");
    }
}

#[test]
fn queues_wait_after_a_run_that_failed_or_was_stopped() {
    let fatal = ProviderFailure { retryable: false, overflow: false, after: None };
    for queue in [MessageQueue::Steering, MessageQueue::FollowUp] {
        let mut failed = queued(queue);
        assert_eq!(failed.fail_request(fatal).0.last().unwrap(), "run ended failed", "{queue:?}");
        let mut broken = queued(queue);
        assert_eq!(broken.answer(Aborted, Vec::new(), None).0.last().unwrap(), "run ended aborted", "{queue:?}");
        assert_eq!(
            (failed.current_session().queued_count(), broken.current_session().queued_count()),
            (1, 1),
            "{queue:?}"
        );
    }
}

#[test]
fn a_broken_stream_is_no_finished_answer_with_or_without_a_reason() {
    for queue in [MessageQueue::Steering, MessageQueue::FollowUp] {
        let mut stage = queued(queue);
        assert_eq!(facts_from(&stage.answer(Error, Vec::new(), None), "run ended"), "run ended failed", "{queue:?}");
    }
}

#[test]
fn steering_messages_are_sent_with_the_next_request() {
    let steers = "run turn_opened, session dequeued steering, session entry user, run asked";
    let mut waiting = crate::states::backing_off();
    waiting.session_command(Command::Queue { queue: MessageQueue::Steering, message: sample_message(1) });
    waiting.now = waiting.engine.state().next_deadline().unwrap();
    assert_eq!(facts_from(&waiting.send_command(countersign_core::engine::Command::Tick), "run turn_opened"), steers);
    let outcome = queued(MessageQueue::Steering).restart(open_rules(), countersign_core::engine::ResumeMode::Go);
    assert_eq!(facts_from(&outcome, "run turn_opened"), steers);
}

/// Returns a session over its limit of 100,000 tokens, with so many old results of 10,000 that may be pruned after a message.
fn with_results(first: u64, results: usize) -> EngineFixture {
    let mut stage = idle();
    let model = session::ModelRef {
        context_window: 120_000,
        ..stage.current_session().settings().model.clone().expect("the stage has it")
    };
    let thresholds =
        session::CompactionThresholds { at_tokens: Some(100_000), ..stage.current_session().settings().thresholds };
    let settings = Settings { model: Some(model), thresholds, ..stage.current_session().settings().clone() };
    stage.change_setting(SessionSetting::All(Box::new(settings)));
    stage.import([("u", SessionEntryKind::User, first)]);
    let ids: Vec<String> = (0..results).map(|at| format!("r{at}")).collect();
    for id in &ids {
        stage.import([(id, SessionEntryKind::ToolResult { prunable: true }, 10_000)]);
    }
    stage.import([("v", SessionEntryKind::User, 60)]);
    stage
}

#[test]
fn old_results_are_pruned_before_a_compaction_and_in_its_place_where_that_is_enough() {
    let (pruned, starts) = ("session pruned", "run started prompt, run turn_opened, session entry user, run asked");
    let compacts = "session queued user prompt, session compaction_started prompt";
    for (case, first, results, want) in [
        ("short enough", 100, 4, starts.to_owned()),
        ("enough is saved", 100, 12, format!("{pruned}, {starts}")),
        ("not enough is saved", 90_000, 12, format!("{pruned}, {compacts}")),
        ("too little to be worth it", 99_900, 5, compacts.to_owned()),
    ] {
        let mut stage = with_results(first, results);
        assert_eq!(stage.send_prompt(WhenBusy::Refuse).0.join(", "), want, "{case}");
    }
}

/// Returns a run over the limit that ends now.
fn over_limit(auto: bool) -> EngineFixture {
    let mut stage = idle();
    stage.change_setting(SessionSetting::AutoCompaction(false));
    stage.import([("u", SessionEntryKind::User, 900), ("v", SessionEntryKind::User, 60)]);
    stage.send_prompt(WhenBusy::Refuse);
    stage.change_setting(SessionSetting::AutoCompaction(auto));
    stage
}

#[test]
fn a_context_that_grew_too_long_is_compacted_after_the_run() {
    let ended = "run ended completed";
    for (case, mut stage, want) in [
        ("too long", over_limit(true), "run ended completed, session compaction_started continue"),
        ("not by itself", over_limit(false), ended),
        ("short enough", thinking(open_rules()), ended),
    ] {
        assert_eq!(facts_from(&stage.answer(Stop, Vec::new(), None), "run ended"), want, "{case}");
    }
    let mut closing = over_limit(true);
    closing.engine.quiesce();
    assert_eq!(facts_from(&closing.answer(Stop, Vec::new(), None), "run ended"), ended, "the process closes");
}

#[test]
fn work_goes_on_after_a_compaction_that_succeeded() {
    let goes_on = "run started continuation, run turn_opened, session entry developer, run asked";
    for (case, outcome, want) in [
        ("done", CompactionOutcome::Done { summary: sample_message(1), spent: None }, goes_on),
        ("failed", CompactionOutcome::Failed { message: "no".into() }, ""),
        ("aborted", CompactionOutcome::Aborted, ""),
    ] {
        let mut stage = over_limit(true);
        stage.answer(Stop, Vec::new(), None);
        let response = stage.session_command(Command::Compacted { epoch: 1, outcome });
        assert_eq!(facts_from(&response, "run started"), want, "{case}");
    }
}

#[test]
fn a_continuation_that_did_nothing_is_not_continued_again() {
    for (case, works, want) in [
        ("nothing", false, "run ended completed"),
        ("something", true, "run ended completed, session compaction_started continue"),
    ] {
        let mut stage = over_limit(true);
        stage.answer(Stop, Vec::new(), None);
        stage.session_command(Command::Compacted {
            epoch: 1,
            outcome: CompactionOutcome::Done { summary: sample_message(2_000), spent: None },
        });
        if works {
            stage.request_calls([tool_call("write", "a")]);
            let returned = CallResult {
                message: sample_message(60),
                error: false,
                open_tasks: None,
                folder: None,
                prunable: false,
                left_behind: None,
            };
            stage.end_with(0, CallProgress::Returned(Box::new(returned)));
        }
        assert_eq!(facts_from(&stage.answer(Stop, Vec::new(), None), "run ended"), want, "{case}");
    }
}

/// Returns a run of a session that is reminded `most` times, with so many open tasks.
fn with_tasks(most: u32, open: u32) -> EngineFixture {
    let mut stage = idle();
    let settings = Settings { todo_reminders: most, ..stage.current_session().settings().clone() };
    stage.change_setting(SessionSetting::All(Box::new(settings)));
    stage.send_prompt(WhenBusy::Refuse);
    stage.request_calls([tool_call("write", "a")]);
    let open_tasks = Some(open);
    let returned = CallResult {
        message: sample_message(1),
        error: false,
        open_tasks,
        folder: None,
        prunable: false,
        left_behind: None,
    };
    stage.end_with(0, CallProgress::Returned(Box::new(returned)));
    stage
}

const REMINDED: &str = "run ended completed, session reminded, run started reminder, run turn_opened, \
                        session entry developer, run asked";

fn attempts(stage: &mut EngineFixture) -> usize {
    let mut count = 0;
    while facts_from(&stage.answer(Stop, Vec::new(), None), "session reminded").starts_with("session reminded") {
        count += 1;
    }
    count
}

#[test]
fn a_run_that_ends_with_open_tasks_is_reminded_of_them() {
    for (most, open, want) in [(0, 2, 0), (1, 2, 1), (3, 2, 3), (3, 0, 0)] {
        assert_eq!(attempts(&mut with_tasks(most, open)), want, "at most {most} times, {open} open");
    }
    let summary = facts_from(&with_tasks(1, 2).answer(Stop, Vec::new(), None), "run ended").replace(" 1,", ",");
    assert_eq!(summary, REMINDED);
}

#[test]
fn nothing_follows_a_last_message() {
    let mut stage = with_tasks(3, 2);
    attempts(&mut stage);
    for behind_compaction in [false, true] {
        if behind_compaction {
            stage.import([("u", SessionEntryKind::User, 900), ("v", SessionEntryKind::User, 60)]);
            stage.change_setting(SessionSetting::AutoCompaction(true));
        }
        stage.session_command(Command::HandOff { message: sample_message(1) });
        if behind_compaction {
            let epoch = stage.current_session().active_compaction().expect("it waits").epoch;
            let outcome = CompactionOutcome::Done { summary: sample_message(5_000), spent: None };
            stage.session_command(Command::Compacted { epoch, outcome });
        }
        for queue in [MessageQueue::Steering, MessageQueue::FollowUp] {
            stage.session_command(Command::Queue { queue, message: sample_message(1) });
        }
        let summary = facts_from(&stage.answer(Stop, Vec::new(), None), "run ended");
        assert_eq!(summary, "run ended completed", "behind a compaction: {behind_compaction}");
    }
}

#[test]
fn a_message_of_a_user_resets_the_count_of_reminders() {
    let mut stage = with_tasks(2, 1);
    assert_eq!(attempts(&mut stage), 2);
    stage.send_prompt(WhenBusy::Refuse);
    assert_eq!(attempts(&mut stage), 2);
}

#[test]
fn nobody_is_reminded_while_the_process_closes_or_after_an_abort() {
    let mut closing = with_tasks(1, 2);
    closing.engine.quiesce();
    assert_eq!(facts_from(&closing.answer(Stop, Vec::new(), None), "run ended"), "run ended completed");
    let mut stopped = with_tasks(1, 2);
    assert_eq!(facts_from(&stopped.answer(Aborted, Vec::new(), None), "run ended"), "run ended aborted");
}
