//! Real paths of the files of a call: a link must not hide a file that a rule or the floor protects.

use std::path::{Path, PathBuf};

use countersign_core::{call::AgentRequest, policy::join_folder};

/// Tools whose one path rules match.
const FILE_TOOLS: [&str; 3] = ["read", "write", "edit"];

/// Adds the real paths to which the paths of a call lead through links.
pub(crate) async fn follow_links(request: &mut AgentRequest) {
    let mut real = Vec::new();
    for path in &request.paths {
        let plain = join_folder(&request.cwd, path);
        if let Some(found) = real_path(Path::new(&plain)).await.filter(|found| *found != Path::new(&plain)) {
            real.push(found.to_string_lossy().into_owned());
        }
    }
    if FILE_TOOLS.contains(&&*request.tool) {
        request.leads_to = real.first().map(|path| path.as_str().into());
    }
    request.paths.extend(real);
}

/// Returns the real path of a file, also of one that does not exist yet.
async fn real_path(path: &Path) -> Option<PathBuf> {
    for above in path.ancestors() {
        if let Ok(found) = tokio::fs::canonicalize(above).await {
            let rest = path.strip_prefix(above).ok()?;
            return Some(if rest.as_os_str().is_empty() { found } else { found.join(rest) });
        }
    }
    None
}
