//! Settings of threads with which Codex asks, or acts without asking.

use serde_json::{Map, Value, json};

/// Methods that open a thread: they have defaults, which the configuration of Codex may loosen.
const OPENS: [&str; 3] = ["thread/start", "thread/resume", "thread/fork"];
/// Methods that name the reviewer of approvals.
const REVIEWS: [&str; 4] = ["thread/start", "thread/resume", "thread/fork", "turn/start"];
/// Requests of the client that change how Codex asks, or what it starts.
const CHANGES: [&str; 16] = [
    "config/value/write",
    "config/batchWrite",
    "skills/config/write",
    "skills/extraRoots/set",
    "plugin/install",
    "plugin/reconcile",
    "plugin/share/checkout",
    "marketplace/add",
    "marketplace/upgrade",
    "experimentalFeature/enablement/set",
    "externalAgentConfig/import",
    "thread/approveGuardianDeniedAction",
    "thread/guardianReview",
    "environment/add",
    "remoteControl/enable",
    "modelProvider/config/write",
];
/// Approval policies with which Codex asks.
const ASKING_POLICIES: [&str; 2] = ["on-request", "untrusted"];
/// Sandboxes outside of which Codex asks.
const SANDBOXES: [&str; 2] = ["read-only", "workspace-write"];
/// The same as objects.
const SANDBOX_POLICIES: [&str; 2] = ["readOnly", "workspaceWrite"];
/// The same as named profiles.
const PROFILES: [&str; 2] = [":read-only", ":workspace"];
/// Settings of a configuration that change nothing about asking.
const HARMLESS: [&str; 12] = [
    "model",
    "model_reasoning_effort",
    "model_reasoning_summary",
    "model_verbosity",
    "model_context_window",
    "model_auto_compact_token_limit",
    "personality",
    "review_model",
    "service_tier",
    "show_raw_agent_reasoning",
    "hide_agent_reasoning",
    "project_doc_max_bytes",
];
/// Deepest level of parameters that is read.
const DEEPEST: usize = 128;

/// Request of a client with the settings that make Codex ask.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct PinnedRequest {
    /// Parameters as they pass.
    pub(super) params: Value,
    /// True if they differ from those of the client.
    pub(super) is_changed: bool,
    /// Settings that loosen the guard; empty if none does.
    pub(super) loosening: Map<String, Value>,
}

/// Reports whether a request opens a thread.
pub(super) fn opens_thread(method: &str) -> bool {
    OPENS.contains(&method)
}

/// Reports whether a request changes the program itself.
pub(super) fn changes_program(method: &str) -> bool {
    CHANGES.contains(&method)
}

/// Pins the settings of a request with which Codex asks, and finds those that loosen it.
pub(super) fn pin_settings(method: &str, params: Value) -> PinnedRequest {
    let mut pinned = params.clone();
    let mut loosening = Map::new();
    find_loosening(&params, "", 0, &mut loosening);
    if let Value::Object(members) = &mut pinned {
        if REVIEWS.contains(&method) {
            members.insert("approvalsReviewer".to_owned(), "user".into());
        }
        if opens_thread(method) {
            if members.get("approvalPolicy").is_none_or(Value::is_null) {
                members.insert("approvalPolicy".to_owned(), "on-request".into());
            }
            if let Some(Value::Object(config)) = members.get("config") {
                let other: Map<String, Value> = config
                    .keys()
                    .filter(|name| !HARMLESS.contains(&name.as_str()))
                    .map(|name| (name.clone(), config[name].clone()))
                    .collect();
                if !other.is_empty() {
                    loosening.insert("config".to_owned(), Value::Object(other));
                }
            }
        }
    }
    PinnedRequest { is_changed: pinned != params, params: pinned, loosening }
}

/// Finds settings at any level: requests contain those of later turns.
fn find_loosening(value: &Value, place: &str, depth: usize, found: &mut Map<String, Value>) {
    match value {
        Value::Object(members) if depth < DEEPEST => {
            for (name, value) in members {
                let place = if place.is_empty() { name.clone() } else { format!("{place}.{name}") };
                if is_loose(name, value) {
                    found.insert(place, value.clone());
                } else if name != "config" {
                    find_loosening(value, &place, depth + 1, found);
                }
            }
        }
        Value::Array(all) if depth < DEEPEST => {
            all.iter().for_each(|value| find_loosening(value, place, depth + 1, found));
        }
        _ => {}
    }
}

/// Reports whether a setting lets Codex act without asking.
fn is_loose(name: &str, value: &Value) -> bool {
    if value.is_null() {
        return false;
    }
    let is_word_of = |known: &[&str]| value.as_str().is_some_and(|word| known.contains(&word));
    match name {
        "approvalPolicy" => !is_word_of(&ASKING_POLICIES),
        "approvalsReviewer" => !is_word_of(&["user"]),
        "sandbox" => !is_word_of(&SANDBOXES),
        "sandboxPolicy" => !is_known_policy(value),
        "permissions" => value.is_string() && !is_word_of(&PROFILES),
        _ => false,
    }
}

fn is_known_policy(value: &Value) -> bool {
    value.get("type").and_then(Value::as_str).is_some_and(|kind| SANDBOX_POLICIES.contains(&kind))
}

/// Kinds of settings in which a person let Codex act without asking.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct AllowedLoosening {
    policy: bool,
    sandbox: bool,
    reviewer: bool,
}

impl AllowedLoosening {
    /// Reads the arguments of an allowed call of [`shown_request`]. A configuration may contain any of the settings.
    pub(super) fn of_request(arguments: &Map<String, Value>) -> Self {
        let mut allowed = Self::default();
        for place in arguments.keys() {
            match place.rsplit('.').next().unwrap_or_default() {
                "approvalPolicy" => allowed.policy = true,
                "sandbox" | "sandboxPolicy" | "permissions" => allowed.sandbox = true,
                "approvalsReviewer" => allowed.reviewer = true,
                "config" => return Self { policy: true, sandbox: true, reviewer: true },
                _ => {}
            }
        }
        allowed
    }

