//! Size of the output in relation to the text.

use std::time::Instant;

use countersign_testkit::process::{
    HostFixture, Latch, RpcHost, of_type,
    provider::{ProviderReply, ReplyPart, text_reply},
};
use serde_json::json;

fn words() -> Vec<String> {
    (0..5000).map(|at| format!("{at:099} ")).collect()
}

/// Returns the bytes on stdout for each byte of the text of one reply.
fn bytes_for_each(host: &mut RpcHost, place: &HostFixture, parts: Vec<ReplyPart>, size: usize) -> usize {
    place.provider.script_replies([ProviderReply::new(parts), text_reply("done")]);
    let before = host.output_bytes();
    host.run_turn("go");
    (host.output_bytes() - before) / size
}

#[test]
fn a_burst_costs_at_most_fifteen_times_its_text() {
    let place = HostFixture::new();
    let mut host = place.start(&[]);
    let size = words().concat().len();
    let writes = json!({ "path": "big.txt", "content": words().concat(), "_i": "a test" }).to_string();
    let call = ReplyPart::Call { id: "k".into(), name: "write".into(), arguments: writes };
    for (case, parts, size) in [
        ("text", vec![ReplyPart::Text(words())], size),
        // An answer needs a text, and updates after the thinking would carry it again.
        ("thinking", vec![ReplyPart::Text(vec!["so".into()]), ReplyPart::Think(words())], size),
        ("a call", vec![call], size),
    ] {
        let each = bytes_for_each(&mut host, &place, parts, size);
        assert!(each < 15, "{case}: {each} times the text");
    }
    assert_eq!(place.read_file("big.txt").unwrap(), words().concat());
}

#[test]
fn deltas_of_a_burst_add_up_to_the_text() {
    let place = HostFixture::new();
    let mut host = place.start(&[]);
    place.provider.script_replies([ProviderReply::new(vec![ReplyPart::Text(words())])]);
    let frames = host.run_turn("go");
    let deltas = of_type(&frames, "message_update");
    let deltas: String = deltas.iter().filter_map(|update| update["assistantMessageEvent"]["delta"].as_str()).collect();
    assert_eq!(deltas, words().concat());
}

#[test]
fn a_stream_at_its_own_pace_gets_at_most_twenty_updates_a_second() {
    let place = HostFixture::new();
    let mut host = place.start(&[]);
    let latches: Vec<Latch> = (0..60).map(|_| Latch::default()).collect();
    let parts = latches
        .iter()
        .flat_map(|latch| [ReplyPart::Text(vec!["word ".into()]), ReplyPart::Until(latch.clone())])
        .collect();
    place.provider.script_replies([ProviderReply::new(parts)]);
    let began = Instant::now();
    let from = host.send_prompt("go");
    let opener = std::thread::spawn(move || {
        for latch in latches {
            std::thread::park_timeout(std::time::Duration::from_millis(20));
            latch.open();
        }
    });
    let frames = host.wait_settled(from);
    let seconds = began.elapsed().as_secs_f64();
    opener.join().unwrap();
    let updates = of_type(&frames, "message_update");
    let deltas = updates.iter().filter(|update| update["assistantMessageEvent"]["type"] == "text_delta").count();
    assert!(f64::from(u32::try_from(deltas).unwrap()) <= 20.0 * seconds + 2.0, "{deltas} in {seconds} s");
}

#[test]
fn without_merging_each_delta_is_sent() {
    let place = HostFixture::new();
    let mut host = place.start(&["--no-merge-deltas"]);
    place.provider.script_replies([ProviderReply::new(vec![ReplyPart::Text(words()[..200].to_vec())])]);
    assert_eq!(of_type(&host.run_turn("go"), "message_update").len(), 202);
}
