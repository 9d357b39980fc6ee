use std::{
    fs,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink},
    path::{Path, PathBuf},
};

use countersign_core::call::pins::{FileRole, PathState, Pins, UnreadCause};

use super::{MOST, ShellLine, retake_pins, take_pins};

struct PinFixture {
    folder: tempfile::TempDir,
}

impl PinFixture {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("bin")).unwrap();
        Self { folder }
    }

    fn at(&self, name: &str) -> PathBuf {
        fs::canonicalize(self.folder.path()).unwrap().join(name)
    }

    fn write(&self, name: &str, content: &str) {
        fs::write(self.at(name), content).unwrap();
        fs::set_permissions(self.at(name), fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn take(&self, command: &str) -> Pins {
        let folder = self.at("");
        let path = format!("{}:/usr/bin:/bin", self.at("bin").display());
        take_pins(&ShellLine { command, at: &folder, folder: &folder, home: None, path: Some(&path) })
    }
}

fn script<'a>(pins: &'a Pins, name: &str) -> Option<&'a PathState> {
    pins.files.iter().find(|pin| pin.name == name).map(|pin| &pin.found)
}

#[test]
fn every_way_to_change_what_is_run_is_seen() {
    type FileChange = fn(&PinFixture);
    let changes: [(&str, &str, FileChange, &str); 12] = [
        ("rewritten", "sh x.sh", |case| case.write("x.sh", "two"), "x.sh is not what was approved: it changed"),
        (
            "replaced",
            "sh x.sh",
            |case| {
                case.write("y.sh", "one");
                fs::rename(case.at("y.sh"), case.at("x.sh")).unwrap();
            },
            "another file with the same content",
        ),
        ("through a hard link", "sh x.sh", |case| fs::write(case.at("hard.sh"), "two").unwrap(), "x.sh is not what"),
        (
            "a link turned",
            "sh link.sh",
            |case| {
                fs::remove_file(case.at("link.sh")).unwrap();
                case.write("z.sh", "one");
                symlink("z.sh", case.at("link.sh")).unwrap();
            },
            "link.sh leads to",
        ),
        (
            "a link in between turned",
            "sh chain.sh",
            |case| {
                fs::remove_file(case.at("link.sh")).unwrap();
                case.write("z.sh", "one");
                symlink("z.sh", case.at("link.sh")).unwrap();
            },
            "chain.sh leads to",
        ),
        ("gone", "sh x.sh", |case| fs::remove_file(case.at("x.sh")).unwrap(), "it is gone since the decision"),
        ("there by now", "sh new.sh", |case| case.write("new.sh", "one"), "it was not there at the decision"),
        (
            "a folder replaced",
            "cd sub && sh s.sh",
            |case| {
                fs::rename(case.at("sub"), case.at("old")).unwrap();
                fs::create_dir(case.at("sub")).unwrap();
                fs::hard_link(case.at("old/s.sh"), case.at("sub/s.sh")).unwrap();
            },
            "another folder has its name",
        ),
        ("a name shadowed", "tool", |case| case.write("bin/tool", "#!/bin/sh\n"), "tool is not what was approved"),
        ("a system name shadowed", "ls", |case| case.write("bin/ls", "#!/bin/sh\n"), "ls leads to"),
        (
            "what its first line names",
            "./env.sh",
            |case| case.write("bin/mine", "#!/bin/sh\nexit 1\n"),
            "mine is not what",
        ),
        (
            "a folder in its place",
            "sh x.sh",
            |case| {
                fs::remove_file(case.at("x.sh")).unwrap();
                fs::create_dir(case.at("x.sh")).unwrap();
            },
            "x.sh is not what was approved",
        ),
    ];
    for (name, command, change, want) in changes {
        let case = PinFixture::new();
        case.write("x.sh", "one");
        fs::hard_link(case.at("x.sh"), case.at("hard.sh")).unwrap();
        symlink("x.sh", case.at("link.sh")).unwrap();
        symlink("link.sh", case.at("chain.sh")).unwrap();
        fs::create_dir(case.at("sub")).unwrap();
        case.write("sub/s.sh", "one");
        case.write("bin/mine", "#!/bin/sh\n");
        case.write("env.sh", "#!/usr/bin/env mine\n");
        let then = case.take(command);
        assert_eq!(then.describe_change(&case.take(command)), None, "{name}: nothing changed");
        change(&case);
        let difference = then.describe_change(&case.take(command)).unwrap_or_default();
        assert!(difference.contains(want), "{name}: {difference}");
    }
}

