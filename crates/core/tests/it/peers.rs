//! Calls that a peer does: for which line they are started, and what becomes of them when it breaks.

use countersign_core::{
    call::{Executor, Known, Phase, Progress},
    engine::{Command, Reply, Resume},
    id::PeerId,
    peer::{self, Line},
    policy::Class,
    run::Wanted,
    tool::Repeat,
};

use crate::{
    stage::{Stage, asking, open, ruled, seconds, wanted},
    states::thinking,
};

fn away(path: &str) -> Wanted {
    Wanted {
        executor: Executor::Peer(PeerId::new("p")),
        class: Some(Class::HostToolInvoke),
        repeat: Repeat::Once,
        ..wanted("look", path)
    }
}

fn came(stage: &mut Stage, line: u64) -> String {
    stage.tell(Command::Peer(peer::Command::Came { peer: PeerId::new("p"), line: Line(line) })).cell()
}

fn gone(stage: &mut Stage, line: u64) -> String {
    stage.tell(Command::Peer(peer::Command::Gone { peer: PeerId::new("p"), line: Line(line) })).cell()
}

/// A call that its peer has, on line 1.
fn sent() -> Stage {
    let mut stage = thinking(open());
    came(&mut stage, 1);
    stage.want([away("a")]);
    stage
}

fn left() -> Progress {
    Progress::Left { text: "the host is gone".into(), since: Known::LineGone }
}

#[test]
fn a_call_waits_for_its_peer_and_is_started_for_its_line() {
    let mut stage = thinking(open());
    let told = stage.want([away("a"), wanted("look", "b")]).cell();
    assert!(told.ends_with("call allowed, call allowed, call waits, call started"), "{told}");
    assert_eq!(came(&mut stage, 7), "Done: peer came, call started");
    let call = stage.engine.state().call(stage.calls()[0]).unwrap();
    assert_eq!((call.line(), call.starts(), call.phase()), (Some(Line(7)), 1, &Phase::Started { boot: 1 }));
    assert_eq!(stage.engine.state().next_deadline(), None);
}

#[test]
fn what_a_peer_has_is_given_to_no_other_line() {
    let mut stage = sent();
    assert_eq!(came(&mut stage, 2), "Done: peer came");
    let call = stage.calls()[0];
    assert_eq!(stage.engine.state().call(call).unwrap().line(), Some(Line(1)));
    let told = stage.end_with(0, left()).cell();
    assert!(told.starts_with("Done: call in_doubt, session entry tool_result, call ended unknown"), "{told}");
    assert_eq!(stage.result(), "the host is gone");
}

#[test]
fn what_was_not_sent_waits_for_the_next_line() {
    for (case, lines, want) in [
        ("none", vec![], "Done: peer gone, call again, call waits"),
        ("another already", vec![2], "Done: call again, call started"),
    ] {
        let mut stage = sent();
        for line in lines {
            came(&mut stage, line);
        }
        assert_eq!(stage.end_with(0, Progress::Unsent { start: 1 }).cell(), want, "{case}");
    }
    let mut stage = sent();
    stage.end_with(0, Progress::Unsent { start: 1 });
    assert_eq!(came(&mut stage, 2), "Done: peer came, call started");
    assert_eq!(stage.end_with(0, Progress::Unsent { start: 1 }).cell(), "Dropped: call result_dropped");
    assert_eq!(stage.engine.state().call(stage.calls()[0]).unwrap().starts(), 2);
}

#[test]
fn a_call_is_given_up_at_its_deadline_and_not_while_its_peer_is_there() {
    let mut stage = thinking(open());
    stage.want([away("a")]);
    let until = stage.engine.state().next_deadline().unwrap();
    assert_eq!(until, stage.now + seconds(3600));
    stage.now = until;
    let told = stage.tell(Command::Tick).cell();
    assert!(told.starts_with("Done: session entry tool_result, call ended failed"), "{told}");
    assert!(stage.result().ends_with("Nothing was sent."), "{}", stage.result());

    let mut stage = sent();
    stage.now = until;
    assert_eq!(stage.tell(Command::Tick).cell(), "Done");
}

#[test]
fn only_the_line_that_a_peer_has_can_go() {
    let mut stage = sent();
    came(&mut stage, 2);
    assert_eq!(gone(&mut stage, 1), "Idle");
    assert_eq!(gone(&mut stage, 2), "Done: peer gone");
    assert_eq!(gone(&mut stage, 2), "Idle");
    assert_eq!(came(&mut stage, 3), "Done: peer came");
    assert_eq!(came(&mut stage, 3), "Idle");
}

#[test]
fn no_line_outlives_its_process() {
    for (case, mut stage, resume, result) in [
        ("sent, and runs go on", sent(), Resume::Go, "Outcome unknown"),
        ("sent, and runs wait", sent(), Resume::Wait, "Outcome unknown"),
        ("waiting, and runs wait", waiting(), Resume::Wait, "Not run: the process ended"),
    ] {
        stage.restart(open(), resume);
        assert!(stage.result().starts_with(result), "{case}: {}", stage.result());
        assert_eq!(stage.engine.state().line_of(&PeerId::new("p")), None, "{case}");
    }
    let mut stage = waiting();
    stage.restart(open(), Resume::Go);
    assert_eq!(came(&mut stage, 1), "Done: peer came, call started");
}

fn waiting() -> Stage {
    let mut stage = thinking(open());
    stage.want([away("a")]);
    stage
}

#[test]
fn an_abort_ends_what_waits_and_tells_what_was_sent() {
    let told = waiting().abort().cell();
    assert!(told.contains("call ended cancelled"), "{told}");
    let mut stage = sent();
    assert_eq!(stage.abort().cell(), "Stopping: run aborting, call aborting");
    let told = stage.end_with(0, Progress::Left { text: "stopped".into(), since: Known::Stopped }).cell();
    assert!(told.starts_with("Done: call in_doubt, session entry tool_result, call ended unknown"), "{told}");
    assert_eq!(stage.tell(Command::Tick).1, Ok(Reply::Done));
}

#[test]
fn a_rule_that_came_while_a_call_waited_wins() {
    let mut stage = waiting();
    stage.tell(Command::UseRules(Box::new(ruled(&["deny look(a)"]))));
    let told = came(&mut stage, 1);
    assert!(told.starts_with("Done: peer came, session entry tool_result, call ended denied"), "{told}");
}

#[test]
fn what_a_host_does_lies_beyond_the_files_of_this_machine() {
    let told = thinking(asking()).want([wanted("look", "a"), away("a")]).cell();
    assert!(told.contains("call gated"), "{told}");
    assert_eq!(told.matches("call gated").count(), 1, "{told}");
}
