//! Calls that use secrets: an approval of the call does not release the secret.

use serde_json::{Value, json};

use super::{PolicyFixture, rules, source, word};
use crate::policy::{
    DefaultPolicy, EffectReach, GrantCoverage, PolicySubject, RuleLayer, RuleSet, Verdict, compile_rules,
    propose_grants,
    testing::{grant, grant_set, subject},
};

fn command(env: Value) -> PolicySubject {
    PolicySubject {
        named: vec!["command".to_owned()],
        reach: EffectReach::Files,
        ..subject("bash", json!({"command": "deploy now", "env": env}))
    }
}

fn service(arguments: Value) -> PolicySubject {
    PolicySubject { target: Some("bank".to_owned()), ..subject("pay", arguments) }
}

fn with_key() -> PolicySubject {
    command(json!({"KEY": "{{secret:DEPLOY}}"}))
}

#[test]
fn only_rules_that_name_secrets_release_them() {
    for (texts, want) in [
        (&[][..], "ask"),
        (&["allow bash(KEY=* deploy *)"], "ask"),
        (&["allow *"], "ask"),
        (&["default allow *"], "ask"),
        (&["allow *", "allow secret(DEPLOY, bash)"], "allow"),
        (&["allow bash(KEY=* deploy *)", "allow secret(DEPLOY, *)"], "allow"),
        (&["default allow *", "default allow secret(*)"], "allow"),
        (&["allow secret(*)"], "ask"),
        (&["default ask bash(*)", "allow secret(*)"], "ask"),
        (&["deny bash(*deploy *)", "allow secret(*)"], "deny"),
        (&["allow *", "allow secret(OTHER, bash)"], "ask"),
        (&["allow *", "allow secret(DEPLOY, pay)"], "ask"),
        (&["allow *", "allow secret(*)", "deny secret(DEPLOY, bash)"], "deny"),
        (&["allow *", "default deny secret(*)"], "deny"),
        (&["allow *", "ask secret(*)"], "ask"),
    ] {
        let world = PolicyFixture { posture: DefaultPolicy::Gateway, ..PolicyFixture::new(texts) };
        assert_eq!(word(&world.judge(&with_key())), want, "{texts:?}");
    }
}

#[test]
fn without_rules_secrets_of_a_host_need_approval() {
    let world = PolicyFixture::new(&[]);
    assert_eq!(word(&world.judge(&command(json!({"KEY": "plain"})))), "allow");
    assert_eq!(word(&world.judge(&with_key())), "ask");
}

#[test]
fn every_secret_of_a_call_needs_leave_and_is_named() {
    let world = PolicyFixture::new(&["allow *", "allow secret(A, pay)", "deny secret(C, *)"]);
    for (arguments, want, named) in [
        (json!({"to": "{{secret:A}}"}), "allow", ""),
        (json!({"to": ["{{secret:A}}", {"deep": "x {{secret:B}}"}]}), "ask", "for its use of the secret B, "),
        (json!({"a": "{{secret:A}}{{secret:B}}{{secret:C}}"}), "deny", "for its use of the secret C, by rule"),
        (json!({"a": "{{secret:}}"}), "deny", "is not followed by the name of a secret"),
        (json!({"a": {"{{secret:A}}": 1}}), "deny", "name of an argument"),
        (json!({"{{secret:A}}": 1}), "deny", "name of an argument"),
    ] {
        let verdict = world.judge(&service(arguments.clone()));
        assert_eq!(word(&verdict), want, "{arguments}");
        assert!(verdict.why().to_string().contains(named), "{verdict}");
    }
}

#[test]
fn a_placeholder_stands_for_itself_where_nothing_fills_it_in() {
    let world = PolicyFixture::new(&["allow *"]);
    for subject in [
        subject("write", json!({"path": "notes.md", "content": "{{secret:A}} {{secret:"})),
        subject("bash", json!({"command": "grep '{{secret:A}}' notes.md"})),
    ] {
        assert_eq!(word(&world.judge(&subject)), "allow");
    }
}

