//! Decisions of people, the same through every door: gates are answered, grants and denials revoked.
//!
//! It decides nothing itself: it finds the object of a decision and hands it to the engine.

use std::collections::BTreeMap;

use countersign_core::{
    digest::Digest,
    engine::{Command, Engine, EngineReply, ResidencyScope},
    gate::{self, GateReply},
    id::{GateId, PrincipalId},
    policy::{self, Constraint, Constraints, GrantId, GrantSet},
};
use countersign_runtime::{CommandSource, InboxLane, OwnerError, OwnerHandle};
use serde_json::{Value, json};

use crate::{GateRequest, GateRow, gate_row::pending_rows, time::format_iso};

/// Least characters of an id that select an object to answer or remove; views need fewer.
const LEAST: usize = 8;
/// Prefix of the id of a denial.
const DENIAL: &str = "denial_";

/// Answers a gate. A repeated key gets the first result.
///
/// # Errors
/// [`OwnerError`], with the gate as it was.
pub async fn answer_gate(
    source: &CommandSource,
    gate: GateId,
    answer: GateReply,
    by: &PrincipalId,
    key: Option<String>,
) -> Result<EngineReply, OwnerError> {
    let command = gate::Command::Answer { gate, answer, by: by.clone(), key };
    source.send_command(Command::Gate(command)).await.map(|reply| reply.outcome)
}

/// Revokes a grant or a denial, by its id. Returns the whole id.
///
/// # Errors
/// Text for the person if that failed.
pub async fn revoke_by_id(source: &CommandSource, id: &str, by: &PrincipalId) -> Result<String, String> {
    if id.starts_with(DENIAL) {
        let target = id.to_owned();
        let found = read_engine(source, move |engine| {
            let denials = engine.state().policy().constraints();
            let found = denials.iter().find(|one| denial_id(one) == target);
            found.map(|one| (one.principal.clone(), one.key, one.session.clone()))
        });
        let (principal, key, session) = found.await?.ok_or_else(|| {
            format!(
                "there is no denial {id}: `countersign grants denials` lists the active denials; nothing was revoked"
            )
        })?;
        send_command(source, Command::Lift { principal, key, session, by: by.clone() }).await?;
        return Ok(id.to_owned());
    }
    let grant = GrantId::parse(id).ok_or_else(|| {
        format!(
            "unknown id {id}: expected the id of a standing approval, as `countersign grants list` prints it, or of a \
                 denial, as `countersign grants denials` prints it; nothing was revoked"
        )
    })?;
    let known = read_engine(source, move |engine| engine.state().policy().grants().get(grant).is_some()).await?;
    if !known {
        return Err(format!(
            "there is no standing approval {id}: `countersign grants list` lists them; nothing was revoked"
        ));
    }
    send_command(source, Command::Revoke { grant, by: by.clone() }).await?;
    Ok(grant.to_string())
}

/// Reads something of the engine.
///
/// # Errors
/// The gateway is closing.
pub async fn read_engine<T: Send + 'static>(
    source: &CommandSource,
    read: impl FnOnce(&Engine) -> T + Send + 'static,
) -> Result<T, String> {
    source.read_state(read).await.map(|(value, _)| value).ok_or_else(|| "the gateway is closing".to_owned())
}

async fn send_command(source: &CommandSource, command: Command) -> Result<EngineReply, String> {
    source.send_command(command).await.map(|reply| reply.outcome).map_err(|refused| refused.to_string())
}

/// Checks that a part of an id, with or without its kind before it, is long enough to answer or remove an object: a shorter one
/// would sooner or later select an unintended object.
///
/// # Errors
/// Text for the person if it is too short.
pub fn check_id_length(id: &str) -> Result<(), String> {
    let given = ["gate_", "call_"].iter().find_map(|kind| id.strip_prefix(kind)).unwrap_or(id);
    if given.chars().count() >= LEAST {
        return Ok(());
    }
    Err(format!("{id} is too short for an id: give at least its last {LEAST} characters"))
}

/// Returns the pending gate whose id is, or ends with, `id`.
///
/// # Errors
/// Text for the person if there is none, or more than one.
pub fn find_pending(engine: &Engine, id: &str) -> Result<GateRow, String> {
    let suffix = id.strip_prefix("gate_").unwrap_or(id);
    if suffix.is_empty() {
        return Err("empty id of an approval: `countersign gates list` shows the pending approvals".to_owned());
    }
    let mut found = pending_rows(engine).into_iter().filter(|row| row.id.ends_with(suffix));
    match (found.next(), found.next()) {
        (Some(row), None) => Ok(row),
        (None, _) => Err(resolved_notice(engine, suffix)
            .unwrap_or_else(|| format!("there is no pending approval {id}; list them with `countersign gates list`"))),
        (Some(_), Some(_)) => Err(format!("the ids of several pending approvals end with {id}: give more characters")),
    }
}

