//! The store of whole objects next to the log: archives of messages, and attachments of messages of chat networks.
//!
//! An object is there as a whole or not at all, readable only by the gateway. It must not know what objects mean.

use std::{
    collections::BTreeSet,
    io::Write as _,
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::{Component, Path, PathBuf},
    time::SystemTime,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};

/// Folder of the store in the data directory.
const STORE: &str = "objects";
/// Prefix of a text that refers to an object in a message.
const REFERENCE: &str = "r2:";

/// Returns the text that refers to an object in a message.
pub fn object_reference(name: &str) -> String {
    format!("{REFERENCE}{name}")
}

/// Returns the object that such a text refers to. None for any other text.
pub fn parse_reference(text: &str) -> Option<&str> {
    text.strip_prefix(REFERENCE)
}

/// The store of a gateway.
#[derive(Clone, Debug)]
pub struct ObjectStore(PathBuf);

impl ObjectStore {
    /// Creates the store in a gateway's data directory.
    pub fn for_data_dir(folder: &Path) -> Self {
        Self(folder.join(STORE))
    }

    /// Stores an object. It survives a power cut once this is done.
    ///
    /// # Errors
    /// Errors of the system, or a name that leads elsewhere.
    pub async fn put_object(&self, name: String, bytes: Vec<u8>) -> std::io::Result<()> {
        let path = self.object_path(&name)?;
        tokio::task::spawn_blocking(move || write_atomic(&path, &bytes)).await.map_err(std::io::Error::other)?
    }

    /// Reads an object as base64. `None` if it does not exist any more.
    pub async fn read_base64(&self, name: &str) -> Option<String> {
        let path = self.object_path(name).ok()?;
        let read = tokio::task::spawn_blocking(move || std::fs::read(path).map(|bytes| STANDARD.encode(bytes)));
        read.await.ok()?.ok()
    }

    /// Reads an object.
    ///
    /// # Errors
    /// Errors of the system.
    pub async fn read_bytes(&self, name: &str) -> std::io::Result<Vec<u8>> {
        let path = self.object_path(name)?;
        tokio::task::spawn_blocking(move || std::fs::read(path)).await.map_err(std::io::Error::other)?
    }

    /// Deletes the objects of a folder that were stored before a time and are not in `stay`; returns their number.
    ///
    /// # Errors
    /// Errors of the system.
    pub async fn clear_but(&self, folder: &str, stay: BTreeSet<String>, before: SystemTime) -> std::io::Result<usize> {
        let (path, folder) = (self.object_path(folder)?, folder.to_owned());
        let may_go = move |name: &str| !stay.contains(&format!("{folder}/{name}"));
        tokio::task::spawn_blocking(move || remove_files(&path, Some(before), &may_go))
            .await
            .map_err(std::io::Error::other)?
    }

    /// Deletes objects of a folder by their names in it; returns their number.
    ///
    /// # Errors
    /// Errors of the system.
    pub async fn clear_those(
        &self,
        folder: &str,
        may_go: impl Fn(&str) -> bool + Send + 'static,
    ) -> std::io::Result<usize> {
        let path = self.object_path(folder)?;
        tokio::task::spawn_blocking(move || remove_files(&path, None, &may_go)).await.map_err(std::io::Error::other)?
    }

    /// Deletes objects that nothing refers to yet. Objects that cannot be deleted stay: they do no harm.
    pub async fn discard_objects(&self, names: Vec<String>) {
        let paths: Vec<PathBuf> = names.iter().filter_map(|name| self.object_path(name).ok()).collect();
        let discard = move || {
            for path in paths {
                if let Err(error) = std::fs::remove_file(&path) {
                    tracing::debug!(%error, "failed to delete an unused object");
                }
            }
        };
        // The result is not awaited.
        let _ = tokio::task::spawn_blocking(discard).await;
    }

    /// Deletes a folder of objects; returns their number.
    ///
    /// # Errors
    /// Errors of the system.
    pub async fn clear_folder(&self, folder: &str) -> std::io::Result<usize> {
        let path = self.object_path(folder)?;
        let clear = move || match std::fs::read_dir(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(0),
            Err(error) => Err(error),
            Ok(entries) => {
                let count = entries.filter(Result::is_ok).count();
                std::fs::remove_dir_all(&path).map(|()| count)
            }
        };
        tokio::task::spawn_blocking(clear).await.map_err(std::io::Error::other)?
    }

