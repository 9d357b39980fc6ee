//! The form of a snapshot, and the state of facts in it: a later process reads it in place of the log.

use countersign_core::{
    call::Executor,
    digest::Digest,
    engine::{Command, Engine, SNAPSHOT_VERSION},
    gate::{AnswerForm, ApprovalScope, GateReply},
    id::{PeerId, PrincipalId},
    message::StopReason,
    peer::{self, PeerLine, PeerMemory},
    policy::Class,
    run::ResolvedCall,
    session::{
        self, AnswerFormat, AskTimeouts, FilePart, MessageQueue, NoAnswerRule, QuestionSettings, SessionEntryKind,
        SessionSetting, Settings, StagedEntry, WhenBusy,
    },
    settings,
};
use serde_json::json;

use crate::{
    channels,
    engine_fixture::{EngineFixture, asking_rules, open_rules, sample_message, seconds, tool_call},
    schedule,
    states::{RETRYABLE, behind, compact, deny, idle, run_command, thinking},
    unattended,
};

/// Settings under which a plan gets its default, and people are reminded of it before.
fn asking_settings() -> Settings {
    let plan = AskTimeouts { within: Some(seconds(60)), remind: Some(seconds(20)), otherwise: NoAnswerRule::Default };
    let asking = QuestionSettings { answer_format: AnswerFormat::Selected, plan, ..QuestionSettings::default() };
    Settings { asking, ..Settings::default() }
}

/// Creates one of each part of a session's state.
pub(crate) fn histories() -> [EngineFixture; 8] {
    let mut gated = thinking(asking_rules());
    gated.fail_request(RETRYABLE);
    gated.now = gated.engine.state().next_deadline().expect("it waits");
    gated.send_command(Command::Tick);
    gated.request_calls([
        tool_call("look", "a"),
        tool_call("write", "b"),
        tool_call("write", "c"),
        tool_call("write", "d"),
    ]);
    run_command(&mut gated);
    for answer in [deny(Some("no")), GateReply::Allow(ApprovalScope::Always)] {
        let gate = gated.oldest_gate();
        gated.answer_gate(gate, answer, "ana", Some("k")).1.expect("it is offered");
    }
    gated.session_command(session::Command::Queue { queue: MessageQueue::Steering, message: sample_message(1) });
    gated.session_command(session::Command::Gather { part: FilePart::First, entries: Vec::<StagedEntry>::new() });

    let mut questioned = thinking(asking_rules());
    questioned.change_setting(SessionSetting::All(Box::new(asking_settings())));
    questioned.request_calls([tool_call("ask", ""), tool_call("plan", "")]);
    let answer = GateReply::Say(vec!["left".to_owned()]);
    let form = AnswerForm { answer, form: json!({"selected": ["left"]}), digest: Digest::hash_bytes(b"form") };
    for _ in 0..2 {
        let gate = questioned.oldest_gate();
        questioned
            .answer_gate(gate, GateReply::Form(Box::new(form.clone())), "ana", Some("k"))
            .1
            .expect("it is offered");
    }

    let mut waiting = thinking(asking_rules());
    waiting.fail_request(RETRYABLE);

    let mut compacting = idle();
    let assistant = SessionEntryKind::Assistant { stop: StopReason::Stop, total_tokens: 9 };
    compacting.import([("s", assistant, 9), ("t", SessionEntryKind::ToolResult { prunable: true }, 9)]);
    compact(&mut compacting);
    compacting.send_prompt(WhenBusy::FollowUp);
    compacting.session_command(session::Command::AbortCompaction);

    let mut behind = behind();
    let prompt = session::Command::Prompt { message: sample_message(1), with: Vec::new(), when_busy: WhenBusy::Steer };
    let key = session::IdempotencyKey { name: "ana k".to_owned(), asks: Digest::hash_bytes(b"said") };
    behind.session_command(session::Command::Once { key, command: Box::new(prompt) });
    channels::some(&mut behind);

    let mut away = thinking(open_rules());
    let at = |peer: &str| ResolvedCall {
        executor: Executor::Peer(PeerId::new(peer)),
        class: Some(Class::HostUriRead),
        ..tool_call("look", "a")
    };
    let came = peer::Command::Came { peer: PeerId::new("here"), line: PeerLine(3), memory: PeerMemory::Keeps };
    away.send_command(Command::Peer(came));
    let path =
        |text: &str| settings::SettingsPath::from_names(text.split('.').map(str::to_owned)).expect("it has names");
    let secrets = vec![(path("a.key"), Digest::hash_bytes(b"salted"))];
    let set = settings::Command::Set {
        by: PrincipalId::new("ana"),
        path: path("a"),
        value: Some(json!({"b": [1]})),
        secrets,
    };
    away.send_command(Command::Settings(set));
    away.request_calls([at("here"), at("away")]);
    [gated, questioned, waiting, compacting, behind, away, unattended::held(), schedule::planned()]
}

#[test]
fn a_snapshot_reads_back_as_the_state_that_it_was_made_of() {
    for stage in histories() {
        let read = Engine::from_snapshot(asking_rules(), &stage.engine.to_snapshot()).unwrap();
        assert_eq!(read.state(), stage.engine.state());
    }
}

/// The meaning of facts is part of a snapshot: an old one would hide their current meaning.
#[test]
fn another_form_of_a_snapshot_has_another_version() {
    let text: Vec<String> = histories().iter().map(|stage| stage.engine.to_snapshot()).collect();
    let digest = Digest::hash_bytes(text.join("\n").as_bytes()).to_string();
    let known = (30, "4fbbd24af6e0ee1431b40865d3a92ed61040b209cb44b0730dc1fa0e9f269bc6");
    assert_eq!(
        (SNAPSHOT_VERSION, digest.as_str()),
        known,
        "what a snapshot of this history says has changed: raise SNAPSHOT_VERSION by one, and write both here"
    );
}
