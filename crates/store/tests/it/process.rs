//! Children of this test binary, and the state of a log after they died.

use std::{
    collections::VecDeque,
    io::{BufRead, BufReader, Read},
    path::{Path, PathBuf},
    process::{self, Command, Stdio},
};

use countersign_core::id::Lsn;
use countersign_store::{
    AppendError, Epoch, Log, LogOptions, LogReadError, Partition, SqliteLog,
    suite::{append_as_owner, text_batch},
};

use crate::log_folder::LogFolder;

const ZERO: Partition = Partition::ZERO;
const DEED: &str = "COUNTERSIGN_STORE_DEED";
const LOG: &str = "COUNTERSIGN_STORE_LOG";

/// A second process of this test binary, doing one thing to one log and reporting its progress on its output: one of its tests,
/// started with [`DEED`], does that in place of what it tests.
pub(crate) struct ChildProcess {
    process: process::Child,
    lines: BufReader<process::ChildStdout>,
}

impl ChildProcess {
    pub(crate) fn spawn(deed: &str, log: &Path) -> Self {
        Self::run(Command::new(std::env::current_exe().unwrap()), deed, log)
    }

    /// Starts one with files limited to 512 or 256 KiB, depending on the shell.
    fn spawn_limited(deed: &str, log: &Path) -> Self {
        let mut command = Command::new("sh");
        command.args(["-c", "trap '' XFSZ; ulimit -f 512; exec \"$0\" \"$@\""]).arg(std::env::current_exe().unwrap());
        Self::run(command, deed, log)
    }

    fn run(mut command: Command, deed: &str, log: &Path) -> Self {
        let test = "process::after_a_kill_every_acknowledged_batch_is_there_and_whole";
        command.args(["--exact", test, "--nocapture", "--test-threads=1"]);
        command.env(DEED, deed).env(LOG, log).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap());
        Self { process, lines }
    }

    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    /// Reads the next line of ours; `None` once the child is gone.
    fn line(&mut self) -> Option<String> {
        loop {
            let mut line = String::new();
            if self.lines.read_line(&mut line).unwrap() == 0 {
                return None;
            }
            // The test harness writes the name of the test in front, without a line break.
            if let Some((_, text)) = line.trim_end().split_once("say: ") {
                return Some(text.to_owned());
            }
        }
    }

    pub(crate) fn wait_for(&mut self, expected: &str) {
        while self.line().expect("the child is still there") != expected {}
    }

    pub(crate) fn let_go(&mut self) {
        drop(self.process.stdin.take());
        assert!(self.process.wait().unwrap().success());
    }

    /// Waits until it is gone. False if it died or failed.
    pub(crate) fn ended_well(mut self) -> bool {
        drop(self.process.stdin.take());
        self.process.wait().unwrap().success()
    }

    fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

impl Drop for ChildProcess {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

fn say(text: &str) {
    println!("say: {text}");
}

async fn do_deed(deed: &str) {
    let path = PathBuf::from(std::env::var_os(LOG).unwrap());
    if deed == "die while rebuilding" {
        return crate::views::die_while_rebuilding(&path);
    }
    let log = SqliteLog::open(path, LogOptions::default()).unwrap();
    match deed {
        "hold" => {
            append_as_owner(&log, Lsn(0), text_batch(&["one"])).await.unwrap();
            say("held");
            std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
        }
        "append" => append_for_ever(&log).await,
        "append until it fails" => append_until_it_fails(&log).await,
        other => panic!("{other}"),
    }
}

async fn append_for_ever(log: &SqliteLog) {
    let epoch = log.take_over(ZERO).await.unwrap();
    let mut submitted = log.head(ZERO).await.unwrap().lsn;
    let large = "content ".repeat(1000);
    let mut pending = VecDeque::new();
    loop {
        // Three are in flight, so that a kill comes between them too.
        while pending.len() < 3 {
            pending.push_back(log.submit_batch(ZERO, epoch, submitted, text_batch(&["a", &large, "c"])).await);
            submitted = Lsn(submitted.0 + 3);
        }
        let head = pending.pop_front().unwrap().await.unwrap();
        say(&format!("acknowledged {head}"));
    }
}

async fn append_until_it_fails(log: &SqliteLog) {
    let text = "content ".repeat(500);
    let epoch = log.take_over(ZERO).await.unwrap();
    let mut head = Lsn(0);
    let failure = loop {
        match log.append(ZERO, epoch, head, text_batch(&[&text])).await {
            Ok(last) => head = last,
            Err(error) => break error,
        }
    };
    say(&format!("acknowledged {head}"));
    say(match failure {
        AppendError::Uncertain(_) => "uncertain",
        AppendError::Io(_) => "not written",
        other => panic!("{other:?}"),
    });
    match log.head(ZERO).await {
        Ok(found) => assert_eq!(found.lsn, head),
        Err(error) => assert!(matches!(error, LogReadError::Unsettled(_)), "{error:?}"),
    }
}

fn acknowledged(line: &str) -> u64 {
    line.strip_prefix("acknowledged ").unwrap().parse().unwrap()
}

#[tokio::test]
async fn after_a_kill_every_acknowledged_batch_is_there_and_whole() {
    if let Ok(deed) = std::env::var(DEED) {
        return do_deed(&deed).await;
    }
    let place = LogFolder::new();
    let (mut before, mut epoch) = (0, Epoch::NONE);
    for acknowledgements in [1, 7, 40] {
        let mut child = ChildProcess::spawn("append", &place.log());
        let mut last = 0;
        for _ in 0..acknowledgements {
            last = acknowledged(&child.line().unwrap());
        }
        child.kill();
        while let Some(line) = child.line() {
            last = acknowledged(&line);
        }
        let log = place.open();
        let head = log.head(ZERO).await.unwrap();
        assert!(head.lsn.0 >= last && last > before, "{} {last} {before}", head.lsn);
        assert_eq!(head.lsn.0 % 3, 0, "a batch has three records");
        let report = log.verify_chain(ZERO, Some(head)).await.unwrap();
        assert_eq!((report.records, report.flaw), (head.lsn.0, None));
        before = head.lsn.0;
        let last_epoch = log.current_epoch(ZERO).await.unwrap();
        assert!(last_epoch > epoch, "{last_epoch} {epoch}");
        epoch = last_epoch;
        log.close().await;
    }
}

#[tokio::test]
async fn a_disk_that_fails_in_a_commit_loses_nothing_that_was_acknowledged() {
    let place = LogFolder::new();
    let mut child = ChildProcess::spawn_limited("append until it fails", &place.log());
    let last = acknowledged(&child.line().unwrap());
    let outcome = child.line().unwrap();
    child.let_go();

    let log = place.open();
    let head = log.head(ZERO).await.unwrap();
    match outcome.as_str() {
        "not written" => assert_eq!(head.lsn.0, last),
        "uncertain" => assert!((last..=last + 1).contains(&head.lsn.0), "{} {last}", head.lsn),
        other => panic!("{other}"),
    }
    assert_eq!(log.verify_chain(ZERO, Some(head)).await.unwrap().flaw, None);
    append_as_owner(&log, head.lsn, text_batch(&["goes on"])).await.unwrap();
}
