//! A session as other programs find it.

use countersign_agent_dir::AgentDir;
use countersign_protocol::gjc::registry::SessionRecord;
use tokio::sync::watch;

/// A session as other programs find it, for as long as its adapter is open.
pub struct SessionListing {
    /// The agent directory of its host.
    pub agent_dir: AgentDir,
    /// Describes the session for others, as one on standard input and output.
    pub record: SessionRecord,
    /// Id of the open session, updated when the host switches sessions.
    pub current: watch::Receiver<String>,
}
