//! The interface as programs read it: OpenAPI 3.1, made of the table of routes, so that who may call what is never told
//! otherwise than it is.

use axum::response::Response;
use countersign_http::{
    reply,
    web::{
        Who,
        access::{Effect, TABLE},
    },
};
use serde_json::{Value, json};

use super::ROOT;

/// What is sent and answered, by name.
const SCHEMAS: &str = include_str!("openapi/schemas.json");

/// What the table of routes does not say of one.
struct Operation {
    route: (&'static str, &'static str),
    name: &'static str,
    summary: &'static str,
    query: &'static [(&'static str, &'static str)],
    /// The schema of the body.
    body: Option<&'static str>,
    /// Status and schema where all goes well.
    replies: &'static [(&'static str, &'static str)],
}

const GATE: (&str, &str) = ("200", "Resolved");
const VOTED: (&str, &str) = ("202", "Voted");

/// What is said under a key is said once.
const SAYING: [&str; 3] = ["openSession", "sayInSession", "steerSession"];

const OPERATIONS: &[Operation] = &[
    Operation {
        route: ("GET", "/api/v1/gates"),
        name: "listGates",
        summary: "What waits for people, oldest first",
        query: &[
            ("door", "Of this door"),
            ("session", "Of this session; an agent's is agent:ID"),
            ("kind", "approval, question, plan, execution, pairing or budget"),
            ("tool", "About this tool"),
        ],
        body: None,
        replies: &[("200", "Gates")],
    },
    Operation {
        route: ("GET", "/api/v1/gates/{id}"),
        name: "getGate",
        summary: "One gate by its id, or one that waits by the end of it",
        query: &[],
        body: None,
        replies: &[("200", "Gate")],
    },
    Operation {
        route: ("POST", "/api/v1/gates/{id}/allow"),
        name: "allowGate",
        summary: "Lets what a gate decides happen",
        query: &[],
        body: Some("Allow"),
        replies: &[GATE, VOTED],
    },
    Operation {
        route: ("POST", "/api/v1/gates/{id}/deny"),
        name: "denyGate",
        summary: "Does not let it happen, or declines a question",
        query: &[],
        body: Some("Deny"),
        replies: &[GATE],
    },
    Operation {
        route: ("POST", "/api/v1/gates/{id}/answer"),
        name: "answerGate",
        summary: "Answers a question",
        query: &[],
        body: Some("Answer"),
        replies: &[GATE],
    },
    Operation {
        route: ("GET", "/api/v1/sessions"),
        name: "listSessions",
        summary: "All sessions, the one in which something was said last first",
        query: &[
            ("door", "Opened through this door"),
            ("after", "Where the page before ended: its next"),
            ("limit", "How many, 1 to 1000; 100 if absent"),
        ],
        body: None,
        replies: &[("200", "Sessions")],
    },
    Operation {
        route: ("POST", "/api/v1/sessions"),
        name: "openSession",
        summary: "Opens a session, and says something in it if there is a message",
        query: &[],
        body: Some("Open"),
        replies: &[("201", "Opened")],
    },
    Operation {
        route: ("GET", "/api/v1/sessions/{id}"),
        name: "getSession",
        summary: "One session with the newest part of its conversation, or the part before an entry",
        query: &[
            ("before", "The entry that follows the page: earlier of the page before"),
            ("limit", "How many entries, 1 to 200; 50 if absent"),
        ],
        body: None,
        replies: &[("200", "Conversation")],
    },
    Operation {
        route: ("POST", "/api/v1/sessions/{id}/messages"),
        name: "sayInSession",
        summary: "Says something, which a run works on",
        query: &[],
        body: Some("Say"),
        replies: &[("202", "Started")],
    },
    Operation {
        route: ("POST", "/api/v1/sessions/{id}/steer"),
        name: "steerSession",
        summary: "Gives the run that works a message on its way",
        query: &[],
        body: Some("Steer"),
        replies: &[("202", "Steered")],
    },
    Operation {
        route: ("POST", "/api/v1/sessions/{id}/stop"),
        name: "stopSession",
        summary: "Stops the run that works, if one does",
        query: &[],
        body: None,
        replies: &[("200", "Stopped")],
    },
    Operation {
        route: ("GET", "/api/v1/events"),
        name: "followEvents",
        summary: "Everything that happens, as server-sent events that can be taken up wherever they were left",
        query: &[
            ("after", "The id of an event, start, or now; now if absent. Last-Event-ID goes before it"),
            ("content", "1: with the texts of facts"),
            ("live", "1: with what models and tools say while they say it, without ids"),
        ],
        body: None,
        replies: &[("200", "Event")],
    },
    Operation {
        route: ("GET", "/api/v1/audit"),
        name: "listRecord",
        summary: "Entries of the record, oldest first",
        query: &[
            ("after", "A cursor; from the beginning if absent"),
            ("last", "In its place: how many entries before the end to begin at"),
            ("limit", "How many, 1 to 1000; 100 if absent"),
            ("since", "From this time on: 2026-11-21, 2026-11-21T20:00Z, or 90s, 30m, 12h, 7d ago"),
            ("until", "Before this time"),
            ("session", "Of this session"),
            ("agent", "Of this agent"),
            ("tool", "About any of these tools"),
            ("kind", "Of any of these kinds"),
            ("outcome", "That say any of these outcomes"),
            ("about", "About this call or gate, by its id or the end of it"),
        ],
        body: None,
        replies: &[("200", "Entries")],
    },
    Operation {
        route: ("GET", "/api/v1/audit/head"),
        name: "getHead",
        summary: "The last record and the digest of everything up to it",
        query: &[],
        body: None,
        replies: &[("200", "Head")],
    },
    Operation {
        route: ("GET", "/api/v1/audit/verify"),
        name: "verifyRecord",
        summary: "Walks along the whole chain and names the first thing that does not fit",
        query: &[("head", "A head of before, which the record must still hold")],
        body: None,
        replies: &[("200", "Verified")],
    },
    Operation {
        route: ("GET", "/api/v1/audit/{lsn}"),
        name: "getRecord",
        summary: "One record with its text",
        query: &[],
        body: None,
        replies: &[("200", "Record")],
    },
    Operation {
        route: ("POST", "/api/v1/policy/explain"),
        name: "explain",
        summary: "What would become of an agent's request, which rule decides that, and which nearly did",
        query: &[],
        body: Some("Explain"),
        replies: &[("200", "Explained")],
    },
    Operation {
        route: ("GET", "/api/v1/openapi.json"),
        name: "getInterface",
        summary: "This document",
        query: &[],
        body: None,
        replies: &[("200", "Interface")],
    },
];

