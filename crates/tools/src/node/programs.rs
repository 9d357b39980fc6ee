//! Programs of a machine, as its user's login shell finds them.
//!
//! It must not run any of them but the shell.

use std::{
    ffi::OsStr,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

use crate::{
    environment::CommandEnvironment,
    exec::{ExecLauncher, shell_quote},
    shell::{SessionShell, ShellEvent, ShellJob},
};

/// Longest time that a login shell may take to start.
const PATIENCE: Duration = Duration::from_secs(10);
/// Text before the answer: profiles print text too.
const MARK: &str = "countersign-path:";
/// Most bytes read of its output.
const MOST_OUTPUT: usize = 1 << 20;

/// Returns true if one of the folders in `path` has a program of this name.
pub fn has_program(path: &OsStr, name: &str) -> bool {
    let runs = |program: PathBuf| {
        program.metadata().is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
    };
    std::env::split_paths(path).filter(|folder| folder.is_absolute()).any(|folder| runs(folder.join(name)))
}

/// Returns the program folders of the user's login shell, which a service that starts at boot lacks. `None` if it does not print
/// them.
pub async fn login_path(launcher: &ExecLauncher, environment: &CommandEnvironment, home: &Path) -> Option<String> {
    let shell = environment.get("SHELL").map(PathBuf::from).filter(|shell| shell.is_absolute() && shell.is_file());
    let shell = shell.unwrap_or_else(|| "/bin/sh".into());
    let command = format!("{} -lc 'printf \"\\n{MARK}%s\\n\" \"$PATH\"'", shell_quote(shell.to_str()?));
    tokio::time::timeout(PATIENCE, read_login_path(launcher, environment, home, command)).await.ok()?
}

async fn read_login_path(
    launcher: &ExecLauncher,
    environment: &CommandEnvironment,
    home: &Path,
    command: String,
) -> Option<String> {
    let job = ShellJob { command, ..ShellJob::default() };
    let shells = SessionShell::new(launcher.clone());
    let mut running = shells.run(job, home, environment).await.ok()?;
    let mut output = Vec::new();
    loop {
        match running.next().await {
            Ok(ShellEvent::Output(bytes)) if output.len() < MOST_OUTPUT => output.extend(bytes),
            Ok(ShellEvent::Output(_) | ShellEvent::Taken(_)) => {}
            Ok(ShellEvent::Exited(_) | ShellEvent::Stopped) => break,
            Err(_) => return None,
        }
    }
    let text = String::from_utf8_lossy(&output);
    let path = text.lines().rev().find_map(|line| line.strip_prefix(MARK))?;
    (!path.is_empty()).then(|| path.to_owned())
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt as _};

    use super::has_program;

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
            assert_eq!(has_program(&path, name), want, "{name}");
        }
    }
}
