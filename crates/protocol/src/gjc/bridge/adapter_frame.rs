//! Reads frames of stdio, of which those of the bridge are made.
//!
//! It must not know what a frame leads to: it reports its type and the ids that it is about.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::DialogPayload;
use crate::gjc::event::FrameType;
use crate::gjc::ui::GjcUiMethod;
use crate::json::{RawJson, WireValue};
use crate::omp::OmpRequestId;

/// A frame that a door wrote for a host.
#[derive(Clone, Debug, PartialEq)]
pub struct AdapterFrame {
    /// Type of the frame.
    pub kind: FrameType,
    /// Payload for the envelope; none if the bridge has no frame for it.
    pub payload: Option<RawJson>,
    /// Id of the session that it is about, if the frame names one.
    pub session: Option<String>,
    /// Its number, if it has one.
    pub seq: Option<u64>,
    /// Subject of the frame.
    pub about: FrameSubject,
}

/// Subject of a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FrameSubject {
    /// Nothing that can be answered.
    Nothing,
    /// The command with this id.
    Command(String),
    /// A dialog that waits for an answer.
    Dialog(String),
    /// A call that needs permission.
    Permission {
        /// The call.
        call: String,
        /// Its dialog.
        dialog: String,
    },
    /// A dialog that waits no more.
    DialogEnds(String),
    /// A gate.
    Gate(String),
    /// A call of a tool of the host.
    ToolCall(String),
    /// A call that the host need not answer any more.
    ToolCallEnds(String),
    /// A request at a URI of the host.
    UriRequest(String),
    /// One that the host need not answer any more.
    UriRequestEnds(String),
    /// Marker: the frames after it are for the client with this number.
    Client(u64),
}

/// The frame of [`FrameSubject::Client`]. It ends where frames are handed out: no client receives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "type", rename = "client")]
pub struct ClientMarker {
    /// The number of the client.
    pub number: u64,
}

impl WireValue for ClientMarker {}

