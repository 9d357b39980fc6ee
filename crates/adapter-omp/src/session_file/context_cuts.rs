//! Tells which entries of a session file cut the context: what comes before them is summed up, or left out.
//!
//! It must not read messages, nor decide what else a context is made of.

use countersign_protocol::omp::session_file::{CompactionEntry, SessionEntryBody, SessionFileEntry};
use serde_json::Value;

/// Returns whether the summary of a compaction says in words what it stands for.
///
/// omp 18 also writes compactions whose text only points at their data: an archive of pictures (`preserveData.snapcompact`), or a
/// history that only one provider can read (`preserveData.openaiRemoteCompaction`). The `method` says which it is; older
/// files have none, and then the data does. What Anthropic keeps (`preserveData.anthropicCompaction`) is the summary's own text.
pub(super) fn is_in_words(compaction: &CompactionEntry) -> bool {
    if compaction.summary.trim().is_empty() {
        return false;
    }
    match compaction.extra.get("method").and_then(Value::as_str) {
        Some("snapcompact") => false,
        Some("handoff" | "soft") => true,
        Some(_) | None => {
            let data = compaction.preserve_data.as_ref().and_then(|data| data.decode_as::<Value>().ok());
            data.is_none_or(|data| !is_archive(&data["snapcompact"]) && !is_history(&data["openaiRemoteCompaction"]))
        }
    }
}

/// Returns whether the data holds pictures of a conversation, or the text at its ends.
fn is_archive(data: &Value) -> bool {
    let has_text = |name: &str| data[name].as_str().is_some_and(|text| !text.is_empty());
    has_items(&data["frames"]) || ["text", "textHead", "textTail"].into_iter().any(has_text)
}

/// Returns whether the data holds what a provider takes in place of a conversation.
fn is_history(data: &Value) -> bool {
    has_items(&data["replacementHistory"])
}

fn has_items(value: &Value) -> bool {
    value.as_array().is_some_and(|items| !items.is_empty())
}

/// Returns whether an entry empties the context, as `/clear` of omp 18 does.
pub(crate) fn is_reset(entry: &SessionFileEntry) -> bool {
    let SessionEntryBody::Unknown(line) = &entry.body else { return false };
    line.decode_as::<Value>().is_ok_and(|line| line["type"] == "reset_boundary")
}

/// What an entry does to the context before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ContextCut {
    /// Nothing.
    None,
    /// Sums it up in words, or leaves it out.
    Cuts,
    /// It is a compaction that does not count, because it is not in words.
    Wordless,
}

/// Returns what an entry does to the context before it.
pub(super) fn cut_of(entry: &SessionFileEntry) -> ContextCut {
    match &entry.body {
        SessionEntryBody::Compaction(compaction) if is_in_words(compaction) => ContextCut::Cuts,
        SessionEntryBody::Compaction(_) => ContextCut::Wordless,
        _ if is_reset(entry) => ContextCut::Cuts,
        _ => ContextCut::None,
    }
}

/// Counts the compactions that do not count among the cuts on a path, from its last entry on. Those before a compaction in words or a
/// reset make no difference and are not counted.
pub(super) fn count_wordless(path: impl Iterator<Item = ContextCut>) -> usize {
    path.take_while(|cut| *cut != ContextCut::Cuts).filter(|cut| *cut == ContextCut::Wordless).count()
}

#[cfg(test)]
mod tests {
    use countersign_protocol::omp::session_file::{SessionEntryBody, SessionFileEntry};
    use serde_json::{Value, json};

    use super::{count_wordless, is_in_words, is_reset};
    use crate::session_file::entry_note::{EntryNote, places_on_last_path};

    fn entry(id: &str, parent: &str, mut members: Value) -> SessionFileEntry {
        members["id"] = id.into();
        members["parentId"] = if parent.is_empty() { Value::Null } else { parent.into() };
        members["timestamp"] = "".into();
        SessionFileEntry::parse(&members.to_string()).unwrap()
    }

    fn count_in(entries: &[SessionFileEntry]) -> usize {
        let notes: Vec<_> = entries.iter().map(EntryNote::from_entry).collect();
        count_wordless(places_on_last_path(&notes).map(|at| notes[at].cut))
    }

    fn compaction(members: Value) -> Value {
        let mut compaction =
            json!({ "type": "compaction", "summary": "in short", "firstKeptEntryId": "a", "tokensBefore": 9 });
        compaction.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
        compaction
    }

