//! Reads and changes settings. Source: docs/protocol/gsv.md, Settings.

use std::sync::Arc;

use countersign_protocol::{
    RawJson,
    gsv::{
        GsvError, GsvRequest, Method, close, code,
        settings::{ConfigSetResult, get_masked},
    },
};

use super::{
    GsvAdapter,
    method_result::{MethodResult, unsupported_method},
    peer::ConnectedPeer,
};

/// Answers a request of this group.
pub(super) async fn handle_request(
    door: &Arc<GsvAdapter>,
    peer: &Arc<ConnectedPeer>,
    method: Method,
    request: GsvRequest,
) -> MethodResult {
    match request {
        GsvRequest::ConfigGet(get) => Ok(RawJson::from_wire(&get_masked(&door.settings.tree(), get.path.as_ref()))),
        GsvRequest::ConfigSet(set) => {
            let done = ConfigSetResult::for_path(&set.path);
            let (door, peer) = (Arc::clone(door), Arc::clone(peer));
            // A change that was begun is finished, also if the peer disconnects.
            let work = tokio::spawn(async move {
                // Peers with the old token are not authorized any more. The one who changed it knows the new one.
                let close = || door.roster.close_others(&peer, close::UNAUTHORIZED, close::UNAUTHORIZED_REASON);
                door.settings.set_value(&door.context, peer.principal_id(), &set, close).await
            });
            work.await.map_err(|error| GsvError::new(code::FAILED, error.to_string()))??;
            Ok(RawJson::from_wire(&done))
        }
        _ => Err(unsupported_method(method)),
    }
}
