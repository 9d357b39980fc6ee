use std::{borrow::Cow, fs, os::unix::fs::FileTypeExt as _, path::PathBuf, process::Command};

use countersign_core::{id::SessionId, time::Millis};
use countersign_protocol::omp::session_file::SessionFileEntry;
use serde_json::{Value, json};

use super::{BlobStore, EntryWriter, FileMark, SessionFileWriteError, UnansweredPolicy};
use crate::session_file::{TornEnd, open};

fn entry(id: &str, role: &str, text: &str) -> SessionFileEntry {
    let usage = json!({"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0, "totalTokens": 0,
                       "cost": {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0, "total": 0}});
    let message = match role {
        "assistant" => {
            json!({"role": role, "content": [{"type": "text", "text": text}], "api": "a", "provider": "p", "model": "m",
                              "usage": usage, "stopReason": "stop", "timestamp": 1})
        }
        _ => json!({"role": role, "content": [{"type": "text", "text": text}], "timestamp": 1}),
    };
    SessionFileEntry::parse(
        &json!({"type": "message", "id": id, "parentId": null, "timestamp": "", "message": message}).to_string(),
    )
    .unwrap()
}

struct WriterFixture(tempfile::TempDir);

impl WriterFixture {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn file(&self) -> PathBuf {
        self.0.path().join("sessions/s.jsonl")
    }

    fn blobs(&self) -> BlobStore {
        BlobStore::new(self.0.path().join("blobs"))
    }

    fn writer(&self) -> EntryWriter {
        let header = open::new_header(&SessionId::new("s"), Millis(0), self.0.path(), None);
        EntryWriter::new(self.file(), header, self.blobs())
    }

    fn text(&self) -> String {
        fs::read_to_string(self.file()).unwrap()
    }

    fn ids(&self) -> Vec<String> {
        open::open_file(&self.file()).unwrap().unwrap().notes().iter().map(|note| note.id.clone()).collect()
    }
}

fn answered(place: &WriterFixture) -> (EntryWriter, Vec<FileMark>) {
    let mut writer = place.writer();
    writer.push(&entry("1", "user", "hi")).unwrap();
    writer.push(&entry("2", "assistant", "ho")).unwrap();
    let marks = writer.flush().unwrap();
    (writer, marks)
}

#[test]
fn a_file_appears_with_the_first_answer_and_holds_all_that_was_before() {
    let place = WriterFixture::new();
    let mut writer = place.writer();
    writer.push(&entry("1", "user", "hi")).unwrap();
    assert_eq!(writer.flush().unwrap(), []);
    assert!(!place.file().exists());
    writer.push(&entry("2", "assistant", "ho")).unwrap();
    assert!(!place.file().exists());
    let mut marks = writer.flush().unwrap();
    assert_eq!(marks.len(), 3);
    writer.push(&entry("3", "user", "again")).unwrap();
    marks.extend(writer.flush().unwrap());
    assert_eq!(place.ids(), ["1", "2", "3"]);
    assert_eq!(marks.last(), Some(&FileMark::from_bytes(place.text().as_bytes())));
    assert_eq!(writer.flush().unwrap(), []);
}

#[test]
fn a_session_without_an_answer_has_its_file_at_its_end_where_it_is_to_have_one() {
    let setting = || {
        let line = json!({"type": "model_change", "id": "m", "parentId": null, "timestamp": "", "model": "p/m"});
        SessionFileEntry::parse(&line.to_string()).unwrap()
    };
    for (unanswered, title, has_message, want) in [
        (UnansweredPolicy::Written, Some("a name"), false, true),
        (UnansweredPolicy::Written, None, true, true),
        (UnansweredPolicy::Written, None, false, false),
        (UnansweredPolicy::Left, Some("a name"), true, false),
    ] {
        let place = WriterFixture::new();
        let mut writer = place.writer().when_unanswered(unanswered);
        writer.push(&setting()).unwrap();
        if has_message {
            writer.push(&entry("1", "user", "hi")).unwrap();
        }
        writer.set_title(title.map(str::to_owned), Millis(0)).unwrap();
        assert_eq!(writer.flush().unwrap(), [], "not before its end");
        assert_eq!(writer.close(), want, "{unanswered:?} {title:?} {has_message}");
        writer.flush().unwrap();
        assert_eq!(place.file().exists(), want, "{unanswered:?} {title:?} {has_message}");
        if want {
            assert_eq!(
                (place.ids().len(), place.text().contains("a name")),
                (1 + usize::from(has_message), title.is_some())
            );
        }
        assert!(!writer.close(), "once");
    }
}

