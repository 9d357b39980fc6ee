//! Backups of a gateway that runs, and what becomes of them: whole, or not there.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Stdio,
};

use countersign_testkit::process::{
    AGENT_TOKEN, CommandOutput, GatewayFixture, GatewayServer, KITCHEN_TOKEN, SERVICE_TOKEN,
    agent_gate::{AgentClient, executed_result},
};
use serde_json::json;

pub(crate) fn backup(place: &GatewayFixture, name: &str, flags: &[&str]) -> CommandOutput {
    place.run(&[&["backup", name, "--config", "config.yaml"], flags].concat())
}

pub(crate) fn restore(place: &GatewayFixture, from: &str, into: &str, flags: &[&str]) -> CommandOutput {
    place.run(&[&["restore", from, "--data", into], flags].concat())
}

pub(crate) fn is_whole(place: &GatewayFixture, data: &str) {
    let log = place.folder.join(data).join("countersign.db");
    let output = place.run(&["audit", "verify", "--json", "--log", log.to_str().unwrap()]);
    assert_eq!((output.code, &output.json()["flaw"]), (Some(0), &json!(null)), "{output:?}");
}

pub(crate) fn all_files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { all_files(&path) } else { vec![path] }).collect()
}

#[test]
fn a_gateway_that_runs_is_backed_up_and_goes_on_from_there_elsewhere() {
    let place = GatewayFixture::new();
    let gateway = GatewayServer::start(&place);
    let mut agent = AgentClient::connect_authenticated(&gateway, AGENT_TOKEN);
    assert_eq!(agent.call_tool(1, "look", json!({ "thing": "a" })), executed_result(json!({ "did": "/look/a" })));
    agent.request_tool(2, "turn", json!({ "thing": "stove", "way": "on" }));
    let gate = place.wait_gate();
    let made = backup(&place, "kept", &["--json"]);
    assert_eq!(made.code, Some(0), "{made:?}");
    let (made, folder) = (made.json(), place.folder.join("kept"));
    assert!(made["left_out"].as_array().unwrap().contains(&json!("config.yaml")), "{made}");
    for file in all_files(&folder) {
        let text = String::from_utf8_lossy(&fs::read(&file).unwrap()).into_owned();
        for secret in [AGENT_TOKEN, KITCHEN_TOKEN, SERVICE_TOKEN] {
            assert!(!text.contains(secret), "{secret} in {}", file.display());
        }
    }
    assert!(folder.join("settings/permissions.yaml").is_file());
    // Later events are not in it.
    assert_eq!(agent.call_tool(3, "look", json!({ "thing": "b" })), executed_result(json!({ "did": "/look/b" })));

    let restored = restore(&place, "kept", "again", &["--json"]);
    assert_eq!(restored.code, Some(0), "{restored:?}");
    assert_eq!(restored.json()["head"], made["head"]);
    is_whole(&place, "again");
    drop(gateway);
    let gateway = GatewayServer::start_with(&place, &["--data", "again"]);
    let waiting = place.run(&["gates", "list", "--json", "--data", "again"]).json();
    assert_eq!(waiting[0]["id"], json!(gate));
    assert_eq!(place.run(&["gates", "allow", &gate, "--data", "again"]).code, Some(0));
    // Once, and by the gateway that took the other's place.
    place.service.wait_requests("/turn/stove", 1);
    drop(gateway);
    is_whole(&place, "again");
    assert_eq!(place.service.request_count("/turn/stove"), 1);
}

#[test]
fn what_is_there_or_in_use_or_not_what_it_was_is_refused() {
    let place = GatewayFixture::new();
    let early = backup(&place, "kept", &[]);
    assert!(early.code == Some(1) && early.err.contains("does not exist"), "{early:?}");
    let gateway = GatewayServer::start(&place);
    let mut agent = AgentClient::connect_authenticated(&gateway, AGENT_TOKEN);
    assert_eq!(agent.call_tool(1, "look", json!({ "thing": "a" })), executed_result(json!({ "did": "/look/a" })));
    assert_eq!(backup(&place, "kept", &["--secrets"]).code, Some(0));
    assert!(place.folder.join("kept/settings/config.yaml").is_file());
    let unnamed = backup(&place, "other", &["--permissions", "nope.yaml"]);
    assert_eq!((unnamed.code, unnamed.err.contains("nope.yaml does not exist: ")), (Some(1), true), "{unnamed:?}");
    assert!(!place.folder.join("other").exists());
    let again = backup(&place, "kept", &[]);
    assert!(
        again.code == Some(1) && again.err.contains("kept is not empty: choose an empty folder or a new one"),
        "{again:?}"
    );
    for (flags, expected) in [(&[][..], "--replace"), (&["--replace"], "is in use: stop the gateway first")] {
        let output = restore(&place, "kept", "data", flags);
        assert!(output.code == Some(1) && output.err.contains(expected), "{output:?}");
    }
    drop(gateway);
    let output = restore(&place, "kept", "data", &["--replace", "--json"]);
    assert_eq!(output.code, Some(0), "{output:?}");
    let before = PathBuf::from(output.json()["before"].as_str().unwrap());
    assert!(before.join("countersign.db").is_file() && !place.folder.join(".data.part").exists());
    is_whole(&place, "data");

    let log = place.folder.join("kept/data/countersign.db");
    let mut bytes = fs::read(&log).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&log, bytes).unwrap();
    let output = restore(&place, "kept", "other", &[]);
    assert!(output.code == Some(1) && output.err.contains("is missing or was changed"), "{output:?}");
    assert!(!place.folder.join("other").exists());
    fs::write(place.folder.join("kept/data/more"), "x").unwrap();
    let nothing = restore(&place, "nowhere", "other", &[]);
    assert!(
        nothing.code == Some(1)
            && nothing.err.contains("nowhere does not exist: pass a folder that `countersign backup` created"),
        "{nothing:?}"
    );
}

