//! File that a user means with `--continue`, `--resume`, `--session` or `--fork`.
//!
//! It must not read more of a file than the header at its beginning.

use std::{
    fs::{self, OpenOptions},
    io::{BufRead as _, BufReader, Read as _},
    path::{Path, PathBuf},
    time::SystemTime,
};

use countersign_protocol::omp::session_file::SessionHeader;
use countersign_runtime::tools::regular;

use super::open::is_blank;

/// The longest beginning that is read for a header, in bytes.
const LONGEST: u64 = 16 << 20;

/// A session file and its header.
#[derive(Clone, Debug, PartialEq)]
pub struct FoundSession {
    /// Path of the file.
    pub path: PathBuf,
    /// Header of the file.
    pub header: SessionHeader,
}

/// Reads the header of the file at `path`. `None` if it is no session's.
pub fn read_header(path: &Path) -> Option<SessionHeader> {
    let file = regular::open_file(path, OpenOptions::new().read(true)).ok()?;
    let lines = BufReader::new(file.take(LONGEST)).split(b'\n').map_while(Result::ok);
    // A session is opened as well if a byte of its header is no text.
    SessionHeader::parse(&mut lines.map(|line| String::from_utf8_lossy(&line).into_owned()))
}

/// The session in a folder that was written to last.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NewestSession {
    /// The session; none if there is none that can be opened.
    pub session: Option<FoundSession>,
    /// The files that were written to later and hold something, but begin with no header of a session. The newest one comes first.
    pub skipped: Vec<PathBuf>,
}

/// Finds the session in `folder` that was written to last.
pub fn newest_session(folder: &Path) -> NewestSession {
    let mut newest = NewestSession::default();
    for path in by_age(folder) {
        if let Some(header) = read_header(&path) {
            newest.session = Some(FoundSession { path, header });
            break;
        }
        // A blank file lacks nothing. One that cannot be read may hold anything.
        if !is_blank(&path).unwrap_or(false) {
            newest.skipped.push(path);
        }
    }
    newest
}

impl NewestSession {
    /// Returns a notice for users about the files that were skipped.
    pub fn skipped_notice(&self) -> Option<String> {
        let is = |path: &PathBuf| format!("{} cannot be read as a session file", path.display());
        match self.skipped.as_slice() {
            [] => None,
            [one] => Some(format!("{} and was not continued", is(one))),
            [newest, _] => Some(format!("{} and was not continued, nor another newer file", is(newest))),
            [newest, others @ ..] => {
                Some(format!("{} and was not continued, nor {} other newer files", is(newest), others.len()))
            }
        }
    }
}

/// Finds the session that `target` names: a path, or the beginning of an id, searched in `folder` first and then in the
/// other folders of `sessions`. If several fit, the one that was written to last.
///
/// A path that leads nowhere gives `None`: the caller decides whether a session may begin there.
pub fn find_session(target: &str, cwd: &Path, folder: &Path, sessions: Option<&Path>) -> Option<FoundSession> {
    if is_path(target) {
        let path = cwd.join(target);
        return read_header(&path).map(|header| FoundSession { path, header });
    }
    if target.is_empty() {
        return None;
    }
    let mut folders = vec![folder.to_owned()];
    let others = sessions.and_then(|sessions| fs::read_dir(sessions).ok()).into_iter().flatten().flatten();
    let mut others: Vec<PathBuf> = others.map(|entry| entry.path()).filter(|other| other != folder).collect();
    others.sort_unstable();
    folders.append(&mut others);
    let target = target.to_lowercase();
    let begins = |id: &str| id.to_lowercase().starts_with(&target);
    let is_named = |path: &&PathBuf| {
        let name = path.file_stem().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        name.split_once('_').is_some_and(|(_, id)| begins(id))
    };
    let files: Vec<PathBuf> = folders.iter().flat_map(|folder| by_age(folder)).collect();
    // The name tells the id nearly always: the other headers are read only if none of these fits. The header decides, because the copy of
    // a file has another id and may have any name.
    let (named, others): (Vec<&PathBuf>, Vec<&PathBuf>) = files.iter().partition(is_named);
    let read = |path: &&PathBuf| read_header(path).map(|header| FoundSession { path: (*path).clone(), header });
    let fits = |found: &FoundSession| begins(&found.header.id);
    named.iter().chain(&others).filter_map(read).find(fits).or_else(|| named.iter().find_map(read))
}

/// Reports whether `target` names a file rather than an id.
pub fn is_path(target: &str) -> bool {
    target.contains(['/', '\\']) || Path::new(target).extension().is_some_and(|extension| extension == "jsonl")
}

/// Returns the session files of `folder`, the one written to last first.
pub fn by_age(folder: &Path) -> Vec<PathBuf> {
    let mut files: Vec<(SystemTime, PathBuf)> = fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "jsonl"))
        .filter_map(|path| Some((fs::metadata(&path).ok()?.modified().ok()?, path)))
        .collect();
    // Names begin with the time, which parts files of the same moment.
    files.sort_unstable_by(|left, right| right.cmp(left));
    files.into_iter().map(|(_, path)| path).collect()
}

#[cfg(test)]
mod tests {
    use std::{
        fs::{self, File},
        path::Path,
        time::{Duration, SystemTime},
    };

    use super::{NewestSession, find_session, newest_session};

    fn newest_id(folder: &Path) -> Option<String> {
        newest_session(folder).session.map(|found| found.header.id)
    }

