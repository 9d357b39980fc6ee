//! Sessions of stdio adapters that live in a gateway: their hosts' processes are pipes to it.
//!
//! It must not know what the pipes say: an adapter is opened on each as on two pipes of its own. What the adapter takes from the
//! process and the machine around it is handed over.

mod attached_sessions;
mod grant_writer;
pub mod home;

use std::{ffi::OsString, fmt, path::PathBuf, sync::Arc, time::Duration};

use countersign_config::RulesText;
use countersign_core::policy::PathContext;
use countersign_runtime::{Clock, OwnerHandle};
use serde::{Deserialize, Serialize};
use tokio_util::task::TaskTracker;

pub use attached_sessions::{AttachGuard, AttachedSessions};
pub use grant_writer::GrantWriter;

/// Time for sessions to bring their files up to date when the gateway ends.
const FAREWELL: Duration = Duration::from_secs(1);

/// State that a host's process hands over: all that its adapter would have read from the process and from the rules files.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttachParams {
    /// Name of the adapter, such as `omp`.
    pub door: String,
    /// The arguments after its name.
    pub arguments: Vec<String>,
    /// The working folder of the process.
    pub cwd: PathBuf,
    /// Its folder for temporary files.
    pub temporary: PathBuf,
    /// Its environment. Values may be secret.
    pub variables: Vec<(OsString, OsString)>,
    /// Its rules, as it read them.
    pub rules: Vec<RulesText>,
    /// Id of the process, which tells others the owner of a session.
    pub process: u32,
    /// True if a session that has a log of its own comes along.
    pub moves: bool,
}

/// Without what may be secret.
impl fmt::Debug for AttachParams {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { door, cwd, process, .. } = self;
        f.debug_struct("AttachParams")
            .field("door", door)
            .field("cwd", cwd)
            .field("process", process)
            .finish_non_exhaustive()
    }
}

/// Server that takes in the sessions of hosts in a gateway.
pub struct AttachServer {
    pub handle: OwnerHandle,
    pub sessions: Arc<AttachedSessions>,
    pub clock: Clock,
    /// Program that is started again for the children that run commands.
    pub program: PathBuf,
    /// The gateway's own files, which no tool of an attached session may touch either.
    pub path_context: PathContext,
    /// The data directory, by which it is found again.
    pub folder: PathBuf,
    /// The permanent grants, as far as they are in the files of their agent directories.
    pub(crate) grant_writer: GrantWriter,
    /// Tasks that have to end before the record is released: connections to hosts, and sessions whose hosts have gone.
    pub open: TaskTracker,
}

/// Options of an attach server.
pub struct AttachOptions {
    pub handle: OwnerHandle,
    pub sessions: Arc<AttachedSessions>,
    pub clock: Clock,
    pub program: PathBuf,
    pub path_context: PathContext,
    pub folder: PathBuf,
}

impl AttachServer {
    /// Opens it; `None` if the record has ended already.
    pub async fn open(options: AttachOptions) -> Option<Arc<Self>> {
        let AttachOptions { handle, sessions, clock, program, path_context, folder } = options;
        let grant_writer = GrantWriter::follow_log(&handle).await?;
        let folder = std::fs::canonicalize(&folder).unwrap_or(folder);
        Some(Arc::new(Self {
            handle,
            sessions,
            clock,
            program,
            path_context,
            folder,
            grant_writer,
            open: TaskTracker::new(),
        }))
    }

    /// Waits until the sessions have ended, which they do when the record's owner does.
    pub async fn close(&self) {
        self.open.close();
        let _ = tokio::time::timeout(FAREWELL, self.open.wait()).await;
    }
}
