//! Requests to nodes and their input other than results of tools: probes, events of background executions, logs.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::GsvError;
use super::fields::ParamFields;
use crate::json::{WireValue, wire_values};

/// The event `node.probe`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeProbe {
    /// Id of the probe, which the answer repeats.
    pub probe_id: String,
    /// Kind of the probe; only `bins` is known.
    pub kind: String,
    /// Names of programs.
    pub bins: Vec<String>,
    /// Time limit of the node, in milliseconds.
    pub timeout_ms: u64,
}

/// Returns true if a node can be asked for a program of this name.
pub fn is_program(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'+' | b'-');
    !name.is_empty() && name.bytes().all(is_plain)
}

/// Returns the time limit of a probe, in milliseconds: the requested one within 1 to 120 seconds, 15 by default.
pub fn probe_timeout(requested_ms: Option<u64>) -> u64 {
    requested_ms.unwrap_or(15_000).clamp(1_000, 120_000)
}

/// Parameters of `node.probe.result`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeProbeResult {
    /// The probe.
    pub probe_id: String,
    /// True if the node could look.
    pub ok: bool,
    /// Programs, with true for those that it found. A program that is missing here is missing there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bins: Option<BTreeMap<String, bool>>,
    /// Reason that it could not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl NodeProbeResult {
    pub(super) fn from_fields(mut fields: ParamFields) -> Result<Self, GsvError> {
        Ok(Self {
            probe_id: fields.require_text("probeId", "probeId required")?,
            ok: fields.take_flag("ok")?.ok_or_else(|| GsvError::bad_request("ok required"))?,
            bins: fields.take_flags("bins")?,
            error: fields.take_text("error")?,
        })
    }
}

/// State of an execution in the background.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExecState {
    /// The execution runs.
    Started,
    /// The execution ended with exit code 0.
    Finished,
    /// The execution ended with another exit code.
    Failed,
    /// The execution was stopped at its time limit.
    TimedOut,
}

impl ExecState {
    /// Returns true if nothing follows.
    pub const fn is_end(self) -> bool {
        match self {
            Self::Started => false,
            Self::Finished | Self::Failed | Self::TimedOut => true,
        }
    }
}

/// Longest kept end of an execution's output, in characters.
pub const LONGEST_TAIL: usize = 4000;

/// Parameters of `node.exec.event`. A node repeats an event until it is answered `ok` and holds back those after it, so
/// one that cannot be read is no error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExecReport {
    /// An event.
    Event(ExecEvent),
    /// Something that no event can be made of, with the reason.
    Unreadable(String),
}

impl ExecReport {
    pub(super) fn from_fields(fields: Result<ParamFields, GsvError>) -> Self {
        match fields.and_then(ExecEvent::from_fields) {
            Ok(event) => Self::Event(event),
            Err(fault) => Self::Unreadable(fault.message),
        }
    }
}

/// Event of a node about an execution in the background.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExecEvent {
    /// Id of the event; the same event has the same id.
    pub event_id: String,
    /// The execution, as the node calls it.
    pub session_id: String,
    /// State of the execution.
    pub event: ExecState,
    /// The call that started it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub call_id: Option<String>,
    /// Absent as well as null if a signal ended it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i64>,
    /// The signal that ended it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signal: Option<String>,
    /// The end of its output.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_tail: Option<String>,
    /// Start of the execution.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_at: Option<u64>,
    /// End of the execution.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<u64>,
}

impl ExecEvent {
    /// Reads an event. Other members than its two names and its kind count as absent if they have another type. An event without
    /// an id is identified by all its members.
    fn from_fields(mut fields: ParamFields) -> Result<Self, GsvError> {
        let states = [
            ("started", ExecState::Started),
            ("finished", ExecState::Finished),
            ("failed", ExecState::Failed),
            ("timed_out", ExecState::TimedOut),
        ];
        let event = Self {
            event_id: fields.take_text("eventId").ok().flatten().unwrap_or_default(),
            session_id: fields.require_text("sessionId", "sessionId required")?,
            event: fields.take_choice("event", &states)?.ok_or_else(|| GsvError::bad_request("event required"))?,
            call_id: fields.take_text("callId").ok().flatten().filter(|call| !call.is_empty()),
            exit_code: fields.take_value("exitCode").as_ref().and_then(serde_json::Value::as_i64),
            signal: fields.take_text("signal").ok().flatten(),
            output_tail: fields
                .take_text("outputTail")
                .ok()
                .flatten()
                .map(|tail| last_chars(&tail, LONGEST_TAIL).to_owned()),
            started_at: fields.take_floored("startedAt").ok().flatten(),
            ended_at: fields.take_floored("endedAt").ok().flatten(),
        };
        let event_id = if event.event_id.is_empty() {
            crate::RawJson::from_wire(&event).as_text().to_owned()
        } else {
            event.event_id
        };
        Ok(Self { event_id, ..event })
    }

