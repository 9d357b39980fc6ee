//! Reads and writes frames: `req`, `res` and `evt`.
//!
//! It must not know any method.

use std::{borrow::Cow, collections::BTreeMap};

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::Fault;
use crate::json::{Json, Wire, mend};

/// The id of a request, as the JSON that it was written in. Peers write texts; whatever else is repeated as it came.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Id(Json);

impl Id {
    /// An id that is a text.
    pub fn of(text: &str) -> Self {
        Self(Json::of(text))
    }

    /// Returns its JSON.
    pub fn json(&self) -> &str {
        self.0.text()
    }
}

/// A frame that came.
#[derive(Clone, Debug, PartialEq)]
pub enum Incoming {
    /// It asks for something.
    Request {
        /// What its answer is told apart by.
        id: Id,
        /// The method's name.
        method: String,
        /// Absent as well as null where there are none.
        params: Option<Json>,
    },
    /// It answers something.
    Response {
        /// The id of the request.
        id: Id,
        /// The answer: what is given, or what went wrong.
        outcome: Result<Option<Json>, Fault>,
    },
    /// It tells of something.
    Event {
        /// The event's name.
        event: String,
        /// What it says.
        payload: Option<Json>,
        /// Its place among others.
        seq: Option<u64>,
    },
    /// It has an id and is no request that can be read: it is answered.
    Malformed {
        /// The id to answer.
        id: Id,
        /// What is wrong.
        fault: Fault,
    },
    /// It cannot be answered, as it has no id. The connection stays.
    Ignored {
        /// Why, for the log.
        why: &'static str,
    },
}

#[derive(Deserialize)]
struct Envelope<'a> {
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

fn text(raw: Option<&RawValue>) -> Option<String> {
    serde_json::from_str(raw?.get()).ok()
}

fn json(raw: Option<&RawValue>) -> Option<Json> {
    raw.filter(|raw| raw.get() != "null").map(|raw| raw.to_owned().into())
}

/// Reads one frame.
pub fn read(frame: &str) -> Incoming {
    match envelope(&mend(frame)) {
        Ok(envelope) => sort(&envelope),
        Err(unread) => unread,
    }
}

/// Reads one frame as the gateway does: it is asked, and neither answered nor told. What a peer sends of that kind with an id is
/// answered like everything that has one.
pub fn receive(frame: &str) -> Incoming {
    let frame = mend(frame);
    let envelope = match envelope(&frame) {
        Ok(envelope) => envelope,
        Err(unread) => return unread,
    };
    let kind = match text(envelope.kind).as_deref() {
        Some("res") => "res",
        Some("evt") => "evt",
        Some(_) | None => return sort(&envelope),
    };
    match json(envelope.id) {
        Some(id) => Incoming::Malformed { id: Id(id), fault: Fault::invalid(format!("Unexpected frame type: {kind}")) },
        None => Incoming::Ignored { why: "a gateway is neither answered nor told" },
    }
}

fn envelope(frame: &str) -> Result<Envelope<'_>, Incoming> {
    if !frame.trim_start().starts_with('{') {
        return Err(Incoming::Ignored { why: "not an object" });
    }
    serde_json::from_str(frame).map_err(|error| match error.is_data() {
        true => twice(frame),
        false => Incoming::Ignored { why: "not JSON" },
    })
}

fn sort(envelope: &Envelope<'_>) -> Incoming {
    let id = json(envelope.id).map(Id);
    let kind = text(envelope.kind);
    match (kind.as_deref(), id) {
        (Some("req"), Some(id)) => request(id, envelope),
        (Some("req"), None) => Incoming::Ignored { why: "a request without an id" },
        (Some("res"), Some(id)) => response(id, envelope),
        (Some("res"), None) => Incoming::Ignored { why: "a response without an id" },
        (Some("evt"), _) => match text(envelope.event) {
            Some(event) => Incoming::Event { event, payload: json(envelope.payload), seq: number(envelope.seq) },
            None => Incoming::Ignored { why: "an event without a name" },
        },
        (_, None) => Incoming::Ignored { why: "a frame of an unknown type" },
        (_, Some(id)) => {
            let kind = kind.map_or_else(|| envelope.kind.map_or("undefined", RawValue::get).into(), Cow::Owned);
            Incoming::Malformed { id, fault: Fault::invalid(format!("Unknown frame type: {kind}")) }
        }
    }
}

