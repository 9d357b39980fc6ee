//! The work that is due in every state of a session, and the work that is to stop.

use countersign_core::{OwedWork, engine::ResumeMode, owed_work, stopping_work as to_stop};

use crate::{
    engine_fixture::{EngineFixture, EngineOutcome, open_rules},
    states::{calling, compacting, in_every_state, run_command, stopping, thinking},
};

/// Returns the work as the facts of a cell.
fn named(work: Vec<OwedWork>) -> EngineOutcome {
    let name = |work: &OwedWork| match work {
        OwedWork::Turn { epoch, .. } => format!("turn {epoch}"),
        OwedWork::Call { .. } => "call".to_owned(),
        OwedWork::Compact { epoch, .. } => format!("compact {epoch}"),
        OwedWork::Fire { step, .. } => format!("fire {step:?}"),
    };
    EngineOutcome(work.iter().map(name).collect(), Ok(countersign_core::engine::EngineReply::Done))
}

#[test]
fn what_is_decided_and_not_done_is_due_and_a_persons_part_is_not() {
    let rows = [
        ("none, idle, gated, asked, backoff, stopping", "Done"),
        ("thinking", "Done: turn 1"),
        ("calling, command", "Done: call"),
        ("compacting, behind", "Done: compact 1"),
    ];
    in_every_state("owed", |stage| named(owed_work(stage.engine.state())), &rows);
    let others = "none, idle, command, thinking, calling, gated, asked, backoff, compacting, behind";
    let rows = [(others, "Done"), ("stopping", "Done: call")];
    in_every_state("to stop", |stage| named(to_stop(stage.engine.state())), &rows);
}

#[test]
fn work_that_is_stopped_is_no_longer_due() {
    let aborted = |mut stage: EngineFixture| {
        stage.abort();
        stage.send_command(countersign_core::engine::Command::Call(countersign_core::call::Command::Abort {
            session: crate::engine_fixture::session_id(),
        }));
        stage.session_command(countersign_core::session::Command::AbortCompaction);
        (named(owed_work(stage.engine.state())).table_cell(), named(to_stop(stage.engine.state())).table_cell())
    };
    let commanding = || {
        let mut stage = EngineFixture::new(open_rules());
        run_command(&mut stage);
        stage
    };
    for (case, stage, want) in [
        ("thinking", thinking(open_rules()), "Done: turn 1"),
        ("calling", calling(["look", "look"]), "Done: call, call"),
        ("command", commanding(), "Done: call"),
        ("compacting", compacting(), "Done: compact 1"),
    ] {
        assert_eq!(aborted(stage), ("Done".to_owned(), want.to_owned()), "{case}");
    }
}

#[test]
fn what_another_process_began_is_due_only_after_it_was_begun_again() {
    for (case, stage, resume, want) in [
        ("asked, go", thinking(open_rules()), ResumeMode::Go, "Done: turn 2"),
        ("asked, wait", thinking(open_rules()), ResumeMode::Wait, "Done"),
        ("may be repeated, go", calling(["look"]), ResumeMode::Go, "Done: call"),
        ("may be repeated, wait", calling(["look"]), ResumeMode::Wait, "Done"),
        ("not to be repeated, go", calling(["write"]), ResumeMode::Go, "Done: turn 2"),
        ("to stop, go", stopping(), ResumeMode::Go, "Done"),
        ("compacting, go", compacting(), ResumeMode::Go, "Done"),
    ] {
        let mut stage = stage;
        stage.restart(open_rules(), resume);
        assert_eq!(named(owed_work(stage.engine.state())).table_cell(), want, "{case}");
        assert_eq!(to_stop(stage.engine.state()), [], "{case}");
    }
}
