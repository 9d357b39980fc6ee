//! libFuzzer on the testkit's targets: `fuzz/` at the root, built with instrumentation that stable Rust has.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};

use anyhow::{Context as _, bail};

use crate::workspace::{Workspace, cargo_path};

/// Flags that make the compiler count taken edges and show libFuzzer compared values.
const INSTRUMENTED: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares --cfg fuzzing";
/// With a target that is named, instrumentation is for the program alone, and not for what builds it.
const PLATFORM: &str = "x86_64-unknown-linux-gnu";
/// Seconds for one input, and MiB for all of a process.
const BOUNDS: [&str; 2] = ["-timeout=10", "-rss_limit_mb=4096"];

/// Runs libFuzzer on each target in turn. Inputs that reached new code are kept in the build folder, for the next time, and if `keeps` in
/// the repository: as few inputs as reach the same.
pub(super) fn run(workspace: &Workspace, targets: &[&str], keeps: bool, rest: &[String]) -> anyhow::Result<ExitCode> {
    let bounds = fuzzer_bounds(rest)?;
    let program = build_instrumented(workspace)?;
    let findings = workspace.target.join("fuzz");
    for target in targets {
        let (words, found) = (findings.join(format!("{target}.words")), findings.join(format!("corpus/{target}")));
        let kept = empty_folder(findings.join(format!("kept/{target}")))?;
        fs::create_dir_all(&found)?;
        let start = || {
            let mut start = Command::new(&program);
            start.env("COUNTERSIGN_FUZZ", target).current_dir(&workspace.root);
            start
        };
        let errand = |variable: &str, place: &Path| match start().env(variable, place).status()? {
            status if status.success() => Ok(()),
            status => bail!("{target}: {variable}={}: {status}", place.display()),
        };
        errand("COUNTERSIGN_FUZZ_WORDS", &words)?;
        errand("COUNTERSIGN_FUZZ_FOUND", &kept)?;
        let by_hand = workspace.root.join("crates/testkit/fuzz_corpus").join(target);
        let status = start()
            .args(BOUNDS)
            .args(&bounds)
            .arg(format!("-dict={}", words.display()))
            .arg(format!("-artifact_prefix={}/{target}-", findings.display()))
            .args([&found, &kept, &by_hand])
            .status()?;
        if !status.success() {
            bail!(
                "{target}: {status}; again: cargo xtask fuzz {target} --replay with the file that was written to {}",
                findings.display()
            );
        }
        println!("{target}: no finding");
        if keeps {
            let fewest = empty_folder(findings.join(format!("fewest/{target}")))?;
            if !start().args(BOUNDS).arg("-merge=1").arg(&fewest).args([&found, &kept]).status()?.success() {
                bail!("{target}: what was found could not be reduced to what is kept of it");
            }
            errand("COUNTERSIGN_FUZZ_KEEP", &fewest)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Creates an empty folder.
fn empty_folder(folder: PathBuf) -> anyhow::Result<PathBuf> {
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    fs::create_dir_all(&folder)?;
    Ok(folder)
}

/// Translates our options to libFuzzer's.
fn fuzzer_bounds(rest: &[String]) -> anyhow::Result<Vec<String>> {
    let mut bounds = Vec::new();
    let mut minutes = 5.0_f64;
    for pair in rest.chunks(2) {
        match pair {
            [name, value] if name == "--minutes" => {
                minutes = value.parse().with_context(|| format!("--minutes cannot be {value:?}"))?;
            }
            [name, value] if name == "--seed" => bounds.push(format!("-seed={value}")),
            _ => bail!("--guided goes with --minutes and --seed; --replay needs no guide"),
        }
    }
    bounds.push(format!("-max_total_time={:.0}", (minutes * 60.0).max(1.0)));
    Ok(bounds)
}

fn build_instrumented(workspace: &Workspace) -> anyhow::Result<PathBuf> {
    let target = workspace.target.join("guided");
    // The tested versions; other dependencies are added there.
    fs::copy(workspace.root.join("Cargo.lock"), workspace.root.join("fuzz/Cargo.lock"))?;
    let status = Command::new(cargo_path())
        .args(["build", "--release", "--target", PLATFORM, "--manifest-path"])
        .arg(workspace.root.join("fuzz/Cargo.toml"))
        .arg("--target-dir")
        .arg(&target)
        .env("RUSTFLAGS", INSTRUMENTED)
        .status()
        .context("cargo could not be started")?;
    if !status.success() {
        bail!("the instrumented program could not be built: {status}");
    }
    Ok(target.join(PLATFORM).join("release/countersign-guided-fuzz"))
}

#[cfg(test)]
mod tests {
    use super::fuzzer_bounds;

    #[test]
    fn minutes_and_seeds_become_options_of_libfuzzer() {
        let parse_line = |line: &str| {
            let rest: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
            fuzzer_bounds(&rest).map_err(|error| error.to_string())
        };
        for (line, want) in [
            ("", Ok("-max_total_time=300")),
            ("--minutes 0.5", Ok("-max_total_time=30")),
            ("--seed 7 --minutes 60", Ok("-seed=7 -max_total_time=3600")),
            ("--replay file", Err("--guided goes with --minutes and --seed; --replay needs no guide")),
            ("--minutes x", Err("--minutes cannot be \"x\"")),
        ] {
            assert_eq!(
                parse_line(line).map(|bounds| bounds.join(" ")),
                want.map(str::to_owned).map_err(str::to_owned),
                "{line}"
            );
        }
    }
}
