//! Parts that a process brings to a realm.
//!
//! It must not use them.

use std::sync::Arc;

use countersign_adapter_gsv::LocalNodeAuth;
use countersign_config::logging::LogLevels;
use secrecy::SecretString;

use crate::{cluster::HeldLease, platform::Platform, port::PortAddress, traces::TraceDestination};

/// Parts that a process brings to a realm.
pub struct RealmOptions {
    /// Program, record, clock and entropy.
    pub platform: Platform,
    /// Address at which it will be served.
    pub address: PortAddress,
    /// Log levels.
    pub levels: Arc<LogLevels>,
    /// Collector of traces, if there is one.
    pub collector: TraceDestination,
    /// Name of the realm, where the process serves several.
    pub name: Option<String>,
    /// Authentication of nodes of this machine at the port, if several realms share it.
    pub local_node_auth: Option<LocalNodeAuth>,
    /// Node that serves the realm, in a cluster.
    pub node: Option<RealmNode>,
}

/// Node of a cluster that serves a realm.
pub struct RealmNode {
    /// Secret of the cluster.
    pub secret: SecretString,
    /// Id of the process.
    pub process: String,
    /// Lease of the realm.
    pub lease: HeldLease,
}

impl std::fmt::Debug for RealmOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RealmOptions")
            .field("platform", &self.platform)
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}
