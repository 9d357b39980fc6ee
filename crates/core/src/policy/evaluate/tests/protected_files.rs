//! Files that no tool may change, under any argument of a call of another program.

use serde_json::{Value, json};

use super::{PolicyFixture, word};
use crate::policy::{EffectReach, PolicySubject, testing::subject};

const RULES: &str = "/home/ana/project/.countersign/permissions.yaml";

fn judge_at(reach: EffectReach, arguments: Value) -> &'static str {
    let call = PolicySubject { signature: "mcp__fs__x".to_owned(), reach, ..subject("mcp__fs__x", arguments) };
    word(&PolicyFixture::new(&["allow mcp__*"]).judge(&call))
}

fn judge(arguments: Value) -> &'static str {
    judge_at(EffectReach::Beyond, arguments)
}

#[test]
fn a_protected_file_is_found_under_any_argument_and_in_any_spelling() {
    for arguments in [
        json!({"path": RULES}),
        json!({"paths": ["a", RULES]}),
        json!({"edits": [{"path": RULES, "old_text": "x"}]}),
        json!({"source": "/tmp/x", "destination": RULES}),
        json!({"options": {"to": [[RULES]]}}),
        json!({"file_uri": format!("file://{RULES}")}),
        json!({"uri": format!("FILE://localhost{RULES}")}),
        json!({"uri": "file:///home/ana/project/%2Ecountersign/permissions%2Eyaml"}),
        json!({"to": "%2Ecountersign/permissions.yaml"}),
        json!({"to": " .countersign/../.countersign/permissions.yaml "}),
        json!({"to": "~/project/.countersign/permissions.yaml"}),
        json!({"file_text": RULES}),
    ] {
        assert_eq!(judge(arguments.clone()), "deny", "{arguments}");
        assert_eq!(judge_at(EffectReach::Files, arguments.clone()), "deny", "in an own session: {arguments}");
    }
}

#[test]
fn text_that_is_no_path_and_paths_of_other_files_change_nothing() {
    for arguments in [
        json!({"content": RULES}),
        json!({"edits": [{"path": "src/a", "new_text": RULES}]}),
        json!({"note": format!("see\n{RULES}")}),
        json!({"to": "/srv/countersign/database"}),
        json!({"to": "", "count": 5, "url": "https://example.org/countersign"}),
    ] {
        assert_eq!(judge(arguments.clone()), "allow", "{arguments}");
    }
}

#[test]
fn the_target_of_a_link_is_protected_as_its_own_path_is() {
    let call = PolicySubject {
        reach: EffectReach::Files,
        paths: vec!["link/x".to_owned()],
        leads_to: Some("/srv/countersign/data/x".to_owned()),
        ..subject("write", json!({"path": "link/x"}))
    };
    assert_eq!(word(&PolicyFixture::new(&["allow *"]).judge(&call)), "deny");
}
