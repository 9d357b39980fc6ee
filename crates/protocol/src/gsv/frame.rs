//! Reads and writes frames: `req`, `res` and `evt`.
//!
//! It must not know any method.

use std::{borrow::Cow, collections::BTreeMap};

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::value::RawValue;

use super::GsvError;
use crate::json::{RawJson, WireValue, replace_lone_surrogates};

/// The id of a request, as the JSON that it was written in. Peers write texts; other values are repeated as they came.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct GsvRequestId(RawJson);

impl GsvRequestId {
    /// Creates an id that is a text.
    pub fn from_text(text: &str) -> Self {
        Self(RawJson::from_wire(text))
    }

    /// Returns its JSON.
    pub fn as_json(&self) -> &str {
        self.0.as_text()
    }
}

/// A frame that came.
#[derive(Clone, Debug, PartialEq)]
pub enum GsvInboundFrame {
    /// A request.
    Request {
        /// Id that its answer carries.
        id: GsvRequestId,
        /// The method's name.
        method: String,
        /// Absent as well as null where there are none.
        params: Option<RawJson>,
    },
    /// An answer.
    Response {
        /// The id of the request.
        id: GsvRequestId,
        /// The answer: what is given, or what went wrong.
        outcome: Result<Option<RawJson>, GsvError>,
    },
    /// An event.
    Event {
        /// The event's name.
        event: String,
        /// Payload of the event.
        payload: Option<RawJson>,
        /// Its place among others.
        seq: Option<u64>,
    },
    /// A frame with an id that is no readable request: it is answered with an error.
    Malformed {
        /// The id to answer.
        id: GsvRequestId,
        /// The error.
        fault: GsvError,
    },
    /// A frame without an id, which cannot be answered. The connection stays.
    Ignored {
        /// Reason, for the log.
        why: &'static str,
    },
}

#[derive(Deserialize)]
struct GsvFrameEnvelope<'a> {
    #[serde(rename = "type", default, borrow)]
    kind: Option<&'a RawValue>,
    #[serde(default, borrow)]
    id: Option<&'a RawValue>,
    #[serde(default, borrow)]
    method: Option<&'a RawValue>,
    #[serde(default, borrow)]
    params: Option<&'a RawValue>,
    #[serde(default, borrow)]
    ok: Option<&'a RawValue>,
    #[serde(default, borrow)]
    payload: Option<&'a RawValue>,
    #[serde(default, borrow)]
    error: Option<&'a RawValue>,
    #[serde(default, borrow)]
    event: Option<&'a RawValue>,
    #[serde(default, borrow)]
    seq: Option<&'a RawValue>,
}

fn decode_raw<T: DeserializeOwned>(raw: Option<&RawValue>) -> Option<T> {
    serde_json::from_str(raw?.get()).ok()
}

fn raw_json(raw: Option<&RawValue>) -> Option<RawJson> {
    raw.filter(|raw| raw.get() != "null").map(|raw| raw.to_owned().into())
}

/// Reads one frame.
pub fn read_frame(frame: &str) -> GsvInboundFrame {
    match read_envelope(&replace_lone_surrogates(frame)) {
        Ok(envelope) => classify_frame(&envelope),
        Err(unread) => unread,
    }
}

/// Reads one frame as the gateway does: it accepts requests, and neither answers nor events. Such a frame with an id is answered
/// like every frame that has one.
pub fn receive_frame(frame: &str) -> GsvInboundFrame {
    let frame = replace_lone_surrogates(frame);
    let envelope = match read_envelope(&frame) {
        Ok(envelope) => envelope,
        Err(unread) => return unread,
    };
    let kind = match decode_raw::<String>(envelope.kind).as_deref() {
        Some("res") => "res",
        Some("evt") => "evt",
        Some(_) | None => return classify_frame(&envelope),
    };
    match raw_json(envelope.id) {
        Some(id) => GsvInboundFrame::Malformed {
            id: GsvRequestId(id),
            fault: GsvError::bad_request(format!("Unexpected frame type: {kind}")),
        },
        None => GsvInboundFrame::Ignored { why: "a gateway accepts neither responses nor events" },
    }
}

fn read_envelope(frame: &str) -> Result<GsvFrameEnvelope<'_>, GsvInboundFrame> {
    if !frame.trim_start().starts_with('{') {
        return Err(GsvInboundFrame::Ignored { why: "not an object" });
    }
    serde_json::from_str(frame).map_err(|error| match error.is_data() {
        true => duplicate_member(frame),
        false => GsvInboundFrame::Ignored { why: "not JSON" },
    })
}

fn classify_frame(envelope: &GsvFrameEnvelope<'_>) -> GsvInboundFrame {
    let id = raw_json(envelope.id).map(GsvRequestId);
    let kind: Option<String> = decode_raw(envelope.kind);
    match (kind.as_deref(), id) {
        (Some("req"), Some(id)) => read_request(id, envelope),
        (Some("req"), None) => GsvInboundFrame::Ignored { why: "a request without an id" },
        (Some("res"), Some(id)) => read_response(id, envelope),
        (Some("res"), None) => GsvInboundFrame::Ignored { why: "a response without an id" },
        (Some("evt"), _) => match decode_raw(envelope.event) {
            Some(event) => {
                GsvInboundFrame::Event { event, payload: raw_json(envelope.payload), seq: decode_raw(envelope.seq) }
            }
            None => GsvInboundFrame::Ignored { why: "an event without a name" },
        },
        (_, None) => GsvInboundFrame::Ignored { why: "a frame of an unknown type" },
        (_, Some(id)) => {
            let kind = kind.map_or_else(|| envelope.kind.map_or("undefined", RawValue::get).into(), Cow::Owned);
            GsvInboundFrame::Malformed { id, fault: GsvError::bad_request(format!("Unknown frame type: {kind}")) }
        }
    }
}