#[test]
fn after_a_crash_the_rest_is_written_again() {
    let place = WriterFixture::new();
    let (mut writer, mut marks) = answered(&place);
    writer.push(&entry("3", "user", "x")).unwrap();
    writer.push(&entry("4", "assistant", "y")).unwrap();
    marks.extend(writer.flush().unwrap());
    let whole = place.text();
    for cut in usize::try_from(marks[2].length).unwrap()..whole.len() {
        fs::write(place.file(), &whole[..cut]).unwrap();
        let opened = open::open_file(&place.file()).unwrap().unwrap();
        let mut writer =
            EntryWriter::resume(place.file(), writer.header().clone(), place.blobs(), opened.mark, opened.whole)
                .unwrap();
        for (id, role, text) in &[("3", "user", "x"), ("4", "assistant", "y")][opened.notes().len() - 2..] {
            writer.push(&entry(id, role, text)).unwrap();
        }
        writer.flush().unwrap();
        // A missing line break alone is added with the next entry.
        let want = &whole[..if cut == whole.len() - 1 { cut } else { whole.len() }];
        let mark = FileMark::from_bytes(want.as_bytes());
        assert_eq!((place.text(), writer.current_mark()), (want.to_owned(), Some(mark)), "cut at {cut}");
    }
}

#[test]
fn nothing_is_written_into_what_somebody_else_changed() {
    let place = WriterFixture::new();
    let (mut writer, _) = answered(&place);
    let mut text = place.text();
    text.push_str("{\"type\":\"label\",\"id\":\"x\",\"targetId\":\"1\"}\n");
    fs::write(place.file(), &text).unwrap();
    writer.push(&entry("3", "user", "x")).unwrap();
    assert!(matches!(writer.flush(), Err(SessionFileWriteError::Changed(_))));
    assert!(matches!(writer.set_title(Some("t".to_owned()), Millis(0)), Err(SessionFileWriteError::Changed(_))));
    assert_eq!((place.text(), writer.header().title.clone()), (text, None));
    fs::remove_file(place.file()).unwrap();
    assert!(matches!(writer.flush(), Err(SessionFileWriteError::Changed(_))));

    fs::write(place.file(), "mine\n").unwrap();
    let mut second = place.writer();
    second.push(&entry("2", "assistant", "ho")).unwrap();
    assert!(matches!(second.flush(), Err(SessionFileWriteError::Exists(_))));
    assert_eq!(place.text(), "mine\n");
}

#[test]
fn a_blank_file_takes_a_new_session() {
    for text in ["", "\n", " \r\n\t\n", "\u{feff}\n"] {
        let place = WriterFixture::new();
        fs::create_dir_all(place.file().parent().unwrap()).unwrap();
        fs::write(place.file(), text).unwrap();
        let (writer, _) = answered(&place);
        assert_eq!(writer.current_mark(), Some(FileMark::from_bytes(place.text().as_bytes())), "{text:?}");
        assert_eq!(place.ids(), ["1", "2"], "{text:?}");
    }
}

#[test]
fn a_pipe_in_the_place_of_the_file_is_neither_waited_for_nor_replaced() {
    let place = WriterFixture::new();
    let pipe = || assert!(Command::new("mkfifo").arg(place.file()).status().unwrap().success());
    let (mut writer, _) = answered(&place);
    fs::remove_file(place.file()).unwrap();
    pipe();
    writer.push(&entry("3", "user", "x")).unwrap();
    let mut second = place.writer();
    second.push(&entry("2", "assistant", "ho")).unwrap();
    let resumed =
        EntryWriter::resume(place.file(), writer.header().clone(), place.blobs(), FileMark::from_bytes(b""), 0)
            .map(drop);
    for failed in [
        writer.flush().map(drop),
        writer.set_title(Some("t".to_owned()), Millis(0)).map(drop),
        second.flush().map(drop),
        resumed,
    ] {
        let error = failed.unwrap_err().to_string();
        assert!(error.ends_with("it is not a regular file"), "{error}");
    }
    assert!(fs::metadata(place.file()).unwrap().file_type().is_fifo());
}

