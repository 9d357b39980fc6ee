//! Sessions and their messages. Source: docs/protocol/gsv.md, Sessions.

mod answering;
mod archive;
mod chat_broadcaster;
mod chat_card;
mod commands;
pub(super) mod memory;
mod messages;
mod methods;
mod queue_notices;
mod send;
mod session_lifecycle;
mod session_locks;
mod session_snapshot;
mod shown_cards;
mod trimming;

use std::sync::Arc;

use countersign_protocol::gsv::{GsvRequest, Method};

use super::{
    GsvAdapter,
    method_result::{MethodResult, unsupported_method},
    peer::ConnectedPeer,
};

pub(super) use session_lifecycle::ADAPTER_NAME;

pub(super) use super::registry::session_of;
pub(super) use chat_card::{prompt_text, resolution_text};
pub use memory::MemoriesView;
pub(super) use session_locks::SessionLocks;
pub(super) use shown_cards::{CardMoment, ShownCards, in_chat};

pub(super) use chat_broadcaster::follow_sessions;
pub(super) use methods::last_messages;
pub(super) use queue_notices::{SentNotices, notify_chats};
pub(super) use send::user_message;
pub(super) use send::{MessageAuthor, MessageInput, has_answered, send_input, send_plain_message};
pub(super) use session_lifecycle::{canonical_key, media_folder};
pub(super) use session_lifecycle::{open_for_job, prepare_session};
pub(super) use session_snapshot::CHAT;
pub(super) use trimming::TrimmedArchives;

/// Answers a request of this group that came at this moment.
pub(super) async fn handle_request(
    door: &Arc<GsvAdapter>,
    peer: &Arc<ConnectedPeer>,
    method: Method,
    request: GsvRequest,
    came: CardMoment,
) -> MethodResult {
    match request {
        GsvRequest::ChatSend(send) => send::send_from_client(door, peer, send, came).await,
        GsvRequest::SessionsList(list) => methods::list_sessions(door, list).await,
        GsvRequest::SessionGet(of) => methods::get_session(door, peer, of).await,
        GsvRequest::SessionStats(of) => methods::session_stats(door, peer, of).await,
        GsvRequest::SessionHistory(of) => methods::session_history(door, peer, of).await,
        GsvRequest::SessionPreview(preview) => methods::preview_session(door, peer, preview).await,
        GsvRequest::SessionPatch(patch) => methods::patch_session(door, peer, patch).await,
        GsvRequest::SessionReset(of) => methods::reset_session(door, peer, of).await,
        GsvRequest::SessionCompact(compact) => methods::compact_session(door, peer, compact).await,
        _ => Err(unsupported_method(method)),
    }
}
