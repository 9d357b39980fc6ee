//! Sessions, and what is said in them. Source: docs/protocol/gsv.md, Sessions.

mod answering;
mod archive;
mod card;
mod cards;
mod commands;
mod desk;
mod lives;
pub(super) mod memory;
mod messages;
mod methods;
mod seen;
mod send;
mod teller;
mod trimming;

use std::sync::Arc;

use countersign_protocol::gsv::{GsvRequest, Method};

use super::{
    Door,
    answer::{Answer, missing},
    peer::Peer,
};

pub(super) use lives::DOOR;

pub(super) use super::registry::session_of;
pub(super) use card::{asking, resolved};
pub(super) use cards::{Cards, Moment, in_chat};
pub(super) use desk::Desks;
pub use memory::Memories;

pub(super) use lives::{canonical, media_folder};
pub(super) use lives::{open_for_job, prepare};
pub(super) use methods::last_messages;
pub(super) use seen::CHAT;
pub(super) use send::said;
pub(super) use send::{Speaker, Spoken, has_answered, say_more, say_only};
pub(super) use teller::follow;
pub(super) use trimming::Trimmed;

/// Answers a request of this group that came at this moment.
pub(super) async fn answer(
    door: &Arc<Door>,
    peer: &Arc<Peer>,
    method: Method,
    request: GsvRequest,
    came: Moment,
) -> Answer {
    match request {
        GsvRequest::ChatSend(send) => send::from_client(door, peer, send, came).await,
        GsvRequest::SessionsList(list) => methods::list(door, list).await,
        GsvRequest::SessionGet(of) => methods::get(door, peer, of).await,
        GsvRequest::SessionStats(of) => methods::stats(door, peer, of).await,
        GsvRequest::SessionHistory(of) => methods::history(door, peer, of).await,
        GsvRequest::SessionPreview(preview) => methods::preview(door, peer, preview).await,
        GsvRequest::SessionPatch(patch) => methods::patch(door, peer, patch).await,
        GsvRequest::SessionReset(of) => methods::reset(door, peer, of).await,
        GsvRequest::SessionCompact(compact) => methods::compact(door, peer, compact).await,
        _ => Err(missing(method)),
    }
}
