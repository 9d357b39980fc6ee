//! A peer that is connected.

use axum::extract::ws::Utf8Bytes;
use countersign_protocol::{
    Wire,
    gsv::{
        connect::{Connect, Mode},
        frame,
    },
};

use super::outbox::Outbox;
use crate::listen;

/// One connection of a peer. Another connection of the same peer is another one.
pub(super) struct Peer {
    /// Told apart from every other connection of this process.
    pub(super) number: u64,
    /// What it said of itself.
    pub(super) connect: Connect,
    /// Who sits at the other end.
    pub(super) end: listen::peer::Peer,
    outbox: Outbox,
}

impl Peer {
    pub(super) fn new(number: u64, connect: Connect, end: listen::peer::Peer, outbox: Outbox) -> Self {
        Self { number, connect, end, outbox }
    }

    /// In which mode it came.
    pub(super) const fn mode(&self) -> Mode {
        self.connect.mode()
    }

    /// Puts an event for this connection alone behind what waits for it. False if it is gone.
    #[expect(dead_code, reason = "for the events of nodes and channels")]
    pub(super) fn tell(&self, event: &str, payload: &(impl Wire + ?Sized)) -> bool {
        self.outbox.send(Utf8Bytes::from(frame::event(event, payload, None)))
    }

    /// Closes it.
    pub(super) fn close(&self, code: u16, reason: &str) {
        self.outbox.close(code, reason);
    }
}