/// `GET /api/v1/openapi.json`.
pub(super) async fn document() -> Response {
    reply::ok(&whole())
}

fn whole() -> Value {
    let schemas: Value = serde_json::from_str(SCHEMAS).unwrap_or_default();
    let mut paths = json!({});
    for (method, path, who, effect) in TABLE.iter().filter(|row| row.1.starts_with(ROOT)) {
        if let Some(operation) = OPERATIONS.iter().find(|one| one.route == (method, path)) {
            paths[*path][method.to_ascii_lowercase()] = told(operation, *who, *effect);
        }
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Countersign",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "What waits for people, sessions, everything that happens, and the record. Tokens are made with `countersign tokens add NAME --scope read,answer`.",
            "license": { "name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0" },
        },
        "servers": [{ "url": "/" }],
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {
                "token": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "A token of `countersign tokens`, with the scope that the operation names",
                },
                "cookie": {
                    "type": "apiKey",
                    "in": "cookie",
                    "name": countersign_http::web::auth::COOKIE,
                    "description": "Of a person who logged in. Pages also send X-CSRF-Token with whatever acts",
                },
            },
        },
    })
}

fn told(operation: &Operation, who: Who, effect: Effect) -> Value {
    let security = match who {
        Who::Anybody => json!([]),
        Who::Person => json!([{ "cookie": [] }]),
        Who::Scope(scope) => json!([{ "token": [scope.word()] }, { "cookie": [] }]),
    };
    let mut parameters: Vec<Value> = ["id", "lsn"]
        .iter()
        .filter(|name| operation.route.1.contains(&format!("{{{name}}}")))
        .map(|name| json!({ "name": name, "in": "path", "required": true, "schema": { "type": "string" } }))
        .collect();
    parameters.extend(operation.query.iter().map(|(name, description)| {
        json!({ "name": name, "in": "query", "description": description, "schema": { "type": "string" } })
    }));
    if operation.replies.contains(&GATE) || SAYING.contains(&operation.name) {
        parameters.push(json!({
            "name": "Idempotency-Key",
            "in": "header",
            "description": "The same of the same caller again has one effect and gets the first result",
            "schema": { "type": "string", "maxLength": 200 },
        }));
    }
    let of = |schema: &str| json!({ "$ref": format!("#/components/schemas/{schema}") });
    let mut replies = json!({
        "default": {
            "description": "What went wrong",
            "content": { "application/problem+json": { "schema": of("Problem") } },
        },
    });
    for (status, schema) in operation.replies {
        let kind = if *schema == "Event" { "text/event-stream" } else { "application/json" };
        replies[*status] = json!({ "description": schema, "content": { kind: { "schema": of(schema) } } });
    }
    let mut told = json!({
        "operationId": operation.name,
        "summary": operation.summary,
        "security": security,
        "parameters": parameters,
        "responses": replies,
    });
    if let Who::Scope(scope) = who {
        told["x-scope"] = json!(scope);
    }
    if let (Some(body), Effect::Acts) = (operation.body, effect) {
        told["requestBody"] = json!({ "content": { "application/json": { "schema": of(body) } } });
    }
    told
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{OPERATIONS, ROOT, SCHEMAS, TABLE, whole};
    use serde_json::Value;

    #[test]
    fn every_route_has_its_entry_and_every_entry_its_route() {
        let routes: BTreeSet<_> =
            TABLE.iter().filter(|row| row.1.starts_with(ROOT)).map(|row| (row.0, row.1)).collect();
        let entries: Vec<_> = OPERATIONS.iter().map(|one| one.route).collect();
        assert_eq!(entries.iter().copied().collect::<BTreeSet<_>>(), routes);
        assert_eq!(entries.len(), routes.len(), "none stands twice");
        let names: BTreeSet<_> = OPERATIONS.iter().map(|one| one.name).collect();
        assert_eq!(names.len(), OPERATIONS.len());
        let told = whole();
        let paths = told["paths"].as_object().unwrap();
        assert_eq!(paths.values().map(|path| path.as_object().unwrap().len()).sum::<usize>(), routes.len());
        assert_eq!(told["paths"]["/api/v1/gates"]["get"]["security"][0]["token"][0], "read");
    }

    #[test]
    fn every_schema_that_is_named_is_there_and_used() {
        fn references(value: &Value, found: &mut BTreeSet<String>) {
            match value {
                Value::Object(members) => {
                    for (name, member) in members {
                        match member.as_str().filter(|_| name == "$ref") {
                            Some(reference) => {
                                found.insert(reference.trim_start_matches("#/components/schemas/").to_owned());
                            }
                            None => references(member, found),
                        }
                    }
                }
                Value::Array(items) => items.iter().for_each(|item| references(item, found)),
                _ => {}
            }
        }
        let mut named = BTreeSet::new();
        references(&whole(), &mut named);
        let schemas: Value = serde_json::from_str(SCHEMAS).unwrap();
        let there: BTreeSet<String> = schemas.as_object().unwrap().keys().cloned().collect();
        assert_eq!(named, there);
    }
}
