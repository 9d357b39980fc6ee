//! Messages of an MCP host that a new connection to the gateway needs: its `initialize`, and its requests without a reply.
//!
//! It must not know what a request asks for.

use serde::Deserialize;
use serde_json::{Value, json};

/// Error code of a server that cannot answer now. Source: JSON-RPC 2.0, reserved for servers.
const UNAVAILABLE: i32 = -32000;
/// Notification of a host after `initialize`.
const INITIALIZED: &str = "notifications/initialized";
/// Notification of a host that gives a request up.
const CANCELLED: &str = "notifications/cancelled";

/// Fields of a message that matter here.
#[derive(Deserialize)]
struct MessageFields {
    #[serde(default)]
    id: Option<Value>,
    #[serde(default)]
    method: Option<String>,
    #[serde(default)]
    params: Option<CancelledParams>,
}

/// Parameters of `notifications/cancelled`. Those of other messages have other fields.
#[derive(Deserialize)]
struct CancelledParams {
    #[serde(default, rename = "requestId")]
    request: Option<Value>,
}

/// Request without a reply.
#[derive(Clone, Debug)]
struct OpenRequest {
    id: Value,
    line: Vec<u8>,
}

/// Messages of a host, in the order in which they came.
#[derive(Debug, Default)]
pub(super) struct HostRequests {
    open: Vec<OpenRequest>,
    initialize: Option<OpenRequest>,
    initialized: Option<Vec<u8>>,
}

impl HostRequests {
    /// Notes a line of the host. Returns true if it is a request.
    pub(super) fn note_sent(&mut self, line: &[u8]) -> bool {
        let Some(MessageFields { id, method: Some(method), params }) = fields(line) else { return false };
        if let Some(id) = id {
            let request = OpenRequest { id, line: line.to_vec() };
            if method == "initialize" {
                self.initialize = Some(request.clone());
                self.initialized = None;
            }
            self.open.push(request);
            return true;
        }
        if method == INITIALIZED {
            self.initialized = Some(line.to_vec());
        } else if let Some(given_up) = params.and_then(|params| params.request).filter(|_| method == CANCELLED) {
            self.open.retain(|request| request.id != given_up);
        }
        false
    }

    /// Notes a line of the gateway: a reply closes its request.
    pub(super) fn note_received(&mut self, line: &[u8]) {
        if let Some(MessageFields { id: Some(id), method: None, .. }) = fields(line) {
            self.close(&id);
        }
    }

    fn close(&mut self, id: &Value) {
        if let Some(at) = self.open.iter().position(|request| request.id == *id) {
            self.open.remove(at);
        }
    }

    /// Returns the `initialize` that a new connection must repeat, because the host has its reply.
    pub(super) fn answered_initialize(&self) -> Option<&[u8]> {
        let answered = self.initialize.as_ref().filter(|first| self.open.iter().all(|open| open.id != first.id));
        answered.map(|request| request.line.as_slice())
    }

    /// Reports whether a line is the reply to the repeated `initialize`.
    pub(super) fn is_initialize_reply(&self, line: &[u8]) -> bool {
        let id = fields(line).filter(|fields| fields.method.is_none()).and_then(|fields| fields.id);
        self.initialize.as_ref().is_some_and(|request| Some(&request.id) == id.as_ref())
    }

    /// Returns the notification that follows the repeated `initialize`.
    pub(super) fn initialized(&self) -> Option<&[u8]> {
        self.initialized.as_deref()
    }

    /// Returns the lines of the requests without a reply.
    pub(super) fn open_lines(&self) -> impl Iterator<Item = &[u8]> {
        self.open.iter().map(|request| request.line.as_slice())
    }

    /// Closes every request, and returns an error reply to each.
    pub(super) fn refuse_all(&mut self, problem: &str) -> Vec<Value> {
        let refuse = |request: OpenRequest| json!({ "jsonrpc": "2.0", "id": request.id, "error": { "code": UNAVAILABLE, "message": problem } });
        std::mem::take(&mut self.open).into_iter().map(refuse).collect()
    }
}

fn fields(line: &[u8]) -> Option<MessageFields> {
    // Parameters of another form than those of a cancellation are none of ours.
    serde_json::from_slice(line).ok().or_else(|| {
        let Value::Object(mut message) = serde_json::from_slice(line).ok()? else { return None };
        let method = message.get("method").and_then(Value::as_str).map(str::to_owned);
        Some(MessageFields { id: message.remove("id"), method, params: None })
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::HostRequests;

    fn line(message: &Value) -> Vec<u8> {
        let mut line = message.to_string().into_bytes();
        line.push(b'\n');
        line
    }

    fn request(id: &Value, method: &str) -> Vec<u8> {
        line(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": { "a": [1] } }))
    }

    fn reply(id: &Value) -> Vec<u8> {
        line(&json!({ "jsonrpc": "2.0", "id": id, "result": {} }))
    }

    #[test]
    fn a_request_is_open_until_its_reply_or_its_cancellation() {
        let mut requests = HostRequests::default();
        for id in [json!(0), json!("0"), json!(1), json!("a")] {
            assert!(requests.note_sent(&request(&id, "tools/call")));
        }
        assert!(!requests.note_sent(&line(&json!({ "jsonrpc": "2.0", "method": "notifications/progress" }))));
        assert!(!requests.note_sent(b"no message\n"));
        requests.note_received(&reply(&json!(0)));
        requests.note_received(&reply(&json!("b")));
        // A request of the gateway with the same id is no reply.
        requests.note_received(&request(&json!(1), "ping"));
        let cancelled =
            json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": "a" } });
        requests.note_sent(&line(&cancelled));
        let open: Vec<_> = requests.open_lines().map(<[u8]>::to_vec).collect();
        assert_eq!(open, [request(&json!("0"), "tools/call"), request(&json!(1), "tools/call")]);
        let refused = requests.refuse_all("gone");
        assert_eq!(refused[1], json!({ "jsonrpc": "2.0", "id": 1, "error": { "code": -32000, "message": "gone" } }));
        assert_eq!((refused.len(), requests.open_lines().count()), (2, 0));
    }

    #[test]
    fn an_initialize_is_repeated_once_the_host_has_its_reply() {
        let mut requests = HostRequests::default();
        assert_eq!(requests.answered_initialize(), None);
        let initialize = request(&json!(7), "initialize");
        requests.note_sent(&initialize);
        assert_eq!(requests.answered_initialize(), None, "it is an open request like any other");
        requests.note_received(&reply(&json!(7)));
        assert_eq!((requests.answered_initialize(), requests.initialized()), (Some(&*initialize), None));
        let initialized = line(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
        requests.note_sent(&initialized);
        assert_eq!(requests.initialized(), Some(&*initialized));
        assert!(requests.is_initialize_reply(&reply(&json!(7))));
        assert!(!requests.is_initialize_reply(&reply(&json!(8))));
        assert!(!requests.is_initialize_reply(&request(&json!(7), "ping")));
    }
}
