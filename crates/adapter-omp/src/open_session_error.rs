//! Why a session is not open.

use std::{path::PathBuf, sync::Arc};

use countersign_core::id::SessionId;
use countersign_runtime::{OwnerOpenError as OwnerError, store};

use crate::session_file;

/// Why a session was not opened. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum OpenSessionError {
    #[error(transparent)]
    File(#[from] session_file::SessionFileOpenError),
    #[error(transparent)]
    Write(#[from] session_file::SessionFileWriteError),
    #[error("{}", with_causes(.0))]
    Log(store::LogOpenError),
    #[error(
        "{}; the session file {} is whole: without the damaged file the session opens again, less what was decided in it",
        with_causes(.error), .file.display()
    )]
    Damaged { error: store::LogOpenError, file: PathBuf },
    #[error("{0}")]
    Owner(String),
    #[error(transparent)]
    Refused(#[from] countersign_runtime::OwnerError),
    #[error("the session's log is closed")]
    Closed,
    #[error(
        "session {id} lives in the gateway with the data directory {gateway}, which has to run; --fork {id} takes its conversation along without what was decided there",
        gateway = .gateway.display()
    )]
    Elsewhere { id: SessionId, gateway: PathBuf },
    #[error("session {id} is open in another host, process {process}")]
    Taken { id: SessionId, process: u32 },
    #[error("session {0} has a log of its own")]
    Own(SessionId),
    #[error("session {0} waits for an answer in its own log and cannot move; open it without --attach")]
    Works(SessionId),
    #[error("session {id} works or waits for an answer in {folder}: open it there, or end that first")]
    Stays { id: SessionId, folder: String },
    #[error("{0:?} can be no session of a gateway")]
    BadId(String),
    #[error("where the session lives cannot be told: {0}")]
    Home(std::io::Error),
    /// A copy of another session's file, and its header cannot be written.
    #[error("{path} is a copy of another session file", path = .0.path.display())]
    Copy(Arc<session_file::OpenedFile>),
}

impl From<OwnerError> for OpenSessionError {
    fn from(error: OwnerError) -> Self {
        Self::Owner(with_causes(&error))
    }
}

fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(&format!(": {cause}"));
        source = cause.source();
    }
    text
}
