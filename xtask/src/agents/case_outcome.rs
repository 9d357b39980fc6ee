//! Outcome of a case, in the form in which it is compared with a table.

use std::{fmt, path::Path};

use crate::agents::scratch_gateway::PendingGate;

/// Most characters of a text that the model got.
const LONGEST_TEXT: usize = 240;

/// Outcome of a case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CaseOutcome {
    /// Words that really ran.
    pub(crate) ran: Vec<String>,
    /// What the model got for each call.
    pub(crate) model: Vec<String>,
    pub(crate) notes: Vec<String>,
    /// Questions about calls that ran and were not allowed.
    pub(crate) incidents: Vec<PendingGate>,
    /// Other gates that nobody has answered.
    pub(crate) open: Vec<PendingGate>,
}

impl CaseOutcome {
    /// Returns everything that is listed about the gates that are left.
    pub(crate) fn rows(&self) -> String {
        self.incidents.iter().chain(&self.open).map(|gate| gate.row.as_str()).collect::<Vec<_>>().join("\n")
    }
}

impl fmt::Display for CaseOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ran = if self.ran.is_empty() { "nothing".to_owned() } else { self.ran.join(", ") };
        write!(f, "ran: {ran} | model: {}", self.model.join(" / "))?;
        write!(f, " | incidents: {} | open: {}", self.incidents.len(), self.open.len())?;
        self.notes.iter().try_for_each(|note| write!(f, " | {note}"))
    }
}

/// Returns what a text for the model says: `output` for that of the call, else the text without what differs between runs.
pub(crate) fn model_text(text: &str, folder: &Path, binary: &Path) -> String {
    let text = text.replace(&*folder.to_string_lossy(), "DIR").replace(&*binary.to_string_lossy(), "BINARY");
    let has_output = text.contains("marked ");
    if has_output && !["countersign", "hook error"].iter().any(|ours| text.contains(ours)) {
        return "output".to_owned();
    }
    let words: Vec<String> = text.split_whitespace().map(without_ids).collect();
    let shown: String = words.join(" ").chars().take(LONGEST_TEXT).collect();
    if has_output { format!("output with {shown}") } else { shown }
}

/// Replaces the number of a gate, a session or a chunk.
fn without_ids(word: &str) -> String {
    let mut rest = word;
    let mut shown = String::new();
    while let Some(start) = rest.find(|c: char| c.is_ascii_hexdigit()) {
        let end = rest[start..].find(|c: char| !c.is_ascii_hexdigit() && c != '-').map_or(rest.len(), |at| start + at);
        let run = &rest[start..end];
        let is_id = run.len() >= 6 && run.contains(|c: char| c.is_ascii_digit());
        shown.push_str(&rest[..start]);
        shown.push_str(if is_id { "ID" } else { run });
        rest = &rest[end..];
    }
    shown + rest
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::model_text;

    #[test]
    fn a_text_for_the_model_has_nothing_of_one_run() {
        for (text, want) in [
            ("marked allowed-1\n", "output"),
            ("marked a-1\nProcess 6738\nTool input parameters were modified by a hook", "output"),
            ("marked ask-1\nPostToolUse hook error: no", "output with marked ask-1 PostToolUse hook error: no"),
            ("Denied by you (gate gate_01a229b9b7397e21bc39de568da8674a)", "Denied by you (gate gate_ID)"),
            ("[/b/cs hook claude || exit 2]: no", "[BINARY hook claude || exit 2]: no"),
            ("no\n /runs/a/work/x  and 0f-1 in permissions.yaml:3", "no DIR/work/x and 0f-1 in permissions.yaml:3"),
        ] {
            assert_eq!(model_text(text, Path::new("/runs/a"), Path::new("/b/cs")), want);
        }
    }
}
