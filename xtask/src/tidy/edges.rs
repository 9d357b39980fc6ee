//! Permitted dependencies between crates.
//!
//! The list holds for normal and for build dependencies. Tests obey it too, with two additions. A crate may dev-depend on itself:
//! that is how its tests get a feature that the product is built without. A crate may dev-depend on testkit if testkit does not
//! depend on that crate, or if the crate is in `PROCESS_TESTED`. Tests in the sources of such a crate must not use testkit: the
//! crate would be compiled twice into them, and its types would not be the same as testkit's.

use std::{collections::BTreeSet, path::Path};

use crate::{
    tidy::{TidyFinding, purity, source::RustSource},
    workspace::{DependencyKind, Package, Workspace},
};

/// Every edge between crates of ours, but testkit's, which may depend on any.
const EDGES: &[(&str, &[&str])] = &[
    ("shell-analysis", &[]),
    ("core", &["shell-analysis"]),
    ("answer-schema", &[]),
    ("protocol", &["answer-schema"]),
    ("models", &[]),
    ("store", &["core"]),
    ("tools", &["core"]),
    ("runtime", &["core", "models", "store", "tools"]),
    ("otlp", &["core", "runtime"]),
    ("files", &[]),
    ("view", &["core", "runtime"]),
    ("config", &["core", "runtime", "files", "view"]),
    ("telegram", &["core", "runtime", "view"]),
    ("mcp-client", &["core", "runtime", "files", "config"]),
    ("agent-dir", &["core", "runtime", "files", "config"]),
    ("http", &["core", "runtime", "files", "view", "config"]),
    ("policy-admin", &["core", "runtime", "files", "view", "config"]),
    ("conversations", &["core", "runtime", "config", "agent-dir"]),
    ("adapter-agent-gate", &["core", "protocol", "runtime", "view", "http", "policy-admin"]),
    ("scripted-model", &[]),
    ("guard", &["files"]),
    ("agent-proxy", &[]),
    ("acp-protocol", &[]),
    ("node-client", &["core", "protocol", "tools", "view", "config", "http"]),
    ("foreign-calls", &["core", "runtime", "view", "http"]),
    ("adapter-hooks", &["core", "runtime", "view", "http", "foreign-calls"]),
    ("adapter-acp", &["core", "protocol", "acp-protocol", "runtime", "view", "conversations"]),
    ("adapter-mcp", &["core", "runtime", "view", "config", "http", "policy-admin", "foreign-calls"]),
    ("adapter-hermes", &["core", "runtime", "view", "config", "http", "conversations"]),
    ("adapter-gsv", &["core", "protocol", "runtime", "files", "view", "config", "telegram", "http", "conversations"]),
    (
        "adapter-omp",
        &["core", "protocol", "runtime", "files", "view", "config", "mcp-client", "agent-dir", "conversations"],
    ),
    ("adapter-gjc", &["core", "protocol", "runtime", "files", "view", "config", "agent-dir", "http", "adapter-omp"]),
    ("api", &["core", "runtime", "view", "config", "http", "policy-admin", "conversations"]),
    ("console", &["core", "runtime", "view", "config", "telegram", "http", "policy-admin", "conversations"]),
    (
        "gateway",
        &[
            "core",
            "protocol",
            "runtime",
            "otlp",
            "files",
            "view",
            "config",
            "telegram",
            "agent-dir",
            "http",
            "policy-admin",
            "mcp-client",
            "conversations",
            "adapter-agent-gate",
            "adapter-hermes",
            "adapter-gsv",
            "foreign-calls",
            "adapter-hooks",
            "adapter-acp",
            "adapter-mcp",
            "adapter-omp",
            "adapter-gjc",
            "api",
            "console",
        ],
    ),
    (
        BINARY,
        &[
            "core",
            "protocol",
            "models",
            "store",
            "tools",
            "runtime",
            "view",
            "config",
            "telegram",
            "agent-dir",
            "http",
            "policy-admin",
            "mcp-client",
            "files",
            "guard",
            "agent-proxy",
            "node-client",
            "scripted-model",
            "adapter-omp",
            "adapter-gjc",
            "gateway",
        ],
    ),
    ("loadtest", &["core", "store", "tools", "runtime"]),
    ("xtask", &["scripted-model"]),
];

const BINARY: &str = "countersign";
const TESTKIT: &str = "testkit";

/// Crates on which testkit depends, and whose tests in `tests/` run the program with it.
const PROCESS_TESTED: &[&str] = &["adapter-gjc", "adapter-gsv", "adapter-omp", "telegram"];

