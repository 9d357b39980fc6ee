//! Parses a transcript into lines. This module must not know the adapters.

use std::time::Duration;

use countersign_agent_dir::AgentProduct;
use serde_json::Value;

/// Line of a transcript.
#[derive(Debug, PartialEq)]
pub(super) struct ScriptLine {
    /// Number, counted from 1.
    pub(super) number: usize,
    /// Text as it stands in the file; a file's content is in it.
    pub(super) text: String,
    pub(super) kind: LineKind,
}

/// Meaning of a line.
#[derive(Debug, PartialEq)]
pub(super) enum LineKind {
    /// Comment, which is not played.
    Remark,
    /// Text after `model`.
    Model(String),
    /// Path below the root, and the content for it.
    File(String, String),
    KeepSessions,
    /// Dialect of every adapter.
    Speaks(AgentProduct),
    Flags(String, Vec<String>),
    Send(String, String),
    Expect(String, ExpectedFrame),
    /// Adapter that did not open.
    Refused(String, String),
    Clock(Duration),
    Appears(String),
    Restart,
    End,
}

/// Expected output for a host.
#[derive(Debug, PartialEq)]
pub(super) enum ExpectedFrame {
    Frame(String),
    AnyOrder(String),
    /// A frame that comes here or between the next ones.
    Anywhere(String),
    Anything,
}

/// Parses a transcript.
///
/// # Errors
/// The number of the first line that cannot be parsed, and the reason.
pub(super) fn parse_script(text: &str) -> Result<Vec<ScriptLine>, (usize, String)> {
    let mut lines = Vec::new();
    let mut rest = text.lines().enumerate().peekable();
    while let Some((index, text)) = rest.next() {
        let number = index + 1;
        let mut text = text.to_owned();
        let mut kind = parse_line(&text).map_err(|problem| (number, problem))?;
        if let LineKind::File(_, content) = &mut kind {
            while let Some((_, more)) = rest.next_if(|(_, line)| line.starts_with('|')) {
                content.push_str(more.strip_prefix("| ").unwrap_or_else(|| &more[1..]));
                content.push('\n');
                text.push('\n');
                text.push_str(more);
            }
        }
        lines.push(ScriptLine { number, text, kind });
    }
    Ok(lines)
}

fn parse_line(text: &str) -> Result<LineKind, String> {
    let text = text.trim();
    if text.is_empty() || text.starts_with('#') {
        return Ok(LineKind::Remark);
    }
    if let Some(arrow) = text.find(['<', '>', '!']).filter(|at| is_name(&text[..*at])) {
        let name = text[..arrow].to_owned();
        let rest = text[arrow + 1..].trim();
        return match &text[arrow..=arrow] {
            ">" => Ok(LineKind::Send(name, rest.to_owned())),
            "!" => Ok(LineKind::Refused(name, rest.to_owned())),
            _ if rest == "..." => Ok(LineKind::Expect(name, ExpectedFrame::Anything)),
            _ => {
                let (expected, frame): (fn(String) -> ExpectedFrame, &str) = match rest.as_bytes().first() {
                    Some(b'~') => (ExpectedFrame::AnyOrder, &rest[1..]),
                    Some(b'?') => (ExpectedFrame::Anywhere, &rest[1..]),
                    _ => (ExpectedFrame::Frame, rest),
                };
                Ok(LineKind::Expect(name, expected(parse_frame(frame)?)))
            }
        };
    }
    let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
    match (word, rest) {
        ("model", rest) => Ok(LineKind::Model(rest.to_owned())),
        ("file", path) => Ok(LineKind::File(path.to_owned(), String::new())),
        ("keep", "sessions") => Ok(LineKind::KeepSessions),
        ("speaks", name) => {
            AgentProduct::from_name(name).map(LineKind::Speaks).ok_or_else(|| format!("unknown dialect {name}"))
        }
        ("flags", rest) => Ok(parse_flags("", rest)),
        ("clock", rest) => Ok(LineKind::Clock(parse_duration(rest)?)),
        ("restart", "") => Ok(LineKind::Restart),
        ("end", "") => Ok(LineKind::End),
        (path, "appears") => Ok(LineKind::Appears(path.to_owned())),
        (name, rest) => match rest.strip_prefix("flags") {
            Some(rest) if is_name(name) => Ok(parse_flags(name, rest)),
            _ => Err(format!("unknown line of a transcript: {text}")),
        },
    }
}

fn is_name(text: &str) -> bool {
    text.chars().all(|letter| letter.is_ascii_alphanumeric())
}

fn parse_flags(name: &str, flags: &str) -> LineKind {
    LineKind::Flags(name.to_owned(), flags.split_whitespace().map(str::to_owned).collect())
}

/// Returns a frame in the form that is compared: its keys in order, nothing between them.
fn parse_frame(text: &str) -> Result<String, String> {
    let value: Value =
        serde_json::from_str(text.trim()).map_err(|error| format!("invalid JSON in the frame: {error}"))?;
    Ok(value.to_string())
}

fn parse_duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("invalid time {text:?}: expected e.g. +50ms, +2s or +15min");
    let text = text.strip_prefix('+').ok_or_else(wrong)?;
    let unit = text.find(|letter: char| !letter.is_ascii_digit()).ok_or_else(wrong)?;
    let count: u64 = text[..unit].parse().map_err(|_| wrong())?;
    match &text[unit..] {
        "ms" => Ok(Duration::from_millis(count)),
        "s" => Ok(Duration::from_secs(count)),
        "min" => Ok(Duration::from_secs(60 * count)),
        _ => Err(wrong()),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{ExpectedFrame, LineKind, parse_script};

    #[test]
    fn each_line_says_one_thing() {
        let text = "# a\n\nfile agent/x\n| one\n|  two\nhost> {\"a\": 1}\nhost< {\"a\": 1}\n< ...\n<~ []\n! no\nclock +2s\nb flags -c --x\nend";
        let (host, none) = (|| "host".to_owned(), String::new);
        let kinds: Vec<LineKind> = parse_script(text).unwrap().into_iter().map(|line| line.kind).collect();
        let want = [
            LineKind::Remark,
            LineKind::Remark,
            LineKind::File("agent/x".to_owned(), "one\n two\n".to_owned()),
            LineKind::Send(host(), "{\"a\": 1}".to_owned()),
            LineKind::Expect(host(), ExpectedFrame::Frame("{\"a\":1}".to_owned())),
            LineKind::Expect(none(), ExpectedFrame::Anything),
            LineKind::Expect(none(), ExpectedFrame::AnyOrder("[]".to_owned())),
            LineKind::Refused(none(), "no".to_owned()),
            LineKind::Clock(Duration::from_secs(2)),
            LineKind::Flags("b".to_owned(), vec!["-c".to_owned(), "--x".to_owned()]),
            LineKind::End,
        ];
        assert_eq!(kinds, want);
    }

    #[test]
    fn what_cannot_be_read_is_named_with_its_line() {
        for (text, number) in [("# a\nsay it", 2), ("< {", 1), ("clock 2s", 1), ("clock +2h", 1)] {
            assert_eq!(parse_script(text).unwrap_err().0, number, "{text}");
        }
    }
}
