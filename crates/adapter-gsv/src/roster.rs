//! Who is connected: one connection a client, a node and an account of a channel. A newer one takes the place of the older.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use countersign_protocol::gsv::{
    close,
    connect::{ConnectingPeer, PeerDetails as Kind},
};
use parking_lot::Mutex;

use super::peer::Peer;

/// A place that one connection has.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Seat {
    /// A client, by its id.
    Client(String),
    /// A node, by its id.
    Node(String),
    /// An account of a channel.
    Channel {
        /// Which network.
        channel: String,
        /// Which account of it.
        account: String,
    },
}

impl Seat {
    /// The place of whoever connects so.
    pub(super) fn of(connect: &ConnectingPeer) -> Self {
        match &connect.peer {
            Kind::Client => Self::Client(connect.id.clone()),
            Kind::Node { .. } => Self::Node(connect.id.clone()),
            Kind::Channel { channel, account } => Self::Channel { channel: channel.clone(), account: account.clone() },
        }
    }
}

/// Everybody who is connected.
#[derive(Default)]
pub(super) struct Roster {
    seats: Mutex<BTreeMap<Seat, Arc<Peer>>>,
    numbers: AtomicU64,
}

impl Roster {
    /// A number that no connection has had.
    pub(super) fn number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    /// Gives a peer its place. Whoever had it is told why it is closed, and given back.
    pub(super) fn enter(&self, peer: &Arc<Peer>) -> Option<Arc<Peer>> {
        let before = self.seats.lock().insert(Seat::of(&peer.connect), Arc::clone(peer));
        if let Some(before) = &before {
            before.close(close::NORMAL, &ConnectingPeer::replaced_reason(peer.mode()));
        }
        before
    }

    /// Has every connection but that of `peer` closed.
    pub(super) fn close_others(&self, peer: &Peer, code: u16, reason: &str) {
        let others = self.seats.lock();
        others.values().filter(|other| other.number != peer.number).for_each(|other| other.close(code, reason));
    }

    /// Whether a peer has its place.
    pub(super) fn is_seated(&self, peer: &Peer) -> bool {
        self.seats.lock().get(&Seat::of(&peer.connect)).is_some_and(|seated| seated.number == peer.number)
    }

    /// The node with this id.
    pub(super) fn node(&self, id: &str) -> Option<Arc<Peer>> {
        self.seats.lock().get(&Seat::Node(id.to_owned())).cloned()
    }

    /// All nodes, by id.
    pub(super) fn nodes(&self) -> Vec<Arc<Peer>> {
        let seats = self.seats.lock();
        seats.iter().filter(|(seat, _)| matches!(seat, Seat::Node(_))).map(|(_, peer)| Arc::clone(peer)).collect()
    }

    /// The connection of an account, if there is one.
    pub(super) fn channel(&self, channel: &str, account: &str) -> Option<Arc<Peer>> {
        let seat = Seat::Channel { channel: channel.to_owned(), account: account.to_owned() };
        self.seats.lock().get(&seat).map(Arc::clone)
    }

    /// Takes a peer's place back. False if a newer connection has it.
    pub(super) fn leave(&self, peer: &Peer) -> bool {
        let (mut seats, seat) = (self.seats.lock(), Seat::of(&peer.connect));
        let is_its = seats.get(&seat).is_some_and(|seated| seated.number == peer.number);
        if is_its {
            seats.remove(&seat);
        }
        is_its
    }
}
