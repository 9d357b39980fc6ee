//! Hands libFuzzer's inputs to one of the testkit's targets, whose name the environment says.

#![no_main]

use std::{env, fs, process, sync::OnceLock};

use countersign_testkit::fuzz::{TARGETS, Target};

static TARGET: OnceLock<&'static Target> = OnceLock::new();

libfuzzer_sys::fuzz_target!(
    init: {
        let name = env::var("COUNTERSIGN_FUZZ").unwrap_or_default();
        let Some(target) = TARGETS.iter().find(|target| target.name == name) else {
            eprintln!("COUNTERSIGN_FUZZ names no target: {name:?}");
            process::exit(2);
        };
        // libFuzzer reads words from a file that it is told of when it starts, so they are written by a start before.
        if let Ok(file) = env::var("COUNTERSIGN_FUZZ_WORDS") {
            if let Err(error) = fs::write(&file, target.dictionary()) {
                eprintln!("{file}: {error}");
                process::exit(2);
            }
            process::exit(0);
        }
        TARGET.get_or_init(|| target);
    },
    |bytes: &[u8]| {
        let target = TARGET.get().expect("the start chose one");
        (target.decode)(bytes);
    }
);
