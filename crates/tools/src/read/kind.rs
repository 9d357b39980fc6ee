//! What a file is, by its first bytes.
//!
//! It must not trust a file's name.

/// What a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Lines, perhaps with bytes that are no UTF-8.
    Text,
    /// An image that models see; its media type.
    Image(&'static str),
    /// Anything else; what it is, for a sentence.
    Binary(&'static str),
}

const KNOWN: &[(&[u8], Kind)] = &[
    (b"\x89PNG\r\n\x1a\n", Kind::Image("image/png")),
    (b"\xFF\xD8\xFF", Kind::Image("image/jpeg")),
    (b"GIF87a", Kind::Image("image/gif")),
    (b"GIF89a", Kind::Image("image/gif")),
    (b"%PDF-", Kind::Binary("a PDF document")),
    (b"PK\x03\x04", Kind::Binary("a zip archive or an office document")),
    (b"\x1F\x8B", Kind::Binary("gzip data")),
    (b"BZh", Kind::Binary("bzip2 data")),
    (b"\xFD7zXZ\0", Kind::Binary("xz data")),
    (b"\x28\xB5\x2F\xFD", Kind::Binary("zstd data")),
    (b"7z\xBC\xAF\x27\x1C", Kind::Binary("a 7z archive")),
    (b"\x7FELF", Kind::Binary("an ELF program or library")),
    (b"SQLite format 3\0", Kind::Binary("an SQLite database")),
    (b"\0asm", Kind::Binary("a WebAssembly module")),
    (b"\xCA\xFE\xBA\xBE", Kind::Binary("a Java class or a Mach-O file")),
    (b"\xFF\xFE", Kind::Binary("UTF-16 text, which iconv can convert")),
    (b"\xFE\xFF", Kind::Binary("UTF-16 text, which iconv can convert")),
];

/// Tells what begins with `sample`.
pub(crate) fn of(sample: &[u8]) -> Kind {
    if sample.starts_with(b"RIFF") && sample.get(8..12) == Some(b"WEBP") {
        return Kind::Image("image/webp");
    }
    let known = KNOWN.iter().find(|(magic, _)| sample.starts_with(magic)).map(|(_, kind)| *kind);
    match known {
        // The magic of these is text as well.
        Some(Kind::Binary(_)) if sample.starts_with(b"BZh") && !sample.contains(&0) => Kind::Text,
        Some(kind) => kind,
        None if sample.contains(&0) => Kind::Binary("binary data"),
        None => Kind::Text,
    }
}

#[cfg(test)]
mod tests {
    use super::{Kind, of};

    #[test]
    fn a_file_is_what_its_first_bytes_say() {
        for (sample, want) in [
            (b"".as_slice(), Kind::Text),
            (b"fn main() {}", Kind::Text),
            (b"caf\xE9", Kind::Text),
            (b"BZhang wrote this", Kind::Text),
            (b"\x89PNG\r\n\x1a\n\0\0", Kind::Image("image/png")),
            (b"\xFF\xD8\xFF\xE0", Kind::Image("image/jpeg")),
            (b"GIF89a\x01", Kind::Image("image/gif")),
            (b"RIFF\0\0\0\0WEBPVP8 ", Kind::Image("image/webp")),
            (b"RIFF\0\0\0\0WAVEfmt ", Kind::Binary("binary data")),
            (b"%PDF-1.7", Kind::Binary("a PDF document")),
            (b"\x7FELF\x02", Kind::Binary("an ELF program or library")),
            (b"a\0b", Kind::Binary("binary data")),
        ] {
            assert_eq!(of(sample), want, "{sample:?}");
        }
    }
}
