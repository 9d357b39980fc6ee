//! Header with which a node on the gateway's machine authenticates. Source: docs/protocol/gsv.md, Nodes on the gateway's machine.

/// The header of the upgrade in which it shows the word that it was given.
pub const HEADER: &str = "x-countersign-node";

/// The name of the abstract socket at which it is given one, of a gateway at this port.
pub fn socket_name(port: u16) -> String {
    format!("countersign-nodes-{port}")
}
