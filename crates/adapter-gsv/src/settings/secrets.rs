//! Secrets that users set: in a file of their own next to the record, which holds their digests alone.
//!
//! A secret is in the file before the record says that it is set, and the earlier one stays there until then: whatever a
//! crash leaves, the digest in the record says which of them counts.

use std::{
    collections::BTreeMap,
    io,
    os::unix::fs::PermissionsExt as _,
    path::{Path as FilePath, PathBuf},
};

use countersign_core::{digest::Digest, settings::SettingsPath};
use countersign_files::replace::{FileAccess, replace_file};
use countersign_runtime::tools::regular;
use parking_lot::Mutex;
use secrecy::{ExposeSecret as _, SecretString};
use serde::{Deserialize, Serialize};

/// Name of the file in the data directory.
pub(crate) const FILE: &str = "secrets.yaml";
/// Largest size of the file, in bytes.
const LARGEST: u64 = 16 << 20;
/// Comment at its head.
const HEAD: &str = "# Secrets that were set over the gsv door. The gateway writes this file; what is not in its record does not count.\n";

/// Error of reading or writing secrets.
#[derive(Debug, thiserror::Error)]
#[error("{}: {why}", file.display())]
pub struct SecretsError {
    file: PathBuf,
    why: String,
}

/// Secret as it is stored in the file.
#[derive(Serialize, Deserialize)]
struct StoredSecret {
    path: SettingsPath,
    /// Salt: without it a short secret could be guessed from the digest in the record.
    salt: String,
    value: String,
}

/// All stored secrets, by path and digest.
type SecretMap = BTreeMap<(SettingsPath, Digest), (String, SecretString)>;

/// Secrets file.
pub(super) struct SecretsFile {
    file: PathBuf,
    known: Mutex<SecretMap>,
}

fn salted_digest(salt: &str, value: &str) -> Digest {
    Digest::hash_bytes(format!("{salt}\n{value}").as_bytes())
}

