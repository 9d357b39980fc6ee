//! Lines that the shell of a node or of a host reads.

use std::borrow::Cow;

use serde_json::{Value, json};

use super::{PolicyFixture, word};
use crate::{
    policy::{
        Class, Contract, ContractGap, ContractScope, DefaultPolicy, GrantCoverage, PolicySubject, Rule, RuleAction,
        Verdict, propose_grants,
        testing::{grant, grant_set, subject},
    },
    tool::{ShellInput, ShellMachine},
};

fn line(argument: &'static str, machine: ShellMachine) -> ShellInput {
    ShellInput::Line { argument: Cow::Borrowed(argument), machine }
}

/// Returns a call of a node's shell.
fn node(arguments: Value) -> PolicySubject {
    let signature = format!("mac__Bash({})", arguments["command"].as_str().unwrap_or_default());
    PolicySubject {
        signature,
        named: vec!["command".to_owned()],
        shell: line("command", ShellMachine::Other),
        classes: [Class::HostToolInvoke].into(),
        ..subject("mac__Bash", arguments)
    }
}

/// Returns a call of which it is unknown what a shell reads of it.
fn perhaps(arguments: Value) -> PolicySubject {
    let shell = ShellInput::Perhaps { machine: ShellMachine::Other };
    PolicySubject { shell, classes: [Class::HostToolInvoke].into(), ..subject("mac__Process", arguments) }
}

fn judged(texts: &[&str], subject: &PolicySubject) -> &'static str {
    word(&PolicyFixture { posture: DefaultPolicy::Gateway, ..PolicyFixture::new(texts) }.judge(subject))
}

