//! What a backup says of itself, and whether that is so.

use std::{
    collections::BTreeSet,
    fs::{self, File},
    io::Read as _,
    path::{Component, Path},
};

use anyhow::{Context as _, bail, ensure};
use countersign_core::digest::Digest;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::{part, sorted};

/// Where it stands.
const NAME: &str = "backup.json";
/// The form of backups that this program writes, and the newest that it reads.
pub(super) const FORM: u32 = 1;

/// All that a backup says of itself.
#[derive(Serialize, Deserialize)]
pub(super) struct Manifest {
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
    /// Whether secrets are in it.
    pub(super) secrets: bool,
    pub(super) files: Vec<Entry>,
}

/// A file of a backup.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct Entry {
    path: String,
    size: u64,
    sha256: Digest,
}

impl Manifest {
    pub(super) fn write(&self, folder: &Path) -> anyhow::Result<()> {
        part::own_file(&folder.join(NAME), &serde_json::to_vec_pretty(self)?).context(NAME)
    }

    /// Reads that of the backup in `folder`.
    pub(super) fn read(folder: &Path) -> anyhow::Result<Self> {
        let text = fs::read(folder.join(NAME))
            .with_context(|| format!("{} is no backup: {NAME} cannot be read", folder.display()))?;
        let manifest: Self = serde_json::from_slice(&text)
            .with_context(|| format!("{} is no backup: {NAME} is not what it should be", folder.display()))?;
        ensure!(manifest.form <= FORM, "the backup was made by a later version ({}) of this program", manifest.version);
        let is_inside = |path: &str| Path::new(path).components().all(|part| matches!(part, Component::Normal(_)));
        let named = manifest.files.iter().map(|entry| entry.path.as_str()).chain([manifest.log.as_str()]);
        for path in named {
            ensure!(is_inside(path) && !path.is_empty(), "the backup names {path}, which lies elsewhere");
        }
        Ok(manifest)
    }

    /// Whether exactly these files are in `folder`, each as it was.
    pub(super) fn check(&self, folder: &Path) -> anyhow::Result<()> {
        let found: BTreeSet<Entry> = files(folder)?.into_iter().collect();
        let listed: BTreeSet<Entry> = self.files.iter().cloned().collect();
        if let Some(entry) = listed.difference(&found).next() {
            bail!("{} of the backup is not there, or not what it was", entry.path);
        }
        if let Some(entry) = found.difference(&listed).next() {
            bail!("{} lies in the backup and was not put there by it", entry.path);
        }
        Ok(())
    }
}

/// Every file in `folder` but the manifest itself.
pub(super) fn files(folder: &Path) -> anyhow::Result<Vec<Entry>> {
    let mut entries = Vec::new();
    walk(folder, folder, &mut entries)?;
    Ok(entries)
}

fn walk(root: &Path, folder: &Path, entries: &mut Vec<Entry>) -> anyhow::Result<()> {
    for path in sorted(folder)? {
        let name = path.strip_prefix(root)?.to_str().with_context(|| format!("{} is no text", path.display()))?;
        if path.is_symlink() || name == NAME {
            continue;
        }
        if path.is_dir() {
            walk(root, &path, entries)?;
        } else {
            let (size, sha256) = digest(&path).with_context(|| path.display().to_string())?;
            entries.push(Entry { path: name.to_owned(), size, sha256 });
        }
    }
    Ok(())
}

fn digest(path: &Path) -> std::io::Result<(u64, Digest)> {
    let (mut file, mut hash, mut size) = (File::open(path)?, Sha256::new(), 0);
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
