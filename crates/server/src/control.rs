//! The local socket of a running gateway: how the command line lists gates, answers them, and lists and revokes grants.
//!
//! One JSON object a line in each direction. Only the user whose gateway it is can open it.

mod gates;
mod socket;

use std::time::Duration;

use countersign_core::{
    digest::Digest,
    engine::{Command, Engine, Reply},
    gate::{self, Answer, Scope},
    id::{GateId, PrincipalId},
    policy::{self, Constraint, Constraints, GrantId, Grants},
};
use countersign_runtime::{Handle, Lane, Refused};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::session_file::time::iso;

pub(crate) use gates::row_of;
pub use gates::{Approvals, Row, pending, row};
pub(crate) use socket::principal;
pub use socket::{Control, FILE};

/// What can be asked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "snake_case")]
pub enum Request {
    /// Every gate that waits.
    Gates,
    /// One gate, by its id or the end of it.
    Gate {
        /// Which.
        id: String,
    },
    /// Every gate that waits, again after each change.
    Watch,
    /// Lets what a gate decides happen.
    Allow {
        /// Which gate.
        id: String,
        /// How far that reaches.
        scope: Scope,
        /// One of the rules that are proposed for it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        rule: Option<String>,
        /// How long it lasts, in seconds.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        lasts: Option<u64>,
    },
    /// Does not let it happen.
    Deny {
        /// Which gate.
        id: String,
        /// What the agent is told.
        reason: Option<String>,
    },
    /// Every grant in force.
    Grants,
    /// Every denial that binds.
    Denials,
    /// Takes a grant or a denial back.
    Revoke {
        /// Which.
        id: String,
    },
}

/// What is answered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answered {
    /// What was asked for.
    Ok(Value),
    /// Why there is none.
    Error(String),
}

/// Answers one request.
pub(crate) async fn answer(handle: &Handle, request: Request, by: &PrincipalId) -> Answered {
    match decide(handle, request, by).await {
        Ok(value) => Answered::Ok(value),
        Err(problem) => Answered::Error(problem),
    }
}

async fn decide(handle: &Handle, request: Request, by: &PrincipalId) -> Result<Value, String> {
    let source = handle.source(Lane::Result);
    match request {
        Request::Gates | Request::Watch => read(&source, |engine| json!(pending(engine))).await,
        Request::Gate { id } => read(&source, move |engine| find(engine, &id).map(|row| json!(row))).await?,
        Request::Allow { id, scope: Scope::Once, rule: None, lasts: None } => {
            resolve(&source, &id, Answer::Allow(Scope::Once), by).await
        }
        Request::Allow { id, scope, rule, lasts } => {
            let grant = gate::Grant { scope, pattern: rule, lasts: lasts.map(Duration::from_secs) };
            resolve(&source, &id, Answer::Grant(grant), by).await
        }
        Request::Deny { id, reason } => resolve(&source, &id, Answer::Deny { reason }, by).await,
        Request::Grants => read(&source, |engine| listed(engine.state().policy().grants())).await,
        Request::Denials => read(&source, |engine| denials(engine.state().policy().constraints())).await,
        Request::Revoke { id } if id.starts_with(DENIAL) => {
            let wanted = id.clone();
            let found = read(&source, move |engine| {
                let denials = engine.state().policy().constraints();
                let found = denials.iter().find(|one| denial(one) == wanted);
                found.map(|one| (one.principal.clone(), one.key))
            });
            let (principal, key) = found.await?.ok_or_else(|| format!("there is no denial {id}"))?;
            ask(&source, Command::Lift { principal, key, by: by.clone() }).await?;
            Ok(json!({ "revoked": id }))
        }
        Request::Revoke { id } => {
            let grant = GrantId::parse(&id).ok_or_else(|| format!("{id} is no id of a grant"))?;
            let known = read(&source, move |engine| engine.state().policy().grants().get(grant).is_some()).await?;
            if !known {
                return Err(format!("there is no grant {id}"));
            }
            ask(&source, Command::Revoke { grant, by: by.clone() }).await?;
            Ok(json!({ "revoked": grant.to_string() }))
        }
    }
}

async fn read<T: Send + 'static>(
    source: &countersign_runtime::Source,
    read: impl FnOnce(&Engine) -> T + Send + 'static,
) -> Result<T, String> {
    source.read(read).await.map(|(value, _)| value).ok_or_else(|| "the gateway is closing".to_owned())
}

