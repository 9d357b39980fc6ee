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

use super::shelf::Shelf;
use crate::attach::home;

/// How many logs are looked into at most, the newest first.
const LOOKED_AT: usize = 16;
/// How many records are read at once. The first ones say where the file is, and then the session begins.
const PAGE: usize = 64;

/// The newest such session whose file was to be in `folder`, if it is newer than `than`.
pub(crate) async fn newest(shelf: &Shelf, folder: &Path, than: Option<SystemTime>) -> Option<PathBuf> {
    for (log, at) in logs(shelf).into_iter().take(LOOKED_AT) {
        if than.is_some_and(|than| at <= than) {
            return None;
        }
        if let Some((path, _)) = planned(&log).await.filter(|(path, _)| path.parent() == Some(folder) && !path.exists())
        {
            return Some(path);
        }
    }
    None
}

/// Where the file of the session was to be whose id begins with `wanted`.
pub(crate) async fn of_id(shelf: &Shelf, wanted: &str) -> Option<PathBuf> {
    shelf.folder.as_ref().filter(|_| !wanted.is_empty())?;
    for (log, _) in logs(shelf).into_iter().take(LOOKED_AT) {
        let found = planned(&log).await.filter(|(path, id)| id.as_str().starts_with(wanted) && !path.exists());
        if let Some((path, _)) = found {
            return Some(path);
        }
    }
    None
}

/// The session whose file was to be at `path`.
pub(crate) async fn of_path(shelf: &Shelf, path: &Path) -> Option<SessionId> {
    shelf.folder.as_ref()?;
    for (log, _) in logs(shelf).into_iter().take(LOOKED_AT) {
        if let Some((_, id)) = planned(&log).await.filter(|(planned, _)| real(planned) == real(path)) {
            return Some(id);
        }
    }
    None
}

/// A path to what is not there, by the folder's own name.
fn real(path: &Path) -> PathBuf {
    let folder = path.parent().and_then(|folder| folder.canonicalize().ok());
    folder.zip(path.file_name()).map_or_else(|| path.to_owned(), |(folder, name)| folder.join(name))
}

/// The logs of the agent directory and the files that name those elsewhere, the one written to last first.
fn logs(shelf: &Shelf) -> Vec<(PathBuf, SystemTime)> {
    let folder = home::folder(shelf.common.folder.root());
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

/// Where the file of a log's session was to be, and which session it is. `None` for one that was being made of another when its process died: nobody was told of it.
async fn planned(log: &Path) -> Option<(PathBuf, SessionId)> {
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
            // What a later version wrote says nothing here.
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
