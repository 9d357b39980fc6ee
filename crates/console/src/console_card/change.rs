//! Difference that an edit makes, as far as its arguments alone show.

use maud::{Markup, html};
use serde_json::{Map, Value};
use similar::{ChangeTag, TextDiff};

use super::super::labels::escape_lines;

/// Difference, and the arguments that it shows completely.
pub(in super::super) struct EditDiff {
    pub(in super::super) replaces: Vec<&'static str>,
    pub(in super::super) shown: Markup,
}

/// Returns the difference of a call of a file tool; `None` for other tools.
pub(in super::super) fn edit_diff(tool: &str, arguments: &Map<String, Value>) -> Option<EditDiff> {
    if tool != "edit" {
        return None;
    }
    let text = |object: &'_ Map<String, Value>, name: &str| Some(object.get(name)?.as_str()?.to_owned());
    if let (Some(old), Some(new)) = (text(arguments, "old_text"), text(arguments, "new_text")) {
        return Some(EditDiff { replaces: vec!["old_text", "new_text"], shown: line_diff(&old, &new) });
    }
    if let Some(patch) = text(arguments, "diff") {
        return Some(EditDiff { replaces: vec!["diff"], shown: patch_diff(&patch) });
    }
    None
}

/// Renders every line of both texts: removed, added and unchanged.
fn line_diff(old: &str, new: &str) -> Markup {
    let compared = TextDiff::configure().timeout(std::time::Duration::from_millis(200)).diff_lines(old, new);
    let lines: Vec<(ChangeTag, String)> =
        compared.iter_all_changes().map(|change| (change.tag(), change.value().to_owned())).collect();
    let ends = |text: &str| text.is_empty() || text.ends_with('\n');
    html! {
        div.piece.long {
            span.label { "change" }
            pre.diff {
                @for (tag, line) in &lines {
                    @let (class, sign) = match tag { ChangeTag::Delete => ("gone", "- "), ChangeTag::Insert => ("come", "+ "), ChangeTag::Equal => ("kept", "  ") };
                    span.(class) { (sign) (escape_lines(line.strip_suffix('\n').unwrap_or(line))) "\n" }
                }
            }
            @if ends(old) != ends(new) { p.note { @if ends(new) { "Adds a newline at the end." } @else { "Removes the newline at the end." } } }
        }
    }
}

/// Renders a patch as it was given.
fn patch_diff(patch: &str) -> Markup {
    html! {
        div.piece.long {
            span.label { "diff" }
            pre.diff {
                @for line in patch.split('\n') {
                    @let class = match line.as_bytes().first() { Some(b'-') => "gone", Some(b'+') => "come", _ => "kept" };
                    span.(class) { (escape_lines(line)) "\n" }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::edit_diff;

    #[test]
    fn an_edit_is_shown_as_what_goes_and_what_comes() {
        let arguments = json!({ "path": "a", "old_text": "one\ntwo\n", "new_text": "one\n\u{202e}2" });
        let change = edit_diff("edit", arguments.as_object().unwrap()).unwrap();
        let shown = change.shown.into_string();
        for want in [
            "<span class=\"kept\">  one\n</span>",
            "<span class=\"gone\">- two\n</span>",
            "<span class=\"come\">+ <mark",
            "Removes the newline at the end.",
        ] {
            assert!(shown.contains(want), "{want}: {shown}");
        }
        assert_eq!(change.replaces, ["old_text", "new_text"]);
        assert!(edit_diff("write", arguments.as_object().unwrap()).is_none());
    }
}