#[derive(Deserialize)]
struct FrameHead<'a> {
    #[serde(rename = "type", borrow)]
    kind: Cow<'a, str>,
    #[serde(default, borrow)]
    id: Option<Cow<'a, str>>,
    #[serde(default, rename = "targetId", borrow)]
    target_id: Option<Cow<'a, str>>,
    #[serde(default, borrow)]
    gate_id: Option<Cow<'a, str>>,
    #[serde(default, borrow)]
    session_id: Option<Cow<'a, str>>,
    #[serde(default)]
    seq: Option<u64>,
    #[serde(default)]
    number: Option<u64>,
    #[serde(default, borrow)]
    payload: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PermissionPayload {
    tool_call: PermissionToolCall,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PermissionToolCall {
    tool_call_id: String,
}

impl AdapterFrame {
    /// Reads a line of a door of ours; none for what is no frame.
    pub fn from_line(line: &str) -> Option<Self> {
        let line = line.trim_end();
        let head: FrameHead<'_> = serde_json::from_str(line).ok()?;
        let id = head.id.map(Cow::into_owned);
        let target = head.target_id.map(Cow::into_owned);
        let whole = || RawJson::parse(line.to_owned()).ok();
        let flat = |kind, about| Some(Self { kind, payload: whole(), session: None, seq: None, about });
        match &*head.kind {
            "client" => {
                let about = FrameSubject::Client(head.number?);
                Some(Self { kind: FrameType::Ready, payload: None, session: None, seq: None, about })
            }
            "ready" => flat(FrameType::Ready, FrameSubject::Nothing),
            "event" => Some(Self {
                kind: FrameType::Event,
                payload: Some(head.payload?.to_owned().into()),
                session: head.session_id.map(Cow::into_owned),
                seq: head.seq,
                about: FrameSubject::Nothing,
            }),
            "response" => flat(FrameType::Response, id.map_or(FrameSubject::Nothing, FrameSubject::Command)),
            "workflow_gate" => flat(FrameType::WorkflowGate, FrameSubject::Gate(head.gate_id?.into_owned())),
            "host_tool_call" => flat(FrameType::HostToolCall, FrameSubject::ToolCall(id?)),
            "host_tool_cancel" => flat(FrameType::HostToolCall, FrameSubject::ToolCallEnds(target?)),
            "host_uri_request" => flat(FrameType::HostUriRequest, FrameSubject::UriRequest(id?)),
            "host_uri_cancel" => flat(FrameType::HostUriRequest, FrameSubject::UriRequestEnds(target?)),
            "extension_ui_request" => dialog_frame(line, id?),
            "permission_request" => {
                let payload = head.payload?;
                let PermissionPayload { tool_call } = serde_json::from_str(payload.get()).ok()?;
                Some(Self {
                    kind: FrameType::PermissionRequest,
                    payload: Some(payload.to_owned().into()),
                    session: None,
                    seq: None,
                    about: FrameSubject::Permission { call: tool_call.tool_call_id, dialog: id? },
                })
            }
            _ => flat(FrameType::Error, FrameSubject::Nothing),
        }
    }
}

fn dialog_frame(line: &str, id: String) -> Option<AdapterFrame> {
    use crate::omp::UiMethod as Shared;
    let method: GjcUiMethod = serde_json::from_str(line).ok()?;
    let about = match &method {
        GjcUiMethod::Shared(
            Shared::Select { .. } | Shared::Confirm { .. } | Shared::Input { .. } | Shared::Editor { .. },
        ) => FrameSubject::Dialog(id),
        GjcUiMethod::Shared(Shared::Cancel { target_id }) => FrameSubject::DialogEnds(target_id.clone()),
        GjcUiMethod::Shared(
            Shared::Notify { .. }
            | Shared::SetStatus { .. }
            | Shared::SetWidget { .. }
            | Shared::SetTitle { .. }
            | Shared::SetEditorText { .. },
        )
        | GjcUiMethod::Own(_) => FrameSubject::Nothing,
    };
    let payload = DialogPayload::from_ui_method(method).map(|payload| RawJson::from_wire(&payload));
    Some(AdapterFrame { kind: FrameType::UiRequest, payload, session: None, seq: None, about })
}

/// Puts `members`, all of them texts, into the text of an object, over those that it has: of two of one name the last counts.
pub fn with_members(object: &str, members: &[(&str, &str)]) -> String {
    let object = object.trim();
    let mut text = object.strip_suffix('}').unwrap_or(object).trim_end().to_owned();
    for (name, value) in members {
        let comma = if text.ends_with('{') { "" } else { "," };
        text.push_str(&format!(
            "{comma}{}:{}",
            RawJson::from_wire(*name).as_text(),
            RawJson::from_wire(*value).as_text()
        ));
    }
    text.push('}');
    text
}

/// Replaces the id in a response with the id of the requester.
pub fn with_response_id(response: &RawJson, id: Option<&OmpRequestId>) -> RawJson {
    let mut members: serde_json::Map<String, serde_json::Value> = match response.as_text().split_once(',') {
        // Responses of ours begin with their id, and may be long.
        Some((first, rest)) if first.starts_with("{\"id\":\"") && first.ends_with('"') && !first.contains('\\') => {
            let own = id.map_or_else(String::new, |id| format!("\"id\":{},", RawJson::from_wire(id).as_text()));
            return RawJson::parse(format!("{{{own}{rest}")).unwrap_or_else(|_| response.clone());
        }
        _ => response.decode_as().unwrap_or_default(),
    };
    match id {
        Some(id) => {
            members.insert("id".to_owned(), serde_json::to_value(id).unwrap_or_default());
        }
        None => {
            members.shift_remove("id");
        }
    }
    RawJson::from(serde_json::Value::Object(members))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_frame_says_what_it_is_about() {
        for (line, kind, about) in [
            (json!({"type": "ready"}), FrameType::Ready, FrameSubject::Nothing),
            (json!({"id": "b1", "type": "response", "command": "abort", "success": true}), FrameType::Response, {
                FrameSubject::Command("b1".to_owned())
            }),
            (json!({"type": "workflow_gate", "gate_id": "wg_1"}), FrameType::WorkflowGate, {
                FrameSubject::Gate("wg_1".to_owned())
            }),
            (
                json!({"type": "host_tool_call", "id": "a"}),
                FrameType::HostToolCall,
                FrameSubject::ToolCall("a".to_owned()),
            ),
            (json!({"type": "host_tool_cancel", "id": "b", "targetId": "a"}), FrameType::HostToolCall, {
                FrameSubject::ToolCallEnds("a".to_owned())
            }),
            (json!({"type": "host_uri_request", "id": "a"}), FrameType::HostUriRequest, {
                FrameSubject::UriRequest("a".to_owned())
            }),
            (json!({"type": "host_uri_cancel", "id": "b", "targetId": "a"}), FrameType::HostUriRequest, {
                FrameSubject::UriRequestEnds("a".to_owned())
            }),
            (json!({"type": "extension_error", "error": "x"}), FrameType::Error, FrameSubject::Nothing),
        ] {
            let line = line.to_string();
            let want = AdapterFrame {
                kind,
                payload: Some(RawJson::parse(line.clone()).unwrap()),
                session: None,
                seq: None,
                about,
            };
            assert_eq!(AdapterFrame::from_line(&format!("{line}\n")), Some(want), "{line}");
        }
        assert_eq!(AdapterFrame::from_line("{}"), None);
    }

    #[test]
    fn for_whom_frames_are_is_no_frame_of_its_own() {
        let line = crate::encode_line(&ClientMarker { number: 3 });
        let frame = AdapterFrame::from_line(std::str::from_utf8(&line).unwrap()).unwrap();
        assert_eq!((frame.payload, frame.about), (None, FrameSubject::Client(3)));
    }

    #[test]
    fn an_event_gives_up_its_payload_and_its_session() {
        let line = json!({"protocol_version": 2, "session_id": "s", "seq": 7, "frame_id": "f", "type": "event",
            "payload": {"event_type": "agent_start"}});
        let frame = AdapterFrame::from_line(&line.to_string()).unwrap();
        assert_eq!(
            (frame.payload.unwrap().as_text(), frame.session.as_deref()),
            (r#"{"event_type":"agent_start"}"#, Some("s"))
        );
    }

    #[test]
    fn dialogs_and_calls_to_allow_are_in_the_form_of_the_bridge() {
        let ask =
            json!({"type": "extension_ui_request", "id": "d1", "method": "confirm", "title": "T", "message": "M"});
        let frame = AdapterFrame::from_line(&ask.to_string()).unwrap();
        assert_eq!(frame.payload.unwrap().as_text(), r#"{"kind":"confirm","title":"T","message":"M"}"#);
        assert_eq!(frame.about, FrameSubject::Dialog("d1".to_owned()));
        let cancel = json!({"type": "extension_ui_request", "id": "d2", "method": "cancel", "targetId": "d1"});
        let frame = AdapterFrame::from_line(&cancel.to_string()).unwrap();
        assert_eq!((frame.payload, frame.about), (None, FrameSubject::DialogEnds("d1".to_owned())));
        let payload = json!({"kind": "permission", "toolCall": {"toolCallId": "call-1"}});
        let ask = json!({"type": "permission_request", "id": "d3", "payload": payload});
        let frame = AdapterFrame::from_line(&ask.to_string()).unwrap();
        assert_eq!(frame.payload, Some(payload.into()));
        assert_eq!(frame.about, FrameSubject::Permission { call: "call-1".to_owned(), dialog: "d3".to_owned() });
    }

    #[test]
    fn ids_of_requests_are_changed_on_the_way_in_and_back_on_the_way_out() {
        assert_eq!(with_members(r#"{"type":"abort"}"#, &[("id", "b1")]), r#"{"type":"abort","id":"b1"}"#);
        assert_eq!(with_members(r#" { "a": {} } "#, &[("id", "b1"), ("t", "x")]), r#"{ "a": {},"id":"b1","t":"x"}"#);
        assert_eq!(with_members(" { } ", &[("id", "b1")]), r#"{"id":"b1"}"#);
        let response = |text: &str| RawJson::parse(text.to_owned()).unwrap();
        let id = OmpRequestId::from("req_1");
        for (given, want, without) in [
            (
                r#"{"id":"b1","type":"response","data":{"id":"x"}}"#,
                r#"{"id":"req_1","type":"response","data":{"id":"x"}}"#,
                r#"{"type":"response","data":{"id":"x"}}"#,
            ),
            (r#"{"type":"response","id":"b1"}"#, r#"{"type":"response","id":"req_1"}"#, r#"{"type":"response"}"#),
        ] {
            assert_eq!(with_response_id(&response(given), Some(&id)).as_text(), want);
            assert_eq!(with_response_id(&response(given), None).as_text(), without);
        }
    }
}
