//! Paths of the data directory and the log.
//!
//! It must not create anything, and never opens a database.

use std::{
    fs::File,
    io::Read as _,
    path::{Path, PathBuf},
};

use super::{
    config_field::ConfigField,
    database::read_database,
    settings::{ConfigFlags, StoragePaths},
};

const USUAL: &str = "countersign.db";
/// Name of the log if the usual one is another program's.
const OTHER: &str = "countersign-log.db";

/// Resolves the log: `storage.path`'s file name in `--data`, else in that path's own folder; without a path in `data` next to
/// the configuration; without a configuration in the user's own data directory.
pub(super) fn resolve_storage(
    place: &ConfigField<'_>,
    file: Option<&Path>,
    flags: &ConfigFlags,
    environment: &dyn Fn(&str) -> Option<String>,
) -> StoragePaths {
    let database = read_database(place);
    let named = place.at("path");
    let path = named.path();
    let ends_in_folder =
        named.text().is_some_and(|text| text.ends_with('/')) || path.as_ref().is_some_and(|path| path.is_dir());
    if ends_in_folder || path.as_ref().is_some_and(|path| path.file_name().is_none()) {
        named.report_refusal("expected the path of a file, found a folder");
    }
    let folder = flags.data.clone().or_else(|| path.as_deref().and_then(Path::parent).map(Path::to_owned));
    let folder = folder.unwrap_or_else(|| match file {
        Some(file) => file.parent().unwrap_or_else(|| Path::new("")).join("data"),
        None => home_folder(environment),
    });
    // A path without a folder is in the current one, and nothing opens a folder without a name.
    let folder = if folder.as_os_str().is_empty() { PathBuf::from(".") } else { folder };
    let name = path.as_deref().and_then(Path::file_name).unwrap_or_else(|| USUAL.as_ref());
    let log = folder.join(name);
    if !is_others(&log) {
        return StoragePaths { folder, log, database };
    }
    let beside = folder.join(if name == USUAL { OTHER } else { USUAL });
    named.report_warning(&format!(
        "{} holds the records of agentpass or agent-gate and is not changed; the record is written to {}",
        log.display(),
        beside.display()
    ));
    StoragePaths { folder, log: beside, database }
}

fn home_folder(environment: &dyn Fn(&str) -> Option<String>) -> PathBuf {
    let absolute = |name| environment(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let data = absolute("XDG_DATA_HOME").or_else(|| absolute("HOME").map(|home| home.join(".local/share")));
    data.map_or_else(|| PathBuf::from("countersign-data"), |data| data.join("countersign"))
}

/// Returns true if the file is a database with the tables of agentpass or agent-gate. The statements that made them stand in
/// the first page as they were written, so that nothing needs to be opened that could leave files next to it.
fn is_others(path: &Path) -> bool {
    let mut page = Vec::new();
    let is_file = path.metadata().is_ok_and(|found| found.is_file());
    if !is_file || File::open(path).and_then(|file| file.take(1 << 16).read_to_end(&mut page)).is_err() {
        return false;
    }
    let holds = |name: &[u8]| page.windows(name.len()).any(|window| window == name);
    page.starts_with(b"SQLite format 3\0") && holds(b"audit_log") && holds(b"pending_requests")
}