#[test]
fn a_new_name_replaces_the_first_line_alone() {
    let place = WriterFixture::new();
    let mut early = place.writer();
    assert_eq!(early.set_title(Some("early".to_owned()), Millis(0)).unwrap(), []);
    assert!(!place.file().exists());

    let (mut writer, _) = answered(&place);
    let before = place.text();
    let mut marks = writer.set_title(Some("new \"name\"".to_owned()), Millis(0)).unwrap();
    let after = place.text();
    assert_eq!(after.split_once('\n').unwrap().1, before.split_once('\n').unwrap().1);
    assert_eq!(open::open_file(&place.file()).unwrap().unwrap().header.title.as_deref(), Some("new \"name\""));
    writer.push(&entry("3", "user", "x")).unwrap();
    marks.extend(writer.flush().unwrap());
    assert_eq!(marks.last(), Some(&FileMark::from_bytes(place.text().as_bytes())));
}

/// Returns a file as omp 18 begins it: the title line, then the header.
fn titled(place: &WriterFixture, title: &str) -> String {
    let (writer, _) = answered(place);
    let mut members =
        json!({"type": "title", "v": 1, "title": title, "updatedAt": "2026-05-01T10:00:00.000Z", "pad": ""});
    let missing = 255 - members.to_string().len();
    members["pad"] = " ".repeat(missing).into();
    let text = format!("{members}\n{}", place.text());
    fs::write(writer.path(), &text).unwrap();
    text
}

