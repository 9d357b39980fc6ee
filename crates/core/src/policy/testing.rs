//! Subjects and grants for the tests of this module.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::{EffectReach, Grant, GrantAuth, GrantCoverage, GrantId, GrantReach, GrantSet, PolicySubject};
use crate::{
    digest::{Digest, canonical_json},
    id::{PrincipalId, SessionId},
    tool::{ShellInput, ToolEffect},
};

pub(crate) fn subject(tool: &str, arguments: Value) -> PolicySubject {
    let arguments: Map<String, Value> = arguments.as_object().unwrap().clone();
    PolicySubject {
        principal: PrincipalId::new("agent:pi"),
        door: None,
        target: None,
        session: SessionId::new("s1"),
        tool: tool.to_owned(),
        signature: super::signature::undeclared_signatures(tool, &arguments).unwrap().remove(0),
        further_signatures: Vec::new(),
        named: Vec::new(),
        undeclared: Vec::new(),
        arguments_digest: Digest::hash_bytes(canonical_json(&Value::Object(arguments.clone())).as_bytes()),
        arguments,
        effect: ToolEffect::Changes,
        reach: EffectReach::Beyond,
        cwd: "/home/ana/project".to_owned(),
        session_folder: None,
        is_later: false,
        leads_to: None,
        paths: Vec::new(),
        shell: ShellInput::of_own(tool),
        classes: BTreeSet::new(),
    }
}

pub(crate) fn bash(command: &str) -> PolicySubject {
    PolicySubject {
        named: vec!["command".to_owned()],
        reach: EffectReach::Files,
        ..subject("bash", json!({ "command": command }))
    }
}

pub(crate) fn grant(number: u128, covers: GrantCoverage) -> Grant {
    Grant {
        id: GrantId::new(Uuid::from_u128(number)),
        by: PrincipalId::new("person:ana"),
        to: PrincipalId::new("agent:pi"),
        scope: GrantReach::Always,
        covers,
        label: "this".to_owned(),
        until: None,
        door: GrantAuth::Authenticated,
    }
}

pub(crate) fn grant_set(given: impl IntoIterator<Item = Grant>) -> GrantSet {
    let mut grants = GrantSet::default();
    given.into_iter().for_each(|grant| grants.add(grant));
    grants
}
