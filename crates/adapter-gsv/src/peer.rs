//! Connected peer.

use std::time::Duration;

use axum::extract::ws::Utf8Bytes;
use countersign_core::id::PrincipalId;
use countersign_http::listen;
use countersign_protocol::{
    WireValue,
    gsv::{
        RawKeys, close,
        connect::{ConnectingPeer, PeerMode},
        frame,
    },
};
use parking_lot::Mutex;

use super::outbox::ConnectionOutbox;

/// Longest time in which a peer confirms a delivery.
const PROOF: Duration = Duration::from_secs(40);

/// Proof of a delivery to a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DeliveryProof {
    /// The peer has it.
    Has,
    /// The connection closed before the peer confirmed it.
    Gone,
    /// The connection is open, and the peer does not answer.
    Silent,
}

/// One connection of a peer. Another connection of the same peer is another one.
pub(super) struct ConnectedPeer {
    /// Number that distinguishes it from every other connection of this process.
    pub(super) number: u64,
    /// Data that it sent with `connect`.
    pub(super) connect: ConnectingPeer,
    /// Socket address and process at the other end.
    pub(super) end: listen::peer::TcpPeer,
    keys: Mutex<RawKeys>,
    outbox: ConnectionOutbox,
}

impl ConnectedPeer {
    pub(super) fn new(
        number: u64,
        connect: ConnectingPeer,
        end: listen::peer::TcpPeer,
        outbox: ConnectionOutbox,
    ) -> Self {
        Self { number, connect, end, keys: Mutex::default(), outbox }
    }

    /// Returns the mode in which it connected.
    pub(super) const fn mode(&self) -> PeerMode {
        self.connect.mode()
    }

    /// Returns its principal in the record.
    pub(super) fn principal_id(&self) -> PrincipalId {
        PrincipalId::new(format!("{}:{}", self.mode().name(), self.connect.id))
    }

    /// Notes how it writes the key of a session, for later events.
    pub(super) fn note_spelling(&self, canonical: &str, raw: &str) {
        self.keys.lock().remember_key(canonical, raw);
    }

    /// Returns its spelling of the key of a session.
    pub(super) fn key_spelling(&self, canonical: &str) -> String {
        self.keys.lock().raw_key(canonical).to_owned()
    }

    /// Queues an event for this connection alone. Returns false if it is gone.
    pub(super) fn send_event(&self, event: &str, payload: &(impl WireValue + ?Sized)) -> bool {
        self.outbox.send_frame(Utf8Bytes::from(frame::encode_event(event, payload, None)))
    }

    /// Queues an event for this connection, and waits until the other end has it. A connection
    /// that does not answer for long is closed.
    pub(super) async fn send_proved(&self, event: &str, payload: &(impl WireValue + ?Sized)) -> DeliveryProof {
        if !self.send_event(event, payload) {
            return DeliveryProof::Gone;
        }
        match tokio::time::timeout(PROOF, self.outbox.prove_delivery()).await {
            Ok(true) => DeliveryProof::Has,
            Ok(false) => DeliveryProof::Gone,
            Err(_) => {
                self.close(close::TRY_AGAIN, "pings are not answered");
                DeliveryProof::Silent
            }
        }
    }

    /// Reports whether it is connected, as far as is known.
    pub(super) fn is_here(&self) -> bool {
        self.outbox.is_read()
    }

    /// Waits until it is gone.
    pub(super) async fn wait_gone(&self) {
        self.outbox.wait_closed().await;
    }

    /// Closes it.
    pub(super) fn close(&self, code: u16, reason: &str) {
        self.outbox.close(code, reason);
    }
}
