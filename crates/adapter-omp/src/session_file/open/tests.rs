use std::{
    borrow::Cow,
    fs::{self, File},
    os::unix::fs::symlink,
    path::PathBuf,
    process::Command,
};

use countersign_core::{
    digest::Digest,
    message::{MessageBlock, StoredMessage},
    time::Millis,
};
use countersign_protocol::omp::session_file::{FileForm, SessionEntryBody, SessionFileEntry, read_session_file};

use super::{OpenedFile, SessionFileOpenError, is_blank, open_file};
use crate::session_file::{BlobStore, EntryWriter, FileMark, TornEnd, convert};

const V1: &str = include_str!("fixtures/v1.jsonl");
const V2: &str = include_str!("fixtures/v2.jsonl");
const V3: &str = include_str!("fixtures/v3.jsonl");
/// Ids that come twice, lead elsewhere as paths, hide or are empty; parents that go round in circles or are not there.
const HOSTILE: &str = include_str!("fixtures/hostile.jsonl");

struct SessionFileFixture(tempfile::TempDir);

impl SessionFileFixture {
    fn with(text: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("s.jsonl"), text).unwrap();
        fs::create_dir(folder.path().join("blobs")).unwrap();
        Self(folder)
    }

    fn file(&self) -> PathBuf {
        self.0.path().join("s.jsonl")
    }

    fn blobs(&self) -> BlobStore {
        BlobStore::new(self.0.path().join("blobs"))
    }

    fn open(&self) -> OpenedFile {
        open_file(&self.file()).unwrap().unwrap()
    }
}

/// Returns the entries of a file.
fn entries(opened: &OpenedFile) -> Vec<SessionFileEntry> {
    (0..opened.notes().len()).map(|at| opened.read_entry(at).unwrap().into_owned()).collect()
}

fn tree(opened: &OpenedFile) -> Vec<(String, String)> {
    let entries = entries(opened).into_iter();
    entries.map(|entry| (entry.id.clone(), entry.parent_id.clone().unwrap_or_default())).collect()
}

fn kinds(opened: &OpenedFile) -> Vec<&'static str> {
    entries(opened)
        .iter()
        .map(|entry| match convert::from_entry(entry) {
            None => "-",
            Some((message, _)) => match message {
                StoredMessage::User(_) => "user",
                StoredMessage::Developer(_) => "developer",
                StoredMessage::Assistant(_) => "assistant",
                StoredMessage::ToolResult(_) => "result",
                StoredMessage::BashExecution(_) => "bash",
                StoredMessage::CompactionSummary(_) => "compaction",
                StoredMessage::BranchSummary(_) => "branch",
                StoredMessage::FileMention(_) => "files",
                StoredMessage::Custom(_) => "custom",
            },
        })
        .collect()
}

#[test]
fn version_1_becomes_a_tree_of_one_branch() {
    let opened = SessionFileFixture::with(V1).open();
    assert_eq!((opened.form, opened.header.version, opened.unreadable), (FileForm::Older, 3, 0));
    assert_eq!(kinds(&opened), ["user", "assistant", "result", "custom", "compaction", "user"]);
    let tree = tree(&opened);
    assert!(tree.windows(2).all(|pair| pair[1].1 == pair[0].0) && tree[0].1.is_empty());
    let SessionEntryBody::Compaction(compaction) = &entries(&opened)[4].body else { panic!("a compaction") };
    assert_eq!(compaction.first_kept_entry_id, tree[2].0);
}

#[test]
fn version_2_keeps_its_ids() {
    let opened = SessionFileFixture::with(V2).open();
    assert_eq!(opened.form, FileForm::Older);
    assert_eq!(kinds(&opened), ["-", "custom", "user"]);
    assert_eq!(tree(&opened)[2], ("aa000003".to_owned(), "aa000002".to_owned()));
}

