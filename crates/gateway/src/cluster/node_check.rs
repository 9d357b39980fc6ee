//! Check of the address of a node, as other nodes reach it.
//!
//! It must not relay anything.

use std::net::{Ipv4Addr, SocketAddr};

use countersign_config::ClusterConfig;
use countersign_http::listen::tunnel::{TunnelClient, TunnelKey};
use countersign_runtime::store::NodeRow;
use reqwest::StatusCode;
use tokio::{sync::watch, time::timeout};

use super::{
    lease_keeper::{NodeState, OwnerNode},
    relay::{OPENING, TunnelOpener, cause_text},
};

/// Result of reaching a node at its address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeReach {
    /// It serves the realm, and accepts tunnels with the secret of the cluster.
    Accepts,
    /// It answers, and does not serve the realm. Only the owner checks the secret.
    Answers,
    /// It refuses the secret of the cluster.
    OtherSecret,
    /// It is not reached, or is no node. With the reason.
    Unreached(String),
}

/// Requests a tunnel from a node, as other nodes do, and closes it at once.
pub async fn check_node(cluster: &ClusterConfig, node: &NodeRow) -> NodeReach {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let authorities = match cluster.ca_file.as_ref().map(std::fs::read).transpose() {
        Ok(authorities) => authorities,
        Err(problem) => return NodeReach::Unreached(format!("cannot read cluster.ca_file: {problem}")),
    };
    let (_owners, state) = watch::channel(NodeState::default());
    let key = TunnelKey::from_secret(&cluster.secret);
    let opener = match TunnelOpener::new((key, String::new()), authorities.as_deref(), state) {
        Ok(opener) => opener,
        Err(problem) => return NodeReach::Unreached(problem.to_string()),
    };
    let from = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let client = TunnelClient::Port { from, may_decide: false, is_guarded: false };
    match timeout(OPENING, opener.request_tunnel(&OwnerNode::from(node), &client)).await {
        Ok(Ok(response)) => reach_of(response.status()),
        Ok(Err(error)) => NodeReach::Unreached(cause_text(&error)),
        Err(_) => NodeReach::Unreached(format!("no answer within {} s", OPENING.as_secs())),
    }
}

fn reach_of(status: StatusCode) -> NodeReach {
    match status {
        StatusCode::SWITCHING_PROTOCOLS => NodeReach::Accepts,
        StatusCode::SERVICE_UNAVAILABLE => NodeReach::Answers,
        StatusCode::FORBIDDEN => NodeReach::OtherSecret,
        other => NodeReach::Unreached(format!("it answers {other}, so it is no node of a cluster")),
    }
}

#[cfg(test)]
mod tests {
    use reqwest::StatusCode;

    use super::{NodeReach, reach_of};

    #[test]
    fn the_answer_to_a_tunnel_tells_an_owner_from_other_nodes_and_other_servers() {
        for (status, want) in [
            (StatusCode::SWITCHING_PROTOCOLS, NodeReach::Accepts),
            (StatusCode::SERVICE_UNAVAILABLE, NodeReach::Answers),
            (StatusCode::FORBIDDEN, NodeReach::OtherSecret),
        ] {
            assert_eq!(reach_of(status), want);
        }
        assert!(matches!(reach_of(StatusCode::NOT_FOUND), NodeReach::Unreached(_)));
    }
}