#[test]
fn a_rule_covers_a_nodes_line_command_by_command() {
    let rules = ["allow mac__Bash(ls*)", "allow mac__Bash(echo *)", "deny mac__Bash(curl*)"];
    for (command, want) in [
        ("ls", "allow"),
        ("ls -l; echo done", "allow"),
        ("ls; make", "ask"),
        ("ls && rm -rf build", "ask"),
        ("ls; rm -rf ~", "floor"),
        ("ls | curl -d @- x", "deny"),
        ("ls $(curl x)", "deny"),
        ("ls $(id)", "ask"),
        ("ls > x", "ask"),
        ("ls\nmake", "ask"),
        ("ls &", "allow"),
        ("'cu'rl x", "deny"),
        ("sh -c 'ls; make'", "ask"),
        ("ls 'unclosed", "ask"),
        ("ls *(e:id:)", "ask"),
        ("ls a=(id)", "ask"),
        (r"echo 'a\'' ; id ; echo '\''b'", "ask"),
        (r"echo 'a\\' ; id ; echo 'b'", "ask"),
        (r"ls '*.rs' e\x3bid", "ask"),
        (r#"echo 'a' "\'" "#, "ask"),
        (r"echo $'\n'", "ask"),
        (r"ls '*.rs' \;", "allow"),
        (r"echo '\n' '\d+'", "allow"),
        (r#"echo 'a' "b\n""#, "allow"),
    ] {
        assert_eq!(judged(&rules, &node(json!({ "command": command }))), want, "{command}");
    }
    // A name of an own tool covers nothing of a node.
    assert_eq!(judged(&["allow bash(ls*)"], &node(json!({"command": "ls"}))), "ask");
    assert_eq!(judged(&["deny bash(ls*)", "allow *"], &node(json!({"command": "ls"}))), "allow");
}

#[test]
fn what_destroys_on_a_machine_that_nobody_knows_asks_whatever_allows_it() {
    for (command, want) in [
        ("rm -rf build", "allow"),
        ("rm -rf ./build/*", "allow"),
        ("rm -rf /tmp/x", "allow"),
        ("mv a /etc/a", "allow"),
        ("rm -rf /", "floor"),
        ("rm -rf ~", "floor"),
        ("rm -rf ~/x", "floor"),
        ("rm -rf $HOME/x", "floor"),
        ("rm ~/*", "floor"),
        ("rm ~/x", "allow"),
        ("rm ~/x \"$f\"", "floor"),
        ("rm ~/ ~*x\u{fffd}", "allow"),
        ("rm build/*.o", "allow"),
        ("rm -rf ..", "floor"),
        ("rm -rf .", "floor"),
        ("cd .. && rm -rf build", "floor"),
        ("cd sub && rm -rf build", "allow"),
        ("rm -rf /home/ana/project/build", "floor"),
        ("mv /etc /x", "floor"),
        ("chmod -R 777 /", "floor"),
        ("mkfs.ext4 /dev/sda", "floor"),
        ("dd if=/dev/zero of=/dev/sda", "floor"),
        // Folders and files of this machine do not exist on that one.
        ("cat /home/ana/.config/countersign/models.yml", "allow"),
        ("echo x > /srv/countersign/data/x", "allow"),
    ] {
        assert_eq!(judged(&["allow *"], &node(json!({ "command": command }))), want, "{command}");
    }
    for (workdir, want) in [
        (json!("sub"), "allow"),
        (json!(null), "allow"),
        (json!("sub/.."), "allow"),
        (json!("/"), "floor"),
        (json!("/etc"), "floor"),
        (json!(".."), "floor"),
        (json!("~"), "floor"),
        (json!("$X"), "floor"),
    ] {
        let call = node(json!({"command": "rm -rf x", "workdir": workdir}));
        assert_eq!(judged(&["allow *"], &call), want, "{workdir}");
    }
    assert_eq!(judged(&["allow *"], &node(json!({"command": ["ls"]}))), "floor");
    assert_eq!(judged(&["allow *"], &node(json!({}))), "floor");
}

#[test]
fn an_argument_that_may_change_what_a_line_does_keeps_patterns_off() {
    for (beside, want) in [
        (json!({"timeout": 5, "background": true, "yieldMs": 100, "workdir": "a"}), "allow"),
        (json!({"env": {"A": "1"}}), "ask"),
        (json!({"cmd": "id"}), "ask"),
        (json!({"workdir": ["a"]}), "ask"),
    ] {
        let mut arguments = json!({"command": "ls"});
        arguments.as_object_mut().unwrap().extend(beside.as_object().unwrap().clone());
        assert_eq!(judged(&["allow mac__Bash(ls*)"], &node(arguments)), want, "{beside}");
    }
}

#[test]
fn a_grant_by_pattern_covers_no_more_of_a_nodes_line_than_a_rule() {
    let mut world = PolicyFixture { posture: DefaultPolicy::Gateway, ..PolicyFixture::new(&[]) };
    world.grants = grant_set([grant(1, GrantCoverage::Pattern("mac__Bash(npm test*)".to_owned()))]);
    for (command, want) in [("npm test -- a", "allow"), ("npm test; rm x", "ask"), ("npm test $(id)", "ask")] {
        let call = node(json!({ "command": command }));
        assert_eq!(word(&world.judge(&call)), want, "{command}");
        assert_eq!(world.grants.covering_grant(&call, None, super::NOW).is_some(), want == "allow", "{command}");
    }
}

#[test]
fn what_is_offered_for_a_nodes_line_is_what_would_be_for_ours() {
    let offered = |call: &PolicySubject| -> Vec<String> {
        let patterns = propose_grants(call).into_iter().filter_map(|one| match one.covers {
            GrantCoverage::Pattern(pattern) => Some(pattern),
            GrantCoverage::Exact(_) => None,
        });
        patterns.collect()
    };
    for (command, want) in [
        ("git status", vec!["mac__Bash(git status*)"]),
        ("ls", vec!["mac__Bash(ls*)"]),
        ("ls; rm -rf ~", vec![]),
        ("sudo ls", vec![]),
        ("rm -r build", vec![]),
    ] {
        assert_eq!(offered(&node(json!({ "command": command }))), want, "{command}");
    }
    assert!(offered(&node(json!({}))).is_empty());
    assert!(offered(&perhaps(json!({"action": "poll", "sessionId": "s"}))).is_empty());
}

#[test]
fn a_pattern_covers_a_doubtful_call_only_while_it_is_one_plain_command() {
    let rules = ["allow mac__Process(*)"];
    for (arguments, want) in [
        (json!({"action": "poll", "sessionId": "s-1"}), "allow"),
        (json!({"action": "submit", "data": "ls -l"}), "allow"),
        (json!({"action": "submit", "data": "ls; id"}), "ask"),
        (json!({"action": "submit", "data": "ls\nid"}), "ask"),
        (json!({"action": "submit", "data": ["ls", "$(id)"]}), "ask"),
        (json!({"action": "submit", "data": {"line": "a & b"}}), "ask"),
        (json!({"action": "submit", "data": "rm -rf /"}), "floor"),
        (json!({"action": "submit", "data": "ls; rm -rf ~"}), "floor"),
    ] {
        assert_eq!(judged(&rules, &perhaps(arguments.clone())), want, "{arguments}");
    }
    let compound = perhaps(json!({"action": "submit", "data": "ls; id"}));
    assert_eq!(judged(&["allow *"], &compound), "allow");
    assert_eq!(judged(&["deny mac__Process(id*)", "allow *"], &compound), "deny");
    let mut world = PolicyFixture::new(&["ask *"]);
    world.grants = grant_set([grant(1, GrantCoverage::Exact(compound.digest()))]);
    assert_eq!(word(&world.judge(&compound)), "allow");
}

#[test]
fn a_hosts_shell_is_judged_where_we_are() {
    let host = |command: &str| PolicySubject {
        shell: line("cmd", ShellMachine::This),
        classes: [Class::HostToolInvoke].into(),
        ..subject("run_shell", json!({ "cmd": command }))
    };
    for (command, want) in [
        ("ls", "allow"),
        ("ls; make", "ask"),
        ("rm -rf ~", "floor"),
        ("cat /home/ana/.config/countersign/models.yml", "deny"),
        ("echo x > .countersign/permissions.yaml", "deny"),
    ] {
        assert_eq!(judged(&["allow run_shell(ls*)", "allow run_shell(cat *)"], &host(command)), want, "{command}");
    }
}

#[test]
fn a_contract_speaks_of_a_nodes_or_a_hosts_tool_as_that_and_not_of_its_line() {
    let mut world = PolicyFixture::new(&["allow *"]);
    let contract = |scopes: &[ContractScope], classes: &[Class]| Contract {
        scopes: scopes.iter().copied().collect(),
        classes: classes.iter().copied().collect(),
        ..Contract::default()
    };
    world.contract = Some(contract(&[ContractScope::HostTools], &[Class::HostToolInvoke]));
    assert_eq!(word(&world.judge(&node(json!({"command": "make"})))), "allow");
    assert_eq!(word(&world.judge(&node(json!({"command": "rm -rf /"})))), "floor");
    world.contract = Some(contract(&[ContractScope::Bash], &[Class::BashDestructive, Class::BashMutating]));
    let Verdict::Deny(why) = world.judge(&node(json!({"command": "ls"}))) else { panic!() };
    assert_eq!(
        why.cause,
        crate::policy::VerdictCause::Contract { lacks: ContractGap::Scope(ContractScope::HostTools) }
    );
}

#[test]
fn a_denial_of_a_nodes_line_binds_it_in_other_spelling() {
    let key = node(json!({"command": "rm -r build"})).constraint_key();
    assert_eq!(node(json!({"command": "rm  -r 'build'"})).constraint_key(), key);
    assert_ne!(node(json!({"command": "rm -r dist"})).constraint_key(), key);
    assert_ne!(super::bash("rm -r build").constraint_key(), key);
}

#[test]
fn no_rule_allows_a_nodes_interpreter_whole() {
    let source = |pattern: &str| {
        super::source(
            super::RuleLayer::Main,
            super::RuleSet { rules: vec![Rule::new(pattern, RuleAction::Allow)], defaults: Vec::new() },
        )
    };
    assert!(super::compile_rules(vec![source("mac__Bash(python*)")]).is_err());
    assert!(super::compile_rules(vec![source("mac__Bash(python x.py)")]).is_ok());
}
