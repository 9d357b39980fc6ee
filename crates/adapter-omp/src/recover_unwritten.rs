//! Sessions of which the process died before their file was written: the log has everything, and says where the file was to be.

use std::{
    path::{Path, PathBuf},
    time::SystemTime,
};

use countersign_core::{
    engine::Event,
    id::{Lsn, SessionId},
    session,
};
use countersign_runtime::store::{Log as _, LogOptions, Partition, SqliteLog};

use super::session_store::SessionStore;
use crate::attach::home;

/// Maximum number of logs that are checked, the newest first.
const LOOKED_AT: usize = 16;
/// Number of records that are read at once. The first ones have the path of the file, and then the session begins.
const PAGE: usize = 64;

/// Returns the newest such session whose file was to be in `folder`, if it is newer than `than`.
pub(crate) async fn newest_unwritten(
    session_store: &SessionStore,
    folder: &Path,
    than: Option<SystemTime>,
) -> Option<PathBuf> {
    for (log, at) in session_logs(session_store).into_iter().take(LOOKED_AT) {
        if than.is_some_and(|than| at <= than) {
            return None;
        }
        if let Some((path, _)) =
            planned_file(&log).await.filter(|(path, _)| path.parent() == Some(folder) && !path.exists())
        {
            return Some(path);
        }
    }
    None
}

/// Returns the planned path of the file of the session whose id begins with `prefix`.
pub(crate) async fn find_by_id(session_store: &SessionStore, prefix: &str) -> Option<PathBuf> {
    session_store.folder.as_ref().filter(|_| !prefix.is_empty())?;
    for (log, _) in session_logs(session_store).into_iter().take(LOOKED_AT) {
        let found = planned_file(&log).await.filter(|(path, id)| id.as_str().starts_with(prefix) && !path.exists());
        if let Some((path, _)) = found {
            return Some(path);
        }
    }
    None
}

/// Returns the session whose file was to be at `path`.
pub(crate) async fn find_by_path(session_store: &SessionStore, path: &Path) -> Option<SessionId> {
    session_store.folder.as_ref()?;
    for (log, _) in session_logs(session_store).into_iter().take(LOOKED_AT) {
        if let Some((_, id)) = planned_file(&log).await.filter(|(planned, _)| real_path(planned) == real_path(path)) {
            return Some(id);
        }
    }
    None
}

/// Returns a path to what is not there, by the folder's own name.
fn real_path(path: &Path) -> PathBuf {
    let folder = path.parent().and_then(|folder| folder.canonicalize().ok());
    folder.zip(path.file_name()).map_or_else(|| path.to_owned(), |(folder, name)| folder.join(name))
}

/// Returns the logs of the agent directory and the files that name those elsewhere, the one written to last first.
fn session_logs(session_store: &SessionStore) -> Vec<(PathBuf, SystemTime)> {
    let folder = home::countersign_folder(session_store.common.folder.root());
    let files = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut logs: Vec<(PathBuf, SystemTime)> = files
        .filter(|path| path.extension().is_some_and(|extension| extension == "db" || extension == "home"))
        .filter(|path| !path.to_string_lossy().contains(".replaced-"))
        .filter_map(|path| {
            let beside = PathBuf::from(format!("{}-wal", path.display()));
            let at = |path: &Path| std::fs::metadata(path).ok()?.modified().ok();
            let newest = at(&path).max(at(&beside))?;
            Some((path, newest))
        })
        .collect();
    logs.sort_by_key(|(_, at)| std::cmp::Reverse(*at));
    logs
}

/// Returns the planned path of the file of a log's session, and its id. `None` for one that was being made of another when its process
/// died: no host knew of it.
async fn planned_file(log: &Path) -> Option<(PathBuf, SessionId)> {
    if log.extension().is_some_and(|extension| extension == "home") {
        // Its log is a gateway's; this says as much.
        let home = home::read_at(log).ok()??;
        return Some((home.file, SessionId::new(home.session)));
    }
    let log = SqliteLog::open_read_only(log, LogOptions::default().event_format).ok()?;
    let (mut planned, mut after) = (None, Lsn(0));
    loop {
        let page = log.read_records(Partition::ZERO, after, PAGE).await.ok()?;
        for stored in &page {
            // An event of a later version has no meaning here.
            let Ok(Event::Session(event)) = Event::decode(&stored.kind, stored.version, &stored.facts) else {
                continue;
            };
            match event {
                session::Event::FileWritten { path, length: 0, .. } => {
                    planned = Some((PathBuf::from(path), stored.session.clone()?));
                }
                session::Event::Entry { .. } | session::Event::Replaced { .. } => return planned,
                _ => {}
            }
        }
        after = page.last().filter(|_| page.len() == PAGE)?.lsn;
    }
}
