//! Rules looked at from the command line, where no gateway runs; and rules that are bound to one agent, where one does.

use countersign_testkit::process::{
    AGENT_TOKEN, CommandOutput, GatewayFixture, GatewayServer, KITCHEN_TOKEN,
    agent_gate::{AgentClient, executed_result},
};
use serde_json::json;

fn place(rules: &str) -> GatewayFixture {
    GatewayFixture::with_config_and_rules("web: { password: \"${NOT_SET_HERE}\" }", rules)
}

fn policy(place: &GatewayFixture, arguments: &[&str]) -> CommandOutput {
    place.run(&[&["policy"], arguments].concat())
}

const GOOD: &str = "defaults:
  - { pattern: '*', action: ask }
rules:
  - { pattern: 'turn(lamp*', action: allow, principal: kitchen }
  - { tool: turn, args: { way: { in: [open, wide] } }, action: deny, description: Nothing is opened }
  - { pattern: 'turn*', action: ask, door: agent-gate, target: desk }
";

#[test]
fn sound_rules_pass_without_a_gateway_or_its_secrets() {
    let place = place(GOOD);
    let output = policy(&place, &["check"]);
    let expected = "ok       permissions.yaml: 4 rules, 0 cases (with the agents and tools of config.yaml)\n";
    assert_eq!((output.code, output.out.as_str(), output.err.as_str()), (Some(0), expected, ""));
    place
        .write_file("permissions.test.yaml", "tests:\n- { request: turn thing=lamp, agent: kitchen, expect: allow }\n");
    let output = policy(&place, &["check", "permissions.yaml", "--json"]);
    let want = json!({
        "file": "permissions.yaml", "config": "config.yaml", "ok": true, "errors": [], "warnings": [],
        "rules": 4, "cases": 1,
    });
    assert_eq!((output.code, output.json()), (Some(0), want));
}

#[test]
fn the_configuration_is_found_under_either_name() {
    let place = place(GOOD);
    std::fs::rename(place.folder.join("config.yaml"), place.folder.join("config.yml")).unwrap();
    let checked = policy(&place, &["check", "--json"]);
    assert_eq!((checked.code, &checked.json()["config"]), (Some(0), &json!("config.yml")), "{checked:?}");
    let tested = policy(&place, &["test", "--json"]);
    assert_eq!((tested.code, &tested.json()["config"]), (Some(0), &json!("config.yml")), "{tested:?}");
    let explained = policy(&place, &["explain", "turn", "thing=lamp"]);
    assert!(explained.out.contains("(with the agents and tools of config.yml)"), "{explained:?}");
}

#[test]
fn errors_in_rules_are_those_of_serve() {
    for (rules, line, key, message) in [
        (
            "rules:\n- tool: turn\n  action: deny\n  args:\n    way: { mx: 5 }\n",
            5,
            "rules[0].args.way",
            "unknown operator \"mx\"",
        ),
        ("rules:\n- { pattern: 'turn*', principal: , action: allow }\n", 2, "rules[0].principal", "Missing required"),
        ("rules:\n- { pattern: 'bash(sh *)', action: allow }\n", 2, "", "allows sh to run any code"),
        (
            "tests:\n- { request: look thing=a, expect: deny }\n",
            2,
            "tests",
            "look thing=a needs approval, but should be denied",
        ),
    ] {
        let place = place(rules);
        let output = policy(&place, &["check", "--json"]);
        assert_eq!(output.code, Some(1), "{output:?}");
        let report = output.json();
        let found = &report["errors"][0];
        assert_eq!(
            (&found["line"], &found["key"], &report["ok"]),
            (&json!(line), &json!(key), &json!(false)),
            "{report}"
        );
        assert_eq!(found["file"], "permissions.yaml");
        assert!(found["message"].as_str().unwrap().contains(message), "{report}");
        let output = policy(&place, &["check"]);
        assert!(output.out.starts_with(&format!("error    permissions.yaml:{line}: ")), "{output:?}");
        place.write_file("config.yaml", &place.config_text(""));
        let served = place.run(&["serve", "--config", "config.yaml"]);
        assert_eq!((served.code, served.err.contains(message)), (Some(1), true), "{served:?}");
    }
    let output = policy(&place("rules:\n- { pattern: 'bash(git push', action: deny }\n"), &["check"]);
    assert!(output.out.ends_with("failed   permissions.yaml: 1 error, 0 warnings\n"), "{output:?}");
    let output = policy(&place(""), &["check", "nowhere.yaml"]);
    assert_eq!((output.code, output.err.contains("nowhere.yaml")), (Some(1), true), "{output:?}");
}

