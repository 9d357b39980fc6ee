//! Rules files and the cases next to them.

use std::sync::Arc;

use countersign_core::{
    gate::{ApprovalStep, OnExpiry},
    policy::{Rule, RuleAction, RuleLayer, RuleSet, compile_rules},
};
use proptest::prelude::*;
use serde_json::json;

use super::{
    super::{ConfigErrors, ParsedRules, PolicyCase, read_permissions},
    ConfigFixture,
};

fn read(scene: &ConfigFixture) -> Result<Option<ParsedRules>, ConfigErrors> {
    read_permissions(&scene.path().join("permissions.yaml"), RuleLayer::Main)
}

#[test]
fn rules_know_their_lines_and_cases_theirs() {
    let scene = ConfigFixture::new("");
    scene.write(
        "permissions.yaml",
        "defaults:\n  - { pattern: 'ha_get_*', action: allow }\nrules:\n  - pattern: 'ha_call_service(lock.*)'\n    action: deny\n    description: doors\n  - tool: pay\n    args: { amount: { max: 50 }, to: 'acme*' }\n    action: allow\n  - { pattern: '*', principal: 'kitchen-*', door: agent-gate, target: house, action: ask }\ntests:\n  - { request: 'ha_get_state entity_id=a.b', expect: allow }\n",
    );
    scene.write(
        "permissions.test.yaml",
        "tests:\n  - request: { tool: pay, args: { amount: 50 } }\n    expect: ask\n    description: nobody named\n    agent: kitchen-pi\n  - { request: { tool: pay }, expect: ask }\n",
    );
    let pattern = |pattern: &str, action, line| Rule { line, ..Rule::new(pattern, action) };
    let plain = Rule { pattern: None, ..Rule::new("", RuleAction::Allow) };
    let got = read(&scene).unwrap().unwrap();
    let amounts = serde_json::from_value(json!({"amount": {"max": 50}, "to": "acme*"})).unwrap();
    assert_eq!(
        got.source.rules,
        RuleSet {
            defaults: vec![pattern("ha_get_*", RuleAction::Allow, 2)],
            rules: vec![
                Rule {
                    description: Some("doors".to_owned()),
                    ..pattern("ha_call_service(lock.*)", RuleAction::Deny, 4)
                },
                Rule { tool: Some("pay".to_owned()), args: Some(amounts), line: 7, ..plain },
                Rule {
                    principal: Some("kitchen-*".to_owned()),
                    door: Some("agent-gate".to_owned()),
                    target: Some("house".to_owned()),
                    ..pattern("*", RuleAction::Ask, 10)
                },
            ],
        }
    );
    let case = |tool: &str, args: serde_json::Value, expect, file: &str, line| PolicyCase {
        tool: tool.to_owned(),
        args: args.as_object().unwrap().clone(),
        agent: "default".to_owned(),
        expect,
        description: None,
        file: scene.path().join(file),
        line,
    };
    let beside = "permissions.test.yaml";
    assert_eq!(
        got.cases,
        [
            case("ha_get_state", json!({"entity_id": "a.b"}), RuleAction::Allow, "permissions.yaml", 12),
            PolicyCase {
                description: Some("nobody named".to_owned()),
                agent: "kitchen-pi".to_owned(),
                ..case("pay", json!({"amount": 50}), RuleAction::Ask, beside, 2)
            },
            case("pay", json!({}), RuleAction::Ask, beside, 6),
        ]
    );
}

#[test]
fn a_rule_that_misses_calls_without_arguments_draws_a_warning_with_its_line() {
    let scene = ConfigFixture::new("");
    scene.write(
        "permissions.yaml",
        "rules:\n- { pattern: '*', action: ask }\n- { pattern: 'ha_get_states(*)', action: deny }\n",
    );
    let compiled = compile_rules(vec![read(&scene).unwrap().unwrap().source]).unwrap();
    let warnings: Vec<String> = compiled.warnings().iter().map(ToString::to_string).collect();
    assert_eq!(
        scene.relative_lines(&warnings.join("\n")),
        [
            "permissions.yaml:3: \"ha_get_states(*)\" does not match a call without arguments; write \"ha_get_states*\" to cover both"
        ]
    );
}

