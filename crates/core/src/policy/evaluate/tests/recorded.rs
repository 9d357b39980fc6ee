//! Verdicts that were written down beforehand, line by line: of shell lines, and of the reference's own decisions.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value};

use super::{PolicyFixture, source, word};
use crate::policy::{
    DefaultPolicy, PolicySubject, Rule, RuleLayer, RuleSet,
    arguments::{self, ArgumentValidator, DeclaredArgument},
    compile_rules, signature,
    testing::{bash, subject},
};

#[test]
fn every_recorded_shell_line_gets_its_verdict() {
    #[derive(Deserialize)]
    struct ShellCase {
        command: String,
        cwd: String,
        rules: Vec<String>,
        expect: String,
        why: String,
    }
    let mut wrong = Vec::new();
    let mut count = 0;
    for line in include_str!("../../../../tests/data/shell_cases.jsonl").lines() {
        let case: ShellCase = serde_json::from_str(line).unwrap();
        let texts: Vec<&str> = case.rules.iter().map(String::as_str).collect();
        let verdict = PolicyFixture::new(&texts).judge(&PolicySubject { cwd: case.cwd, ..bash(&case.command) });
        count += 1;
        if word(&verdict) != case.expect {
            let command: String = case.command.chars().take(80).collect();
            wrong.push(format!(
                "{command:?} is {verdict}, not {} ({}) under {:.60}",
                case.expect,
                case.why,
                case.rules.join(", ")
            ));
        }
    }
    assert!(wrong.is_empty(), "{} of {count}:\n{}", wrong.len(), wrong.join("\n"));
    assert!(count >= 200);
}

#[test]
fn every_recorded_decision_of_the_reference_is_the_same() {
    #[derive(Deserialize)]
    struct DecisionCase {
        id: u32,
        tools: String,
        rules: Vec<Rule>,
        defaults: Vec<Rule>,
        tool: String,
        args: Map<String, Value>,
        expect: String,
        signature: Option<String>,
        error: Option<Value>,
    }
    let (mut count, mut messages) = (0, 0);
    for line in include_str!("../../../../tests/data/decision_cases.jsonl").lines() {
        let case: DecisionCase = serde_json::from_str(line).unwrap();
        count += 1;
        if let Err(invalid) = checked(&case.tools, &case.tool, &case.args) {
            assert_eq!(case.expect, "invalid", "{}", case.id);
            if let Some(error) = case.error {
                assert_eq!(error["message"], invalid, "{}", case.id);
                messages += 1;
            }
            continue;
        }
        let mut signatures = match template(&case.tools, &case.tool) {
            Some(template) => signature::declared_signatures(&case.tool, template, &case.args).unwrap(),
            None => signature::undeclared_signatures(&case.tool, &case.args).unwrap(),
        };
        let undeclared = template(&case.tools, &case.tool).map_or_else(Vec::new, |template| {
            let declared = declared(&case.tools, &case.tool);
            arguments::undeclared_names(&declared, template, &case.args).into_iter().map(str::to_owned).collect()
        });
        let subject = PolicySubject {
            signature: signatures.remove(0),
            further_signatures: signatures,
            undeclared,
            ..subject(&case.tool, Value::Object(case.args))
        };
        let world = PolicyFixture {
            compiled: compile_rules(vec![source(
                RuleLayer::Main,
                RuleSet { rules: case.rules, defaults: case.defaults },
            )])
            .unwrap(),
            posture: DefaultPolicy::Gateway,
            ..PolicyFixture::new(&[])
        };
        assert_eq!(Some(&subject.signature), case.signature.as_ref(), "{}", case.id);
        assert_eq!(word(&world.judge(&subject)), case.expect, "{}", case.id);
    }
    assert_eq!((count, messages), (115, 27));
}

/// Returns the signature templates of the tools that the reference ships; the outer none means that the tool is not defined.
fn template(tools: &str, tool: &str) -> Option<Option<&'static str>> {
    let shipped = BTreeMap::from([
        ("ha_get_state", Some("{entity_id}")),
        ("ha_get_states", None),
        ("ha_get_services", None),
        ("ha_get_history", Some("{entity_id}")),
        ("ha_get_logbook", Some("{entity_id}")),
        ("ha_get_config", None),
        ("ha_render_template", Some("{template}")),
        ("ha_call_service", Some("{domain}.{service}, {entity_id}")),
        ("ha_fire_event", Some("{event_type}")),
    ]);
    let first = ["ha_get_state", "ha_get_states", "ha_call_service", "ha_fire_event"];
    match tools {
        "ha" => shipped.get(tool).copied(),
        "v1" if first.contains(&tool) => shipped.get(tool).copied(),
        _ => None,
    }
}

/// Returns the arguments of the tools that the reference ships.
fn declared(tools: &str, tool: &str) -> Vec<DeclaredArgument> {
    const ENTITY: &str = r"^[a-z][a-z0-9_]*\.[a-z0-9][a-z0-9_]*$";
    const DOMAIN: &str = r"^[a-z][a-z0-9_]*$";
    let arguments: &[(&str, bool, Option<&str>)] = match (tools, tool) {
        ("ha", "ha_get_state" | "ha_get_history" | "ha_get_logbook") => &[("entity_id", true, Some(ENTITY))],
        ("ha", "ha_call_service") => {
            &[("domain", true, Some(DOMAIN)), ("service", true, Some(DOMAIN)), ("entity_id", false, Some(ENTITY))]
        }
        ("ha", "ha_fire_event") => &[("event_type", true, Some(r"^[a-z][a-z0-9_.]*$"))],
        ("ha", "ha_render_template") => &[("template", true, None)],
        _ => &[],
    };
    let validator = |pattern: &str| ArgumentValidator::new(pattern).unwrap();
    let declare = |&(name, required, pattern): &(&str, bool, Option<&str>)| DeclaredArgument {
        name: name.to_owned(),
        required,
        validate: pattern.map(validator),
        free_text: false,
    };
    arguments.iter().map(declare).collect()
}

fn checked(tools: &str, tool: &str, args: &Map<String, Value>) -> Result<(), String> {
    arguments::validate_arguments(&declared(tools, tool), args).map_err(|invalid| invalid.to_string())?;
    if tools == "v1" && tool.starts_with("ha_") { identifiers(args) } else { Ok(()) }
}

/// Checks of the reference's first version in place of declared patterns.
fn identifiers(args: &Map<String, Value>) -> Result<(), String> {
    let identifier = ArgumentValidator::new(r"^[a-z_][a-z0-9_]*(\.[a-z0-9_]+)?\Z").unwrap();
    for name in ["entity_id", "domain", "service", "event_type"] {
        if let Some(text) = args.get(name).and_then(Value::as_str).filter(|text| !identifier.accepts(text)) {
            return Err(format!("Invalid HA identifier format: {name}={text}"));
        }
    }
    Ok(())
}