#[test]
fn rules_that_do_not_do_what_they_look_like_draw_warnings() {
    let place = place(
        "rules:\n- { pattern: 'lookup(*)', action: deny }\n- { pattern: '*', door: omp, action: deny }\n- { pattern: 'trun(*', action: deny }\n",
    );
    let output = policy(&place, &["check"]);
    let lines: Vec<&str> = output.out.lines().collect();
    assert_eq!((output.code, lines.len()), (Some(0), 4), "{output:?}");
    assert!(lines[0].starts_with("warning  permissions.yaml:2: \"lookup(*)\" does not match a call without arguments"));
    assert!(
        lines[1].starts_with("warning  permissions.yaml:3: omp takes its rules from the permissions.yaml of its agent"),
        "{output:?}"
    );
    assert!(lines[2].starts_with("warning  permissions.yaml:4: there is no tool \"trun\" here"), "{output:?}");
    assert!(lines[3].starts_with("ok       permissions.yaml: 3 rules, 0 cases, 3 warnings"), "{output:?}");
    assert_eq!(policy(&place, &["check", "--json"]).json()["warnings"].as_array().unwrap().len(), 3);
}

#[test]
fn a_malformed_rule_that_restricts_is_an_error() {
    for (rules, code, word) in [
        ("rules:\n- { pattern: 'bash(git push', action: deny }\n", 1, "error  "),
        ("rules:\n- { pattern: 'bash(git push', action: ask }\n", 1, "error  "),
        ("rules:\n- { tool: 'bash(rm *)', action: deny }\n", 1, "error  "),
        ("rules:\n- { pattern: 'bash(git push', action: allow }\n", 0, "warning"),
    ] {
        let place = place(rules);
        let output = policy(&place, &["check"]);
        let (pattern, line) = (rules.split('\'').nth(1).unwrap(), format!("{word}  permissions.yaml:2: \""));
        assert_eq!(output.code, Some(code), "{rules}: {output:?}");
        assert!(output.out.contains(&format!("{line}{pattern}\" matches nothing: ")), "{rules}: {output:?}");
        assert_eq!(output.out.contains("ok  "), code == 0, "{rules}: {output:?}");
        let report = policy(&place, &["check", "--json"]).json();
        let errors = report["errors"].as_array().unwrap();
        assert_eq!((&report["ok"], errors.is_empty()), (&json!(code == 0), code == 0), "{report}");
        let explained = policy(&place, &["explain", "turn", "thing=lamp", "way=shut"]);
        let notice = "countersign: the verdict ignores this rule: ";
        assert_eq!((explained.code, explained.err.starts_with(notice)), (Some(0), code == 1), "{explained:?}");
    }
}

#[test]
fn a_rule_on_commands_that_covers_less_than_it_seems_draws_a_hint() {
    let place =
        place("rules:\n- { pattern: 'bash(rm -rf*)', action: deny }\n- { pattern: 'bash(*)', action: allow }\n");
    let output = policy(&place, &["check"]);
    assert_eq!(output.code, Some(0), "{output:?}");
    assert!(output.out.contains("such as \"rm -fr\" or \"rm -r -f\"; deny \"bash(rm*)\""), "{output:?}");
    assert!(output.out.contains("permissions.yaml:3: \"bash(*)\" does not cover every command"), "{output:?}");
}

