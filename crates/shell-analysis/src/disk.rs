//! Whole-disk writes and switching the machine off.

use super::{cwd::PossibleCwd, option_words::is_short, word::shown_text};
use crate::path;

/// Reports whether `path` leads to a device from a possible working folder.
pub(super) fn is_device(here: &PossibleCwd, path: &str) -> bool {
    here.possible_dirs().flat_map(|dir| here.reached_paths(dir, path)).any(|path| path::is_device(&path))
}

/// Reports whether a word of `sed` has it overwrite its input. After some letters the rest is their value.
fn edits_in_place(word: &str) -> bool {
    let letters = word.strip_prefix('-').filter(|letters| !letters.starts_with('-'));
    let own = letters.map(|letters| letters.split(['e', 'f', 'l']).next().unwrap_or(letters));
    own.is_some_and(|letters| letters.contains('i')) || word.starts_with("--i")
}

/// Returns the words that may be the target of a copy: those after the first, and the values of the options for it.
fn copy_targets<'w>(arguments: &'w [&'w str]) -> impl Iterator<Item = &'w str> {
    let behind =
        arguments.windows(2).filter(|pair| is_short(pair[0], "t") || pair[0].starts_with("--t")).map(|pair| pair[1]);
    let joined = arguments.iter().filter_map(|word| {
        let long = word.strip_prefix("--t").and_then(|rest| rest.split_once('=')).map(|(_, value)| value);
        long.or_else(|| word.strip_prefix('-')?.split_once('t').map(|(_, value)| value))
    });
    // The first is only read.
    let operands = arguments.iter().copied().filter(|word| !word.starts_with('-')).skip(1);
    operands.chain(behind).chain(joined)
}

/// Reports whether a folder is that of the devices.
fn is_folder_of_devices(here: &PossibleCwd, folder: &str) -> bool {
    folder.contains("dev")
        && here.possible_dirs().flat_map(|dir| here.reached_paths(dir, folder)).any(|folder| folder == "/dev")
}

/// Returns the harm of `program` to a disk or the machine if the shell may be in `here`, in words that follow "because it".
pub(super) fn disk_harm(program: Option<&str>, here: &PossibleCwd, arguments: &[&str]) -> Option<String> {
    let is_device = |word: &str| is_device(here, word);
    let device = |word: &&&str| is_device(word);
    let any = |any_of: &[&str]| arguments.iter().any(|word| any_of.contains(word));
    let writes_to = |device: &str| format!("writes to {}", shown_text(device));
    let behind =
        |option: &str| arguments.iter().filter_map(|word| word.strip_prefix(option)).find(|word| is_device(word));
    // A word that is not literal may be any program; what its arguments say still counts.
    let Some(program) = program else { return behind("of=").map(writes_to) };
    let only_prints = any(&["print"]) && arguments.iter().filter(|word| !word.starts_with('-')).count() < 3;
    let lists = match program {
        // There `-l` loads a table.
        "sgdisk" => any(&["-p", "--print", "-h", "--help", "--version"]) && arguments.len() < 3,
        "parted" => any(&["-l", "--list", "-h", "--help", "--version"]) || only_prints,
        _ => any(&["-l", "--list", "-h", "--help", "--version"]),
    };
    let reason = match program {
        "dd" | "dcfldd" | "dc3dd" => return behind("of=").map(writes_to),
        "wipefs" | "blkdiscard" | "mkswap" | "badblocks" if !any(&["-n", "--no-act", "--help"]) => {
            "overwrites a disk".to_owned()
        }
        "fdisk" | "sfdisk" | "gdisk" | "cgdisk" | "cfdisk" | "sgdisk" | "parted" if !lists => {
            "changes the partitions of a disk".to_owned()
        }
        "cryptsetup" if any(&["luksFormat", "erase", "luksErase", "reencrypt"]) => "overwrites a disk".to_owned(),
        "hdparm" if arguments.iter().any(|word| word.starts_with("--security-erase") || word.starts_with("--trim")) => {
            "erases a disk".to_owned()
        }
        "nvme" if any(&["format", "sanitize"]) => "erases a disk".to_owned(),
        "pvremove" | "vgremove" | "lvremove" | "pvcreate" => "removes a volume".to_owned(),
        "zpool" | "zfs" if any(&["destroy"]) => "destroys a file system".to_owned(),
        "shutdown" | "reboot" | "halt" | "poweroff" if !any(&["--help", "-c", "--version"]) => {
            "stops the machine".to_owned()
        }
        "init" | "telinit" if any(&["0", "6", "1", "s", "S"]) => "stops the machine".to_owned(),
        "userdel" if arguments.iter().any(|word| is_short(word, "r") || *word == "--remove") => {
            "deletes a home".to_owned()
        }
        "deluser" if any(&["--remove-home", "--remove-all-files"]) => "deletes a home".to_owned(),
        "umount" if arguments.iter().any(|word| is_short(word, "a") || *word == "--all") => {
            "takes away every file system".to_owned()
        }
        "systemctl" if any(&["isolate", "start"]) && arguments.iter().any(|word| stops_machine(word)) => {
            "stops the machine".to_owned()
        }
        "systemctl" | "loginctl"
            if any(&["poweroff", "reboot", "halt", "kexec", "rescue", "emergency", "suspend", "hibernate"]) =>
        {
            "stops the machine".to_owned()
        }
        "kill" if arguments.last() == Some(&"-1") && arguments.len() > 1 => "kills every process".to_owned(),
        "killall5" => "kills every process".to_owned(),
        name if name == "mkfs" || name.starts_with("mkfs.") || name == "mke2fs" => {
            "makes a file system over what is there".to_owned()
        }
        "curl" | "wget" | "tar" | "gtar" | "bsdtar" | "rsync" | "xxd" | "qemu-img" | "pv" | "bmaptool" | "openssl"
        | "gpg" | "mkisofs" | "genisoimage" | "xorriso" | "partclone.restore" | "zip" | "7z" => {
            // Alone, or after its option.
            let behind = |word: &&str| word.find("/dev/").filter(|at| *at == 0 || word.starts_with('-'));
            let joined =
                arguments.iter().find_map(|word| behind(word).map(|at| &word[at..])).filter(|path| is_device(path));
            let alone = || arguments.iter().filter(|word| !word.starts_with('-')).find(device).copied();
            // The words of an archiver or an image tool are only read.
            let reads = match program {
                "tar" | "gtar" | "bsdtar" => {
                    let makes = |at: usize, word: &str| match word.strip_prefix("--") {
                        Some(long) => ["cr", "ap", "up", "conc", "cat"].iter().any(|begins| long.starts_with(begins)),
                        None => (at == 0 || word.starts_with('-')) && word.contains(['c', 'r', 'u', 'A']),
                    };
                    !arguments.iter().enumerate().any(|(at, word)| makes(at, word))
                }
                "qemu-img" => any(&["info", "check", "map", "measure", "compare"]),
                "xxd" => arguments.iter().filter(|word| !word.starts_with('-')).count() < 2,
                "pv" => !arguments.iter().any(|word| word.starts_with("-o") || word.starts_with("--o")),
                _ => false,
            };
            return joined.or_else(alone).filter(|_| !reads).map(writes_to);
        }
        "sed" if arguments.iter().any(|word| edits_in_place(word)) => {
            return arguments.iter().filter(|word| word.contains('/')).find(device).map(|device| writes_to(device));
        }
        // Files that go into the folder of devices replace them by name.
        "cp" | "mv" | "install" | "ln" if copy_targets(arguments).any(|word| is_folder_of_devices(here, word)) => {
            "writes over devices".to_owned()
        }
        "shred" | "tee" | "truncate" | "cp" | "mv" | "install" | "ln" | "sponge" | "scrub" | "ddrescue" => {
            let mut operands = arguments.iter().filter(|word| !word.starts_with('-'));
            // The first of them is only read.
            let reads_first = matches!(program, "cp" | "install" | "ddrescue");
            let target = operands.by_ref().skip(usize::from(reads_first)).find(device);
            return target.map(|device| writes_to(device));
        }
        _ => return None,
    };
    Some(reason)
}

/// Reports whether a unit of `systemctl` ends the work of a machine.
fn stops_machine(unit: &str) -> bool {
    let name = unit.strip_suffix(".target").unwrap_or_default();
    matches!(name, "poweroff" | "reboot" | "halt" | "kexec" | "rescue" | "emergency" | "suspend" | "hibernate")
}
