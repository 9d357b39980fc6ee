//! A data directory that belongs to the user of a gateway, in which root works.

use std::{
    fs,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _, lchown, symlink},
    path::Path,
    process::Command,
};

use countersign_testkit::process::{
    AGENT_TOKEN, GatewayFixture, GatewayServer,
    agent_gate::{AgentClient, executed_result},
    binary_path, run_command,
};
use serde_json::json;

/// Owner of the directory. No account needs to exist for it.
const OWNER: (u32, u32) = (4711, 4712);

/// Gives a folder away; false where only its own user works here.
fn given(folder: &Path) -> bool {
    fs::create_dir_all(folder).unwrap();
    lchown(folder, Some(OWNER.0), Some(OWNER.1)).is_ok()
}

fn owners(folder: &Path) -> Vec<(u32, u32)> {
    let mut found: Vec<(u32, u32)> = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let of = fs::symlink_metadata(&path).unwrap();
        found.push((of.uid(), of.gid()));
        if of.is_dir() {
            found.extend(owners(&path));
        }
    }
    found
}

#[test]
fn what_root_makes_in_it_is_its_owners() {
    let place = GatewayFixture::new();
    if !given(&place.data_dir()) {
        return;
    }
    fs::set_permissions(&place.folder, fs::Permissions::from_mode(0o755)).unwrap();
    let made = place.run_as_person(&["tokens", "add", "ci", "--scope", "admin"]);
    assert_eq!(made.code, Some(0), "{made:?}");
    place.write_file("value", "a-secret-of-enough-bytes\n");
    let set = place.run_as_person(&["secret", "set", "KEY", "--from", "value"]);
    assert_eq!(set.code, Some(0), "{set:?}");
    let found = owners(&place.data_dir());
    assert!(found.len() >= 3 && found.iter().all(|of| *of == OWNER), "{found:?}");
    // A link that its owner put there leads root nowhere.
    let outside = place.write_file("outside", "root's\n");
    fs::remove_file(place.data_dir().join("tokens.json")).unwrap();
    symlink(&outside, place.data_dir().join("tokens.json")).unwrap();
    assert_eq!(place.run_as_person(&["tokens", "add", "other", "--scope", "read"]).code, Some(1));
    assert_eq!(fs::read_to_string(outside).unwrap(), "root's\n");
}

#[test]
fn what_root_restores_into_it_is_its_owners() {
    let place = GatewayFixture::new();
    if !given(&place.folder.join("again")) {
        return;
    }
    let mut gateway = GatewayServer::start(&place);
    let mut agent = AgentClient::connect_authenticated(&gateway, AGENT_TOKEN);
    assert_eq!(agent.call_tool(1, "look", json!({ "thing": "a" })), executed_result(json!({ "did": "/look/a" })));
    assert_eq!(place.run_as_person(&["backup", "kept"]).code, Some(0));
    assert_eq!(gateway.stop().code, Some(0));
    for more in [&[][..], &["--replace"]] {
        let restored = place.run(&[&["restore", "kept", "--data", "again"], more].concat());
        assert_eq!(restored.code, Some(0), "{restored:?}");
        let again = fs::metadata(place.folder.join("again")).unwrap();
        assert_eq!((again.uid(), again.gid(), again.mode() & 0o777), (OWNER.0, OWNER.1, 0o700));
        let found = owners(&place.folder.join("again"));
        assert!(found.iter().all(|of| *of == OWNER), "{found:?}");
    }
    // So is one that was not there, in a folder of another user.
    let restored = place.run(&["restore", "kept", "--data", "again/below"]);
    assert_eq!(restored.code, Some(0), "{restored:?}");
    let found = owners(&place.folder.join("again/below"));
    assert!(!found.is_empty() && found.iter().all(|of| *of == OWNER), "{found:?}");
}

#[test]
fn the_packaged_configuration_is_read_and_names_the_record_of_the_packaged_unit() {
    let packaging = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging");
    let config = format!("{packaging}/debian/config.yaml");
    let mut command = Command::new(binary_path());
    command.args(["config", "show", "--json", "--config", &config]);
    let shown = run_command(command);
    assert_eq!(shown.code, Some(0), "{shown:?}");
    let unit = fs::read_to_string(format!("{packaging}/systemd/countersign.service")).unwrap();
    let data = unit.split(" --data ").nth(1).and_then(|rest| rest.split_whitespace().next()).unwrap();
    assert!(shown.out.contains(&format!("{data}/countersign.db")), "{data}: {}", shown.out);
}
