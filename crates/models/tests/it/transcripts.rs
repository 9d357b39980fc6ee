//! Streams as providers send them and the events that they mean.

use std::fmt::Write as _;

use bytes::Bytes;
use countersign_models::{MessagePart, ModelApi, ModelEvent, ModelFailure, PartKind, decode, fuzz};
use proptest::prelude::*;
use serde_json::{Map, Value};

const FILES: [(ModelApi, &str); 4] = [
    (ModelApi::AnthropicMessages, include_str!("transcripts/anthropic.txt")),
    (ModelApi::OpenaiCompletions, include_str!("transcripts/completions.txt")),
    (ModelApi::OpenaiResponses, include_str!("transcripts/responses.txt")),
    (ModelApi::GoogleGenerativeAi, include_str!("transcripts/google.txt")),
];

struct TranscriptCase {
    api: ModelApi,
    name: &'static str,
    stream: String,
    want: String,
}

/// Reads the cases of a file: `# name`, the data of the events with `> ` before it, the expected events with `< `
/// before them.
fn cases() -> Vec<TranscriptCase> {
    let mut cases = Vec::new();
    for (api, file) in FILES {
        for block in file.split("\n# ").map(|block| block.trim_start_matches("# ")) {
            let (name, lines) = block.split_once('\n').unwrap();
            let of = |mark| lines.lines().filter_map(move |line| line.strip_prefix(mark));
            let stream = of("> ").map(|data| format!("data: {data}\n\n")).collect();
            let want = of("< ").map(|line| format!("{line}\n")).collect();
            cases.push(TranscriptCase { api, name, stream, want });
        }
    }
    cases
}

fn describe(items: &[Result<ModelEvent, ModelFailure>]) -> String {
    let mut text = String::new();
    for item in items {
        match item {
            Ok(ModelEvent::Start { response_id }) => writeln!(text, "start {}", response_id.as_deref().unwrap_or("-")),
            Ok(ModelEvent::PartStart { index, kind: PartKind::ToolCall { id, name } }) => {
                writeln!(text, "{index} call {id} {name}")
            }
            Ok(ModelEvent::PartStart { index, kind }) => {
                writeln!(text, "{index} {}", format!("{kind:?}").to_lowercase())
            }
            Ok(ModelEvent::Delta { index, text: delta }) => writeln!(text, "{index} + {delta:?}"),
            Ok(ModelEvent::PartEnd { index, part }) => {
                let (whole, signature) = match part {
                    MessagePart::Text { text, signature } | MessagePart::Thinking { text, signature } => {
                        (text, signature)
                    }
                    MessagePart::ToolCall { arguments, signature, .. } => (arguments, signature),
                    MessagePart::Redacted { data } | MessagePart::Image { data, .. } => (data, &None),
                };
                let signed = signature.as_ref().map(|signature| format!(" signed {signature}")).unwrap_or_default();
                writeln!(text, "{index} end {whole:?}{signed}")
            }
            Ok(ModelEvent::Usage(usage)) => {
                writeln!(text, "usage {} {} {} {}", usage.input, usage.output, usage.cache_read, usage.cache_write)
            }
            Ok(ModelEvent::Idle { since, .. }) => writeln!(text, "idle {since:?}"),
            Ok(ModelEvent::Payload(data)) => writeln!(text, "payload {data}"),
            Ok(ModelEvent::Stop(stop)) => writeln!(text, "stop {stop:?}"),
            Err(failure) => writeln!(text, "failure {:?}: {}", failure.kind, failure.message),
        }
        .unwrap();
    }
    text
}

#[test]
fn every_stream_means_the_events_that_are_written_below_it() {
    for TranscriptCase { api, name, stream, want } in cases() {
        assert_eq!(describe(&decode(api, [Bytes::from(stream)])), want, "{api}: {name}");
    }
}

#[test]
fn a_stream_that_stops_anywhere_before_its_end_is_a_failure() {
    for TranscriptCase { api, name, stream, want } in cases().into_iter().filter(|case| case.name.starts_with("whole"))
    {
        let events: Vec<_> = stream.split_inclusive("\n\n").collect();
        for cut in 0..events.len() {
            let items = decode(api, [Bytes::from(events[..cut].concat())]);
            let got = describe(&items);
            let finished = got.lines().last().is_some_and(|line| line.starts_with("stop"));
            let may_finish = events[..cut].iter().any(|event| {
                ["finish_reason\":\"", "finishReason", "stop_reason\":\""].iter().any(|reason| event.contains(reason))
            });
            assert_eq!(finished, may_finish, "{api}: {name} after {cut} of {want}");
            if !finished {
                assert!(
                    got.contains("failure Broken: stream ended before its end (terminated)"),
                    "{api}: {name}: {got}"
                );
            }
        }
    }
}

#[test]
fn framing_that_the_standard_allows_changes_nothing() {
    for TranscriptCase { api, name, stream, want } in cases() {
        for (framing, stream) in [
            ("crlf", stream.replace('\n', "\r\n")),
            ("cr", stream.replace('\n', "\r")),
            ("no space", stream.replace("data: ", "data:")),
            ("comments", stream.replace("data: ", ": keep-alive\n\n:\ndata: ")),
            ("byte-order mark", format!("\u{feff}{stream}")),
            ("names and ids", stream.replace("data: ", "event: whatever\nid: 7\nretry: 10\ndata: ")),
            ("no blank line at the end", stream.trim_end().to_owned()),
        ] {
            assert_eq!(describe(&decode(api, [Bytes::from(stream)])), want, "{api}: {name}: {framing}");
        }
    }
}

