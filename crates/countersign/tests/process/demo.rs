//! The demo and the record that it leaves, from outside: the real binary, no terminal.

use std::{
    io::Write as _,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use countersign_testkit::process::binary_path;
use serde_json::Value;

fn countersign(arguments: &[&str]) -> Command {
    let mut command = Command::new(binary_path());
    command.args(arguments).stdin(Stdio::null());
    command
}

fn stdout(output: &Output) -> String {
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// A demo that has ended, in a folder that goes with it.
struct DemoProcess {
    folder: tempfile::TempDir,
    output: String,
}

impl DemoProcess {
    fn run(flags: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path().join("demo");
        let output = countersign(&["demo", "--dir", dir.to_str().unwrap()]).args(flags).output().unwrap();
        assert_eq!(output.status.code(), Some(0));
        Self { output: stdout(&output), folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join("demo").join(name)
    }

    fn file(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap()
    }

    fn record(&self) -> String {
        self.path("record.db").to_str().unwrap().to_owned()
    }

    fn audit(&self, arguments: &[&str]) -> (Option<i32>, String) {
        let output = countersign(&["audit"]).args(arguments).args(["--log", &self.record()]).output().unwrap();
        (output.status.code(), stdout(&output))
    }

    fn tamper(&self, statement: &str) {
        let connection = rusqlite::Connection::open(self.path("record.db")).unwrap();
        connection.pragma_update(None, "foreign_keys", false).unwrap();
        assert_eq!(connection.execute(statement, []).unwrap(), 1, "{statement}");
    }
}

#[test]
fn the_command_runs_only_if_it_was_allowed_and_the_rest_happens_either_way() {
    for (flags, want, by) in [
        (&["--yes"][..], "Hello, $name!", "Allowed by --yes."),
        (&["--no"], "Hello, $nmae!", "Denied by --no."),
        (&[], "Hello, $nmae!", "Denied: no answer."),
    ] {
        let demo = DemoProcess::run(flags);
        assert!(demo.output.contains("scripted") && demo.output.contains(by), "{flags:?}: {}", demo.output);
        assert!(!demo.output.contains("A person refused"), "{flags:?}: {}", demo.output);
        assert!(!demo.output.contains("flag:--"), "{flags:?}: {}", demo.output);
        let next = "\n  Next: countersign serve, or the guides in docs/start.\n";
        assert!(demo.output.ends_with(next), "{flags:?}: {}", demo.output);
        assert!(demo.output.contains("rm -rf ../published && cp -R . ../published"), "{flags:?}");
        assert!(demo.output.contains("all tests passed"), "{flags:?}");
        assert!(demo.output.contains("chain verified"), "{flags:?}");
        assert!(demo.file("project/greet.sh").contains("Hello, $name!"), "{flags:?}");
        assert!(demo.file("published/greet.sh").contains(want), "{flags:?}");
    }
}

#[test]
fn a_yes_that_is_no_terminals_counts_for_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let mut child = countersign(&["demo", "--dir", folder.path().to_str().unwrap()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"y\ny\n").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    let output = stdout(&output);
    assert!(output.contains("Denied: no answer."), "{output}");
    assert!(output.contains("No terminal is attached, so you cannot answer"), "{output}");
    assert!(!output.contains("A person refused this") && !output.contains("Denied by nobody"), "{output}");
}

#[test]
fn lines_stay_within_80_columns_and_have_no_colours_without_a_terminal() {
    let demo = DemoProcess::run(&["--yes"]);
    for line in demo.output.lines().filter(|line| !line.contains(&demo.record()) && !line.contains("in folder:")) {
        assert!(line.chars().count() <= 80, "{line}");
    }
    assert!(!demo.output.contains('\u{1b}'));
}

#[test]
fn the_scratch_folder_goes_unless_it_is_kept() {
    for (flags, left) in [(&["demo", "--yes"][..], 0), (&["demo", "--yes", "--keep"], 1)] {
        let temporary = tempfile::tempdir().unwrap();
        let output = countersign(flags).env("TMPDIR", temporary.path()).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{flags:?}");
        assert_eq!(temporary.path().read_dir().unwrap().count(), left, "{flags:?}");
    }
}

#[test]
fn a_folder_with_something_in_it_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("mine"), "").unwrap();
    let output = countersign(&["demo", "--yes", "--dir", folder.path().to_str().unwrap()]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("is not empty"));
    assert_eq!(folder.path().read_dir().unwrap().count(), 1);
}

#[test]
fn a_record_that_nobody_touched_verifies_also_against_its_own_head() {
    let demo = DemoProcess::run(&["--no"]);
    let (code, text) = demo.audit(&["verify"]);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("chain     intact"), "{text}");
    let (_, report) = demo.audit(&["verify", "--json"]);
    let report: Value = serde_json::from_str(&report).unwrap();
    let head = report["head"].as_str().unwrap();
    assert_eq!(report["flaw"], Value::Null);
    assert!(demo.output.contains(head));
    assert_eq!(demo.audit(&["verify", "--head", head]).0, Some(0));
}

