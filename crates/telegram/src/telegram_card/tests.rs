use countersign_core::{
    call,
    digest::{Digest, canonical_json},
    gate::{ApprovalScope, Fallback, Gate, GateContent, GateResolution, Kind},
    id::{GateId, PrincipalId, SessionId},
    time::Millis,
};
use serde_json::{Value, json};

use super::{super::refs::ButtonCodec, CardContent, CardEnding, CardOutcome, CardStage, LIMIT, utf16_units};

fn time(at: Millis) -> String {
    format!("{:02}:{:02}", at.0 / 3_600_000, at.0 / 60_000 % 60)
}

fn gate(scopes: &[ApprovalScope]) -> Gate {
    let form = json!({
        "id": "0190a5b2-c3d4-4e5f-8a6b-7c8d9e0f1a2b",
        "session": "agent:kitchen",
        "kind": Kind::Approval,
        "ordinal": 1,
        "stage": "plan",
        "run": null,
        "call": null,
        "subject": Digest::hash_bytes(b""),
        "scopes": scopes,
        "opened_at": 0,
        "deadline": 900_000,
        "fallback": Fallback::Deny,
        "content": 1,
        "phase": "pending",
    });
    serde_json::from_value(form).unwrap()
}

const ALL: [ApprovalScope; 3] = [ApprovalScope::Once, ApprovalScope::Session, ApprovalScope::Always];

fn card_request(tool: &str, signature: &str, arguments: Value, named: Option<&[&str]>) -> CardContent {
    let Value::Object(arguments) = arguments else { panic!("an object") };
    let content = GateContent::Approval {
        tool: tool.into(),
        arguments: arguments.clone(),
        signature: signature.to_owned(),
        intent: None,
        why: "by rule \"ha_*\" (permissions.yaml:3)".to_owned(),
        pins: None,
    };
    let call = named.map(|named| call::CallDetails {
        tool: tool.into(),
        tool_call_id: "1".into(),
        arguments,
        intent: None,
        signature: signature.to_owned(),
        named: named.iter().map(|name| (*name).to_owned()).collect(),
        class: None,
        shell: None,
        problem: None,
        pins: None,
        leads_to: None,
        request: Some(Box::new(call::RequestContent {
            session: SessionId::new("agent:kitchen#1"),
            principal: PrincipalId::new("kitchen-pi"),
            door: None,
            service: None,
            for_principals: Vec::new(),
            further_signatures: Vec::new(),
            undeclared: vec!["extra".to_owned()],
            paths: Vec::new(),
            cwd: String::new(),
        })),
    });
    CardContent::new(&gate(&ALL), &content.into(), call.as_ref(), Vec::new(), None)
}

#[test]
fn a_card_shows_the_signature_and_whatever_is_not_in_it() {
    let foot = "\n\nAgent: kitchen-pi\nAsked by rule \"ha_*\" (permissions.yaml:3)\n\
                For the session or always: exactly this call, by this agent.\nWaits until 00:15 (14 min)";
    for (case, signature, arguments, named, want) in [
        ("all in it", "t(light, on)", json!({"domain": "light", "service": "on"}), vec!["domain", "service"], ""),
        ("one more", "t(light)", json!({"domain": "light", "level": 5}), vec!["domain"], "\n  level: 5"),
        ("same text", "t(light)", json!({"domain": "light", "mode": "light"}), vec!["domain"], "\n  mode: light"),
        ("undeclared", "t(a)", json!({"extra": "a"}), vec!["extra"], "\n  extra: a (not declared)"),
        ("no template", "t(a, b)", json!({"x": "a", "y": "b"}), vec![], ""),
        ("empty", "t()", json!({"x": ""}), vec![], "\n  x: "),
        ("other form", "t(True)", json!({"x": true}), vec!["x"], "\n  x: true"),
        ("nested", "t(a)", json!({"d": {"b": [1, true], "a": null}}), vec!["x"], "\n  d: {\"a\":null,\"b\":[1,true]}"),
        ("by name", "t", json!({"z": 1, "b": 2}), vec!["x"], "\n  b: 2\n  z: 1"),
        ("lines", "t", json!({"x": "a\nWaits until 23:00"}), vec!["q"], "\n  x:\n    | a\n    | Waits until 23:00"),
        ("odd name", "t", json!({"a: 1\nb": 2}), vec!["q"], "\n  \"a: 1\\nb\": 2"),
        ("hidden", "t(a\u{202e}b)", json!({"x": "\u{200b}"}), vec!["q"], "\n  x: \\u{200b}"),
    ] {
        let card = card_request("t", signature, arguments, Some(&named));
        let shown = countersign_view::escape(signature, countersign_view::LineMode::One).into_owned();
        let text = card.waiting_text(CardStage::First, Millis(60_000), time);
        assert_eq!(text, format!("\u{1f6a8} t\n{shown}{want}{foot}"), "{case}");
        assert!(card.fits_card(Millis(60_000), time), "{case}");
    }
}

