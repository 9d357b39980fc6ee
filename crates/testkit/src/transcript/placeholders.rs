//! Names in place of ids, times and earlier content, so that a transcript is the same in every run.
//!
//! Each name stands for exactly one text: different texts have different names or are written out.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

/// Names that were given so far, in the order of appearance.
pub(super) struct PlaceholderMap {
    root: String,
    /// Start time, in milliseconds since 1970.
    start: u64,
    ids: Vec<(String, String)>,
    /// Texts that were shown, with their names.
    shown: Vec<(String, String)>,
    counts: BTreeMap<String, usize>,
}

/// Parts of a frame that are compared with earlier content.
#[derive(Clone, Copy, PartialEq, Eq)]
enum MessageNaming {
    /// Every message, and the first showing gives it its name.
    Named,
    /// None of an assistant: this one is not complete yet.
    Unfinished,
}

impl PlaceholderMap {
    pub(super) fn new(root: &str, start: u64) -> Self {
        let mut usage = json!({ "input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0, "totalTokens": 0 });
        usage["cost"] = json!({ "input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0, "total": 0 });
        let shown = vec![(usage.to_string(), "<no usage>".to_owned())];
        Self { root: root.to_owned(), start, ids: Vec::new(), shown, counts: BTreeMap::new() }
    }

    /// Returns a frame as a transcript shows it.
    ///
    /// # Errors
    /// If it is no JSON, or not in the form in which it is written.
    pub(super) fn replace_in_frame(&mut self, frame: &str) -> Result<String, String> {
        let mut value: Value =
            serde_json::from_str(frame).map_err(|error| format!("a frame is not JSON: {error}: {frame}"))?;
        let kind = value.get("type").and_then(Value::as_str).unwrap_or_default().to_owned();
        if kind == "event" {
            return self.replace_in_envelope(&value);
        }
        if kind == "extension_ui_request"
            && let Some(Value::String(id)) = value.get("id")
        {
            let id = id.clone();
            self.add_id(&id, "dialog");
        }
        self.find_ids(&value);
        let is_assistant = value.pointer("/message/role").and_then(Value::as_str) == Some("assistant");
        let unfinished = kind == "message_update" || (kind == "message_start" && is_assistant);
        self.replace_in_value(&mut value, if unfinished { MessageNaming::Unfinished } else { MessageNaming::Named });
        if kind == "message_update" && value.pointer("/assistantMessageEvent/partial") == value.get("message") {
            value["assistantMessageEvent"]["partial"] = "<message>".into();
        }
        Ok(value.to_string())
    }

    /// Returns an event in its envelope: its number, its session, and the event; the other members are the same each time.
    fn replace_in_envelope(&mut self, envelope: &Value) -> Result<String, String> {
        let event = &envelope["payload"]["event"];
        let payload = if event.is_null() { &envelope["payload"] } else { event };
        if !event.is_null() && event["type"] != envelope["payload"]["event_type"] {
            return Err(format!("the event_type of an envelope differs from its event: {envelope}"));
        }
        if envelope["protocol_version"] != 2 || !envelope["frame_id"].is_string() {
            return Err(format!("invalid envelope: {envelope}"));
        }
        if let Some(session) = envelope["session_id"].as_str() {
            self.add_id(session, "session");
        }
        let session = self.replace_in_text(envelope["session_id"].as_str().unwrap_or_default());
        let inner = self.replace_in_frame(&payload.to_string())?;
        Ok(format!(r#"{{"seq":{},"session_id":{},"event":{inner}}}"#, envelope["seq"], Value::from(session)))
    }

    /// Returns a text that is no frame as a transcript shows it.
    pub(super) fn replace_in_text(&self, text: &str) -> String {
        let process = format!("process {}", std::process::id());
        let mut text = text.replace(&self.root, "<root>").replace(&process, "process <this one>");
        for (id, name) in &self.ids {
            text = text.replace(id, name);
        }
        text
    }

    /// Returns a line of the host with the ids that its names stand for.
    pub(super) fn restore_ids(&self, line: &str) -> String {
        let mut line = line.replace("<root>", &self.root);
        for (id, name) in &self.ids {
            line = line.replace(name, id);
        }
        line
    }

    fn add_id(&mut self, id: &str, kind: &str) {
        if !self.ids.iter().any(|(known, _)| known == id) {
            let name = self.new_placeholder(kind);
            self.ids.push((id.to_owned(), name));
        }
    }

    fn new_placeholder(&mut self, kind: &str) -> String {
        let count = self.counts.entry(kind.to_owned()).or_default();
        *count += 1;
        format!("<{kind}-{count}>")
    }

    fn find_ids(&mut self, value: &Value) {
        match value {
            Value::Object(members) => {
                for (key, member) in members {
                    match (key.as_str(), member) {
                        ("sessionId", Value::String(id)) => self.add_id(id, "session"),
                        ("entryId" | "firstKeptEntryId", Value::String(id)) => self.add_id(id, "entry"),
                        ("run_id", Value::String(id)) => self.add_id(id, "session"),
                        ("gate_id", Value::String(id)) => self.add_id(id, "gate"),
                        _ => self.find_ids(member),
                    }
                }
            }
            Value::Array(values) => values.iter().for_each(|value| self.find_ids(value)),
            _ => {}
        }
    }

    fn replace_in_value(&mut self, value: &mut Value, messages: MessageNaming) {
        match value {
            Value::String(text) => *text = self.replace_in_text(text),
            Value::Array(values) => values.iter_mut().for_each(|value| self.replace_in_value(value, messages)),
            Value::Object(members) => match object_kind(members, messages) {
                None => {
                    self.replace_in_members(members, messages);
                    fold_model(members);
                }
                Some(kind) => {
                    let written = Value::Object(members.clone()).to_string();
                    if let Some((_, name)) = self.shown.iter().find(|(known, _)| *known == written) {
                        *value = name.as_str().into();
                        return;
                    }
                    self.replace_in_members(members, messages);
                    fold_model(members);
                    let is_first = !self.counts.contains_key(&kind);
                    let numbered = self.new_placeholder(&kind);
                    // A single one of a kind has no number.
                    let name = if kind.contains(' ') && is_first { format!("<{kind}>") } else { numbered };
                    self.shown.push((written, name));
                }
            },
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    fn replace_in_members(&mut self, members: &mut Map<String, Value>, messages: MessageNaming) {
        for (key, member) in members.iter_mut() {
            match key.as_str() {
                "timestamp" => self.replace_time(member),
                "accepted_at" | "created_at" | "resolved_at" => *member = "<time>".into(),
                _ => self.replace_in_value(member, messages),
            }
        }
    }

    fn replace_time(&self, value: &mut Value) {
        let Some(since) = value.as_u64().and_then(|at| at.checked_sub(self.start)) else { return };
        *value = if since == 0 { "<t>".into() } else { format!("<t+{since}ms>").into() };
    }
}

/// Returns the kind of an object that has a name after its first showing: a message, a usage or a model.
fn object_kind(members: &Map<String, Value>, messages: MessageNaming) -> Option<String> {
    let is = |key: &str| members.contains_key(key);
    let text = |key: &str| members.get(key).and_then(Value::as_str);
    if is("cacheRead") && is("totalTokens") {
        return Some("usage".to_owned());
    }
    if let Some((provider, id)) = text("provider").zip(text("id")).filter(|_| is("contextWindow")) {
        return Some(format!("model {provider}/{id}"));
    }
    let role = text("role").filter(|role| messages == MessageNaming::Named || *role != "assistant")?;
    Some(text("toolCallId").map_or_else(|| role.to_owned(), |call| format!("result of {call}")))
}

/// Joins the members that name the model of an assistant message.
fn fold_model(members: &mut Map<String, Value>) {
    let keys: Vec<&str> = members.keys().map(String::as_str).collect();
    let is_in_order = keys.windows(3).any(|keys| keys == ["api", "provider", "model"]);
    let text = |key: &str| members.get(key).and_then(Value::as_str);
    if !is_in_order || text("api") != Some("openai-completions") {
        return;
    }
    if let Some((provider, model)) = text("provider").zip(text("model")) {
        let name = format!("<{provider}/{model}>");
        members.shift_remove("api");
        members.shift_remove("provider");
        members.insert("model".to_owned(), name.into());
    }
}

#[cfg(test)]
mod tests {
    use super::PlaceholderMap;

    #[test]
    fn what_comes_again_is_named_and_what_differs_is_not() {
        let mut names = PlaceholderMap::new("/tmp/x", 1000);
        let user = |text: &str, at: u64| {
            format!(r#"{{"type":"message_end","message":{{"role":"user","content":"{text}","timestamp":{at}}}}}"#)
        };
        let first =
            r#"{"type":"message_end","message":{"role":"user","content":"in <root>/y","timestamp":"<t+50ms>"}}"#;
        assert_eq!(names.replace_in_frame(&user("in /tmp/x/y", 1050)).unwrap(), first);
        assert_eq!(
            names.replace_in_frame(&user("in /tmp/x/y", 1050)).unwrap(),
            r#"{"type":"message_end","message":"<user-1>"}"#
        );
        assert_eq!(names.replace_in_frame(&user("in /tmp/x/y", 1051)).unwrap(), first.replace("50ms", "51ms"));
        assert_eq!(
            names.replace_in_frame(&user("in /tmp/x/y", 1051)).unwrap(),
            r#"{"type":"message_end","message":"<user-2>"}"#
        );
    }

    #[test]
    fn the_host_says_ids_by_their_names() {
        let mut names = PlaceholderMap::new("/tmp/x", 0);
        let shown = names.replace_in_frame(r#"{"type":"extension_ui_request","id":"aa","title":"aa?"}"#).unwrap();
        assert_eq!(shown, r#"{"type":"extension_ui_request","id":"<dialog-1>","title":"<dialog-1>?"}"#);
        assert_eq!(names.restore_ids(r#"{"id":"<dialog-1>"}"#), r#"{"id":"aa"}"#);
    }
}
