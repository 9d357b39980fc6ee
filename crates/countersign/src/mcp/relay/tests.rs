use std::{
    io::{BufRead as _, BufReader, Write as _},
    net::Shutdown,
    os::unix::net::UnixStream,
    sync::mpsc::{Receiver, Sender, channel},
    thread::JoinHandle,
    time::Duration,
};

use serde_json::{Value, json};

use super::{ConnectProblem, GatewayConnection, GatewayConnector, run};

/// Connector whose attempts the test answers. Pauses take no time.
struct ScriptedConnector {
    next: Receiver<Result<UnixStream, ConnectProblem>>,
    pauses: Sender<Duration>,
}

impl GatewayConnector for ScriptedConnector {
    type Reading = BufReader<UnixStream>;
    type Writing = UnixStream;

    fn connect(&mut self) -> Result<GatewayConnection<BufReader<UnixStream>, UnixStream>, ConnectProblem> {
        self.next.recv().map_err(|_| ConnectProblem::Refused("the test is over".to_owned()))?.map(connection)
    }

    fn pause(&mut self, pause: Duration) {
        let _ = self.pauses.send(pause);
    }
}

fn connection(stream: UnixStream) -> GatewayConnection<BufReader<UnixStream>, UnixStream> {
    GatewayConnection { reading: BufReader::new(stream.try_clone().unwrap()), writing: stream }
}

/// One side of a pipe: the host, or the gateway.
struct Peer(BufReader<UnixStream>);

impl Peer {
    fn send(&mut self, message: &Value) {
        writeln!(self.0.get_mut(), "{message}").unwrap();
    }

    fn read(&mut self) -> Value {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    }

    fn close(self) {
        self.0.get_ref().shutdown(Shutdown::Both).unwrap();
    }
}

struct RelayFixture {
    host: Peer,
    gateway: Peer,
    attempts: Sender<Result<UnixStream, ConnectProblem>>,
    pauses: Receiver<Duration>,
    running: JoinHandle<Result<(), String>>,
}

impl RelayFixture {
    fn start() -> Self {
        let (host, host_side) = UnixStream::pair().unwrap();
        let (gateway, gateway_side) = UnixStream::pair().unwrap();
        let (attempts, next) = channel();
        let (paused, pauses) = channel();
        let running = std::thread::spawn(move || {
            let input = BufReader::new(host_side.try_clone().unwrap());
            let connector = ScriptedConnector { next, pauses: paused };
            run(connector, connection(gateway_side), input, host_side, |gateway: Option<UnixStream>| {
                if let Some(gateway) = gateway {
                    gateway.shutdown(Shutdown::Write).unwrap();
                }
            })
        });
        let peer = |stream| Peer(BufReader::new(stream));
        Self { host: peer(host), gateway: peer(gateway), attempts, pauses, running }
    }

    /// Answers the next attempt with a new gateway.
    fn connect(&self) -> Peer {
        let (gateway, gateway_side) = UnixStream::pair().unwrap();
        self.attempts.send(Ok(gateway_side)).unwrap();
        Peer(BufReader::new(gateway))
    }
}

fn call(id: &Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": { "name": "turn" } })
}

fn reply(id: &Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "result": { "ok": true } })
}

fn absent() -> Result<UnixStream, ConnectProblem> {
    Err(ConnectProblem::Absent("no gateway runs".to_owned()))
}

#[test]
fn open_requests_are_repeated_on_a_new_connection_and_nothing_else_is() {
    let mut relay = RelayFixture::start();
    let initialize = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {} });
    let initialized = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
    let (answered, open) = (json!(1), json!("1"));
    for message in [&initialize, &initialized, &call(&answered), &call(&open)] {
        relay.host.send(message);
        assert_eq!(relay.gateway.read(), *message);
    }
    for id in [json!(0), answered] {
        relay.gateway.send(&reply(&id));
        assert_eq!(relay.host.read(), reply(&id));
    }
    // The end of the connection in the middle of a reply leaves the request open.
    relay.gateway.0.get_mut().write_all(b"{\"jsonrpc\":\"2.0\",\"id\":\"1\",").unwrap();
    std::mem::replace(&mut relay.gateway, Peer(BufReader::new(UnixStream::pair().unwrap().0))).close();
    relay.attempts.send(absent()).unwrap();
    let mut gateway = relay.connect();
    assert_eq!(gateway.read(), initialize);
    gateway.send(&json!({ "jsonrpc": "2.0", "method": "notifications/message" }));
    gateway.send(&reply(&json!(0)));
    assert_eq!(gateway.read(), initialized);
    assert_eq!(gateway.read(), call(&open));
    gateway.send(&reply(&open));
    assert_eq!(relay.host.read()["method"], "notifications/tools/list_changed", "its tools may be others now");
    assert_eq!(relay.host.read(), reply(&open));
    // Further messages pass as before.
    relay.host.send(&call(&json!(2)));
    assert_eq!(gateway.read(), call(&json!(2)));
    relay.host.close();
    let mut rest = String::new();
    assert_eq!(gateway.0.read_line(&mut rest).unwrap(), 0, "{rest}");
    gateway.close();
    relay.running.join().unwrap().unwrap();
}

