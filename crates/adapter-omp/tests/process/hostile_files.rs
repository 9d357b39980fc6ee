//! Session files that were made to do harm: ids that are paths, ids that come twice, pipes in the place of files.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use countersign_testkit::process::{HostFixture, RpcHost, check_chain, eventually, line_texts, lines_when, lines_with};
use serde_json::{Value, json};

const AT: &str = "2026-01-01T00:00:00.000Z";

fn header(id: &str) -> Value {
    json!({ "type": "session", "version": 3, "id": id, "timestamp": AT, "cwd": "" })
}

fn user(id: &str, parent: Option<&str>, text: &str) -> Value {
    let message = json!({ "role": "user", "content": [{ "type": "text", "text": text }], "timestamp": 1 });
    json!({ "type": "message", "id": id, "parentId": parent, "timestamp": AT, "message": message })
}

fn write(place: &HostFixture, lines: &[Value]) -> PathBuf {
    place.write_file("other.jsonl", lines.iter().map(|line| format!("{line}\n")).collect::<String>())
}

/// Returns all files below the root of a place.
fn files(place: &HostFixture) -> BTreeSet<PathBuf> {
    fn below(folder: &Path, found: &mut BTreeSet<PathBuf>) {
        for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
            match entry.file_type().unwrap().is_dir() {
                true => below(&entry.path(), found),
                false => drop(found.insert(entry.path())),
            }
        }
    }
    let mut found = BTreeSet::new();
    below(place.agent.parent().unwrap(), &mut found);
    found
}

#[test]
fn an_id_that_is_a_path_makes_nothing_outside_the_agent_directory() {
    let outside = std::env::temp_dir().join("countersign-hostile-id");
    for id in ["../../x", "..", "", "a/b", outside.to_str().unwrap(), "nul\u{0}", &"x".repeat(200), &"x".repeat(1024)] {
        let place = HostFixture::new();
        let path = write(&place, &[header(id), user("a", None, "one")]);
        let before = files(&place);
        let mut host = place.start(&["--session", path.to_str().unwrap()]);
        assert_eq!(host.message_texts(), ["one"], "{id:?}");
        host.run_turn("two");
        lines_with(&path, "\"ok\"");
        host.close_cleanly();
        let made: Vec<PathBuf> = files(&place).difference(&before).cloned().collect();
        let log = |path: &PathBuf| path.parent() == Some(&place.agent.join("countersign"));
        assert!(!made.is_empty() && made.iter().all(log), "{id:?}: {made:?}");
        let mut again = place.start(&["--session", path.to_str().unwrap()]);
        assert_eq!(again.message_texts(), ["one", "two", "ok"], "{id:?}");
    }
    assert!(!outside.exists() && !outside.with_extension("db").exists());
}

#[test]
fn an_id_of_ten_megabytes_is_refused_with_a_message_and_nothing_is_made() {
    let place = HostFixture::new();
    let path = write(&place, &[header(&"x".repeat(10 << 20)), user("a", None, "one")]);
    let before = files(&place);
    let command = RpcHost::omp_command(&place, &["--model", "fake/fake-1", "--session", path.to_str().unwrap()]);
    let end = RpcHost::spawn(command).wait_end();
    assert_eq!(end.code, Some(1));
    assert!(end.stderr.contains("other.jsonl: an id in it is longer than 1024 bytes"), "{}", end.stderr);
    assert_eq!(files(&place), before);
    let mut host = place.start(&[]);
    let refused = host.command_error(json!({ "type": "switch_session", "sessionPath": path }));
    assert!(refused.contains("longer than 1024 bytes"), "{refused}");
}

#[test]
fn an_entry_with_an_id_that_is_too_long_is_refused_with_a_message_and_the_file_stays() {
    let long = "x".repeat(100_000);
    let place = HostFixture::new();
    let path = write(&place, &[header("s"), user(&long, None, "one")]);
    let before = (fs::read(&path).unwrap(), files(&place));
    let command = RpcHost::omp_command(&place, &["--model", "fake/fake-1", "--session", path.to_str().unwrap()]);
    let end = RpcHost::spawn(command).wait_end();
    assert_eq!((end.code, end.stderr.lines().count()), (Some(1), 1), "{}", end.stderr);
    assert!(end.stderr.contains("an id in it is longer than 1024 bytes"), "{}", end.stderr);
    assert_eq!((fs::read(&path).unwrap(), files(&place)), before);
    // No entry has that id, so the one that names it as its parent follows the entry before it.
    let orphan = write(&place, &[header("t"), user("a", Some(&long), "one")]);
    assert_eq!(place.start(&["--session", orphan.to_str().unwrap()]).message_texts(), ["one"]);
}

#[test]
fn two_files_with_the_same_id_are_two_sessions() {
    let place = HostFixture::new();
    let path = write(&place, &[header(""), user("a", None, "one")]);
    let mut first = place.start(&["--session", path.to_str().unwrap()]);
    first.run_turn("two");
    first.close_cleanly();
    let other = place.write_file("copy.jsonl", format!("{}\n{}\n", header(""), user("a", None, "other")));
    let mut second = place.start(&["--session", other.to_str().unwrap()]);
    assert_eq!(second.message_texts(), ["other"]);
    second.run_turn("more");
    second.close_cleanly();
    assert_eq!(place.start(&["--session", path.to_str().unwrap()]).message_texts(), ["one", "two", "ok"]);
    assert_eq!(place.start(&["--session", other.to_str().unwrap()]).message_texts(), ["other", "more", "ok"]);
}

