//! The local socket of a running gateway: how the command line lists gates, answers them, and lists and revokes grants.
//!
//! One JSON object a line in each direction. Only the user whose gateway it is can open it.

mod gates;
mod socket;

use countersign_core::{
    engine::{Command, Engine},
    gate::{self, Answer, Scope},
    id::{GateId, PrincipalId},
    policy::{self, GrantId, Grants},
};
use countersign_runtime::{Handle, Lane, Refused};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::session_file::time::iso;

pub use gates::{Row, pending, row};
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
    /// Takes a grant back.
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
        Request::Allow { id, scope } => resolve(&source, &id, Answer::Allow(scope), by).await,
        Request::Deny { id, reason } => resolve(&source, &id, Answer::Deny { reason }, by).await,
        Request::Grants => read(&source, |engine| listed(engine.state().policy().grants())).await,
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

async fn ask(
    source: &countersign_runtime::Source,
    command: Command,
) -> Result<countersign_core::engine::Reply, String> {
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
    let wanted = id.to_owned();
    let row = read(source, move |engine| find(engine, &wanted)).await?;
    // A gate that was resolved a while ago is found by its whole id only; the engine says what became of it.
    let gate = match row {
        Ok(row) => row.id,
        Err(problem) => GateId::parse(id).map(|gate| gate.to_string()).ok_or(problem)?,
    };
    let gate = GateId::parse(&gate).ok_or_else(|| format!("{id} is no id of a gate"))?;
    ask(source, Command::Gate(gate::Command::Answer { gate, answer, by: by.clone(), key: None })).await?;
    Ok(json!({ "id": gate.to_string() }))
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