impl SecretsFile {
    /// Reads the file in the data directory `folder`. A missing one is empty.
    ///
    /// # Errors
    /// If it exists and cannot be read: overwriting it would lose secrets.
    pub(super) fn open(folder: &FilePath) -> Result<Self, SecretsError> {
        let file = folder.join(FILE);
        let wrong = |why: String| SecretsError { file: file.clone(), why };
        let text = match regular::read_text(&file, LARGEST) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(wrong(error.to_string())),
        };
        let is_empty = text.lines().all(|line| line.trim().is_empty() || line.starts_with('#'));
        // The parser's error may quote the line that it cannot read.
        let kept: Vec<StoredSecret> = match is_empty {
            true => Vec::new(),
            false => serde_saphyr::from_str(&text).map_err(|_| wrong("this is no file of secrets".to_owned()))?,
        };
        let known = kept.into_iter().map(|kept| {
            let digest = salted_digest(&kept.salt, &kept.value);
            ((kept.path, digest), (kept.salt, SecretString::from(kept.value)))
        });
        Ok(Self { known: Mutex::new(known.collect()), file })
    }

    /// Adds secrets to the file, and returns their digests.
    ///
    /// # Errors
    /// If the file was not written. Nothing has changed then.
    pub(super) fn keep_secrets(
        &self,
        secrets: Vec<(SettingsPath, String)>,
    ) -> Result<Vec<(SettingsPath, Digest)>, SecretsError> {
        let mut known = self.known.lock().clone();
        let mut digests = Vec::with_capacity(secrets.len());
        for (path, value) in secrets {
            let mut salt = [0; 16];
            getrandom::fill(&mut salt).map_err(|error| self.file_error(&error))?;
            let salt = hex::encode(salt);
            let digest = salted_digest(&salt, &value);
            digests.push((path.clone(), digest));
            known.insert((path, digest), (salt, SecretString::from(value)));
        }
        if !digests.is_empty() {
            self.write_file(known)?;
        }
        Ok(digests)
    }

    /// Removes secrets that the record does not name.
    ///
    /// # Errors
    /// If the file was not written. Surplus secrets in it have no effect.
    pub(super) fn keep_only(&self, named: impl Fn(&SettingsPath, Digest) -> bool) -> Result<(), SecretsError> {
        let before = self.known.lock().clone();
        let mut known = before.clone();
        known.retain(|(path, digest), _| named(path, *digest));
        if known.len() < before.len() { self.write_file(known) } else { Ok(()) }
    }

    /// Returns the secret at a path with this digest, if it is stored.
    pub(super) fn get(&self, path: &SettingsPath, digest: Digest) -> Option<SecretString> {
        self.known.lock().get(&(path.clone(), digest)).map(|(_, secret)| secret.clone())
    }

    fn write_file(&self, known: SecretMap) -> Result<(), SecretsError> {
        let mut text = HEAD.to_owned();
        for ((path, _), (salt, value)) in &known {
            // JSON is YAML, and its quoting needs no thought.
            let json = |text: &str| serde_json::Value::from(text).to_string();
            let path = serde_json::to_string(path).map_err(|error| self.file_error(&error))?;
            text.push_str(&format!(
                "- path: {path}\n  salt: {}\n  value: {}\n",
                json(salt),
                json(value.expose_secret())
            ));
        }
        // A file that a user made readable would keep its mode when it is replaced.
        match std::fs::set_permissions(&self.file, std::fs::Permissions::from_mode(0o600)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(self.file_error(&error)),
            Ok(()) | Err(_) => {}
        }
        replace_file(&self.file, text.as_bytes(), FileAccess::Private).map_err(|error| self.file_error(&error))?;
        *self.known.lock() = known;
        Ok(())
    }

    fn file_error(&self, why: &dyn std::fmt::Display) -> SecretsError {
        SecretsError { file: self.file.clone(), why: why.to_string() }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use countersign_core::{digest::Digest, settings::SettingsPath};
    use secrecy::ExposeSecret as _;

    use super::{FILE, SecretsFile};

    fn path(text: &str) -> SettingsPath {
        SettingsPath::from_names(text.split('.').map(str::to_owned)).unwrap()
    }

    fn shown(secrets: &SecretsFile, at: &str, digest: Digest) -> Option<String> {
        secrets.get(&path(at), digest).map(|secret| secret.expose_secret().to_owned())
    }

    #[test]
    fn a_secret_is_known_by_its_digest_and_the_one_before_it_stays_until_it_is_let_go() {
        let folder = tempfile::tempdir().unwrap();
        let secrets = SecretsFile::open(folder.path()).unwrap();
        let odd = "qu\"o:te # ü \\ {{x}}";
        let first = secrets.keep_secrets(vec![(path("auth.token"), odd.to_owned())]).unwrap();
        let second = secrets.keep_secrets(vec![(path("auth.token"), "new".to_owned())]).unwrap();
        let again = SecretsFile::open(folder.path()).unwrap();
        assert_eq!(shown(&again, "auth.token", first[0].1).as_deref(), Some(odd));
        assert_eq!(shown(&again, "auth.token", second[0].1).as_deref(), Some("new"));
        assert_eq!(shown(&again, "apiKeys.x", second[0].1), None);
        let file = folder.path().join(FILE);
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
        again.keep_only(|_, digest| digest == second[0].1).unwrap();
        assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        let again = SecretsFile::open(folder.path()).unwrap();
        assert_eq!(shown(&again, "auth.token", first[0].1), None);
        assert_eq!(shown(&again, "auth.token", second[0].1).as_deref(), Some("new"));
        again.keep_only(|_, _| false).unwrap();
        assert!(!std::fs::read_to_string(&file).unwrap().contains("new\""));
        assert!(SecretsFile::open(folder.path()).is_ok());
    }

    #[test]
    fn two_secrets_alike_have_digests_that_do_not_say_so() {
        let folder = tempfile::tempdir().unwrap();
        let secrets = SecretsFile::open(folder.path()).unwrap();
        let same = |at: &str| secrets.keep_secrets(vec![(path(at), "same".to_owned())]).unwrap()[0].1;
        assert_ne!(same("a"), same("b"));
    }

    #[test]
    fn an_unreadable_file_is_not_overwritten_and_its_text_is_not_printed() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(FILE), "- path: [hunter2").unwrap();
        let error = SecretsFile::open(folder.path()).err().unwrap().to_string();
        assert!(error.ends_with("secrets.yaml: this is no file of secrets"), "{error}");
    }
}
