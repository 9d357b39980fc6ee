//! Reads the input of a hook in parts, and keeps what it says about the call.
//!
//! A call that ran is compared however large or broken its result is: of such an input only the members that describe the call are read.

use countersign_view::Protocol;
use serde_json::{Map, Value};

use crate::input::{HookEvent, hook_event};

/// Largest input, in bytes. Of the input after a call its result does not count.
pub const LARGEST_INPUT: usize = 16 << 20;
/// Longest name of a member that is looked at, in bytes.
const LONGEST_NAME: usize = 256;
/// Members that describe a call.
const CALL_MEMBERS: [&str; 16] = [
    "hook_event_name",
    "session_id",
    "sessionId",
    "sessionID",
    "cwd",
    "tool_name",
    "toolName",
    "tool",
    "tool_input",
    "toolArgs",
    "args",
    "tool_use_id",
    "callID",
    "agent_type",
    "agent_id",
    "mcp_context",
];
/// Member whose presence alone counts: with it Copilot CLI reports a call that ran.
const RESULT: &str = "toolResult";

/// Reader of the input of one hook.
#[derive(Debug)]
pub struct InputReader {
    protocol: Option<Protocol>,
    whole: Vec<u8>,
    members: MemberReader,
}

/// Input that was read to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompleteInput {
    /// True if it surely is about a call that ran.
    pub is_after_call: bool,
    /// Its text.
    pub text: Result<String, InputError>,
}

/// Reason why an input has no text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InputError {
    /// It is larger than a call may be.
    TooLarge,
    /// It is no text.
    NotText,
}

impl std::fmt::Display for InputError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::TooLarge => write!(f, "the input of the hook is larger than {LARGEST_INPUT} bytes"),
            Self::NotText => f.write_str("the input of the hook is not UTF-8"),
        }
    }
}

impl std::error::Error for InputError {}

impl InputReader {
    /// Creates a reader for the hook of `program`.
    pub fn new(program: &str) -> Self {
        let protocol = Protocol::HOOKS.into_iter().find(|known| known.name() == program);
        Self { protocol, whole: Vec::new(), members: MemberReader::default() }
    }

    /// Reads the next part.
    pub fn push(&mut self, part: &[u8]) {
        // One byte more than is allowed shows that it is too large.
        let room = (LARGEST_INPUT + 1).saturating_sub(self.whole.len());
        self.whole.extend_from_slice(&part[..part.len().min(room)]);
        part.iter().for_each(|byte| self.members.push_byte(*byte));
    }

    /// Ends the input. The text after a call has only what describes the call.
    pub fn finish(self) -> CompleteInput {
        let is_after_call =
            self.protocol.is_some_and(|protocol| self.members.event(protocol) == Some(HookEvent::AfterCall));
        let (bytes, is_small) = match is_after_call {
            true => (self.members.to_object(), !self.members.is_too_large),
            false => (self.whole, true),
        };
        let text = match bytes.len() <= LARGEST_INPUT && is_small {
            true => String::from_utf8(bytes).map_err(|_| InputError::NotText),
            false => Err(InputError::TooLarge),
        };
        CompleteInput { is_after_call, text }
    }
}

/// Returns the event that an input names, also of one that is otherwise not understood.
pub(crate) fn event_of(protocol: Protocol, input: &str) -> Option<HookEvent> {
    let mut members = MemberReader::default();
    input.bytes().for_each(|byte| members.push_byte(byte));
    members.event(protocol)
}

/// Place in an object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ObjectPart {
    #[default]
    Begin,
    BeforeName,
    Name,
    BeforeColon,
    Value,
    End,
    /// It is no JSON object.
    Broken,
}

/// Splits an object into its members, and keeps those that describe a call. Values that are not kept are not decoded.
#[derive(Debug, Default)]
struct MemberReader {
    part: ObjectPart,
    is_in_text: bool,
    is_escaped: bool,
    /// Lists and objects around the current byte, in the value.
    depth: usize,
    name: Vec<u8>,
    /// Name of the member whose value is being read, if it is kept.
    kept: Option<String>,
    value: Vec<u8>,
    members: Vec<(String, Vec<u8>)>,
    size: usize,
    is_too_large: bool,
}

