//! OpenAPI 3.1 document of the API, made of operations, of the types of their bodies, and of the table of routes, so
//! that its permissions are always those of the routes.
//!
//! This module must not know the operations.

use std::{borrow::Cow, sync::Arc};

use axum::{extract::State, response::Response};
use countersign_http::{
    reply,
    web::{
        GuardedRoutes, RouteAccess,
        access::{self, RouteEffect},
    },
};
use schemars::{JsonSchema, Schema, SchemaGenerator, generate::SchemaSettings, transform::transform_subschemas};
use serde_json::{Map, Value, json};

use super::{ApiState, wire::ProblemDocument};

/// Path of schemas in the document.
const SCHEMAS: &str = "/components/schemas";

/// Handles `GET /api/v1/openapi.json`.
pub(super) async fn serve_document(State(api): State<Arc<ApiState>>) -> Response {
    reply::ok(&*api.document)
}

/// Function that adds the handler of a method and a path to a router.
pub(super) type RouteMount = fn(GuardedRoutes<Arc<ApiState>>, &str, &str) -> GuardedRoutes<Arc<ApiState>>;

/// One operation.
pub(super) struct ApiOperation {
    pub(super) method: &'static str,
    pub(super) path: &'static str,
    /// Function that adds its handler to a router.
    pub(super) mount: RouteMount,
    /// Operation id, for generators of clients.
    pub(super) name: &'static str,
    pub(super) summary: &'static str,
    /// Query parameters.
    pub(super) query: &'static [(&'static str, &'static str)],
    pub(super) body: Option<SchemaOf>,
    /// Status and body of a success. Several with one status: any of them.
    pub(super) replies: &'static [(&'static str, SchemaOf)],
    pub(super) repeats: RepeatEffect,
}

/// Effect of a repeated request of the same caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RepeatEffect {
    /// The request has an effect each time, or none at all.
    Each,
    /// Under one Idempotency-Key the request has one effect.
    Once,
}

/// Schema of a type.
#[derive(Clone, Copy)]
pub(super) struct SchemaOf {
    /// Its name in the document.
    pub(super) name: fn() -> Cow<'static, str>,
    /// Function that returns a reference to it, which makes it part of the document.
    pub(super) reference: fn(&mut SchemaGenerator) -> Schema,
}

/// Returns the schema of `T`.
pub(super) const fn schema_of<T: JsonSchema>() -> SchemaOf {
    SchemaOf { name: T::schema_name, reference: SchemaGenerator::subschema_for::<T> }
}

/// Schemas of bodies that are read and of bodies that are written: a member with a default is required in the second only.
pub(super) struct SchemaGenerators {
    pub(super) requests: SchemaGenerator,
    pub(super) replies: SchemaGenerator,
}

impl SchemaGenerators {
    pub(super) fn new() -> Self {
        let settings = || {
            let settings = SchemaSettings::draft2020_12().with(|settings| {
                settings.definitions_path = SCHEMAS.into();
                settings.meta_schema = None;
            });
            settings.with_transform(simplify_schema)
        };
        Self {
            requests: settings().for_deserialize().into_generator(),
            replies: settings().for_serialize().into_generator(),
        }
    }

    /// Returns all schemas that were referred to, by name.
    fn into_definitions(mut self) -> Map<String, Value> {
        let mut named = self.requests.take_definitions(true);
        named.extend(self.replies.take_definitions(true));
        named.sort_keys();
        named
    }
}

/// Converts a choice between words to a list of them, which generators of clients know, and comments of several lines to one.
pub(super) fn simplify_schema(schema: &mut Schema) {
    transform_subschemas(&mut simplify_schema, schema);
    if let Some(Value::String(description)) = schema.get_mut("description") {
        *description = description.split_whitespace().collect::<Vec<_>>().join(" ");
    }
    let Some(Value::Array(choices)) = schema.get("oneOf") else { return };
    let words: Option<Vec<Value>> =
        choices.iter().map(|choice| choice.get("const").filter(|word| word.is_string()).cloned()).collect();
    if let Some(words) = words {
        schema.remove("oneOf");
        schema.insert("type".to_owned(), json!("string"));
        schema.insert("enum".to_owned(), Value::Array(words));
    }
}

