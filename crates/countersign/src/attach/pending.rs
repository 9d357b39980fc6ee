//! Requests of the host without an answer, so that each gets one when the gateway has gone.
//!
//! Of what passes it reads the ids and types at the top of each line of the host, and of the gateway's lines those that begin
//! as answers do. It must not hold a line up, nor keep one, however long it is.

use std::sync::{Mutex, PoisonError};

use serde::Deserialize;
use serde_json::Value;

/// Maximum length of a noted id or type, in bytes.
const LONGEST: usize = 1024;
/// Number of bytes that are kept of a line's top level.
const MOST: usize = 64 * 1024;
/// Types of a host's messages that are no requests.
const ANSWERS: [&str; 4] = ["extension_ui_response", "host_tool_result", "host_tool_update", "host_uri_result"];
/// Beginnings of answers: their members have one order.
const BEGINNINGS: [&[u8]; 2] = [b"{\"id\":", b"{\"type\":\"response\""];

/// A request that has no answer.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct UnansweredRequest {
    /// As the host gave it.
    pub(crate) id: Value,
    /// Requested command.
    pub(crate) command: String,
}

/// The requests on their way.
#[derive(Default)]
pub(super) struct UnansweredRequests(Mutex<Vec<UnansweredRequest>>);

/// The top of a line.
#[derive(Deserialize)]
struct LineHeader {
    #[serde(default)]
    id: Option<Value>,
    #[serde(default, rename = "type")]
    kind: Option<String>,
    #[serde(default)]
    command: Option<String>,
}

impl UnansweredRequests {
    /// Reads what a host says.
    pub(super) fn line_scanner(&self) -> LineScanner<'_> {
        LineScanner { pending: self, top: Vec::new(), depth: 0, string: None, escaped: false, skips: false }
    }

    /// Reads whole lines of the gateway. The first of them began with `begun`.
    pub(super) fn note_answers(&self, begun: &[u8], whole: &[u8]) {
        for (at, line) in whole.split(|byte| *byte == b'\n').enumerate() {
            if at == 0 && !begun.is_empty() {
                self.note_answer(&[begun, line].concat());
            } else {
                self.note_answer(line);
            }
        }
    }

    fn note_answer(&self, line: &[u8]) {
        if !BEGINNINGS.iter().any(|beginning| line.starts_with(beginning)) {
            return;
        }
        let Ok(LineHeader { id, kind: Some(kind), command }) = serde_json::from_slice(line) else { return };
        if kind != "response" {
            return;
        }
        let mut requests = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // A request without a command is answered without its id.
        let is_meant = |request: &UnansweredRequest| match &id {
            Some(id) => request.id == *id,
            None => command.as_ref() == Some(&request.command),
        };
        if let Some(at) = requests.iter().position(is_meant) {
            requests.remove(at);
        }
    }

    /// Returns the requests that will get no answer from the gateway.
    pub(super) fn take_unanswered(&self) -> Vec<UnansweredRequest> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Scanner of the top level of each line as it comes: deeper levels, and long texts, are passed over.
pub(super) struct LineScanner<'a> {
    pending: &'a UnansweredRequests,
    top: Vec<u8>,
    depth: u32,
    /// Position at which the text began that is being read.
    string: Option<usize>,
    escaped: bool,
    skips: bool,
}

