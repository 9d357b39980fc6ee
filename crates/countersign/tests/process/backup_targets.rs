//! Targets of backups and restores, and the entries that are in their way.

use std::{
    fs::{self, File, TryLockError},
    os::unix::fs::symlink,
    path::Path,
    process::{Child, Stdio},
};

use countersign_testkit::process::{CommandOutput, GatewayFixture, run_command};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use crate::backups::{backup, beginning, is_whole, restore, used};

/// Returns the names of the entries, links not followed.
fn listed(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
    let mut names: Vec<_> = entries.map(|name| name.to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[test]
fn nothing_is_deleted_in_a_folder_of_somebody_else_under_the_name_of_a_part() {
    let place = GatewayFixture::new();
    used(&place);
    assert_eq!(backup(&place, "kept", &[]).code, Some(0));
    let precious = place.folder.join("precious");
    fs::create_dir(&precious).unwrap();
    fs::write(precious.join("gold"), "gold").unwrap();
    let parts = [place.folder.join(".more.part"), place.folder.join(".again.part")];
    let in_the_way = |what: &str| {
        for output in [backup(&place, "more", &[]), restore(&place, "kept", "again", &[])] {
            assert!(
                output.code == Some(1) && output.err.contains("was not created by this program"),
                "{what}: {output:?}"
            );
        }
        assert!(!place.folder.join("more").exists() && !place.folder.join("again").exists(), "{what}");
        assert_eq!(fs::read(precious.join("gold")).unwrap(), b"gold", "{what}");
    };
    parts.iter().for_each(|part| symlink(&precious, part).unwrap());
    in_the_way("a link");
    for part in &parts {
        fs::remove_file(part).unwrap();
        fs::write(part, "gold").unwrap();
    }
    in_the_way("a file");
    for part in &parts {
        assert_eq!(fs::read(part).unwrap(), b"gold");
        fs::remove_file(part).unwrap();
        fs::create_dir(part).unwrap();
        fs::write(part.join("whole"), "gold").unwrap();
    }
    in_the_way("a folder without a mark");
    for part in &parts {
        symlink(precious.join("gold"), part.join("countersign.part")).unwrap();
    }
    in_the_way("a folder with a link for its mark");
    for part in &parts {
        assert_eq!(fs::read(part.join("whole")).unwrap(), b"gold");
        fs::remove_file(part.join("countersign.part")).unwrap();
        fs::write(part.join("countersign.part"), "").unwrap();
        fs::write(part.join("more"), "gold").unwrap();
    }
    in_the_way("a folder with more in it");
    // Remains of an attempt that is interrupted at its very beginning, or later.
    let [first, second] = parts;
    fs::remove_dir_all(&first).unwrap();
    fs::create_dir(&first).unwrap();
    fs::remove_file(second.join("more")).unwrap();
    fs::remove_file(second.join("whole")).unwrap();
    symlink(&precious, second.join("whole")).unwrap();
    assert_eq!(backup(&place, "more", &[]).code, Some(0));
    assert_eq!(restore(&place, "kept", "again", &[]).code, Some(0));
    assert_eq!(fs::read(precious.join("gold")).unwrap(), b"gold");
    assert!(!first.exists() && !second.exists());
}

/// Stops a process where it is.
fn stop(child: &Child) {
    kill(Pid::from_raw(i32::try_from(child.id()).unwrap()), Signal::SIGSTOP).unwrap();
}

#[test]
fn no_gateway_begins_with_a_directory_without_locks_while_it_is_replaced() {
    let place = GatewayFixture::new();
    used(&place);
    assert_eq!(backup(&place, "kept", &[]).code, Some(0));
    let part = place.folder.join(".data.part");
    loop {
        let _ = fs::remove_dir_all(place.data_dir());
        assert_eq!(restore(&place, "kept", "data", &[]).code, Some(0));
        assert!(!place.data_dir().join("countersign.sock.lock").exists());
        let mut command = place.binary_command();
        command.args(["restore", "kept", "--data", "data", "--replace"]);
        let mut child = command.stdout(Stdio::null()).spawn().unwrap();
        while !part.exists() && child.try_wait().unwrap().is_none() {
            std::hint::spin_loop();
        }
        // One that has ended has no number any more.
        if child.try_wait().unwrap().is_none() {
            stop(&child);
        }
        let is_held = |name: &str| {
            let file = File::open(place.data_dir().join(name)).expect("the lock is there");
            matches!(file.try_lock(), Err(TryLockError::WouldBlock))
        };
        // Else it was too fast to be stopped.
        let was_stopped = part.join("whole").exists() && beginning(&place, "data.before-").is_empty();
        let held = was_stopped.then(|| ["countersign.sock.lock", "countersign.db.lock"].map(is_held));
        child.kill().unwrap();
        child.wait().unwrap();
        if let Some(held) = held {
            assert_eq!(held, [true, true]);
            return;
        }
        beginning(&place, "data.before-").iter().for_each(|folder| fs::remove_dir_all(folder).unwrap());
    }
}

#[test]
fn what_a_link_leads_to_is_replaced_and_not_the_link() {
    let place = GatewayFixture::new();
    used(&place);
    assert_eq!(backup(&place, "kept", &[]).code, Some(0));
    let disk = place.folder.join("disk");
    fs::create_dir(&disk).unwrap();
    fs::rename(place.data_dir(), disk.join("real")).unwrap();
    symlink("disk/real", place.data_dir()).unwrap();
    let replaced = restore(&place, "kept", "data", &["--replace", "--json"]);
    assert_eq!(replaced.code, Some(0), "{replaced:?}");
    let before = replaced.json()["before"].as_str().unwrap().to_owned();
    assert!(before.starts_with(disk.join("real.before-").to_str().unwrap()), "{before}");
    assert!(place.data_dir().is_symlink() && disk.join("real/countersign.db").is_file());
    is_whole(&place, "data");
    // The same for one that leads to a folder with nothing in it; what it leads to need not be made by us.
    fs::create_dir(disk.join("empty")).unwrap();
    symlink("disk/empty", place.folder.join("other")).unwrap();
    assert_eq!(restore(&place, "kept", "other", &[]).code, Some(0));
    assert!(place.folder.join("other").is_symlink());
    is_whole(&place, "other");
    fs::create_dir(disk.join("backups")).unwrap();
    symlink("disk/backups", place.folder.join("monday")).unwrap();
    assert_eq!(backup(&place, "monday", &["--data", "other"]).code, Some(0));
    assert!(place.folder.join("monday").is_symlink() && disk.join("backups/backup.json").is_file());
    symlink("disk/nothing", place.folder.join("dangling")).unwrap();
    for name in ["dangling", "dangling/"] {
        for output in [restore(&place, "kept", name, &[]), backup(&place, name, &["--data", "other"])] {
            assert!(output.code == Some(1) && output.err.contains("is a dangling symlink"), "{output:?}");
        }
    }
    assert_eq!(listed(&disk).len(), 4);
}

fn run_in(place: &GatewayFixture, folder: &Path, arguments: &[&str]) -> CommandOutput {
    let mut command = place.binary_command();
    command.args(arguments).current_dir(folder);
    run_command(command)
}

#[test]
fn what_would_fail_at_its_end_or_put_its_source_aside_is_refused_before_it_begins() {
    let place = GatewayFixture::new();
    used(&place);
    let here = place.folder.join("here");
    fs::create_dir(&here).unwrap();
    let data = place.data_dir();
    let output = run_in(&place, &here, &["backup", ".", "--data", data.to_str().unwrap()]);
    assert!(output.code == Some(1) && output.err.contains("is your working folder"), "{output:?}");
    assert!(listed(&here).is_empty() && !place.folder.join(".here.part").exists());
    assert_eq!(backup(&place, "kept", &[]).code, Some(0));
    let inside = restore(&place, "kept", "kept/again", &[]);
    assert!(inside.code == Some(1) && inside.err.contains("is in the backup"), "{inside:?}");
    fs::rename(place.folder.join("kept"), data.join("kept")).unwrap();
    let output = restore(&place, "data/kept", "data", &["--replace"]);
    assert!(output.code == Some(1) && output.err.contains("would be renamed with it: move it"), "{output:?}");
    assert!(data.join("kept/backup.json").is_file() && beginning(&place, "data.before-").is_empty());
}

#[test]
fn a_gateway_is_set_up_again_from_the_settings_of_its_backup() {
    let place = GatewayFixture::new();
    used(&place);
    fs::create_dir_all(place.folder.join("r")).unwrap();
    fs::create_dir_all(place.folder.join("kinds")).unwrap();
    fs::rename(place.folder.join("tools.yaml"), place.folder.join("kinds/desk.yaml")).unwrap();
    fs::rename(place.folder.join("permissions.yaml"), place.folder.join("r/config.yaml")).unwrap();
    let text = fs::read_to_string(place.folder.join("config.yaml")).unwrap();
    place.write_file("linked.yaml", &text.replace("tools: tools.yaml", "tools: kinds/desk.yaml"));
    fs::remove_file(place.folder.join("config.yaml")).unwrap();
    symlink("linked.yaml", place.folder.join("config.yaml")).unwrap();
    let rules = ["--permissions", "r/config.yaml"];
    let made = backup(&place, "kept", &[&rules[..], &["--secrets"]].concat());
    assert_eq!(made.code, Some(0), "{made:?}");
    let settings = place.folder.join("kept/settings");
    assert_eq!(listed(&settings), ["config.yaml", "kinds", "r"]);
    assert!(!settings.join("config.yaml").is_symlink());
    let shown = run_in(&place, &settings, &["config", "show", "--config", "config.yaml"]);
    assert_eq!(shown.code, Some(0), "{shown:?}");
    // From elsewhere a file has nothing but its own name, and another of that name may be there.
    let (text, elsewhere) = (fs::read(place.folder.join("r/config.yaml")).unwrap(), tempfile::tempdir().unwrap());
    let path = elsewhere.path().join("config.yaml");
    fs::write(&path, &text).unwrap();
    let made = backup(&place, "more", &["--permissions", path.to_str().unwrap(), "--secrets"]);
    assert!(made.code == Some(0) && made.out.contains("is settings/2-config.yaml in the backup"), "{made:?}");
    assert_eq!(fs::read(place.folder.join("more/settings/2-config.yaml")).unwrap(), text);
    let plain = backup(&place, "plain", &rules);
    assert_eq!(plain.code, Some(0), "{plain:?}");
    assert_eq!(listed(&place.folder.join("plain/settings")), ["kinds", "r"]);
}
