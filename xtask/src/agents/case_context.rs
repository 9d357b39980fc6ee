//! Everything that a case of a program needs.

use std::path::{Path, PathBuf};

use countersign_scripted_model::StubServer;

use crate::agents::host_program::HostProgram;

/// Place and tools of one case.
pub(crate) struct CaseContext<'a> {
    pub(crate) program: HostProgram,
    pub(crate) programs: &'a Path,
    pub(crate) binary: &'a Path,
    /// Folder of this case.
    pub(crate) folder: PathBuf,
    pub(crate) stub: &'a StubServer,
}

impl CaseContext<'_> {
    /// Returns the file with the lines between an MCP host and the gateway.
    pub(crate) fn frames(&self) -> PathBuf {
        self.folder.join("frames.log")
    }
}
