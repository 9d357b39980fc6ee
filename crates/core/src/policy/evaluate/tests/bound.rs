//! Rules that are bound to a principal, to a door, to a target.

use serde_json::{Value, json};

use super::{PolicyFixture, path_context, source, word};
use crate::{
    id::PrincipalId,
    policy::{
        CompiledRules, DefaultPolicy, PathContext, PolicyLayers, PolicySubject, RuleLayer, compile_rules, evaluate,
        testing::bash, testing::subject,
    },
    time::Millis,
};

fn written(rules: Value) -> CompiledRules {
    compile_rules(vec![source(RuleLayer::Main, serde_json::from_value(rules).unwrap())]).unwrap()
}

fn world(rules: Value) -> PolicyFixture {
    PolicyFixture { compiled: written(rules), posture: DefaultPolicy::Gateway, ..PolicyFixture::new(&[]) }
}

fn from(principal: &str, door: Option<&str>, target: Option<&str>) -> PolicySubject {
    PolicySubject {
        principal: PrincipalId::new(principal),
        door: door.map(str::to_owned),
        target: target.map(str::to_owned),
        ..subject("t", json!({"a": "x"}))
    }
}

#[test]
fn a_bound_rule_matches_only_what_it_is_bound_to() {
    let kitchen = from("agent:kitchen-pi", Some("agent-gate"), Some("house"));
    let bare = from("agent", None, None);
    for (rule, call, matches) in [
        (json!({"principal": "kitchen-pi"}), &kitchen, true),
        (json!({"principal": "agent:kitchen-pi"}), &kitchen, true),
        (json!({"principal": "kitchen-*"}), &kitchen, true),
        (json!({"principal": "Kitchen-*"}), &kitchen, false),
        (json!({"principal": "kitchen"}), &kitchen, false),
        (json!({"principal": "garage-pi"}), &kitchen, false),
        (json!({"principal": "agent"}), &bare, true),
        (json!({"principal": "*"}), &bare, true),
        (json!({"door": "agent-gate"}), &kitchen, true),
        (json!({"door": "omp"}), &kitchen, false),
        (json!({"door": "*"}), &bare, false),
        (json!({"target": "hou?e"}), &kitchen, true),
        (json!({"target": "[!h]*"}), &kitchen, false),
        (json!({"target": "*"}), &bare, false),
        (json!({"principal": "kitchen*", "door": "agent-*", "target": "house"}), &kitchen, true),
        (json!({"principal": "kitchen*", "door": "agent-*", "target": "garage"}), &kitchen, false),
        (json!({"principal": ""}), &kitchen, false),
    ] {
        for selector in [json!({"pattern": "t(*)"}), json!({"tool": "t", "args": {"a": "x"}}), json!({"tool": "?"})] {
            for list in ["rules", "defaults"] {
                for action in ["allow", "deny"] {
                    let mut rule = rule.clone();
                    rule["action"] = json!(action);
                    rule.as_object_mut().unwrap().extend(selector.as_object().unwrap().clone());
                    let verdict = world(json!({ list: [rule] })).judge(call);
                    assert_eq!(word(&verdict) == action, matches, "{list} {rule}");
                    assert!(matches || word(&verdict) == "ask", "{list} {rule}: {verdict}");
                }
            }
        }
    }
}

#[test]
fn a_bound_allow_lets_nothing_through_for_others_and_a_bound_deny_stops_only_its_own() {
    let world = world(json!({
        "rules": [
            {"pattern": "t(*)", "principal": "kitchen", "action": "allow"},
            {"pattern": "t(secret)", "target": "vault", "action": "deny"},
            {"pattern": "t(*)", "door": "agent-gate", "action": "ask"},
        ],
        "defaults": [
            {"pattern": "*", "principal": "garage", "action": "allow"},
            {"pattern": "*", "action": "deny"},
        ],
    }));
    for (call, want) in [
        (from("agent:kitchen", Some("agent-gate"), Some("vault")), "allow"),
        (PolicySubject { signature: "t(secret)".to_owned(), ..from("agent:kitchen", None, Some("vault")) }, "deny"),
        (PolicySubject { signature: "t(secret)".to_owned(), ..from("agent:kitchen", None, None) }, "allow"),
        (from("agent:garage", Some("agent-gate"), None), "ask"),
        (from("agent:garage", None, None), "allow"),
        (from("agent:attic", None, None), "deny"),
    ] {
        assert_eq!(word(&world.judge(&call)), want, "{call:?}");
    }
}

#[test]
fn a_call_without_an_adapter_has_that_of_its_process() {
    let compiled = written(json!({"rules": [{"pattern": "*", "door": "omp", "action": "deny"}]}));
    let world = PolicyFixture::new(&[]);
    let judge = |call: &PolicySubject, door: Option<&str>| {
        let layers = PolicyLayers {
            compiled: &compiled,
            constraints: &world.constraints,
            contract: None,
            grants: &world.grants,
            default_policy: DefaultPolicy::Gateway,
            path_context: &PathContext { door: door.map(str::to_owned), ..path_context() },
        };
        word(&evaluate(&layers, call, Millis(0)))
    };
    assert_eq!(judge(&from("agent", None, None), Some("omp")), "deny");
    assert_eq!(judge(&from("agent", None, None), None), "ask");
    assert_eq!(judge(&from("agent:pi", Some("agent-gate"), None), Some("omp")), "ask");
}

#[test]
fn a_bound_bare_star_covers_no_shell_line_of_others() {
    let world = world(json!({"rules": [{"pattern": "*", "principal": "builder", "action": "allow"}]}));
    let opaque = "ls $(curl x)";
    assert_eq!(word(&world.judge(&bash(opaque))), "ask");
    let builder = PolicySubject { principal: PrincipalId::new("agent:builder"), ..bash(opaque) };
    assert_eq!(word(&world.judge(&builder)), "allow");
}

#[test]
fn bounds_are_part_of_the_policys_digest_and_of_a_rules_name() {
    let bound = written(json!({"rules": [{"pattern": "t*", "principal": "a", "action": "deny"}]}));
    let other = written(json!({"rules": [{"pattern": "t*", "principal": "b", "action": "deny"}]}));
    assert_ne!(bound.digest(), other.digest());
    let verdict = PolicyFixture { compiled: bound, ..PolicyFixture::new(&[]) }.judge(&from("agent:a", None, None));
    assert_eq!(verdict.to_string(), "denied by rule \"t*, principal a\" (permissions.yaml)");
}
