//! Stream of all events: a reader that resumes from the last id misses nothing and gets nothing twice.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    thread,
};

use countersign_testkit::process::{
    GatewayFixture, GatewayServer, RULES,
    api::{ApiEvent, ApiEvents, send_request},
};
use serde_json::{Value, json};

/// Number of cuts of the stream in all.
const CUTS: usize = 1000;
/// Number of concurrent readers.
const READERS: u64 = 4;
/// Smallest number of sessions that are opened before each kill.
const SESSIONS: usize = 20;
/// Number of gateways that are killed meanwhile.
const KILLS: usize = 8;

/// Random numbers that are the same in every run.
struct XorShiftRng(u64);

impl XorShiftRng {
    fn below(&mut self, most: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % most
    }
}

/// Reader that resumes after each cut.
struct ReconnectingReader {
    dice: XorShiftRng,
    last: String,
    events: Vec<ApiEvent>,
}

impl ReconnectingReader {
    fn new(seed: u64) -> Self {
        Self {
            dice: XorShiftRng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15)),
            last: "start".to_owned(),
            events: Vec::new(),
        }
    }

    fn open(&mut self, address: &str) -> std::io::Result<ApiEvents> {
        // A browser repeats its first request and adds its last id.
        if self.dice.below(2) == 0 && self.last != "start" {
            return ApiEvents::open(address, "?after=start", &[("last-event-id", &self.last)]);
        }
        ApiEvents::open(address, &format!("?after={}", self.last), &[])
    }

    fn take(&mut self, events: &mut ApiEvents) {
        for event in events.take_events() {
            assert_ne!(event.name, "reset", "{event:?} after {}", self.last);
            self.last = event.id.clone().unwrap();
            if event.name != "ready" {
                self.events.push(event);
            }
        }
    }

    /// Reads so many bytes, which may end in the middle of an event.
    fn follow(&mut self, address: &str) {
        let Ok(mut events) = self.open(address) else { return };
        let mut left = self.dice.below(9000);
        while left > 0 {
            match events.read_bytes(usize::try_from(left).unwrap()) {
                Ok(count) => left -= count as u64,
                // It was killed.
                Err(_) => break,
            }
            self.take(&mut events);
        }
        self.take(&mut events);
    }

    fn follow_to(&mut self, address: &str, end: u64) {
        let mut events = self.open(address).unwrap();
        while self.events.last().is_none_or(|event| event.data["lsn"].as_u64() < Some(end)) {
            events.read_bytes(64 << 10).unwrap();
            self.take(&mut events);
        }
    }
}