    /// Returns the message that reports the end to the session: a descriptive line, and one with the event as JSON.
    pub fn completion_message(&self, node: &str) -> String {
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct ExecCompletion<'a> {
            event_id: &'a str,
            node_id: &'a str,
            session_id: &'a str,
            call_id: &'a Option<String>,
            event: ExecState,
            exit_code: Option<i64>,
            signal: &'a Option<String>,
            output_tail: &'a Option<String>,
            started_at: Option<u64>,
            ended_at: Option<u64>,
        }
        impl WireValue for ExecCompletion<'_> {}
        let completion = ExecCompletion {
            event_id: &self.event_id,
            node_id: node,
            session_id: &self.session_id,
            call_id: &self.call_id,
            event: self.event,
            exit_code: self.exit_code,
            signal: &self.signal,
            output_tail: &self.output_tail,
            started_at: self.started_at,
            ended_at: self.ended_at,
        };
        format!("System event: async_exec_completion\n{}", crate::RawJson::from_wire(&completion).as_text())
    }
}

/// Returns the last `count` characters of a text.
fn last_chars(text: &str, count: usize) -> &str {
    let cut = text.char_indices().rev().nth(count.saturating_sub(1)).map_or(0, |(at, _)| at);
    &text[cut..]
}

/// Parameters of `logs.get`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogsGet {
    /// Id of the node; absent is the only one.
    pub node_id: Option<String>,
    /// Number of lines, 1 to 5000.
    pub lines: u64,
}

impl LogsGet {
    /// Default number of lines.
    pub const DEFAULT: u64 = 100;
    /// The most lines.
    pub const MOST: u64 = 5000;

    pub(super) fn from_fields(mut fields: ParamFields) -> Result<Self, GsvError> {
        let node_id = fields.take_text("nodeId")?.filter(|node| !node.is_empty());
        let wrong = || GsvError::bad_request("lines must be a positive number");
        let lines = fields.take_floored("lines").map_err(|_| wrong())?;
        match lines {
            None => Ok(Self { node_id, lines: Self::DEFAULT }),
            Some(0) => Err(wrong()),
            Some(lines) => Ok(Self { node_id, lines: lines.min(Self::MOST) }),
        }
    }

    /// Returns the requested one of the connected nodes.
    ///
    /// # Errors
    /// 503 if it is not connected, or none is; 400 if one must be named.
    pub fn select_node<'a>(&self, connected: &[&'a str]) -> Result<&'a str, GsvError> {
        let away = |message| GsvError::new(super::code::UNAVAILABLE, message);
        match (&self.node_id, connected) {
            (Some(id), _) => {
                connected.iter().copied().find(|node| node == id).ok_or_else(|| away("Node not connected"))
            }
            (None, []) => Err(away("No nodes connected")),
            (None, [only]) => Ok(only),
            (None, _) => Err(GsvError::bad_request("nodeId required when multiple nodes are connected")),
        }
    }
}

/// The event `logs.get`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LogsGetEvent {
    /// Id of the request, which the answer repeats.
    pub call_id: String,
    /// Number of lines.
    pub lines: u64,
}

/// Parameters of `logs.result`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LogsResult {
    /// The call.
    pub call_id: String,
    /// The lines, the newest last.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub lines: Vec<String>,
    /// True if there were more.
    pub truncated: bool,
    /// Reason that there are no lines.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl LogsResult {
    pub(super) fn from_fields(mut fields: ParamFields) -> Result<Self, GsvError> {
        Ok(Self {
            call_id: fields.require_text("callId", "callId required")?,
            lines: fields.take_texts("lines")?.unwrap_or_default(),
            truncated: fields.take_flag("truncated")?.unwrap_or(false),
            error: fields.take_text("error")?.filter(|error| !error.is_empty()),
        })
    }
}

/// The answer to `logs.get`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LogsGetResult {
    /// The node.
    pub node_id: String,
    /// The lines, the newest last.
    pub lines: Vec<String>,
    /// Number of lines.
    pub count: usize,
    /// True if there were more.
    pub truncated: bool,
}

wire_values! { NodeProbe, NodeProbeResult, ExecEvent, LogsGetEvent, LogsResult, LogsGetResult }