/// Crates from outside that a pure crate must not use directly.
const IMPURE: &[&str] = &[
    "async-std",
    "fastrand",
    "futures-util",
    "getrandom",
    "libc",
    "mio",
    "nix",
    "rand",
    "reqwest",
    "rusqlite",
    "smol",
    "tempfile",
    "tokio",
    "tokio-util",
    "tracing",
];

/// Crates of ours that may use anyhow: only users act on their errors. `node-client` is a command of the binary.
const MAY_USE_ANYHOW: &[&str] = &[BINARY, "node-client", "loadtest", "xtask", TESTKIT];

pub(crate) fn findings(workspace: &Workspace, package: &Package, file: &Path, manifest: &str) -> Vec<TidyFinding> {
    let from = short_name(&package.name);
    let finding = |name: &str, why| TidyFinding {
        file: file.to_path_buf(),
        line: line_of(manifest, name),
        what: format!("{from} → {}", short_name(name)),
        why,
    };
    let mut found = Vec::new();
    if from != TESTKIT && !EDGES.iter().any(|(name, _)| *name == from) {
        let why = "a crate that the list of edges does not know: ARCHITECTURE.md and tidy's list come first";
        found.push(finding(&package.name, why));
    }
    for dependency in &package.dependencies {
        let to = short_name(&dependency.name);
        if is_ours(workspace, &dependency.name) {
            if !is_allowed(workspace, from, to, dependency.kind) {
                found.push(finding(&dependency.name, "not among the edges of ARCHITECTURE.md"));
            }
            continue;
        }
        if dependency.kind == DependencyKind::Dev {
            continue;
        }
        if dependency.name == "anyhow" && !MAY_USE_ANYHOW.contains(&from) {
            found.push(finding("anyhow", "an error is part of the interface: give the operation an enum"));
        }
        if purity::is_pure(&package.name) && IMPURE.contains(&dependency.name.as_str()) {
            let why = "a pure crate decides and does nothing else: no runtime, clock, dice, file or socket";
            found.push(finding(&dependency.name, why));
        }
    }
    found
}

