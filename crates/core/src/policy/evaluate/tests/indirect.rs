//! Denials of an entity or a domain, and service calls that may reach it under other names.

use serde_json::{Value, json};

use super::{PolicyFixture, compiled, word};
use crate::policy::{
    GrantCoverage, PolicySubject, Rule, RuleAction, RuleLayer, RuleSet, RuleSource, VerdictCause, compile_rules,
    signature,
    testing::{grant, grant_set, subject},
};

/// Returns a call of the service tool that comes with the gateway.
fn service(arguments: Value) -> PolicySubject {
    let template = "{domain}.{service}, {entity_id}";
    let mut call = subject("ha_call_service", arguments);
    let mut signatures = signature::declared_signatures("ha_call_service", Some(template), &call.arguments).unwrap();
    call.signature = signatures.remove(0);
    call.further_signatures = signatures;
    call.named = signature::template_names(template).into_iter().map(str::to_owned).collect();
    call
}

fn call(domain: &str, service: &str, more: Value) -> PolicySubject {
    let mut arguments = json!({ "domain": domain, "service": service });
    arguments.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    self::service(arguments)
}

#[test]
fn a_denied_entity_is_not_reached_under_another_name() {
    let world = PolicyFixture::new(&["deny ha_call_service(*, switch.boiler)", "allow ha_call_service*"]);
    for (call, want) in [
        (call("switch", "turn_off", json!({"entity_id": "switch.boiler"})), "deny"),
        (call("switch", "turn_off", json!({"entity_id": ["switch.lamp", "switch.boiler"]})), "deny"),
        (call("switch", "turn_off", json!({"entity_id": "switch.lamp"})), "allow"),
        (call("switch", "turn_off", json!({"area_id": "cellar"})), "ask"),
        (call("switch", "turn_off", json!({"area_id": "cellar", "entity_id": "switch.lamp"})), "ask"),
        (call("switch", "turn_off", json!({"label_id": ["heating"]})), "ask"),
        (call("switch", "turn_off", json!({"device_id": "abc"})), "ask"),
        (call("switch", "turn_off", json!({"floor_id": "ground"})), "ask"),
        (call("switch", "turn_off", json!({"target": {"area_id": "cellar"}})), "ask"),
        (call("switch", "turn_off", json!({"target": {"entity_id": "switch.boiler"}})), "ask"),
        (call("switch", "turn_off", json!({"entity_id": "all"})), "ask"),
        (call("switch", "turn_off", json!({"entity_id": "group.cellar"})), "ask"),
        (call("switch", "turn_off", json!({"entity_id": "Switch.Boiler"})), "ask"),
        (call("switch", "turn_off", json!({})), "ask"),
        (call("homeassistant", "turn_off", json!({"area_id": "cellar"})), "ask"),
        (call("homeassistant", "turn_off", json!({"entity_id": "switch.boiler"})), "deny"),
        (call("homeassistant", "turn_off", json!({"entity_id": "light.sofa"})), "allow"),
        (call("light", "turn_on", json!({"area_id": "cellar"})), "allow"),
        (call("notify", "phone", json!({"message": "hello"})), "allow"),
    ] {
        let verdict = world.judge(&call);
        assert_eq!(word(&verdict), want, "{} {:?} {verdict}", call.signature, call.arguments);
    }
}

#[test]
fn a_default_that_denies_an_entity_holds_for_its_areas_too() {
    let reaching = [
        call("switch", "turn_off", json!({"area_id": "cellar"})),
        call("switch", "turn_off", json!({"data": {"entity_id": "switch.boiler"}})),
        call("switch", "turn_off", json!({})),
        call("homeassistant", "turn_off", json!({"area_id": "cellar"})),
        call("scene", "apply", json!({"entities": {"switch.boiler": "on"}})),
    ];
    let (denial, allowance) = ("default deny ha_call_service(*, switch.boiler)", "default allow *");
    for (defaults, want) in [([denial, allowance], "ask"), ([allowance, denial], "allow")] {
        let world = PolicyFixture::new(&defaults);
        for call in &reaching {
            let verdict = world.judge(call);
            assert_eq!(word(&verdict), want, "{defaults:?} {:?} {verdict}", call.arguments);
        }
        assert_eq!(word(&world.judge(&call("light", "turn_on", json!({"area_id": "cellar"})))), "allow");
    }
}

#[test]
fn a_denied_domain_is_not_reached_through_services_of_every_domain() {
    let world = PolicyFixture::new(&["deny ha_call_service(lock.*)", "allow ha_call_service*"]);
    for (call, want) in [
        (call("homeassistant", "turn_off", json!({"entity_id": "lock.front"})), "ask"),
        (call("homeassistant", "turn_off", json!({"entity_id": "all"})), "ask"),
        (call("homeassistant", "toggle", json!({"area_id": "hall"})), "ask"),
        (call("homeassistant", "turn_off", json!({"entity_id": "light.sofa"})), "allow"),
        (call("light", "turn_off", json!({"area_id": "hall"})), "allow"),
    ] {
        assert_eq!(word(&world.judge(&call)), want, "{} {:?}", call.signature, call.arguments);
    }
}

