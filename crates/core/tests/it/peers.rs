//! Calls that a peer does: the line for which they are started, and their outcome when it breaks.

use countersign_core::{
    call::{self, CallPhase, CallProgress, DoubtCause, Executor},
    engine::{Command, EngineReply, ResumeMode},
    id::{CallId, PeerId, PrincipalId},
    peer::{self, PeerLine, PeerMemory},
    policy::Class,
    run::ResolvedCall,
    tool::{RepeatMode, ShellInput},
};

use serde_json::json;
use uuid::Uuid;

use crate::{
    engine_fixture::{EngineFixture, asking_rules, open_rules, rules_from, seconds, session_id, tool_call},
    states::thinking,
};

fn away(path: &str) -> ResolvedCall {
    ResolvedCall {
        executor: Executor::Peer(PeerId::new("p")),
        class: Some(Class::HostToolInvoke),
        repeat: RepeatMode::Once,
        ..tool_call("look", path)
    }
}

fn came(stage: &mut EngineFixture, line: u64) -> String {
    came_with(stage, line, PeerMemory::Forgets)
}

fn came_with(stage: &mut EngineFixture, line: u64, memory: PeerMemory) -> String {
    stage
        .send_command(Command::Peer(peer::Command::Came { peer: PeerId::new("p"), line: PeerLine(line), memory }))
        .table_cell()
}

fn gone(stage: &mut EngineFixture, line: u64) -> String {
    stage.send_command(Command::Peer(peer::Command::Gone { peer: PeerId::new("p"), line: PeerLine(line) })).table_cell()
}

/// Returns a call that its peer has, on line 1.
fn sent() -> EngineFixture {
    let mut stage = thinking(open_rules());
    came(&mut stage, 1);
    stage.request_calls([away("a")]);
    stage
}

fn left() -> CallProgress {
    CallProgress::Left { text: "the host is gone".into(), since: DoubtCause::LineGone }
}

#[test]
fn a_call_waits_for_its_peer_and_is_started_for_its_line() {
    let mut stage = thinking(open_rules());
    let summary = stage.request_calls([away("a"), tool_call("look", "b")]).table_cell();
    assert!(summary.ends_with("call allowed, call allowed, call waits, call started"), "{summary}");
    assert_eq!(came(&mut stage, 7), "Done: peer came, call started");
    let call = stage.engine.state().call(stage.calls()[0]).unwrap();
    assert_eq!(
        (call.peer_line(), call.start_count(), call.phase()),
        (Some(PeerLine(7)), 1, &CallPhase::Started { boot: 1 })
    );
    assert_eq!(stage.engine.state().next_deadline(), None);
}

#[test]
fn what_a_peer_has_is_given_to_no_other_line() {
    let mut stage = sent();
    assert_eq!(came(&mut stage, 2), "Done: peer came");
    let call = stage.calls()[0];
    assert_eq!(stage.engine.state().call(call).unwrap().peer_line(), Some(PeerLine(1)));
    let summary = stage.end_with(0, left()).table_cell();
    assert!(summary.starts_with("Done: call in_doubt, session entry tool_result, call ended unknown"), "{summary}");
    assert_eq!(stage.last_result(), "the host is gone");
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
        assert_eq!(stage.end_with(0, CallProgress::Unsent { start: 1 }).table_cell(), want, "{case}");
    }
    let mut stage = sent();
    stage.end_with(0, CallProgress::Unsent { start: 1 });
    assert_eq!(came(&mut stage, 2), "Done: peer came, call started");
    assert_eq!(stage.end_with(0, CallProgress::Unsent { start: 1 }).table_cell(), "Dropped: call result_dropped");
    assert_eq!(stage.engine.state().call(stage.calls()[0]).unwrap().start_count(), 2);
}

#[test]
fn a_call_is_given_up_at_its_deadline_and_not_while_its_peer_is_there() {
    let mut stage = thinking(open_rules());
    stage.request_calls([away("a")]);
    let until = stage.engine.state().next_deadline().unwrap();
    assert_eq!(until, stage.now + seconds(3600));
    stage.now = until;
    let summary = stage.send_command(Command::Tick).table_cell();
    assert!(summary.starts_with("Done: session entry tool_result, call ended failed"), "{summary}");
    assert!(stage.last_result().ends_with("Nothing was sent."), "{}", stage.last_result());

    let mut stage = sent();
    stage.now = until;
    assert_eq!(stage.send_command(Command::Tick).table_cell(), "Done");
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
        ("sent, and runs go on", sent(), ResumeMode::Go, "Outcome unknown"),
        ("sent, and runs wait", sent(), ResumeMode::Wait, "Outcome unknown"),
        ("waiting, and runs wait", waiting(), ResumeMode::Wait, "Not run: the process ended"),
    ] {
        stage.restart(open_rules(), resume);
        assert!(stage.last_result().starts_with(result), "{case}: {}", stage.last_result());
        assert_eq!(stage.engine.state().line_of(&PeerId::new("p")), None, "{case}");
    }
    let mut stage = waiting();
    stage.restart(open_rules(), ResumeMode::Go);
    assert_eq!(came(&mut stage, 1), "Done: peer came, call started");
}

