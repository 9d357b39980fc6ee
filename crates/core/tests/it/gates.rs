use countersign_core::{
    engine::{Command, Refusal, Reply},
    gate::{Answer, AnswerRefusal, Resolution, Scope},
    id::{GateId, PrincipalId},
};

use crate::stage::{Stage, Told, asking, open, wanted};

fn gated(tool: &str, path: &str) -> (Stage, GateId) {
    let mut stage = Stage::new(asking());
    stage.prompt(countersign_core::session::WhenBusy::Refuse);
    stage.want([wanted(tool, path)]);
    let gate = stage.gate();
    (stage, gate)
}

fn deny() -> Answer {
    Answer::Deny { reason: None }
}

fn say() -> Answer {
    Answer::Say(vec!["left".to_owned()])
}

#[test]
fn a_pending_gate_takes_the_answers_that_its_kind_offers() {
    let not_offered = |problem| move |gate| Err(Refusal::Answer(AnswerRefusal::NotOffered { gate, problem }));
    let resolved = |resolution: Resolution| Ok(Reply::Resolved(resolution));
    let approval = not_offered("an approval is allowed or denied");
    let question = not_offered("a question is not allowed or denied");
    let empty = not_offered("an answer is empty");
    let reach = not_offered("this reach is not offered");
    let once = Resolution::Allowed { scope: Scope::Once };
    for (tool, path, answer, want) in [
        ("write", "a", Answer::Allow(Scope::Once), None),
        ("write", "a", Answer::Allow(Scope::Session), Some(resolved(Resolution::Allowed { scope: Scope::Session }))),
        ("write", "a", Answer::Allow(Scope::Always), Some(resolved(Resolution::Allowed { scope: Scope::Always }))),
        ("write", "a", deny(), Some(resolved(Resolution::Denied))),
        ("write", "a", Answer::Decline, Some(resolved(Resolution::Denied))),
        ("bash", "rm -rf /", deny(), Some(resolved(Resolution::Denied))),
        ("ask", "", say(), Some(resolved(Resolution::Answered))),
        ("ask", "", deny(), Some(resolved(Resolution::Declined))),
        ("ask", "", Answer::Decline, Some(resolved(Resolution::Declined))),
    ] {
        let (mut stage, gate) = gated(tool, path);
        let want = want.unwrap_or_else(|| Ok(Reply::Resolved(once.clone())));
        assert_eq!(stage.decide(gate, answer.clone(), "ana", None).1, want, "{tool} {answer:?}");
    }
    let (mut stage, gate) = gated("write", "a");
    assert_eq!(stage.decide(gate, say(), "ana", None).1, approval(gate));
    let (mut stage, gate) = gated("ask", "");
    assert_eq!(stage.decide(gate, Answer::Allow(Scope::Once), "ana", None).1, question(gate));
    assert_eq!(stage.decide(gate, Answer::Say(Vec::new()), "ana", None).1, empty(gate));
    let (mut stage, gate) = gated("bash", "rm -rf /");
    for scope in [Scope::Session, Scope::Always] {
        assert_eq!(stage.decide(gate, Answer::Allow(scope), "ana", None).1, reach(gate), "{scope:?}");
    }
    assert!(stage.engine.state().gate(gate).unwrap().is_pending());
}

#[test]
fn whoever_comes_second_is_told_who_was_first_and_the_same_key_gets_the_first_result() {
    let allowed = Resolution::Allowed { scope: Scope::Once };
    for (case, first, answer, key, want) in [
        ("another answer", None, deny(), None, false),
        ("the same answer without a key", None, Answer::Allow(Scope::Once), None, false),
        ("a key where there was none", None, Answer::Allow(Scope::Once), Some("k"), false),
        ("another key", Some("k"), Answer::Allow(Scope::Once), Some("l"), false),
        ("the same key", Some("k"), Answer::Allow(Scope::Once), Some("k"), true),
        ("the same key with another answer", Some("k"), deny(), Some("k"), true),
    ] {
        let (mut stage, gate) = gated("write", "a");
        stage.decide(gate, Answer::Allow(Scope::Once), "ana", first);
        let by = Some(PrincipalId::new("ana"));
        let late = AnswerRefusal::AlreadyResolved { gate, resolution: allowed.clone(), by };
        let want = if want { Ok(Reply::Resolved(allowed.clone())) } else { Err(Refusal::Answer(late)) };
        assert_eq!(stage.decide(gate, answer, "bo", key), Told(Vec::new(), want), "{case}");
    }
}