#[test]
fn without_the_call_every_argument_is_shown() {
    let text = card_request("t", "t(a)", json!({"x": "a"}), None).waiting_text(CardStage::First, Millis(0), time);
    assert!(text.starts_with("\u{1f6a8} t\nt(a)\n  x: a\n\nAgent: agent:kitchen\n"), "{text}");
}

#[test]
fn only_buttons_that_allow_or_deny_hold_those_words() {
    let refs = ButtonCodec::new(&"1:secret".to_owned().into());
    let short = card_request("t", "t(a)", json!({"x": "a"}), None);
    let mut floor = short.clone();
    floor.scopes = vec![ApprovalScope::Once];
    let long = card_request("t", "t", json!({"x": "y".repeat(5_000)}), None);
    let huge = card_request("t", "t", json!({"x": "y".repeat(100_000)}), None);
    for (case, card, whole, want) in [
        ("short", &short, true, "Allow|Deny|Allow for this session|Allow always, exactly this|Refuse with a reason…"),
        ("floor", &floor, true, "Allow|Deny|Refuse with a reason…"),
        ("long", &long, false, "Show all|Deny|Refuse with a reason…"),
        (
            "shown whole",
            &long,
            true,
            "Allow|Deny|Allow for this session|Allow always, exactly this|Refuse with a reason…",
        ),
        ("huge", &huge, false, "Deny|Refuse with a reason…"),
    ] {
        let buttons: Vec<_> = card.answer_keyboard(&refs, whole).inline_keyboard.into_iter().flatten().collect();
        let labels: Vec<&str> = buttons.iter().map(|button| button.text.as_str()).collect();
        assert_eq!(labels.join("|"), want, "{case}");
        for button in &buttons {
            let (gate, action) = refs.decode_button(&button.callback_data).unwrap();
            assert_eq!(gate, GateId::parse("0190a5b2c3d44e5f8a6b7c8d9e0f1a2b").unwrap());
            use super::ButtonAction::{Always, Deny, Once, Reason, Session, Whole};
            let allows = matches!(action, Once | Session | Always);
            assert_eq!(button.text.contains("Allow"), allows, "{}", button.text);
            assert_eq!(button.text.contains("Deny"), action == Deny, "{}", button.text);
            assert!(allows || matches!(action, Deny | Reason | Whole));
        }
    }
}

#[test]
fn a_card_of_any_length_fits_into_a_message() {
    for (case, value, is_whole, parts) in [
        ("short", "x".repeat(3_000), true, 1),
        ("just too long", "x".repeat(4_100), false, 2),
        ("two units a letter", "🙂".repeat(2_500), false, 2),
        ("escaped", "\u{200b}".repeat(2_000), false, 5),
        ("most", "x".repeat(62_000), false, 16),
    ] {
        let arguments = json!({ "x": value });
        let card = card_request("t", "t", arguments.clone(), None);
        for stage in [CardStage::First, CardStage::ShownWhole] {
            let text = card.waiting_text(stage, Millis(0), time);
            assert!(utf16_units(&text) <= LIMIT, "{case}: {}", utf16_units(&text));
            if !is_whole {
                let digest = Digest::hash_bytes(canonical_json(&arguments).as_bytes());
                assert!(text.contains(&format!("characters, sha256 {digest}. ")), "{case}: {text}");
                assert!(text.starts_with("\u{1f6a8} t\nt\n  x: ") && text.contains("\n\nAgent: "), "{case}");
                assert!(utf16_units(&text) > LIMIT - 4, "{case}: it shows as much as fits");
            }
        }
        assert_eq!(card.fits_card(Millis(0), time), is_whole, "{case}");
        let all = card.text_parts().unwrap();
        assert_eq!(all.len(), parts, "{case}");
        assert!(all.iter().all(|part| utf16_units(part) <= LIMIT), "{case}");
        let joined: String = all
            .iter()
            .enumerate()
            .map(|(at, part)| {
                let part = part.strip_prefix(&format!("Part {} of {parts}\n", at + 1)).unwrap();
                part.strip_suffix(&format!("\n— end of part {}", at + 1)).unwrap()
            })
            .collect();
        assert_eq!(joined, card.whole_text(), "{case}");
    }
    assert_eq!(card_request("t", "t", json!({ "x": "x".repeat(63_000) }), None).text_parts(), None);
}