/// Returns the outcome of the resolved gate whose id has this suffix. None if there is none in memory, or more than one.
fn resolved_notice(engine: &Engine, suffix: &str) -> Option<String> {
    check_id_length(suffix).ok()?;
    let mut found = engine.state().all_gates().filter(|gate| gate.id().to_string().ends_with(suffix));
    let (Some(gate), None) = (found.next(), found.next()) else { return None };
    resolution_notice(gate)
}

/// Returns the outcome of a resolved gate: the decider and the time. None for a pending one.
pub fn resolution_notice(gate: &gate::Gate) -> Option<String> {
    match gate.phase() {
        gate::GatePhase::Pending => None,
        gate::GatePhase::Resolved { resolution, by, at, .. } => {
            let by = by.as_ref().map_or_else(String::new, |by| format!(" by {by}"));
            let (id, resolved) = (gate.id(), crate::record::resolution_text(resolution));
            Some(format!("{id} is already resolved: {resolved}{by} at {}", format_iso(*at)))
        }
    }
}

/// Returns the id of a binding denial, as people see it.
pub fn denial_id(one: &Constraint) -> String {
    let mut text = format!("{} {}", one.principal, one.key);
    if let Some(session) = &one.session {
        text.push_str(&format!(" {session}"));
    }
    let digest = Digest::hash_bytes(text.as_bytes()).to_string();
    format!("{DENIAL}{}", digest.get(..16).unwrap_or(&digest))
}

/// Most characters shown of a denied call.
const COVERED: usize = 400;

/// Returns the calls that a denial covers, by the content of its gate.
pub fn covered_text(content: &str) -> Option<String> {
    let request = GateRequest::from_record(content)?;
    let signature = request.call()?.signature;
    Some(if signature.chars().count() > COVERED {
        signature.chars().take(COVERED).chain(['…']).collect()
    } else {
        signature.to_owned()
    })
}

/// Returns the calls that the denials of these constraints cover, by the gate of each: content that was removed from the record
/// is missing.
pub async fn all_covered(handle: &OwnerHandle, gates: Vec<GateId>) -> BTreeMap<GateId, String> {
    let source = handle.source(InboxLane::Result);
    let mut found = BTreeMap::new();
    for id in gates {
        let at = source
            .read_of(ResidencyScope::Gate(id), move |engine| engine.state().gate(id).map(gate::Gate::content_lsn))
            .await;
        let Some(at) = at.and_then(|(at, _)| at) else { continue };
        let texts = handle.contents().get(&[at]).await.unwrap_or_default();
        if let Some(text) = texts.into_iter().flatten().next().and_then(|text| covered_text(&text)) {
            found.insert(id, text);
        }
    }
    found
}

/// Returns every binding denial, as the command line shows it. `covers` has the covered calls of each, by its gate.
pub fn denials_json(constraints: &Constraints, covers: &BTreeMap<GateId, String>) -> Value {
    let rows = constraints.iter().map(|one| {
        let covers = one.gate.and_then(|gate| covers.get(&gate));
        json!({
            "covers": covers.unwrap_or(&one.tool),
            "id": denial_id(one),
            "to": one.principal.to_string(),
            "session": one.session.as_ref().map(ToString::to_string),
            "by": one.by.to_string(),
            "tool": one.tool,
            "reason": one.reason,
            "until": format_iso(one.until),
        })
    });
    rows.collect()
}

/// Returns every grant as the command line shows it.
pub fn grants_json(grants: &GrantSet) -> Value {
    let rows: Vec<Value> = grants
        .iter()
        .map(|grant| {
            let (scope, session, realm) = match &grant.scope {
                policy::GrantReach::Session(session) => ("session", Some(session.to_string()), None),
                policy::GrantReach::Always => ("always", None, None),
                policy::GrantReach::Realm(realm) => ("always", None, Some(realm)),
            };
            json!({
                "id": grant.id.to_string(),
                "to": grant.to.to_string(),
                "by": grant.by.to_string(),
                "scope": scope,
                "session": session,
                "realm": realm,
                "covers": grant.label,
                "until": grant.until.map(format_iso),
                "door": grant.door,
            })
        })
        .collect();
    Value::Array(rows)
}

#[cfg(test)]
mod tests {
    use super::check_id_length;

    #[test]
    fn an_answer_takes_eight_characters_of_an_id() {
        for id in ["", "1", "1234567", "gate_", "gate_1", "gate_1234567", "call_1234567"] {
            assert!(check_id_length(id).is_err_and(|why| why.contains("at least its last 8")), "{id}");
        }
        for id in ["12345678", "gate_12345678", "call_0193f1b0000070008000000000000001"] {
            assert_eq!(check_id_length(id), Ok(()), "{id}");
        }
    }
}