#[test]
fn what_is_wrong_is_named_with_its_line() {
    for (text, want) in [
        (
            "rule: []",
            "permissions.yaml:1: rule: unknown key; did you mean `rules`? Expected one of defaults, rules, sets, tests",
        ),
        ("rules: {}", "permissions.yaml:1: rules: expected a list, found a mapping"),
        ("rules:\n- x", "permissions.yaml:2: rules[0]: expected a mapping, found text"),
        ("rules:\n- ~", "permissions.yaml:2: rules[0]: Missing required config"),
        (
            "rules:\n- { pattern: x, action: DENY }",
            "permissions.yaml:2: rules[0].action: Invalid permission action: 'DENY' (must be allow/deny/ask)",
        ),
        (
            "rules:\n- { pattern: x }",
            "permissions.yaml:2: rules[0].action: Missing required config (must be allow/deny/ask)",
        ),
        (
            "rules:\n- { pattern: x, action: '' }",
            "permissions.yaml:2: rules[0].action: Missing required config (must be allow/deny/ask)",
        ),
        ("defaults:\n- { action: deny }", "permissions.yaml:2: defaults[0].pattern: Missing required config"),
        ("rules:\n- { pattern: '', action: deny }", "permissions.yaml:2: rules[0].pattern: Missing required config"),
        ("rules:\n- { tool: '', action: deny }", "permissions.yaml:2: rules[0].tool: Missing required config"),
        (
            "rules:\n- { pattern: x, approvals: , action: ask }",
            "permissions.yaml:2: rules[0].approvals: expected a value, found nothing",
        ),
        (
            "rules:\n- { pattern: x, description: , action: ask }",
            "permissions.yaml:2: rules[0].description: expected text, found nothing",
        ),
        ("tests:", "permissions.yaml:1: tests: expected a list, found nothing"),
        (
            "rules:\n- { pattern: x, tool: x, action: deny }",
            "permissions.yaml:2: rules[0]: a rule must have either a pattern or a tool, not both",
        ),
        (
            "rules:\n- { pattern: 5, action: deny }",
            "permissions.yaml:2: rules[0].pattern: expected text (quote it if it looks like something else), found a number",
        ),
        (
            "rules:\n- { pattern: x, action: deny, unless: y }",
            "permissions.yaml:2: rules[0].unless: unknown key; expected one of pattern,",
        ),
        (
            "rules:\n- tool: x\n  action: deny\n  args:\n    b: 1\n    a: { like: y }",
            "permissions.yaml:6: rules[0].args.a: unknown operator \"like\"; use one of is, in, max, min, present, not",
        ),
        (
            "rules:\n- { tool: x, action: deny, args: { a: { max: many } } }",
            "permissions.yaml:2: rules[0].args.a: max needs a number",
        ),
        (
            "rules:\n- { tool: x, action: deny, args: { a: { not: { like: y } } } }",
            "permissions.yaml:2: rules[0].args.a: unknown operator \"like\"",
        ),
        (
            "rules:\n- { tool: x, action: deny, args: { a: { max: 1, min: 0 } } }",
            "permissions.yaml:2: rules[0].args.a: expected exactly one of is, in, max, min, present, not",
        ),
        (
            "rules:\n- { tool: x, action: deny, args: { a: [1] } }",
            "permissions.yaml:2: rules[0].args.a: expected a pattern, a number, true or false, or one of",
        ),
        (
            "rules:\n- { tool: x, action: deny, args: { a: ~ } }",
            "permissions.yaml:2: rules[0].args.a: expected a pattern, a number, true or false, or one of",
        ),
        (
            "rules:\n- { tool: x, action: deny, args: some }",
            "permissions.yaml:2: rules[0].args: expected `any` or a mapping from argument names",
        ),
        (
            "rules:\n- { tool: x, action: deny, args: [1] }",
            "permissions.yaml:2: rules[0].args: expected `any` or a mapping from argument names",
        ),
        ("rules:\n- { tool: x, action: allow, args: ~ }", "permissions.yaml:2: rules[0].args: Missing required config"),
        (
            "rules:\n- tool: x\n  principal:\n  action: allow",
            "permissions.yaml:3: rules[0].principal: Missing required config",
        ),
        (
            "rules:\n- { pattern: x, door: '', action: allow }",
            "permissions.yaml:2: rules[0].door: Missing required config (must be the name of an adapter, such as omp, mcp or claude)",
        ),
        ("rules:\n- { pattern: x, target: [a], action: allow }", "permissions.yaml:2: rules[0].target: expected text"),
        ("rules:\n- { pattern: x, action: deny, action: ask }", "permissions.yaml:2: duplicate key action"),
        ("rules:\n- { pattern: x, action: ask, approvals: 0 }", "permissions.yaml:2: rules[0].approvals: "),
        (
            "rules:\n- { pattern: x, action: ask, from: [] }",
            "permissions.yaml:2: rules[0].from: the list is empty: name at least one approver",
        ),
        (
            "rules:\n- { pattern: x, action: ask, on_expiry: next }",
            "permissions.yaml:2: rules[0].on_expiry: expected deny, again, or { again: TIMES }",
        ),
        (
            "rules:\n- { pattern: x, action: ask, escalate: [ { to: ana } ] }",
            "permissions.yaml:2: rules[0].escalate[0].after: Missing required config",
        ),
        (
            "rules:\n- { pattern: x, action: ask, escalate: [ { after: 5 } ] }",
            "permissions.yaml:2: rules[0].escalate[0].to: Missing required config",
        ),
        (
            "rules:\n- { pattern: x, action: ask, escalate: [ ~ ] }",
            "permissions.yaml:2: rules[0].escalate[0]: Missing required config",
        ),
        (
            "rules:\n- { pattern: x, action: ask, escalate: [ { after: 5, to: ana, unless: b } ] }",
            "permissions.yaml:2: rules[0].escalate[0].unless: unknown key",
        ),
        ("tests:\n- { request: '', expect: ask }", "permissions.yaml:2: tests[0].request: Missing required config"),
        (
            "tests:\n- { request: 'a b', expect: ask }",
            "permissions.yaml:2: tests[0].request: expected key=value after the tool",
        ),
        (
            "tests:\n- { request: a, expect: yes }",
            "permissions.yaml:2: tests[0].expect: Invalid expectation: 'yes' (must be allow/deny/ask)",
        ),
        (
            "tests:\n- { request: { tool: a, args: [1] }, expect: ask }",
            "permissions.yaml:2: tests[0].request.args: expected a mapping, found a list",
        ),
        (
            "tests:\n- { request: { args: {} }, expect: ask }",
            "permissions.yaml:2: tests[0].request.tool: Missing required config",
        ),
    ] {
        let scene = ConfigFixture::new("");
        scene.write("permissions.yaml", text);
        let problems = scene.relative_lines(&read(&scene).unwrap_err().to_string());
        assert!(problems.len() == 1 && problems[0].starts_with(want), "{text}\n{problems:#?}");
    }
}

