//! Sandbox of the commands of a stdio adapter, and paths that no command may write.

use std::path::{Path, PathBuf};

use countersign_agent_dir::AgentDir;
use countersign_files::paths;
use countersign_runtime::tools::{Sandbox, sandbox::SandboxSettings};
use tracing::info;

/// Folders of a working folder that only its own reading of a command protects: a kernel that keeps one out of a folder
/// lets no new file be made next to it, and work is what that folder is for.
const IN_PLACE: [&str; 2] = [".countersign", ".gjc"];

/// Returns the sandbox of sessions in `cwd`, in which nothing writes to `denied` or reads the agent directory.
pub(super) fn build_sandbox(settings: &SandboxSettings, folder: &AgentDir, cwd: &Path, denied: &[PathBuf]) -> Sandbox {
    let in_place = |path: &&PathBuf| IN_PLACE.iter().any(|name| path.starts_with(cwd.join(name)));
    let protected = denied.iter().filter(|path| !in_place(path)).cloned().collect();
    let unreadable = [folder.root().to_owned(), folder.server_homes()].into_iter().flat_map(paths::path_variants);
    let sandbox = Sandbox::new(settings.clone(), protected, unreadable.collect());
    info!("sandbox of commands: {} (docs/protocol/omp.md)", sandbox.settings_summary());
    sandbox
}

/// Returns the sandbox of MCP servers: that of commands, but for the servers' own folders.
pub(super) fn build_server_sandbox(
    settings: &SandboxSettings,
    folder: &AgentDir,
    cwd: &Path,
    denied: &[PathBuf],
) -> Sandbox {
    let homes: Vec<PathBuf> = paths::path_variants(folder.server_homes()).collect();
    let in_place = |path: &&PathBuf| IN_PLACE.iter().any(|name| path.starts_with(cwd.join(name)));
    let others = denied.iter().filter(|path| !in_place(path) && !homes.contains(*path));
    Sandbox::new(settings.clone(), others.cloned().collect(), paths::path_variants(folder.root().to_owned()).collect())
}
