//! Result of a tap or a reply, and the replies to everyone.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use countersign_core::{
    call,
    engine::Command,
    gate::{ApprovalScope, GateReply, GateResolution},
};
use countersign_runtime::{ServiceOutcome, store::DiskState};
use serde_json::json;
use tokio::sync::Notify;

use super::{
    fake_api::{ApiFault, FakeCard},
    fixture::{ANA, BEN, CHAT, MessengerFixture, STRANGER, session},
};

async fn shown() -> (MessengerFixture, FakeCard) {
    let mut stage = MessengerFixture::new().await;
    stage.ask("light.bedroom").await;
    let card = stage.api.card("light.bedroom").await;
    (stage, card)
}

#[tokio::test(start_paused = true)]
async fn a_card_is_sent_and_a_tap_runs_what_it_shows_once() {
    let mut stage = MessengerFixture::new().await;
    stage.ask_with("light.bedroom", json!({ "brightness": 128, "mode": "light" })).await;
    let card = stage.api.card("light.bedroom").await;
    assert_eq!(card.chat, CHAT);
    let what = "ha_call_service(light.turn_on, light.bedroom)\n  brightness: 128\n  mode: light (not declared)";
    assert!(card.text.starts_with(&format!("\u{1f6a8} ha_call_service\n{what}\n\nAgent: kitchen-pi\nAsked ")));
    assert_eq!(
        card.labels(),
        ["Allow", "Deny", "Allow for this session", "Allow always, exactly this", "Refuse with a reason…"]
    );
    let first = stage.api.tap(&card, &card.button("Allow"), ANA);
    let second = stage.api.tap(&card, &card.button("Deny"), BEN);
    assert_eq!(stage.api.answered(&first).await, "");
    assert_eq!(stage.api.answered(&second).await, "Already resolved");
    let card = stage.api.card("Approved").await;
    assert!(card.text.starts_with(&format!("\u{2705} Approved\n{what}\n\nApproved by @u111 at ")), "{}", card.text);
    stage.settled().await;
    assert_eq!((stage.served(), card.labels(), card.edits), (1, vec![], 1));
    stage.api.with(|room| assert_eq!(room.bad, Vec::<serde_json::Value>::new()));
}

#[tokio::test(start_paused = true)]
async fn a_user_who_may_not_answer_gets_no_reply() {
    let (stage, card) = shown().await;
    let allow = card.button("Allow");
    let stranger = stage.api.tap(&card, &allow, STRANGER);
    let elsewhere = stage.api.tap(&FakeCard { chat: CHAT - 1, ..card.clone() }, &allow, ANA);
    stage.api.reply(&card, "no", STRANGER);
    stage.api.reply(&FakeCard { chat: CHAT - 1, ..card.clone() }, "no", ANA);
    // After them in the line: once this is answered they were looked at.
    let forged = stage.api.tap(&card, "forged", ANA);
    assert_eq!(stage.api.answered(&forged).await, "This button has expired");
    stage.api.with(|room| assert!(!room.answers.contains_key(&stranger) && !room.answers.contains_key(&elsewhere)));
    assert!(stage.gates().await[0].is_pending());
}

#[tokio::test(start_paused = true)]
async fn a_button_that_means_nothing_has_expired() {
    let (stage, card) = shown().await;
    let from = json!({ "id": ANA });
    let data = card.button("Allow");
    for query in [
        json!({ "from": from, "data": data }),
        json!({ "from": from, "message": { "message_id": card.id, "chat": { "id": CHAT } } }),
        json!({ "from": from, "data": format!("{data}A"), "message": { "message_id": 1, "chat": { "id": CHAT } } }),
    ] {
        let tap = stage.api.tap_raw(query.clone());
        assert_eq!(stage.api.answered(&tap).await, "This button has expired", "{query}");
    }
    assert!(stage.gates().await[0].is_pending());
}

