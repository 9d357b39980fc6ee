//! A Debian package of what `[package.metadata.deb]` lists, made by `dpkg-deb` alone.
//!
//! `cargo deb` makes one of the same list; this needs nothing but what a Debian machine has, and gives the same bytes for the same
//! binary and commit.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, bail};
use serde_json::Value;

use super::command_output;
use crate::workspace::Workspace;

/// Asset of the package, as the manifest lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct PackageAsset {
    from: PathBuf,
    to: String,
    mode: u32,
}

/// Puts the package into `folder`; nothing where there is no `dpkg-deb`.
pub(super) fn make_package(
    workspace: &Workspace,
    metadata: &Value,
    binary: &Path,
    folder: &Path,
) -> anyhow::Result<Option<PathBuf>> {
    let Ok(architecture) = command_output(Command::new("dpkg").arg("--print-architecture")) else { return Ok(None) };
    let architecture = String::from_utf8(architecture)?.trim().to_owned();
    let packages = metadata["packages"].as_array().context("no packages")?;
    let package = packages.iter().find(|one| one["name"] == "countersign").context("no countersign")?;
    let of = package["manifest_path"].as_str().and_then(|path| Path::new(path).parent()).context("no manifest")?;
    let deb = &package["metadata"]["deb"];
    let tree = folder.join("tree");
    if tree.exists() {
        fs::remove_dir_all(&tree)?;
    }
    for asset in read_assets(deb)? {
        place_asset(workspace, of, binary, &asset, &tree)?;
    }
    let units = of.join("../../packaging/systemd/countersign.service");
    copy_file(&units, &tree.join("usr/lib/systemd/system/countersign.service"), 0o644)?;
    for name in ["LICENSE-MIT", "LICENSE-APACHE"] {
        copy_file(&workspace.root.join(name), &tree.join("usr/share/doc/countersign").join(name), 0o644)?;
    }
    let version = format!("{}-1", package["version"].as_str().context("no version")?);
    let text = |key: &str| deb[key].as_str().unwrap_or_default();
    let control = format!(
        "Package: countersign\nVersion: {version}\nArchitecture: {architecture}\nMaintainer: {}\nSection: {}\nPriority: {}\n\
         Depends: {}\nInstalled-Size: {}\nDescription: {}\n",
        text("maintainer"),
        text("section"),
        text("priority"),
        text("depends").replace("$auto, ", &library_dependencies(&fs::read(binary)?)),
        folder_size(&tree)?.div_ceil(1024),
        package["description"].as_str().unwrap_or_default(),
    );
    write_file(&tree.join("DEBIAN/control"), &control, 0o644)?;
    let kept: Vec<&str> = deb["conf-files"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    write_file(&tree.join("DEBIAN/conffiles"), &(kept.join("\n") + "\n"), 0o644)?;
    for name in ["postinst", "prerm"] {
        let script = fs::read_to_string(of.join(text("maintainer-scripts")).join(name)).context(name)?;
        // debhelper's snippets there start units, which this package leaves to the administrator.
        write_file(&tree.join("DEBIAN").join(name), &script.replace("#DEBHELPER#\n", ""), 0o755)?;
    }
    let package = folder.join(format!("countersign_{version}_{architecture}.deb"));
    let mut command = Command::new("dpkg-deb");
    command.args(["--root-owner-group", "--build"]).arg(&tree).arg(&package);
    let time = command_output(Command::new("git").args(["log", "-1", "--format=%ct"]).current_dir(&workspace.root));
    if let Ok(time) = time {
        // Otherwise the hour of the packing would be in it.
        command.env("SOURCE_DATE_EPOCH", String::from_utf8(time)?.trim());
    }
    command_output(&mut command)?;
    fs::remove_dir_all(&tree)?;
    Ok(Some(package))
}

fn read_assets(deb: &Value) -> anyhow::Result<Vec<PackageAsset>> {
    let one = |asset: &Value| {
        let mode = u32::from_str_radix(asset[2].as_str()?, 8).ok()?;
        Some(PackageAsset { from: asset[0].as_str()?.into(), to: asset[1].as_str()?.to_owned(), mode })
    };
    let listed = deb["assets"].as_array().context("no assets")?;
    listed.iter().map(|asset| one(asset).with_context(|| format!("no asset: {asset}"))).collect()
}

fn place_asset(
    workspace: &Workspace,
    of: &Path,
    binary: &Path,
    asset: &PackageAsset,
    tree: &Path,
) -> anyhow::Result<()> {
    let built = |path: &Path| path.strip_prefix("../../target").ok().map(|rest| workspace.target.join(rest));
    let from = if asset.from == Path::new("target/release/countersign") {
        binary.to_owned()
    } else {
        built(&asset.from).unwrap_or_else(|| of.join(&asset.from))
    };
    let named = asset.from.file_name().context("a file has a name")?;
    let files = match from.file_name().and_then(|name| name.to_str()) {
        Some("*.1") => {
            let above = from.parent().context("a file has a folder")?;
            fs::read_dir(above)?.map(|entry| Ok(entry?.path())).collect::<anyhow::Result<Vec<_>>>()?
        }
        _ => vec![from],
    };
    if files.is_empty() {
        bail!("{}: nothing is there", asset.from.display());
    }
    for file in files {
        // A binary that was named may be called otherwise.
        let name = if named == "*.1" { file.file_name().context("a file has a name")? } else { named };
        let to = if asset.to.ends_with('/') { tree.join(&asset.to).join(name) } else { tree.join(&asset.to) };
        copy_file(&file, &to, asset.mode)?;
    }
    Ok(())
}

fn copy_file(from: &Path, to: &Path, mode: u32) -> anyhow::Result<()> {
    fs::create_dir_all(to.parent().context("a file has a folder")?)?;
    fs::copy(from, to).with_context(|| from.display().to_string())?;
    Ok(fs::set_permissions(to, fs::Permissions::from_mode(mode))?)
}

fn write_file(path: &Path, text: &str, mode: u32) -> anyhow::Result<()> {
    fs::create_dir_all(path.parent().context("a file has a folder")?)?;
    fs::write(path, text).with_context(|| path.display().to_string())?;
    Ok(fs::set_permissions(path, fs::Permissions::from_mode(mode))?)
}

/// Returns the packages with the libraries that a binary names, in the words of `Depends`; nothing where it carries its own.
fn library_dependencies(binary: &[u8]) -> String {
    const MARK: &[u8] = b"GLIBC_2.";
    let number = |at: usize| {
        let rest = &binary[at + MARK.len()..];
        let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).take(4);
        digits.fold(0_u32, |number, digit| number * 10 + u32::from(digit - b'0'))
    };
    let starts = (0..binary.len()).filter(|at| binary[*at] == MARK[0] && binary[*at..].starts_with(MARK));
    starts.map(number).max().map_or_else(String::new, |newest| format!("libc6 (>= 2.{newest}), libgcc-s1, "))
}

fn folder_size(folder: &Path) -> anyhow::Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        bytes += if path.is_dir() { folder_size(&path)? } else { path.metadata()?.len() };
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{PackageAsset, library_dependencies, read_assets};

    #[test]
    fn the_newest_library_that_a_binary_names_is_what_it_needs() {
        assert_eq!(
            library_dependencies(b"\0GLIBC_2.9\0GLIBC_2.34\0GLIBC_2.2.5\0GLIBC_PRIVATE\0"),
            "libc6 (>= 2.34), libgcc-s1, "
        );
        assert_eq!(library_dependencies(b"static GLIB"), "");
    }

    #[test]
    fn what_is_packed_is_what_the_manifest_lists() {
        let listed = json!({ "assets": [["a/b", "usr/bin/", "755"]] });
        let want = PackageAsset { from: "a/b".into(), to: "usr/bin/".to_owned(), mode: 0o755 };
        assert_eq!(read_assets(&listed).unwrap(), [want]);
        assert!(read_assets(&json!({ "assets": [["a/b", "usr/bin/"]] })).is_err());
    }
}