fn waiting() -> EngineFixture {
    let mut stage = thinking(open_rules());
    stage.request_calls([away("a")]);
    stage
}

/// Returns a call whose line broke, at a peer that records outcomes of calls.
fn in_doubt() -> EngineFixture {
    let mut stage = thinking(open_rules());
    came_with(&mut stage, 1, PeerMemory::Keeps);
    stage.request_calls([away("a")]);
    gone(&mut stage, 1);
    assert_eq!(stage.end_with(0, left()).table_cell(), "Done: call in_doubt");
    stage
}

#[test]
fn a_peer_with_a_journal_is_asked_over_its_next_connection() {
    let mut stage = in_doubt();
    assert_eq!(came_with(&mut stage, 2, PeerMemory::Forgets), "Done: peer came");
    assert_eq!(came_with(&mut stage, 3, PeerMemory::Keeps), "Done: peer came, call asked_again");
    let call = stage.engine.state().call(stage.calls()[0]).unwrap();
    assert_eq!((call.peer_line(), call.start_count(), call.is_asking()), (Some(PeerLine(3)), 2, true));
    assert_eq!(stage.engine.state().next_deadline(), None);
    // A call whose outcome was only asked for is never sent again.
    assert_eq!(stage.end_with(0, CallProgress::Unsent { start: 2 }).table_cell(), "Done: peer gone, call in_doubt");
    assert_eq!(came_with(&mut stage, 4, PeerMemory::Keeps), "Done: peer came, call asked_again");
    let summary =
        stage.end_with(0, CallProgress::Left { text: "it broke off".into(), since: DoubtCause::PeerLost }).table_cell();
    assert!(summary.starts_with("Done: call in_doubt, session entry tool_result, call ended unknown"), "{summary}");
}

#[test]
fn only_the_journal_of_a_call_is_asked_about_it() {
    let mut stage = thinking(open_rules());
    came_with(&mut stage, 1, PeerMemory::Journal(7));
    stage.request_calls([away("a")]);
    gone(&mut stage, 1);
    assert_eq!(stage.end_with(0, left()).table_cell(), "Done: call in_doubt");
    // Another machine by the same name, or the same one whose journal was thrown away.
    for (line, other) in [(2, PeerMemory::Journal(8)), (3, PeerMemory::Keeps)] {
        assert_eq!(came_with(&mut stage, line, other), "Done: peer came", "{other:?}");
    }
    assert_eq!(came_with(&mut stage, 4, PeerMemory::Journal(7)), "Done: peer came, call asked_again");
    // A peer that did not name its journal may name it now: it was updated meanwhile.
    assert_eq!(came_with(&mut in_doubt(), 2, PeerMemory::Journal(7)), "Done: peer came, call asked_again");
}

#[test]
fn a_call_of_which_its_peer_says_nothing_in_time_is_unknown() {
    for (case, mut stage) in [("gone", in_doubt()), ("after a restart", restarted())] {
        let until = stage.engine.state().next_deadline().unwrap();
        assert_eq!(until, stage.now + seconds(60), "{case}");
        stage.now = until;
        let summary = stage.send_command(Command::Tick).table_cell();
        assert!(summary.starts_with("Done: session entry tool_result, call ended unknown"), "{case}: {summary}");
        assert!(stage.last_result().starts_with("Outcome unknown"), "{case}: {}", stage.last_result());
    }
}

/// Returns the same after the process ended while its peer had it.
fn restarted() -> EngineFixture {
    let mut stage = thinking(open_rules());
    came_with(&mut stage, 1, PeerMemory::Keeps);
    stage.request_calls([away("a")]);
    stage.restart(open_rules(), ResumeMode::Go);
    stage
}

#[test]
fn a_restart_asks_for_what_its_peer_has_and_ends_it_once() {
    let mut stage = restarted();
    assert_eq!(came_with(&mut stage, 1, PeerMemory::Keeps), "Done: peer came, call asked_again");
    let summary = stage.end_call(0).table_cell();
    assert!(summary.starts_with("Done: session entry tool_result, call ended done"), "{summary}");
    assert_eq!(stage.engine.state().calls().count(), 0);
}

#[test]
fn an_abort_does_not_wait_for_a_disconnected_peer() {
    let summary = in_doubt().abort().table_cell();
    assert!(summary.contains("call ended unknown"), "{summary}");
}

#[test]
fn a_peer_that_disconnects_at_every_query_is_given_up() {
    let mut stage = in_doubt();
    let mut summary = String::new();
    for line in 2..60 {
        came_with(&mut stage, line, PeerMemory::Keeps);
        gone(&mut stage, line);
        summary = stage.end_with(0, left()).table_cell();
        if summary != "Done: call in_doubt" {
            break;
        }
    }
    assert!(summary.starts_with("Done: call in_doubt, session entry tool_result, call ended unknown"), "{summary}");
}