impl LineScanner<'_> {
    /// Reads the next part of what a host says, wherever it is cut.
    pub(super) fn read_bytes(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.read_byte(*byte));
    }

    fn read_byte(&mut self, byte: u8) {
        if byte == b'\n' {
            return self.end_line();
        }
        let is_top = self.depth <= 1;
        if let Some(began) = self.string {
            if is_top && !self.skips {
                self.push(&[byte]);
            }
            match byte {
                _ if self.escaped => self.escaped = false,
                b'\\' => self.escaped = true,
                b'"' => {
                    if self.skips {
                        self.push(b"\"");
                    }
                    (self.string, self.skips) = (None, false);
                }
                _ => {}
            }
            if is_top && self.string.is_some() && self.top.len() > began + LONGEST {
                self.top.truncate(began + 1);
                self.skips = true;
            }
            return;
        }
        match byte {
            b'"' => {
                self.string = Some(self.top.len());
                if is_top {
                    self.push(b"\"");
                }
            }
            b'{' | b'[' => {
                match self.depth {
                    0 => self.push(&[byte]),
                    1 => self.push(b"null"),
                    _ => {}
                }
                self.depth = self.depth.saturating_add(1);
            }
            b'}' | b']' => {
                self.depth = self.depth.saturating_sub(1);
                if self.depth == 0 {
                    self.push(&[byte]);
                }
            }
            _ if is_top => self.push(&[byte]),
            _ => {}
        }
    }

    fn push(&mut self, bytes: &[u8]) {
        if self.top.len() < MOST {
            self.top.extend_from_slice(bytes);
        }
    }

    fn end_line(&mut self) {
        // A list would be read as the members in their order.
        let line = self.top.trim_ascii_start().starts_with(b"{").then(|| serde_json::from_slice(&self.top));
        self.top.clear();
        (self.depth, self.string, self.escaped, self.skips) = (0, None, false, false);
        let Some(Ok(LineHeader { id: Some(id), kind: Some(command), .. })) = line else { return };
        // An id that is too long to keep would name another one.
        if !id.as_str().is_some_and(str::is_empty) && !ANSWERS.contains(&command.as_str()) {
            self.pending.0.lock().unwrap_or_else(PoisonError::into_inner).push(UnansweredRequest { id, command });
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::UnansweredRequests;

    /// Returns the ids that wait after these lines of a host.
    fn noted(input: &str) -> Vec<Value> {
        let mut ids = Vec::new();
        // However the lines are cut.
        for size in [1, 7, input.len().max(1)] {
            let pending = UnansweredRequests::default();
            let mut scan = pending.line_scanner();
            input.as_bytes().chunks(size).for_each(|part| scan.read_bytes(part));
            ids.push(pending.take_unanswered().into_iter().map(|request| request.id).collect::<Vec<_>>());
        }
        assert!(ids.windows(2).all(|pair| pair[0] == pair[1]), "{input}: {ids:?}");
        ids.remove(0)
    }

    #[test]
    fn a_request_is_noted_by_the_id_at_its_top() {
        let long = "x".repeat(100_000);
        for (case, input, want) in [
            ("plain", r#"{"id":"a","type":"prompt","message":"hi"}"#.to_owned(), json!(["a"])),
            ("any order", r#" { "type" : "prompt" , "id" : 7 } "#.to_owned(), json!([7])),
            ("deeper", r#"{"type":"prompt","images":[{"id":"no"},"]"],"id":"a"}"#.to_owned(), json!(["a"])),
            ("in a text", r#"{"type":"prompt","message":"\"id\":\"no\"}\\","id":"a"}"#.to_owned(), json!(["a"])),
            ("behind a long text", format!(r#"{{"message":"{long}\u00e9","type":"prompt","id":"a"}}"#), json!(["a"])),
            ("a long id", format!(r#"{{"type":"prompt","id":"{long}"}}"#), json!([])),
            ("none", r#"{"type":"prompt","id":null}"#.to_owned(), json!([])),
            ("an answer", r#"{"type":"extension_ui_response","id":"a"}"#.to_owned(), json!([])),
            ("no object", r#"["id","a"]"#.to_owned(), json!([])),
            ("no JSON", r#"{"id":"a" "type":"#.to_owned(), json!([])),
        ] {
            assert_eq!(json!(noted(&format!("{input}\n"))), want, "{case}");
        }
        assert_eq!(noted(r#"{"id":"a","type":"prompt"}"#), Vec::<Value>::new(), "a line that has not ended");
    }

    #[test]
    fn what_was_answered_does_not_wait_any_more() {
        let requests = r#"{"id":"a","type":"get_state"}
{"id":"b","type":"prompt"}
{"id":"c","type":"nothing"}
"#;
        for (case, begun, whole, want) in [
            ("none", "", "{\"type\":\"agent_start\"}\n", json!(["a", "b", "c"])),
            ("one", "", "{\"id\":\"b\",\"type\":\"response\",\"success\":true}\n", json!(["a", "c"])),
            ("in two parts", "{\"id\":\"a\",\"ty", "pe\":\"response\"}\n{\"type\":\"x\"}\n", json!(["b", "c"])),
            ("without an id", "", "{\"type\":\"response\",\"command\":\"nothing\"}\n", json!(["a", "b"])),
            ("a dialog", "", "{\"type\":\"extension_ui_request\",\"id\":\"a\"}\n", json!(["a", "b", "c"])),
        ] {
            let pending = UnansweredRequests::default();
            pending.line_scanner().read_bytes(requests.as_bytes());
            pending.note_answers(begun.as_bytes(), whole.as_bytes());
            let waiting: Vec<Value> = pending.take_unanswered().into_iter().map(|request| request.id).collect();
            assert_eq!(json!(waiting), want, "{case}");
        }
    }
}