/// Reads a frame in which a member is there twice: its request is ambiguous, but the receiver of the error is not. Of ids the
/// last counts, as with the peers' own readers.
fn duplicate_member(frame: &str) -> GsvInboundFrame {
    let members: Result<BTreeMap<String, &RawValue>, _> = serde_json::from_str(frame);
    match members.ok().and_then(|members| raw_json(members.get("id").copied())) {
        Some(id) => {
            GsvInboundFrame::Malformed { id: GsvRequestId(id), fault: GsvError::bad_request("A member is there twice") }
        }
        None => GsvInboundFrame::Ignored { why: "a member is there twice" },
    }
}

fn read_request(id: GsvRequestId, envelope: &GsvFrameEnvelope<'_>) -> GsvInboundFrame {
    match decode_raw::<String>(envelope.method) {
        Some(method) if !method.is_empty() => {
            GsvInboundFrame::Request { id, method, params: raw_json(envelope.params) }
        }
        Some(_) | None => {
            let is_there = envelope.method.is_some_and(|raw| raw.get() != "null" && raw.get() != "\"\"");
            let message = if is_there { "method must be a string" } else { "method required" };
            GsvInboundFrame::Malformed { id, fault: GsvError::bad_request(message) }
        }
    }
}

fn read_response(id: GsvRequestId, envelope: &GsvFrameEnvelope<'_>) -> GsvInboundFrame {
    let outcome = match envelope.ok.map(RawValue::get) {
        Some("true") => Ok(raw_json(envelope.payload)),
        Some("false") => {
            let fault = envelope.error.and_then(|raw| serde_json::from_str(raw.get()).ok());
            Err(fault.unwrap_or_else(|| GsvError::new(super::code::FAILED, "the error cannot be read")))
        }
        Some(_) | None => return GsvInboundFrame::Ignored { why: "a response that is neither ok nor not" },
    };
    GsvInboundFrame::Response { id, outcome }
}

#[derive(Serialize)]
struct GsvResponseFrame<'a, T: ?Sized> {
    #[serde(rename = "type")]
    kind: &'static str,
    id: &'a RawJson,
    ok: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<&'a T>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a GsvError>,
}

impl<T: WireValue + ?Sized> WireValue for GsvResponseFrame<'_, T> {}

#[derive(Serialize)]
struct GsvEventFrame<'a, T: ?Sized> {
    #[serde(rename = "type")]
    kind: &'static str,
    event: &'a str,
    payload: &'a T,
    #[serde(skip_serializing_if = "Option::is_none")]
    seq: Option<u64>,
}

impl<T: WireValue + ?Sized> WireValue for GsvEventFrame<'_, T> {}

#[derive(Serialize)]
struct GsvRequestFrame<'a, T: ?Sized> {
    #[serde(rename = "type")]
    kind: &'static str,
    id: &'a str,
    method: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    params: Option<&'a T>,
}

impl<T: WireValue + ?Sized> WireValue for GsvRequestFrame<'_, T> {}

fn encode_frame(value: &(impl WireValue + ?Sized)) -> String {
    serde_json::to_string(value).expect("a wire value always encodes")
}

/// Encodes the frame that answers a request with its result.
pub fn encode_response(id: &GsvRequestId, payload: &(impl WireValue + ?Sized)) -> String {
    encode_frame(&GsvResponseFrame { kind: "res", id: &id.0, ok: true, payload: Some(payload), error: None })
}

/// Encodes the frame that answers a request with an error.
pub fn encode_error(id: &GsvRequestId, fault: &GsvError) -> String {
    encode_frame(&GsvResponseFrame::<()> { kind: "res", id: &id.0, ok: false, payload: None, error: Some(fault) })
}

/// Encodes the frame of an event, with `seq` if its order among others matters.
pub fn encode_event(event: &str, payload: &(impl WireValue + ?Sized), seq: Option<u64>) -> String {
    encode_frame(&GsvEventFrame { kind: "evt", event, payload, seq })
}

/// Encodes the frame of a request, as our own node sends them.
pub fn encode_request(id: &str, method: super::Method, params: Option<&(impl WireValue + ?Sized)>) -> String {
    encode_frame(&GsvRequestFrame { kind: "req", id, method: method.name(), params })
}

/// Reads, for a fuzz loop, `bytes` as one frame, and a request in it as its method's.
#[cfg(feature = "fuzzing")]
pub fn fuzz(bytes: &[u8]) {
    let (id, fault) = match receive_frame(&String::from_utf8_lossy(bytes)) {
        GsvInboundFrame::Request { id, method, params } => {
            let fault = match super::Method::named(&method) {
                None => Some(GsvError::unknown_method(&method)),
                Some(super::Method::Connect) => {
                    super::connect::ConnectingPeer::from_params(params.as_ref(), |_| true).err()
                }
                Some(method) => super::GsvRequest::from_params(method, params.as_ref()).err(),
            };
            let Some(fault) = fault else { return };
            (id, fault)
        }
        GsvInboundFrame::Malformed { id, fault } => (id, fault),
        GsvInboundFrame::Response { .. } | GsvInboundFrame::Event { .. } | GsvInboundFrame::Ignored { .. } => return,
    };
    // Every refusal carries the request's id and a text.
    let response = read_frame(&encode_error(&id, &fault));
    assert_eq!(response, GsvInboundFrame::Response { id, outcome: Err(fault) });
}