#[test]
fn every_change_of_a_record_is_found() {
    let last = "(SELECT max(lsn) FROM events)";
    for (statement, want) in [
        (
            "UPDATE events SET facts = replace(facts, '\"denied\"', '\"allowed\"') WHERE facts LIKE '%\"resolution\":\"denied\"%'",
            "does not match the hash chain",
        ),
        ("UPDATE events SET at = at + 1 WHERE lsn = 5", "entry 5 does not match the hash chain"),
        (
            "UPDATE contents SET bytes = CAST(bytes || ' ' AS BLOB) WHERE lsn = 7",
            "the content of entry 7 does not match",
        ),
        ("DELETE FROM events WHERE lsn = 9", "entry 9 is missing"),
        (&format!("DELETE FROM events WHERE lsn = {last}"), "the end of the record is missing: it ended at"),
    ] {
        let demo = DemoProcess::run(&["--no"]);
        let (_, report) = demo.audit(&["verify", "--json"]);
        let report: Value = serde_json::from_str(&report).unwrap();
        demo.tamper(statement);
        let (code, text) = demo.audit(&["verify", "--head", report["head"].as_str().unwrap()]);
        assert_eq!(code, Some(1), "{statement}: {text}");
        assert!(text.contains("FLAW: ") && text.contains(want), "{statement}: {text}");
    }
}

#[test]
fn an_export_has_every_record_with_its_content() {
    let demo = DemoProcess::run(&["--no"]);
    let (code, text) = demo.audit(&["export"]);
    assert_eq!(code, Some(0));
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let positions: Vec<u64> = lines.iter().map(|line| line["lsn"].as_u64().unwrap()).collect();
    assert_eq!(positions, (1..=lines.len() as u64).collect::<Vec<_>>());
    let denied = lines.iter().find(|line| line["facts"]["resolved"]["resolution"] == "denied").unwrap();
    assert_eq!(denied["content"], "the demo was started with --no");
    assert!(demo.output.contains(&format!("{} entries", lines.len())));
}

#[test]
fn a_tail_shows_the_requested_number_of_newest_entries() {
    let demo = DemoProcess::run(&["--yes"]);
    let (code, text) = demo.audit(&["tail", "-n", "3"]);
    assert_eq!((code, text.lines().count()), (Some(0), 3));
    assert!(text.trim_end().ends_with("ended (completed)"), "{text}");
    let (_, all) = demo.audit(&["tail", "-n", "1000", "--json"]);
    let kinds: Vec<String> = all
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["kind"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(kinds.iter().filter(|kind| *kind == "gate").count(), 2);
}

#[test]
fn a_record_that_is_not_there_is_an_error_and_is_not_made() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("none.db");
    for command in ["tail", "verify", "export"] {
        let output = countersign(&["audit", command, "--log", path.to_str().unwrap()]).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{command}");
        assert!(String::from_utf8_lossy(&output.stderr).contains("does not exist"), "{command}");
    }
    assert!(!Path::new(&path).exists());
}

#[test]
fn a_file_that_is_no_record_gets_one_sentence() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    std::fs::write(path("empty.db"), "").unwrap();
    std::fs::write(path("other.db"), "no record ".repeat(1000)).unwrap();
    std::fs::create_dir(path("folder")).unwrap();
    for (name, want) in [
        ("empty.db", "is empty: there is no record in it"),
        ("other.db", "is damaged or not a record"),
        ("folder", "is a folder, not a record"),
    ] {
        let output = countersign(&["audit", "verify", "--log", &path(name)]).output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), stderr), (Some(1), format!("countersign: {} {want}\n", path(name))));
    }
}

#[test]
fn a_demo_that_nobody_reads_to_its_end_has_failed() {
    let temporary = tempfile::tempdir().unwrap();
    let mut child = countersign(&["demo", "--yes"])
        .env("TMPDIR", temporary.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(stderr, "countersign: the output was closed before the demo ended\n");
    assert_eq!(temporary.path().read_dir().unwrap().count(), 0);
}

#[test]
fn the_flags_of_an_adapter_are_listed_and_a_slip_is_corrected() {
    let run_command = |arguments: &[&str]| {
        let output = countersign(arguments).output().unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap())
    };
    for help in [&["omp", "--help"][..], &["omp", "-h"], &["help", "omp"]] {
        let (code, stdout, _) = run_command(help);
        assert!(code == Some(0) && stdout.contains("--permissions FILE"), "{help:?}: {stdout}");
    }
    let version = format!("countersign {}\n", env!("CARGO_PKG_VERSION"));
    assert_eq!(run_command(&["omp", "--version"]), (Some(0), version, String::new()));
    let (code, stdout, problem) = run_command(&["omp", "--mode", "rpc", "--permision", "rules.yaml"]);
    assert_eq!((code, stdout.as_str()), (Some(1), ""));
    assert_eq!(problem, "countersign: --permision is not a known flag; did you mean --permissions?\n");
}

#[test]
fn the_help_names_what_people_use_and_hides_what_they_do_not() {
    let help = stdout(&countersign(&["--help"]).output().unwrap());
    for word in ["demo", "omp", "audit", "Exit codes"] {
        assert!(help.contains(word), "{word}");
    }
    assert!(!help.contains("__"), "{help}");
}
