use std::sync::Arc;

use countersign_core::id::{PrincipalId, SessionId};
use countersign_foreign_calls::Requester;
use countersign_view::Protocol;
use rmcp::{
    model::{EmptyResult, JsonRpcMessage, RequestId, ServerResult},
    transport::Transport as _,
};
use serde_json::{Value, json};
use tokio::io::{
    AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream, Lines, ReadHalf, WriteHalf, duplex, split,
};

use super::{LARGEST_MESSAGE, StreamTransport};
use crate::admission::MOST_OPEN;

struct Connection {
    transport: StreamTransport<ReadHalf<DuplexStream>>,
    client: WriteHalf<DuplexStream>,
    replies: Lines<BufReader<ReadHalf<DuplexStream>>>,
}

impl Connection {
    fn open() -> Self {
        let (ours, theirs) = duplex(1 << 16);
        let (reader, writer) = split(ours);
        let (replies, client) = split(theirs);
        let (principal, session) = (PrincipalId::new("local:1"), SessionId::new("mcp:local:1"));
        let requester = Arc::new(Requester::new(Protocol::Mcp, principal, session, String::new(), 60));
        let transport = StreamTransport::new(BufReader::new(reader), writer, requester);
        Self { transport, client, replies: BufReader::new(replies).lines() }
    }

    /// Sends lines and a ping, and returns the replies of the transport before the ping arrives.
    async fn faults(mut self, text: String, count: usize) -> Vec<Value> {
        let sending = async {
            self.client.write_all(text.as_bytes()).await.unwrap();
            self.client.write_all(ping(99).as_bytes()).await.unwrap();
        };
        let (message, ()) = tokio::join!(self.transport.receive(), sending);
        assert!(matches!(message, Some(JsonRpcMessage::Request(request)) if request.id == RequestId::Number(99)));
        let mut faults = Vec::new();
        for _ in 0..count {
            faults.push(serde_json::from_str(&self.replies.next_line().await.unwrap().unwrap()).unwrap());
        }
        faults
    }
}

fn ping(id: u32) -> String {
    format!("{}\n", json!({ "jsonrpc": "2.0", "id": id, "method": "ping" }))
}

fn fault(code: i32, message: &str, id: Option<u32>) -> Value {
    let mut fault = json!({ "jsonrpc": "2.0", "error": { "code": code, "message": message } });
    if let Some(id) = id {
        fault["id"] = id.into();
    }
    fault
}

#[tokio::test]
async fn what_is_no_request_gets_an_error_and_the_connection_continues() {
    let large = format!("Message too large (at most {LARGEST_MESSAGE} bytes)");
    for (text, want) in [
        (
            "[{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}]\n".to_owned(),
            Some(fault(-32600, "Batches are not supported", None)),
        ),
        ("{\"jsonrpc\":\"2.0\",\"id\":1}\n".to_owned(), Some(fault(-32600, "Invalid request", Some(1)))),
        ("\n\r\n".to_owned(), None),
        ("{\"jsonrpc\":\"2.0\",\"method\":7}\n".to_owned(), None),
        (format!("{}\n", "x".repeat(10 << 20)), Some(fault(-32600, &large, None))),
    ] {
        let shown: String = text.chars().take(60).collect();
        let want: Vec<Value> = want.into_iter().collect();
        assert_eq!(Connection::open().faults(text, want.len()).await, want, "{shown}");
    }
    let broken = Connection::open().faults("{\"jsonrpc\n".to_owned(), 1).await;
    assert_eq!(broken[0]["error"]["code"], json!(-32700));
}

#[tokio::test]
async fn an_open_id_and_too_many_requests_are_refused() {
    let mut connection = Connection::open();
    let text: String = (0..u32::try_from(MOST_OPEN).unwrap()).map(ping).collect();
    let sending = async {
        connection.client.write_all(text.as_bytes()).await.unwrap();
        connection.client.write_all(ping(1).as_bytes()).await.unwrap();
        connection.client.write_all(ping(50_000).as_bytes()).await.unwrap();
    };
    let receiving = async {
        for _ in 0..MOST_OPEN {
            assert!(connection.transport.receive().await.is_some());
        }
    };
    tokio::join!(sending, receiving);
    tokio::select! {
        _ = connection.transport.receive() => panic!("neither is a request"),
        reply = connection.replies.next_line() => {
            let reply: Value = serde_json::from_str(&reply.unwrap().unwrap()).unwrap();
            assert_eq!(reply, fault(-32600, "the id is the id of another open request", None));
        }
    }
    // A reply makes room.
    let reply = JsonRpcMessage::response(ServerResult::EmptyResult(EmptyResult {}), RequestId::Number(7));
    connection.transport.send(reply).await.unwrap();
}
