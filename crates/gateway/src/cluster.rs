//! Node of a cluster: it serves the realm while it holds the lease, and relays connections to the node that does otherwise.
//!
//! It must not know the record, nor what a realm does.

mod lease_keeper;
mod relay;
mod relay_socket;
mod serve_node;

pub(crate) use relay::tunnel_server;
pub use serve_node::{NodeOptions, serve_node};

/// The only realm of a node.
pub const REALM: &str = "default";
