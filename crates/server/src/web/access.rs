//! The table of everything that can be asked over HTTP, and who may. What does not stand here cannot be mounted.

/// What a program's token may do. A person may do all of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Scope {
    /// See gates, sessions, events and the record.
    Read,
    /// Answer gates and questions.
    Answer,
    /// Open sessions and speak in them.
    Chat,
    /// Change rules, grants and agents.
    Admin,
}

/// Who may call a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Who {
    /// Whoever reaches the port.
    Anybody,
    /// A person: with a cookie, or anybody on loopback where nothing is asked for.
    Person,
    /// A person, or a program whose token has the scope.
    Scope(Scope),
}

/// Whether a call changes something: another site's page must not be able to make a browser call it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// It only tells.
    Tells,
    /// It changes something.
    Acts,
}

/// One row: method, path, who may, and whether it acts.
pub(crate) type Entry = (&'static str, &'static str, Who, Effect);

use Effect::{Acts, Tells};
use Who::{Anybody, Person};

/// Everything.
pub(crate) const TABLE: &[Entry] = &[
    ("GET", "/login", Anybody, Tells),
    ("POST", "/login", Anybody, Acts),
    ("POST", "/logout", Anybody, Acts),
    // the console
    ("GET", "/", Person, Tells),
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
    ("GET", "/console/record", Person, Tells),
    ("GET", "/console/record/{id}", Person, Tells),
    ("POST", "/console/record", Person, Acts),
    ("GET", "/console/figures", Person, Tells),
    ("GET", "/console/policy", Person, Tells),
    ("GET", "/console/explain", Person, Tells),
    ("GET", "/console/try", Person, Tells),
    ("POST", "/console/revoke/{id}", Person, Acts),
    ("POST", "/console/reload", Person, Acts),
    ("GET", "/console/agents", Person, Tells),
    // hermes
    ("GET", "/health", Anybody, Tells),
    ("GET", "/api/auth/status", Anybody, Tells),
    ("POST", "/api/auth/login", Anybody, Acts),
    ("POST", "/api/auth/logout", Person, Acts),
];

/// The row of a method and a path.
pub(crate) fn entry(method: &str, path: &str) -> Option<(Who, Effect)> {
    TABLE.iter().find(|row| row.0 == method && row.1 == path).map(|row| (row.2, row.3))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{Effect, TABLE};

    #[test]
    fn a_row_stands_once_and_what_is_no_get_acts() {
        let mut seen = BTreeSet::new();
        for (method, path, _, effect) in TABLE {
            assert!(seen.insert((method, path)), "{method} {path} stands twice");
            assert!(*method == "GET" || *effect == Effect::Acts, "{method} {path}");
        }
    }
}