#[test]
fn a_path_that_is_no_file_is_reported_and_never_blocks() {
    let case = PinFixture::new();
    nix::unistd::mkfifo(&case.at("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    fs::create_dir(case.at("folder")).unwrap();
    let pins = case.take("sh pipe; sh folder; sh /dev/zero; sh absent");
    assert!(matches!(script(&pins, "pipe"), Some(PathState::Other { .. })));
    assert!(matches!(script(&pins, "folder"), Some(PathState::Folder { .. })));
    assert!(matches!(script(&pins, "/dev/zero"), Some(PathState::Other { .. })));
    assert_eq!(case.take("sh absent").files.last().map(|pin| &pin.found), Some(&PathState::Absent));
}

#[test]
fn unusual_interpreter_lines_are_reported() {
    let case = PinFixture::new();
    case.write("relative", "#!./interpreter\n");
    case.write("another", "#!/bin/sh ./other.sh\n");
    case.write("plain", "#!/bin/sh -eu\n");
    case.write("by_env", "#!/usr/bin/env sh\n");
    case.write("relative_by_env", "#!/usr/bin/env -S A=1 ./interpreter\n");
    case.write("another_by_env", "#!/usr/bin/env -S sh -e ./other.sh\n");
    for (command, want) in [
        ("./relative", vec!["./relative: what its first line says that runs it, ./interpreter"]),
        ("./another", vec!["./another: what its first line has /bin/sh run"]),
        ("./plain", vec![]),
        ("./by_env", vec![]),
        ("./relative_by_env", vec!["./relative_by_env: what its first line says that runs it, ./interpreter"]),
        ("./another_by_env", vec!["./another_by_env: what its first line has sh run"]),
    ] {
        assert_eq!(case.take(command).unpinned, want, "{command}");
    }
}

#[test]
fn files_that_say_that_they_are_empty_are_read_no_further_than_is_bounded() {
    // These are regular files, some endless; a look ends all the same.
    let case = PinFixture::new();
    let pins = case
        .take("sh /proc/kcore; sh /proc/kmsg; sh /proc/1/mem; sh /proc/1/pagemap; sh /proc/1/maps; sh /proc/version");
    assert!(pins.files.len() >= 6, "{pins:?}");
}

#[test]
fn what_links_to_itself_is_as_good_as_absent() {
    let case = PinFixture::new();
    symlink("loop.sh", case.at("loop.sh")).unwrap();
    assert_eq!(script(&case.take("sh loop.sh"), "loop.sh"), Some(&PathState::Absent));
}

#[test]
fn what_was_known_by_its_marks_is_compared_by_its_marks() {
    // In a user namespace the system's files seem to have no owner, and in a sandbox less may be read.
    let case = PinFixture::new();
    case.write("x.sh", "one");
    let folder = case.at("");
    let line = ShellLine { command: "sh x.sh", at: &folder, folder: &folder, home: None, path: Some("/usr/bin:/bin") };
    let mut then = take_pins(&line);
    let marks = fs::metadata(case.at("x.sh")).unwrap();
    let nanos = |seconds: i64, nanos: i64| seconds * 1_000_000_000 + nanos;
    then.files.last_mut().unwrap().found = PathState::Unread {
        device: marks.dev(),
        inode: marks.ino(),
        size: marks.len(),
        modified: nanos(marks.mtime(), marks.mtime_nsec()),
        changed: nanos(marks.ctime(), marks.ctime_nsec()),
        why: UnreadCause::System,
    };
    assert_eq!(then.describe_change(&retake_pins(&line, &then)), None);
    fs::write(case.at("x.sh"), "four").unwrap();
    assert!(then.describe_change(&retake_pins(&line, &then)).is_some());
}

#[test]
fn a_folder_below_those_of_the_system_has_files_of_its_own() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("skipped: only root may write below /opt");
        return;
    }
    let Ok(folder) = tempfile::tempdir_in("/opt") else {
        eprintln!("skipped: nothing can be made below /opt");
        return;
    };
    let script = folder.path().join("x.sh");
    fs::write(&script, "one").unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let from = |at: &Path, command: &str| {
        take_pins(&ShellLine { command, at, folder: at, home: None, path: Some("/usr/bin:/bin") })
    };
    let own = from(folder.path(), "sh x.sh");
    assert!(own.summary_lines().iter().any(|line| line.starts_with("x.sh, sha256 ")), "{:?}", own.summary_lines());
    let other = from(Path::new("/opt"), &format!("sh {}", script.display()));
    assert_eq!(other.summary_lines(), Vec::<String>::new());
}

#[test]
fn a_file_that_is_too_large_is_known_by_its_marks() {
    let case = PinFixture::new();
    let huge = fs::File::create(case.at("huge.sh")).unwrap();
    huge.set_len(1 << 40).unwrap();
    let then = case.take("sh huge.sh");
    assert!(matches!(script(&then, "huge.sh"), Some(PathState::Unread { why: UnreadCause::TooLarge, .. })));
    assert!(then.summary_lines().iter().any(|line| line.contains("too large")), "{:?}", then.summary_lines());
    huge.set_len(1 << 39).unwrap();
    assert!(then.describe_change(&case.take("sh huge.sh")).is_some());
}

#[test]
fn no_more_files_are_pinned_than_are_bounded() {
    let case = PinFixture::new();
    let lines: Vec<String> = (0..400).map(|at| format!("sh s{at}.sh")).collect();
    (0..400).for_each(|at| case.write(&format!("s{at}.sh"), "true"));
    let pins = case.take(&lines.join("\n"));
    assert_eq!(pins.files.len(), MOST);
    assert!(pins.unpinned.iter().any(|why| why.contains("more than")), "{:?}", pins.unpinned);
}

#[test]
fn files_that_the_line_creates_are_not_pinned_and_reported() {
    let case = PinFixture::new();
    for (command, want) in [
        ("echo true > x.sh && sh x.sh", "x.sh: the line itself writes it"),
        ("cp /etc/hostname x.sh && sh x.sh", "x.sh: not there yet, and a command before it may make it"),
        ("mkdir sub && cd sub && ./x", "sub: not there yet, and a command before it may make it"),
    ] {
        let pins = case.take(command);
        assert!(pins.unpinned.iter().any(|why| why == want), "{command}: {:?}", pins.unpinned);
        assert!(
            pins.files.iter().all(|pin| pin.found != PathState::Absent || pin.role == FileRole::Program),
            "{command}"
        );
    }
}

#[test]
fn a_folder_that_is_not_there_is_pinned_as_that() {
    let case = PinFixture::new();
    let folder = case.at("later");
    let look =
        |command: &str| take_pins(&ShellLine { command, at: Path::new("/"), folder: &folder, home: None, path: None });
    let then = look("ls");
    assert_eq!(then.folder.found, PathState::Absent);
    fs::create_dir(&folder).unwrap();
    assert!(then.describe_change(&look("ls")).is_some());
}