#[test]
fn rules_on_arguments_tell_secrets_tools_and_services_apart() {
    for (args, want) in [
        (json!({"name": "A", "tool": "pay", "service": "bank"}), "allow"),
        (json!({"name": "A"}), "allow"),
        (json!({"name": "B"}), "ask"),
        (json!({"name": "A", "service": "shop"}), "ask"),
    ] {
        let structured = json!({"rules": [{"tool": "secret", "args": args, "action": "allow"}]});
        let structured: RuleSet = serde_json::from_value(structured).unwrap();
        let mut all = rules(&["allow pay(*)"]);
        all.rules.extend(structured.rules);
        let mut world = PolicyFixture::new(&[]);
        world.compiled = compile_rules(vec![source(RuleLayer::Main, all)]).unwrap();
        assert_eq!(word(&world.judge(&service(json!({"to": "{{secret:A}}"})))), want, "{args}");
    }
}

#[test]
fn a_grant_releases_what_was_shown_and_a_pattern_nothing() {
    let exact = || grant(1, GrantCoverage::Exact(with_key().digest()));
    for (texts, given, want) in [
        (&["ask bash(*)"][..], exact(), "allow"),
        (&["allow bash(*)"], exact(), "allow"),
        (&["ask bash(*)"], grant(1, GrantCoverage::Pattern("bash(*deploy *)".to_owned())), "ask"),
        (&["ask bash(*)"], grant(1, GrantCoverage::Pattern("*".to_owned())), "ask"),
        (&["allow bash(*)", "deny secret(*)"], exact(), "deny"),
    ] {
        let world = PolicyFixture { grants: grant_set([given.clone()]), ..PolicyFixture::new(texts) };
        assert_eq!(word(&world.judge(&with_key())), want, "{texts:?} {:?}", given.covers);
        let other = world.judge(&command(json!({"KEY": "{{secret:OTHER}}"})));
        assert!(!matches!(other, Verdict::Allow(_)), "{texts:?}");
    }
    assert_eq!(propose_grants(&with_key()).len(), 1);
}

#[test]
fn the_approvers_of_a_rule_for_a_secret_are_asked() {
    let two = json!({"rules": [
        {"pattern": "bash(*)", "action": "allow"},
        {"pattern": "secret(*)", "action": "ask", "steps": [{"approvals": 2}]},
    ]});
    let of = |text: Value| compile_rules(vec![source(RuleLayer::Main, serde_json::from_value(text).unwrap())]).unwrap();
    let mut world = PolicyFixture::new(&[]);
    world.compiled = of(two);
    world.grants = grant_set([grant(1, GrantCoverage::Exact(with_key().digest()))]);
    let verdict = world.judge(&with_key());
    assert_eq!((word(&verdict), verdict.why().approval_steps()[0].approvals), ("ask", 2));
    let three = json!({"rules": [
        {"pattern": "bash(*)", "action": "ask", "steps": [{"approvals": 3}]},
        {"pattern": "secret(*)", "action": "ask", "steps": [{"approvals": 2}]},
    ]});
    world.compiled = of(three);
    assert_eq!(world.judge(&with_key()).why().approval_steps()[0].approvals, 3);
}

#[test]
fn a_command_that_the_floor_holds_stays_held() {
    let world = PolicyFixture::new(&["allow *", "ask secret(*)"]);
    let held = PolicySubject {
        arguments: json!({"command": "rm -rf /", "env": {"K": "{{secret:A}}"}}).as_object().unwrap().clone(),
        ..with_key()
    };
    assert_eq!(word(&world.judge(&held)), "floor");
}

#[test]
fn the_value_of_a_secret_is_unknown_when_a_command_is_judged() {
    let world = PolicyFixture::new(&["allow bash(*)", "allow secret(*)"]);
    for (command, value, want) in [
        ("rm -rf \"$KEY\"", "{{secret:DEPLOY}}", "floor"),
        ("deploy \"$KEY\"", "{{secret:DEPLOY}}", "allow"),
        ("\"$KEY\" now", "{{secret:DEPLOY}}", "ask"),
        ("\"$KEY\" now", "x{{secret:DEPLOY}}", "ask"),
    ] {
        let arguments = json!({"command": command, "env": {"KEY": value}}).as_object().unwrap().clone();
        let subject = PolicySubject { arguments, ..with_key() };
        assert_eq!(word(&world.judge(&subject)), want, "{command} {value}");
    }
}
