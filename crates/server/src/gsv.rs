//! The gsv door: clients that chat and look after agents, nodes that offer tools, channels that are chat networks; all over
//! one WebSocket at `/ws`. Source: docs/protocol/gsv.md.
//!
//! It decides nothing: a frame becomes a command, and what became of it becomes an answer or an event.

mod automation;
mod channels;
mod chat;
mod config;
mod connection;
mod dispatch;
mod nodes;
mod outbox;
mod peer;
mod roster;
mod settings;
mod skills;
mod workspace;

use std::sync::Arc;

use axum::extract::ws::WebSocket;
use countersign_protocol::gsv::{Fault, Method, code};
use tokio::sync::watch;

use crate::{listen::Guest, site::Site};

use roster::Roster;
use settings::Settings;

/// The door. One serves all peers of a gateway.
pub struct Door {
    site: Arc<Site>,
    settings: Settings,
    roster: Roster,
    closing: watch::Sender<bool>,
}

impl Door {
    /// Opens the door on a gateway.
    pub(crate) fn open(site: &Arc<Site>) -> Arc<Self> {
        Arc::new(Self {
            settings: Settings::of(&site.config),
            roster: Roster::default(),
            closing: watch::Sender::new(false),
            site: Arc::clone(site),
        })
    }

    /// Whether anybody may connect: with a token from everywhere, without one from this machine only.
    pub(crate) fn is_open(&self) -> bool {
        self.settings.token().is_some() || self.site.config.gateway.is_loopback()
    }

    /// Serves one connection to its end.
    pub(crate) async fn serve(self: &Arc<Self>, socket: WebSocket, guest: Guest) {
        connection::serve(self, socket, guest).await;
    }

    /// Has every connection close; peers come back.
    pub(crate) fn close(&self) {
        self.closing.send_replace(true);
    }
}

/// What is answered for a method that this gateway does not have yet.
fn missing(method: Method) -> Fault {
    Fault::new(code::FAILED, format!("{} is not supported by this gateway yet", method.name()))
}