impl MemberReader {
    fn push_byte(&mut self, byte: u8) {
        let is_space = byte.is_ascii_whitespace();
        self.part = match (self.part, byte) {
            (ObjectPart::Begin | ObjectPart::BeforeName | ObjectPart::BeforeColon | ObjectPart::End, _) if is_space => {
                self.part
            }
            (ObjectPart::Begin, b'{') => ObjectPart::BeforeName,
            (ObjectPart::BeforeName, b'"') => {
                self.name = vec![byte];
                ObjectPart::Name
            }
            (ObjectPart::BeforeName, b'}') => ObjectPart::End,
            (ObjectPart::Name, _) => self.push_name(byte),
            (ObjectPart::BeforeColon, b':') => ObjectPart::Value,
            (ObjectPart::Value, _) => self.push_value(byte),
            _ => ObjectPart::Broken,
        };
    }

    fn push_name(&mut self, byte: u8) -> ObjectPart {
        if self.name.len() <= LONGEST_NAME {
            self.name.push(byte);
        }
        if self.is_escaped {
            self.is_escaped = false;
        } else if byte == b'\\' {
            self.is_escaped = true;
        } else if byte == b'"' {
            let name: Option<String> = serde_json::from_slice(&self.name).ok();
            self.kept = name.filter(|name| name == RESULT || CALL_MEMBERS.contains(&name.as_str()));
            return ObjectPart::BeforeColon;
        }
        ObjectPart::Name
    }

    fn push_value(&mut self, byte: u8) -> ObjectPart {
        if self.is_in_text {
            if self.is_escaped {
                self.is_escaped = false;
            } else if byte == b'\\' {
                self.is_escaped = true;
            } else if byte == b'"' {
                self.is_in_text = false;
            }
        } else {
            match byte {
                b'"' => self.is_in_text = true,
                b'{' | b'[' => self.depth += 1,
                b'}' | b']' if self.depth > 0 => self.depth -= 1,
                b'}' => return self.end_member(ObjectPart::End),
                b',' if self.depth == 0 => return self.end_member(ObjectPart::BeforeName),
                b']' => return ObjectPart::Broken,
                _ => {}
            }
        }
        match self.kept.as_deref() {
            None | Some(RESULT) => {}
            Some(_) if self.size > LARGEST_INPUT => self.is_too_large = true,
            Some(_) => {
                self.size += 1;
                self.value.push(byte);
            }
        }
        ObjectPart::Value
    }

    fn end_member(&mut self, next: ObjectPart) -> ObjectPart {
        let value = std::mem::take(&mut self.value);
        match self.kept.take() {
            Some(name) if name == RESULT => self.members.push((name, b"null".to_vec())),
            Some(name) => self.members.push((name, value)),
            None => {}
        }
        next
    }

    /// Returns the event that a whole input names.
    fn event(&self, protocol: Protocol) -> Option<HookEvent> {
        if self.part != ObjectPart::End {
            return None;
        }
        let names_event = |name: &str| name == "hook_event_name" || name == RESULT;
        let named = self.members.iter().filter(|(name, _)| names_event(name));
        let named: Result<Map<String, Value>, serde_json::Error> =
            named.map(|(name, value)| Ok((name.clone(), serde_json::from_slice(value)?))).collect();
        hook_event(protocol, &named.ok()?).ok()
    }

