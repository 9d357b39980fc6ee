use bytes::Bytes;
use countersign_core::id::Lsn;
use parking_lot::RwLock;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{At, AtomicUsize, BYTES, Frames, HELD, Ring};

fn ring() -> Ring {
    Ring {
        frames: RwLock::new(Frames { base: Some(Lsn(10)), ..Frames::default() }),
        pushed: watch::Sender::new(()),
        lively: AtomicUsize::new(0),
        _gone: CancellationToken::new().drop_guard(),
    }
}

fn next(ring: &Ring, after: u64) -> Option<Lsn> {
    match ring.at(ring.place(Lsn(after))?) {
        At::Frame(lsn, _) => lsn,
        At::Gone | At::NotYet | At::Over => None,
    }
}

#[test]
fn a_place_is_in_the_ring_only_if_everything_behind_it_is() {
    let ring = ring();
    for lsn in [11, 12] {
        ring.change(|frames| frames.push(Some(Lsn(lsn)), Bytes::from_static(b"fact")));
        ring.change(|frames| frames.push(None, Bytes::from_static(b"live")));
    }
    assert_eq!(ring.place(Lsn(9)), None, "the record is read for what was before");
    assert_eq!((next(&ring, 10), ring.place(Lsn(11)), ring.place(Lsn(12))), (Some(Lsn(11)), Some(1), Some(3)));
    assert!(matches!(ring.at(4), At::NotYet));
    ring.change(|frames| frames.is_over = true);
    assert!(matches!(ring.at(4), At::Over) && matches!(ring.at(3), At::Frame(None, _)));
}

#[test]
fn what_is_held_is_bounded_and_whoever_is_behind_is_sent_to_the_record() {
    let ring = ring();
    let begun = ring.place(Lsn(10)).unwrap();
    for lsn in 11..11 + HELD as u64 + 5 {
        ring.change(|frames| frames.push(Some(Lsn(lsn)), Bytes::from_static(b"fact")));
    }
    assert!(matches!(ring.at(begun), At::Gone));
    assert_eq!((ring.place(Lsn(14)), next(&ring, 15)), (None, Some(Lsn(16))));
    let large = Bytes::from(vec![0; BYTES]);
    for lsn in 20_000..20_003 {
        ring.change(|frames| frames.push(Some(Lsn(lsn)), large.clone()));
    }
    assert_eq!(ring.frames.read().held.len(), 1, "the last one is held however large");
    assert_eq!(next(&ring, 20_001), Some(Lsn(20_002)));
}
