//! Every command about a call in every phase of it, and a person's own commands in every state of a session.

use countersign_core::{
    call::{self, CallProgress, CallResult},
    engine::{Command, ResumeMode},
    id::{CallId, GateId},
    session,
};

use crate::{
    engine_fixture::{
        EngineFixture, EngineOutcome, open_rules, returned_result, rules_from, sample_message, session_id, tool_call,
    },
    states::{calling, commanding, gated, idle, in_every_state, run_command, stopping, thinking},
};

const DROPPED: &str = "Dropped: call result_dropped";
const GOES_ON: &str = "run turn_closed, run turn_opened, run asked";

/// A call in a phase of its life.
type CallFixture = (EngineFixture, CallId);
/// A phase's name, its setup, and the facts that follow a result that counts in it.
type CallPhaseCase = (&'static str, fn() -> CallFixture, Option<&'static str>);

fn unknown() -> CallFixture {
    (idle(), CallId::parse("00000000000000000000000000000001").expect("it is one"))
}

fn wanted_only() -> CallFixture {
    let mut stage = thinking(open_rules());
    stage.engine.quiesce();
    stage.request_calls([tool_call("write", "a")]);
    nth(stage, 0)
}

fn nth(stage: EngineFixture, at: usize) -> CallFixture {
    let call = stage.calls()[at];
    (stage, call)
}

fn ended() -> CallFixture {
    let mut stage = calling(["write", "write"]);
    stage.end_call(0);
    nth(stage, 0)
}

fn closed() -> CallFixture {
    let (mut stage, call) = nth(calling(["write"]), 0);
    stage.end_call(0);
    (stage, call)
}

/// Returns a call that worked when its process died.
fn left(tool: &str) -> CallFixture {
    let (mut stage, call) = nth(calling([tool]), 0);
    stage.restart(open_rules(), ResumeMode::Go);
    (stage, call)
}

fn end(stage: &mut EngineFixture, call: CallId, progress: CallProgress) -> EngineOutcome {
    stage.send_command(Command::Call(call::Command::Ended { call, progress }))
}

fn gave(error: bool) -> CallProgress {
    let returned = CallResult {
        message: sample_message(1),
        error,
        open_tasks: None,
        folder: None,
        prunable: false,
        left_behind: None,
    };
    CallProgress::Returned(Box::new(returned))
}

/// Returns every phase. The facts after a result are listed with those in which one counts.
fn phases() -> [CallPhaseCase; 10] {
    let aborted = "run turn_closed, run ended aborted";
    [
        ("unknown", unknown, None),
        ("wanted", wanted_only, None),
        ("gated", || nth(gated(), 0), None),
        ("ready", || nth(calling(["write", "write"]), 1), None),
        ("started", || nth(calling(["write"]), 0), Some(GOES_ON)),
        ("started and to stop", || nth(stopping(), 0), Some(aborted)),
        ("ended, its turn open", ended, None),
        ("ended, its turn closed", closed, None),
        ("started again after a restart", || left("look"), Some(GOES_ON)),
        ("in doubt after a restart", || left("write"), None),
    ]
}

#[test]
fn a_host_opens_a_gate_only_while_a_call_runs() {
    for (case, scene, _) in phases() {
        let (mut stage, call) = scene();
        let gate = GateId::parse("gate_00000000000000000000000000000001").expect("it is one");
        let outcome = stage.send_command(Command::Call(call::Command::Reach { call, gate, host: "a.org:443".into() }));
        let want = if ["started", "started again after a restart"].contains(&case) {
            "Done: gate opened budget [\"once\"]"
        } else {
            "refused: the command has ended, or is to end"
        };
        assert_eq!(outcome.table_cell(), want, "{case}");
    }
}

#[test]
fn the_end_of_a_calls_work_counts_while_this_process_runs_it() {
    let scenes = phases();
    for (progress, result) in [
        (gave(false), "session entry tool_result, call ended done"),
        (gave(true), "session entry tool_result, call ended done"),
        (CallProgress::NotBegun("no shell".into()), "session entry tool_result, call ended failed"),
        (CallProgress::Broke, "call in_doubt, session entry tool_result, call ended unknown"),
    ] {
        for (case, scene, follows) in &scenes {
            let (mut stage, call) = scene();
            let want = follows.map_or(DROPPED.to_owned(), |follows| format!("Done: {result}, {follows}"));
            assert_eq!(end(&mut stage, call, progress.clone()).table_cell(), want, "{case}, {progress:?}");
        }
    }
}

#[test]
fn a_result_counts_once() {
    let (mut stage, call) = nth(calling(["write", "write"]), 0);
    end(&mut stage, call, gave(false));
    let before = stage.current_session().entries().len();
    for progress in [gave(false), gave(true), CallProgress::NotBegun("x".into()), CallProgress::Broke] {
        assert_eq!(end(&mut stage, call, progress.clone()).table_cell(), DROPPED, "{progress:?}");
    }
    assert_eq!(stage.current_session().entries().len(), before);
}

