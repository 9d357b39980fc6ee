//! Chat networks: a received message is recorded once, output of runs is owed until it ends, and a pairing request is asked about once.

use std::{sync::Arc, time::Duration};

use countersign_core::{
    channel::{
        AddressKind, ChannelAccount, ChatAddress, Command, DeliveryEnd, InboundMessage, MessageOrigin, OutboundRequest,
        PairingRequest,
    },
    engine::{Command as Any, ResumeMode},
    gate::{ApprovalScope, GateReply, Kind},
    id::{OutboundId, PrincipalId},
    message::StopReason,
    run::{ModelAnswer as Said, RunMetadata},
    session,
};
use serde_json::Map;

use crate::{
    engine_fixture::{EngineFixture, open_rules, sample_message, session_id as here},
    states::idle,
};

fn chat() -> ChatAddress {
    let account = ChannelAccount { network: "wx".to_owned(), name: "a".to_owned() };
    ChatAddress { account, kind: AddressKind::Dm, chat: "p".to_owned() }
}

/// Returns the origin of a message of this id.
pub(crate) fn origin(id: &str) -> MessageOrigin {
    MessageOrigin { from: chat(), by: PrincipalId::new("channel:wx:p"), message: Some(id.to_owned()) }
}

fn hear(stage: &mut EngineFixture, id: &str, then: bool) -> String {
    let marks = Box::new(RunMetadata { origin: Some(Box::new(origin(id))), ..RunMetadata::default() });
    let inbound = InboundMessage {
        from: chat(),
        agent: "main".to_owned(),
        id: Some(id.to_owned()),
        then: then.then(|| Box::new(Any::Session(here(), session::Command::Say { message: sample_message(1), marks }))),
    };
    stage.send_command(Any::Channel(Command::Hear(Box::new(inbound)))).table_cell()
}

fn write(stage: &mut EngineFixture, words: &str, key: Option<&str>) -> String {
    let message = OutboundRequest {
        to: chat(),
        text: words.into(),
        session: None,
        reply_to: None,
        key: key.map(str::to_owned),
        media: None,
    };
    stage.send_command(Any::Channel(Command::Send(Box::new(message)))).table_cell()
}

fn says(stage: &mut EngineFixture, words: &str, stop: StopReason) -> String {
    let (run, epoch) =
        (stage.current_run(), stage.engine.state().run(stage.current_run()).expect("the stage has it").epoch());
    let stop_word = serde_json::to_string(&stop).expect("a word");
    let content = format!(
        r#"{{"role":"assistant","content":[{{"type":"text","text":"{words}"}}],"api":"","provider":"","model":"","usage":{{}},"stopReason":{stop_word}}}"#
    );
    let message = session::MessageContent { content: content.into(), tokens: 1 };
    let answer =
        Said { message, stop, total_tokens: 1, calls: Vec::new(), failure: None, others: Vec::new(), spent: None };
    stage.answer_run(run, epoch, answer).table_cell()
}

fn letters(stage: &EngineFixture) -> Vec<OutboundId> {
    stage.engine.state().channels().pending_messages().map(|letter| letter.id).collect()
}

fn ended(stage: &mut EngineFixture, letter: OutboundId, end: DeliveryEnd) -> String {
    stage.send_command(Any::Channel(Command::Ended { letter, end, why: None })).table_cell()
}

/// Creates one of each part of the state of chat networks.
pub(crate) fn some(stage: &mut EngineFixture) {
    hear(stage, "m1", false);
    write(stage, "hi", Some("k"));
}

#[test]
fn what_a_message_has_done_is_recorded_with_it_and_not_done_again_when_it_comes_again() {
    let mut stage = idle();
    let renew = |stage: &mut EngineFixture| {
        let by = PrincipalId::new("channel:wx:p");
        let renew = Any::Session(here(), session::Command::Renew { by, owed: None });
        let inbound = InboundMessage {
            from: chat(),
            agent: "main".to_owned(),
            id: Some("m1".to_owned()),
            then: Some(Box::new(renew)),
        };
        let cell = stage.send_command(Any::Channel(Command::Hear(Box::new(inbound)))).table_cell();
        (cell, stage.engine.state().session(&here()).map(session::Session::renewal_count))
    };
    assert_eq!(renew(&mut stage), ("Done: channel met, channel heard, session renewed".to_owned(), Some(1)));
    assert_eq!(renew(&mut stage), ("Repeated".to_owned(), Some(1)));
}

#[test]
fn a_message_with_an_id_counts_once_with_the_run_that_it_begins() {
    let mut stage = idle();
    let began = hear(&mut stage, "m1", true);
    assert!(began.starts_with("Started: channel met, channel heard, run started prompt, run marked"), "{began}");
    assert_eq!(hear(&mut stage, "m1", true), "Repeated");
    stage.restart(open_rules(), ResumeMode::Go);
    assert_eq!(hear(&mut stage, "m1", true), "Repeated");
    assert_eq!(hear(&mut stage, "m2", true), "Queued: channel heard, session queued user next");
    assert_eq!(hear(&mut stage, "m3", false), "Done: channel heard");
    assert_eq!(stage.engine.state().channels().active_chat("main").map(|active| active.at.clone()), Some(chat()));
}

#[test]
fn what_a_run_says_is_owed_to_the_chat_that_it_came_from_until_that_ends() {
    let mut stage = idle();
    hear(&mut stage, "m1", true);
    let summary = says(&mut stage, "hello", StopReason::Stop);
    assert!(summary.contains("channel owed"), "{summary}");
    stage.restart(open_rules(), ResumeMode::Go);
    let [letter] = letters(&stage)[..] else { panic!("one letter: {:?}", letters(&stage)) };
    let reply_to = stage.engine.state().channels().pending_message(letter).unwrap().reply_to.clone();
    assert_eq!(reply_to.as_deref(), Some("m1"));
    assert_eq!(ended(&mut stage, letter, DeliveryEnd::Delivered), "Done: channel ended delivered");
    assert_eq!(ended(&mut stage, letter, DeliveryEnd::Delivered), "Done");
    assert_eq!(letters(&stage), []);
}

