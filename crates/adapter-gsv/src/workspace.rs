//! Folders of agents. Source: docs/protocol/gsv.md, Workspace.

mod folder;

use std::sync::Arc;

use countersign_protocol::{
    RawJson,
    gsv::{
        GsvError, GsvRequest, Method, code,
        key::agent_id,
        workspace::{WorkspaceDeleteResult, WorkspaceListResult, WorkspaceReadResult, WorkspaceWriteResult},
    },
};

use super::{
    GsvAdapter,
    method_result::{MethodResult, unsupported_method},
    peer::ConnectedPeer,
};

pub(super) use folder::{AgentFolder, WorkspaceError, WorkspaceFile, WorkspaceListing};

/// Answers a request of this group.
pub(super) async fn handle_request(
    door: &Arc<GsvAdapter>,
    _: &Arc<ConnectedPeer>,
    method: Method,
    request: GsvRequest,
) -> MethodResult {
    match request {
        GsvRequest::WorkspaceList(list) => {
            let folder = folder_of(door, list.agent.as_deref());
            let WorkspaceListing { files, directories } = run_blocking(move || folder.list_entries(&list.path)).await?;
            Ok(RawJson::from_wire(&WorkspaceListResult { path: list.echo, files, directories }))
        }
        GsvRequest::WorkspaceRead(file) => {
            let folder = folder_of(door, file.agent.as_deref());
            let WorkspaceFile { text, size, modified } = run_blocking(move || folder.read_text(&file.path)).await?;
            let last_modified = modified.map(|at| at.to_rfc3339_opts(chrono::SecondsFormat::Millis, true));
            Ok(RawJson::from_wire(&WorkspaceReadResult { path: file.echo, content: text, size, last_modified }))
        }
        GsvRequest::WorkspaceWrite(write) => {
            let folder = folder_of(door, write.file.agent.as_deref());
            let size = write.content.chars().count();
            run_blocking(move || folder.write_text(&write.file.path, &write.content)).await?;
            Ok(RawJson::from_wire(&WorkspaceWriteResult { path: write.file.echo, size, written: true }))
        }
        GsvRequest::WorkspaceDelete(file) => {
            let folder = folder_of(door, file.agent.as_deref());
            run_blocking(move || folder.remove_file(&file.path)).await?;
            Ok(RawJson::from_wire(&WorkspaceDeleteResult { path: file.echo, deleted: true }))
        }
        _ => Err(unsupported_method(method)),
    }
}

/// Returns the folder of an agent, or of the default one.
pub(super) fn folder_of(door: &GsvAdapter, agent: Option<&str>) -> AgentFolder {
    let agent = agent.map_or_else(|| door.settings.default_agent(), agent_id);
    AgentFolder::for_agent(&door.context.config.agents_dir, &agent)
}

/// Runs work with files on a thread that may block.
async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, WorkspaceError> + Send + 'static,
) -> Result<T, GsvError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| GsvError::new(code::FAILED, error.to_string()))?.map_err(|error| to_gsv_error(&error))
}

fn to_gsv_error(error: &WorkspaceError) -> GsvError {
    match error {
        WorkspaceError::Missing(path) => GsvError::no_file(path),
        WorkspaceError::TooLarge { .. } | WorkspaceError::NotAFile(_) => GsvError::bad_request(error.to_string()),
        WorkspaceError::Traversal
        | WorkspaceError::TooMany(_)
        | WorkspaceError::NotText(_)
        | WorkspaceError::Changed(_) => GsvError::new(code::FAILED, error.to_string()),
        WorkspaceError::Io { .. } => GsvError::new(code::FAILED, error.to_string()),
    }
}