#[test]
fn the_model_reads_the_outcome_of_a_call_without_a_result() {
    for (case, progress, want) in [
        ("not begun", CallProgress::NotBegun("no shell".into()), "no shell"),
        ("broke off", CallProgress::Broke, "Outcome unknown"),
    ] {
        let (mut stage, call) = nth(calling(["write"]), 0);
        end(&mut stage, call, progress);
        assert!(stage.last_result().starts_with(want), "{case}: {}", stage.last_result());
    }
}

#[test]
fn what_a_call_did_to_the_shell_and_the_tasks_is_recorded_with_its_end() {
    let long = format!("/{}", "d".repeat(4096));
    for (case, folder, open_tasks, want) in [
        ("nothing", None, None, ""),
        ("it went elsewhere", Some("/x"), None, "session folder, "),
        ("it stayed", Some("/w"), None, ""),
        ("too far to follow", Some(long.as_str()), None, ""),
        ("tasks", None, Some(2), "session tasks, "),
        ("both", Some("/x"), Some(2), "session folder, session tasks, "),
    ] {
        let (mut stage, call) = nth(calling(["write"]), 0);
        let folder = folder.map(str::to_owned);
        let returned = CallResult {
            message: sample_message(1),
            error: false,
            open_tasks,
            folder,
            prunable: false,
            left_behind: None,
        };
        let summary = end(&mut stage, call, CallProgress::Returned(Box::new(returned))).table_cell();
        let result = "Done: session entry tool_result, call ended done";
        assert_eq!(summary, format!("{result}, {want}{GOES_ON}"), "{case}");
    }
}

#[test]
fn a_user_runs_a_command_during_any_other_work() {
    let any = "idle, command, thinking, calling, gated, asked, backoff, stopping, compacting, behind";
    let runs = "Running: call wanted, call allowed, call started";
    in_every_state("run", run_command, &[("none", "refused: no session s"), (any, runs)]);
}

#[test]
fn a_persons_command_needs_no_approval_but_what_rules_deny_stays_denied() {
    let denied = "refused: Denied by policy: by rule \"bash(ls)\" (permissions.yaml)";
    for (rule, want) in [
        ("deny bash(ls)", denied),
        ("ask bash(ls)", "Running: call wanted, call allowed, call started"),
        ("allow bash(ls)", "Running: call wanted, call allowed, call started"),
    ] {
        assert_eq!(run_command(&mut EngineFixture::new(rules_from(&[rule]))).table_cell(), want, "{rule}");
    }
}

#[test]
fn nothing_of_a_person_begins_while_the_process_closes() {
    let mut stage = idle();
    stage.engine.quiesce();
    assert_eq!(run_command(&mut stage).table_cell(), "refused: the session is closing");
}

#[test]
fn a_persons_commands_are_stopped_once_and_a_runs_calls_are_not_among_them() {
    let abort =
        |stage: &mut EngineFixture| stage.send_command(Command::Call(call::Command::Abort { session: session_id() }));
    let others = "idle, thinking, calling, gated, asked, backoff, stopping, compacting, behind";
    let none = ("none", "refused: no session s");
    in_every_state("abort", abort, &[none, (others, "Idle"), ("command", "Done: call aborting")]);
    let mut stage = commanding();
    run_command(&mut stage);
    assert_eq!(abort(&mut stage).table_cell(), "Done: call aborting, call aborting");
    assert_eq!(abort(&mut stage).table_cell(), "Idle");
}

#[test]
fn a_users_command_is_added_at_once_at_rest_and_else_before_the_next_prompt() {
    for (case, progress, before, end_word) in [
        ("returned", returned_result(), "", "done"),
        ("not begun", CallProgress::NotBegun("no shell".into()), "", "failed"),
        ("broke off", CallProgress::Broke, "call in_doubt, ", "unknown"),
    ] {
        let mut stage = commanding();
        let call = stage.current_session().commands().next().unwrap();
        let want = format!("Done: {before}session entry bash, call ended {end_word}");
        assert_eq!(end(&mut stage, call, progress.clone()).table_cell(), want, "{case}, at rest");
        assert_eq!(end(&mut stage, call, progress.clone()).table_cell(), DROPPED, "{case}, again");

        let mut stage = thinking(open_rules());
        run_command(&mut stage);
        let call = stage.current_session().commands().next().unwrap();
        let want = format!("Done: {before}session queued bash held, call ended {end_word}");
        assert_eq!(end(&mut stage, call, progress).table_cell(), want, "{case}, beside a run");
        stage.answer(countersign_core::message::StopReason::Stop, Vec::new(), None);
        let outcome = stage.send_prompt(session::WhenBusy::Refuse);
        let expected = ["session dequeued held", "session entry bash", "session entry user", "run asked"];
        assert_eq!(outcome.0[2..], expected, "{case}, with the next prompt");
    }
}
