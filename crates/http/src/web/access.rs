//! The table of all routes over HTTP, and their access. A route that is not in it cannot be mounted.

/// Scope of a program's token. A person has all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TokenScope {
    /// See gates, sessions, events and the record.
    Read,
    /// Answer gates and questions, once each.
    Answer,
    /// Open sessions and speak in them.
    Chat,
    /// Allow for longer than once, which continues after the token is taken away; change rules, grants and agents.
    Admin,
    /// Read the figures at `/metrics`, and nothing else.
    Metrics,
    /// Call tools, over MCP.
    Call,
}

impl TokenScope {
    /// All of them, by name.
    pub const ALL: [(&'static str, Self); 6] = [
        ("read", Self::Read),
        ("answer", Self::Answer),
        ("chat", Self::Chat),
        ("admin", Self::Admin),
        ("metrics", Self::Metrics),
        ("call", Self::Call),
    ];

    /// Returns its name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Answer => "answer",
            Self::Chat => "chat",
            Self::Admin => "admin",
            Self::Metrics => "metrics",
            Self::Call => "call",
        }
    }
}

/// Text for a token without [`TokenScope::Admin`] that allows for longer than once.
pub const ONCE_ONLY: &str =
    "This token may allow once: what is allowed for longer outlives it, and takes the scope admin";

/// Access to a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouteAccess {
    /// All callers that reach the port.
    Anybody,
    /// A person: with a cookie, or any caller on loopback if no login is configured.
    Person,
    /// A person, or a program whose token has the scope.
    Scope(TokenScope),
}

/// Effect of a call: another site's page must not be able to make a browser call a route that changes something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouteEffect {
    /// A call that changes nothing.
    Tells,
    /// A call that changes something.
    Acts,
}

/// One row: method, path, who may, and whether it acts.
pub type RouteEntry = (&'static str, &'static str, RouteAccess, RouteEffect);

use RouteAccess::{Anybody, Person, Scope as Needs};
use RouteEffect::{Acts, Tells};
use TokenScope::{Answer, Call, Chat, Metrics, Read};

