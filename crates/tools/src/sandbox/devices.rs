//! Devices that bypass rules on files: the disks that store the files, memory, and the inputs and screens of people.

use std::{
    fs::{self, FileType},
    os::unix::fs::FileTypeExt as _,
    path::{Path, PathBuf},
};

/// Folder of devices.
pub(super) const FOLDER: &str = "/dev";

/// Devices that are no block devices, below the folder, each with or without a number: memory, disks with commands of their own,
/// consoles, virtual keyboards, and the serial lines on which machines have consoles.
const NUMBERED: [&str; 18] = [
    "mem", "kmem", "port", "sg", "console", "fb", "uinput", "uhid", "hidraw", "tty", "ttyS", "ttyAMA", "ttyAML",
    "ttyMSM", "ttyPS", "ttymxc", "hvc", "xvc",
];
/// Other devices, by the beginnings of their paths: contents of consoles, input, and disks of other kinds.
const BEGINNINGS: [&str; 6] = ["bsg/", "input/", "mtd", "nvme", "ng", "vcs"];
/// The terminal of the opening process, which is another for each.
const OWN: &str = "tty";
/// File systems of their own, with nothing of the kind.
const ELSEWHERE: [&str; 4] = ["pts", "shm", "mqueue", "hugepages"];

/// Returns the devices that exist.
pub(super) fn raw_devices() -> Vec<PathBuf> {
    let mut found = Vec::new();
    collect_devices(Path::new(FOLDER), "", &mut found);
    found
}

fn collect_devices(folder: &Path, below: &str, found: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let Ok(kind) = entry.file_type() else { continue };
        let name = format!("{below}{}", entry.file_name().to_string_lossy());
        if kind.is_dir() && !ELSEWHERE.contains(&name.as_str()) {
            collect_devices(&entry.path(), &format!("{name}/"), found);
        } else if is_raw(&name, kind) {
            found.push(entry.path());
        }
    }
}

fn is_raw(name: &str, kind: FileType) -> bool {
    kind.is_block_device() || kind.is_char_device() && is_known(name)
}

/// Returns true if a character device is one of them.
fn is_known(name: &str) -> bool {
    let is_numbered =
        |known: &&str| name.strip_prefix(*known).is_some_and(|rest| rest.bytes().all(|byte| byte.is_ascii_digit()));
    name != OWN && (NUMBERED.iter().any(is_numbered) || BEGINNINGS.iter().any(|known| name.starts_with(known)))
}

#[cfg(test)]
mod tests {
    use super::is_known;

    #[test]
    fn what_leads_to_people_or_around_files_is_known() {
        for name in [
            "mem",
            "port",
            "sg0",
            "bsg/0:0:0:0",
            "nvme0",
            "ng0n1",
            "console",
            "tty0",
            "tty63",
            "vcsa1",
            "input/event3",
            "input/by-path/x",
            "uinput",
            "hidraw0",
            "ttyS0",
            "hvc0",
        ] {
            assert!(is_known(name), "{name}");
        }
        for name in
            ["null", "tty", "ttyACM0", "ttyUSB0", "dri/card0", "kvm", "fuse", "net/tun", "random", "memory", "ports"]
        {
            assert!(!is_known(name), "{name}");
        }
    }
}
