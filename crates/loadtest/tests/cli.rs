//! The command line of the program. These tests also make cargo build the binary that `cargo xtask verify` starts.

use std::process::{Command, Output};

fn loadtest(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_countersign-loadtest"))
        .args(arguments)
        .output()
        .expect("cargo built it for this test")
}

#[test]
fn help_lists_the_three_commands() {
    for arguments in [&["--help"] as &[&str], &["bench", "--help"], &["kill", "-h"]] {
        let output = loadtest(arguments);
        let stdout = String::from_utf8(output.stdout).unwrap();
        assert_eq!(output.status.code(), Some(0), "{arguments:?}");
        for command in ["\n  bench [", "\n  load [", "\n  kill ["] {
            assert!(stdout.contains(command), "{arguments:?}: no {command:?} in {stdout}");
        }
    }
}

#[test]
fn a_wrong_command_or_flag_is_named() {
    for (arguments, code, want) in [
        (&["measure"] as &[&str], 2, "loadtest: unknown command \"measure\"\n"),
        (&["bench", "--speed"], 1, "loadtest: unknown option of bench: \"--speed\"\n"),
        (&["load", "--agents", "0"], 1, "loadtest: --minutes (at most 1440), --agents and --answers must be above 0\n"),
        (&["kill", "--binary", "/nowhere/at/all"], 1, "loadtest: cannot find /nowhere/at/all"),
    ] {
        let output = loadtest(arguments);
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {stderr}");
        assert!(stderr.starts_with(want), "{arguments:?}: {stderr}");
    }
}

#[test]
fn the_yardstick_of_a_start_opens_a_file_and_prints_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let output = loadtest(&["__bench-yardstick", folder.path().join("a.db").to_str().unwrap()]);
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(0), b"open, version 0\n".as_slice()));
}

/// A debug build would measure its own slow clients.
#[cfg(debug_assertions)]
#[test]
fn the_debug_build_measures_nothing() {
    for command in ["bench", "load"] {
        let output = loadtest(&[command]);
        let want =
            format!("loadtest: {command} needs the release build of this program: run `cargo xtask {command}`\n");
        assert_eq!((output.status.code(), String::from_utf8(output.stderr).unwrap()), (Some(1), want));
    }
}