#[test]
fn the_rules_of_an_agent_directory_are_judged_as_their_adapter_does() {
    let place = place("rules:\n- { pattern: '*', action: ask }\n");
    let folder = place.folder.join(".omp/agent");
    std::fs::create_dir_all(&folder).unwrap();
    let file = ".omp/agent/permissions.yaml";
    let denied = "rules:\n- { pattern: 'bash(git push*)', door: omp, action: deny }\n";
    let push = ["bash", "command=git push"];
    for (rules, more, want) in [
        ("rules: []\n", ["--door", "omp"], "allowed"),
        ("rules: []\n", ["--permissions", file], "allowed"),
        ("rules: []\n", ["--door", "console"], "needs approval"),
        (denied, ["--door", "omp"], "denied"),
        (denied, ["--permissions", file], "denied"),
        (denied, ["--door", "gjc"], "allowed"),
    ] {
        std::fs::write(folder.join("permissions.yaml"), rules).unwrap();
        let output = place.run(&[&["policy", "explain"][..], &more, &push].concat());
        assert!(output.out.starts_with(&format!("{want}  bash(git push)")), "{rules} {more:?}: {output:?}");
    }
    for check in [&["check", file][..], &["check", "--door", "omp"]] {
        let output = policy(&place, check);
        assert_eq!((output.code, output.out.contains("warning")), (Some(0), false), "{check:?}: {output:?}");
    }
    for (refused, want) in [
        (
            &["check", "--door", "front"][..],
            "expected one of agent-gate, console, api, gsv, hermes, mcp, claude, codex, gemini, copilot, acp, opencode, omp, gjc",
        ),
        (&["check", "--door", "omp", "--config", "config.yaml"], "omp uses no gateway configuration"),
        (&["explain", "--door", "omp", "--agent", "pi", "bash"], "only agent-gate has agents"),
    ] {
        let output = policy(&place, refused);
        assert!(output.code == Some(1) && output.err.contains(want), "{refused:?}: {output:?}");
    }
}

#[test]
fn an_error_is_reported_once() {
    let place = place("rules:\n  - { pattern: '*', action: alow }\n");
    for arguments in [["policy", "test"].as_slice(), &["policy", "explain", "turn"]] {
        let output = place.run(arguments);
        assert_eq!((output.code, output.err.matches("'alow'").count()), (Some(1), 1), "{arguments:?}: {output:?}");
    }
}

#[test]
fn an_explanation_names_the_rule_and_those_that_nearly_decided() {
    let place = place(GOOD);
    let output = policy(&place, &["explain", "turn", "thing=lamp", "way=open"]);
    let want = "denied  turn(lamp, open)
  reason  by rule \"turn {\"way\":{\"in\":[\"open\",\"wide\"]}}\" (permissions.yaml:5)
          Nothing is opened
  agent   default
  adapter agent-gate
  target  desk
  (with the agents and tools of config.yaml)

Nearly decided
  ask    \"turn*, door agent-gate, target desk\" (permissions.yaml:6)
         also matches, but the deciding rule takes precedence
  ask    \"*\" (permissions.yaml:2), a default
         also matches, but the deciding rule takes precedence
  allow  \"turn(lamp*, principal kitchen\" (permissions.yaml:4)
         it applies only to principal \"kitchen\"; the call has \"default\"
";
    assert_eq!((output.code, output.out.as_str(), output.err.as_str()), (Some(0), want, ""));
}