#[test]
fn blank_texts_and_what_broke_off_are_owed_to_nobody() {
    for (words, stop) in [("  ", StopReason::Stop), ("half a", StopReason::Aborted), ("no", StopReason::Error)] {
        let mut stage = idle();
        hear(&mut stage, "m1", true);
        let summary = says(&mut stage, words, stop);
        assert!(!summary.contains("channel"), "{words}: {summary}");
    }
}

#[test]
fn a_letter_is_written_once_under_its_key_and_only_to_accounts_that_are_known() {
    let mut stage = idle();
    assert_eq!(write(&mut stage, "hi", None), "refused: no account a of wx is known");
    stage.send_command(Any::Channel(Command::Meet(chat().account)));
    assert_eq!(write(&mut stage, "hi", Some("k")), "Done: channel owed");
    assert_eq!(write(&mut stage, "hi", Some("k")), "Repeated");
    let letter = letters(&stage)[0];
    ended(&mut stage, letter, DeliveryEnd::Refused);
    stage.restart(open_rules(), ResumeMode::Go);
    assert_eq!(write(&mut stage, "hi", Some("k")), "Repeated");
}

#[test]
fn of_too_many_letters_the_oldest_goes_and_an_account_takes_its_letters_along() {
    let mut stage = idle();
    stage.send_command(Any::Channel(Command::Meet(chat().account)));
    for _ in 0..1000 {
        write(&mut stage, "hi", None);
    }
    let oldest = letters(&stage)[0];
    assert_eq!(write(&mut stage, "hi", None), "Done: channel ended dropped, channel owed");
    assert_eq!((letters(&stage).len(), letters(&stage).contains(&oldest)), (1000, false));
    hear(&mut stage, "m1", false);
    assert_eq!(stage.engine.state().channels().active_chat("main").map(|active| &active.at), Some(&chat()));
    stage.send_command(Any::Channel(Command::Forget(chat().account)));
    let channels = stage.engine.state().channels();
    assert_eq!((letters(&stage).len(), channels.accounts().count(), channels.active_chat("main")), (0, 0, None));
}

#[test]
fn what_came_through_an_account_is_known_behind_its_logout_as_long_as_it_may_come_again() {
    let mut stage = idle();
    hear(&mut stage, "m1", false);
    for _ in 0..2 {
        stage.send_command(Any::Channel(Command::Forget(chat().account)));
        stage.restart(open_rules(), ResumeMode::Go);
        assert_eq!(hear(&mut stage, "m1", false), "Repeated");
        stage.send_command(Any::Channel(Command::Meet(chat().account)));
        assert_eq!(hear(&mut stage, "m1", false), "Repeated");
    }
    stage.now = stage.now + Duration::from_secs(601);
    stage.send_command(Any::Channel(Command::Forget(chat().account)));
    assert_eq!(hear(&mut stage, "m1", false), "Done: channel met, channel heard");
}

#[test]
fn messages_beyond_the_remembered_ids_are_refused_for_ten_minutes() {
    let mut stage = idle();
    for number in 0..4096 {
        hear(&mut stage, &format!("m{number}"), false);
    }
    let refused = "refused: too many messages came through this account; it may try again later";
    assert_eq!(hear(&mut stage, "one more", false), refused);
    stage.now = stage.now + Duration::from_secs(601);
    assert_eq!(hear(&mut stage, "one more", false), "Done: channel heard");
}

fn knock(stage: &mut EngineFixture, who: &str) -> String {
    let knock = PairingRequest {
        from: chat(),
        sender: who.to_owned(),
        question: "May they speak?".to_owned(),
        why: None,
        about: Map::new(),
        notice: Arc::from("Somebody has to let you in first."),
    };
    stage.send_command(Any::Channel(Command::Knock(Box::new(knock)))).table_cell()
}

#[test]
fn the_oldest_pairing_request_makes_room_after_a_day() {
    let mut stage = idle();
    for number in 0..256 {
        knock(&mut stage, &format!("+{number}"));
    }
    assert!(knock(&mut stage, "+256").starts_with("refused: "));
    stage.now = stage.now + Duration::from_hours(24);
    let summary = knock(&mut stage, "+256");
    assert!(summary.contains("gate resolved withdrawn, gate opened"), "{summary}");
    assert_eq!(stage.engine.state().pending_gates().count(), 256);
    assert!(knock(&mut stage, "+0").contains("gate opened"), "whoever gave way may knock again");
}

#[test]
fn an_unknown_sender_opens_one_pairing_gate() {
    let mut stage = idle();
    let summary = knock(&mut stage, "+49");
    assert!(summary.contains("gate opened") && summary.contains("channel owed"), "{summary}");
    assert_eq!(knock(&mut stage, "+49"), "Repeated");
    stage.restart(open_rules(), ResumeMode::Go);
    assert_eq!(knock(&mut stage, "+49"), "Repeated");
    assert_ne!(knock(&mut stage, "+50"), "Repeated");
    let gate = stage.engine.state().pending_gates().next().unwrap().clone();
    assert_eq!((gate.kind(), gate.deadline(), gate.session()), (Kind::Pairing, None, None));
    stage.answer_gate(gate.id(), GateReply::Allow(ApprovalScope::Once), "ana", None).1.unwrap();
    assert!(stage.engine.state().gate(gate.id()).unwrap().owes_update());
}
