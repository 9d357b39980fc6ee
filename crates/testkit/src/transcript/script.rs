//! A transcript as its lines. It must not know what doors do.

use std::time::Duration;

use countersign_agent_dir::AgentProduct;
use serde_json::Value;

/// A line of a transcript.
#[derive(Debug, PartialEq)]
pub(super) struct Line {
    /// Counted from 1.
    pub(super) number: usize,
    /// As it stands in the file; a file's content is in it.
    pub(super) text: String,
    pub(super) kind: Kind,
}

/// What a line says.
#[derive(Debug, PartialEq)]
pub(super) enum Kind {
    /// Nothing that is played.
    Remark,
    /// What stands behind `model`.
    Model(String),
    /// A path below the root, and what is written there.
    File(String, String),
    KeepSessions,
    /// Every door speaks this dialect.
    Speaks(AgentProduct),
    Flags(String, Vec<String>),
    Send(String, String),
    Expect(String, Expected),
    /// A door that did not open.
    Refused(String, String),
    Clock(Duration),
    Appears(String),
    Restart,
    End,
}

/// What a host reads.
#[derive(Debug, PartialEq)]
pub(super) enum Expected {
    Frame(String),
    AnyOrder(String),
    Anything,
}

/// Reads a transcript.
///
/// # Errors
/// The number of the first line that cannot be read, and why.
pub(super) fn read(text: &str) -> Result<Vec<Line>, (usize, String)> {
    let mut lines = Vec::new();
    let mut rest = text.lines().enumerate().peekable();
    while let Some((index, text)) = rest.next() {
        let number = index + 1;
        let mut text = text.to_owned();
        let mut kind = line(&text).map_err(|problem| (number, problem))?;
        if let Kind::File(_, content) = &mut kind {
            while let Some((_, more)) = rest.next_if(|(_, line)| line.starts_with('|')) {
                content.push_str(more.strip_prefix("| ").unwrap_or_else(|| &more[1..]));
                content.push('\n');
                text.push('\n');
                text.push_str(more);
            }
        }
        lines.push(Line { number, text, kind });
    }
    Ok(lines)
}

fn line(text: &str) -> Result<Kind, String> {
    let text = text.trim();
    if text.is_empty() || text.starts_with('#') {
        return Ok(Kind::Remark);
    }
    if let Some(arrow) = text.find(['<', '>', '!']).filter(|at| is_name(&text[..*at])) {
        let name = text[..arrow].to_owned();
        let rest = text[arrow + 1..].trim();
        return match &text[arrow..=arrow] {
            ">" => Ok(Kind::Send(name, rest.to_owned())),
            "!" => Ok(Kind::Refused(name, rest.to_owned())),
            _ if rest == "..." => Ok(Kind::Expect(name, Expected::Anything)),
            _ => match rest.strip_prefix('~') {
                Some(rest) => Ok(Kind::Expect(name, Expected::AnyOrder(frame(rest)?))),
                None => Ok(Kind::Expect(name, Expected::Frame(frame(rest)?))),
            },
        };
    }
    let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
    match (word, rest) {
        ("model", rest) => Ok(Kind::Model(rest.to_owned())),
        ("file", path) => Ok(Kind::File(path.to_owned(), String::new())),
        ("keep", "sessions") => Ok(Kind::KeepSessions),
        ("speaks", name) => {
            AgentProduct::from_name(name).map(Kind::Speaks).ok_or_else(|| format!("nobody speaks {name}"))
        }
        ("flags", rest) => Ok(flags("", rest)),
        ("clock", rest) => Ok(Kind::Clock(duration(rest)?)),
        ("restart", "") => Ok(Kind::Restart),
        ("end", "") => Ok(Kind::End),
        (path, "appears") => Ok(Kind::Appears(path.to_owned())),
        (name, rest) => match rest.strip_prefix("flags") {
            Some(rest) if is_name(name) => Ok(flags(name, rest)),
            _ => Err(format!("this is no line of a transcript: {text}")),
        },
    }
}

fn is_name(text: &str) -> bool {
    text.chars().all(|letter| letter.is_ascii_alphanumeric())
}

fn flags(name: &str, flags: &str) -> Kind {
    Kind::Flags(name.to_owned(), flags.split_whitespace().map(str::to_owned).collect())
}

/// A frame in the form that it is compared in: its keys in their order, nothing between them.
fn frame(text: &str) -> Result<String, String> {
    let value: Value = serde_json::from_str(text.trim()).map_err(|error| format!("this frame is no JSON: {error}"))?;
    Ok(value.to_string())
}

fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is no time like +50ms, +2s or +15min");
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

    use super::{Expected, Kind, read};

    #[test]
    fn each_line_says_one_thing() {
        let text = "# a\n\nfile agent/x\n| one\n|  two\nhost> {\"a\": 1}\nhost< {\"a\": 1}\n< ...\n<~ []\n! no\nclock +2s\nb flags -c --x\nend";
        let (host, none) = (|| "host".to_owned(), String::new);
        let kinds: Vec<Kind> = read(text).unwrap().into_iter().map(|line| line.kind).collect();
        let want = [
            Kind::Remark,
            Kind::Remark,
            Kind::File("agent/x".to_owned(), "one\n two\n".to_owned()),
            Kind::Send(host(), "{\"a\": 1}".to_owned()),
            Kind::Expect(host(), Expected::Frame("{\"a\":1}".to_owned())),
            Kind::Expect(none(), Expected::Anything),
            Kind::Expect(none(), Expected::AnyOrder("[]".to_owned())),
            Kind::Refused(none(), "no".to_owned()),
            Kind::Clock(Duration::from_secs(2)),
            Kind::Flags("b".to_owned(), vec!["-c".to_owned(), "--x".to_owned()]),
            Kind::End,
        ];
        assert_eq!(kinds, want);
    }

    #[test]
    fn what_cannot_be_read_is_named_with_its_line() {
        for (text, number) in [("# a\nsay it", 2), ("< {", 1), ("clock 2s", 1), ("clock +2h", 1)] {
            assert_eq!(read(text).unwrap_err().0, number, "{text}");
        }
    }
}
