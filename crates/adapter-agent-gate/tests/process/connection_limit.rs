//! More connections than there is room for.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpStream,
};

use countersign_testkit::process::{
    AGENT_TOKEN, GatewayFixture, GatewayServer, KITCHEN_TOKEN, RULES, WAIT_TIMEOUT,
    agent_gate::{AgentClient, AgentSocketEvent},
    eventually,
};
use serde_json::json;

/// Opens a connection that requests the health of the gateway, and then sends nothing more.
fn stranger(gateway: &GatewayServer) -> TcpStream {
    let mut stream = TcpStream::connect(&gateway.address).unwrap();
    stream.set_read_timeout(Some(WAIT_TIMEOUT)).unwrap();
    write!(stream, "GET /nothing HTTP/1.1\r\nhost: {}\r\n\r\n", gateway.address).unwrap();
    let mut first = String::new();
    BufReader::new(&stream).read_line(&mut first).unwrap();
    assert_eq!(first, "HTTP/1.1 404 Not Found\r\n");
    stream
}

#[test]
fn unauthenticated_connections_make_room_and_then_the_newest_is_refused() {
    let place = GatewayFixture::with_config_and_rules("rate_limit: { max_connections: 2 }", RULES);
    let gateway = GatewayServer::start(&place);
    let mut silent = stranger(&gateway);
    let mut waiting = AgentClient::connect(&gateway);
    let mut first = AgentClient::connect_authenticated(&gateway, AGENT_TOKEN);
    // The oldest connection was closed first.
    silent.read_to_end(&mut Vec::new()).unwrap();
    let mut second = AgentClient::connect_authenticated(&gateway, KITCHEN_TOKEN);
    assert_eq!(waiting.next(), AgentSocketEvent::Closed(1012, "too many connections".to_owned()));
    assert_eq!(AgentClient::connect_with(&gateway, &[]).err(), Some(503));
    let mut response = String::new();
    let mut refused = TcpStream::connect(&gateway.address).unwrap();
    refused.set_read_timeout(Some(WAIT_TIMEOUT)).unwrap();
    refused.read_to_string(&mut response).unwrap();
    assert!(response.contains("2 connections") && response.contains("rate_limit.max_connections"), "{response}");
    for agent in [&mut first, &mut second] {
        assert_eq!(agent.call_tool(1, "look", json!({ "thing": "a" }))["status"], "executed");
    }
    drop(second);
    let mut third = eventually("a place", || AgentClient::connect_with(&gateway, &[]).ok());
    assert_eq!(third.authenticate(KITCHEN_TOKEN)["result"]["status"], "authenticated");
}
