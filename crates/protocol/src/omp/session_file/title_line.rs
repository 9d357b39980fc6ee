use serde_json::{Map, Value};

/// The line before the header in which omp 18 and later keep the name of a session.
///
/// It has a fixed length, so that those programs can write a new name over the old one without touching the rest of the file.
/// Form: `{"type":"title","v":1,"title":…,"source"?:"auto"|"user","updatedAt":…,"pad":"   "}`. Its title counts, not the header's;
/// an empty one means that the session has no name.
#[derive(Clone, Debug, PartialEq)]
pub struct TitleLine(Map<String, Value>);

/// The length of a title line with its line break, in bytes.
const LENGTH: usize = 256;

impl TitleLine {
    /// Reads a line. `None` if it is another one.
    pub fn parse(line: &str) -> Option<Self> {
        let mut members: Map<String, Value> = serde_json::from_str(line).ok()?;
        (members.get("type")? == "title").then_some(())?;
        members.shift_remove("pad");
        Some(Self(members))
    }

    /// Returns the name of the session, empty for none. `None` if the line has no text there.
    pub fn title(&self) -> Option<&str> {
        self.0.get("title")?.as_str()
    }

    /// Puts another name into the line, cut at a character where it is too long for [`LENGTH`]. `at` is the time of it, in ISO 8601.
    pub(super) fn set_title(&mut self, title: &str, at: &str) {
        self.0.insert("title".to_owned(), title.into());
        self.0.insert("source".to_owned(), "user".into());
        self.0.insert("updatedAt".to_owned(), at.into());
        if self.with_padding(0).len() <= LENGTH {
            return;
        }
        let ends: Vec<usize> = title.char_indices().map(|(at, _)| at).collect();
        let mut cut_at = |end: usize| {
            self.0.insert("title".to_owned(), title[..end].into());
            self.with_padding(0).len() <= LENGTH
        };
        let fitting = ends.partition_point(|end| cut_at(*end));
        // If the other members leave no room for any title, the line is longer.
        cut_at(fitting.checked_sub(1).map_or(title.len(), |last| ends[last]));
    }

    /// Writes the line with its line break, padded to [`LENGTH`] bytes. A longer one is written as it is.
    pub(super) fn encode(&self) -> Vec<u8> {
        let line = self.with_padding(0);
        match LENGTH.checked_sub(line.len()) {
            Some(missing) => self.with_padding(missing),
            None => line,
        }
    }

    /// Returns the line with its padding last, as in the lines of the other programs.
    fn with_padding(&self, blanks: usize) -> Vec<u8> {
        let mut members = self.0.clone();
        members.insert("pad".to_owned(), " ".repeat(blanks).into());
        crate::encode_line(&members).to_vec()
    }
}

#[cfg(test)]
mod tests {
    use super::{LENGTH, TitleLine};

    const AT: &str = "2026-05-01T10:00:00.000Z";

    fn line(title: &str) -> TitleLine {
        let mut line = TitleLine::parse(r#"{"type":"title","v":1,"title":"","updatedAt":"","pad":"  "}"#).unwrap();
        line.set_title(title, AT);
        line
    }

    #[test]
    fn a_title_line_has_its_fixed_length_and_a_long_title_is_cut_at_a_character() {
        let long = ["a".repeat(500), "é".repeat(200), "🙂".repeat(90), "\"".repeat(300), "\n".repeat(150)];
        for title in ["", "Fix the parser", "\u{1}"].into_iter().map(str::to_owned).chain(long) {
            let written = String::from_utf8(line(&title).encode()).unwrap();
            assert_eq!((written.len(), written.find('\n')), (LENGTH, Some(LENGTH - 1)), "{title}");
            let again = TitleLine::parse(&written).unwrap();
            let kept = again.title().unwrap();
            assert!(title.starts_with(kept) && (kept == title || kept.len() > 60), "{title}: {kept}");
            assert!(written.ends_with("\"}\n") && written.contains(AT), "{written}");
            assert_eq!(again.encode(), written.as_bytes());
        }
    }

    #[test]
    fn members_that_leave_no_room_make_a_longer_line() {
        let mut line = line("a name");
        line.0.insert("more".to_owned(), "m".repeat(400).into());
        let written = String::from_utf8(line.encode()).unwrap();
        let again = TitleLine::parse(&written).unwrap();
        assert_eq!((again.title(), again.0["more"].as_str().map(str::len)), (Some("a name"), Some(400)));
    }

    #[test]
    fn another_line_is_no_title_line() {
        for line in ["", "[]", "{}", r#"{"type":"session","title":"t"}"#, r#"{"type":"title""#, r#"{"title":"t"}"#] {
            assert_eq!(TitleLine::parse(line), None, "{line}");
        }
        assert_eq!(TitleLine::parse(r#"{"type":"title","title":7}"#).unwrap().title(), None);
    }
}
