//! Hands libFuzzer's inputs to one of the testkit's targets, whose name the environment says.

#![no_main]

use std::{env, fs, io, path::Path, process, sync::OnceLock};

use countersign_testkit::fuzz::{TARGETS, FuzzTarget};

static TARGET: OnceLock<&'static FuzzTarget> = OnceLock::new();

libfuzzer_sys::fuzz_target!(
    init: {
        let name = env::var("COUNTERSIGN_FUZZ").unwrap_or_default();
        let Some(target) = TARGETS.iter().find(|target| target.name == name) else {
            eprintln!("COUNTERSIGN_FUZZ names no target: {name:?}");
            process::exit(2);
        };
        // libFuzzer reads files that it is told of when it starts, so they are written by a start before, and kept by one behind.
        let errands: [(&str, Errand); 3] =
            [("COUNTERSIGN_FUZZ_WORDS", words), ("COUNTERSIGN_FUZZ_FOUND", found), ("COUNTERSIGN_FUZZ_KEEP", keep)];
        for (variable, errand) in errands {
            let Ok(place) = env::var(variable) else { continue };
            if let Err(error) = errand(target, Path::new(&place)) {
                eprintln!("{place}: {error}");
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

/// Something that is done with a file or folder in the place of fuzzing.
type Errand = fn(&FuzzTarget, &Path) -> io::Result<()>;

fn words(target: &FuzzTarget, file: &Path) -> io::Result<()> {
    fs::write(file, target.libfuzzer_dictionary())
}

/// Lays what was kept out as files, as libFuzzer reads it.
fn found(target: &FuzzTarget, folder: &Path) -> io::Result<()> {
    for (number, input) in target.found_inputs()?.into_iter().enumerate() {
        fs::write(folder.join(number.to_string()), input)?;
    }
    Ok(())
}

fn keep(target: &FuzzTarget, folder: &Path) -> io::Result<()> {
    target.keep_inputs(folder)
}