    fn archive() -> Value {
        let frame =
            json!({ "data": "blob:sha256:0", "mimeType": "image/png", "cols": 196, "rows": 71, "chars": 13916 });
        json!({ "snapcompact": { "frames": [frame], "totalChars": 13916, "truncatedChars": 0 } })
    }

    fn history() -> Value {
        let item = json!({ "type": "compaction", "encrypted_content": "x" });
        json!({ "openaiRemoteCompaction": { "provider": "openai", "replacementHistory": [item], "compactionItem": item } })
    }

    #[test]
    fn a_summary_is_in_words_unless_its_data_stands_in_place_of_it() {
        let native = json!({ "anthropicCompaction": { "provider": "anthropic", "content": "in short" } });
        let text = |name: &str| json!({ "snapcompact": { "frames": [], name: "user: hello" } });
        let empty = json!({
            "snapcompact": { "frames": [], "textHead": "" },
            "openaiRemoteCompaction": { "replacementHistory": [] },
        });
        for (members, want) in [
            (json!({}), true),
            (json!({ "preserveData": { "notes": [1] } }), true),
            (json!({ "preserveData": null }), true),
            (json!({ "preserveData": 7 }), true),
            (json!({ "summary": " " }), false),
            (json!({ "method": "soft" }), true),
            (json!({ "method": "soft", "preserveData": archive() }), true),
            (json!({ "method": "handoff", "preserveData": history() }), true),
            (json!({ "method": "remote" }), true),
            (json!({ "method": "remote", "preserveData": native }), true),
            (json!({ "method": "remote", "preserveData": history() }), false),
            (json!({ "method": "snapcompact" }), false),
            (json!({ "method": "snapcompact", "preserveData": archive() }), false),
            (json!({ "method": "later", "preserveData": archive() }), false),
            (json!({ "preserveData": archive() }), false),
            (json!({ "preserveData": text("text") }), false),
            (json!({ "preserveData": text("textHead") }), false),
            (json!({ "preserveData": text("textTail") }), false),
            (json!({ "preserveData": history() }), false),
            (json!({ "preserveData": empty }), true),
        ] {
            let line = entry("c", "a", compaction(members.clone()));
            let SessionEntryBody::Compaction(body) = line.body else { panic!("a compaction: {members}") };
            assert_eq!(is_in_words(&body), want, "{members}");
        }
    }

    #[test]
    fn a_compaction_that_is_not_in_words_is_counted_where_it_makes_a_difference() {
        let label = || json!({ "type": "label", "targetId": "a" });
        let words = || compaction(json!({}));
        let pictures = || compaction(json!({ "method": "snapcompact", "preserveData": archive() }));
        let remote = || compaction(json!({ "method": "remote", "preserveData": history() }));
        let reset = || json!({ "type": "reset_boundary" });
        for (case, lines, want) in [
            ("nothing", vec![], 0),
            ("in words", vec![label(), words()], 0),
            ("one", vec![label(), pictures()], 1),
            ("two", vec![label(), pictures(), label(), remote(), label()], 2),
            ("behind one in words", vec![words(), label(), remote()], 1),
            ("before one in words", vec![remote(), label(), words(), label()], 0),
            ("behind a reset", vec![label(), reset(), pictures()], 1),
            ("before a reset", vec![pictures(), label(), reset()], 0),
        ] {
            let ids = ["", "a", "b", "c", "d", "e"];
            let row = lines.into_iter().zip(ids.windows(2));
            let entries: Vec<_> = row.map(|(members, pair)| entry(pair[1], pair[0], members)).collect();
            assert_eq!(count_in(&entries), want, "{case}");
        }
        let other_branch = [entry("a", "", label()), entry("b", "a", pictures()), entry("c", "a", label())];
        assert_eq!(count_in(&other_branch), 0, "on a branch that was left");
    }

    #[test]
    fn a_reset_is_recognised_by_its_type() {
        for (members, want) in [
            (json!({ "type": "reset_boundary" }), true),
            (json!({ "type": "reset_boundary", "more": 1 }), true),
            (json!({ "type": "later" }), false),
            (json!({ "type": "label", "targetId": "a" }), false),
        ] {
            assert_eq!(is_reset(&entry("b", "a", members.clone())), want, "{members}");
        }
    }
}
