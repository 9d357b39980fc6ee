//! Looks at settings and changes them. Source: docs/protocol/gsv.md, Settings.

use std::sync::Arc;

use countersign_protocol::{
    Json,
    gsv::{
        Fault, Method, Request, code,
        settings::{Done, got},
    },
};

use super::{Door, dispatch::Answer, missing, peer::Peer};

/// Answers a request of this group.
pub(super) async fn answer(door: &Arc<Door>, peer: &Arc<Peer>, method: Method, request: Request) -> Answer {
    match request {
        Request::ConfigGet(get) => Ok(Json::of(&got(&door.settings.tree(), get.path.as_ref()))),
        Request::ConfigSet(set) => {
            let done = Done::of(&set.path);
            let (door, by) = (Arc::clone(door), peer.principal());
            // What was begun is done, whether or not whoever asked is still there.
            let work = tokio::spawn(async move { door.settings.set(&door.site, by, &set).await });
            work.await.map_err(|error| Fault::new(code::FAILED, error.to_string()))??;
            Ok(Json::of(&done))
        }
        _ => Err(missing(method)),
    }
}
