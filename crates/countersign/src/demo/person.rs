//! Source of the user's answers, and the meaning of a line from the terminal.
//!
//! It must not know gates: it turns lines into decisions.

use std::io::{BufRead as _, BufReader};

use tokio::sync::mpsc;

/// Source of the answers.
pub(super) enum DemoPerson {
    /// `--yes`.
    Yes,
    /// `--no`.
    No,
    /// There is no terminal to ask on.
    Nobody,
    /// A user at a terminal: lines as they come, then the end.
    AtTheTerminal(mpsc::UnboundedReceiver<String>),
}

/// Meaning of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ApprovalReply {
    /// Allow it once.
    Yes,
    /// Deny it, perhaps with a reason.
    No(Option<String>),
    /// Neither.
    Unclear,
}

impl DemoPerson {
    /// Reads the terminal on a thread of its own, which ends with the process.
    pub(super) fn in_the_terminal() -> Self {
        let (lines, received) = mpsc::unbounded_channel();
        std::thread::spawn(move || {
            let mut input = BufReader::new(std::io::stdin());
            let mut line = Vec::new();
            while matches!(input.read_until(b'\n', &mut line), Ok(length) if length > 0) {
                if lines.send(String::from_utf8_lossy(&line).into_owned()).is_err() {
                    break;
                }
                line.clear();
            }
        });
        Self::AtTheTerminal(received)
    }
}

/// Reads an answer: `y` or `yes`; `n` or `no`, followed by a reason. Anything else is no answer.
pub(super) fn parse_reply(line: &str) -> ApprovalReply {
    let line = line.trim();
    let (first, rest) = line.split_once([' ', ',', ':']).unwrap_or((line, ""));
    match (first.to_ascii_lowercase().as_str(), parse_reason(rest)) {
        ("y" | "yes", None) => ApprovalReply::Yes,
        ("n" | "no", reason) => ApprovalReply::No(reason),
        _ => ApprovalReply::Unclear,
    }
}

/// Returns a reason, if the line holds one.
pub(super) fn parse_reason(line: &str) -> Option<String> {
    let line = line.trim();
    (!line.is_empty()).then(|| line.to_owned())
}

#[cfg(test)]
mod tests {
    use super::{ApprovalReply, parse_reply};

    #[test]
    fn only_a_plain_yes_allows() {
        for (line, want) in [
            ("y\n", ApprovalReply::Yes),
            (" YES ", ApprovalReply::Yes),
            ("yes please", ApprovalReply::Unclear),
            ("n", ApprovalReply::No(None)),
            ("no, not on a Friday\n", ApprovalReply::No(Some("not on a Friday".to_owned()))),
            ("n: too early", ApprovalReply::No(Some("too early".to_owned()))),
            ("", ApprovalReply::Unclear),
            ("\u{1b}[Ay", ApprovalReply::Unclear),
            ("yn", ApprovalReply::Unclear),
            ("maybe", ApprovalReply::Unclear),
        ] {
            assert_eq!(parse_reply(line), want, "{line:?}");
        }
    }
}