    /// Adds what else was allowed.
    pub(super) fn add(&mut self, other: Self) {
        self.policy |= other.policy;
        self.sandbox |= other.sandbox;
        self.reviewer |= other.reviewer;
    }
}

/// Returns why a thread with these settings acts without asking in a way that nobody allowed, if it does.
pub(super) fn problem_of_thread(result: &Value, allowed: AllowedLoosening) -> Option<String> {
    let policy = result.get("approvalPolicy").unwrap_or(&Value::Null);
    if !allowed.policy && is_loose("approvalPolicy", policy) {
        return Some(format!("its approval policy is {policy}: expected \"on-request\""));
    }
    let sandbox = result.get("sandbox").unwrap_or(&Value::Null);
    if !allowed.sandbox && !sandbox.is_null() && !is_known_policy(sandbox) {
        return Some(format!("its sandbox is {sandbox}: expected read-only or workspace-write"));
    }
    let reviewer = result.get("approvalsReviewer").unwrap_or(&Value::Null);
    let is_open = !allowed.reviewer && is_loose("approvalsReviewer", reviewer);
    is_open.then(|| format!("its reviewer is {reviewer}: expected \"user\""))
}

/// Returns the arguments of the call that decides a request of the client.
pub(super) fn shown_request(method: &str, settings: &Map<String, Value>) -> Map<String, Value> {
    let mut shown = Map::from_iter([("method".to_owned(), json!(method))]);
    shown.extend(settings.clone());
    shown
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{AllowedLoosening, pin_settings, problem_of_thread};

    #[test]
    fn settings_with_which_codex_asks_are_pinned() {
        for (method, params, want) in [
            ("thread/start", json!({}), json!({"approvalsReviewer": "user", "approvalPolicy": "on-request"})),
            (
                "thread/resume",
                json!({"threadId": "t", "approvalPolicy": "untrusted", "approvalsReviewer": null}),
                json!({"threadId": "t", "approvalPolicy": "untrusted", "approvalsReviewer": "user"}),
            ),
            ("turn/start", json!({"threadId": "t"}), json!({"threadId": "t", "approvalsReviewer": "user"})),
            ("thread/read", json!({"threadId": "t"}), json!({"threadId": "t"})),
        ] {
            let pinned = pin_settings(method, params.clone());
            assert_eq!(pinned.params, want, "{method}");
            assert_eq!(pinned.is_changed, params != want);
            assert_eq!(Value::Object(pinned.loosening), json!({}), "{method}");
        }
    }

    #[test]
    fn settings_that_loosen_codex_are_found_at_every_level() {
        for (method, params, want) in [
            ("thread/start", json!({"approvalPolicy": "never"}), json!({"approvalPolicy": "never"})),
            (
                "turn/start",
                json!({"approvalPolicy": {"granular": {"rules": false}}}),
                json!({"approvalPolicy": {"granular": {"rules": false}}}),
            ),
            ("thread/start", json!({"approvalsReviewer": "auto_review"}), json!({"approvalsReviewer": "auto_review"})),
            ("thread/fork", json!({"sandbox": "danger-full-access"}), json!({"sandbox": "danger-full-access"})),
            (
                "turn/start",
                json!({"sandboxPolicy": {"type": "dangerFullAccess"}}),
                json!({"sandboxPolicy": {"type": "dangerFullAccess"}}),
            ),
            ("turn/start", json!({"permissions": ":danger-no-sandbox"}), json!({"permissions": ":danger-no-sandbox"})),
            ("thread/queue/add", json!({"turn": {"approvalPolicy": "never"}}), json!({"turn.approvalPolicy": "never"})),
            (
                "thread/start",
                json!({"config": {"model": "x", "approval_policy": "never", "features.hooks": false}}),
                json!({"config": {"approval_policy": "never", "features.hooks": false}}),
            ),
            (
                "turn/start",
                json!({"sandboxPolicy": {"type": "workspaceWrite"}, "approvalPolicy": "on-request"}),
                json!({}),
            ),
        ] {
            assert_eq!(Value::Object(pin_settings(method, params).loosening), want, "{method}");
        }
    }

    #[test]
    fn a_thread_that_acts_without_asking_is_known_by_its_answer() {
        let asks =
            json!({"approvalPolicy": "on-request", "sandbox": {"type": "readOnly"}, "approvalsReviewer": "user"});
        let nothing = AllowedLoosening::default();
        assert_eq!(problem_of_thread(&asks, nothing), None);
        let settings = [
            ("approvalPolicy", json!("never"), "approvalPolicy"),
            ("sandbox", json!({"type": "dangerFullAccess"}), "turn.sandboxPolicy"),
            ("approvalsReviewer", json!("guardian_subagent"), "approvalsReviewer"),
        ];
        for (name, value, _) in &settings {
            let mut open = asks.clone();
            open[name] = value.clone();
            assert!(problem_of_thread(&open, nothing).is_some(), "{name}");
            // What was allowed of one setting is allowed of no other.
            for (other, _, place) in &settings {
                let shown = json!({"method": "turn/start", *place: "x"});
                let allowed = AllowedLoosening::of_request(shown.as_object().unwrap());
                assert_eq!(problem_of_thread(&open, allowed).is_some(), name != other, "{name} with {place}");
            }
            let config = json!({"method": "thread/start", "config": {}});
            assert_eq!(problem_of_thread(&open, AllowedLoosening::of_request(config.as_object().unwrap())), None);
        }
    }
}
