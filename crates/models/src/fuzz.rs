//! A way to throw any bytes at the decoders, for long-running tests.
//!
//! It must not need a network, a clock or a runtime.

mod sent;

use bytes::Bytes;
use futures_util::{FutureExt, StreamExt, stream};

use crate::{Api, Event, Failure, answer::answer, failure::with_status, wire};

/// What `bytes` mean as the body of an answer over `api`, in the chunks in which they come. Empty for the demo's wire,
/// which is none.
pub fn decode(api: Api, chunks: impl IntoIterator<Item = Bytes>) -> Vec<Result<Event, Failure>> {
    let Some(decoder) = wire::decoder(api) else { return Vec::new() };
    let chunks: Vec<_> = chunks.into_iter().map(Ok).collect();
    let events = answer(decoder, stream::iter(chunks), None);
    events.collect().now_or_never().expect("everything is there already, so nothing waits")
}

/// Feeds `bytes` to the decoder of `api`, whole, in pieces and as an error page, and checks what holds for any answer:
/// the same bytes give the same events however they are cut, parts begin before they go on, deltas add up to what their
/// end says, nothing follows a failure or the end, and what text and calls the server sent are in an answer that ends
/// without a failure.
///
/// # Panics
/// If one of these does not hold.
pub fn fuzz(api: Api, bytes: &[u8]) {
    let whole = decode(api, [Bytes::copy_from_slice(bytes)]);
    check(&whole);
    if let Some(Ok(Event::Stop(_))) = whole.last() {
        sent::check(api, bytes, &whole);
    }
    for size in [1, 7] {
        let pieces = decode(api, bytes.chunks(size).map(Bytes::copy_from_slice));
        assert_eq!(pieces, whole, "{api} in pieces of {size}");
    }
    let _ = with_status(400, &String::from_utf8_lossy(bytes), None);
}

fn check(items: &[Result<Event, Failure>]) {
    let mut open = std::collections::BTreeMap::new();
    let mut next = 0;
    for (at, item) in items.iter().enumerate() {
        let last = at + 1 == items.len();
        match item {
            Ok(Event::Start { .. }) => assert_eq!(at, 0, "an answer begins once"),
            Ok(Event::PartStart { index, .. }) => {
                assert_eq!(*index, next, "parts are numbered in their order");
                next += 1;
                open.insert(*index, String::new());
            }
            Ok(Event::Delta { index, text }) => {
                assert!(!text.is_empty(), "a delta says something");
                open.get_mut(index).expect("the part is open").push_str(text);
            }
            Ok(Event::PartEnd { index, part }) => {
                let deltas = open.remove(index).expect("the part is open");
                match part {
                    crate::Part::Text { text, .. } | crate::Part::Thinking { text, .. } => assert_eq!(*text, deltas),
                    crate::Part::ToolCall { arguments, .. } => assert_eq!(*arguments, deltas),
                    crate::Part::Redacted { .. } | crate::Part::Image { .. } => assert_eq!(deltas, ""),
                }
            }
            // Without a clock nothing is told of silence.
            Ok(Event::Idle { .. }) => unreachable!("no clock runs"),
            Ok(Event::Usage(_)) => assert!(at > 0, "an answer begins first"),
            Ok(Event::Payload(_)) => assert!(at + 2 == items.len(), "the payload comes right before the end"),
            Ok(Event::Stop(_)) => assert!(last && open.is_empty(), "the end is the end"),
            Err(_) => assert!(last, "a failure is the end"),
        }
    }
    assert!(
        matches!(items.last(), None | Some(Err(_) | Ok(Event::Stop(_)))),
        "an answer ends with its end or a failure"
    );
}
