//! Looks at settings and changes them. Source: docs/protocol/gsv.md, Settings.

use std::sync::Arc;

use countersign_protocol::{
    Json,
    gsv::{
        Fault, Method, Request, close, code,
        settings::{Done, got},
    },
};

use super::{
    Door,
    answer::{Answer, missing},
    peer::Peer,
};

/// Answers a request of this group.
pub(super) async fn answer(door: &Arc<Door>, peer: &Arc<Peer>, method: Method, request: Request) -> Answer {
    match request {
        Request::ConfigGet(get) => Ok(Json::of(&got(&door.settings.tree(), get.path.as_ref()))),
        Request::ConfigSet(set) => {
            let done = Done::of(&set.path);
            let (door, peer) = (Arc::clone(door), Arc::clone(peer));
            // What was begun is done, whether or not whoever asked is still there.
            let work = tokio::spawn(async move {
                // Who showed the one of before has shown nothing that counts. Whoever changed it knows the new one.
                let close = || door.roster.close_others(&peer, close::UNAUTHORIZED, close::UNAUTHORIZED_REASON);
                door.settings.set(&door.context, peer.principal(), &set, close).await
            });
            work.await.map_err(|error| Fault::new(code::FAILED, error.to_string()))??;
            Ok(Json::of(&done))
        }
        _ => Err(missing(method)),
    }
}
