//! Flags that take rights away: each is enforced, or the start is refused. Source: docs/protocol/omp.md, Fields that restrict.

use std::{fmt::Debug, path::PathBuf};

use countersign_core::policy::ApprovalMode;

use crate::{agent_dir::restrictions, slips};

/// Flags that restrict, and how many slips away from one a flag still counts as meant for it.
const RESTRICTING: [(&str, usize); 9] = [
    ("--permissions", 2),
    ("--approval-mode", 2),
    ("--no-builtin-tools", 2),
    ("--exclude-tools", 2),
    ("--no-context-files", 2),
    ("--no-prompt-templates", 2),
    ("--no-tools", 1),
    ("--tools", 1),
    ("--config", 1),
];

/// Flags of the originals that restrict and are not enforced here, with what to do instead.
const REFUSED: [(&str, &str); 4] = [
    (
        "--max-time",
        "the time of a session has no limit here; end the process, or set countersign.bash_timeout in config.yml",
    ),
    ("--profile", "there are no profiles here; PI_CODING_AGENT_DIR names the folder whose settings and rules hold"),
    ("--no-approve", "files of the project are read here; use --no-context-files and --no-prompt-templates"),
    ("-na", "files of the project are read here; use --no-context-files and --no-prompt-templates"),
];

/// Returns why a start with `flag` is refused, if it is.
pub(super) fn refused(flag: &str) -> Option<String> {
    let (_, problem) = REFUSED.iter().find(|(name, _)| *name == flag)?;
    Some(format!("{flag}: {problem}"))
}

/// Returns the flag that restricts and that `flag` was probably meant to be.
pub(super) fn slip(flag: &str) -> Option<&'static str> {
    let near = RESTRICTING.into_iter().filter(|(name, most)| slips::meant(flag, [*name], *most).is_some());
    near.min_by_key(|(_, most)| *most).map(|(name, _)| name)
}

/// Reads the value of `--approval-mode`.
pub(super) fn mode(value: &str) -> Result<ApprovalMode, String> {
    let accepted = ApprovalMode::ALL.map(ApprovalMode::name).join(", ");
    ApprovalMode::named(value).ok_or_else(|| format!("--approval-mode {value:?}: expected one of {accepted}"))
}

/// Reads names with commas between, as tools are called here.
pub(super) fn listed(flag: &str, value: &str) -> Result<Vec<String>, String> {
    let names = super::list(value).into_iter().map(|name| restrictions::name_of(&name.to_lowercase()).to_owned());
    let names: Vec<String> = names.collect();
    if names.is_empty() {
        return Err(format!(
            "{flag} {value:?}: expected names of tools with commas between, such as read,grep; --no-tools gives none"
        ));
    }
    Ok(names)
}

/// Reads the name of a file.
pub(super) fn file(flag: &str, value: String) -> Result<PathBuf, String> {
    if value.is_empty() { Err(format!("{flag} \"\": expected the name of a file")) } else { Ok(value.into()) }
}

/// Sets what may be given once. The same value again changes nothing.
pub(super) fn once<T: PartialEq + Debug>(flag: &str, place: &mut Option<T>, value: T) -> Result<(), String> {
    match place {
        Some(before) if *before != value => {
            Err(format!("{flag} is given twice, as {before:?} and as {value:?}: expected one value"))
        }
        _ => {
            *place = Some(value);
            Ok(())
        }
    }
}
