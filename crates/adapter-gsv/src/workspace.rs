//! The folders of agents. Source: docs/protocol/gsv.md, Workspace.

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
    Door,
    answer::{Answer, missing},
    peer::Peer,
};

pub(super) use folder::{Folder, Found, Listing, WorkspaceError};

/// Answers a request of this group.
pub(super) async fn answer(door: &Arc<Door>, _: &Arc<Peer>, method: Method, request: GsvRequest) -> Answer {
    match request {
        GsvRequest::WorkspaceList(list) => {
            let folder = of(door, list.agent.as_deref());
            let Listing { files, directories } = work(move || folder.list(&list.path)).await?;
            Ok(RawJson::from_wire(&WorkspaceListResult { path: list.echo, files, directories }))
        }
        GsvRequest::WorkspaceRead(file) => {
            let folder = of(door, file.agent.as_deref());
            let Found { text, size, modified } = work(move || folder.read(&file.path)).await?;
            let last_modified = modified.map(|at| at.to_rfc3339_opts(chrono::SecondsFormat::Millis, true));
            Ok(RawJson::from_wire(&WorkspaceReadResult { path: file.echo, content: text, size, last_modified }))
        }
        GsvRequest::WorkspaceWrite(write) => {
            let folder = of(door, write.file.agent.as_deref());
            let size = write.content.chars().count();
            work(move || folder.write(&write.file.path, &write.content)).await?;
            Ok(RawJson::from_wire(&WorkspaceWriteResult { path: write.file.echo, size, written: true }))
        }
        GsvRequest::WorkspaceDelete(file) => {
            let folder = of(door, file.agent.as_deref());
            work(move || folder.remove(&file.path)).await?;
            Ok(RawJson::from_wire(&WorkspaceDeleteResult { path: file.echo, deleted: true }))
        }
        _ => Err(missing(method)),
    }
}

/// The folder of an agent, or of the usual one.
pub(super) fn of(door: &Door, agent: Option<&str>) -> Folder {
    let agent = agent.map_or_else(|| door.settings.agent(), agent_id);
    Folder::of(&door.context.config.agents_dir, &agent)
}

/// Works with files where that may block.
async fn work<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, WorkspaceError> + Send + 'static,
) -> Result<T, GsvError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| GsvError::new(code::FAILED, error.to_string()))?.map_err(|error| fault(&error))
}

fn fault(error: &WorkspaceError) -> GsvError {
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
