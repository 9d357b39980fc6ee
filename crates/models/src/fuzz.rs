//! A way to throw any bytes at the decoders, for long-running tests.
//!
//! It must not need a network, a clock or a runtime.

mod sent;

use bytes::Bytes;
use futures_util::{FutureExt, StreamExt, stream};

use crate::{ModelApi, ModelEvent, ModelFailure, answer::read_answer, failure::with_status, wire};

/// Decodes `chunks` as the body of an answer over `api`, as they come. Empty for the demo's wire,
/// which is none.
pub fn decode(api: ModelApi, chunks: impl IntoIterator<Item = Bytes>) -> Vec<Result<ModelEvent, ModelFailure>> {
    let Some(decoder) = wire::decoder_for(api) else { return Vec::new() };
    let chunks: Vec<_> = chunks.into_iter().map(Ok).collect();
    let events = read_answer(decoder, stream::iter(chunks), None);
    events.collect().now_or_never().expect("everything is there already, so nothing waits")
}

/// Feeds `bytes` to the decoder of `api`, whole, in pieces and as an error page, and checks what holds for any answer:
/// the same bytes give the same events however they are cut, parts begin before they go on, deltas add up to what their
/// end says, nothing follows a failure or the end, and what text and calls the server sent are in an answer that ends
/// without a failure.
///
/// # Panics
/// If one of these does not hold.
pub fn fuzz(api: ModelApi, bytes: &[u8]) {
    let whole = decode(api, [Bytes::copy_from_slice(bytes)]);
    check_events(&whole);
    if let Some(Ok(ModelEvent::Stop(_))) = whole.last() {
        sent::check_sent(api, bytes, &whole);
    }
    for size in [1, 7] {
        let pieces = decode(api, bytes.chunks(size).map(Bytes::copy_from_slice));
        assert_eq!(pieces, whole, "{api} in pieces of {size}");
    }
    let _ = with_status(400, &String::from_utf8_lossy(bytes), None);
}

fn check_events(items: &[Result<ModelEvent, ModelFailure>]) {
    let mut open = std::collections::BTreeMap::new();
    let mut next = 0;
    for (at, item) in items.iter().enumerate() {
        let last = at + 1 == items.len();
        match item {
            Ok(ModelEvent::Start { .. }) => assert_eq!(at, 0, "an answer begins once"),
            Ok(ModelEvent::PartStart { index, .. }) => {
                assert_eq!(*index, next, "parts are numbered in their order");
                next += 1;
                open.insert(*index, String::new());
            }
            Ok(ModelEvent::Delta { index, text }) => {
                assert!(!text.is_empty(), "a delta says something");
                open.get_mut(index).expect("the part is open").push_str(text);
            }
            Ok(ModelEvent::PartEnd { index, part }) => {
                let deltas = open.remove(index).expect("the part is open");
                match part {
                    crate::MessagePart::Text { text, .. } | crate::MessagePart::Thinking { text, .. } => {
                        assert_eq!(*text, deltas)
                    }
                    crate::MessagePart::ToolCall { arguments, .. } => assert_eq!(*arguments, deltas),
                    crate::MessagePart::Redacted { .. } | crate::MessagePart::Image { .. } => assert_eq!(deltas, ""),
                }
            }
            // Without a clock no silence is reported.
            Ok(ModelEvent::Idle { .. }) => unreachable!("no clock runs"),
            Ok(ModelEvent::Usage(_)) => assert!(at > 0, "an answer begins first"),
            Ok(ModelEvent::Payload(_)) => assert!(at + 2 == items.len(), "the payload comes right before the end"),
            Ok(ModelEvent::Stop(_)) => assert!(last && open.is_empty(), "the end is the end"),
            Err(_) => assert!(last, "a failure is the end"),
        }
    }
    assert!(
        matches!(items.last(), None | Some(Err(_) | Ok(ModelEvent::Stop(_)))),
        "an answer ends with its end or a failure"
    );
}
