//! Everything that a binary is made of, in the form of CycloneDX.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Context as _;
use serde_json::{Value, json};

/// Makes it for `package` of what `cargo metadata` says; tests and tools of the workspace are not part of it.
pub(super) fn for_package(metadata: &Value, package: &str) -> anyhow::Result<Value> {
    let packages = by_id(&metadata["packages"]).context("no packages")?;
    let nodes = by_id(&metadata["resolve"]["nodes"]).context("nothing is resolved")?;
    let is_root = |one: &&&Value| one["name"] == package && one["source"].is_null();
    let root = packages.values().find(is_root).with_context(|| format!("there is no package {package}"))?;
    let root = root["id"].as_str().context("a package without an id")?;
    let (mut seen, mut left) = (BTreeSet::new(), vec![root]);
    let mut edges: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    while let Some(id) = left.pop() {
        if !seen.insert(id) {
            continue;
        }
        let of = edges.entry(package_url(packages[id])).or_default();
        for on in nodes[id]["deps"].as_array().into_iter().flatten() {
            let is_of_tests = |kind: &Value| kind["kind"] == "dev";
            if on["dep_kinds"].as_array().is_some_and(|kinds| kinds.iter().all(is_of_tests)) {
                continue;
            }
            let Some(on) = on["pkg"].as_str() else { continue };
            of.insert(package_url(packages[on]));
            left.push(on);
        }
    }
    let parts: BTreeMap<String, Value> = seen
        .iter()
        .filter(|id| **id != root)
        .map(|id| (package_url(packages[*id]), component_json(packages[*id], "library")))
        .collect();
    let edges: Vec<Value> = edges.into_iter().map(|(of, on)| json!({ "ref": of, "dependsOn": on })).collect();
    Ok(json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": { "component": component_json(packages[root], "application") },
        "components": parts.into_values().collect::<Vec<_>>(),
        "dependencies": edges,
    }))
}

fn by_id(list: &Value) -> Option<BTreeMap<&str, &Value>> {
    list.as_array()?.iter().map(|one| Some((one["id"].as_str()?, one))).collect()
}

/// Returns the package URL of a package.
fn package_url(package: &Value) -> String {
    let text = |key: &str| package[key].as_str().unwrap_or_default().to_owned();
    format!("pkg:cargo/{}@{}", text("name"), text("version"))
}

fn component_json(package: &Value, kind: &str) -> Value {
    let mut part = json!({
        "type": kind,
        "bom-ref": package_url(package),
        "name": package["name"],
        "version": package["version"],
        "purl": package_url(package),
    });
    if let Some(license) = package["license"].as_str() {
        // The slash is cargo's old word for OR.
        part["licenses"] = json!([{ "expression": license.replace('/', " OR ").replace("  ", " ") }]);
    }
    part
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::for_package;

    #[test]
    fn what_only_tests_need_is_no_part_of_it() {
        let package = |name: &str, source: Option<&str>| json!({ "id": name, "name": name, "version": "1.0.0", "license": "MIT/Apache-2.0", "source": source });
        let on = |name: &str, kind: Option<&str>| json!({ "pkg": name, "dep_kinds": [{ "kind": kind }] });
        let metadata = json!({
            "packages": [package("ours", None), package("used", Some("r")), package("deep", Some("r")), package("tests", Some("r"))],
            "resolve": { "nodes": [
                { "id": "ours", "deps": [on("used", None), on("tests", Some("dev"))] },
                { "id": "used", "deps": [on("deep", Some("build"))] },
                { "id": "deep", "deps": [] },
                { "id": "tests", "deps": [] },
            ] },
        });
        let parts = for_package(&metadata, "ours").unwrap();
        let names: Vec<&str> =
            parts["components"].as_array().unwrap().iter().filter_map(|one| one["name"].as_str()).collect();
        assert_eq!(names, ["deep", "used"]);
        assert_eq!(parts["components"][0]["licenses"][0]["expression"], "MIT OR Apache-2.0");
        assert_eq!(
            parts["dependencies"][1],
            json!({ "ref": "pkg:cargo/ours@1.0.0", "dependsOn": ["pkg:cargo/used@1.0.0"] })
        );
        assert!(for_package(&metadata, "nobody").is_err());
    }
}
