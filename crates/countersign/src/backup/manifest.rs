//! Manifest of a backup, and its verification.

use std::{
    collections::BTreeSet,
    fs::File,
    io::{Read as _, Write as _},
    path::{Component, Path, PathBuf},
};

use anyhow::{Context as _, bail, ensure};
use countersign_core::digest::Digest;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::{
    cannot, display_path,
    folder::{self, FolderHandle},
    one_line,
};

/// File name of the manifest.
const NAME: &str = "backup.json";
/// The form of backups that this program writes, and the newest that it reads.
pub(super) const FORM: u32 = 1;

/// All that a backup says of itself.
#[derive(Serialize, Deserialize)]
pub(super) struct BackupManifest {
    pub(super) form: u32,
    /// Of the program that made it.
    pub(super) version: String,
    pub(super) made: String,
    /// The name of the record.
    pub(super) log: String,
    /// Its head, as `audit verify` prints it.
    pub(super) head: String,
    pub(super) records: u64,
    pub(super) redacted: u64,
    /// True if secrets are in it.
    pub(super) secrets: bool,
    pub(super) files: Vec<ManifestEntry>,
}

/// A file of a backup.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct ManifestEntry {
    path: String,
    size: u64,
    sha256: Digest,
}

impl BackupManifest {
    pub(super) fn write_to(&self, folder: &FolderHandle) -> anyhow::Result<()> {
        let text = serde_json::to_vec_pretty(self)?;
        let written = folder.make_file(NAME.as_ref()).and_then(|mut made| made.write_all(&text));
        written.with_context(|| format!("cannot write {NAME}"))
    }

    /// Reads that of the backup at `path`, which is `folder`.
    pub(super) fn read_from(folder: &FolderHandle, path: &Path) -> anyhow::Result<Self> {
        let path = display_path(path);
        let text = read_manifest(folder).with_context(|| format!("{path} is not a backup: {NAME} cannot be read"))?;
        let manifest: Self =
            serde_json::from_slice(&text).with_context(|| format!("{path} is not a backup: {NAME} is invalid"))?;
        ensure!(
            manifest.form <= FORM,
            "the backup was created by a newer version ({}) of this program",
            one_line(&manifest.version)
        );
        let is_inside = |path: &str| Path::new(path).components().all(|part| matches!(part, Component::Normal(_)));
        let named = manifest.files.iter().map(|entry| entry.path.as_str()).chain([manifest.log.as_str()]);
        for path in named {
            ensure!(is_inside(path) && !path.is_empty(), "the backup lists {}, which is outside of it", one_line(path));
        }
        Ok(manifest)
    }

    /// Checks that exactly these files are in `folder`, each unchanged.
    pub(super) fn check_files(&self, folder: &FolderHandle) -> anyhow::Result<()> {
        let found: BTreeSet<ManifestEntry> = list_files(folder)?.into_iter().collect();
        let listed: BTreeSet<ManifestEntry> = self.files.iter().cloned().collect();
        if let Some(entry) = listed.difference(&found).next() {
            bail!("{} of the backup is missing or was changed", one_line(&entry.path));
        }
        if let Some(entry) = found.difference(&listed).next() {
            bail!("{} in the backup was added later", one_line(&entry.path));
        }
        Ok(())
    }
}

fn read_manifest(folder: &FolderHandle) -> anyhow::Result<Vec<u8>> {
    let folder::FolderEntry::File(mut file) = folder.open_entry(NAME.as_ref())? else { bail!("it is not a file") };
    let mut text = Vec::new();
    file.read_to_end(&mut text)?;
    Ok(text)
}

/// Returns every file in `folder` but the manifest itself.
pub(super) fn list_files(folder: &FolderHandle) -> anyhow::Result<Vec<ManifestEntry>> {
    let mut entries = Vec::new();
    collect_files(folder, Path::new(""), &mut entries)?;
    Ok(entries)
}

fn collect_files(folder: &FolderHandle, above: &Path, entries: &mut Vec<ManifestEntry>) -> anyhow::Result<()> {
    for name in folder.entry_names().with_context(|| cannot("read", above))? {
        let path: PathBuf = above.join(&name);
        let Some(text) = path.to_str() else { bail!("the path {} is not valid UTF-8", display_path(&path)) };
        if text == NAME {
            continue;
        }
        match folder.open_entry(&name).with_context(|| cannot("read", &path))? {
            folder::FolderEntry::Folder(inside) => collect_files(&inside, &path, entries)?,
            folder::FolderEntry::File(file) => {
                let (size, sha256) = hash_file(file).with_context(|| cannot("read", &path))?;
                entries.push(ManifestEntry { path: text.to_owned(), size, sha256 });
            }
            folder::FolderEntry::Link(_) => {}
            folder::FolderEntry::Other => bail!("{} in the backup is not a file", display_path(&path)),
        }
    }
    Ok(())
}

fn hash_file(mut file: File) -> std::io::Result<(u64, Digest)> {
    let (mut hash, mut size) = (Sha256::new(), 0);
    let mut bytes = vec![0; 64 << 10];
    loop {
        let count = file.read(&mut bytes)?;
        if count == 0 {
            return Ok((size, Digest::from_bytes(hash.finalize().into())));
        }
        hash.update(&bytes[..count]);
        size += count as u64;
    }
}
