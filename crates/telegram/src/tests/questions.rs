//! Questions and plans: options as buttons, words as replies.

use countersign_core::gate::GateResolution;
use serde_json::{Value, json};

use super::fixture::{ANA, BEN, MessengerFixture, STRANGER};

fn ask(multi: bool) -> Value {
    let options = json!([{"label": "Left"}, {"label": "Right\u{202e}"}, {"label": "Straight on"}]);
    json!({"questions": [{"id": "q", "question": "Which way?", "options": options, "multi": multi, "recommended": 2}]})
}

/// Returns how the gate of the last run was resolved, and the output of its call.
async fn resolved(stage: &MessengerFixture) -> Option<GateResolution> {
    stage.settled().await;
    stage.gates().await.last().and_then(|gate| gate.resolution().cloned())
}

#[tokio::test(start_paused = true)]
async fn a_question_is_answered_by_one_of_its_buttons() {
    let stage = MessengerFixture::new().await;
    stage.run("ask", ask(false)).await;
    let card = stage.api.card("Which way?").await;
    assert!(
        card.text
            .starts_with("\u{2753} Question\nWhich way?\n1. Left\n2. Right\\u{202e}\n3. Straight on (recommended)")
    );
    assert_eq!(card.labels(), ["Left", "2.", "Straight on", "Do not answer"]);
    stage.api.tap(&card, &card.button("Left"), STRANGER);
    let tap = stage.api.tap(&card, &card.button("2."), ANA);
    assert_eq!(stage.api.answered(&tap).await, "");
    let late = stage.api.tap(&card, &card.button("Left"), BEN);
    assert_eq!(stage.api.answered(&late).await, "Already resolved");
    let card = stage.api.card("Answered by @u111").await;
    assert!(card.text.starts_with("\u{2705} Answered\nWhich way?") && card.text.contains(": Right\\u{202e}"));
    assert!(card.labels().is_empty());
    assert_eq!(resolved(&stage).await, Some(GateResolution::Answered));
}

#[tokio::test(start_paused = true)]
async fn words_and_numbers_are_replies() {
    for (multi, reply, want) in [
        (false, "over the hill", "over the hill"),
        (false, "1", "1"),
        (true, "1, 3", "Left + Straight on"),
        (true, "1, 4", "1, 4"),
    ] {
        let stage = MessengerFixture::new().await;
        stage.run("ask", ask(multi)).await;
        let card = stage.api.card("Which way?").await;
        stage.api.reply(&card, reply, ANA);
        let card = stage.api.card("Answered by").await;
        assert!(card.text.ends_with(&format!(": {want}")), "{reply}: {}", card.text);
    }
}

#[tokio::test(start_paused = true)]
async fn nobody_has_to_answer_a_question() {
    let stage = MessengerFixture::new().await;
    stage.run("ask", ask(false)).await;
    let card = stage.api.card("Which way?").await;
    let tap = stage.api.tap(&card, &card.button("Do not answer"), ANA);
    assert_eq!(stage.api.answered(&tap).await, "");
    assert_eq!(resolved(&stage).await, Some(GateResolution::Declined));
}