    /// Deletes the objects that were stored before a time, except those of one folder; returns their number.
    ///
    /// # Errors
    /// Errors of the system.
    pub async fn clear_older(&self, before: SystemTime, but: &'static str) -> std::io::Result<usize> {
        let folder = self.0.clone();
        tokio::task::spawn_blocking(move || clear_older(&folder, before, &folder.join(but)))
            .await
            .map_err(std::io::Error::other)?
    }

    fn object_path(&self, name: &str) -> std::io::Result<PathBuf> {
        let is_plain = Path::new(name).components().all(|part| matches!(part, Component::Normal(_)));
        if is_plain && !name.is_empty() {
            Ok(self.0.join(name))
        } else {
            Err(std::io::Error::other("invalid object name"))
        }
    }
}

/// Takes files of one folder away whose names may go, if they are old enough.
fn remove_files(folder: &Path, before: Option<SystemTime>, may_go: &dyn Fn(&str) -> bool) -> std::io::Result<usize> {
    let entries = match std::fs::read_dir(folder) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(0),
        entries => entries?,
    };
    let mut count = 0;
    for entry in entries {
        let entry = entry?;
        if !entry.file_name().to_str().is_some_and(may_go) {
            continue;
        }
        let found = entry.metadata()?;
        let is_old = before.map_or(Ok(true), |before| found.modified().map(|at| at < before))?;
        if is_old && found.is_file() {
            std::fs::remove_file(entry.path())?;
            count += 1;
        }
    }
    Ok(count)
}

/// Takes files away that are older, in the folders below too.
fn clear_older(folder: &Path, before: SystemTime, but: &Path) -> std::io::Result<usize> {
    let entries = match std::fs::read_dir(folder) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(0),
        entries => entries?,
    };
    let mut count = 0;
    for entry in entries {
        let entry = entry?;
        let kind = entry.file_type()?;
        if kind.is_dir() && entry.path() != but {
            count += clear_older(&entry.path(), before, but)?;
        } else if kind.is_file() && entry.metadata()?.modified()? < before {
            std::fs::remove_file(entry.path())?;
            count += 1;
        }
    }
    Ok(count)
}

/// Writes a file atomically, readable only by the gateway.
pub fn write_atomic(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let folder = path.parent().unwrap_or_else(|| Path::new("."));
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let temporary: PathBuf = path.with_extension("part");
    let mut file = std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&temporary)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    std::fs::rename(&temporary, path)?;
    std::fs::File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::ObjectStore;

    #[tokio::test]
    async fn an_object_is_there_until_its_folder_goes_and_no_name_leads_out() {
        let folder = std::env::temp_dir().join(format!("countersign-objects-{}", uuid::Uuid::new_v4()));
        let store = ObjectStore(folder.clone());
        store.put_object("media/a/1.bin".to_owned(), b"one".to_vec()).await.unwrap();
        assert_eq!(store.read_base64("media/a/1.bin").await.as_deref(), Some("b25l"));
        for name in ["../x", "/x", "", "media/../../x", "./x"] {
            assert!(store.put_object(name.to_owned(), Vec::new()).await.is_err(), "{name}");
        }
        store.put_object("media/a/2.bin".to_owned(), b"two".to_vec()).await.unwrap();
        store.discard_objects(vec!["media/a/2.bin".to_owned(), "media/a/3.bin".to_owned(), "../x".to_owned()]).await;
        assert_eq!(store.read_base64("media/a/2.bin").await, None);
        assert_eq!(
            (store.clear_folder("media/a").await.unwrap(), store.clear_folder("media/a").await.unwrap()),
            (1, 0)
        );
        assert_eq!(store.read_base64("media/a/1.bin").await, None);
        store.put_object("media/b/2.bin".to_owned(), b"two".to_vec()).await.unwrap();
        store.put_object("owed/3.bin".to_owned(), b"one".to_vec()).await.unwrap();
        let now = std::time::SystemTime::now();
        let hour = std::time::Duration::from_secs(3600);
        assert_eq!(
            (
                store.clear_older(now - hour, "owed").await.unwrap(),
                store.clear_older(now + hour, "owed").await.unwrap()
            ),
            (0, 1)
        );
        assert_eq!(store.read_base64("owed/3.bin").await.as_deref(), Some("b25l"));
        assert_eq!(store.read_base64("media/b/2.bin").await, None);
        std::fs::remove_dir_all(folder).unwrap();
    }
}