#[test]
fn an_agent_cannot_answer_its_own_gate() {
    let (mut stage, gate) = gated("write", "a");
    let by = PrincipalId::new("agent");
    let refused = Err(Refusal::Answer(AnswerRefusal::NotAllowed { gate, by }));
    assert_eq!(stage.decide(gate, Answer::Allow(Scope::Once), "agent", None), Told(Vec::new(), refused));
}

#[test]
fn a_gate_is_resolved_by_time_at_its_deadline_and_not_before() {
    for (case, early, want) in [
        ("before", 1, Vec::new()),
        (
            "at",
            0,
            vec![
                "gate resolved expired",
                "session entry tool_result",
                "call ended denied",
                "run turn_closed",
                "run turn_opened",
                "run asked",
            ],
        ),
    ] {
        let (mut stage, gate) = gated("write", "a");
        let deadline = stage.engine.state().gate(gate).unwrap().deadline().unwrap();
        stage.now.0 = deadline.0 - early;
        assert_eq!(stage.tell(Command::Tick).0, want, "{case}");
    }
}

#[test]
fn a_denial_binds_and_the_same_persons_allow_lifts_it() {
    let (mut stage, gate) = gated("write", "a");
    let denied = stage.decide(gate, deny(), "ana", None).0;
    assert_eq!(denied[..3], ["gate resolved denied", "policy constrained", "run denied 1"]);
    let again = stage.want([wanted("write", "a")]).0;
    assert_eq!(again[3..5], ["session entry tool_result", "call ended denied"]);
}

#[test]
fn three_denials_in_a_row_end_the_asking_of_a_run() {
    let mut stage = Stage::new(asking());
    stage.prompt(countersign_core::session::WhenBusy::Refuse);
    stage.want(["a", "b", "c", "d"].map(|path| wanted("write", path)));
    for _ in 0..2 {
        let gate = stage.gate();
        stage.decide(gate, deny(), "ana", None);
    }
    let gate = stage.gate();
    let third = stage.decide(gate, deny(), "ana", None).0;
    assert_eq!(
        third,
        [
            "gate resolved denied",
            "policy constrained",
            "run denied 3",
            "session entry tool_result",
            "call ended denied",
            "gate resolved withdrawn",
            "session entry tool_result",
            "call ended denied",
            "run turn_closed",
            "run turn_opened",
            "run asked",
        ]
    );
    let next = stage.want([wanted("write", "e")]).0;
    assert_eq!(next[3..5], ["session entry tool_result", "call ended denied"], "nothing is asked any more");
}

#[test]
fn a_grant_settles_the_gates_that_it_covers() {
    let mut stage = Stage::new(asking());
    stage.prompt(countersign_core::session::WhenBusy::Refuse);
    stage.want(["a", "a", "b"].map(|path| wanted("write", path)));
    let gate = stage.gate();
    let told = stage.decide(gate, Answer::Allow(Scope::Session), "ana", None).0;
    let gates: Vec<_> = told.iter().filter(|fact| fact.starts_with("gate")).collect();
    assert_eq!(gates, ["gate resolved allowed", "gate resolved granted"]);
    assert_eq!(stage.engine.state().pending_gates().count(), 1);
}

#[test]
fn a_rule_that_came_since_wins_when_a_call_starts() {
    let mut stage = Stage::new(open());
    stage.prompt(countersign_core::session::WhenBusy::Refuse);
    stage.want([wanted("write", "a"), wanted("write", "b")]);
    stage.tell(Command::UseRules(Box::new(asking())));
    assert_eq!(
        stage.end(0).0,
        [
            "session entry tool_result",
            "call ended done",
            "call gated",
            "gate opened approval [\"once\",\"session\",\"always\"]"
        ]
    );
}