#[tokio::test(start_paused = true)]
async fn each_button_does_what_it_says() {
    for (button, want, says) in [
        ("Allow", GateResolution::Allowed { scope: ApprovalScope::Once }, "Approved by @u112 at"),
        (
            "Allow for this session",
            GateResolution::Allowed { scope: ApprovalScope::Session },
            "Approved for the session by @u112",
        ),
        ("Allow always", GateResolution::Allowed { scope: ApprovalScope::Always }, "Approved always by @u112 at"),
        ("Deny", GateResolution::Denied, "Denied by @u112 at"),
    ] {
        let (stage, card) = shown().await;
        stage.api.tap(&card, &card.button(button), BEN);
        let card = stage.api.card(says).await;
        stage.settled().await;
        let gates = stage.gates().await;
        assert_eq!(gates[0].resolution(), Some(&want), "{button}");
        assert!(card.keys.is_empty() && card.text.contains("light.bedroom"), "{button}");
        assert_eq!(stage.served(), usize::from(want != GateResolution::Denied), "{button}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_reply_to_the_card_denies_with_its_reason() {
    let (stage, card) = shown().await;
    let tap = stage.api.tap(&card, &card.button("Refuse"), ANA);
    assert!(stage.api.answered(&tap).await.starts_with("Reply to the card"));
    assert!(stage.gates().await[0].is_pending());
    stage.api.reply(&FakeCard { id: card.id + 100, ..card.clone() }, "not this one", ANA);
    stage.api.reply(&card, "the baby\nsleeps", ANA);
    let ended = stage.api.card("Denied by @u111").await;
    assert!(ended.text.ends_with(": the baby\\u{a}sleeps"), "{}", ended.text);
    let late = stage.api.tap(&card, &card.button("Refuse"), ANA);
    assert_eq!(stage.api.answered(&late).await, "Already resolved");
    assert_eq!(stage.served(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_tap_that_is_delivered_twice_is_the_same_answer() {
    let (mut stage, card) = shown().await;
    let tap = stage.api.tap(&card, &card.button("Deny"), ANA);
    stage.api.answered(&tap).await;
    stage.api.again(&tap);
    let next = stage.api.tap(&card, &card.button("Allow"), ANA);
    assert_eq!(stage.api.answered(&next).await, "Already resolved");
    stage.restart().await;
    stage.api.again(&tap);
    let twice = |room: &super::fake_api::FakeChat| room.answers.get(&tap).filter(|answers| answers.len() > 2).cloned();
    assert_eq!(stage.api.until("the same answer", twice).await, ["", "", ""]);
}

#[tokio::test(start_paused = true)]
async fn a_tap_that_comes_before_the_card_was_confirmed_counts() {
    let mut stage = MessengerFixture::new().await;
    let held = Arc::new(Notify::new());
    stage.api.fail("sendMessage", [ApiFault::Held(Arc::clone(&held))]);
    stage.ask("light.early").await;
    let card = stage.api.card("light.early").await;
    let tap = stage.api.tap(&card, &card.button("Allow"), ANA);
    assert_eq!(stage.api.answered(&tap).await, "");
    assert!(!stage.api.card("light.early").await.keys.is_empty());
    held.notify_one();
    stage.api.card("Approved by @u111").await;
    stage.settled().await;
    assert_eq!((stage.served(), stage.gates().await[0].shown_surfaces().len()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_card_that_nobody_answers_expires_and_says_so() {
    let (stage, card) = shown().await;
    let ended = stage.api.card("\u{23f0} Expired").await;
    assert!(ended.text.contains("light.bedroom") && ended.keys.is_empty(), "{}", ended.text);
    let tap = stage.api.tap(&card, &card.button("Allow"), ANA);
    assert_eq!(stage.api.answered(&tap).await, "This button has expired");
    stage.settled().await;
    assert_eq!(stage.served(), 0);
}

#[tokio::test(start_paused = true)]
async fn an_answer_from_elsewhere_is_shown() {
    for (answer, by, says) in [
        (GateReply::Allow(ApprovalScope::Once), "console:ana", "Approved by console:ana at"),
        (GateReply::Deny { reason: Some("no".into()) }, "console:ana", "Denied by console:ana at"),
        (GateReply::Deny { reason: None }, super::super::SHUTDOWN, "Gateway shutting down"),
    ] {
        let (stage, _) = shown().await;
        stage.answer_elsewhere(answer, by).await;
        stage.api.card(says).await;
        stage.settled().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_card_says_what_became_of_what_was_allowed() {
    for (case, present, outcome, want) in [
        ("done", true, ServiceOutcome::Done("[]".into()), None),
        ("away", false, ServiceOutcome::Done("[]".into()), Some("Executed while the agent was away.")),
        ("failed", true, ServiceOutcome::Failed("API error 500".into()), Some("The service answered with an error.")),
        ("not begun", true, ServiceOutcome::NotBegun("no route".into()), Some("It was not run.")),
        ("in doubt", true, ServiceOutcome::InDoubt("cut".into()), Some("Outcome unknown")),
    ] {
        let mut stage = MessengerFixture::new().await;
        *stage.house.says.lock() = outcome;
        stage.present.store(present, Ordering::SeqCst);
        stage.ask("light.bedroom").await;
        let card = stage.api.card("light.bedroom").await;
        stage.api.tap(&card, &card.button("Allow"), ANA);
        stage.api.card("Approved by @u111").await;
        stage.settled().await;
        let text = stage.api.card("Approved by @u111").await.text;
        assert_eq!(text.lines().last().unwrap().starts_with("Approved by"), want.is_none(), "{case}: {text}");
        assert!(text.contains(want.unwrap_or("Approved")), "{case}: {text}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_card_says_who_allowed_it_while_the_service_still_works() {
    for (outcome, edits) in
        [(ServiceOutcome::Done("[]".into()), 1), (ServiceOutcome::Failed("API error 500".into()), 2)]
    {
        let (stage, card) = shown().await;
        *stage.house.says.lock() = outcome;
        *stage.house.takes.lock() = Duration::from_secs(20);
        stage.api.tap(&card, &card.button("Allow"), ANA);
        stage.api.card("Approved by @u111").await;
        assert!(stage.gates().await[0].owes_update());
        stage.settled().await;
        assert_eq!(stage.api.calls("editMessageText").len(), edits);
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_too_long_is_sent_whole_before_it_can_be_allowed() {
    let mut stage = MessengerFixture::new().await;
    stage.ask_with("light.long", json!({ "note": "x".repeat(9_000) + "END" })).await;
    let card = stage.api.card("light.long").await;
    assert_eq!(card.labels(), ["Show all", "Deny", "Refuse with a reason…"]);
    assert!(card.text.contains("not shown whole: 9") && card.text.contains("END"), "{}", card.text);
    let tap = stage.api.tap(&card, &card.button("Show all"), ANA);
    assert_eq!(stage.api.answered(&tap).await, "The whole text follows");
    let whole = stage.api.until("buttons", |room| {
        let card = room.cards.get(&card.id)?;
        card.labels().contains(&"Allow").then(|| card.clone())
    });
    let whole = whole.await;
    let parts: Vec<String> = stage.api.with(|room| {
        room.cards.values().filter(|part| part.to == Some(card.id)).map(|part| part.text.clone()).collect()
    });
    assert_eq!(parts.len(), 3);
    let xs: usize = parts.iter().map(|part| part.matches('x').count()).sum();
    assert!(xs == 9_000 && parts[2].contains("END\n— end of part 3"), "{xs}");
    stage.api.tap(&whole, &whole.button("Allow"), ANA);
    stage.api.card("Approved by @u111").await;
    stage.settled().await;
    stage.api.with(|room| assert_eq!((room.bad.len(), stage.house.served.load(Ordering::SeqCst)), (0, 1)));
}

#[tokio::test(start_paused = true)]
async fn what_is_far_too_long_can_only_be_denied() {
    let mut stage = MessengerFixture::new().await;
    stage.ask_with("light.huge", json!({ "note": "x".repeat(80_000) })).await;
    let card = stage.api.card("light.huge").await;
    assert_eq!(card.labels(), ["Deny", "Refuse with a reason…"]);
}

#[tokio::test(start_paused = true)]
async fn a_tap_that_cannot_be_recorded_decides_nothing_and_says_so() {
    let (stage, card) = shown().await;
    // The card has to be in the record before the disk is full.
    while stage.gates().await[0].shown_surfaces().is_empty() {
        tokio::task::yield_now().await;
    }
    stage.log.set_disk(DiskState::Full);
    let tap = stage.api.tap(&card, &card.button("Allow"), ANA);
    assert!(stage.api.answered(&tap).await.starts_with("This could not be recorded"));
    assert_eq!(stage.served(), 0);
    stage.log.set_disk(DiskState::Works);
    let tap = stage.api.tap(&card, &card.button("Deny"), BEN);
    let mut answer = stage.api.answered(&tap).await;
    while answer.starts_with("This could not") {
        tokio::time::advance(std::time::Duration::from_secs(1)).await;
        let tap = stage.api.tap(&card, &card.button("Deny"), BEN);
        answer = stage.api.answered(&tap).await;
    }
    assert_eq!((answer.as_str(), stage.served()), ("", 0));
}

#[tokio::test(start_paused = true)]
async fn a_reply_that_cannot_be_recorded_counts_as_soon_as_it_can() {
    let (stage, card) = shown().await;
    while stage.gates().await[0].shown_surfaces().is_empty() {
        tokio::task::yield_now().await;
    }
    stage.log.set_disk(DiskState::Full);
    stage.api.reply(&card, "not now", ANA);
    // After it in the line, and not looked at before it is done.
    let tap = stage.api.tap(&card, &card.button("Allow"), ANA);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(stage.gates().await[0].is_pending());
    stage.log.set_disk(DiskState::Works);
    assert_eq!(stage.api.answered(&tap).await, "Already resolved");
    assert!(stage.api.card("Denied by @u111").await.text.ends_with(": not now"));
}

#[tokio::test(start_paused = true)]
async fn a_grant_ends_the_cards_that_it_covers() {
    let mut stage = MessengerFixture::new().await;
    stage.ask("light.same").await;
    let first = stage.api.card("light.same").await;
    stage.ask("light.same").await;
    let second =
        stage.api.until("two cards", |room| room.cards.values().find(|card| card.id != first.id).cloned()).await;
    stage.api.tap(&first, &first.button("Allow always"), ANA);
    let covered = stage.api.until("covered", |room| {
        room.cards.get(&second.id)?.text.contains("Covered by an earlier approval").then_some(())
    });
    covered.await;
    stage.settled().await;
    assert_eq!(stage.served(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_result_that_was_received_was_not_missed() {
    let mut stage = MessengerFixture::new().await;
    let call = stage.ask("light.bedroom").await;
    let card = stage.api.card("light.bedroom").await;
    stage.api.tap(&card, &card.button("Allow"), ANA);
    stage.settled().await;
    let received = call::Command::Received { session: session(), calls: vec![call] };
    stage.source.send_command(Command::Call(received)).await.unwrap();
    stage.present.store(false, Ordering::SeqCst);
    stage.restart().await;
    let probe = stage.api.tap(&card, "probe", ANA);
    stage.api.answered(&probe).await;
    assert!(!stage.api.card("Approved").await.text.contains("away"));
}
