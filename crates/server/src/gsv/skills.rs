//! Skills of agents, and where they can be used. Source: docs/protocol/gsv.md, Methods.

use std::sync::Arc;

use countersign_protocol::gsv::{Method, Request};

use super::{Door, dispatch::Answer, missing, peer::Peer};

/// Answers a request of this group.
pub(super) async fn answer(_: &Arc<Door>, _: &Arc<Peer>, method: Method, _: Request) -> Answer {
    Err(missing(method))
}
