//! Cards of what several people, or particular ones, have to allow; rules that are proposed; agents that are held.

use std::time::Duration;

use countersign_core::{
    engine::ActiveRules,
    gate::{ApprovalScope, ApprovalStep, GateResolution, IdentityMap, OnExpiry},
    id::PrincipalId,
    policy::{self, GrantCoverage, RuleLayer, RuleSource},
};
use serde_json::json;

use super::fixture::{ANA, BEN, MessengerFixture, rules};

fn asking(steps: Vec<ApprovalStep>) -> ActiveRules {
    let mut read: policy::RuleSet =
        serde_json::from_value(json!({ "rules": [{ "pattern": "*", "action": "ask" }] })).unwrap();
    read.rules[0].steps = steps;
    let source = RuleSource { name: "permissions.yaml".to_owned(), layer: RuleLayer::Main, rules: read };
    let people = [("ana", ANA), ("ben", BEN)];
    let people = people.map(|(person, id)| (person.to_owned(), [PrincipalId::new(format!("telegram:{id}"))]));
    ActiveRules { compiled: policy::compile_rules(vec![source]).unwrap(), people: IdentityMap::new(people), ..rules() }
}

fn two(within: u64, on_expiry: OnExpiry) -> ApprovalStep {
    let from = ["ana", "ben"].map(str::to_owned);
    ApprovalStep {
        approvals: 2,
        from: Some(std::sync::Arc::new(from.into())),
        within: Some(Duration::from_secs(within)),
        on_expiry,
    }
}

#[tokio::test(start_paused = true)]
async fn a_card_says_who_has_allowed_and_who_has_to() {
    let mut stage = MessengerFixture::ruled(asking(vec![two(900, OnExpiry::Deny)])).await;
    stage.ask("light.bedroom").await;
    let card = stage.api.card("Allowed by 0 of 2, from ana, ben").await;
    assert_eq!(card.labels(), ["Allow", "Deny", "Refuse with a reason…"], "nothing reaches further than this once");
    let tap = stage.api.tap(&card, &card.button("Allow"), ANA);
    assert_eq!(stage.api.answered(&tap).await, "Counted. More people have to allow it.");
    let card = stage.api.card("Allowed by 1 of 2 (ana), from ana, ben").await;
    assert_eq!((card.labels().len(), stage.served()), (3, 0));
    stage.api.tap(&card, &card.button("Allow"), BEN);
    stage.api.card("Approved by ben at").await;
    stage.settled().await;
    assert_eq!(stage.served(), 1);
}

#[tokio::test(start_paused = true)]
async fn other_approvers_get_a_card_of_their_own() {
    let ben = ApprovalStep { from: Some(std::sync::Arc::new(["ben".to_owned()].into())), ..ApprovalStep::default() };
    let mut stage = MessengerFixture::ruled(asking(vec![two(60, OnExpiry::Next), ben])).await;
    stage.ask("light.bedroom").await;
    let first = stage.api.card("step 1 of 2").await;
    let second = stage.api.card("step 2 of 2").await;
    assert_ne!(first.id, second.id);
    let first = stage.api.card("Asked again below").await;
    assert_eq!(first.labels(), Vec::<&str>::new());
    let tap = stage.api.tap(&second, &second.button("Allow"), ANA);
    assert!(stage.api.answered(&tap).await.contains("you are not among them"));
    stage.api.tap(&second, &second.button("Allow"), BEN);
    stage.settled().await;
    assert_eq!(stage.served(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_card_is_brought_up_to_date_after_a_restart() {
    let mut stage = MessengerFixture::ruled(asking(vec![two(86_400, OnExpiry::Deny)])).await;
    stage.ask("light.bedroom").await;
    let card = stage.api.card("Allowed by 0 of 2").await;
    stage.telegram = None;
    stage
        .answer_elsewhere(countersign_core::gate::GateReply::Allow(ApprovalScope::Once), &format!("telegram:{ANA}"))
        .await;
    stage.restart().await;
    let after = stage.api.card("Allowed by 1 of 2 (ana)").await;
    assert_eq!((after.id, after.labels().len()), (card.id, 3));
}

#[tokio::test(start_paused = true)]
async fn a_proposed_rule_is_allowed_for_good() {
    let mut stage = MessengerFixture::new().await;
    stage.ask("light.bedroom").await;
    let card = stage.api.card("light.bedroom").await;
    stage.api.tap(&card, &card.button("Always: ha_call_service(light.turn_on, *)"), ANA);
    stage.settled().await;
    stage.ask("light.kitchen").await;
    stage.settled().await;
    let read = |engine: &countersign_core::engine::Engine| {
        engine.state().policy().grants().iter().map(|grant| grant.covers.clone()).collect::<Vec<_>>()
    };
    let covers = stage.source.read_state(read).await.unwrap().0;
    assert_eq!(covers, [GrantCoverage::Pattern("ha_call_service(light.turn_on, *)".to_owned())]);
    assert_eq!(stage.served(), 2);
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_is_denied_again_and_again_gets_one_card() {
    let mut stage = MessengerFixture::new().await;
    for entity in ["light.a", "light.b", "light.c"] {
        stage.ask(entity).await;
        let card = stage.api.card(entity).await;
        stage.api.tap(&card, &card.button("Deny"), ANA);
        stage.settled_but(1).await;
    }
    let card = stage.api.card("May it go on?").await;
    assert_eq!(card.labels(), ["Allow", "Deny", "Refuse with a reason…"]);
    stage.api.tap(&card, &card.button("Allow"), BEN);
    stage.settled().await;
    let allowed = stage
        .gates()
        .await
        .iter()
        .filter(|gate| gate.resolution() == Some(&GateResolution::Allowed { scope: ApprovalScope::Once }))
        .count();
    assert_eq!((allowed, stage.served()), (1, 0));
}