#[test]
fn a_denial_by_arguments_holds_for_selectors_too() {
    let rule: Rule = serde_json::from_value(json!({
        "tool": "ha_call_service", "args": {"entity_id": "switch.boil*", "service": "turn_*"}, "action": "deny"
    }))
    .unwrap();
    let allow = Rule::new("ha_call_service*", RuleAction::Allow);
    let rules = RuleSet { defaults: Vec::new(), rules: vec![rule, allow] };
    let source = RuleSource { name: "permissions.yaml".to_owned(), layer: RuleLayer::Main, rules };
    let world = PolicyFixture { compiled: compile_rules(vec![source]).unwrap(), ..PolicyFixture::new(&[]) };
    for (call, want) in [
        (call("switch", "turn_off", json!({"entity_id": "switch.boiler"})), "deny"),
        (call("switch", "turn_off", json!({"area_id": "cellar"})), "ask"),
        (call("light", "turn_off", json!({"area_id": "cellar"})), "allow"),
        (call("switch", "turn_off", json!({"entity_id": "switch.lamp"})), "allow"),
        (call("scene", "apply", json!({"entities": {"switch.boiler": "off"}})), "ask"),
    ] {
        assert_eq!(word(&world.judge(&call)), want, "{} {:?}", call.signature, call.arguments);
    }
}

#[test]
fn a_denied_entity_is_not_reached_through_arguments_of_another_service() {
    for denial in ["*, switch.boiler", "switch.*", "switch.turn_off, switch.boiler"] {
        let denial = format!("deny ha_call_service({denial})");
        let world = PolicyFixture::new(&[&denial, "allow ha_call_service*"]);
        for (call, want) in [
            (call("scene", "apply", json!({"entities": {"switch.boiler": "off"}})), "ask"),
            (call("scene", "apply", json!({"entity_id": "scene.a", "entities": {"switch.boiler": "off"}})), "ask"),
            (call("scene", "apply", json!({"data": {"entities": {"Switch.Boiler": {"state": "off"}}}})), "ask"),
            (call("scene", "apply", json!({"entities": {"group.cellar": "off"}})), "ask"),
            (call("scene", "create", json!({"scene_id": "x", "snapshot_entities": ["switch.boiler"]})), "ask"),
            (call("group", "set", json!({"object_id": "x", "entities": ["light.sofa", "switch.boiler"]})), "ask"),
            (call("group", "set", json!({"object_id": "x", "add_entities": "light.sofa, switch.boiler"})), "ask"),
            (call("scene", "apply", json!({"entities": {"light.sofa": "off"}})), "allow"),
            (call("group", "set", json!({"object_id": "x", "add_entities": ["light.sofa"]})), "allow"),
            (call("notify", "phone", json!({"message": "see you at 5.30"})), "allow"),
            (call("notify", "phone", json!({"message": "5.30", "title": "switch.boiler is on"})), "allow"),
        ] {
            let verdict = world.judge(&call);
            assert_eq!(word(&verdict), want, "{denial} {} {:?} {verdict}", call.signature, call.arguments);
        }
    }
}

#[test]
fn the_reason_names_the_denial_and_the_selector() {
    for rules in [
        &["deny ha_call_service(*, switch.boiler)", "allow *"][..],
        &["deny ha_call_service(*, switch.boiler)", "default allow *"],
        &["deny ha_call_service(*, switch.boiler)", "default ask *"],
        &["deny ha_call_service(*, switch.boiler)"],
    ] {
        let verdict = PolicyFixture::new(rules).judge(&call("switch", "turn_off", json!({"area_id": "cellar"})));
        assert!(matches!(verdict.why().cause, VerdictCause::MayReach { .. }), "{rules:?} {verdict}");
        assert_eq!(
            verdict.to_string(),
            "needs approval because area_id cellar may reach what the rule \"ha_call_service(*, switch.boiler)\" \
             (permissions.yaml) denies"
        );
    }
}

#[test]
fn without_a_denial_that_could_be_meant_nothing_changes() {
    let world = PolicyFixture::new(&["deny ha_call_service(*, light.sofa)", "deny pay(*)", "allow ha_call_service*"]);
    for call in [
        call("switch", "turn_off", json!({"area_id": "cellar"})),
        call("switch", "turn_off", json!({"entity_id": "all"})),
    ] {
        assert_eq!(word(&world.judge(&call)), "allow", "{:?}", call.arguments);
    }
}

#[test]
fn a_person_may_grant_the_very_call_and_no_pattern_covers_it() {
    let requested = call("switch", "turn_off", json!({"area_id": "cellar"}));
    let mut world = PolicyFixture::new(&["deny ha_call_service(*, switch.boiler)"]);
    world.grants = grant_set([grant(1, GrantCoverage::Pattern("ha_call_service(switch.*".to_owned()))]);
    assert_eq!(word(&world.judge(&requested)), "ask");
    world.grants = grant_set([grant(1, GrantCoverage::Exact(requested.digest()))]);
    assert_eq!(word(&world.judge(&requested)), "allow");
}

#[test]
fn among_ten_thousand_denials_the_one_that_may_be_broken_is_found() {
    for count in [10, 1_000, 10_000_usize] {
        let rules: Vec<String> = (0..count).map(|at| format!("deny ha_call_service(*, switch.s{at})")).collect();
        let rules: Vec<&str> = rules.iter().map(String::as_str).chain(["allow *"]).collect();
        let world = PolicyFixture { compiled: compiled(&rules), ..PolicyFixture::new(&[]) };
        let at_an_area = call("switch", "turn_off", json!({"area_id": "cellar"}));
        assert_eq!(word(&world.judge(&at_an_area)), "ask", "{count}");
        assert_eq!(word(&world.judge(&call("light", "turn_off", json!({"area_id": "cellar"})))), "allow", "{count}");
    }
}
