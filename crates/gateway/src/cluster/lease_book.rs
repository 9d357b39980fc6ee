//! Place where leases are kept: the tables of a database, or the memory of a test.
//!
//! It must not decide who takes one.

use countersign_runtime::store::{ClusterRows, ClusterTables, DatabaseError, NodeIdentity};

/// Leases by one clock. Each call is one transaction.
pub(crate) trait LeaseBook: Send + Sync + 'static {
    /// Says that a node is alive, extends its leases that have not ended if `extends`, and returns the cluster as it is then.
    fn renew(
        &self,
        node: &NodeIdentity,
        extends: bool,
    ) -> impl Future<Output = Result<ClusterRows, DatabaseError>> + Send;

    /// Takes the lease of a realm if it has ended. Returns its number if the node has it now.
    fn take(&self, node: &NodeIdentity, realm: &str)
    -> impl Future<Output = Result<Option<u64>, DatabaseError>> + Send;

    /// Returns its name for messages.
    fn server(&self) -> &str;
}

impl LeaseBook for ClusterTables {
    async fn renew(&self, node: &NodeIdentity, extends: bool) -> Result<ClusterRows, DatabaseError> {
        Self::renew(self, node, extends).await
    }

    async fn take(&self, node: &NodeIdentity, realm: &str) -> Result<Option<u64>, DatabaseError> {
        Self::take(self, node, realm).await
    }

    fn server(&self) -> &str {
        Self::server(self)
    }
}
