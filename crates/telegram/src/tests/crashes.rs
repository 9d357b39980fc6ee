//! The process dies at every call of the Bot API, before it is done and after it, and another continues.

use super::fixture::{ANA, MessengerFixture};

/// Plays a person who sees the first card: one tap, whatever happens to the gateway.
async fn decided(stage: &mut MessengerFixture, dies: Option<(usize, bool)>, button: &str) -> usize {
    stage.api.with(|room| room.dies = dies);
    stage.begin();
    stage.ask("light.bedroom").await;
    let mut tap = None;
    let mut restarts = 0;
    loop {
        let seen = stage.api.until("a card, a death or the end", |room| {
            if room.dead {
                return Some(None);
            }
            let card = room.cards.values().next()?;
            let is_tapped = tap.is_some();
            let is_over = room.cards.values().all(|card| card.keys.is_empty());
            let is_answered = tap.as_ref().is_some_and(|tap: &String| room.answers.contains_key(tap));
            (!is_tapped || is_over && is_answered).then(|| Some(card.clone()))
        });
        match seen.await {
            None => {
                restarts += 1;
                stage.restart().await;
            }
            Some(card) if tap.is_none() => tap = Some(stage.api.tap(&card, &card.button(button), ANA)),
            Some(_) => break,
        }
    }
    // The record may still lack that the card is up to date.
    if restarts == 0 && dies.is_some() {
        stage.restart().await;
    }
    stage.settled().await;
    restarts
}

#[tokio::test(start_paused = true)]
async fn between_any_two_steps_a_restart_loses_nothing_and_repeats_nothing() {
    for (button, says, runs) in [("Allow", "\u{2705} Approved", 1), ("Deny", "\u{274c} Denied", 0)] {
        for is_done in [false, true] {
            let mut deaths = 0;
            // getMe, deleteWebhook, sendMessage, answerCallbackQuery, editMessageText.
            for at in 1..=5 {
                let case = format!("{button}, dies at call {at}, {}", if is_done { "after it" } else { "before it" });
                let mut stage = MessengerFixture::quiet().await;
                deaths += decided(&mut stage, Some((at, is_done)), button).await;
                let cards = stage.api.with(|room| room.cards.clone());
                for card in cards.values() {
                    assert!(card.text.starts_with(says) && card.keys.is_empty(), "{case}: {}", card.text);
                }
                let unknown = cards.values().any(|card| card.text.contains("Outcome unknown"));
                assert!(stage.served() <= 1 && (unknown || stage.served() == runs), "{case}: {}", stage.served());
                let most = if is_done { 2 } else { 1 };
                assert!(cards.len() <= most, "{case}: {} cards", cards.len());
            }
            assert_eq!(deaths, 5, "{button}: every call was one to die at");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_card_of_an_earlier_process_can_be_answered_and_shows_the_outcome() {
    let mut stage = MessengerFixture::new().await;
    stage.ask("light.first").await;
    stage.ask("light.second").await;
    let (first, second) = (stage.api.card("light.first").await, stage.api.card("light.second").await);
    stage.api.tap(&first, &first.button("Deny"), ANA);
    stage.api.card("Denied by @u111").await;
    stage.restart().await;
    let late = stage.api.tap(&first, &first.button("Allow"), ANA);
    assert_eq!(stage.api.answered(&late).await, "Already resolved");
    let tap = stage.api.tap(&second, &second.button("Allow"), ANA);
    assert_eq!(stage.api.answered(&tap).await, "");
    stage.settled().await;
    stage.api.with(|room| assert_eq!(room.cards.len(), 2, "a card that was recorded is not sent again"));
    assert_eq!(stage.served(), 1);
}

#[tokio::test(start_paused = true)]
async fn what_ended_while_nobody_could_edit_is_edited_by_the_next() {
    let mut stage = MessengerFixture::new().await;
    stage.ask("light.bedroom").await;
    let card = stage.api.card("light.bedroom").await;
    while stage.gates().await[0].shown_surfaces().is_empty() {
        tokio::task::yield_now().await;
    }
    stage.telegram = None;
    let denied = countersign_core::gate::GateReply::Deny { reason: Some("quiet hours".into()) };
    stage.answer_elsewhere(denied, "console:ana").await;
    assert_eq!(stage.api.card("light.bedroom").await, card);
    stage.restart().await;
    let ended = stage.api.card("Denied by console:ana").await;
    assert!(
        ended.text.contains("ha_call_service(light.turn_on, light.bedroom)") && ended.text.ends_with("quiet hours")
    );
    stage.settled().await;
    let edits = ended.edits;
    stage.restart().await;
    let probe = stage.api.tap(&card, "probe", ANA);
    stage.api.answered(&probe).await;
    assert_eq!((edits, stage.api.calls("editMessageText").len()), (1, 1), "what is recorded is not edited again");
}
