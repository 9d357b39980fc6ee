//! Which programs a machine has, as its user's login shell finds them.
//!
//! It must not run any of them but the shell.

use std::{
    ffi::OsStr,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

use crate::{
    environment::Environment,
    exec::{Launcher, quote},
    shell::{Event, Job, Shells},
};

/// How long a login shell may take to come up.
const PATIENCE: Duration = Duration::from_secs(10);
/// What stands in front of the answer: profiles say things too.
const MARK: &str = "countersign-path:";
/// The most that is read of what it says.
const SAID: usize = 1 << 20;

/// Whether one of the folders in `path` has a program of this name.
pub fn has(path: &OsStr, name: &str) -> bool {
    let runs = |program: PathBuf| {
        program.metadata().is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
    };
    std::env::split_paths(path).filter(|folder| folder.is_absolute()).any(|folder| runs(folder.join(name)))
}

/// The folders of programs of the user's login shell, which a service that starts at boot has not. `None` if it does not say.
pub async fn login_path(launcher: &Launcher, environment: &Environment, home: &Path) -> Option<String> {
    let shell = environment.get("SHELL").map(PathBuf::from).filter(|shell| shell.is_absolute() && shell.is_file());
    let shell = shell.unwrap_or_else(|| "/bin/sh".into());
    let command = format!("{} -lc 'printf \"\\n{MARK}%s\\n\" \"$PATH\"'", quote(shell.to_str()?));
    tokio::time::timeout(PATIENCE, said(launcher, environment, home, command)).await.ok()?
}

async fn said(launcher: &Launcher, environment: &Environment, home: &Path, command: String) -> Option<String> {
    let job = Job { command, ..Job::default() };
    let shells = Shells::new(launcher.clone());
    let mut running = shells.run(job, home, environment).await.ok()?;
    let mut said = Vec::new();
    loop {
        match running.next().await {
            Ok(Event::Output(bytes)) if said.len() < SAID => said.extend(bytes),
            Ok(Event::Output(_) | Event::Taken(_)) => {}
            Ok(Event::Exited(_) | Event::Stopped) => break,
            Err(_) => return None,
        }
    }
    let said = String::from_utf8_lossy(&said);
    let path = said.lines().rev().find_map(|line| line.strip_prefix(MARK))?;
    (!path.is_empty()).then(|| path.to_owned())
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt as _};

    use super::has;

    #[test]
    fn a_program_is_a_file_that_may_be_run_in_an_absolute_folder() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("tool"), "").unwrap();
        fs::set_permissions(at("tool"), fs::Permissions::from_mode(0o755)).unwrap();
        fs::write(at("text"), "").unwrap();
        fs::create_dir(at("folder")).unwrap();
        let path = std::env::join_paths([folder.path().join("none").as_path(), folder.path(), ".".as_ref()]).unwrap();
        for (name, want) in
            [("tool", true), ("text", false), ("folder", false), ("absent", false), ("Cargo.toml", false)]
        {
            assert_eq!(has(&path, name), want, "{name}");
        }
    }
}
