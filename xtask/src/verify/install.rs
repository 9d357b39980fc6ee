//! Installs what the build and the tests need and a bare Debian lacks.
//!
//! What is there is left alone, so that a machine without apt or without root works as long as it has the tools.

use std::{
    path::Path,
    process::{Command, Stdio},
};

use anyhow::{Context as _, bail};

use crate::workspace::cargo_path;

/// A program and the Debian packages that bring it.
struct RequiredTool {
    program: &'static str,
    packages: &'static [&'static str],
    why: &'static str,
}

const TOOLS: &[RequiredTool] = &[
    RequiredTool { program: "cc", packages: &["gcc", "libc6-dev"], why: "SQLite is built from its C source" },
    RequiredTool { program: "make", packages: &["make"], why: "the allocator is built from its C source" },
    RequiredTool { program: "python3", packages: &["python3"], why: "the example host is a Python script" },
    RequiredTool { program: "bash", packages: &["bash"], why: "the bash tool runs it" },
    RequiredTool { program: "curl", packages: &["curl"], why: "pages of the book use it" },
];

/// Components of Rust's toolchain, by the cargo command that needs them.
const COMPONENTS: &[(&str, &str)] = &[("fmt", "rustfmt"), ("clippy", "clippy")];

pub(crate) fn run() -> anyhow::Result<()> {
    let missing: Vec<&RequiredTool> = TOOLS.iter().filter(|tool| !is_on_path(tool.program)).collect();
    for tool in &missing {
        println!("{} is missing: {}", tool.program, tool.why);
    }
    if !missing.is_empty() {
        install_packages(&missing.iter().flat_map(|tool| tool.packages.iter().copied()).collect::<Vec<_>>())?;
    }
    for (command, component) in COMPONENTS {
        if !command_succeeds(Command::new(cargo_path()).args([command, "--version"])) {
            println!("cargo {command} is missing");
            run_checked(Command::new("rustup").args(["component", "add", component]))?;
        }
    }
    Ok(())
}

fn install_packages(packages: &[&str]) -> anyhow::Result<()> {
    let by_hand = format!("install it by hand: apt-get install {}", packages.join(" "));
    if !is_on_path("apt-get") {
        bail!("there is no apt-get here; {by_hand}");
    }
    let apt = AptCommand::new().with_context(|| by_hand)?;
    run_checked(apt.command().arg("update"))?;
    run_checked(apt.command().args(["install", "-y", "--no-install-recommends"]).args(packages))
}

/// apt-get with the rights that it needs.
struct AptCommand(&'static [&'static str]);

impl AptCommand {
    fn new() -> anyhow::Result<Self> {
        if command_succeeds(Command::new("sh").args(["-c", "test \"$(id -u)\" = 0"])) {
            Ok(Self(&["apt-get"]))
        } else if command_succeeds(Command::new("sudo").args(["-n", "true"])) {
            Ok(Self(&["sudo", "-n", "apt-get"]))
        } else {
            bail!("this is not root, and sudo wants a password")
        }
    }

    fn command(&self) -> Command {
        let mut command = Command::new(self.0[0]);
        command.args(&self.0[1..]).env("DEBIAN_FRONTEND", "noninteractive");
        command
    }
}

fn is_on_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| is_file(&folder.join(program)))
}

fn is_file(path: &Path) -> bool {
    path.metadata().is_ok_and(|found| found.is_file())
}

fn command_succeeds(command: &mut Command) -> bool {
    command.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
}

fn run_checked(command: &mut Command) -> anyhow::Result<()> {
    let name = command.get_program().to_string_lossy().into_owned();
    let status = command.status().with_context(|| format!("{name} could not be started"))?;
    if !status.success() {
        bail!("{name} ended with {status}");
    }
    Ok(())
}
