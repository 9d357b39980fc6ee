//! The transcripts of tests/transcripts, one test each.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use countersign_testkit::transcript;
use countersign_tools::exec::{Launcher, child_main};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/transcripts")
}

/// Starts this test binary as the exec child. The last name matches no test: it only says what is meant.
const AS_CHILD: [&str; 3] = ["--exact", "transcripts::a_child_whose_gateway_is_gone_ends", "as-the-exec-child"];

fn launcher() -> Launcher {
    let program = std::env::current_exe().expect("a test knows its own path");
    Launcher { program, leading_args: AS_CHILD.map(Into::into).to_vec() }
}

#[test]
fn a_child_whose_gateway_is_gone_ends() {
    use std::{
        os::{fd::OwnedFd, unix::net::UnixStream},
        process::{Command, Stdio},
    };

    if std::env::args().any(|argument| argument == AS_CHILD[2]) {
        std::process::exit(i32::from(child_main() != ExitCode::SUCCESS));
    }
    let (ours, its) = UnixStream::pair().unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(AS_CHILD).stdin(OwnedFd::from(its)).stdout(Stdio::null());
    let mut started = child.spawn().unwrap();
    // The other end of the socket is held by the command too.
    drop(child);
    drop(ours);
    assert!(started.wait().unwrap().success());
}

macro_rules! transcripts {
    ($($name:ident)*) => {
        const PLAYED: &[&str] = &[$(stringify!($name)),*];

        $(#[test]
        fn $name() {
            let path = folder().join(concat!(stringify!($name), ".txt"));
            if let Err(problem) = transcript::check(&path, launcher()) {
                panic!("{problem}");
            }
        })*
    };
}

transcripts! {
    plain_text
}

#[test]
fn every_transcript_is_played() {
    let files = std::fs::read_dir(folder()).unwrap().map(|file| file.unwrap().path());
    let files = files.filter(|path| path.extension().is_some_and(|end| end == "txt"));
    let mut names: Vec<String> = files.map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned()).collect();
    names.sort();
    let mut played = PLAYED.to_vec();
    played.sort_unstable();
    assert_eq!(names, played);
}
