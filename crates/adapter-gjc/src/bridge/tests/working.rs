//! Work for the host: the requests, the client that gets them, and its answers.

use super::*;

fn tool_call(id: &str) -> Value {
    json!({"type": "host_tool_call", "id": id, "toolCallId": "t", "toolName": "n", "arguments": {}})
}

fn result() -> Value {
    json!({"type": "host_tool_result", "id": "b2", "result": {"content": []}})
}

impl BridgeFixture {
    /// Waits until the adapter knows that this client is present.
    async fn is_for(&self, number: u64) {
        self.frames.send(Bytes::from(format!("{}\n", json!({"type": "client", "number": number})))).await.unwrap();
        self.says(json!({"type": "extension_error"})).await;
    }

    /// Sends a request of the adapter that no client must get.
    async fn asks_nobody(&self, frame: Value) {
        self.frames.send(Bytes::from(format!("{frame}\n"))).await.unwrap();
        self.says(json!({"type": "extension_error"})).await;
    }
}

fn work(frames: &[Value]) -> Vec<&str> {
    let work = frames.iter().filter(|frame| frame["type"] == "host_tool_call" || frame["type"] == "host_uri_request");
    work.map(|frame| frame["payload"]["id"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn the_result_of_the_host_is_sent_once() {
    let mut stage = BridgeFixture::open();
    let _host = stage.follow("", &[]).await;
    stage.is_for(1).await;
    stage.says(tool_call("a1")).await;
    let update = json!({"type": "host_tool_update", "partialResult": {"content": []}});
    assert_eq!(stage.post("host-tool-results/a1", &[], &update).await.0, 200);
    assert_eq!(stage.next_line().await["id"], "a1");
    // The id is that of the path.
    assert_eq!(stage.post("host-tool-results/a1", &[], &result()).await, (200, json!({"status": "accepted"})));
    let line = stage.next_line().await;
    assert_eq!((&line["type"], &line["id"]), (&json!("host_tool_result"), &json!("a1")));
    assert_eq!(stage.post("host-tool-results/a1", &[], &result()).await, (404, json!({"error": "unknown_request"})));
    stage.says(tool_call("a2")).await;
    stage.says(json!({"type": "host_tool_cancel", "id": "c", "targetId": "a2"})).await;
    assert_eq!(stage.post("host-tool-results/a2", &[], &result()).await.0, 404);
    stage.says(json!({"type": "host_uri_request", "id": "u1", "operation": "read", "url": "db://a"})).await;
    assert_eq!(stage.post("host-uri-results/u1", &[], &json!({"content": "x"})).await.0, 200);
    assert_eq!(stage.next_line().await, json!({"content": "x", "type": "host_uri_result", "id": "u1"}));
}

#[tokio::test]
async fn a_call_goes_to_present_clients_and_not_to_returning_ones() {
    let stage = BridgeFixture::open();
    let mut host = stage.follow("", &[]).await;
    stage.is_for(1).await;
    stage.says(tool_call("a1")).await;
    assert_eq!(work(&host.hears()), ["a1"]);
    // A second reader sees new events, and not past ones.
    let mut beside = stage.follow("?last_seq=0", &[]).await;
    assert_eq!(work(&beside.hears()), [""; 0]);
    drop(beside);
    drop(host);
    stage.asks_nobody(tool_call("a2")).await;
    assert_eq!(stage.post("host-tool-results/a2", &[], &result()).await.0, 404, "nobody was asked");
    let mut again = stage.follow("?last_seq=1", &[]).await;
    stage.asks_nobody(tool_call("a3")).await;
    assert_eq!(work(&again.hears()), [""; 0], "what the door asked of the one before");
    assert_eq!(stage.post("host-tool-results/a1", &[], &result()).await.0, 200, "the door has not heard of it yet");
    stage.is_for(2).await;
    assert_eq!(stage.post("host-tool-results/a1", &[], &result()).await.0, 404, "it is nobody's any more");
    stage.says(tool_call("a4")).await;
    assert_eq!(work(&again.hears()), ["a4"]);
}

#[tokio::test]
async fn a_controller_that_follows_again_replaces_its_own_stream() {
    let stage = BridgeFixture::open();
    let mut first = stage.follow("", &[]).await;
    stage.is_for(1).await;
    let owner = stage.claim().await;
    let own = [("x-gjc-bridge-owner-token", owner.as_str())];
    let mut second = stage.follow("?last_seq=1", &own).await;
    stage.asks_nobody(tool_call("a1")).await;
    assert_eq!((work(&first.hears()).len(), work(&second.hears()).len()), (0, 0));
    stage.is_for(2).await;
    stage.says(tool_call("a2")).await;
    drop(second);
    stage.asks_nobody(tool_call("a3")).await;
    assert_eq!(work(&first.hears()), ["a2"], "whoever only looks is not asked");
}
