//! Working folder of a session.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use countersign_agent_dir::ProcessEnvironment;

use super::flags::AdapterFlags;

/// Returns the named folder, else the one in which the program was started; for the home folder itself one next to it, unless that was
/// allowed.
///
/// # Errors
/// It is not there, or cannot be made.
pub(super) fn working_folder(
    flags: &AdapterFlags,
    environment: &ProcessEnvironment,
    cwd: PathBuf,
    temporary: &Path,
) -> io::Result<PathBuf> {
    let cwd = flags.cwd.as_ref().map_or_else(|| cwd.clone(), |named| cwd.join(named));
    if flags.cwd.is_some() && !cwd.is_dir() {
        let problem = format!("--cwd {}: there is no such folder", cwd.display());
        return Err(io::Error::new(io::ErrorKind::NotFound, problem));
    }
    let home = environment.get("HOME").map(PathBuf::from);
    if home.is_some_and(|home| home == cwd) && !flags.allow_home {
        let scratch = temporary.join("countersign-home");
        fs::create_dir_all(&scratch)?;
        return Ok(scratch);
    }
    Ok(cwd)
}