/// Everything.
pub const TABLE: &[RouteEntry] = &[
    // The console, or a front end that the user has.
    ("GET", "/", Person, Tells),
    ("GET", "/login", Anybody, Tells),
    ("POST", "/login", Anybody, Acts),
    ("POST", "/logout", Anybody, Acts),
    // monitoring
    ("GET", "/metrics", Needs(Metrics), Tells),
    // MCP
    ("POST", "/mcp", Needs(Call), Acts),
    ("GET", "/mcp", Needs(Call), Tells),
    ("DELETE", "/mcp", Needs(Call), Acts),
    // hooks
    ("POST", "/hooks/claude", Needs(Call), Acts),
    // the console
    ("GET", "/console", Person, Tells),
    ("GET", "/console/", Person, Tells),
    ("GET", "/console/style.css", Anybody, Tells),
    ("GET", "/console/app.js", Anybody, Tells),
    ("GET", "/console/live", Person, Tells),
    ("GET", "/console/gates/{id}", Person, Tells),
    ("POST", "/console/gates/{id}", Person, Acts),
    ("POST", "/console/answers", Person, Acts),
    ("GET", "/console/sessions", Person, Tells),
    ("POST", "/console/sessions", Person, Acts),
    ("GET", "/console/sessions/{id}", Person, Tells),
    ("POST", "/console/sessions/{id}/say", Person, Acts),
    ("POST", "/console/sessions/{id}/stop", Person, Acts),
    ("POST", "/console/sessions/{id}/model", Person, Acts),
    ("POST", "/console/sessions/{id}/unsay", Person, Acts),
    ("GET", "/console/record", Person, Tells),
    ("GET", "/console/record/{id}", Person, Tells),
    ("POST", "/console/record", Person, Acts),
    ("GET", "/console/figures", Person, Tells),
    ("GET", "/console/policy", Person, Tells),
    ("GET", "/console/explain", Person, Tells),
    ("GET", "/console/try", Person, Tells),
    ("GET", "/console/rules", Person, Tells),
    ("POST", "/console/rules", Person, Acts),
    ("POST", "/console/revoke/{id}", Person, Acts),
    ("POST", "/console/reload", Person, Acts),
    ("GET", "/console/agents", Person, Tells),
    ("GET", "/console/mcp", Person, Tells),
    ("GET", "/console/mcp/{server}", Person, Tells),
    ("POST", "/console/mcp/{server}", Person, Acts),
    ("GET", "/console/{*rest}", Person, Tells),
    // hermes
    ("GET", "/health", Anybody, Tells),
    ("GET", "/api/auth/status", Anybody, Tells),
    ("POST", "/api/auth/login", Anybody, Acts),
    ("POST", "/api/auth/logout", Person, Acts),
    ("POST", "/api/session/new", Needs(Chat), Acts),
    ("GET", "/api/sessions", Needs(Read), Tells),
    ("GET", "/api/session", Needs(Read), Tells),
    ("GET", "/api/session/status", Needs(Read), Tells),
    ("POST", "/api/session/rename", Needs(Chat), Acts),
    ("POST", "/api/chat/start", Needs(Chat), Acts),
    ("GET", "/api/chat/stream", Needs(Read), Tells),
    ("GET", "/api/chat/stream/status", Needs(Read), Tells),
    // Clients stop a turn with a GET: another site's page must not be able to.
    ("GET", "/api/chat/cancel", Needs(Chat), Acts),
    ("POST", "/api/chat/steer", Needs(Chat), Acts),
    ("GET", "/api/models", Needs(Read), Tells),
    ("GET", "/api/settings", Needs(Read), Tells),
    ("GET", "/api/profiles", Needs(Read), Tells),
    ("GET", "/api/profile/active", Needs(Read), Tells),
    ("GET", "/api/projects", Needs(Read), Tells),
    ("GET", "/api/workspaces", Needs(Read), Tells),
    ("GET", "/api/reasoning", Needs(Read), Tells),
    // hermes: changes of a conversation and of how it is listed
    ("POST", "/api/session/undo", Needs(Chat), Acts),
    ("POST", "/api/session/retry", Needs(Chat), Acts),
    ("POST", "/api/session/truncate", Needs(Chat), Acts),
    ("POST", "/api/session/clear", Needs(Chat), Acts),
    ("POST", "/api/session/branch", Needs(Chat), Acts),
    ("POST", "/api/session/duplicate", Needs(Chat), Acts),
    ("POST", "/api/session/compress/start", Needs(Chat), Acts),
    ("GET", "/api/session/compress/status", Needs(Read), Tells),
    ("POST", "/api/session/title/regenerate", Needs(Chat), Acts),
    ("POST", "/api/session/update", Needs(Chat), Acts),
    ("POST", "/api/session/pin", Needs(Chat), Acts),
    ("POST", "/api/session/archive", Needs(Chat), Acts),
    ("POST", "/api/session/delete", Needs(Chat), Acts),
    ("GET", "/api/session/export", Needs(Read), Tells),
    ("GET", "/api/sessions/search", Needs(Read), Tells),
    // hermes: files of a session's folder, which are for people
    ("GET", "/api/list", Person, Tells),
    ("GET", "/api/file", Person, Tells),
    ("GET", "/api/file/raw", Person, Tells),
    // hermes: what a person sets and writes in the front end
    ("POST", "/api/settings", Person, Acts),
    ("POST", "/api/reasoning", Person, Acts),
    ("GET", "/api/session/draft", Person, Tells),
    ("POST", "/api/session/draft", Person, Acts),
    ("POST", "/api/session/anchor-scene", Person, Acts),
    // hermes: missing features
    ("GET", "/api/transcribe/capability", Needs(Read), Tells),
    ("GET", "/api/dashboard/config", Needs(Read), Tells),
    ("GET", "/api/dashboard/status", Needs(Read), Tells),
    ("GET", "/api/updates/check", Needs(Read), Tells),
    ("POST", "/api/updates/check", Needs(Read), Acts),
    ("GET", "/api/git-info", Needs(Read), Tells),
    ("GET", "/api/personalities", Needs(Read), Tells),
    ("GET", "/api/commands", Needs(Read), Tells),
    ("GET", "/api/commands/bundles", Needs(Read), Tells),
    ("GET", "/api/prompts", Needs(Read), Tells),
    ("GET", "/api/skills", Needs(Read), Tells),
    ("GET", "/api/crons", Needs(Read), Tells),
    ("GET", "/api/crons/recent", Needs(Read), Tells),
    ("GET", "/api/providers", Needs(Read), Tells),
    ("GET", "/api/provider/quota", Needs(Read), Tells),
    ("GET", "/api/extensions/status", Needs(Read), Tells),
    ("GET", "/api/plugins", Needs(Read), Tells),
    ("GET", "/api/mcp/servers", Needs(Read), Tells),
    ("GET", "/api/mcp/tools", Needs(Read), Tells),
    ("GET", "/api/gateway/status", Needs(Read), Tells),
    ("GET", "/api/health/agent", Needs(Read), Tells),
    ("GET", "/api/model/auxiliary", Needs(Read), Tells),
    ("GET", "/api/extensions/registry", Needs(Read), Tells),
    ("GET", "/api/provider/cost-history", Needs(Read), Tells),
    ("GET", "/api/background/status", Needs(Read), Tells),
    ("GET", "/api/models/live", Needs(Read), Tells),
    ("POST", "/api/client-events/log", Person, Acts),
    // hermes: what waits for people
    ("GET", "/api/approval/pending", Needs(Read), Tells),
    ("GET", "/api/approval/stream", Needs(Read), Tells),
    ("POST", "/api/approval/respond", Needs(Answer), Acts),
    ("GET", "/api/session/yolo", Needs(Read), Tells),
    ("POST", "/api/session/yolo", Person, Acts),
    ("GET", "/api/clarify/pending", Needs(Read), Tells),
    ("GET", "/api/clarify/stream", Needs(Read), Tells),
    ("POST", "/api/clarify/respond", Needs(Answer), Acts),
    ("GET", "/api/session/stream", Needs(Read), Tells),
    ("GET", "/api/sessions/events", Needs(Read), Tells),
    ("GET", "/api/sessions/gateway/stream", Needs(Read), Tells),
    // a front end that the user has
    ("GET", "/index.html", Person, Tells),
    ("GET", "/session/{id}", Person, Tells),
    ("GET", "/static/{*path}", Anybody, Tells),
    ("GET", "/session/static/{*path}", Anybody, Tells),
    ("GET", "/sw.js", Anybody, Tells),
    ("GET", "/manifest.json", Anybody, Tells),
    ("GET", "/favicon.ico", Anybody, Tells),
    // our own interface
    ("GET", "/api/v1/gates", Needs(Read), Tells),
    ("GET", "/api/v1/gates/{id}", Needs(Read), Tells),
    ("POST", "/api/v1/gates/{id}/allow", Needs(Answer), Acts),
    ("POST", "/api/v1/gates/{id}/deny", Needs(Answer), Acts),
    ("POST", "/api/v1/gates/{id}/answer", Needs(Answer), Acts),
    ("GET", "/api/v1/sessions", Needs(Read), Tells),
    ("POST", "/api/v1/sessions", Needs(Chat), Acts),
    ("GET", "/api/v1/sessions/{id}", Needs(Read), Tells),
    ("POST", "/api/v1/sessions/{id}/messages", Needs(Chat), Acts),
    ("POST", "/api/v1/sessions/{id}/steer", Needs(Chat), Acts),
    ("POST", "/api/v1/sessions/{id}/stop", Needs(Chat), Acts),
    ("GET", "/api/v1/events", Needs(Read), Tells),
    ("GET", "/api/v1/audit", Needs(Read), Tells),
    ("GET", "/api/v1/audit/head", Needs(Read), Tells),
    ("GET", "/api/v1/audit/verify", Needs(Read), Tells),
    ("GET", "/api/v1/audit/{lsn}", Needs(Read), Tells),
    ("POST", "/api/v1/policy/explain", Needs(Read), Acts),
    ("GET", "/api/v1/mcp-servers", Needs(Read), Tells),
    ("GET", "/api/v1/openapi.json", Needs(Read), Tells),
];

/// Reports whether a path is open without authentication, with any method.
pub(crate) fn is_public(path: &str) -> bool {
    TABLE.iter().any(|row| row.1 == path && row.2 == RouteAccess::Anybody)
}

/// Returns the row of a method and a path.
pub fn find_entry(method: &str, path: &str) -> Option<(RouteAccess, RouteEffect)> {
    TABLE.iter().find(|row| row.0 == method && row.1 == path).map(|row| (row.2, row.3))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{RouteEffect, TABLE};

    #[test]
    fn a_row_stands_once_and_what_is_no_get_acts() {
        let mut seen = BTreeSet::new();
        for (method, path, _, effect) in TABLE {
            assert!(seen.insert((method, path)), "{method} {path} stands twice");
            assert!(*method == "GET" || *effect == RouteEffect::Acts, "{method} {path}");
        }
    }
}