#[test]
fn an_ended_card_says_how_by_whom_and_when() {
    let ending = |resolution| CardEnding {
        resolution,
        by: Some("@ana".to_owned()),
        shutdown: false,
        at: "12:03".to_owned(),
        reason: None,
        outcome: None,
    };
    let allowed = |scope| ending(GateResolution::Allowed { scope });
    let mut denied = ending(GateResolution::Denied);
    denied.reason = Some("quiet\nhours".to_owned());
    let mut unknown = allowed(ApprovalScope::Once);
    unknown.outcome = Some(CardOutcome::Unknown);
    let mut stopped = ending(GateResolution::Denied);
    stopped.shutdown = true;
    for (ending, head, foot) in [
        (allowed(ApprovalScope::Once), "\u{2705} Approved", "Approved by @ana at 12:03"),
        (allowed(ApprovalScope::Session), "\u{2705} Approved", "Approved for the session by @ana at 12:03"),
        (allowed(ApprovalScope::Always), "\u{2705} Approved", "Approved always by @ana at 12:03"),
        (ending(GateResolution::Granted), "\u{2705} Approved", "Covered by an earlier approval at 12:03"),
        (ending(GateResolution::Denied), "\u{274c} Denied", "Denied by @ana at 12:03"),
        (denied, "\u{274c} Denied", "Denied by @ana at 12:03: quiet\\u{a}hours"),
        (ending(GateResolution::Expired), "\u{23f0} Expired", "Nobody answered until 12:03; nothing was run."),
        (ending(GateResolution::Withdrawn), "\u{21a9} Withdrawn", "Nobody needs an answer any more (12:03)."),
        (stopped, "\u{274c} Gateway shutting down", "The gateway ended at 12:03; nothing was run."),
        (
            unknown,
            "\u{2705} Approved",
            "Approved by @ana at 12:03\nOutcome unknown: it may have been executed. It was not repeated.",
        ),
    ] {
        let text = card_request("t", "t(a)", json!({"x": 1}), None).ended_text(&ending);
        assert_eq!(text, format!("{head}\nt(a)\n  x: 1\n\n{foot}"));
        let long = card_request("t", "t", json!({"x": "y".repeat(9_000)}), None).ended_text(&ending);
        assert!(utf16_units(&long) <= LIMIT && long.starts_with(head) && long.ends_with(foot), "{long}");
    }
}

#[test]
fn a_question_offers_its_choices_and_nothing_that_allows() {
    let choice = |label: &str| countersign_core::gate::GateChoice { label: label.to_owned() };
    let content = GateContent::Question {
        id: "1".to_owned(),
        question: "Which?\nSay so.".to_owned(),
        choices: vec![choice("Left"), choice("Right\u{200b}")],
        multi: true,
        recommended: Some(1),
        about: serde_json::Map::new(),
    };
    let card = CardContent::new(&gate(&ALL), &content.into(), None, Vec::new(), None);
    let text = card.waiting_text(CardStage::First, Millis(0), time);
    assert!(
        text.starts_with("\u{2753} Question\nWhich?\nSay so.\n1. Left\n2. Right\\u{200b} (recommended)\n\nAgent: "),
        "{text}"
    );
    assert!(text.contains("reply with their numbers"), "{text}");
    let keys = card.answer_keyboard(&ButtonCodec::new(&"1:secret".to_owned().into()), true);
    let labels: Vec<_> = keys.inline_keyboard.iter().flatten().map(|button| button.text.as_str()).collect();
    // Only a question can be left unanswered; this gate is of another kind.
    assert_eq!(labels, ["Left", "2."]);
}