#[test]
fn an_explanation_takes_no_signature_for_a_tool_and_says_that_an_agent_is_not_there() {
    let place = place(GOOD);
    let output = policy(&place, &["explain", "turn(lamp, open)"]);
    let expected = "countersign: turn(lamp, open) is a signature: pass the name of the tool and its arguments separately, for \
                example countersign policy explain turn KEY=VALUE\n";
    assert_eq!((output.code, output.out.as_str(), output.err.as_str()), (Some(1), "", expected));
    let output = policy(&place, &["explain", "turn; ls(lamp)"]);
    assert!(output.err.ends_with("policy explain 'turn; ls' KEY=VALUE\n"), "{output:?}");
    let output = policy(&place, &["explain", "git status"]);
    let expected = "countersign: \"git status\" is not a tool name; for a command use: countersign policy explain bash \
                    command='git status'\n";
    assert_eq!((output.code, output.out.as_str(), output.err.as_str()), (Some(2), "", expected));
    let output = policy(&place, &["explain", "bash", "git status"]);
    assert!(output.err.ends_with("expected key=value, for example command='git status'\n"), "{output:?}");
    let line = |agent: &str| {
        let output = policy(&place, &["explain", "turn", "thing=lamp", "--agent", agent]);
        output.out.lines().find(|line| line.starts_with("  agent ")).map(str::to_owned)
    };
    assert_eq!(line("kitchen").as_deref(), Some("  agent   kitchen"));
    let unknown = "  agent   nobody (the configuration has no agent of this name)";
    assert_eq!(line("nobody").as_deref(), Some(unknown));
}