#[test]
fn version_3_is_read_with_its_branches_and_in_spite_of_bad_lines() {
    let place = SessionFileFixture::with(V3);
    let opened = place.open();
    assert_eq!((opened.form, opened.unreadable), (FileForm::Current, 3));
    assert_eq!(opened.mark, FileMark::from_bytes(V3.as_bytes()));
    assert_eq!(
        kinds(&opened),
        [
            "-",
            "-",
            "user",
            "assistant",
            "bash",
            "user",
            "branch",
            "user",
            "-",
            "-",
            "custom",
            "-",
            "compaction",
            "custom"
        ]
    );
    assert_eq!(tree(&opened)[6], ("00000007".to_owned(), "00000005".to_owned()));

    fs::write(place.0.path().join("blobs/").join(&image(&opened)["blob:sha256:".len()..]), "an image").unwrap();
    let (mut message, at) = convert::from_entry(&entries(&opened)[2]).unwrap();
    place.blobs().inline_images(&mut message);
    assert_eq!(at, Some(Millis(1_770_091_507_000)));
    let StoredMessage::User(user_message) = message else { panic!("a user's message") };
    assert!(matches!(&user_message.content[1], MessageBlock::Image(image) if image.data == "YW4gaW1hZ2U="));
}

fn image(opened: &OpenedFile) -> String {
    match convert::from_entry(&entries(opened)[2]) {
        Some((StoredMessage::User(user_message), _)) => match &user_message.content[1] {
            MessageBlock::Image(image) => image.data.clone(),
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_older_file_that_is_written_again_reads_the_same() {
    for text in [V1, V2, V3, HOSTILE] {
        let place = SessionFileFixture::with(text);
        let opened = place.open();
        let header = opened.header.clone();
        let mut writer =
            EntryWriter::resume(place.file(), header, place.blobs(), opened.mark, opened.mark.length).unwrap();
        let marks = writer.rewrite_entries(entries(&opened).iter().map(|entry| Ok(Cow::Borrowed(entry)))).unwrap();
        let again = place.open();
        assert_eq!((again.form, again.unreadable), (FileForm::Current, 0));
        assert_eq!(Some(&again.mark), marks.last());
        assert_eq!(again.header, opened.header);
        assert_eq!(entries(&again), entries(&opened));
    }
}

#[test]
fn what_is_no_session_is_refused_untouched_and_a_blank_file_is_free() {
    for (text, free) in [
        ("", true),
        ("\n \n", true),
        ("\u{feff}", true),
        ("\u{feff}\n\t\n", true),
        ("\n\u{feff}", false),
        ("hello\n", false),
        ("{\"type\":\"label\"}\n", false),
        ("\u{0}", false),
    ] {
        let place = SessionFileFixture::with(text);
        assert_eq!(is_blank(&place.file()).unwrap(), free, "{text:?}");
        match open_file(&place.file()) {
            Ok(None) => assert!(free, "{text:?}"),
            Err(SessionFileOpenError::NotASession(path)) => assert!(!free && path == place.file(), "{text:?}"),
            other => panic!("{text:?}: {other:?}"),
        }
        assert_eq!(fs::read_to_string(place.file()).unwrap(), text);
    }
    assert!(open_file(&SessionFileFixture::with("").0.path().join("absent")).unwrap().is_none());
    assert!(is_blank(&SessionFileFixture::with("").0.path().join("absent")).unwrap());
}

#[test]
fn ids_and_parents_are_kept_as_they_are_written_however_odd_unless_they_come_twice() {
    let opened = SessionFileFixture::with(HOSTILE).open();
    let records: Vec<serde_json::Value> = HOSTILE.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let mut want: Vec<_> = records[1..].iter().map(|line| (text(&line["id"]), text(&line["parentId"]))).collect();
    let got = tree(&opened);
    for at in [1, 2] {
        want[at].0.clone_from(&got[at].0);
    }
    // An entry that names the id means the nearest entry before it.
    want[7].1.clone_from(&got[2].0);
    // The entry before the circle of two is a descendant of it.
    want[3].1.clear();
    // An entry that is its own parent follows the one before it, and so does one whose parent is not there.
    for at in [5, 6, 14, 15] {
        want[at].1 = want[at - 1].0.clone();
    }
    assert_eq!((opened.reattached, opened.looped), (1, 4));
    assert_eq!(got, want);
    let ids: std::collections::BTreeSet<_> = got.iter().map(|(id, _)| id).collect();
    assert_eq!((ids.len(), opened.form, opened.unreadable), (got.len(), FileForm::Older, 0));
    assert_eq!(tree(&SessionFileFixture::with(HOSTILE).open()), got);
    assert_eq!(opened.header.id, text(&records[0]["id"]));
    assert_eq!(kinds(&opened).iter().filter(|kind| **kind == "user").count(), 14);
}

#[test]
fn an_id_that_is_too_long_is_refused() {
    let header = |length: usize| format!("{{\"type\":\"session\",\"version\":3,\"id\":\"{}\"}}\n", "x".repeat(length));
    assert!(SessionFileFixture::with(&header(1024)).open().notes().is_empty());
    let place = SessionFileFixture::with(&header(1025));
    assert!(matches!(open_file(&place.file()), Err(SessionFileOpenError::LongId(path)) if path == place.file()));
}

#[test]
fn the_entries_of_a_beginning_are_counted_where_known() {
    let header = V3.lines().next().unwrap();
    let line = "{\"type\":\"label\",\"id\":\"a\",\"parentId\":null,\"timestamp\":\"\",\"targetId\":\"x\"}";
    let other = line.replace("\"a\"", "\"b\"");
    let text = format!("{header}\n{line}\n \n{other}\n");
    let opened = SessionFileFixture::with(&text).open();
    let ends = [0, header.len() + 1, header.len() + line.len() + 2, text.len(), text.len() + 1];
    assert_eq!(ends.map(|end| opened.entries_within(end as u64)), [Some(0), Some(0), Some(1), Some(2), None]);
    assert_eq!(SessionFileFixture::with(&format!("{text}nothing\n")).open().entries_within(0), None);
}

#[test]
fn what_is_no_regular_file_or_too_large_is_refused_at_once() {
    let place = SessionFileFixture::with("");
    let at = |name: &str| place.0.path().join(name);
    assert!(Command::new("mkfifo").arg(at("pipe")).status().unwrap().success());
    symlink("/dev/zero", at("zero")).unwrap();
    symlink("/dev/null", at("null")).unwrap();
    File::create(at("large")).unwrap().set_len((1 << 30) + 1).unwrap();
    for name in ["null", "pipe", "zero", "blobs"] {
        let got = open_file(&at(name));
        assert!(matches!(&got, Err(SessionFileOpenError::NotASession(path)) if *path == at(name)), "{name}: {got:?}");
    }
    let got = open_file(&at("large"));
    assert!(matches!(&got, Err(SessionFileOpenError::TooLarge(path)) if *path == at("large")), "{got:?}");
}

#[test]
fn a_last_line_counts_as_whole_unless_something_of_it_is_missing() {
    let header = V3.lines().next().unwrap();
    for (tail, counts) in [
        ("", true),
        ("\n", true),
        ("\n \n", true),
        ("\n{\"type\":\"label\"}", true),
        ("\n{\"type\":\"label\"} ", true),
        ("\n{\"type\":\"lab", false),
        ("\n{\"type\":\"label\"}\nno json\n", true),
        ("\n{\"type\":\"label\"}\n{", false),
    ] {
        let text = format!("{header}{tail}");
        let end = if counts { text.len() } else { text.rfind('\n').unwrap() + 1 };
        assert_eq!(SessionFileFixture::with(&text).open().whole, end as u64, "{tail:?}");
    }
}

#[test]
fn the_digest_of_every_beginning_is_known_without_the_file() {
    let place = SessionFileFixture::with(V3);
    let opened = place.open();
    fs::remove_file(place.file()).unwrap();
    for length in [0, 1, V3.len() - 1, V3.len()] {
        assert_eq!(
            opened.digest_of_prefix(length as u64),
            Some(Digest::hash_bytes(&V3.as_bytes()[..length])),
            "{length}"
        );
    }
    assert_eq!(opened.digest_of_prefix(V3.len() as u64 + 1), None);
    assert_eq!(opened.digest_of_prefix(u64::MAX), None);
}

#[test]
fn missing_and_moved_entries_are_reported_and_those_of_newer_programs_are_not() {
    const HEADER: &str = r#"{"type":"session","version":3,"id":"s","timestamp":"","cwd":"/"}"#;
    let label = |id: &str, parent: &str| {
        format!(r#"{{"type":"label","id":"{id}","parentId":"{parent}","timestamp":"","targetId":"x"}}"#)
    };
    let first = r#"{"type":"label","id":"a","parentId":null,"timestamp":"","targetId":"x"}"#.to_owned();
    let left_out = "1 line could not be read and was left out";
    for (case, lines, want) in [
        ("whole", vec![label("b", "a")], None),
        ("a list", vec!["[1,2]".to_owned()], Some(left_out)),
        ("a number", vec!["7".to_owned()], Some(left_out)),
        ("a text", vec!["\"x\"".to_owned()], Some(left_out)),
        ("null", vec!["null".to_owned()], Some(left_out)),
        ("no type", vec![r#"{"id":"b","parentId":"a"}"#.to_owned()], Some(left_out)),
        ("no id", vec![r#"{"type":"label","parentId":"a","targetId":"x"}"#.to_owned()], Some(left_out)),
        ("two of them", vec!["{}".to_owned(), "[]".to_owned()], Some("2 lines could not be read and were left out")),
        (
            "lines of no form that is known",
            vec![
                r#"{"type":"message","id":"b","parentId":"a","message":{"role":"user","timestamp":1}}"#.to_owned(),
                r#"{"type":"message","id":"c","parentId":"b","message":null}"#.to_owned(),
                r#"{"type":"message","id":"d","parentId":"c","message":{"role":"oracle","content":"x"}}"#.to_owned(),
                r#"{"type":"message","id":"e","parentId":"d"}"#.to_owned(),
                r#"{"type":"thinking_level_change","id":"f","parentId":"e","thinkingLevel":"ultra"}"#.to_owned(),
            ],
            Some("5 entries could not be understood and count for nothing"),
        ),
        (
            "what is understood without some of it",
            vec![
                r#"{"type":"message","id":"b","parentId":"a","message":{"role":"assistant","content":[]}}"#.to_owned(),
                r#"{"type":"thinking_level_change","id":"c","parentId":"b","thinkingLevel":"max"}"#.to_owned(),
                r#"{"type":"message","id":"d","parentId":"c","message":{"role":"user","content":"x"}}"#.to_owned(),
            ],
            None,
        ),
        ("a newer type", vec![r#"{"type":"later","id":"b","parentId":"a","x":1}"#.to_owned()], None),
        (
            "its own parent",
            vec![label("b", "b"), label("c", "b")],
            Some("1 entry whose parents lead back to it follows the entry before it"),
        ),
        (
            "two circles",
            vec![label("b", "c"), label("c", "b"), label("d", "d")],
            Some("2 entries whose parents lead back to them follow the entries before them"),
        ),
        (
            "everything",
            vec!["7".to_owned(), label("b", "gone"), label("c", "c")],
            Some(
                "1 line could not be read and was left out; 1 entry whose parent is not in the file follows the entry \
                 before it; 1 entry whose parents lead back to it follows the entry before it",
            ),
        ),
    ] {
        let lines: Vec<String> = [HEADER.to_owned(), first.clone()].into_iter().chain(lines).collect();
        let place = SessionFileFixture::with(&(lines.join("\n") + "\n"));
        let prefix = format!("session file {} is damaged: ", place.file().display());
        assert_eq!(place.open().damage_report(TornEnd::LeftOut, 0), want.map(|want| prefix + want), "{case}");
    }
}

#[test]
fn a_compaction_without_a_text_is_reported_and_is_no_damage() {
    const HEADER: &str = r#"{"type":"session","version":3,"id":"s","timestamp":"","cwd":"/"}"#;
    let compaction = |id: &str, parent: &str, method: &str| {
        format!(
            r#"{{"type":"compaction","id":"{id}","parentId":{parent},"timestamp":"","summary":"s","firstKeptEntryId":"x","tokensBefore":1,"method":"{method}"}}"#
        )
    };
    let one = "1 compaction has no summary in words; the messages that it stands for are kept in full";
    let two = "2 compactions have no summary in words; the messages that they stand for are kept in full";
    for (case, lines, want) in [
        ("in words", vec![compaction("a", "null", "soft")], None),
        ("one", vec![compaction("a", "null", "snapcompact")], Some(format!(": {one}"))),
        (
            "two",
            vec![compaction("a", "null", "snapcompact"), compaction("b", "\"a\"", "snapcompact")],
            Some(format!(": {two}")),
        ),
        (
            "with damage",
            vec![compaction("a", "null", "snapcompact"), "7".to_owned()],
            Some(format!(" is damaged: 1 line could not be read and was left out; {one}")),
        ),
    ] {
        let lines: Vec<String> = std::iter::once(HEADER.to_owned()).chain(lines).collect();
        let place = SessionFileFixture::with(&(lines.join("\n") + "\n"));
        let prefix = format!("session file {}", place.file().display());
        assert_eq!(place.open().damage_report(TornEnd::LeftOut, 0), want.map(|want| prefix + &want), "{case}");
    }
}

#[test]
fn entries_of_released_programs_are_no_damage_and_other_forms_of_them_are() {
    const HEADER: &str = r#"{"type":"session","version":3,"id":"s","timestamp":"","cwd":"/"}"#;
    let level = |level: &str| format!(r#""type":"thinking_level_change","thinkingLevel":{level}"#);
    let model = |members: &str| format!(r#""type":"model_change",{members}"#);
    let message = |members: &str| format!(r#""type":"message","message":{{{members},"timestamp":1}}"#);
    let other = str::to_owned;
    for (is_damage, body) in [
        (false, level(r#""off""#)),
        (false, level(r#""minimal""#)),
        (false, level(r#""low""#)),
        (false, level(r#""medium""#)),
        (false, level(r#""high""#)),
        (false, level(r#""xhigh""#)),
        (false, level(r#""max""#)),
        (false, level(r#""inherit""#)),
        (false, level("null")),
        (false, level(r#""high","configured":"auto""#)),
        (false, other(r#""type":"thinking_level_change""#)),
        (true, level(r#""ultra""#)),
        (true, level(r#""Inherit""#)),
        (true, level("3")),
        (false, model(r#""model":"p/m""#)),
        (false, model(r#""model":"p/m","role":"smol""#)),
        (false, model(r#""provider":"p","modelId":"m""#)),
        (true, model(r#""provider":"p""#)),
        (true, model(r#""modelId":"m""#)),
        (true, model(r#""provider":"p","modelId":7"#)),
        (true, model(r#""model":{"provider":"p","id":"m"}"#)),
        (false, message(r#""role":"user","content":"x""#)),
        (false, message(r#""role":"developer","content":[{"type":"text","text":"x"}],"synthetic":true"#)),
        (
            false,
            message(
                r#""role":"assistant","content":[],"api":"a","provider":"p","model":"m","usage":{"input":1,"output":1,"cacheRead":0,"cacheWrite":0,"cost":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"total":0}},"stopReason":"stop""#,
            ),
        ),
        (
            false,
            message(
                r#""role":"toolResult","toolCallId":"c","toolName":"read","content":[],"isError":false,"usage":{}"#,
            ),
        ),
        (
            false,
            message(
                r#""role":"bashExecution","command":"ls","output":"","exitCode":0,"cancelled":false,"truncated":true,"fullOutputPath":"/o""#,
            ),
        ),
        (false, message(r#""role":"bashExecution","command":"ls","output":"","cancelled":true,"truncated":false"#)),
        (
            false,
            message(
                r#""role":"pythonExecution","code":"1","output":"1","exitCode":null,"cancelled":false,"truncated":false"#,
            ),
        ),
        (false, message(r#""role":"custom","customType":"c","content":"x","display":false"#)),
        (false, message(r#""role":"hookMessage","customType":"c","content":"x","display":true"#)),
        (false, message(r#""role":"compactionSummary","summary":"s","tokensBefore":1"#)),
        (false, message(r#""role":"branchSummary","summary":"s","fromId":"root""#)),
        (false, message(r#""role":"fileMention","files":[{"path":"a","content":"b"}]"#)),
        (true, message(r#""role":"user""#)),
        (true, message(r#""role":"oracle","content":"x""#)),
        (
            false,
            other(
                r#""type":"compaction","summary":"s","firstKeptEntryId":"a","tokensBefore":1,"fromHook":false,"usage":{}"#,
            ),
        ),
        (
            false,
            other(
                r#""type":"compaction","summary":"s","shortSummary":null,"firstKeptEntryId":"a","tokensBefore":1,"tokensAfter":1,"method":"x","details":null"#,
            ),
        ),
        (true, other(r#""type":"compaction","firstKeptEntryId":"a","tokensBefore":1"#)),
        (false, other(r#""type":"branch_summary","fromId":"root","summary":"s","fromHook":true"#)),
        (true, other(r#""type":"branch_summary","fromId":"root""#)),
        (false, other(r#""type":"custom_message","customType":"c","content":"x","display":true"#)),
        (
            false,
            other(
                r#""type":"custom_message","customType":"c","content":[{"type":"text","text":"x"}],"display":false,"details":{},"attribution":"agent""#,
            ),
        ),
        (true, other(r#""type":"custom_message","customType":"c","display":true"#)),
        (false, other(r#""type":"custom","customType":"c""#)),
        (false, other(r#""type":"custom","customType":"c","data":null"#)),
        (false, other(r#""type":"label","targetId":"a""#)),
        (false, other(r#""type":"label","targetId":"a","label":null"#)),
        (false, other(r#""type":"session_info","name":"n""#)),
        (false, other(r#""type":"session_info""#)),
        (false, other(r#""type":"session_init","systemPrompt":["a","b"],"task":"t","tools":[]"#)),
        (false, other(r#""type":"mode_change","mode":"none""#)),
        (false, other(r#""type":"service_tier_change","serviceTier":null"#)),
        (false, other(r#""type":"ttsr_injection","injectedRules":["r"]"#)),
        (false, other(r#""type":"mcp_tool_selection","selectedToolNames":[]"#)),
        (false, other(r#""type":"title_change","title":"t","source":"auto""#)),
        (false, other(r#""type":"credential_pin","provider":"p","hash":"h""#)),
        (false, other(r#""type":"model_usage","purpose":"title","model":"m""#)),
        (false, other(r#""type":"reset_boundary""#)),
    ] {
        let line = format!(r#"{{{body},"id":"a","parentId":null,"timestamp":""}}"#);
        let opened = SessionFileFixture::with(&format!("{HEADER}\n{line}\n")).open();
        assert_eq!(
            (opened.notes().len(), opened.damage_report(TornEnd::LeftOut, 0).is_some()),
            (1, is_damage),
            "{line}"
        );
    }
}

#[test]
fn entries_that_say_nothing_of_a_parent_are_in_one_row() {
    let header = r#"{"type":"session","version":3,"id":"s","timestamp":"","cwd":"/"}"#;
    let message_line = |id: &str, rest: &str| format!(r#"{{"type":"message","id":"{id}","timestamp":"",{rest}}}"#);
    let lines = [
        header.to_owned(),
        message_line("a", r#""message":{"role":"user","content":"1","timestamp":1}"#),
        message_line("b", r#""message":{"role":"assistant","content":[{"type":"text","text":"2"}]}"#),
        r#"{"type":"later","id":"c"}"#.to_owned(),
        message_line("d", r#""message":{"role":"user","content":"3","timestamp":3}"#),
        message_line("e", r#""parentId":"b","message":{"role":"user","content":"4","timestamp":4}"#),
        message_line("f", r#""parentId":null,"message":{"role":"user","content":"5","timestamp":5}"#),
    ];
    let place = SessionFileFixture::with(&(lines.join("\n") + "\n"));
    let opened = place.open();
    let want = [("a", ""), ("b", "a"), ("c", "b"), ("d", "c"), ("e", "b"), ("f", "")];
    assert_eq!(tree(&opened), want.map(|(id, parent)| (id.to_owned(), parent.to_owned())));
    assert_eq!(kinds(&opened), ["user", "assistant", "-", "user", "user", "user"]);
    assert_eq!((opened.damage_report(TornEnd::LeftOut, 0), opened.form), (None, FileForm::Older));
    let header = opened.header.clone();
    let mut writer = EntryWriter::resume(place.file(), header, place.blobs(), opened.mark, opened.mark.length).unwrap();
    writer.rewrite_entries(entries(&opened).iter().map(|entry| Ok(Cow::Borrowed(entry)))).unwrap();
    let again = place.open();
    assert_eq!((tree(&again), again.form), (tree(&opened), FileForm::Current));
}

/// Returns a session file of so many entries of `length` bytes of text each.
fn long_file(count: usize, length: usize) -> String {
    let mut text = "{\"type\":\"session\",\"version\":3,\"id\":\"s\",\"timestamp\":\"\",\"cwd\":\"/w\"}\n".to_owned();
    let said = "x".repeat(length);
    for at in 0..count {
        let parent = at.checked_sub(1).map_or_else(|| "null".to_owned(), |before| format!("\"{before}\""));
        text.push_str(&format!(
            "{{\"type\":\"label\",\"id\":\"{at}\",\"parentId\":{parent},\"timestamp\":\"\",\"targetId\":\"{said}\"}}\n"
        ));
    }
    text
}

#[test]
fn what_is_kept_of_a_file_is_a_note_and_a_place_for_each_entry() {
    for (count, length) in [(10, 100_000), (1_000, 1_000), (100_000, 10)] {
        let text = long_file(count, length);
        let opened = SessionFileFixture::with(&text).open();
        assert_eq!((opened.notes().len(), opened.lines.len(), opened.entries.is_some()), (count, count, false));
        let kept: usize =
            opened.notes().iter().map(|note| note.id.len() + note.parent.as_ref().map_or(0, String::len)).sum();
        assert!(kept <= 12 * count, "{kept}");
        let last = opened.read_entry(count - 1).unwrap().into_owned();
        assert_eq!(last.id, (count - 1).to_string());
        assert_eq!(opened.entries_within(text.len() as u64), Some(count));
    }
}

#[test]
fn no_entry_of_a_damaged_file_is_in_memory() {
    let parentless = |line: &str| line.replace(r#","parentId":"499""#, "");
    let twice = |line: &str| line.replace(r#""id":"500""#, r#""id":"3""#);
    let cut = |line: &str| line[..30].to_owned();
    type Damage<'a> = &'a dyn Fn(&str) -> String;
    let forms: [(&str, Damage<'_>, FileForm); 3] = [
        ("no parent", &parentless, FileForm::Older),
        ("an id twice", &twice, FileForm::Older),
        ("cut", &cut, FileForm::Current),
    ];
    for (case, damage, form) in forms {
        let text = long_file(1_000, 1_000);
        let lines: Vec<String> =
            text.lines().enumerate().map(|(at, line)| if at == 501 { damage(line) } else { line.to_owned() }).collect();
        let text = lines.join("\n") + "\n";
        let place = SessionFileFixture::with(&text);
        let opened = place.open();
        assert_eq!((opened.form, opened.entries.is_some()), (form, false), "{case}");
        assert_eq!((opened.notes().len(), opened.lines.len()), (opened.notes().len(), opened.notes().len()), "{case}");
        let mut ids = 0..;
        let whole = read_session_file(&text, || format!("fresh{}", ids.next().unwrap_or(0))).unwrap();
        assert_eq!((opened.reattached, opened.looped), (whole.reattached, whole.looped), "{case}");
        for (at, (read, whole)) in entries(&opened).iter().zip(&whole.entries).enumerate() {
            let is_new = whole.id.starts_with("fresh");
            assert_eq!((is_new, &read.id), (is_new, if is_new { &read.id } else { &whole.id }), "{case}");
            assert_eq!((&opened.notes()[at].id, &opened.notes()[at].parent), (&read.id, &read.parent_id), "{case}");
            assert_eq!(read.body, whole.body, "{case}");
        }
        assert!(opened.changed.len() <= 2, "only the ids that differ are held: {case}");
    }
}

#[test]
fn an_entry_whose_line_was_changed_since_is_not_read() {
    let place = SessionFileFixture::with(&long_file(2, 10));
    let opened = place.open();
    let text = fs::read_to_string(place.file()).unwrap();
    fs::write(place.file(), text.replacen("xxxxxxxxxx", "yyyyyyyyyy", 1)).unwrap();
    assert!(matches!(opened.read_entry(0), Err(SessionFileOpenError::Io { .. })));
    assert_eq!(opened.read_entry(1).unwrap().id, "1");
}
