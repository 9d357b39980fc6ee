//! Access of other users to the files that the gateway depends on.
//!
//! It looks and reports; it changes nothing.

use std::{
    fmt,
    fs::Metadata,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

use countersign_view::shell_quote;

use super::{diagnostics::FileDiagnostics, settings::Config};

/// Something about a file that its owner should put right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileFinding {
    /// The file or folder.
    pub path: PathBuf,
    /// Kind of the exposure.
    pub what: ExposureKind,
}

/// Kind of exposure of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExposureKind {
    /// Others can read the credentials in it.
    Credentials,
    /// Others can read a private key.
    PrivateKey,
    /// Others can read which programs have tokens.
    Tokens,
    /// Others can read the records in it.
    Record,
    /// Others can read a secret that agents use by its name.
    Secret,
    /// Others can read what agents work at.
    Workspaces,
    /// Others can change it, and with it what agents may do.
    Changeable,
    /// The file is needed and not there.
    Absent,
}

impl FileFinding {
    /// Reports whether a gateway does not start because of it. All others are warnings, in every command.
    pub const fn prevents_start(&self) -> bool {
        matches!(self.what, ExposureKind::Absent)
    }

    /// Returns the remedy.
    pub fn advice(&self) -> String {
        let path = shell_quote(self.path.display());
        match self.what {
            ExposureKind::Credentials => {
                format!(
                    "move the credentials to environment variables and write ${{NAME}}, or run: {}",
                    self.chmod_command()
                )
            }
            ExposureKind::PrivateKey => self.chmod_command(),
            ExposureKind::Tokens | ExposureKind::Secret => format!("chmod 600 {path}"),
            ExposureKind::Workspaces => format!("chmod 700 {path}"),
            ExposureKind::Record => format!("chmod go= {path}"),
            ExposureKind::Changeable => format!("chmod go-w {path}"),
            ExposureKind::Absent => format!("create {path}, or correct its name in the configuration"),
        }
    }

    /// Returns the command that takes a file from other users, and leaves it to this process.
    fn chmod_command(&self) -> String {
        let path = shell_quote(self.path.display());
        match self.path.metadata() {
            Ok(found) if found.uid() != nix::unistd::geteuid().as_raw() => {
                format!("chgrp {} {path} && chmod 640 {path}", nix::unistd::getegid())
            }
            _ => format!("chmod 600 {path}"),
        }
    }
}

impl fmt::Display for FileFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.what {
            ExposureKind::Credentials => "holds credentials that others can read",
            ExposureKind::PrivateKey => "is a private key that others can read",
            ExposureKind::Tokens => "holds token digests that others can read",
            ExposureKind::Record => "is a record that others can read",
            ExposureKind::Secret => "is a secret that others can read, so it is not used",
            ExposureKind::Workspaces => "holds agent workspaces that others can read",
            ExposureKind::Changeable => "can be changed by others, who could change what agents may do",
            ExposureKind::Absent => "does not exist",
        };
        write!(f, "{} {what}", self.path.display())
    }
}

impl Config {
    /// Checks every file that this configuration names, and reports which others can read or change it.
    pub fn exposed_files(&self) -> Vec<FileFinding> {
        let mut findings = Vec::new();
        let mut check = |path: &Path, mask: u32, what| {
            if file_mode(path).is_some_and(|mode| mode & mask != 0) {
                findings.push(FileFinding { path: path.to_owned(), what });
            }
        };
        for file in self.file.iter().chain([&self.permissions]).chain(&self.tool_files) {
            check(file, 0o022, ExposureKind::Changeable);
        }
        if let Some(file) = self.file.as_deref().filter(|_| !self.literals.is_empty()) {
            check(file, foreign_read_bits(file), ExposureKind::Credentials);
        }
        if let Some(tls) = &self.gateway.tls {
            check(&tls.key, foreign_read_bits(&tls.key), ExposureKind::PrivateKey);
        }
        check(&self.storage.log, 0o044, ExposureKind::Record);
        let tokens = self.storage.folder.join(super::settings::TOKENS_FILE);
        check(&tokens, 0o044, ExposureKind::Tokens);
        // A user that can add one may do everything.
        check(&tokens, 0o022, ExposureKind::Changeable);
        let secrets = std::fs::read_dir(self.storage.folder.join(countersign_runtime::tools::secrets::FOLDER));
        // The target of a link counts too.
        for secret in secrets.into_iter().flatten().flatten().map(|entry| entry.path()).filter(|path| path.is_file()) {
            check(&secret, 0o077, ExposureKind::Secret);
        }
        for file in self.gateway.tls.iter().flat_map(|tls| [&tls.cert, &tls.key]) {
            if file_mode(file).is_none() {
                findings.push(FileFinding { path: file.clone(), what: ExposureKind::Absent });
            }
        }
        findings.extend(self.open_workspaces());
        findings
    }
}

impl Config {
    /// Returns the finding if other users may read the folder of workspaces. They come to it through a data directory that they may
    /// pass, not read, as the gateway makes it for people of theirs: a folder in a closed one is closed, and one that others may read
    /// was opened on purpose.
    pub fn open_workspaces(&self) -> Option<FileFinding> {
        let [folder, data] = [&self.agents_dir, &self.storage.folder].map(|path| path.canonicalize().ok());
        let (folder, data) = folder.zip(data)?;
        let is_passed = file_mode(&data).is_some_and(|mode| mode & 0o011 != 0 && mode & 0o044 == 0);
        let is_open = file_mode(&folder).is_some_and(|mode| mode & 0o055 != 0);
        let is_below = folder != data && folder.starts_with(&data);
        (is_passed && is_below && is_open)
            .then(|| FileFinding { path: self.agents_dir.clone(), what: ExposureKind::Workspaces })
    }
}

/// Returns the bits of a mode that give other users read access to a file.
fn foreign_read_bits(path: &Path) -> u32 {
    if path.metadata().is_ok_and(|found| is_for_its_group(&found)) { 0o004 } else { 0o044 }
}

/// Reports whether a file is its group's to read: root's own, given to another group. The files of a service that is not
/// to change them lie like this, such as those of our packages.
pub(super) fn is_for_its_group(found: &Metadata) -> bool {
    found.uid() == 0 && found.gid() != 0
}

fn file_mode(path: &Path) -> Option<u32> {
    path.metadata().ok().as_ref().map(Metadata::permissions).map(|permissions| permissions.mode())
}

/// Warns once of credentials in a configuration that others can read.
pub(super) fn warn_exposed(path: &Path, config: &Config, notes: &FileDiagnostics) {
    let Some(first) = config.literals.first() else { return };
    if file_mode(path).is_some_and(|mode| mode & foreign_read_bits(path) != 0) {
        let finding = FileFinding { path: path.to_owned(), what: ExposureKind::Credentials };
        let keys: Vec<&str> = config.literals.iter().map(|literal| literal.key.as_str()).collect();
        let warning = format!(
            "{}:{}: {}: others can read this file; {}",
            path.display(),
            first.line,
            keys.join(", "),
            finding.advice()
        );
        notes.warnings.borrow_mut().push(warning);
    }
}
