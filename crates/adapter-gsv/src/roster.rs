//! Connected peers: one connection for a client, a node and an account of a channel. A newer one replaces the older.

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

use super::peer::ConnectedPeer;

/// Slot of one connection.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum PeerSlot {
    /// Client, by its id.
    Client(String),
    /// Node, by its id.
    Node(String),
    /// Account of a channel.
    Channel {
        /// Network.
        channel: String,
        /// Account.
        account: String,
    },
}

impl PeerSlot {
    /// Returns the slot of a connecting peer.
    pub(super) fn for_connect(connect: &ConnectingPeer) -> Self {
        match &connect.peer {
            Kind::Client => Self::Client(connect.id.clone()),
            Kind::Node { .. } => Self::Node(connect.id.clone()),
            Kind::Channel { channel, account } => Self::Channel { channel: channel.clone(), account: account.clone() },
        }
    }
}

/// All connected peers.
#[derive(Default)]
pub(super) struct PeerRoster {
    seats: Mutex<BTreeMap<PeerSlot, Arc<ConnectedPeer>>>,
    numbers: AtomicU64,
}

impl PeerRoster {
    /// Returns a number that no connection has had.
    pub(super) fn next_number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    /// Gives a peer its slot. The previous connection is closed with the reason, and returned.
    pub(super) fn add_peer(&self, peer: &Arc<ConnectedPeer>) -> Option<Arc<ConnectedPeer>> {
        let before = self.seats.lock().insert(PeerSlot::for_connect(&peer.connect), Arc::clone(peer));
        if let Some(before) = &before {
            before.close(close::NORMAL, &ConnectingPeer::replaced_reason(peer.mode()));
        }
        before
    }

    /// Closes every connection but that of `peer`.
    pub(super) fn close_others(&self, peer: &ConnectedPeer, code: u16, reason: &str) {
        let others = self.seats.lock();
        others.values().filter(|other| other.number != peer.number).for_each(|other| other.close(code, reason));
    }

    /// Reports whether a peer has its slot.
    pub(super) fn is_seated(&self, peer: &ConnectedPeer) -> bool {
        self.seats.lock().get(&PeerSlot::for_connect(&peer.connect)).is_some_and(|seated| seated.number == peer.number)
    }

    /// Returns the node with this id.
    pub(super) fn find_node(&self, id: &str) -> Option<Arc<ConnectedPeer>> {
        self.seats.lock().get(&PeerSlot::Node(id.to_owned())).cloned()
    }

    /// Returns all nodes, by id.
    pub(super) fn all_nodes(&self) -> Vec<Arc<ConnectedPeer>> {
        let seats = self.seats.lock();
        seats.iter().filter(|(seat, _)| matches!(seat, PeerSlot::Node(_))).map(|(_, peer)| Arc::clone(peer)).collect()
    }

    /// Returns the connection of an account, if there is one.
    pub(super) fn find_channel(&self, channel: &str, account: &str) -> Option<Arc<ConnectedPeer>> {
        let seat = PeerSlot::Channel { channel: channel.to_owned(), account: account.to_owned() };
        self.seats.lock().get(&seat).map(Arc::clone)
    }

    /// Removes a peer from its slot. Returns false if a newer connection has it.
    pub(super) fn remove_peer(&self, peer: &ConnectedPeer) -> bool {
        let (mut seats, seat) = (self.seats.lock(), PeerSlot::for_connect(&peer.connect));
        let is_its = seats.get(&seat).is_some_and(|seated| seated.number == peer.number);
        if is_its {
            seats.remove(&seat);
        }
        is_its
    }
}