#[test]
fn requests_without_a_gateway_wait_a_minute_and_are_refused_then_until_it_is_back() {
    let mut relay = RelayFixture::start();
    relay.host.send(&call(&json!(1)));
    assert_eq!(relay.gateway.read(), call(&json!(1)));
    std::mem::replace(&mut relay.gateway, Peer(BufReader::new(UnixStream::pair().unwrap().0))).close();
    let mut waited = Duration::ZERO;
    while waited < Duration::from_secs(60) {
        relay.attempts.send(absent()).unwrap();
        waited += relay.pauses.recv().unwrap();
    }
    relay.attempts.send(absent()).unwrap();
    let refused = relay.host.read();
    assert_eq!((&refused["id"], &refused["error"]["code"]), (&json!(1), &json!(-32000)));
    assert!(refused["error"]["message"].as_str().unwrap().starts_with("no gateway runs. Pending calls stay pending"));
    relay.host.send(&call(&json!(2)));
    assert_eq!(relay.host.read()["error"], refused["error"], "at once");
    let mut gateway = relay.connect();
    gateway.send(&json!({ "jsonrpc": "2.0", "method": "notifications/message" }));
    assert_eq!(relay.host.read()["method"], "notifications/message");
    relay.host.send(&call(&json!(3)));
    assert_eq!(gateway.read(), call(&json!(3)), "the refused ones are not repeated");
    gateway.send(&reply(&json!(3)));
    assert_eq!(relay.host.read(), reply(&json!(3)));
}

#[test]
fn a_refusal_of_the_gateway_ends_the_pipe_with_its_reason() {
    let mut relay = RelayFixture::start();
    relay.host.send(&call(&json!(1)));
    assert_eq!(relay.gateway.read(), call(&json!(1)));
    std::mem::replace(&mut relay.gateway, Peer(BufReader::new(UnixStream::pair().unwrap().0))).close();
    relay.attempts.send(Err(ConnectProblem::Refused("not for agents".to_owned()))).unwrap();
    assert_eq!(relay.host.read()["error"]["message"], "not for agents");
    assert_eq!(relay.running.join().unwrap(), Err("not for agents".to_owned()));
}

#[test]
fn many_open_requests_are_repeated_to_a_gateway_that_answers_each_before_it_reads_on() {
    const REQUESTS: u64 = 5_000;
    let mut relay = RelayFixture::start();
    for id in 0..REQUESTS {
        relay.host.send(&call(&json!(id)));
        assert_eq!(relay.gateway.read()["id"], json!(id));
    }
    std::mem::replace(&mut relay.gateway, Peer(BufReader::new(UnixStream::pair().unwrap().0))).close();
    let mut gateway = relay.connect();
    let text = "x".repeat(1_000);
    let answering = std::thread::spawn(move || {
        for id in 0..REQUESTS {
            assert_eq!(gateway.read()["id"], json!(id), "in their order");
            gateway.send(&json!({ "jsonrpc": "2.0", "id": id, "result": text }));
        }
        gateway
    });
    for id in 0..REQUESTS {
        assert_eq!(relay.host.read()["id"], json!(id));
    }
    drop(answering.join().unwrap());
}

#[test]
fn the_end_of_the_host_ends_the_pipe_after_the_last_reply() {
    let mut relay = RelayFixture::start();
    relay.host.send(&call(&json!(1)));
    assert_eq!(relay.gateway.read(), call(&json!(1)));
    relay.host.0.get_ref().shutdown(Shutdown::Write).unwrap();
    let mut rest = String::new();
    assert_eq!(relay.gateway.0.read_line(&mut rest).unwrap(), 0, "{rest}");
    relay.gateway.send(&reply(&json!(1)));
    assert_eq!(relay.host.read(), reply(&json!(1)));
    relay.gateway.close();
    relay.running.join().unwrap().unwrap();
}
