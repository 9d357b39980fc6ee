//! Opens regular files and nothing else: no pipe that waits for its other end, no device that never ends.
//!
//! It must not decide which paths are allowed, and it follows links: it is for the files that the gateway itself uses.
//! Those that tools touch are [`crate::disk`]'s.

use std::{
    fs::{self, File, Metadata, OpenOptions},
    io::{self, Read},
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
};

use nix::fcntl::OFlag;

use crate::text;

/// Opens the regular file at `path` with `options`.
///
/// # Errors
/// Errors of the system; [`io::ErrorKind::InvalidInput`] if something else is there.
pub fn open_file(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    // To open a device may do something already: it is looked at first, and again in case it was put there since.
    match fs::metadata(path) {
        Ok(found) => check_regular(&found)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let file = options.custom_flags(OFlag::O_NONBLOCK.bits()).open(path)?;
    check_regular(&file.metadata()?)?;
    Ok(file)
}

/// Reads the regular file at `path` if it has at most `limit` bytes.
///
/// # Errors
/// As [`open_file`]; [`io::ErrorKind::FileTooLarge`] if it has more, or still grows.
pub fn read_bytes(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    let file = open_file(path, OpenOptions::new().read(true))?;
    let length = file.metadata()?.len();
    read_bounded(file, length, limit)
}

/// As [`read_bytes`], for text.
///
/// # Errors
/// As [`read_bytes`]; [`io::ErrorKind::InvalidData`] if it is not UTF-8.
pub fn read_text(path: &Path, limit: u64) -> io::Result<String> {
    String::from_utf8(read_bytes(path, limit)?)
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it is not UTF-8 text"))
}

fn check_regular(found: &Metadata) -> io::Result<()> {
    if found.is_file() { Ok(()) } else { Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file")) }
}

/// Reads a file whose metadata give `length` bytes. One that is made on the fly gives 0 and may never end.
fn read_bounded(file: impl Read, length: u64, limit: u64) -> io::Result<Vec<u8>> {
    let too_large =
        || io::Error::new(io::ErrorKind::FileTooLarge, format!("it is larger than {}", text::format_size(limit)));
    if length > limit {
        return Err(too_large());
    }
    let mut bytes = Vec::new();
    bytes.try_reserve(usize::try_from(length).unwrap_or(usize::MAX))?;
    file.take(limit.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit { Err(too_large()) } else { Ok(bytes) }
}

#[cfg(test)]
mod tests {
    use std::{
        fs::{self, File, OpenOptions},
        io,
        os::unix::{fs::symlink, net::UnixListener},
    };

    use super::{open_file, read_bounded, read_bytes, read_text};

    #[test]
    fn only_a_regular_file_is_opened_and_nothing_is_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        nix::unistd::mkfifo(&at("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        symlink("pipe", at("link to pipe")).unwrap();
        symlink("/dev/zero", at("link to device")).unwrap();
        fs::write(at("file"), "text").unwrap();
        symlink("file", at("link to file")).unwrap();
        let _socket = UnixListener::bind(at("socket")).unwrap();
        for (name, want) in [
            ("file", Ok("text")),
            ("link to file", Ok("text")),
            ("absent", Err(io::ErrorKind::NotFound)),
            (".", Err(io::ErrorKind::InvalidInput)),
            ("pipe", Err(io::ErrorKind::InvalidInput)),
            ("link to pipe", Err(io::ErrorKind::InvalidInput)),
            ("link to device", Err(io::ErrorKind::InvalidInput)),
            ("socket", Err(io::ErrorKind::InvalidInput)),
        ] {
            let got = read_text(&at(name), 4).map_err(|error| error.kind());
            assert_eq!(got.as_deref().map_err(|kind| *kind), want, "{name}");
            let appended = open_file(&at(name), OpenOptions::new().append(true));
            assert_eq!(appended.is_ok(), want.is_ok(), "{name}");
        }
        open_file(&at("made"), OpenOptions::new().append(true).create(true)).unwrap();
        assert!(at("made").exists());
    }

    #[test]
    fn no_more_than_the_limit_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sparse");
        File::create(&path).unwrap().set_len(1 << 40).unwrap();
        let error = read_bytes(&path, 1 << 20).unwrap_err();
        assert_eq!(
            (error.kind(), error.to_string().as_str()),
            (io::ErrorKind::FileTooLarge, "it is larger than 1.0 MiB")
        );
        // It claims to be empty, as the files in /proc do.
        assert_eq!(read_bounded(io::repeat(0), 0, 9).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
        assert_eq!(read_bounded(&[7; 9][..], 0, 9).unwrap(), [7; 9]);
    }
}