#[test]
fn an_explanation_for_programs_has_all_of_it() {
    let place = place(GOOD);
    let arguments = ["explain", "turn", "--args", r#"{"thing":["lamp","lamp2"],"way":"shut"}"#, "--agent", "kitchen"];
    let explanation = policy(&place, &[&arguments[..], &["--json"]].concat()).json();
    let rule = json!({
        "pattern": "turn(lamp*, principal kitchen", "file": "permissions.yaml", "line": 4, "default": false,
        "description": null,
    });
    let shown = |name: &str| explanation[name].clone();
    assert_eq!([shown("verdict"), shown("rule"), shown("principal")], [json!("allow"), rule, json!("agent:kitchen")]);
    assert_eq!(
        [shown("signature"), shown("further_signatures")],
        [json!("turn(lamp, shut)"), json!(["turn(lamp2, shut)"])]
    );
    assert_eq!([shown("door"), shown("target")], [json!("agent-gate"), json!("desk")]);
    let nearly = |at: usize| ["action", "line", "matches", "why"].map(|name| explanation["nearly"][at][name].clone());
    assert_eq!(nearly(0)[..3], [json!("ask"), json!(6), json!(true)]);
    let why = json!(["it requires way to be one of \"open\", \"wide\"; the value is \"shut\""]);
    assert_eq!(nearly(2), [json!("deny"), json!(5), json!(false), why]);
}

#[test]
fn an_explanation_says_who_has_to_allow() {
    let rules = "rules:
- pattern: 'turn(*)'
  action: ask
  approvals: 2
  from: [ana, ben]
  escalate: [ { after: 600, to: cleo } ]
  on_expiry: again
";
    let place = place(rules);
    let accounts = "web: { password: \"${NOT_SET_HERE}\" }\npeople: [ { id: ana, local: [\"${ANA}\"] }, { id: ben }, { id: cleo } ]";
    place.write_file("config.yaml", &place.config_text(accounts));
    let output = policy(&place, &["explain", "turn", "thing=lamp", "way=open"]);
    assert_eq!(output.code, Some(0), "{output:?}");
    let lines =
        "  needs   2 of ana, ben within 10 min\n  else    1 of cleo within approval_timeout, else asked again (once)\n";
    assert!(output.out.contains(lines), "{output:?}");
    let explanation = policy(&place, &["explain", "turn", "thing=lamp", "way=open", "--json"]).json();
    let want = json!([
        { "approvals": 2, "from": ["ana", "ben"], "within": 600, "on_expiry": "next", "times": null },
        { "approvals": 1, "from": ["cleo"], "within": null, "on_expiry": "again", "times": 1 },
    ]);
    assert_eq!(explanation["steps"], want);
    let output = policy(&place, &["explain", "look", "thing=lamp"]);
    assert!(output.out.contains("  needs   1 approver within approval_timeout, else denied\n"), "{output:?}");
}

#[test]
fn what_is_refused_before_policy_is_explained_as_such() {
    let place = place(GOOD);
    let output = policy(&place, &["explain", "look"]);
    let want = "refused  look\n  reason  Missing required argument: thing, so policy is not evaluated\n";
    assert_eq!((output.code, output.out.as_str()), (Some(0), want), "{output:?}");
    for arguments in [&["explain", "look", "thing"][..], &["explain", "look", "a=1", "--args", "{\"a\":1}"]] {
        let output = policy(&place, arguments);
        assert_eq!((output.code, output.out.as_str(), output.err.is_empty()), (Some(1), "", false), "{output:?}");
    }
}

#[test]
fn each_failed_case_is_reported_with_its_verdict() {
    let place = place(GOOD);
    place.write_file(
        "permissions.test.yaml",
        "tests:
- { request: turn thing=lamp way=shut, agent: kitchen, expect: allow }
- { request: turn thing=lamp way=shut, expect: allow, description: anybody may }
- { request: { tool: turn, args: { thing: lamp, way: [shut, open] } }, expect: deny }
",
    );
    let output = policy(&place, &["test"]);
    let want = "failed  turn thing=lamp way=shut (anybody may)  permissions.test.yaml:3
        should be allowed, but needs approval: by rule \"turn*, door agent-gate, target desk\" (permissions.yaml:6)
failed  2 of 3 cases passed (with the agents and tools of config.yaml)
";
    assert_eq!((output.code, output.out.as_str(), output.err.as_str()), (Some(1), want, ""));
    let report = policy(&place, &["test", "permissions.yaml", "--json"]).json();
    assert_eq!([&report["passed"], &report["failed"]], [&json!(2), &json!(1)]);
    let case = &report["cases"][1];
    assert_eq!(
        ["expect", "got", "ok", "line"].map(|name| case[name].clone()),
        [json!("allow"), json!("ask"), json!(false), json!(3)]
    );
    place.write_file("permissions.test.yaml", "");
    let output = policy(&place, &["test"]);
    assert_eq!((output.code, output.out.as_str()), (Some(0), ""), "{output:?}");
    assert!(output.err.contains("permissions.yaml has no cases, so nothing was tested"), "{output:?}");
    let output = policy(&place, &["test", "--json"]);
    assert!(output.err.contains("has no cases, so nothing was tested") && output.code == Some(0), "{output:?}");
}

#[test]
fn a_running_gateway_keeps_rules_that_are_bound_to_an_agent_for_that_agent() {
    let place = GatewayFixture::with_config_and_rules(
        "",
        "defaults:\n- { pattern: '*', action: deny }\nrules:\n- { pattern: 'turn*', principal: kitchen, door: agent-gate, target: desk, action: allow }\n",
    );
    let gateway = GatewayServer::start(&place);
    let lamp = || json!({ "thing": "lamp", "way": "on" });
    let (mut default, mut kitchen) = (
        AgentClient::connect_authenticated(&gateway, AGENT_TOKEN),
        AgentClient::connect_authenticated(&gateway, KITCHEN_TOKEN),
    );
    let denied = default.call_tool(1, "turn", lamp());
    let reason = "Denied by policy: by default \"*\" (permissions.yaml:2)";
    assert_eq!([&denied["code"], &denied["data"]["reason"]], [&json!(-32003), &json!(reason)]);
    assert_eq!(kitchen.call_tool(1, "turn", lamp()), executed_result(json!({ "result": { "did": "/turn/lamp" } })));
    assert_eq!(place.service.request_count("/turn/lamp"), 1);
    // The same for a tool that no service has.
    assert_eq!(kitchen.call_tool(2, "turn_up", json!({}))["data"]["reason"], reason);
}
