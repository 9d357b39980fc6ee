//! Lease of a realm in a cluster, and the relay of connections to the node that holds it.
//!
//! It must not know the record, nor what a node does with a realm.

mod held_lease;
mod lease_book;
mod lease_keeper;
mod node_check;
mod read_ahead;
mod relay;
#[cfg(test)]
mod simulation;

pub use held_lease::HeldLease;
pub(crate) use lease_keeper::{LeaseKeeper, NodeRole, NodeState, RealmProgress};
pub use node_check::{NodeReach, check_node};
pub(crate) use relay::TunnelOpener;

/// The only realm of a node.
pub const REALM: &str = "default";
