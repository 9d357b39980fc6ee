//! Type of a file, by its first bytes.
//!
//! It must not trust a file's name.

/// Type of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ContentKind {
    /// Lines, perhaps with bytes that are no UTF-8.
    Text,
    /// An image that models see; its media type.
    Image(&'static str),
    /// Anything else; what it is, for a sentence.
    Binary(&'static str),
}

const KNOWN: &[(&[u8], ContentKind)] = &[
    (b"\x89PNG\r\n\x1a\n", ContentKind::Image("image/png")),
    (b"\xFF\xD8\xFF", ContentKind::Image("image/jpeg")),
    (b"GIF87a", ContentKind::Image("image/gif")),
    (b"GIF89a", ContentKind::Image("image/gif")),
    (b"%PDF-", ContentKind::Binary("a PDF document")),
    (b"PK\x03\x04", ContentKind::Binary("a zip archive or an office document")),
    (b"\x1F\x8B", ContentKind::Binary("gzip data")),
    (b"BZh", ContentKind::Binary("bzip2 data")),
    (b"\xFD7zXZ\0", ContentKind::Binary("xz data")),
    (b"\x28\xB5\x2F\xFD", ContentKind::Binary("zstd data")),
    (b"7z\xBC\xAF\x27\x1C", ContentKind::Binary("a 7z archive")),
    (b"\x7FELF", ContentKind::Binary("an ELF program or library")),
    (b"SQLite format 3\0", ContentKind::Binary("an SQLite database")),
    (b"\0asm", ContentKind::Binary("a WebAssembly module")),
    (b"\xCA\xFE\xBA\xBE", ContentKind::Binary("a Java class or a Mach-O file")),
    (b"\xFF\xFE", ContentKind::Binary("UTF-16 text, which iconv can convert")),
    (b"\xFE\xFF", ContentKind::Binary("UTF-16 text, which iconv can convert")),
];

/// Returns the type of content that begins with `sample`.
pub(crate) fn detect_kind(sample: &[u8]) -> ContentKind {
    if sample.starts_with(b"RIFF") && sample.get(8..12) == Some(b"WEBP") {
        return ContentKind::Image("image/webp");
    }
    let known = KNOWN.iter().find(|(magic, _)| sample.starts_with(magic)).map(|(_, kind)| *kind);
    match known {
        // The magic of these is text as well.
        Some(ContentKind::Binary(_)) if sample.starts_with(b"BZh") && !sample.contains(&0) => ContentKind::Text,
        Some(kind) => kind,
        None if sample.contains(&0) => ContentKind::Binary("binary data"),
        None => ContentKind::Text,
    }
}

#[cfg(test)]
mod tests {
    use super::{ContentKind, detect_kind};

    #[test]
    fn a_file_is_what_its_first_bytes_say() {
        for (sample, want) in [
            (b"".as_slice(), ContentKind::Text),
            (b"fn main() {}", ContentKind::Text),
            (b"caf\xE9", ContentKind::Text),
            (b"BZhang wrote this", ContentKind::Text),
            (b"\x89PNG\r\n\x1a\n\0\0", ContentKind::Image("image/png")),
            (b"\xFF\xD8\xFF\xE0", ContentKind::Image("image/jpeg")),
            (b"GIF89a\x01", ContentKind::Image("image/gif")),
            (b"RIFF\0\0\0\0WEBPVP8 ", ContentKind::Image("image/webp")),
            (b"RIFF\0\0\0\0WAVEfmt ", ContentKind::Binary("binary data")),
            (b"%PDF-1.7", ContentKind::Binary("a PDF document")),
            (b"\x7FELF\x02", ContentKind::Binary("an ELF program or library")),
            (b"a\0b", ContentKind::Binary("binary data")),
        ] {
            assert_eq!(detect_kind(sample), want, "{sample:?}");
        }
    }
}
