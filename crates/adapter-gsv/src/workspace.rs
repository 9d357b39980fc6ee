//! The folders of agents. Source: docs/protocol/gsv.md, Workspace.

mod folder;

use std::sync::Arc;

use countersign_protocol::{
    Json,
    gsv::{
        Fault, Method, Request, code,
        key::agent_id,
        workspace::{Content, Deleted, Listed, Written},
    },
};

use super::{
    Door,
    answer::{Answer, missing},
    peer::Peer,
};

pub(super) use folder::{Folder, Found, Listing, WorkspaceError};

/// Answers a request of this group.
pub(super) async fn answer(door: &Arc<Door>, _: &Arc<Peer>, method: Method, request: Request) -> Answer {
    match request {
        Request::WorkspaceList(list) => {
            let folder = of(door, list.agent.as_deref());
            let Listing { files, directories } = work(move || folder.list(&list.path)).await?;
            Ok(Json::of(&Listed { path: list.echo, files, directories }))
        }
        Request::WorkspaceRead(file) => {
            let folder = of(door, file.agent.as_deref());
            let Found { text, size, modified } = work(move || folder.read(&file.path)).await?;
            let last_modified = modified.map(|at| at.to_rfc3339_opts(chrono::SecondsFormat::Millis, true));
            Ok(Json::of(&Content { path: file.echo, content: text, size, last_modified }))
        }
        Request::WorkspaceWrite(write) => {
            let folder = of(door, write.file.agent.as_deref());
            let size = write.content.chars().count();
            work(move || folder.write(&write.file.path, &write.content)).await?;
            Ok(Json::of(&Written { path: write.file.echo, size, written: true }))
        }
        Request::WorkspaceDelete(file) => {
            let folder = of(door, file.agent.as_deref());
            work(move || folder.remove(&file.path)).await?;
            Ok(Json::of(&Deleted { path: file.echo, deleted: true }))
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
) -> Result<T, Fault> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| Fault::new(code::FAILED, error.to_string()))?.map_err(|error| fault(&error))
}

fn fault(error: &WorkspaceError) -> Fault {
    match error {
        WorkspaceError::Missing(path) => Fault::no_file(path),
        WorkspaceError::TooLarge { .. } | WorkspaceError::NotAFile(_) => Fault::invalid(error.to_string()),
        WorkspaceError::Traversal
        | WorkspaceError::TooMany(_)
        | WorkspaceError::NotText(_)
        | WorkspaceError::Changed(_) => Fault::new(code::FAILED, error.to_string()),
        WorkspaceError::Io { .. } => Fault::new(code::FAILED, error.to_string()),
    }
}