#[test]
fn a_rule_says_who_has_to_allow_in_which_steps() {
    let scene = ConfigFixture::new("");
    scene.write(
        "permissions.yaml",
        "sets: { owners: [ana, ben] }\nrules:\n- { pattern: a, action: ask, approvals: 2, from: owners, on_expiry: again }\n- pattern: b\n  action: ask\n  from: [owners, cleo]\n  within: 30\n  on_expiry: { again: 3 }\n  escalate:\n  - { after: 600, to: dora, approvals: 1 }\n  - { after: 60, to: owners, approvals: 2 }\n- { pattern: c, action: ask, within: 5 }\n- { pattern: d, action: ask }\n",
    );
    let people = |names: &[&str]| Some(Arc::new(names.iter().map(|&name| name.to_owned()).collect()));
    let seconds = |count| Some(std::time::Duration::from_secs(count));
    let step = ApprovalStep::default();
    let got: Vec<Vec<ApprovalStep>> =
        read(&scene).unwrap().unwrap().source.rules.rules.into_iter().map(|rule| rule.steps).collect();
    assert_eq!(
        got,
        [
            vec![ApprovalStep {
                approvals: 2,
                from: people(&["ana", "ben"]),
                on_expiry: OnExpiry::Again(1),
                ..step.clone()
            }],
            vec![
                ApprovalStep {
                    from: people(&["ana", "ben", "cleo"]),
                    within: seconds(600),
                    on_expiry: OnExpiry::Next,
                    ..step.clone()
                },
                ApprovalStep {
                    from: people(&["dora"]),
                    within: seconds(60),
                    on_expiry: OnExpiry::Next,
                    ..step.clone()
                },
                ApprovalStep {
                    approvals: 2,
                    from: people(&["ana", "ben"]),
                    within: seconds(30),
                    on_expiry: OnExpiry::Again(3),
                },
            ],
            vec![ApprovalStep { within: seconds(5), ..step }],
            vec![],
        ]
    );
}

