//! Rules for a member's Cargo.toml: its lints and its dependencies' versions come from the root.

use std::path::Path;

use crate::tidy::TidyFinding;

pub(crate) fn findings(file: &Path, manifest: &str) -> Vec<TidyFinding> {
    let mut found = Vec::new();
    let mut table = "";
    let mut inherits_lints = false;
    for (line, text) in (1..).zip(manifest.lines().map(str::trim)) {
        if text.is_empty() || text.starts_with('#') {
            continue;
        }
        if text.starts_with('[') {
            table = text.trim_matches(['[', ']']);
            continue;
        }
        inherits_lints |= table == "lints" && text == "workspace = true";
        if let Some(name) = own_version(table, text) {
            let what = format!("{name} with a version of its own");
            let why = "versions stand in the root's table, so that one crate has one version";
            found.push(TidyFinding { file: file.to_path_buf(), line, what, why });
        }
    }
    if !inherits_lints {
        let what = "no [lints] workspace = true".to_owned();
        let why = "the workspace's lints hold for every member";
        found.push(TidyFinding { file: file.to_path_buf(), line: 1, what, why });
    }
    found
}

/// Returns the dependency that `text`, a line of `table`, gives a version, path or repository of its own.
fn own_version<'a>(table: &'a str, text: &'a str) -> Option<&'a str> {
    let (key, value) = text.split_once('=')?;
    let (key, value) = (key.trim(), value.trim());
    if table.ends_with("dependencies") {
        let inherits = key.ends_with(".workspace") || value.contains("workspace = true");
        let refines = key.split_once('.').is_some_and(|(_, field)| !is_source(field));
        return (!inherits && !refines).then(|| key.split('.').next().unwrap_or(key));
    }
    let (_, name) = table.split_once("dependencies.")?;
    is_source(key).then_some(name)
}

fn is_source(field: &str) -> bool {
    matches!(field, "version" | "path" | "git")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_and_lints_come_from_the_root() {
        for (manifest, want) in [
            ("[dependencies]\na.workspace = true\nb = { workspace = true, features = [\"c\"] }", vec![]),
            ("[dependencies]\na = \"1\"", vec![(2, "a with a version of its own")]),
            ("[dev-dependencies]\n\na = { version = \"1\" }", vec![(3, "a with a version of its own")]),
            ("[dependencies.a]\nversion = \"1\"", vec![(2, "a with a version of its own")]),
            ("[dependencies.a]\nworkspace = true\nfeatures = [\"b\"]", vec![]),
            (
                "[target.'cfg(unix)'.build-dependencies]\na = { path = \"../a\" }",
                vec![(2, "a with a version of its own")],
            ),
            ("[package]\nversion = \"1\"", vec![]),
        ] {
            let manifest = format!("{manifest}\n[lints]\nworkspace = true\n");
            let found = findings(Path::new("Cargo.toml"), &manifest);
            let found: Vec<_> = found.iter().map(|finding| (finding.line, finding.what.as_str())).collect();
            assert_eq!(found, want, "{manifest}");
        }
    }

    #[test]
    fn a_member_without_the_workspaces_lints_is_found() {
        let found = findings(Path::new("Cargo.toml"), "[package]\nname = \"a\"\n");
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].what, "no [lints] workspace = true");
    }
}