/// Returns a person's action of the peer, under the call of this number.
fn act(number: u128) -> Command {
    Command::Call(call::Command::Act(Box::new(call::PeerAction {
        call: acted(number),
        session: session_id(),
        by: PrincipalId::new("client:ana"),
        peer: PeerId::new("p"),
        class: Class::HostToolInvoke,
        shell: ShellInput::Nothing,
        tool: "p__Look".into(),
        wire: None,
        intent: None,
        arguments: json!({ "path": "a" }).as_object().cloned().unwrap_or_default(),
        signature: "p__Look(a)".to_owned(),
        named: Vec::new(),
    })))
}

fn acted(number: u128) -> CallId {
    CallId::new(Uuid::from_u128(number))
}

fn act_ends(stage: &mut EngineFixture, number: u128, progress: CallProgress) -> String {
    stage.send_command(Command::Call(call::Command::Ended { call: acted(number), progress })).table_cell()
}

#[test]
fn what_a_person_has_a_peer_do_begins_at_once_and_has_no_place_in_the_conversation() {
    let mut stage = EngineFixture::new(open_rules());
    assert_eq!(stage.send_command(act(1)).table_cell(), "refused: p is not connected");
    came_with(&mut stage, 1, PeerMemory::Keeps);
    assert_eq!(stage.send_command(act(1)).table_cell(), "Running: call wanted, call allowed, call started");
    let not_begun = CallProgress::NotBegun("no such tool".into());
    assert_eq!(act_ends(&mut stage, 1, not_begun), "Done: call ended failed");
    assert_eq!(stage.call_results(), Vec::<String>::new());
}

#[test]
fn a_rule_that_denies_stops_what_a_person_wants_too() {
    let mut stage = EngineFixture::new(rules_from(&["deny p__Look(*"]));
    came(&mut stage, 1);
    assert!(stage.send_command(act(1)).table_cell().starts_with("refused: Denied by policy: "));
}

#[test]
fn a_users_command_at_a_peer_is_recovered_like_any_call() {
    let mut stage = EngineFixture::new(open_rules());
    came_with(&mut stage, 1, PeerMemory::Keeps);
    stage.send_command(act(1));
    gone(&mut stage, 1);
    assert_eq!(act_ends(&mut stage, 1, left()), "Done: call in_doubt");
    stage.restart(open_rules(), ResumeMode::Go);
    assert_eq!(came_with(&mut stage, 1, PeerMemory::Keeps), "Done: peer came, call asked_again");
    gone(&mut stage, 1);
    assert_eq!(act_ends(&mut stage, 1, left()), "Done: call in_doubt");
    stage.now = stage.engine.state().next_deadline().unwrap();
    assert_eq!(stage.send_command(Command::Tick).table_cell(), "Done: call ended unknown");
    assert_eq!(act_ends(&mut stage, 1, CallProgress::Broke), "Dropped: call result_dropped");
}

#[test]
fn without_a_journal_it_is_unknown_at_once() {
    let mut stage = EngineFixture::new(open_rules());
    came(&mut stage, 1);
    stage.send_command(act(1));
    assert_eq!(act_ends(&mut stage, 1, left()), "Done: call in_doubt, call ended unknown");
    stage.send_command(act(2));
    stage.restart(open_rules(), ResumeMode::Go);
    assert_eq!(act_ends(&mut stage, 2, left()), "Dropped: call result_dropped");
}

#[test]
fn an_abort_ends_waiting_calls_and_aborts_sent_ones() {
    let summary = waiting().abort().table_cell();
    assert!(summary.contains("call ended cancelled"), "{summary}");
    let mut stage = sent();
    assert_eq!(stage.abort().table_cell(), "Stopping: run aborting, call aborting");
    let summary =
        stage.end_with(0, CallProgress::Left { text: "stopped".into(), since: DoubtCause::Stopped }).table_cell();
    assert!(summary.starts_with("Done: call in_doubt, session entry tool_result, call ended unknown"), "{summary}");
    assert_eq!(stage.send_command(Command::Tick).1, Ok(EngineReply::Done));
}

#[test]
fn a_rule_that_came_while_a_call_waited_wins() {
    let mut stage = waiting();
    stage.send_command(Command::UseRules(Box::new(rules_from(&["deny look(a)"]))));
    let summary = came(&mut stage, 1);
    assert!(summary.starts_with("Done: peer came, session entry tool_result, call ended denied"), "{summary}");
}

#[test]
fn what_a_host_does_lies_beyond_the_files_of_this_machine() {
    let summary = thinking(asking_rules()).request_calls([tool_call("look", "a"), away("a")]).table_cell();
    assert!(summary.contains("call gated"), "{summary}");
    assert_eq!(summary.matches("call gated").count(), 1, "{summary}");
}