/// A frame in which a member is there twice: what it asks for cannot be told, but who is to hear of that. Of ids the last
/// counts, as with the peers' own readers.
fn twice(frame: &str) -> Incoming {
    let members: Result<BTreeMap<String, &RawValue>, _> = serde_json::from_str(frame);
    match members.ok().and_then(|members| json(members.get("id").copied())) {
        Some(id) => Incoming::Malformed { id: Id(id), fault: Fault::invalid("A member is there twice") },
        None => Incoming::Ignored { why: "a member is there twice" },
    }
}

fn number(raw: Option<&RawValue>) -> Option<u64> {
    serde_json::from_str(raw?.get()).ok()
}

fn request(id: Id, envelope: &Envelope<'_>) -> Incoming {
    match text(envelope.method) {
        Some(method) if !method.is_empty() => Incoming::Request { id, method, params: json(envelope.params) },
        Some(_) | None => {
            let is_there = envelope.method.is_some_and(|raw| raw.get() != "null" && raw.get() != "\"\"");
            let message = if is_there { "method must be a string" } else { "method required" };
            Incoming::Malformed { id, fault: Fault::invalid(message) }
        }
    }
}

fn response(id: Id, envelope: &Envelope<'_>) -> Incoming {
    let outcome = match envelope.ok.map(RawValue::get) {
        Some("true") => Ok(json(envelope.payload)),
        Some("false") => {
            let fault = envelope.error.and_then(|raw| serde_json::from_str(raw.get()).ok());
            Err(fault.unwrap_or_else(|| Fault::new(super::code::FAILED, "the error cannot be read")))
        }
        Some(_) | None => return Incoming::Ignored { why: "a response that is neither ok nor not" },
    };
    Incoming::Response { id, outcome }
}

#[derive(Serialize)]
struct Answer<'a, T: ?Sized> {
    #[serde(rename = "type")]
    kind: &'static str,
    id: &'a Json,
    ok: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<&'a T>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a Fault>,
}

impl<T: Wire + ?Sized> Wire for Answer<'_, T> {}

#[derive(Serialize)]
struct Told<'a, T: ?Sized> {
    #[serde(rename = "type")]
    kind: &'static str,
    event: &'a str,
    payload: &'a T,
    #[serde(skip_serializing_if = "Option::is_none")]
    seq: Option<u64>,
}

impl<T: Wire + ?Sized> Wire for Told<'_, T> {}

#[derive(Serialize)]
struct Asked<'a, T: ?Sized> {
    #[serde(rename = "type")]
    kind: &'static str,
    id: &'a str,
    method: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    params: Option<&'a T>,
}

impl<T: Wire + ?Sized> Wire for Asked<'_, T> {}

fn frame(value: &(impl Wire + ?Sized)) -> String {
    serde_json::to_string(value).expect("a wire value always encodes")
}

/// The frame that answers a request with what was asked for.
pub fn answer(id: &Id, payload: &(impl Wire + ?Sized)) -> String {
    frame(&Answer { kind: "res", id: &id.0, ok: true, payload: Some(payload), error: None })
}

/// The frame that answers a request with what went wrong.
pub fn refusal(id: &Id, fault: &Fault) -> String {
    frame(&Answer::<()> { kind: "res", id: &id.0, ok: false, payload: None, error: Some(fault) })
}

/// The frame of an event. `seq` where its place among others matters.
pub fn event(event: &str, payload: &(impl Wire + ?Sized), seq: Option<u64>) -> String {
    frame(&Told { kind: "evt", event, payload, seq })
}

/// The frame of a request, as our own node sends them.
pub fn ask(id: &str, method: super::Method, params: Option<&(impl Wire + ?Sized)>) -> String {
    frame(&Asked { kind: "req", id, method: method.name(), params })
}

/// Reads, for a fuzz loop, `bytes` as one frame, and a request in it as its method's.
#[cfg(feature = "fuzzing")]
pub fn fuzz(bytes: &[u8]) {
    let (id, fault) = match receive(&String::from_utf8_lossy(bytes)) {
        Incoming::Request { id, method, params } => {
            let fault = match super::Method::named(&method) {
                None => Some(Fault::unknown_method(&method)),
                Some(super::Method::Connect) => super::connect::Connect::read(params.as_ref(), |_| true).err(),
                Some(method) => super::Request::read(method, params.as_ref()).err(),
            };
            let Some(fault) = fault else { return };
            (id, fault)
        }
        Incoming::Malformed { id, fault } => (id, fault),
        Incoming::Response { .. } | Incoming::Event { .. } | Incoming::Ignored { .. } => return,
    };
    // Whatever is refused is refused with its own id and in words.
    let told = read(&refusal(&id, &fault));
    assert_eq!(told, Incoming::Response { id, outcome: Err(fault) });
}