/// Builds the document of `operations`.
pub(super) fn build_document(operations: &[ApiOperation]) -> Value {
    let mut schemas = SchemaGenerators::new();
    let mut paths = json!({});
    for operation in operations {
        if let Some((who, effect)) = access::find_entry(operation.method, operation.path) {
            let method = operation.method.to_ascii_lowercase();
            paths[operation.path][method] = describe_operation(operation, who, effect, &mut schemas);
        }
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Countersign",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Pending gates, sessions, events and the record. Create tokens with `countersign tokens add NAME --scope read,answer`.",
            "license": { "name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0" },
        },
        "servers": [{ "url": "/" }],
        "paths": paths,
        "components": {
            "schemas": schemas.into_definitions(),
            "securitySchemes": {
                "token": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "Token of `countersign tokens`, with the scope that the operation requires",
                },
                "cookie": {
                    "type": "apiKey",
                    "in": "cookie",
                    "name": countersign_http::web::auth::COOKIE,
                    "description": "Session cookie of a login. Pages also send X-CSRF-Token with requests that act",
                },
            },
        },
    })
}

fn describe_operation(
    operation: &ApiOperation,
    who: RouteAccess,
    effect: RouteEffect,
    schemas: &mut SchemaGenerators,
) -> Value {
    let security = match who {
        RouteAccess::Anybody => json!([]),
        RouteAccess::Person => json!([{ "cookie": [] }]),
        RouteAccess::Scope(scope) => json!([{ "token": [scope.as_str()] }, { "cookie": [] }]),
    };
    let mut parameters: Vec<Value> = ["id", "lsn"]
        .iter()
        .filter(|name| operation.path.contains(&format!("{{{name}}}")))
        .map(|name| json!({ "name": name, "in": "path", "required": true, "schema": { "type": "string" } }))
        .collect();
    parameters.extend(operation.query.iter().map(|(name, description)| {
        json!({ "name": name, "in": "query", "description": description, "schema": { "type": "string" } })
    }));
    if operation.repeats == RepeatEffect::Once {
        parameters.push(json!({
            "name": "Idempotency-Key",
            "in": "header",
            "description": "A repeated request of the same caller with the same key has one effect and gets the first result",
            "schema": { "type": "string", "maxLength": 200 },
        }));
    }
    let problem = schemas.replies.subschema_for::<ProblemDocument>();
    let mut replies = json!({
        "default": {
            "description": "Problem document",
            "content": { "application/problem+json": { "schema": problem } },
        },
    });
    for same in operation.replies.chunk_by(|one, next| one.0 == next.0) {
        let Some((status, first)) = same.first() else { continue };
        let (kind, schema) = match same {
            [_] => ("application/json", (first.reference)(&mut schemas.replies)),
            any => ("text/event-stream", any_of(any, &mut schemas.replies)),
        };
        replies[*status] = json!({ "description": (first.name)(), "content": { kind: { "schema": schema } } });
    }
    let mut described = json!({
        "operationId": operation.name,
        "summary": operation.summary,
        "security": security,
        "parameters": parameters,
        "responses": replies,
    });
    if let RouteAccess::Scope(scope) = who {
        described["x-scope"] = json!(scope);
    }
    if let (Some(body), RouteEffect::Acts) = (operation.body, effect) {
        let schema = (body.reference)(&mut schemas.requests);
        described["requestBody"] = json!({ "content": { "application/json": { "schema": schema } } });
    }
    described
}

/// Returns the schema of the data of one event of a stream.
fn any_of(replies: &[(&str, SchemaOf)], generator: &mut SchemaGenerator) -> Schema {
    let schemas: Vec<Schema> = replies.iter().map(|(_, schema)| (schema.reference)(generator)).collect();
    schemars::json_schema!({ "anyOf": schemas })
}
