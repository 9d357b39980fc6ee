//! Goes through a file line by line, with the digest of all of it, and holds no more of it than one line.
//!
//! It must not know what a line says.

use std::{
    fs::File,
    io::{self, BufRead as _, BufReader, Read},
    ops::Range,
    os::unix::fs::FileExt as _,
};

use countersign_core::digest::Digest;
use sha2::{Digest as _, Sha256};

use super::mark::FileMark;

/// Number of bytes that are read at once.
const PIECE: usize = 256 * 1024;

/// A part of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FilePiece {
    /// Position of its first byte.
    pub(super) start: u64,
    /// Number of bytes.
    pub(super) length: usize,
}

/// Reader of lines.
pub(super) struct LineScanner<R> {
    reader: BufReader<io::Take<R>>,
    limit: u64,
    line: Vec<u8>,
    position: u64,
    hash: Sha256,
}

impl<R: Read> LineScanner<R> {
    /// Begins at the first byte of a file of at most `limit` bytes.
    pub(super) fn new(file: R, limit: u64) -> Self {
        let reader = BufReader::with_capacity(PIECE, file.take(limit.saturating_add(1)));
        Self { reader, limit, line: Vec::new(), position: 0, hash: Sha256::new() }
    }

    /// Returns the next line with its line break, which the last one may lack.
    ///
    /// # Errors
    /// Errors of the system; [`io::ErrorKind::FileTooLarge`] if there are more bytes than the limit.
    pub(super) fn next_line(&mut self) -> io::Result<Option<(FilePiece, &[u8])>> {
        self.line.clear();
        let length = self.reader.read_until(b'\n', &mut self.line)?;
        if length == 0 {
            return Ok(None);
        }
        let piece = FilePiece { start: self.position, length };
        self.position += length as u64;
        if self.position > self.limit {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.hash.update(&self.line);
        Ok(Some((piece, &self.line)))
    }

    /// Returns the mark of what was read.
    pub(super) fn mark(&self) -> FileMark {
        FileMark { length: self.position, digest: Digest::from_bytes(self.hash.clone().finalize().into()) }
    }
}

/// Adds the bytes of a part of a file to a running digest.
///
/// # Errors
/// Errors of the system, also if there are not as many.
pub(super) fn hash_pieces(file: &File, part: Range<u64>, hash: &mut Sha256) -> io::Result<()> {
    let mut piece = vec![0; PIECE];
    let mut position = part.start;
    while position < part.end {
        let rest = usize::try_from(part.end - position).unwrap_or(PIECE).min(PIECE);
        file.read_exact_at(&mut piece[..rest], position)?;
        hash.update(&piece[..rest]);
        position += rest as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::{self, Read};

    use super::{FilePiece, LineScanner, PIECE};
    use crate::session_file::FileMark;

    /// A file of lines of one length, made as it is read.
    struct ScannedLines {
        length: usize,
        rest: usize,
        at: usize,
    }

    impl Read for ScannedLines {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let count = buffer.len().min(self.rest);
            for byte in &mut buffer[..count] {
                self.at += 1;
                *byte = if self.at.is_multiple_of(self.length) { b'\n' } else { b'x' };
            }
            self.rest -= count;
            Ok(count)
        }
    }

    #[test]
    fn lines_have_their_places_and_the_whole_its_mark() {
        let text = b"one\n\r\n\ntwo";
        let mut scanner = LineScanner::new(&text[..], 100);
        let mut found = Vec::new();
        while let Some((piece, line)) = scanner.next_line().unwrap() {
            assert_eq!(&text[usize::try_from(piece.start).unwrap()..][..piece.length], line);
            found.push(piece);
        }
        let want = [(0, 4), (4, 2), (6, 1), (7, 3)].map(|(start, length)| FilePiece { start, length });
        assert_eq!((found, scanner.mark()), (want.to_vec(), FileMark::from_bytes(text)));
        let mut short = LineScanner::new(&text[..], 9);
        let last = std::iter::repeat_with(|| short.next_line().map(drop)).find(Result::is_err);
        assert_eq!(last.unwrap().unwrap_err().kind(), io::ErrorKind::FileTooLarge);
    }

    #[test]
    fn no_more_than_a_line_and_a_piece_is_held_however_long_the_file_is() {
        for lines in [10, 1_000, 100_000] {
            let mut scanner = LineScanner::new(ScannedLines { length: 100, rest: 100 * lines, at: 0 }, u64::MAX);
            let mut count = 0;
            while scanner.next_line().unwrap().is_some() {
                count += 1;
            }
            assert_eq!(count, lines);
            assert!(scanner.line.capacity() <= 256 && scanner.reader.capacity() == PIECE, "{lines}");
        }
    }
}