async fn ask(source: &countersign_runtime::Source, command: Command) -> Result<Reply, String> {
    match source.ask(command).await {
        Ok(reply) => Ok(reply.outcome),
        Err(Refused::Refusal(refusal)) => Err(refusal.to_string()),
        Err(refused) => Err(refused.to_string()),
    }
}

async fn resolve(
    source: &countersign_runtime::Source,
    id: &str,
    answer: Answer,
    by: &PrincipalId,
) -> Result<Value, String> {
    enough(id)?;
    let wanted = id.to_owned();
    let row = read(source, move |engine| find(engine, &wanted)).await?;
    // A gate that was resolved a while ago is found by its whole id only; the engine says what became of it.
    let gate = match row {
        Ok(row) => row.id,
        Err(problem) => GateId::parse(id).map(|gate| gate.to_string()).ok_or(problem)?,
    };
    let gate = GateId::parse(&gate).ok_or_else(|| format!("{id} is no id of a gate"))?;
    let told = ask(source, Command::Gate(gate::Command::Answer { gate, answer, by: by.clone(), key: None })).await?;
    Ok(match told {
        Reply::Voted { have, need } => json!({ "id": gate.to_string(), "have": have, "need": need }),
        _ => json!({ "id": gate.to_string() }),
    })
}

/// How many characters of an id name what is answered or removed; looking at it takes fewer.
const LEAST: usize = 8;

/// Whether so much of an id, with or without its kind before it, is enough to answer or remove what it names: less of
/// it would sooner or later name what nobody meant.
///
/// # Errors
/// What to say where it is not.
pub fn enough(id: &str) -> Result<(), String> {
    let given = ["gate_", "call_"].iter().find_map(|kind| id.strip_prefix(kind)).unwrap_or(id);
    if given.chars().count() >= LEAST {
        return Ok(());
    }
    Err(format!("{id} is too little of an id: give at least its last {LEAST} characters"))
}

/// The pending gate whose id is, or ends with, `id`.
///
/// # Errors
/// What to say where there is none, or more than one.
pub fn find(engine: &Engine, id: &str) -> Result<Row, String> {
    let wanted = id.strip_prefix("gate_").unwrap_or(id);
    let mut found = pending(engine).into_iter().filter(|row| !wanted.is_empty() && row.id.ends_with(wanted));
    match (found.next(), found.next()) {
        (Some(row), None) => Ok(row),
        (None, _) => Err(format!("no gate {id} waits")),
        (Some(_), Some(_)) => Err(format!("more than one gate ends with {id}; give more of its id")),
    }
}

/// How the id of a denial begins.
const DENIAL: &str = "denial_";

/// What the command line calls a denial that binds.
fn denial(one: &Constraint) -> String {
    let text = format!("{} {}", one.principal, one.key);
    let digest = Digest::of(text.as_bytes()).to_string();
    format!("{DENIAL}{}", digest.get(..16).unwrap_or(&digest))
}

/// Every denial that binds, as the command line shows it.
pub fn denials(constraints: &Constraints) -> Value {
    let rows = constraints.iter().map(|one| {
        json!({
            "id": denial(one),
            "to": one.principal.to_string(),
            "by": one.by.to_string(),
            "tool": one.tool,
            "reason": one.reason,
            "until": iso(one.until),
        })
    });
    rows.collect()
}

/// Every grant as the command line shows it.
pub fn listed(grants: &Grants) -> Value {
    let rows: Vec<Value> = grants
        .iter()
        .map(|grant| {
            let (scope, session) = match &grant.scope {
                policy::Scope::Session(session) => ("session", Some(session.to_string())),
                policy::Scope::Always => ("always", None),
            };
            json!({
                "id": grant.id.to_string(),
                "to": grant.to.to_string(),
                "by": grant.by.to_string(),
                "scope": scope,
                "session": session,
                "covers": grant.label,
                "until": grant.until.map(iso),
                "door": grant.door,
            })
        })
        .collect();
    Value::Array(rows)
}

#[cfg(test)]
mod tests {
    use super::enough;

    #[test]
    fn an_answer_takes_eight_characters_of_an_id() {
        for id in ["", "1", "1234567", "gate_", "gate_1", "gate_1234567", "call_1234567"] {
            assert!(enough(id).is_err_and(|why| why.contains("at least its last 8")), "{id}");
        }
        for id in ["12345678", "gate_12345678", "call_0193f1b0000070008000000000000001"] {
            assert_eq!(enough(id), Ok(()), "{id}");
        }
    }
}
