//! A Bot API that is slow, down, strict or gone: everything is repeated, nothing is lost, nothing else waits.

use std::time::Duration;

use serde_json::{Value, json};

use super::{
    fake_api::ApiFault,
    fixture::{ANA, CHAT, MessengerFixture},
};

fn refused(status: u16, words: &'static str, parameters: Value) -> ApiFault {
    ApiFault::Refused(status, words, parameters)
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_refused_for_now_is_repeated_as_it_says() {
    let down = || refused(502, "Bad Gateway", Value::Null);
    for (case, faults, want) in [
        ("429", vec![refused(429, "Too Many Requests", json!({ "retry_after": 7 }))], vec![7_500]),
        ("5xx", vec![down(), down(), down()], vec![1_000, 2_500, 4_750]),
        ("no answer", vec![ApiFault::Hangs], vec![11_000]),
        ("400", vec![refused(400, "Bad Request: refused", Value::Null)], vec![1_000]),
        ("403", vec![refused(403, "Forbidden: bot was kicked", Value::Null)], vec![1_000]),
    ] {
        let mut stage = MessengerFixture::new().await;
        stage.api.fail("sendMessage", faults);
        stage.ask("light.bedroom").await;
        stage.api.card("light.bedroom").await;
        let calls = stage.api.calls("sendMessage");
        let waits: Vec<u128> = calls[1..].iter().map(|at| at - calls[0]).collect();
        assert!(waits.iter().zip(&want).all(|(got, want)| (*want..want + 50).contains(got)), "{case}: {waits:?}");
        assert_eq!(waits.len(), want.len(), "{case}");
    }
}

/// A forum whose General is closed takes cards in the topic that is named; and one that is gone costs no card.
#[tokio::test(start_paused = true)]
async fn a_card_goes_to_its_topic_or_to_whatever_takes_it() {
    const CLOSED: &str = "Bad Request: TOPIC_CLOSED";
    for (case, topic, shut, want) in [
        ("in its topic", Some(7), vec![(0, CLOSED)], Some(7)),
        ("without a topic", None, vec![(7, CLOSED)], None),
        ("General has no number", Some(1), vec![(1, "Bad Request: message thread not found")], None),
        ("a topic that was deleted", Some(7), vec![(7, "Bad Request: message thread not found")], None),
        ("a topic that was closed", Some(7), vec![(7, CLOSED)], None),
    ] {
        let mut stage = MessengerFixture::quiet().await;
        stage.topic = topic;
        stage.api.with(|room| room.shut.extend(shut));
        stage.begin();
        let long = json!({ "text": "x".repeat(6_000) });
        stage.ask_with("light.bedroom", long).await;
        let card = stage.api.card("light.bedroom").await;
        assert_eq!(card.topic, want, "{case}");
        stage.api.tap(&card, &card.button("Show all"), ANA);
        assert_eq!(stage.api.card("end of part 2").await.topic, want, "{case}");
        let card = stage.api.card("was sent below").await;
        stage.api.tap(&card, &card.button("Deny"), ANA);
        stage.settled().await;
    }
    let mut stage = MessengerFixture::new().await;
    stage.api.with(|room| room.shut.insert(0, CLOSED));
    stage.ask("light.bedroom").await;
    let report = stage.telegram.as_ref().unwrap().health_probe();
    let reason = stage.api.until("a refusal", |_| report().failed.map(|(_, why)| why)).await;
    assert!(reason.contains("messenger.telegram.message_thread_id names another"), "{reason}");
    // It is tried again, and comes as soon as the topic is open again.
    stage.api.with(|room| room.shut.clear());
    stage.api.card("light.bedroom").await;
}

#[tokio::test(start_paused = true)]
async fn a_card_whose_sending_was_not_answered_is_sent_again_and_both_end() {
    let mut stage = MessengerFixture::new().await;
    stage.api.fail("sendMessage", [ApiFault::Lost]);
    stage.ask("light.bedroom").await;
    let cards = stage.api.until("two cards", |room| (room.cards.len() == 2).then(|| room.cards.clone())).await;
    let lost = cards.values().next().unwrap();
    stage.api.tap(lost, &lost.button("Allow"), ANA);
    let both = |room: &super::fake_api::FakeChat| {
        room.cards.values().all(|card| card.text.contains("Approved by") && card.keys.is_empty()).then_some(())
    };
    stage.api.until("both end", both).await;
    stage.settled().await;
    assert_eq!(stage.served(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_edit_is_repeated_and_one_that_changes_nothing_is_done() {
    for (case, fault) in [
        ("down", refused(500, "Internal", Value::Null)),
        ("no answer", ApiFault::Hangs),
        ("not answered", ApiFault::Lost),
        ("refused", refused(400, "Bad Request: refused", Value::Null)),
        ("429", refused(429, "slow", json!({ "retry_after": 3 }))),
    ] {
        let mut stage = MessengerFixture::new().await;
        stage.ask("light.bedroom").await;
        let card = stage.api.card("light.bedroom").await;
        stage.api.fail("editMessageText", [fault]);
        stage.api.tap(&card, &card.button("Deny"), ANA);
        stage.settled().await;
        assert!(stage.api.card("light.bedroom").await.text.contains("Denied by @u111"), "{case}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_card_that_was_deleted_is_not_edited_for_ever() {
    let mut stage = MessengerFixture::new().await;
    stage.ask("light.bedroom").await;
    let card = stage.api.card("light.bedroom").await;
    let tap = stage.api.tap(&card, &card.button("Deny"), ANA);
    stage.api.with(|room| room.cards.clear());
    assert_eq!(stage.api.answered(&tap).await, "");
    stage.settled().await;
    assert_eq!(stage.api.calls("editMessageText").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_group_that_moved_is_followed() {
    let mut stage = MessengerFixture::new().await;
    let to = CHAT - 7;
    stage.api.fail("sendMessage", [refused(400, "upgraded", json!({ "migrate_to_chat_id": to }))]);
    stage.ask("light.bedroom").await;
    let card = stage.api.card("light.bedroom").await;
    assert_eq!(card.chat, to);
    stage.api.tap(&card, &card.button("Allow"), ANA);
    stage.api.card("Approved by @u111").await;
    stage.settled().await;
}

#[tokio::test(start_paused = true)]
async fn polling_goes_on_behind_whatever_goes_wrong() {
    let mut stage = MessengerFixture::quiet().await;
    let down = || refused(500, "Internal", Value::Null);
    stage.api.fail("getMe", [down(), ApiFault::Hangs]);
    stage.api.fail("deleteWebhook", [refused(429, "slow", json!({ "retry_after": 2 }))]);
    stage.api.fail("getUpdates", [refused(409, "Conflict", Value::Null), ApiFault::Hangs, down()]);
    stage.begin();
    stage.ask("light.bedroom").await;
    let card = stage.api.card("light.bedroom").await;
    stage.api.tap(&card, &card.button("Allow"), ANA);
    stage.api.card("Approved by @u111").await;
    stage.settled().await;
    let report = stage.telegram.as_ref().unwrap().report();
    assert!(report.is_well(), "{report:?}");
}

#[tokio::test(start_paused = true)]
async fn a_token_that_is_refused_is_not_tried_again() {
    let mut stage = MessengerFixture::quiet().await;
    let bad = || refused(401, "Unauthorized", Value::Null);
    stage.api.fail("getMe", [bad()]);
    stage.api.fail("sendMessage", [bad()]);
    stage.begin();
    stage.ask("light.bedroom").await;
    stage.api.until("both calls", |room| (room.log.len() == 2).then_some(())).await;
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert_eq!((stage.api.calls("getMe").len(), stage.api.calls("sendMessage").len()), (1, 1));
    let report = stage.telegram.as_ref().unwrap().report();
    assert!(!report.is_well() && !report.failed.clone().unwrap().1.contains("secret"), "{report:?}");
}

#[tokio::test(start_paused = true)]
async fn while_telegram_is_down_gates_are_opened_and_answered_elsewhere() {
    let mut stage = MessengerFixture::new().await;
    stage.api.fail("sendMessage", std::iter::repeat_n(ApiFault::Hangs, 100));
    stage.ask("light.bedroom").await;
    stage.answer_elsewhere(countersign_core::gate::GateReply::Deny { reason: None }, "console").await;
    stage.telegram.take().unwrap().stop(Duration::from_secs(2)).await;
    stage.settled().await;
    stage.api.with(|room| assert!(room.cards.is_empty()));
}

#[tokio::test(start_paused = true)]
async fn many_cards_go_out_at_the_rate_that_a_group_takes() {
    let mut stage = MessengerFixture::new().await;
    for at in 0..25 {
        stage.ask(&format!("light.n{at}")).await;
    }
    stage.api.until("all cards", |room| (room.cards.len() == 25).then_some(())).await;
    let times = stage.api.calls("sendMessage");
    assert_eq!(times.len(), 25);
    assert!(times[9] < 100 && (1_000..1_100).contains(&times[10]), "{times:?}");
    assert!((10_000..10_100).contains(&times[19]) && (60_000..60_100).contains(&times[20]), "{times:?}");
}

#[tokio::test(start_paused = true)]
async fn an_end_brings_cards_up_to_date_and_sends_no_new_ones() {
    let mut stage = MessengerFixture::new().await;
    stage.ask("light.first").await;
    let first = stage.api.card("light.first").await;
    stage.api.fail("sendMessage", [refused(400, "Bad Request: refused", Value::Null)]);
    stage.ask("light.second").await;
    let sends =
        |room: &super::fake_api::FakeChat| room.log.iter().filter(|(_, method, _)| *method == "sendMessage").count();
    stage.api.until("a send that is refused", |room| (sends(room) == 2).then_some(())).await;
    let denied = countersign_core::gate::GateReply::Deny { reason: None };
    stage.answer_elsewhere(denied, super::super::SHUTDOWN).await;
    stage.telegram.take().unwrap().stop(Duration::from_secs(4)).await;
    let card = stage.api.card("light.first").await;
    assert!(card.text.starts_with("\u{274c} Gateway shutting down\n") && card.keys.is_empty(), "{}", card.text);
    assert_eq!((card.id, stage.api.calls("sendMessage").len()), (first.id, 2), "a new card at the end");
    stage.restart().await;
    stage.api.card("light.second").await;
    stage.api.with(|room| assert_eq!(room.cards.len(), 2));
}
