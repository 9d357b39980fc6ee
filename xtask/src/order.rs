//! `cargo xtask order`: which functions the program calls until it is idle, so that the linker puts them beside each other.
//!
//! The kernel maps a program's file in windows around each page that is touched. Four thousand small functions that lie
//! scattered over forty megabytes take half of it into memory; side by side they take a few. The build script hands the list
//! to the linker, which passes over names that are not there any more: a list that is old costs memory, and nothing else.

use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};

use anyhow::{Context as _, bail};
use serde_json::json;

use crate::{
    bench::{
        gateway::{self, Gateway},
        host::Host,
        provider::Provider,
        scratch::Scratch,
        socket::{Socket, request},
        web,
    },
    workspace::{Workspace, cargo},
};

/// Where the build script looks for it.
const LIST: &str = "crates/countersign/start.order";

/// What is looked at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Options {
    /// A release binary with its symbols; none builds one.
    binary: Option<PathBuf>,
}

impl Options {
    pub(crate) fn parse(arguments: &[String]) -> anyhow::Result<Self> {
        let binary = crate::only_binary(arguments).context("usage: cargo xtask order [--binary FILE]")?;
        Ok(Self { binary })
    }
}

pub(crate) fn run(workspace: &Workspace, options: &Options) -> anyhow::Result<ExitCode> {
    let binary = match &options.binary {
        Some(binary) => binary.clone(),
        None => {
            let target = workspace.target.join("order");
            let mut build = Command::new(cargo());
            build.args(["build", "--release", "-p", "countersign", "--target-dir"]).arg(&target);
            build.env("CARGO_PROFILE_RELEASE_STRIP", "none").current_dir(&workspace.root);
            if !build.status().context("cargo could not be started")?.success() {
                bail!("the release build failed");
            }
            target.join("release/countersign")
        }
    };
    let traces = Scratch::new("order")?;
    let watched = watched(&binary, traces.path())?;
    eprintln!("watching serve");
    serve(&watched)?;
    eprintln!("watching the stdio doors");
    for (arguments, folder) in [
        (["omp", "--mode", "rpc", "--no-title"].as_slice(), "PI_CODING_AGENT_DIR"),
        (["gjc", "--mode", "rpc"].as_slice(), "GJC_CODING_AGENT_DIR"),
    ] {
        let provider = Provider::start(Vec::new())?;
        let scratch = Scratch::with_agent(&provider.base_url())?;
        let mut host = Host::spawn_as(&watched, &scratch, arguments, folder)?;
        host.ask("get_state", &[])?;
        host.end()?;
    }
    let mut called = BTreeSet::new();
    for entry in fs::read_dir(traces.path())? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "trace") {
            called.extend(functions(&fs::read_to_string(&path)?));
        }
    }
    if called.len() < 1_000 {
        bail!("only {} functions were seen: is {} stripped?", called.len(), binary.display());
    }
    let list: String = called.iter().map(|name| format!("{name}\n")).collect();
    fs::write(workspace.root.join(LIST), list)?;
    println!("{LIST}: {} functions", called.len());
    Ok(ExitCode::SUCCESS)
}

/// A gateway until it has answered an agent and a browser.
fn serve(binary: &Path) -> anyhow::Result<()> {
    let gateway = Gateway::start(binary, gateway::service()?, None)?;
    let mut agent = Socket::join(&gateway.address)?;
    agent.send(request(1, "look", &json!({ "thing": "lamp" })))?;
    agent.executed()?;
    let mut browser = web::Client::connect(gateway.address.parse()?)?;
    for path in ["/console/", "/api/approval/pending?session_id=agent:default"] {
        browser.get(path)?;
    }
    gateway.end()
}

/// A program that runs `binary` under callgrind, which writes into `folder` what was called.
fn watched(binary: &Path, folder: &Path) -> anyhow::Result<PathBuf> {
    let script = folder.join("watched");
    let (binary, to) = (binary.display(), folder.join("%p.trace"));
    let text = format!(
        "#!/bin/sh\nexec valgrind --quiet --tool=callgrind --demangle=no '--callgrind-out-file={}' '{binary}' \"$@\"\n",
        to.display()
    );
    fs::write(&script, text)?;
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755))?;
    Ok(script)
}

/// The functions that a trace names. Those whose names change with the rest of their unit are left out.
fn functions(trace: &str) -> impl Iterator<Item = String> {
    let is_symbol = |name: &&str| {
        let is_part = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'$');
        !name.is_empty() && name.bytes().all(is_part) && !name.starts_with("0x") && !name.contains(".llvm.")
    };
    let name = |line: &str| {
        let rest = line.strip_prefix("fn=(").or_else(|| line.strip_prefix("cfn=("))?;
        // A name stands where its number comes first; a call of itself has a mark behind it.
        let (_, name) = rest.split_once(") ")?;
        Some(name.split_once('\'').map_or(name, |(name, _)| name).to_owned())
    };
    trace.lines().filter_map(name).filter(move |name| is_symbol(&name.as_str())).collect::<Vec<_>>().into_iter()
}

#[cfg(test)]
mod tests {
    use super::functions;

    #[test]
    fn a_trace_names_each_function_where_its_number_comes_first() {
        let trace = "fl=(1) x.rs\nfn=(1) _ZN4core3fmt17h1E\n1 2\ncfn=(2) sqlite3_open\ncalls=1 2\nfn=(2)\ncfn=(3) main'2\n\
                     fn=(4) _ZN1a17h2E.llvm.77\nfn=(5) ???:0x12\nfn=(6) 0x0000000000001050\n";
        assert_eq!(functions(trace).collect::<Vec<_>>(), ["_ZN4core3fmt17h1E", "sqlite3_open", "main"]);
    }
}