#[test]
fn a_new_name_replaces_that_of_the_title_line_as_well() {
    let place = WriterFixture::new();
    let before = titled(&place, "old");
    let opened = open::open_file(&place.file()).unwrap().unwrap();
    assert_eq!(opened.header.title.as_deref(), Some("old"));
    assert_eq!((opened.entries_within(opened.whole), opened.damage_report(TornEnd::LeftOut, 0)), (Some(2), None));
    let header = opened.header;
    let mut writer =
        EntryWriter::resume(place.file(), header.clone(), place.blobs(), opened.mark, opened.whole).unwrap();
    writer.push(&entry("3", "user", "x")).unwrap();
    writer.flush().unwrap();
    assert!(place.text().starts_with(&before));

    for name in ["new \"name\"", &"long ".repeat(100)] {
        let marks = writer.set_title(Some(name.to_owned()), Millis(1_700_000_000_000)).unwrap();
        let after = place.text();
        let (first, rest) = after.split_at(256);
        assert!(first.ends_with("\"}\n") && first.contains("\"updatedAt\":\"2023-11-14T22:13:20.000Z\""), "{first}");
        let first: Value = serde_json::from_str(first).unwrap();
        assert!(name.starts_with(first["title"].as_str().unwrap()), "{first}");
        assert_eq!(rest.lines().count(), 4);
        assert_eq!(marks.last(), Some(&FileMark::from_bytes(after.as_bytes())));
        assert_eq!(marks.len(), 4, "one for the beginning, one for each entry");
    }
    let opened = open::open_file(&place.file()).unwrap().unwrap();
    assert!(opened.header.title.is_some_and(|title| title.starts_with("long ") && title.len() < 200));

    let marks = writer.rewrite_entries([Ok(Cow::Owned(entry("2", "assistant", "ho")))]).unwrap();
    let after = place.text();
    assert!(after.starts_with(r#"{"type":"title","v":1,"title":"long "#) && after.lines().count() == 3, "{after}");
    assert_eq!(marks.last(), Some(&FileMark::from_bytes(after.as_bytes())));
}

#[test]
fn a_name_that_cannot_be_written_changes_no_title_line() {
    let place = WriterFixture::new();
    titled(&place, "old");
    let opened = open::open_file(&place.file()).unwrap().unwrap();
    let header = opened.header;
    let mut writer =
        EntryWriter::resume(place.file(), header.clone(), place.blobs(), opened.mark, opened.whole).unwrap();
    let elsewhere = place.text().replace("\"old\"", "\"two\"");
    fs::write(place.file(), &elsewhere).unwrap();
    assert!(matches!(writer.set_title(Some("three".to_owned()), Millis(0)), Err(SessionFileWriteError::Changed(_))));
    assert_eq!((writer.header(), place.text()), (&header, elsewhere));
}

#[test]
fn a_rewrite_holds_only_what_it_was_given() {
    let place = WriterFixture::new();
    let (mut writer, _) = answered(&place);
    writer.push(&entry("3", "user", "dropped")).unwrap();
    let marks = writer.rewrite_entries([Ok(Cow::Owned(entry("2", "assistant", "ho")))]).unwrap();
    assert_eq!(writer.flush().unwrap(), []);
    assert_eq!(place.ids(), ["2"]);
    assert_eq!(marks.last(), Some(&FileMark::from_bytes(place.text().as_bytes())));
}

#[test]
fn a_long_image_is_a_reference_in_the_file() {
    let place = WriterFixture::new();
    let mut writer = place.writer();
    let image = json!({"type": "image", "data": "QUFB".repeat(400), "mimeType": "image/png"});
    let line = json!({"type": "message", "id": "1", "parentId": null, "timestamp": "", "message": {"role": "user", "content": [image], "timestamp": 1}});
    writer.push(&SessionFileEntry::parse(&line.to_string()).unwrap()).unwrap();
    writer.push(&entry("2", "assistant", "ho")).unwrap();
    writer.flush().unwrap();
    assert!(place.text().contains("\"data\":\"blob:sha256:") && !place.text().contains("QUFB"));
    assert_eq!(fs::read_dir(place.0.path().join("blobs")).unwrap().count(), 1);
}

#[test]
fn a_file_without_its_last_line_end_is_continued_on_a_new_line() {
    let place = WriterFixture::new();
    let (writer, _) = answered(&place);
    let text = place.text().trim_end().to_owned();
    fs::write(place.file(), &text).unwrap();
    let mut resumed = EntryWriter::resume(
        place.file(),
        writer.header().clone(),
        place.blobs(),
        FileMark::from_bytes(text.as_bytes()),
        text.len() as u64,
    )
    .unwrap();
    assert_eq!((place.text(), resumed.current_mark()), (text.clone(), Some(FileMark::from_bytes(text.as_bytes()))));
    resumed.push(&entry("3", "user", "x")).unwrap();
    resumed.flush().unwrap();
    assert_eq!(resumed.current_mark(), Some(FileMark::from_bytes(place.text().as_bytes())));
    assert_eq!(place.ids(), ["1", "2", "3"]);
}

#[test]
fn a_torn_line_that_is_kept_stays_as_it_is_and_the_next_entry_is_on_a_new_line() {
    let place = WriterFixture::new();
    let (writer, _) = answered(&place);
    let torn = place.text() + "{\"type\":\"message\",\"id\":\"3";
    fs::write(place.file(), &torn).unwrap();
    let mark = FileMark::from_bytes(torn.as_bytes());
    let resume =
        || EntryWriter::resume(place.file(), writer.header().clone(), place.blobs(), mark, mark.length).unwrap();
    let mut resumed = resume();
    resumed.set_title(Some("a name".to_owned()), Millis(0)).unwrap();
    resumed.push(&entry("4", "user", "x")).unwrap();
    resumed.set_title(None, Millis(0)).unwrap();
    assert_eq!(place.text(), torn);
    for (id, lines) in [("4", 5), ("5", 6)] {
        if id != "4" {
            resumed.push(&entry(id, "user", "x")).unwrap();
        }
        resumed.flush().unwrap();
        assert_eq!(
            (place.text().starts_with(&format!("{torn}\n")), place.text().lines().count()),
            (true, lines),
            "{id}"
        );
        assert_eq!(resumed.current_mark(), Some(FileMark::from_bytes(place.text().as_bytes())));
    }
    assert_eq!(place.ids(), ["1", "2", "4", "5"]);
}
