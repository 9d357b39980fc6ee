//! Admission of messages before the service gets them, the same for all transports: their form, and the ids of open requests.
//!
//! It must not know how a transport reads or writes.

use std::collections::{HashMap, VecDeque};

use rmcp::{
    ErrorData,
    model::{
        ClientJsonRpcMessage, ClientRequest, ErrorCode, JsonRpcError, JsonRpcMessage, RequestId, ServerJsonRpcMessage,
    },
};
use serde_json::Value;

/// Most open requests of one connection, or of one session over HTTP.
pub(super) const MOST_OPEN: usize = 4096;
/// Most ids of cancelled requests that a connection remembers. Older ones may be used again.
const MOST_CANCELLED: usize = 1024;
/// Error code of a server that has too much to do. Source: JSON-RPC 2.0, reserved for servers.
pub(super) const BUSY: ErrorCode = ErrorCode(-32000);

/// Reply to a message that the service does not get.
pub(super) type FaultReply = Box<JsonRpcError>;

/// Ids of requests without a reply, each with a value of the transport.
///
/// The id of a cancelled request stays used: the service may still reply to it, and the reply must not reach another call.
pub(super) struct OpenRequests<T> {
    open: HashMap<RequestId, T>,
    cancelled: VecDeque<RequestId>,
}

impl<T> Default for OpenRequests<T> {
    fn default() -> Self {
        Self { open: HashMap::new(), cancelled: VecDeque::new() }
    }
}

impl<T> OpenRequests<T> {
    /// Adds a request.
    ///
    /// # Errors
    /// The reply to a request with an id that is used, or to one too many.
    pub(super) fn admit(&mut self, id: &RequestId, value: T) -> Result<(), FaultReply> {
        if self.open.contains_key(id) || self.cancelled.contains(id) {
            // Without the id: the client would take the error for the reply to the other request.
            let fault = ErrorData::invalid_request("the id is the id of another open request", None);
            return Err(fault_reply(None, fault));
        }
        if self.open.len() >= MOST_OPEN {
            let text = format!("Too many open requests (at most {MOST_OPEN})");
            return Err(fault_reply(Some(id.clone()), ErrorData::new(BUSY, text, None)));
        }
        self.open.insert(id.clone(), value);
        Ok(())
    }

    /// Returns the value of a request.
    pub(super) fn value_mut(&mut self, id: &RequestId) -> Option<&mut T> {
        self.open.get_mut(id)
    }

    /// Removes a request that gets its reply now.
    pub(super) fn finish(&mut self, id: &RequestId) -> Option<T> {
        self.open.remove(id)
    }

    /// Removes a request that the client cancelled. Its id stays used.
    pub(super) fn cancel(&mut self, id: &RequestId) -> Option<T> {
        let value = self.open.remove(id)?;
        if self.cancelled.len() >= MOST_CANCELLED {
            self.cancelled.pop_front();
        }
        self.cancelled.push_back(id.clone());
        Some(value)
    }

    /// Reports whether the client cancelled a request.
    pub(super) fn is_cancelled(&self, id: &RequestId) -> bool {
        self.cancelled.contains(id)
    }

    /// Removes all requests, and returns their values.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = T> {
        self.open.drain().map(|(_, value)| value)
    }

    /// Reports whether no request waits for its reply.
    pub(super) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }
}

/// Returns the id of the request to which a message is the reply.
pub(super) const fn replied_id(message: &ServerJsonRpcMessage) -> Option<&RequestId> {
    match message {
        JsonRpcMessage::Response(response) => Some(&response.id),
        JsonRpcMessage::Error(error) => error.id.as_ref(),
        JsonRpcMessage::Request(_) | JsonRpcMessage::Notification(_) => None,
    }
}

/// Returns the reply with an error.
pub(super) fn fault_reply(id: Option<RequestId>, fault: ErrorData) -> FaultReply {
    Box::new(JsonRpcError::new(id, fault))
}

/// Returns the reply to a message that is none.
pub(super) fn invalid_request(id: Option<RequestId>) -> FaultReply {
    fault_reply(id, ErrorData::invalid_request("Invalid request", None))
}

/// Parses a message. `Err` is the reply, if it gets one: a notification gets none.
pub(super) fn parse_message(text: &[u8]) -> Result<ClientJsonRpcMessage, Option<FaultReply>> {
    let fault = match serde_json::from_slice(text) {
        Ok(message) => return check_list_params(message, text).map_err(Some),
        Err(fault) => fault,
    };
    let parsed: Value = match serde_json::from_slice(text) {
        Ok(parsed) => parsed,
        Err(_) => {
            let fault = ErrorData::new(ErrorCode::PARSE_ERROR, format!("Parse error: {fault}"), None);
            return Err(Some(fault_reply(None, fault)));
        }
    };
    if parsed.is_array() {
        return Err(Some(fault_reply(None, ErrorData::invalid_request("Batches are not supported", None))));
    }
    if parsed.is_object() && parsed.get("method").is_some() && parsed.get("id").is_none() {
        return Err(None);
    }
    let id = parsed.get("id").and_then(|id| serde_json::from_value::<RequestId>(id.clone()).ok());
    Err(Some(invalid_request(id)))
}