/// Ends a command once `is_under_way`, after a little more each time.
fn killed(place: &GatewayFixture, arguments: &[&str], under_way: &Path, spins: u32) {
    let mut command = place.binary_command();
    let mut child = command.args(arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    while !under_way.exists() && child.try_wait().unwrap().is_none() {
        std::hint::spin_loop();
    }
    for _ in 0..spins {
        let _ = fs::metadata(under_way);
    }
    let _ = child.kill();
    child.wait().unwrap();
}

#[test]
fn whatever_ends_a_backup_or_a_restore_leaves_all_of_it_or_nothing() {
    let place = GatewayFixture::new();
    let gateway = GatewayServer::start(&place);
    let mut agent = AgentClient::connect_authenticated(&gateway, AGENT_TOKEN);
    for id in 0..20 {
        assert_eq!(agent.call_tool(id, "look", json!({ "thing": "a" })), executed_result(json!({ "did": "/look/a" })));
    }
    for number in 0..40 {
        fs::write(place.data_dir().join(format!("agents/file-{number}")), vec![b'x'; 1 << 18]).unwrap();
    }
    for spins in [0, 50, 500, 2_000, 8_000, 20_000] {
        killed(&place, &["backup", "kept", "--config", "config.yaml"], &place.folder.join(".kept.part"), spins);
        let kept = place.folder.join("kept");
        if kept.exists() {
            assert_eq!(restore(&place, "kept", "checked", &[]).code, Some(0));
            fs::remove_dir_all(place.folder.join("checked")).unwrap();
            fs::remove_dir_all(kept).unwrap();
        }
    }
    let made = backup(&place, "kept", &[]);
    assert_eq!(made.code, Some(0), "{made:?}");
    assert!(!place.folder.join(".kept.part").exists());
    for spins in [0, 50, 500, 2_000, 8_000, 20_000] {
        killed(&place, &["restore", "kept", "--data", "again"], &place.folder.join(".again.part"), spins);
        let again = place.folder.join("again");
        if again.exists() {
            is_whole(&place, "again");
            assert_eq!(fs::read_dir(again.join("agents")).unwrap().count(), 40);
            fs::remove_dir_all(again).unwrap();
        }
    }
    assert_eq!(restore(&place, "kept", "again", &[]).code, Some(0));
    is_whole(&place, "again");
}

/// Has a gateway record something, and ends it.
pub(crate) fn used(place: &GatewayFixture) {
    let gateway = GatewayServer::start(place);
    let mut agent = AgentClient::connect_authenticated(&gateway, AGENT_TOKEN);
    assert_eq!(agent.call_tool(1, "look", json!({ "thing": "a" })), executed_result(json!({ "did": "/look/a" })));
}

/// Returns the folders whose names begin so.
pub(crate) fn beginning(place: &GatewayFixture, start: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(&place.folder).unwrap().map(|entry| entry.unwrap().path());
    entries.filter(|path| path.file_name().unwrap().to_string_lossy().starts_with(start)).collect()
}

#[test]
fn whatever_ends_a_replacement_what_was_there_is_never_lost() {
    let place = GatewayFixture::new();
    used(&place);
    assert_eq!(backup(&place, "kept", &[]).code, Some(0));
    // The name of what is put aside is too long for this one, and with it the last step fails.
    let long = "x".repeat(240);
    fs::rename(place.data_dir(), place.folder.join(&long)).unwrap();
    fs::write(place.folder.join(&long).join("live"), "data").unwrap();
    for _ in 0..2 {
        let output = restore(&place, "kept", &long, &["--replace"]);
        assert_eq!(output.code, Some(1), "{output:?}");
        assert_eq!(fs::read(place.folder.join(&long).join("live")).unwrap(), b"data");
        assert!(beginning(&place, ".x").is_empty());
    }
    fs::rename(place.folder.join(&long), place.data_dir()).unwrap();
    for spins in [0, 50, 500, 2_000, 8_000, 20_000] {
        killed(&place, &["restore", "kept", "--data", "data", "--replace"], &place.folder.join(".data.part"), spins);
        let live: Vec<_> = [vec![place.data_dir()], beginning(&place, "data.before-")].concat();
        let live: Vec<_> = live.into_iter().filter(|folder| folder.join("live").exists()).collect();
        assert_eq!(live.len(), 1, "{spins}: {live:?}");
        is_whole(&place, "data");
    }
    assert_eq!(restore(&place, "kept", "data", &["--replace"]).code, Some(0));
    is_whole(&place, "data");
}

#[test]
fn a_configuration_in_the_data_directory_stays_out_of_a_backup_and_is_not_put_aside() {
    let place = GatewayFixture::new();
    used(&place);
    for name in ["config.yaml", "permissions.yaml", "tools.yaml"] {
        fs::rename(place.folder.join(name), place.data_dir().join(name)).unwrap();
    }
    let text = fs::read_to_string(place.data_dir().join("config.yaml")).unwrap();
    fs::write(place.data_dir().join("config.yaml"), text.replace("data/countersign.db", "countersign.db")).unwrap();
    fs::hard_link(place.data_dir().join("config.yaml"), place.data_dir().join("again.yaml")).unwrap();
    let run = |arguments: &[&str]| place.run(&[arguments, &["--config", "data/config.yaml"]].concat());
    let made = run(&["backup", "kept", "--json"]);
    assert_eq!(made.code, Some(0), "{made:?}");
    assert!(made.json()["left_out"].as_array().unwrap().contains(&json!("config.yaml")), "{made:?}");
    for file in all_files(&place.folder.join("kept")) {
        let text = String::from_utf8_lossy(&fs::read(&file).unwrap()).into_owned();
        assert!(!text.contains(AGENT_TOKEN), "{}", file.display());
    }
    assert!(place.folder.join("kept/settings/permissions.yaml").is_file());
    assert_eq!(run(&["backup", "more", "--secrets"]).code, Some(0));
    assert!(place.folder.join("more/settings/config.yaml").is_file());
    let output = run(&["restore", "kept", "--replace"]);
    assert!(output.code == Some(1) && output.err.contains("would be renamed with it: move it"), "{output:?}");
    assert!(place.data_dir().join("config.yaml").is_file());
}

#[test]
fn a_backup_that_fails_keeps_no_room_and_none_lies_in_what_it_copies() {
    let place = GatewayFixture::new();
    used(&place);
    std::os::unix::fs::symlink(place.data_dir(), place.folder.join("link")).unwrap();
    for name in ["data/kept", "link/backups/kept"] {
        let output = backup(&place, name, &[]);
        assert!(output.code == Some(1) && output.err.contains("a folder outside of it"), "{output:?}");
    }
    assert!(!place.data_dir().join("backups").exists());
    let record = rusqlite::Connection::open(place.log_path()).unwrap();
    record.execute_batch("UPDATE contents SET bytes = x'00'").unwrap();
    drop(record);
    let output = backup(&place, "kept", &[]);
    assert_eq!(output.code, Some(1), "{output:?}");
    assert!(beginning(&place, ".kept").is_empty());
}

#[test]
fn a_file_of_an_agent_that_has_no_name_in_text_does_not_keep_the_rest_from_being_copied() {
    use std::os::unix::ffi::OsStrExt as _;
    let place = GatewayFixture::new();
    used(&place);
    let workspace = place.data_dir().join("agents/kitchen");
    fs::create_dir_all(&workspace).unwrap();
    fs::write(workspace.join("fine"), "x").unwrap();
    let odd = workspace.join(std::ffi::OsStr::from_bytes(b"odd\xff"));
    fs::write(&odd, "x").unwrap();
    std::os::unix::fs::symlink("/nowhere", place.data_dir().join("elsewhere")).unwrap();
    let made = backup(&place, "kept", &["--json"]);
    assert_eq!(made.code, Some(0), "{made:?}");
    assert!(made.err.contains("not copied") && made.err.contains("its name is not valid UTF-8"), "{made:?}");
    assert_eq!(made.json()["not_copied"].as_array().unwrap().len(), 1);
    assert!(made.json()["left_out"].as_array().unwrap().contains(&json!("elsewhere")), "{made:?}");
    assert!(place.folder.join("kept/data/agents/kitchen/fine").is_file());
    // Anywhere else it is nothing that may be missing.
    fs::rename(odd, place.data_dir().join(std::ffi::OsStr::from_bytes(b"odd\xff"))).unwrap();
    let output = backup(&place, "more", &[]);
    assert!(output.code == Some(1) && output.err.contains("has a name that is not valid UTF-8"), "{output:?}");
}
