//! More connections than there is room for.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpStream,
};

use serde_json::json;

use crate::{
    agent::{Agent, Heard},
    gateway::{Gateway, PATIENCE, soon},
    place::{KITCHEN, Place, RULES, TOKEN},
};

/// A connection of somebody who asks how the gateway is, and then says nothing more.
fn stranger(gateway: &Gateway) -> TcpStream {
    let mut stream = TcpStream::connect(&gateway.address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(stream, "GET /nothing HTTP/1.1\r\nhost: {}\r\n\r\n", gateway.address).unwrap();
    let mut first = String::new();
    BufReader::new(&stream).read_line(&mut first).unwrap();
    assert_eq!(first, "HTTP/1.1 404 Not Found\r\n");
    stream
}

#[test]
fn who_has_not_said_who_it_is_makes_room_and_then_the_newest_is_refused() {
    let place = Place::with("rate_limit: { max_connections: 2 }", RULES);
    let gateway = Gateway::start(&place);
    let mut silent = stranger(&gateway);
    let mut waiting = Agent::connect(&gateway);
    let mut first = Agent::join(&gateway, TOKEN);
    // The oldest went first.
    silent.read_to_end(&mut Vec::new()).unwrap();
    let mut second = Agent::join(&gateway, KITCHEN);
    assert_eq!(waiting.next(), Heard::Closed(1012, "too many connections".to_owned()));
    assert_eq!(Agent::connect_with(&gateway, &[]).err(), Some(503));
    let mut told = String::new();
    let mut refused = TcpStream::connect(&gateway.address).unwrap();
    refused.set_read_timeout(Some(PATIENCE)).unwrap();
    refused.read_to_string(&mut told).unwrap();
    assert!(told.contains("2 connections") && told.contains("rate_limit.max_connections"), "{told}");
    for agent in [&mut first, &mut second] {
        assert_eq!(agent.call(1, "look", json!({ "thing": "a" }))["status"], "executed");
    }
    drop(second);
    let mut third = soon("a place", || Agent::connect_with(&gateway, &[]).ok());
    assert_eq!(third.auth(KITCHEN)["result"]["status"], "authenticated");
}
