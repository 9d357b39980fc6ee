//! Lists of a server: page after page, within bounds.
//!
//! It must not know what is listed.

use std::collections::BTreeSet;

use rmcp::model::{ClientRequest, PaginatedRequestParams, ServerResult};
use serde_json::Value;

use crate::{
    connection::{Connection, RequestFailure, RequestWait},
    definition::ServerDefinition,
    error::McpError,
};

/// A list that is to be read.
pub(crate) struct PageRequest {
    /// Method of the request.
    pub(crate) method: &'static str,
    /// Member of the answer that holds the entries.
    pub(crate) member: &'static str,
    /// Makes the request of a page.
    pub(crate) request: fn(Option<PaginatedRequestParams>) -> ClientRequest,
}

/// Reads all entries of a list within the time limit of one request.
///
/// # Errors
/// [`McpError::TooMuch`] if it goes beyond the limits, and the failures of a request.
pub(crate) async fn read_entries(
    connection: &Connection,
    definition: &ServerDefinition,
    list: &PageRequest,
) -> Result<Vec<Value>, McpError> {
    let limit = definition.request_timeout;
    let server = || definition.name.clone();
    let late = |_| McpError::Lost {
        server: server(),
        request: list.method,
        reason: format!("its list was not complete within {} s", limit.as_secs()),
    };
    tokio::time::timeout(limit, read_all_pages(connection, definition, list)).await.map_err(late)?
}

async fn read_all_pages(
    connection: &Connection,
    definition: &ServerDefinition,
    list: &PageRequest,
) -> Result<Vec<Value>, McpError> {
    let limits = *connection.monitor().limits();
    let server = || definition.name.clone();
    let invalid =
        |reason: &str| McpError::Invalid { server: server(), request: list.method, reason: reason.to_owned() };
    let too_much = |limit, unit| McpError::TooMuch { server: server(), limit, unit };
    let (mut entries, mut bytes) = (Vec::new(), 0);
    let (mut cursor, mut cursors): (Option<String>, BTreeSet<String>) = (None, BTreeSet::new());
    for _ in 0..limits.pages {
        let params = cursor.take().map(|cursor| PaginatedRequestParams::default().with_cursor(Some(cursor)));
        let wait = RequestWait::with_limit(definition.request_timeout);
        let answer = connection.request((list.request)(params), wait).await;
        let answer = answer.map_err(|failure| request_error(definition, list.method, failure))?;
        let mut page = answer_value(answer);
        let Some(Value::Array(listed)) = page.get_mut(list.member).map(Value::take) else {
            return Err(invalid(&format!("it has no list {:?}", list.member)));
        };
        for entry in listed {
            bytes += entry.to_string().len();
            if bytes > limits.listing {
                return Err(too_much(limits.listing, "bytes"));
            }
            entries.push(entry);
            if entries.len() > limits.entries {
                return Err(too_much(limits.entries, "entries"));
            }
        }
        match page.get_mut("nextCursor").map(Value::take) {
            None | Some(Value::Null) => return Ok(entries),
            Some(Value::String(next)) if cursors.insert(next.clone()) => cursor = Some(next),
            Some(Value::String(_)) => return Err(invalid("a cursor of its pages comes twice")),
            Some(_) => return Err(invalid("a cursor of its pages is no text")),
        }
    }
    Err(too_much(limits.pages, "pages"))
}

/// Returns an answer as JSON. One with a part of an unknown form comes as it was sent.
fn answer_value(answer: ServerResult) -> Value {
    match answer {
        ServerResult::CustomResult(custom) => custom.0,
        known => serde_json::to_value(known).unwrap_or_default(),
    }
}

/// Returns the error of a request other than a call.
pub(crate) fn request_error(definition: &ServerDefinition, request: &'static str, failure: RequestFailure) -> McpError {
    let server = definition.name.clone();
    match failure {
        RequestFailure::Refused(reason) => McpError::Refused { server, request, reason },
        RequestFailure::NotSent(reason) => McpError::NotSent { server, request, reason },
        RequestFailure::Lost(reason) => McpError::Lost { server, request, reason },
    }
}
