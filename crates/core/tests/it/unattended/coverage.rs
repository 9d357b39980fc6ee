use std::collections::BTreeSet;

use countersign_core::{
    message::StopReason,
    policy::{Class, Contract, ContractScope},
    session::WhenBusy,
    unattended::ContractTerms,
};

use super::{terms, under};
use crate::engine_fixture::{EngineFixture, EngineOutcome, open_rules, tool_call};

fn may(scopes: &[ContractScope], classes: &[Class]) -> ContractTerms {
    let (scopes, classes) = (scopes.iter().copied().collect(), classes.iter().copied().collect());
    ContractTerms {
        may: Contract { scopes, commands: BTreeSet::new(), classes, tools: None, servers: false },
        ..terms()
    }
}

fn wants(terms: ContractTerms, tool: &str, argument: &str) -> (EngineFixture, EngineOutcome) {
    let mut stage = under(terms, open_rules());
    stage.send_prompt(WhenBusy::Refuse);
    let outcome = stage.answer(StopReason::ToolUse, vec![tool_call(tool, argument)], None);
    (stage, outcome)
}

#[test]
fn what_the_agent_itself_does_is_held_to_the_contract() {
    for (terms, tool, argument, want) in [
        (may(&[], &[]), "read", "a", None),
        (may(&[], &[]), "grep", "a", None),
        (may(&[], &[]), "todo_write", "a", None),
        (may(&[], &[]), "write", "a", Some("action file.write")),
        (may(&[], &[]), "edit", "a", Some("action file.write")),
        (may(&[], &[Class::FileWrite]), "write", "a", None),
        (may(&[], &[Class::BashReadonly]), "bash", "ls", Some("scope bash")),
        (may(&[ContractScope::Bash], &[]), "bash", "ls", Some("action bash.readonly")),
        (may(&[ContractScope::Bash], &[Class::BashReadonly]), "bash", "ls", None),
        (may(&[ContractScope::Bash], &[Class::BashMutating]), "bash", "bash -c 'rm x'", Some("action file.delete")),
        (may(&[ContractScope::Bash], &[Class::BashMutating]), "bash", "eval rm x", Some("action file.delete")),
        (
            may(&[ContractScope::Bash], &[Class::BashMutating]),
            "bash",
            "git push origin :x",
            Some("action git.force_push"),
        ),
        (may(&[ContractScope::Bash], &[Class::BashMutating]), "bash", "curl x | sh", Some("action bash.destructive")),
    ] {
        let (stage, outcome) = wants(terms, tool, argument);
        let is_denied = outcome.0.iter().any(|fact| fact == "unattended denied");
        assert_eq!(is_denied, want.is_some(), "{tool} {argument}: {outcome:?}");
        match want {
            Some(lacks) => {
                let text = format!("Denied by policy: because the unattended contract does not cover {lacks}");
                assert_eq!(stage.last_result(), text);
            }
            None => assert!(outcome.0.iter().any(|fact| fact == "call started"), "{tool} {argument}: {outcome:?}"),
        }
    }
}

#[test]
fn deleting_below_a_temporary_folder_is_what_it_is_anywhere() {
    let mut rules = open_rules();
    rules.path_context.temporary = vec!["/tmp".to_owned()];
    let mut stage = under(may(&[ContractScope::Bash], &[Class::FileDelete]), rules);
    stage.send_prompt(WhenBusy::Refuse);
    stage.request_calls([tool_call("bash", "rm -rf /tmp/x")]);
    let text = "Denied by policy: because the unattended contract does not cover action bash.destructive";
    assert_eq!(stage.last_result(), text);
}

#[test]
fn a_contract_allows_nothing_that_policy_asks_about() {
    let mut stage = under(may(&[], &[Class::FileWrite]), crate::engine_fixture::asking_rules());
    stage.send_prompt(WhenBusy::Refuse);
    stage.request_calls([tool_call("write", "a")]);
    assert_eq!(stage.engine.state().pending_gates().count(), 1);
}
