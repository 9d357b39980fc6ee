//! Reads frames of stdio, of which those of the bridge are made.
//!
//! It must not know what a frame leads to: it says what it is, and which ids it is about.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::DialogPayload;
use crate::gjc::event::FrameType;
use crate::gjc::ui::UiMethod;
use crate::json::{Json, Wire};
use crate::omp::Id;

/// A frame that a door wrote for a host.
#[derive(Clone, Debug, PartialEq)]
pub struct Told {
    /// What it is.
    pub kind: FrameType,
    /// What its envelope holds; none if the bridge has no frame for it.
    pub payload: Option<Json>,
    /// Which session it is about, if it says that.
    pub session: Option<String>,
    /// Its number, if it has one.
    pub seq: Option<u64>,
    /// What it is about.
    pub about: About,
}

/// What a frame is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum About {
    /// Nothing that anybody answers.
    Nothing,
    /// The command with this id.
    Command(String),
    /// A dialog that waits for an answer.
    Dialog(String),
    /// A call that somebody must allow.
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
    /// What is behind it: that is for the client with this number.
    Client(u64),
}

/// The frame of [`About::Client`], which ends where frames are handed out: no client is told it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "type", rename = "client")]
pub struct ForClient {
    /// The number of the client.
    pub number: u64,
}

impl Wire for ForClient {}

