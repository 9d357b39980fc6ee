use bytes::Bytes;
use countersign_core::id::Lsn;
use countersign_runtime::{RingGap, RingReader};
use futures_util::FutureExt as _;
use tokio_util::sync::CancellationToken;

use super::{FeedFrame, FeedRing, LIMIT, find_frame};

fn ring() -> (FeedRing, RingReader<FeedFrame>) {
    let ring = FeedRing::new(CancellationToken::new().drop_guard());
    ring.push_start(Lsn(10));
    let frames = ring.frames.new_reader();
    (ring, frames)
}

fn push(ring: &FeedRing, lsn: u64, bytes: &Bytes) {
    ring.push(FeedFrame { lsn: Some(Lsn(lsn)), before: Lsn(lsn - 1), bytes: bytes.clone() });
}

fn next(frames: &mut RingReader<FeedFrame>, after: u64) -> Option<Lsn> {
    frames.seek(find_frame(frames, Lsn(after))?);
    frames.try_next().unwrap()?.lsn
}

#[test]
fn a_place_is_in_the_ring_only_if_everything_behind_it_is() {
    let (ring, mut frames) = ring();
    for lsn in [11, 12] {
        push(&ring, lsn, &Bytes::from_static(b"fact"));
        ring.push(FeedFrame { lsn: None, before: Lsn(lsn), bytes: Bytes::from_static(b"live") });
    }
    assert_eq!(find_frame(&frames, Lsn(9)), None, "the record is read for what was before");
    assert_eq!(next(&mut frames, 10), Some(Lsn(11)));
    assert_eq!([11, 12].map(|lsn| find_frame(&frames, Lsn(lsn))), [Some(2), Some(4)]);
    frames.seek(4);
    assert!(matches!(frames.next().now_or_never(), Some(Ok(Some(FeedFrame { lsn: None, .. })))));
    assert!(frames.next().now_or_never().is_none());
    ring.frames.end();
    assert!(matches!(frames.next().now_or_never(), Some(Ok(None))));
}

#[test]
fn nobody_has_a_place_before_the_frames_begin() {
    let ring = FeedRing::new(CancellationToken::new().drop_guard());
    assert_eq!(find_frame(&ring.frames.new_reader(), Lsn(10)), None);
}

#[test]
fn held_events_are_bounded_and_a_late_reader_reads_the_record() {
    let (ring, mut frames) = ring();
    let begun = find_frame(&frames, Lsn(10)).unwrap();
    for lsn in 11..11 + LIMIT.frames as u64 + 5 {
        push(&ring, lsn, &Bytes::from_static(b"fact"));
    }
    frames.seek(begun);
    assert!(matches!(frames.try_next(), Err(RingGap { .. })));
    assert_eq!((find_frame(&frames, Lsn(14)), next(&mut frames, 15)), (None, Some(Lsn(16))));
    let large = Bytes::from(vec![0; LIMIT.bytes]);
    for lsn in 20_000..20_003 {
        push(&ring, lsn, &large);
    }
    assert_eq!(ring.frames.with_frames(|held| held.len()), 1, "the last one is held however large");
    assert_eq!(next(&mut frames, 20_001), Some(Lsn(20_002)));
}
