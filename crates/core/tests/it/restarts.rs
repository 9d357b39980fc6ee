use countersign_core::{
    engine::{Command, ResumeMode},
    run::ProviderFailure,
    session::WhenBusy,
};

use crate::engine_fixture::{EngineFixture, asking_rules, open_rules, tool_call};

fn with(rules: countersign_core::engine::ActiveRules, tool: &str) -> EngineFixture {
    let mut stage = EngineFixture::new(rules);
    stage.send_prompt(WhenBusy::Refuse);
    stage.request_calls([tool_call(tool, "a")]);
    stage
}

fn thinking() -> EngineFixture {
    let mut stage = EngineFixture::new(open_rules());
    stage.send_prompt(WhenBusy::Refuse);
    stage
}

fn backing_off() -> EngineFixture {
    let mut stage = thinking();
    stage.fail_request(ProviderFailure { retryable: true, overflow: false, after: None });
    stage
}

#[test]
fn a_restart_takes_up_or_ends_what_the_last_process_left() {
    let asks = ["run turn_opened", "run asked"];
    let unknown = ["booted", "call in_doubt", "session entry tool_result", "call ended unknown", "run turn_closed"];
    let interrupted = "run ended interrupted";
    for (case, stage, resume, want) in [
        ("thinking, go", thinking(), ResumeMode::Go, [&["booted", "run interrupted"][..], &asks].concat()),
        ("thinking, wait", thinking(), ResumeMode::Wait, vec!["booted", "run interrupted", interrupted]),
        ("backing off, go", backing_off(), ResumeMode::Go, vec!["booted"]),
        ("backing off, wait", backing_off(), ResumeMode::Wait, vec!["booted"]),
        ("started, go", with(open_rules(), "write"), ResumeMode::Go, [&unknown[..], &asks].concat()),
        ("started, wait", with(open_rules(), "write"), ResumeMode::Wait, [&unknown[..], &[interrupted]].concat()),
        (
            "idempotent, go",
            with(open_rules(), "look"),
            ResumeMode::Go,
            vec!["booted", "call in_doubt", "call again", "call started"],
        ),
        ("idempotent, wait", with(open_rules(), "look"), ResumeMode::Wait, [&unknown[..], &[interrupted]].concat()),
        ("a person is asked, go", with(open_rules(), "ask"), ResumeMode::Go, vec!["booted"]),
        ("a person is asked, wait", with(open_rules(), "ask"), ResumeMode::Wait, vec!["booted"]),
    ] {
        let mut stage = stage;
        assert_eq!(stage.restart(open_rules(), resume).0, want, "{case}");
    }
    for resume in [ResumeMode::Go, ResumeMode::Wait] {
        let mut stage = with(asking_rules(), "write");
        assert_eq!(stage.restart(asking_rules(), resume).0, ["booted"], "a person decides, {resume:?}");
    }
}

#[test]
fn a_turn_that_was_opened_while_closing_is_requested_by_the_next_process() {
    let mut stage = with(open_rules(), "write");
    stage.engine.quiesce();
    assert_eq!(stage.end_call(0).0.last().unwrap(), "run turn_opened");
    assert_eq!(stage.restart(open_rules(), ResumeMode::Go).0, ["booted", "run asked"]);
}

#[test]
fn a_deadline_that_passed_while_nobody_was_there_counts_for_another_minute() {
    let mut stage = with(asking_rules(), "write");
    stage.now.0 += 3_600_000;
    assert_eq!(stage.restart(asking_rules(), ResumeMode::Go).0, ["booted", "gate extended"]);
    stage.now.0 += 59_999;
    assert_eq!(stage.send_command(Command::Tick).0, Vec::<String>::new());
    stage.now.0 += 1;
    assert_eq!(stage.send_command(Command::Tick).0[0], "gate resolved expired");
}