#[test]
fn a_copy_in_an_older_form_keeps_its_entries_and_becomes_a_session_of_its_own() {
    let place = HostFixture::new();
    let older = |text: &str| {
        let header = json!({ "type": "session", "id": "0011223344556677", "timestamp": AT, "cwd": "" });
        let message = json!({ "type": "message", "timestamp": AT, "message": { "role": "user", "content": text, "timestamp": 1 } });
        format!("{header}\n{message}\n")
    };
    let path = place.write_file("first.jsonl", older("one"));
    let mut first = place.start(&["--session", path.to_str().unwrap()]);
    first.run_turn("two");
    first.close_cleanly();
    let copy = place.write_file("copy.jsonl", older("other"));
    let mut second = place.start(&["--session", copy.to_str().unwrap()]);
    let id = second.session_state()["sessionId"].clone();
    second.run_turn("more");
    second.close_cleanly();
    let mut again = place.start(&["--session", copy.to_str().unwrap()]);
    assert_eq!(again.message_texts(), ["other", "more", "ok"]);
    assert_eq!(again.session_state()["sessionId"], id);
}

#[test]
fn of_entries_with_the_same_id_none_is_lost_and_each_keeps_its_children() {
    let place = HostFixture::new();
    let unknown = |parent: &str| json!({ "type": "alien", "id": "a", "parentId": parent, "timestamp": AT, "x": 1 });
    let path = write(
        &place,
        &[
            header("0011223344556677"),
            user("a", None, "first"),
            user("b", Some("a"), "of the first"),
            user("a", Some("b"), "second"),
            unknown("a"),
            user("c", Some("a"), "last"),
        ],
    );
    let mut host = place.start(&["--session", path.to_str().unwrap()]);
    assert_eq!(host.message_texts(), ["first", "of the first", "second", "last"]);
    let users = host.command_data(json!({ "type": "get_branch_messages" }))["messages"].clone();
    assert_eq!((users.as_array().unwrap().len(), &users[0]["entryId"]), (4, &json!("a")));
    host.run_turn("two");
    let lines = lines_when(&path, "the turn", |lines| line_texts(lines).len() == 6);
    check_chain(&lines);
    assert_eq!((&lines[4]["type"], &lines[4]["x"]), (&json!("alien"), &json!(1)));
    host.close_cleanly();
    let mut again = place.start(&["--session", path.to_str().unwrap()]);
    assert_eq!(again.message_texts(), ["first", "of the first", "second", "last", "two", "ok"]);
    again.close_cleanly();
    assert_eq!(fs::read_to_string(&path).unwrap().lines().count(), lines.len());
}

#[test]
fn a_pipe_in_the_place_of_the_grants_holds_nothing_up() {
    let place = HostFixture::with_ask_rule();
    assert!(Command::new("mkfifo").arg(place.agent.join("grants.jsonl")).status().unwrap().success());
    let mut host = place.start(&[]);
    host.run_turn("one");
    assert_eq!(host.message_texts(), ["one", "ok"]);
}

#[test]
fn a_branch_or_fork_that_died_half_made_is_never_continued() {
    let place = HostFixture::new();
    let mut host = place.start(&[]);
    host.run_turn("one");
    let path = host.session_file();
    let mut lines = lines_with(&path, "\"ok\"");
    host.close_cleanly();
    // Large enough to be imported in several batches.
    let leaf = lines.last().unwrap()["id"].as_str().unwrap().to_owned();
    let filler = "f".repeat(30_000);
    lines.extend((0..60).map(|at| user(&format!("large{at}"), Some(&leaf), &format!("{at}{filler}"))));
    lines.push(user("end", Some(&leaf), "the end"));
    fs::write(&path, lines.iter().map(|line| format!("{line}\n")).collect::<String>()).unwrap();
    let logs = place.agent.join("countersign");
    let known: BTreeSet<PathBuf> = fs::read_dir(&logs).unwrap().map(|entry| entry.unwrap().path()).collect();
    let fork = RpcHost::spawn(RpcHost::omp_command(&place, &["--fork", path.to_str().unwrap()]));
    eventually("some of the fork", || {
        let made = fs::read_dir(&logs).unwrap().map(|entry| entry.unwrap().path());
        let size = made.filter(|path| !known.contains(path)).map(|path| fs::metadata(path).map_or(0, |it| it.len()));
        (size.sum::<u64>() > 600_000).then_some(())
    });
    fork.kill();
    let mut again = place.resume_host();
    assert_eq!((again.session_file(), again.message_texts().len()), (path.clone(), 3));
    again.close_cleanly();
    let folder = path.parent().unwrap();
    assert_eq!(fs::read_dir(folder).unwrap().count(), 1);
    // A repaired file is continued as any other.
    let mut fork = place.start(&["--fork", path.to_str().unwrap()]);
    let made = fork.session_file();
    assert_eq!(fork.message_texts(), ["one", "ok", "the end"]);
    fork.run_turn("in the fork");
    lines_with(&made, "in the fork");
    fork.kill();
    assert_eq!(place.resume_host().session_file(), made);
}
