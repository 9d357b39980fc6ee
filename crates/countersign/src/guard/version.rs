//! Version of an installed program.
//!
//! It is asked in a folder of its own: some programs write into their home folder even for `--version`.

use std::{
    os::unix::process::CommandExt as _,
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::bail;
use countersign_guard::{GuardedProgram, ProgramVersion};
use nix::{
    sys::signal::{Signal, killpg},
    unistd::Pid,
};

use super::prove::{ProofFolder, is_installed};

/// Time in which a program must print its version.
const LIMIT: Duration = Duration::from_secs(20);
/// Interval at which that is checked.
const CHECK: Duration = Duration::from_millis(20);
/// Variables of this process that a program keeps.
const KEPT: [&str; 3] = ["PATH", "LANG", "TERM"];

/// Returns the command that runs a program with the home folder `home`, and with none of the variables that lead to another.
pub(super) fn command_at_home(program: GuardedProgram, home: &Path) -> Command {
    let mut command = Command::new(program.name());
    command.env_clear().env("HOME", home);
    command.envs(KEPT.iter().filter_map(|name| Some((name, std::env::var_os(name)?))));
    command
}

/// Checks the version of a program. The error says what is open in it.
pub(super) fn check_version(program: GuardedProgram, accept_open: bool) -> anyhow::Result<Option<ProgramVersion>> {
    let (version, first) = (installed_version(program), program.first_version());
    if accept_open {
        return Ok(version);
    }
    let (name, title) = (program.name(), program.title());
    let problem = match version {
        Some(version) if version >= first => return Ok(Some(version)),
        Some(version) => format!("{title} {version} is older than {first}"),
        None if !is_installed(program) => {
            bail!("`{name}` is not in PATH: install {title} first, or use --accept-open to install the guard anyway")
        }
        None => format!("the version of {title} is not known: `{name} --version` failed"),
    };
    bail!(
        "{problem}: only from {first} on calls are known to be blocked when the hook fails; use --accept-open to install it anyway"
    )
}

/// Asks a program for its version.
pub(super) fn installed_version(program: GuardedProgram) -> Option<ProgramVersion> {
    let folder = ProofFolder::create().ok()?;
    let mut command = command_at_home(program, folder.path());
    command.arg("--version").current_dir(folder.path()).env("TMPDIR", folder.path()).process_group(0);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().ok()?;
    let begun = Instant::now();
    let has_ended = loop {
        match child.try_wait() {
            Ok(Some(_)) => break true,
            Ok(None) if begun.elapsed() < LIMIT => std::thread::sleep(CHECK),
            _ => break false,
        }
    };
    // It may have started others, which would write into the folder after its end.
    if let Ok(group) = i32::try_from(child.id()) {
        let _ = killpg(Pid::from_raw(group), Signal::SIGKILL);
    }
    let output = child.wait_with_output().ok().filter(|_| has_ended)?;
    ProgramVersion::parse(&String::from_utf8_lossy(&output.stdout))
}