#[test]
fn an_endless_event_is_cut_off() {
    let chunk = Bytes::from(vec![b'x'; 1 << 20]);
    let items = decode(ModelApi::OpenaiCompletions, std::iter::repeat_n(chunk, 20));
    assert_eq!(describe(&items), "failure Broken: an event in the stream is longer than 16777216 bytes (terminated)\n");
}

#[test]
fn an_endless_answer_is_cut_off_and_not_requested_again() {
    let expected = "failure Refused: the answer is longer than 16777216 bytes (terminated)\n";
    let text = format!("data: {{\"choices\":[{{\"delta\":{{\"content\":\"{}\"}}}}]}}\n\n", "y".repeat(1 << 20));
    let items = decode(ModelApi::OpenaiCompletions, std::iter::repeat_n(Bytes::from(text), 20));
    assert!(describe(&items).ends_with(expected));
    let call = |index: usize| {
        let function = format!(r#"{{"name":"{}","arguments":"{{}}"}}"#, "n".repeat(1 << 16));
        let call = format!(r#"{{"index":{index},"id":"c{index}","type":"function","function":{function}}}"#);
        Bytes::from(format!("data: {{\"choices\":[{{\"delta\":{{\"tool_calls\":[{call}]}}}}]}}\n\n"))
    };
    let items = decode(ModelApi::OpenaiCompletions, (0..300).map(call));
    assert!(describe(&items).ends_with(expected));
}

proptest! {
    #[test]
    fn the_same_bytes_mean_the_same_however_they_are_cut(cuts in prop::collection::vec(1_usize..40, 1..60)) {
        for TranscriptCase { api, name, stream, want } in cases() {
            let mut rest = Bytes::from(stream.replace("data:", ": comment ü\r\ndata:"));
            let mut chunks = Vec::new();
            for cut in cuts.iter().cycle() {
                if rest.is_empty() {
                    break;
                }
                chunks.push(rest.split_to((*cut).min(rest.len())));
            }
            prop_assert_eq!(describe(&decode(api, chunks)), want, "{}: {}", api, name);
        }
    }

    #[test]
    fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        for (api, _) in FILES {
            fuzz(api, &bytes);
        }
    }

    #[test]
    fn any_mix_of_real_events_is_survived(picks in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>(), any::<u8>()), 0..25)) {
        for (api, file) in FILES {
            let events: Vec<_> = file.lines().filter_map(|line| line.strip_prefix("> ")).collect();
            let mut stream = Vec::new();
            for (pick, at, byte) in &picks {
                let mut event = format!("data: {}\n\n", pick.get(&events)).into_bytes();
                if *byte < 32 {
                    let at = at.index(event.len());
                    event[at] ^= byte;
                }
                stream.extend(event);
            }
            fuzz(api, &stream);
        }
    }

    /// Events that are left out, repeated or in another order: however the answer ends, it holds all that was sent.
    #[test]
    fn any_answer_holds_what_was_sent(changes in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>(), 0..3_u8), 1..4)) {
        for TranscriptCase { api, stream, .. } in cases() {
            let mut events: Vec<&str> = stream.split_inclusive("\n\n").collect();
            for (at, other, change) in &changes {
                if events.is_empty() {
                    break;
                }
                let (at, other) = (at.index(events.len()), other.index(events.len()));
                match change {
                    0 => drop(events.remove(at)),
                    1 => events.insert(other, events[at]),
                    _ => events.swap(at, other),
                }
            }
            fuzz(api, events.concat().as_bytes());
        }
    }

    /// Content under a name that no wire has, or in a piece of another kind.
    #[test]
    fn any_stray_content_is_read_or_refused(at in any::<prop::sample::Index>(), inside in any::<prop::sample::Index>(), name in 0..NAMES.len(), text in "[a-z]{1,6}( [a-z]{1,6})?") {
        for TranscriptCase { api, stream, .. } in cases() {
            let mut events: Vec<String> = stream.split_inclusive("\n\n").map(str::to_owned).collect();
            let at = at.index(events.len());
            let Some(mut event) = events[at].strip_prefix("data: ").and_then(|data| serde_json::from_str(data).ok()) else {
                continue;
            };
            let mut places = Vec::new();
            places_of(&mut event, false, &mut places);
            if places.is_empty() {
                continue;
            }
            let place = inside.index(places.len());
            places[place].insert(NAMES[name].to_owned(), text.as_str().into());
            events[at] = format!("data: {event}\n\n");
            fuzz(api, events.concat().as_bytes());
        }
    }
}

/// Members that some wire has and some that none has.
const NAMES: [&str; 10] = [
    "output_text",
    "transcript",
    "answer",
    "inputText",
    "tool_input",
    "stray",
    "thinking",
    "text",
    "partial_json",
    "refusal",
];

/// Returns the objects of an event that are made of content.
fn places_of<'a>(value: &'a mut Value, is_content: bool, places: &mut Vec<&'a mut Map<String, Value>>) {
    const CONTENT: [&str; 10] = [
        "delta",
        "message",
        "tool_calls",
        "content_block",
        "item",
        "output",
        "content",
        "content_list",
        "parts",
        "part",
    ];
    match value {
        Value::Array(items) => items.iter_mut().for_each(|item| places_of(item, is_content, places)),
        Value::Object(members) => {
            if is_content && !members.contains_key("parts") {
                places.push(members);
                return;
            }
            for (name, value) in members {
                places_of(value, CONTENT.contains(&name.as_str()), places);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