    /// Returns an object of the members that are kept.
    fn to_object(&self) -> Vec<u8> {
        let mut object = Vec::with_capacity(self.size + 1024);
        for (name, value) in &self.members {
            object.extend_from_slice(if object.is_empty() { b"{\"" } else { b",\"" });
            object.extend_from_slice(name.as_bytes());
            object.extend_from_slice(b"\":");
            object.extend_from_slice(value);
        }
        object.push(b'}');
        object
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{CompleteInput, InputError, InputReader, LARGEST_INPUT};

    fn read(program: &str, input: &[u8]) -> CompleteInput {
        let mut reader = InputReader::new(program);
        // The parts of a pipe end anywhere.
        input.chunks(7).for_each(|part| reader.push(part));
        reader.finish()
    }

    fn ran(response: &[u8]) -> Vec<u8> {
        let before = br#"{"session_id":"s","hook_event_name":"PostToolUse","tool_name":"Bash","tool_response":"#;
        let after = br#" , "tool_input":{"command":"rm \"x\\\""},"tool_use_id":"t","cwd":"/w"}"#;
        [before.as_slice(), response, after].concat()
    }

    #[test]
    fn a_call_that_ran_is_read_whatever_its_result_is() {
        let want = json!({
            "session_id": "s", "hook_event_name": "PostToolUse", "tool_name": "Bash", "tool_use_id": "t", "cwd": "/w",
            "tool_input": {"command": "rm \"x\\\""},
        });
        let large = format!("\"{}\"", "x".repeat(LARGEST_INPUT));
        let deep = format!("{}{}", "[".repeat(5000), "]".repeat(5000));
        for response in [
            &b"{}"[..],
            br#"{"stdout":"\ud83d"}"#,
            br#"{"stdout":"}],\"tool_input\":{\"command\":\"ls\"}"}"#,
            b"{\"stdout\":\"\xff\"}",
            b"1e999",
            b"-",
            deep.as_bytes(),
            large.as_bytes(),
        ] {
            let found = read("claude", &ran(response));
            assert!(found.is_after_call);
            assert_eq!(serde_json::from_str::<Value>(&found.text.unwrap()).unwrap(), want);
        }
        let copilot = br#"{"sessionId":"s","toolName":"bash","toolArgs":"{}","cwd":"/w","toolResult":{"x":"\ud83d"}}"#;
        let found = read("copilot", copilot);
        let text: Value = serde_json::from_str(&found.text.unwrap()).unwrap();
        assert!(found.is_after_call && text["toolResult"].is_null() && text.get("toolResult").is_some());
    }

    #[test]
    fn before_a_call_the_whole_input_counts() {
        let whole = br#"{"hook_event_name":"PreToolUse","tool_response":"\ud83d"}"#;
        let text = Ok(String::from_utf8(whole.to_vec()).unwrap());
        assert_eq!(read("claude", whole), CompleteInput { is_after_call: false, text });
        let no_text = CompleteInput { is_after_call: false, text: Err(InputError::NotText) };
        assert_eq!(read("claude", b"{\"hook_event_name\":\"PreToolUse\",\"x\":\"\xff\"}"), no_text);
        let large = CompleteInput { is_after_call: false, text: Err(InputError::TooLarge) };
        assert_eq!(read("claude", &vec![b' '; LARGEST_INPUT + 1]), large);
    }

    #[test]
    fn input_that_is_not_surely_about_a_call_that_ran_is_not_taken_for_it() {
        for input in [
            &b""[..],
            b"[]",
            br#"{"hook_event_name":"PostToolUse""#,
            br#"{"hook_event_name":"PostToolUse"} x"#,
            br#"{"hook_event_name":"PostToolUse"]"#,
            br#"{"hook_event_name":"PostToolUse","hook_event_name":"PreToolUse"}"#,
            br#"{"tool_response":{"hook_event_name":"PostToolUse"}}"#,
            br#"{"hook_event_name":["PostToolUse"]}"#,
        ] {
            assert!(!read("claude", input).is_after_call, "{}", String::from_utf8_lossy(input));
        }
        assert!(!read("cursor", &ran(b"{}")).is_after_call);
        assert!(read("claude", br#"{"hook\u005fevent_name":"PostToolUse"}"#).is_after_call);
    }

    #[test]
    fn a_call_that_ran_and_cannot_be_read_is_known_to_have_run() {
        let found = read("claude", b"{\"hook_event_name\":\"PostToolUse\",\"tool_input\":{\"command\":\"\xff\"}}");
        assert_eq!(found, CompleteInput { is_after_call: true, text: Err(InputError::NotText) });
        let large = format!("{{\"hook_event_name\":\"PostToolUse\",\"args\":\"{}\"}}", "x".repeat(LARGEST_INPUT + 1));
        assert_eq!(
            read("claude", large.as_bytes()),
            CompleteInput { is_after_call: true, text: Err(InputError::TooLarge) }
        );
    }
}