#[derive(Deserialize)]
struct Head<'a> {
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
struct Permission {
    tool_call: ToolCall,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ToolCall {
    tool_call_id: String,
}

impl Told {
    /// Reads a line of a door of ours; none for what is no frame.
    pub fn read(line: &str) -> Option<Self> {
        let line = line.trim_end();
        let head: Head<'_> = serde_json::from_str(line).ok()?;
        let id = head.id.map(Cow::into_owned);
        let target = head.target_id.map(Cow::into_owned);
        let whole = || Json::parse(line.to_owned()).ok();
        let flat = |kind, about| Some(Self { kind, payload: whole(), session: None, seq: None, about });
        match &*head.kind {
            "client" => {
                let about = About::Client(head.number?);
                Some(Self { kind: FrameType::Ready, payload: None, session: None, seq: None, about })
            }
            "ready" => flat(FrameType::Ready, About::Nothing),
            "event" => Some(Self {
                kind: FrameType::Event,
                payload: Some(head.payload?.to_owned().into()),
                session: head.session_id.map(Cow::into_owned),
                seq: head.seq,
                about: About::Nothing,
            }),
            "response" => flat(FrameType::Response, id.map_or(About::Nothing, About::Command)),
            "workflow_gate" => flat(FrameType::WorkflowGate, About::Gate(head.gate_id?.into_owned())),
            "host_tool_call" => flat(FrameType::HostToolCall, About::ToolCall(id?)),
            "host_tool_cancel" => flat(FrameType::HostToolCall, About::ToolCallEnds(target?)),
            "host_uri_request" => flat(FrameType::HostUriRequest, About::UriRequest(id?)),
            "host_uri_cancel" => flat(FrameType::HostUriRequest, About::UriRequestEnds(target?)),
            "extension_ui_request" => dialog(line, id?),
            "permission_request" => {
                let payload = head.payload?;
                let Permission { tool_call } = serde_json::from_str(payload.get()).ok()?;
                Some(Self {
                    kind: FrameType::PermissionRequest,
                    payload: Some(payload.to_owned().into()),
                    session: None,
                    seq: None,
                    about: About::Permission { call: tool_call.tool_call_id, dialog: id? },
                })
            }
            _ => flat(FrameType::Error, About::Nothing),
        }
    }
}

fn dialog(line: &str, id: String) -> Option<Told> {
    use crate::omp::UiMethod as Shared;
    let method: UiMethod = serde_json::from_str(line).ok()?;
    let about = match &method {
        UiMethod::Shared(
            Shared::Select { .. } | Shared::Confirm { .. } | Shared::Input { .. } | Shared::Editor { .. },
        ) => About::Dialog(id),
        UiMethod::Shared(Shared::Cancel { target_id }) => About::DialogEnds(target_id.clone()),
        UiMethod::Shared(
            Shared::Notify { .. }
            | Shared::SetStatus { .. }
            | Shared::SetWidget { .. }
            | Shared::SetTitle { .. }
            | Shared::SetEditorText { .. },
        )
        | UiMethod::Own(_) => About::Nothing,
    };
    let payload = DialogPayload::of(method).map(|payload| Json::of(&payload));
    Some(Told { kind: FrameType::UiRequest, payload, session: None, seq: None, about })
}

/// Puts `members`, all of them texts, into the text of an object, over those that it has: of two of one name the last counts.
pub fn with(object: &str, members: &[(&str, &str)]) -> String {
    let object = object.trim();
    let mut text = object.strip_suffix('}').unwrap_or(object).trim_end().to_owned();
    for (name, value) in members {
        let comma = if text.ends_with('{') { "" } else { "," };
        text.push_str(&format!("{comma}{}:{}", Json::of(*name).text(), Json::of(*value).text()));
    }
    text.push('}');
    text
}

/// Puts the id of the one who asked into a response that has another one.
pub fn answered(response: &Json, id: Option<&Id>) -> Json {
    let mut members: serde_json::Map<String, serde_json::Value> = match response.text().split_once(',') {
        // Responses of ours begin with their id, and may be long.
        Some((first, rest)) if first.starts_with("{\"id\":\"") && first.ends_with('"') && !first.contains('\\') => {
            let own = id.map_or_else(String::new, |id| format!("\"id\":{},", Json::of(id).text()));
            return Json::parse(format!("{{{own}{rest}")).unwrap_or_else(|_| response.clone());
        }
        _ => response.read().unwrap_or_default(),
    };
    match id {
        Some(id) => {
            members.insert("id".to_owned(), serde_json::to_value(id).unwrap_or_default());
        }
        None => {
            members.shift_remove("id");
        }
    }
    Json::from(serde_json::Value::Object(members))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_frame_says_what_it_is_about() {
        for (line, kind, about) in [
            (json!({"type": "ready"}), FrameType::Ready, About::Nothing),
            (json!({"id": "b1", "type": "response", "command": "abort", "success": true}), FrameType::Response, {
                About::Command("b1".to_owned())
            }),
            (json!({"type": "workflow_gate", "gate_id": "wg_1"}), FrameType::WorkflowGate, {
                About::Gate("wg_1".to_owned())
            }),
            (json!({"type": "host_tool_call", "id": "a"}), FrameType::HostToolCall, About::ToolCall("a".to_owned())),
            (json!({"type": "host_tool_cancel", "id": "b", "targetId": "a"}), FrameType::HostToolCall, {
                About::ToolCallEnds("a".to_owned())
            }),
            (json!({"type": "host_uri_request", "id": "a"}), FrameType::HostUriRequest, {
                About::UriRequest("a".to_owned())
            }),
            (json!({"type": "host_uri_cancel", "id": "b", "targetId": "a"}), FrameType::HostUriRequest, {
                About::UriRequestEnds("a".to_owned())
            }),
            (json!({"type": "extension_error", "error": "x"}), FrameType::Error, About::Nothing),
        ] {
            let line = line.to_string();
            let want =
                Told { kind, payload: Some(Json::parse(line.clone()).unwrap()), session: None, seq: None, about };
            assert_eq!(Told::read(&format!("{line}\n")), Some(want), "{line}");
        }
        assert_eq!(Told::read("{}"), None);
    }

    #[test]
    fn for_whom_frames_are_is_no_frame_of_its_own() {
        let line = crate::encode(&ForClient { number: 3 });
        let told = Told::read(std::str::from_utf8(&line).unwrap()).unwrap();
        assert_eq!((told.payload, told.about), (None, About::Client(3)));
    }

    #[test]
    fn an_event_gives_up_its_payload_and_its_session() {
        let line = json!({"protocol_version": 2, "session_id": "s", "seq": 7, "frame_id": "f", "type": "event",
            "payload": {"event_type": "agent_start"}});
        let told = Told::read(&line.to_string()).unwrap();
        assert_eq!(
            (told.payload.unwrap().text(), told.session.as_deref()),
            (r#"{"event_type":"agent_start"}"#, Some("s"))
        );
    }

    #[test]
    fn dialogs_and_calls_to_allow_are_in_the_form_of_the_bridge() {
        let ask =
            json!({"type": "extension_ui_request", "id": "d1", "method": "confirm", "title": "T", "message": "M"});
        let told = Told::read(&ask.to_string()).unwrap();
        assert_eq!(told.payload.unwrap().text(), r#"{"kind":"confirm","title":"T","message":"M"}"#);
        assert_eq!(told.about, About::Dialog("d1".to_owned()));
        let cancel = json!({"type": "extension_ui_request", "id": "d2", "method": "cancel", "targetId": "d1"});
        let told = Told::read(&cancel.to_string()).unwrap();
        assert_eq!((told.payload, told.about), (None, About::DialogEnds("d1".to_owned())));
        let payload = json!({"kind": "permission", "toolCall": {"toolCallId": "call-1"}});
        let ask = json!({"type": "permission_request", "id": "d3", "payload": payload});
        let told = Told::read(&ask.to_string()).unwrap();
        assert_eq!(told.payload, Some(payload.into()));
        assert_eq!(told.about, About::Permission { call: "call-1".to_owned(), dialog: "d3".to_owned() });
    }

    #[test]
    fn ids_of_requests_are_changed_on_the_way_in_and_back_on_the_way_out() {
        assert_eq!(with(r#"{"type":"abort"}"#, &[("id", "b1")]), r#"{"type":"abort","id":"b1"}"#);
        assert_eq!(with(r#" { "a": {} } "#, &[("id", "b1"), ("t", "x")]), r#"{ "a": {},"id":"b1","t":"x"}"#);
        assert_eq!(with(" { } ", &[("id", "b1")]), r#"{"id":"b1"}"#);
        let response = |text: &str| Json::parse(text.to_owned()).unwrap();
        let id = Id::from("req_1");
        for (given, want, without) in [
            (
                r#"{"id":"b1","type":"response","data":{"id":"x"}}"#,
                r#"{"id":"req_1","type":"response","data":{"id":"x"}}"#,
                r#"{"type":"response","data":{"id":"x"}}"#,
            ),
            (r#"{"type":"response","id":"b1"}"#, r#"{"type":"response","id":"req_1"}"#, r#"{"type":"response"}"#),
        ] {
            assert_eq!(answered(&response(given), Some(&id)).text(), want);
            assert_eq!(answered(&response(given), None).text(), without);
        }
    }
}