#[test]
fn a_stream_that_is_cut_a_thousand_times_with_the_gateway_killed_meanwhile_misses_nothing() {
    let place = GatewayFixture::with_config_and_rules("model: { provider: demo, id: scripted-1 }", RULES);
    let mut readers: Vec<ReconnectingReader> = (1..=READERS).map(ReconnectingReader::new).collect();
    let (cuts, opened) = (AtomicUsize::new(0), AtomicUsize::new(0));
    for kill in 1..=KILLS {
        let gateway = GatewayServer::start(&place);
        let (address, is_over, due) = (gateway.address.clone(), AtomicBool::new(false), CUTS * kill / KILLS);
        thread::scope(|scope| {
            for reader in &mut readers {
                scope.spawn(|| {
                    while !is_over.load(Ordering::Relaxed) {
                        reader.follow(&address);
                        cuts.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
            for _ in 0..2 {
                scope.spawn(|| {
                    while !is_over.load(Ordering::Relaxed) {
                        // A request to a gateway that is killed has no effect.
                        let say = json!({ "message": "hello" });
                        let reply = send_request(&address, ("POST", "/api/v1/sessions"), &[], Some(&say));
                        opened.fetch_add(usize::from(reply.is_ok_and(|reply| reply.status == 201)), Ordering::Relaxed);
                    }
                });
            }
            while cuts.load(Ordering::Relaxed) < due || opened.load(Ordering::Relaxed) < SESSIONS * kill {
                thread::yield_now();
                thread::park_timeout(std::time::Duration::from_millis(1));
            }
            gateway.kill();
            is_over.store(true, Ordering::Relaxed);
        });
    }
    assert!(cuts.load(Ordering::Relaxed) >= CUTS);
    let gateway = GatewayServer::start(&place);
    let head = gateway.get_json("/api/v1/audit/head").1["lsn"].as_u64().unwrap();
    assert!(head > 1000, "{head} records are no test");
    for reader in &mut readers {
        reader.follow_to(&gateway.address, head);
    }
    drop(gateway);
    let log = place.log_path();
    let exported = place.run(&["audit", "export", "--log", log.to_str().unwrap()]).out;
    let record: BTreeMap<u64, Value> = exported
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .map(|record| (record["lsn"].as_u64().unwrap(), record))
        .collect();
    for (number, reader) in readers.iter().enumerate() {
        let lsns: Vec<u64> = reader.events.iter().map(|event| event.data["lsn"].as_u64().unwrap()).collect();
        let want: Vec<u64> = (1..=*lsns.last().unwrap()).collect();
        let at = lsns.iter().zip(&want).position(|(received, want)| received != want);
        assert!(at.is_none() && lsns.len() == want.len() && *lsns.last().unwrap() >= head, "reader {number} at {at:?}");
        for event in &reader.events {
            let (lsn, id) = (event.data["lsn"].as_u64().unwrap(), event.id.clone().unwrap());
            let record = &record[&lsn];
            assert_eq!(id, format!("{lsn}-{}", &record["chain"].as_str().unwrap()[..16]));
            for name in ["at", "session", "kind", "version", "facts"] {
                assert_eq!(event.data[name], record[name], "{lsn}");
            }
            assert_eq!(event.data["content"]["digest"], record["content_digest"], "{lsn}");
        }
    }
    place.verify_log();
}

#[test]
fn a_cursor_of_another_record_or_of_the_future_is_reported_and_nothing_is_skipped() {
    let (place, other) = (
        GatewayFixture::with_config_and_rules("model: { provider: demo, id: scripted-1 }", RULES),
        GatewayFixture::new(),
    );
    let gateway = GatewayServer::start(&place);
    let say = json!({ "message": "hello" });
    assert_eq!(send_request(&gateway.address, ("POST", "/api/v1/sessions"), &[], Some(&say)).unwrap().status, 201);
    let mut events = ApiEvents::open(&gateway.address, "?after=start&content=1", &[]).unwrap();
    let received = events.read_until(|event| event.data["event"] == "ended");
    assert_eq!((received[0].name.as_str(), &received[0].data), ("ready", &json!({ "after": "0" })));
    let has_text =
        received.iter().any(|event| event.data["content"]["text"].as_str().is_some_and(|text| text.contains("hello")));
    assert!(has_text, "{received:?}");
    let last = received.last().unwrap().id.clone().unwrap();
    let (lsn, chain) = last.split_once('-').unwrap();
    let lsn: u64 = lsn.parse().unwrap();
    for (case, cursor, reason) in [
        ("the future", format!("{}-{chain}", lsn + 100_000), "ahead"),
        ("another history", format!("{lsn}-0123456789abcdef"), "elsewhere"),
    ] {
        let mut events = ApiEvents::open(&gateway.address, &format!("?after={cursor}"), &[]).unwrap();
        let received = events.read_until(|event| event.data["lsn"] == 2);
        let want = json!({ "asked": cursor, "reason": reason, "after": "0" });
        assert_eq!((received[0].name.as_str(), &received[0].data), ("reset", &want), "{case}");
        assert_eq!((&received[1].data["lsn"], received.len()), (&json!(1), 3), "{case}");
    }
    // The same cursor in a record that does not reach it.
    let gateway = GatewayServer::start(&other);
    let mut events = ApiEvents::open(&gateway.address, &format!("?after={last}"), &[]).unwrap();
    assert_eq!(events.read_until(|_| true)[0].name, "reset");
    let reply = send_request(&gateway.address, ("GET", "/api/v1/events?after=yesterday"), &[], None).unwrap();
    assert_eq!(reply.status, 400, "{reply:?}");
    assert!(reply.body["detail"].as_str().unwrap().contains("yesterday"), "{reply:?}");
}

#[test]
fn text_is_streamed_to_clients_that_request_it() {
    let place = GatewayFixture::with_config_and_rules("model: { provider: demo, id: scripted-1 }", RULES);
    let gateway = GatewayServer::start(&place);
    let [mut lively, mut plain] =
        ["?after=start&live=1", "?after=start"].map(|query| ApiEvents::open(&gateway.address, query, &[]).unwrap());
    let say = json!({ "message": "hello" });
    // Both follow before the first message.
    for events in [&mut lively, &mut plain] {
        events.read_until(|event| event.name == "ready");
    }
    assert_eq!(send_request(&gateway.address, ("POST", "/api/v1/sessions"), &[], Some(&say)).unwrap().status, 201);
    let is_end = |event: &ApiEvent| event.data["kind"] == "run" && event.data["event"] == "ended";
    let (live_events, facts) = (lively.read_until(is_end), plain.read_until(is_end));
    let texts: String = live_events.iter().filter_map(|event| event.data["text"].as_str()).collect();
    assert!(texts.contains("scripted model"), "{live_events:?}");
    assert!(live_events.iter().all(|event| (event.name == "live") == event.id.is_none()));
    let without: Vec<&ApiEvent> = live_events.iter().filter(|event| event.name != "live").collect();
    assert_eq!(without, facts.iter().collect::<Vec<_>>());
}