    #[test]
    fn newer_files_that_are_no_sessions_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for (name, minutes_old) in [("a.jsonl", 5), ("older.jsonl", 9), ("c.jsonl", 3), ("b.jsonl", 2), ("d.jsonl", 1)]
        {
            put(&at(name), name, minutes_old);
        }
        let put_text = |name: &str, text: &str| {
            let modified = fs::metadata(at(name)).unwrap().modified().unwrap();
            fs::write(at(name), text).unwrap();
            File::options().write(true).open(at(name)).unwrap().set_modified(modified).unwrap();
        };
        put_text("older.jsonl", "nothing\n");
        assert_eq!(newest_session(folder.path()).skipped_notice(), None);
        put_text("d.jsonl", "\n");
        assert_eq!(
            (newest_id(folder.path()).as_deref(), newest_session(folder.path()).skipped_notice()),
            (Some("b.jsonl"), None)
        );
        put_text("b.jsonl", "{\"type\":\"sess");
        let newest = newest_session(folder.path());
        let one = format!("{} cannot be read as a session file and was not continued", at("b.jsonl").display());
        assert_eq!(
            (newest.skipped_notice(), newest.session.unwrap().header.id),
            (Some(one.clone()), "c.jsonl".to_owned())
        );
        put_text("c.jsonl", "\0\0\0{\"type\":\"session\",\"id\":\"x\"}\n");
        assert_eq!(newest_session(folder.path()).skipped_notice(), Some(format!("{one}, nor another newer file")));
    }

    #[test]
    fn a_header_that_can_be_opened_is_found() {
        let folder = tempfile::tempdir().unwrap();
        put(&folder.path().join("old.jsonl"), "old", 9);
        for (name, title) in [("bytes", &b"caf\xe9"[..]), ("long", &vec![b'x'; 2 << 20])] {
            let line = [
                &b"\xef\xbb\xbf{\"type\":\"session\",\"id\":\""[..],
                name.as_bytes(),
                b"\",\"title\":\"",
                title,
                b"\"}\n",
            ];
            fs::write(folder.path().join(format!("{name}.jsonl")), line.concat()).unwrap();
            assert_eq!(newest_id(folder.path()).as_deref(), Some(name));
            let found = find_session(name, folder.path(), folder.path(), None);
            assert_eq!(found.unwrap().header.id, name);
        }
    }

    fn put(path: &Path, id: &str, minutes_old: u64) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, format!("\n{{\"type\":\"session\",\"id\":\"{id}\"}}\n")).unwrap();
        let at = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000 - minutes_old * 60);
        File::options().write(true).open(path).unwrap().set_modified(at).unwrap();
    }

    #[test]
    fn a_session_is_found_by_age_path_or_beginning_of_its_id() {
        let root = tempfile::tempdir().unwrap();
        let (sessions, cwd) = (root.path().join("sessions"), root.path().join("work"));
        let here = sessions.join("-work");
        put(&here.join("2026-01-01T00-00-00-000Z_aa11.jsonl"), "aa11", 5);
        put(&here.join("2026-01-02T00-00-00-000Z_aa22.jsonl"), "aa22", 9);
        put(&sessions.join("-else/2026-01-03T00-00-00-000Z_bb33.jsonl"), "bb33", 1);
        put(&cwd.join("copy.jsonl"), "cc44", 1);
        let titled = cwd.join("titled.jsonl");
        put(&titled, "ee66", 1);
        let title_line = r#"{"type":"title","v":1,"title":"named","updatedAt":"","pad":""}"#;
        fs::write(&titled, format!("{title_line}\n{}", fs::read_to_string(&titled).unwrap())).unwrap();
        fs::write(here.join("2026-01-04T00-00-00-000Z_dd55.jsonl"), "nothing\n").unwrap();
        fs::write(here.join("notes.txt"), "{\"type\":\"session\",\"id\":\"x\"}\n").unwrap();

        assert_eq!(newest_id(&here).as_deref(), Some("aa11"));
        assert_eq!(newest_session(&sessions.join("absent")), NewestSession::default());
        for (target, want) in [
            ("aa", Some("aa11")),
            ("AA2", Some("aa22")),
            ("bb33", Some("bb33")),
            ("copy.jsonl", Some("cc44")),
            ("./copy.jsonl", Some("cc44")),
            ("titled.jsonl", Some("ee66")),
            ("dd55", None),
            ("zz", None),
            ("", None),
            ("absent.jsonl", None),
        ] {
            let found = find_session(target, &cwd, &here, Some(&sessions)).map(|found| found.header.id);
            assert_eq!(found.as_deref(), want, "{target}");
        }
        assert_eq!(find_session("bb33", &cwd, &here, None), None);
    }

    #[test]
    fn a_copy_is_found_by_the_id_in_its_header_and_not_by_its_name() {
        let root = tempfile::tempdir().unwrap();
        let original = root.path().join("2026-01-01T00-00-00-000Z_aa11.jsonl");
        put(&original, "aa11", 5);
        put(&root.path().join("2026-01-01T00-00-00-000Z_aa11-copy.jsonl"), "bb22", 1);
        put(&root.path().join("2026-01-02T00-00-00-000Z_cc33.jsonl"), "dd44", 1);
        let found = |target: &str| find_session(target, root.path(), root.path(), None).map(|found| found.header.id);
        assert_eq!(found("aa11").as_deref(), Some("aa11"));
        assert_eq!(found("bb22").as_deref(), Some("bb22"));
        // A file that another program renamed is found by its name if no header fits.
        assert_eq!(found("cc33").as_deref(), Some("dd44"));
    }
}
