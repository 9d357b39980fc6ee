//! The states in which every command is tried, by name.

use countersign_core::{
    call::{self, Executor},
    engine::{ActiveRules, Command},
    gate::GateReply,
    run::ProviderFailure,
    session::{self, SessionEntryKind, WhenBusy},
};
use serde_json::json;

use crate::engine_fixture::{EngineFixture, EngineOutcome, asking_rules, open_rules, session_id, tool_call};

/// A failure that is worth another attempt.
pub(crate) const RETRYABLE: ProviderFailure = ProviderFailure { retryable: true, overflow: false, after: None };

/// A state's name and its setup.
pub(crate) type NamedState = (&'static str, fn() -> EngineFixture);

/// Every state of a session.
const STATES: [NamedState; 11] = [
    ("none", || EngineFixture::without_session(open_rules())),
    ("idle", idle),
    ("command", commanding),
    ("thinking", || thinking(open_rules())),
    ("calling", || calling(["write"])),
    ("gated", gated),
    ("asked", || calling(["ask"])),
    ("backoff", backing_off),
    ("stopping", stopping),
    ("compacting", compacting),
    ("behind", behind),
];

pub(crate) fn idle() -> EngineFixture {
    EngineFixture::new(open_rules())
}

/// Returns a fixture in which a person's own command runs.
pub(crate) fn commanding() -> EngineFixture {
    let mut stage = idle();
    run_command(&mut stage);
    stage
}

/// Returns a fixture with a model request in flight.
pub(crate) fn thinking(rules: ActiveRules) -> EngineFixture {
    let mut stage = EngineFixture::new(rules);
    stage.send_prompt(WhenBusy::Refuse);
    stage
}

/// Calls run, each of them on a file of its own.
pub(crate) fn calling<const N: usize>(tools: [&str; N]) -> EngineFixture {
    under(open_rules(), tools)
}

/// Calls run, with rules under which changing calls ask.
pub(crate) fn under<const N: usize>(rules: ActiveRules, tools: [&str; N]) -> EngineFixture {
    let mut stage = thinking(rules);
    let mut paths = ["a", "b", "c", "d"].into_iter();
    stage.request_calls(tools.map(|tool| tool_call(tool, paths.next().expect("no table has more"))));
    stage
}

/// Returns a fixture in which a person decides about a call.
pub(crate) fn gated() -> EngineFixture {
    under(asking_rules(), ["write"])
}

/// Returns a fixture in which the provider failed and the request is repeated later.
pub(crate) fn backing_off() -> EngineFixture {
    let mut stage = thinking(open_rules());
    stage.fail_request(RETRYABLE);
    stage
}

/// Returns a fixture whose run was stopped while a call works.
pub(crate) fn stopping() -> EngineFixture {
    let mut stage = calling(["write"]);
    stage.abort();
    stage
}

/// Returns a fixture in which a compaction was requested.
pub(crate) fn compacting() -> EngineFixture {
    let mut stage = idle();
    compact(&mut stage);
    stage
}

pub(crate) fn compact(stage: &mut EngineFixture) {
    stage.import([("u", SessionEntryKind::User, 60), ("a", SessionEntryKind::User, 60)]);
    stage.session_command(session::Command::Compact { instructions: None });
}

/// Returns a fixture in which a prompt waits for a compaction.
pub(crate) fn behind() -> EngineFixture {
    let mut stage = idle();
    stage.import([("u", SessionEntryKind::User, 900), ("a", SessionEntryKind::User, 60)]);
    stage.send_prompt(WhenBusy::Refuse);
    stage
}

pub(crate) fn run_command(stage: &mut EngineFixture) -> EngineOutcome {
    stage.send_command(Command::Call(call::Command::Run {
        session: session_id(),
        tool: "bash".into(),
        arguments: json!({"command": "ls"}).as_object().cloned().expect("it is one"),
        signature: "bash(ls)".to_owned(),
        executor: Executor::Shell,
    }))
}

pub(crate) fn deny(reason: Option<&str>) -> GateReply {
    GateReply::Deny { reason: reason.map(str::to_owned) }
}

/// Tries one command in every state. A row names the states with the same outcome; every state is in one.
pub(crate) fn in_every_state(case: &str, command: impl Fn(&mut EngineFixture) -> EngineOutcome, rows: &[(&str, &str)]) {
    check(case, &STATES, |stage| command(stage).table_cell(), rows);
}

/// Tries it in states of the table's own, with the outcome that `look` returns for each.
pub(crate) fn check(
    case: &str,
    states: &[NamedState],
    look: impl Fn(&mut EngineFixture) -> String,
    rows: &[(&str, &str)],
) {
    let mut named: Vec<&str> = rows.iter().flat_map(|(states, _)| states.split(", ")).collect();
    let mut known: Vec<&str> = states.iter().map(|(name, _)| *name).collect();
    named.sort_unstable();
    known.sort_unstable();
    assert_eq!(named, known, "{case}: every state stands in one row");
    for (name, want) in rows.iter().flat_map(|(states, want)| states.split(", ").map(move |name| (name, *want))) {
        let (_, state) = states.iter().find(|(state, _)| *state == name).expect("it was looked for above");
        assert_eq!(look(&mut state()), want, "{case}, {name}");
    }
}