/// Finds uses of testkit in the sources of a crate that only its tests in `tests/` may use.
pub(crate) fn uses_of_testkit(package: &Package, sources: &[RustSource<'_>]) -> Vec<TidyFinding> {
    if !PROCESS_TESTED.contains(&short_name(&package.name)) {
        return Vec::new();
    }
    let in_src = sources.iter().filter(|source| source.file.components().any(|part| part.as_os_str() == "src"));
    in_src
        .flat_map(|source| {
            let lines = source.code_lines().filter(|(_, code)| code.contains("countersign_testkit"));
            lines.map(|(line, _)| TidyFinding {
                file: source.file.to_path_buf(),
                line,
                what: "a use of testkit".to_owned(),
                why: "testkit depends on this crate: only tests in tests/ may use it",
            })
        })
        .collect()
}

fn is_allowed(workspace: &Workspace, from: &str, to: &str, kind: DependencyKind) -> bool {
    if from == TESTKIT || (from == to && kind == DependencyKind::Dev) {
        return true;
    }
    if to == TESTKIT {
        let is_free = PROCESS_TESTED.contains(&from) || !reached_by(workspace, TESTKIT).contains(from);
        return kind == DependencyKind::Dev && from != "xtask" && is_free;
    }
    EDGES.iter().any(|(name, targets)| *name == from && targets.contains(&to))
}

/// Returns every crate of ours that `from` needs to be built, itself included.
fn reached_by<'a>(workspace: &'a Workspace, from: &'a str) -> BTreeSet<&'a str> {
    let mut reached = BTreeSet::from([from]);
    let mut next = vec![from];
    while let Some(name) = next.pop() {
        let packages = workspace.packages.iter().filter(|package| short_name(&package.name) == name);
        for dependency in packages.flat_map(|package| &package.dependencies) {
            let to = short_name(&dependency.name);
            if dependency.kind != DependencyKind::Dev && is_ours(workspace, &dependency.name) && reached.insert(to) {
                next.push(to);
            }
        }
    }
    reached
}

fn is_ours(workspace: &Workspace, name: &str) -> bool {
    workspace.packages.iter().any(|package| package.name == name)
}

/// Returns the name in the list: `countersign-core` is `core` there; the binary keeps its name.
fn short_name(name: &str) -> &str {
    name.strip_prefix("countersign-").unwrap_or(name)
}

/// Returns the line of `manifest` that names `name`, else the first.
fn line_of(manifest: &str, name: &str) -> usize {
    let names = |line: &str| line.trim_start().strip_prefix(name).is_some_and(|rest| rest.starts_with(['.', ' ', '=']));
    manifest.lines().position(names).map_or(1, |index| index + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::Dependency;

    fn package(name: &str, dependencies: &[(&str, DependencyKind)]) -> Package {
        let dependencies =
            dependencies.iter().map(|&(name, kind)| Dependency { name: name.to_owned(), kind }).collect();
        Package { name: name.to_owned(), manifest: "Cargo.toml".into(), dependencies }
    }

    fn whats(name: &str, dependency: &str, kind: DependencyKind) -> Vec<String> {
        let subject = package(name, &[(dependency, kind)]);
        let mut packages = vec![
            package("countersign-shell-analysis", &[]),
            package("countersign-core", &[("countersign-shell-analysis", DependencyKind::Normal)]),
            package("countersign-store", &[("countersign-core", DependencyKind::Normal)]),
            package("countersign", &[]),
            package("countersign-testkit", &[("countersign-store", DependencyKind::Normal)]),
        ];
        packages.retain(|known| known.name != name);
        packages.push(subject.clone());
        let workspace = Workspace { root: "/".into(), target: "/target".into(), packages };
        let found = findings(&workspace, &subject, Path::new("Cargo.toml"), "");
        found.into_iter().map(|finding| finding.what).collect()
    }

    #[test]
    fn only_the_edges_of_the_list_exist() {
        for (name, dependency, kind, want) in [
            ("countersign-store", "countersign-core", DependencyKind::Normal, None),
            ("countersign-core", "countersign-store", DependencyKind::Normal, Some("core → store")),
            ("countersign-core", "countersign-shell-analysis", DependencyKind::Normal, None),
            ("countersign-shell-analysis", "countersign-core", DependencyKind::Normal, Some("shell-analysis → core")),
            ("countersign-shell-analysis", "nix", DependencyKind::Normal, Some("shell-analysis → nix")),
            ("countersign-core", "countersign-store", DependencyKind::Dev, Some("core → store")),
            ("countersign-protocol", "countersign-core", DependencyKind::Build, Some("protocol → core")),
            ("countersign-testkit", "countersign", DependencyKind::Normal, None),
            ("countersign", "countersign-testkit", DependencyKind::Dev, None),
            ("countersign", "countersign-testkit", DependencyKind::Normal, Some("countersign → testkit")),
            ("countersign-core", "countersign-core", DependencyKind::Dev, None),
            ("countersign-core", "countersign-testkit", DependencyKind::Dev, Some("core → testkit")),
            ("countersign-telegram", "countersign-testkit", DependencyKind::Dev, None),
            ("countersign-telegram", "countersign-testkit", DependencyKind::Normal, Some("telegram → testkit")),
            ("xtask", "countersign-core", DependencyKind::Normal, Some("xtask → core")),
            ("countersign-extra", "serde", DependencyKind::Normal, Some("extra → extra")),
            ("countersign-core", "tokio", DependencyKind::Normal, Some("core → tokio")),
            ("countersign-core", "proptest", DependencyKind::Dev, None),
            ("countersign-store", "tokio", DependencyKind::Normal, None),
            ("countersign-store", "anyhow", DependencyKind::Normal, Some("store → anyhow")),
            ("countersign", "anyhow", DependencyKind::Normal, None),
            ("countersign-loadtest", "anyhow", DependencyKind::Normal, None),
        ] {
            let want: Vec<String> = want.into_iter().map(str::to_owned).collect();
            assert_eq!(whats(name, dependency, kind), want, "{name} {dependency} {kind:?}");
        }
    }

    #[test]
    fn sources_of_a_crate_below_testkit_do_not_use_it() {
        let text = "// countersign_testkit\nuse countersign_testkit::process::Gateway;\n";
        let sources: Vec<RustSource<'_>> =
            ["crates/x/src/a.rs", "crates/x/tests/a.rs"].map(|file| RustSource::new(Path::new(file), text)).into();
        for (name, want) in [("countersign-telegram", 1), ("countersign-api", 0)] {
            let found = uses_of_testkit(&package(name, &[]), &sources);
            assert_eq!(found.iter().map(|finding| finding.line).collect::<Vec<_>>(), vec![2; want], "{name}");
        }
    }

    #[test]
    fn a_finding_points_at_the_line_of_the_dependency() {
        assert_eq!(line_of("[dependencies]\nab.workspace = true\na.workspace = true", "a"), 3);
        assert_eq!(line_of("[dependencies]\n", "a"), 1);
    }
}