#[test]
fn a_later_step_needs_as_many_approvals_as_before() {
    let scene = ConfigFixture::new("");
    scene.write(
        "permissions.yaml",
        "sets: { owners: [ana, ben] }\nrules:\n- pattern: a\n  action: ask\n  approvals: 3\n  escalate:\n  - { after: 1, to: [ana, ben, cleo, dora] }\n  - { after: 1, to: owners }\n  - { after: 1, to: [ana, ben, cleo] }\n  - { after: 1, to: owners, approvals: 1 }\n  - { after: 1, to: owners }\n",
    );
    let rules = read(&scene).unwrap().unwrap().source.rules.rules;
    let got: Vec<u32> = rules[0].steps.iter().map(|step| step.approvals).collect();
    assert_eq!(got, [3, 3, 2, 2, 1, 1]);
}

#[test]
fn both_lists_may_be_absent_and_the_file_too() {
    for text in ["", "# nothing", "defaults:\nrules: ~\n", "tests: []"] {
        let scene = ConfigFixture::new("");
        scene.write("permissions.yaml", text);
        assert_eq!(read(&scene).unwrap().unwrap().source.rules, RuleSet::default(), "{text}");
    }
    assert_eq!(read(&ConfigFixture::new("")), Ok(None));
    let scene = ConfigFixture::new("");
    std::fs::create_dir(scene.path().join("permissions.yaml")).unwrap();
    let error = read(&scene).unwrap_err().to_string();
    assert_eq!(scene.relative_lines(&error), ["permissions.yaml: cannot be read: it is not a regular file"]);
}

#[test]
fn a_test_file_next_to_a_repositorys_own_rules_is_not_read() {
    let scene = ConfigFixture::new("");
    scene.write("permissions.yaml", "");
    scene.write("permissions.test.yaml", "tests:\n- { request: a, expect: ask }");
    let got = |layer| read_permissions(&scene.path().join("permissions.yaml"), layer).unwrap().unwrap().cases.len();
    assert_eq!((got(RuleLayer::Main), got(RuleLayer::Tighten)), (1, 0));
}

proptest! {
    #[test]
    fn no_rules_make_it_panic(text in prop_oneof![".*", "(rules|tests|defaults):\n(- \\{ (request|pattern|tool|args|expect|action): [ -~]{0,20}, (args|expect|action): [a-z\\[{~]{0,5} \\}\n){0,3}"]) {
        let scene = ConfigFixture::new("");
        scene.write("permissions.yaml", &text);
        drop(read(&scene));
    }
}
