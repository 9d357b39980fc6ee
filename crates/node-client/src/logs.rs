//! The log of a node: JSON lines in a file of bounded size, which the gateway can ask for the end of.
//!
//! It must not know what is logged.

use std::{
    fs::{File, OpenOptions},
    io::{self, Read as _, Seek as _, SeekFrom, Write},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use tracing_subscriber::fmt::MakeWriter;

/// Maximum size of a file before another is begun. The one before is kept.
const LARGEST: u64 = 4 << 20;
/// The most bytes that the gateway is given.
const GIVEN: u64 = 2 << 20;

/// The file that is written. Clones share it.
#[derive(Clone)]
pub struct NodeLogFile(Arc<Mutex<OpenLogFile>>);

struct OpenLogFile {
    path: PathBuf,
    file: File,
    size: u64,
}

impl NodeLogFile {
    /// Opens or makes the log at `path`, for its owner alone.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let file = open_appending(path)?;
        let size = file.metadata()?.len();
        Ok(Self(Arc::new(Mutex::new(OpenLogFile { path: path.to_owned(), file, size }))))
    }
}

fn open_appending(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).mode(0o600).open(path)
}

/// Returns the path of the previous log.
fn rotated_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".1");
    PathBuf::from(name)
}

impl Write for &NodeLogFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut open_file = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if open_file.size > 0 && open_file.size + bytes.len() as u64 > LARGEST {
            std::fs::rename(&open_file.path, rotated_path(&open_file.path))?;
            open_file.file = open_appending(&open_file.path)?;
            open_file.size = 0;
        }
        open_file.file.write_all(bytes)?;
        open_file.size += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for NodeLogFile {
    type Writer = &'a Self;

    fn make_writer(&'a self) -> Self::Writer {
        self
    }
}

/// Returns the last `count` lines of the log at `path`, and whether there are more.
pub(crate) fn last_lines(path: &Path, count: usize) -> io::Result<(Vec<String>, bool)> {
    let (older, newer) = (end_of(&rotated_path(path))?, end_of(path)?);
    let mut lines: Vec<&str> = older.0.lines().chain(newer.0.lines()).collect();
    let mut cut = older.1 || newer.1;
    if lines.len() > count {
        lines.drain(..lines.len() - count);
        cut = true;
    }
    let mut bytes = 0;
    let fitting = lines.iter().rev().take_while(|line| {
        bytes += line.len() as u64 + 1;
        bytes <= GIVEN
    });
    let fitting = fitting.count();
    cut |= fitting < lines.len();
    Ok((lines[lines.len() - fitting..].iter().map(|line| (*line).to_owned()).collect(), cut))
}

/// Returns the whole lines at the end of a file, and whether that is not all of it. A file that is not there has none.
fn end_of(path: &Path) -> io::Result<(String, bool)> {
    let mut file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok((String::new(), false)),
        Err(error) => return Err(error),
    };
    let from = file.metadata()?.len().saturating_sub(GIVEN);
    file.seek(SeekFrom::Start(from))?;
    let mut bytes = Vec::new();
    file.take(GIVEN).read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    let whole = if from == 0 { &*text } else { text.split_once('\n').map_or("", |(_, rest)| rest) };
    Ok((whole.to_owned(), from > 0))
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::{LARGEST, NodeLogFile, last_lines};

    #[test]
    fn a_log_is_cut_when_it_is_large_and_its_end_is_given() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("node.log");
        assert_eq!(last_lines(&path, 10).unwrap(), (Vec::new(), false));
        let log = NodeLogFile::open(&path).unwrap();
        for number in 0..5 {
            (&log).write_all(format!("line {number}\n").as_bytes()).unwrap();
        }
        assert_eq!(last_lines(&path, 2).unwrap(), (vec!["line 3".to_owned(), "line 4".to_owned()], true));
        assert!(!last_lines(&path, 5).unwrap().1);
        let wide = format!("{}\n", "x".repeat(1 << 20));
        for _ in 0..9 {
            (&log).write_all(wide.as_bytes()).unwrap();
        }
        (&log).write_all(b"end\n").unwrap();
        let sizes = ["node.log", "node.log.1"].map(|name| folder.path().join(name).metadata().unwrap().len());
        assert!(sizes.iter().all(|size| *size <= LARGEST), "{sizes:?}");
        let (lines, more) = last_lines(&path, 5000).unwrap();
        assert_eq!((lines.len(), lines.last().map(String::as_str), more), (2, Some("end"), true));
    }
}