/// Refuses parameters of a list that do not fit: the decoder drops them, and would serve the first page.
fn check_list_params(message: ClientJsonRpcMessage, text: &[u8]) -> Result<ClientJsonRpcMessage, FaultReply> {
    let JsonRpcMessage::Request(request) = &message else { return Ok(message) };
    let is_without = match &request.request {
        ClientRequest::ListToolsRequest(list) => list.params.is_none(),
        ClientRequest::ListPromptsRequest(list) => list.params.is_none(),
        ClientRequest::ListResourcesRequest(list) => list.params.is_none(),
        ClientRequest::ListResourceTemplatesRequest(list) => list.params.is_none(),
        _ => false,
    };
    let has_params = || {
        let parsed: Value = serde_json::from_slice(text).unwrap_or_default();
        parsed.get("params").is_some_and(|params| !params.is_null())
    };
    if is_without && has_params() {
        let text = format!("Invalid params of {}", request.request.method());
        return Err(fault_reply(Some(request.id.clone()), ErrorData::invalid_params(text, None)));
    }
    Ok(message)
}

#[cfg(test)]
mod tests {
    use rmcp::model::RequestId;
    use serde_json::{Value, json};

    use super::{MOST_CANCELLED, OpenRequests, parse_message};

    /// Returns the code and the id of the error that a message gets.
    fn fault_of(text: &str) -> Option<(i64, Option<Value>)> {
        let reply = serde_json::to_value(parse_message(text.as_bytes()).err()??).unwrap();
        Some((reply["error"]["code"].as_i64().unwrap(), reply.get("id").cloned()))
    }

    #[test]
    fn text_that_is_no_message_gets_the_error_of_its_kind() {
        let ping = |id: &str| format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping"}}"#);
        let list = |params: &str| format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{params}}}"#);
        for (text, want) in [
            (ping("1"), None),
            (String::new(), Some((-32700, None))),
            ("{\"jsonrpc".to_owned(), Some((-32700, None))),
            (format!("[{}]", ping("1")), Some((-32600, None))),
            (ping("null"), Some((-32600, None))),
            (ping("1.5"), Some((-32600, None))),
            (ping("1180591620717411303424"), Some((-32600, None))),
            (r#"{"id":1,"method":"ping"}"#.to_owned(), Some((-32600, Some(json!(1))))),
            (r#"{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}"#.to_owned(), Some((-32600, Some(json!(2))))),
            (list(r#"{"cursor":1e999}"#), Some((-32700, None))),
            (list(r#"{"cursor":5}"#), Some((-32602, Some(json!(1))))),
            (list(r#"{"cursor":"x","cursor":5}"#), Some((-32602, Some(json!(1))))),
            (list(r#"{"cursor":[]}"#).replace("tools", "prompts"), Some((-32602, Some(json!(1))))),
            (list(r#"{"cursor":"x"}"#), None),
            (list(r#"{"_meta":{"a":1}}"#), None),
            (list("{}"), None),
            (list("null"), None),
        ] {
            assert_eq!(fault_of(&text), want, "{text}");
        }
    }

    #[test]
    fn an_id_is_free_after_its_reply_and_not_after_its_cancellation() {
        let (one, two) = (RequestId::Number(1), RequestId::String("1".into()));
        let mut requests = OpenRequests::default();
        assert!(requests.is_empty());
        assert!(requests.admit(&one, 'a').is_ok() && requests.admit(&two, 'b').is_ok());
        let refused = serde_json::to_value(requests.admit(&one, 'c').unwrap_err()).unwrap();
        let error = json!({ "code": -32600, "message": "the id is the id of another open request" });
        assert_eq!(refused, json!({ "jsonrpc": "2.0", "error": error }));
        assert_eq!(requests.finish(&one), Some('a'));
        assert!(requests.admit(&one, 'd').is_ok());
        assert_eq!((requests.cancel(&one), requests.cancel(&one)), (Some('d'), None));
        assert_eq!((requests.is_cancelled(&one), requests.is_cancelled(&two)), (true, false));
        assert!(requests.admit(&one, 'e').is_err(), "the service may still reply to the cancelled one");
        assert_eq!(requests.finish(&two), Some('b'));
        assert!(requests.is_empty());
        for id in 0..i64::try_from(MOST_CANCELLED).unwrap() {
            requests.admit(&RequestId::Number(id + 2), 'f').unwrap();
            requests.cancel(&RequestId::Number(id + 2));
        }
        assert!(requests.admit(&one, 'g').is_ok(), "only the newest cancelled ids are remembered");
    }
}
