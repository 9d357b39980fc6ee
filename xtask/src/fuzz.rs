//! `cargo xtask fuzz`: runs the testkit's fuzz loop, optimised, on one decoder or on each in turn; with `--guided` libFuzzer in its place.

mod guided;

use std::process::{Command, ExitCode};

use anyhow::{Context as _, bail};

use crate::workspace::{Workspace, cargo_path};

/// Targets, mode and duration; all other arguments are passed on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Options {
    target: Option<String>,
    steered: FuzzMode,
    /// True if the inputs that a guided run found are kept in the repository.
    keeps: bool,
    rest: Vec<String>,
}

/// Source of inputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FuzzMode {
    /// By chance.
    Not,
    /// By which code the inputs before reached. Needs a C++ compiler.
    ByCoverage,
}

/// The targets that the loop knows.
const TARGETS: &[&str] = &[
    "lines",
    "commands",
    "gjc-commands",
    "session-file",
    "gsv",
    "openai-completions",
    "openai-responses",
    "anthropic-messages",
    "google-generative-ai",
    "shell",
    "shell-in-bash",
    "gjc-schema",
    "agent-gate",
    "gsv-settings",
    "log-record",
    "settings",
    "rules",
    "telegram",
    "webhook",
    "acp",
    "body",
];

impl Options {
    pub(crate) fn parse(arguments: &[String]) -> anyhow::Result<Self> {
        let mut options = Self { target: None, steered: FuzzMode::Not, keeps: false, rest: Vec::new() };
        let mut arguments = arguments.iter();
        while let Some(argument) = arguments.next() {
            match argument.as_str() {
                "--minutes" | "--seed" | "--replay" => {
                    let value = arguments.next().with_context(|| format!("{argument} wants a value"))?;
                    options.rest.extend([argument.clone(), value.clone()]);
                }
                "--guided" => options.steered = FuzzMode::ByCoverage,
                "--keep" => options.keeps = true,
                target if options.target.is_none() && TARGETS.contains(&target) => {
                    options.target = Some(target.to_owned());
                }
                unknown => bail!("unknown target {unknown:?}: one of {}", TARGETS.join(", ")),
            }
        }
        if options.target.is_none() && options.rest.iter().any(|argument| argument == "--replay") {
            bail!("--replay wants a target");
        }
        if options.keeps && options.steered == FuzzMode::Not {
            bail!("--keep goes with --guided: only that knows which inputs reach what no other does");
        }
        Ok(options)
    }
}

pub(crate) fn run(workspace: &Workspace, options: &Options) -> anyhow::Result<ExitCode> {
    let targets: Vec<&str> = options.target.as_deref().map_or_else(|| TARGETS.to_vec(), |target| vec![target]);
    if options.steered == FuzzMode::ByCoverage {
        return guided::run(workspace, &targets, options.keeps, &options.rest);
    }
    for target in targets {
        let status = Command::new(cargo_path())
            .args(["run", "--release", "-p", "countersign-testkit", "--example", "fuzz", "--"])
            .arg(target)
            .args(&options.rest)
            .arg("--findings")
            .arg(workspace.target.join("fuzz"))
            .current_dir(&workspace.root)
            .status()
            .context("cargo could not be started")?;
        if !status.success() {
            bail!("{target}: the loop ended with {status}");
        }
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Options, String> {
        let arguments: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        Options::parse(&arguments).map_err(|error| error.to_string())
    }

    #[test]
    fn arguments_name_at_most_one_known_target() {
        let options = |target: Option<&str>, rest: &[&str]| {
            Ok(Options {
                target: target.map(str::to_owned),
                steered: FuzzMode::Not,
                keeps: false,
                rest: rest.iter().map(|&argument| argument.to_owned()).collect(),
            })
        };
        let known = format!("one of {}", TARGETS.join(", "));
        for (line, want) in [
            ("", options(None, &[])),
            ("lines --minutes 5", options(Some("lines"), &["--minutes", "5"])),
            ("--seed 7 shell", options(Some("shell"), &["--seed", "7"])),
            ("lines shell", Err(format!("unknown target \"shell\": {known}"))),
            ("--minutes", Err("--minutes wants a value".to_owned())),
            ("--replay f", Err("--replay wants a target".to_owned())),
        ] {
            assert_eq!(parse(line), want, "{line}");
        }
        let guided = |line| parse(line).map(|options| (options.steered, options.keeps, options.rest.len()));
        assert_eq!(guided("shell --guided --minutes 5"), Ok((FuzzMode::ByCoverage, false, 2)));
        assert_eq!(guided("--guided --keep"), Ok((FuzzMode::ByCoverage, true, 0)));
        let alone = "--keep goes with --guided: only that knows which inputs reach what no other does";
        assert_eq!(guided("shell --keep"), Err(alone.to_owned()));
    }
}
