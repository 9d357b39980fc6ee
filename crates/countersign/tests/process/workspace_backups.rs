//! Files of agents cannot keep a backup from being made, nor put content into it that the agents may not read.

use std::{
    ffi::OsStr,
    fs::{self, File},
    io::Read as _,
    os::unix::{
        ffi::OsStrExt as _,
        fs::{FileExt as _, MetadataExt as _, symlink},
    },
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
};

use countersign_testkit::process::{CommandOutput, GatewayFixture};
use nix::{sys::stat::Mode as NixMode, unistd::mkfifo};
use rustix::fs::{CWD, Mode, OFlags, RenameFlags, mkdirat, openat, renameat_with};
use serde_json::json;

use crate::backups::{all_files, backup, restore, used};

const OUTSIDE: &str = "what no agent may read";

fn workspace(place: &GatewayFixture) -> PathBuf {
    let folder = place.data_dir().join("agents/kitchen");
    fs::create_dir_all(&folder).unwrap();
    folder
}

fn not_copied(output: &CommandOutput) -> Vec<String> {
    let report = output.json();
    report["not_copied"].as_array().unwrap().iter().map(|line| line.as_str().unwrap().to_owned()).collect()
}

/// Says that something is over, also where it fails.
struct FlagOnDrop<'a>(&'a AtomicBool);

impl Drop for FlagOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Has each pair of names in a folder change places, over and over, for as long as `during` runs.
fn while_changing(folder: &Path, pairs: &[[String; 2]], during: impl FnOnce()) {
    let folder = openat(CWD, folder, OFlags::DIRECTORY, Mode::empty()).unwrap();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                for [one, other] in pairs {
                    renameat_with(&folder, one, &folder, other, RenameFlags::EXCHANGE).unwrap();
                }
            }
        });
        let _over = FlagOnDrop(&is_over);
        during();
    });
}

#[test]
fn what_becomes_a_link_or_a_pipe_while_it_is_copied_leads_nowhere_and_ends_nothing() {
    let place = GatewayFixture::new();
    used(&place);
    let outside = place.folder.join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("secret"), OUTSIDE).unwrap();
    let workspace = workspace(&place);
    let mut pairs = Vec::new();
    for number in 0..4 {
        let names = ["file", "folder", "pipe"].map(|kind| ["a", "b"].map(|side| format!("{kind}-{number}-{side}")));
        let [[file, to_file], [folder, to_folder], [other, pipe]] =
            names.clone().map(|pair| pair.map(|name| workspace.join(name)));
        fs::write(file, "x").unwrap();
        symlink(outside.join("secret"), to_file).unwrap();
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("inside"), "x").unwrap();
        symlink(&outside, to_folder).unwrap();
        fs::write(other, "x").unwrap();
        mkfifo(&pipe, NixMode::S_IRWXU).unwrap();
        pairs.extend(names);
    }
    while_changing(&workspace, &pairs, || {
        for number in 0..12 {
            let name = format!("kept-{number}");
            let made = backup(&place, &name, &["--json"]);
            assert_eq!(made.code, Some(0), "{made:?}");
            let copied = place.folder.join(name).join("data/agents");
            // A link may lead there: it is not followed by what copies it.
            let is_inside = |file: &PathBuf| file.canonicalize().is_ok_and(|real| real.starts_with(&copied));
            for file in all_files(&copied).into_iter().filter(is_inside) {
                assert!(!fs::read_to_string(&file).unwrap().contains(OUTSIDE), "{}", file.display());
            }
        }
    });
    assert_eq!(restore(&place, "kept-3", "again", &[]).code, Some(0));
}

#[test]
fn what_is_no_file_is_named() {
    let place = GatewayFixture::new();
    used(&place);
    mkfifo(&workspace(&place).join("pipe"), NixMode::S_IRWXU).unwrap();
    let made = backup(&place, "kept", &["--json"]);
    let missed = not_copied(&made);
    assert!(made.code == Some(0) && missed.len() == 1, "{made:?}");
    assert!(missed[0].ends_with("agents/kitchen/pipe: it is not a file, folder or symlink"), "{missed:?}");
    assert!(made.err.contains(&format!("not copied: {}", missed[0])), "{made:?}");
}

/// Returns the room that a file takes on the disk.
fn room(path: &Path) -> u64 {
    fs::metadata(path).unwrap().blocks() * 512
}

#[test]
fn holes_stay_holes_and_more_of_them_than_can_be_read_are_named() {
    const SIZE: u64 = 8 << 20;
    let place = GatewayFixture::new();
    used(&place);
    let workspace = workspace(&place);
    let sparse = File::create(workspace.join("sparse")).unwrap();
    sparse.write_all_at(b"in the middle", SIZE / 2).unwrap();
    sparse.set_len(SIZE).unwrap();
    if room(&workspace.join("sparse")) > SIZE / 2 {
        // The file system here has no holes.
        return;
    }
    let made = backup(&place, "kept", &["--json"]);
    assert_eq!((made.code, not_copied(&made)), (Some(0), Vec::new()), "{made:?}");
    assert_eq!(restore(&place, "kept", "again", &[]).code, Some(0));
    for copy in ["kept/data/agents/kitchen/sparse", "again/agents/kitchen/sparse"] {
        let copy = place.folder.join(copy);
        assert!(room(&copy) < 1 << 20, "{}", room(&copy));
        assert_eq!(fs::read(&copy).unwrap(), fs::read(workspace.join("sparse")).unwrap());
    }
    File::create(workspace.join("endless")).unwrap().set_len(1 << 40).unwrap();
    let made = backup(&place, "more", &["--json"]);
    let missed = not_copied(&made);
    assert!(made.code == Some(0) && missed.len() == 1 && missed[0].contains("endless"), "{made:?}");
    assert!(missed[0].contains("holes"), "{missed:?}");
    assert!(!place.folder.join("more/data/agents/kitchen/endless").exists());
}

/// Makes, or else follows, folders of one name in each other, and gives the last.
fn nested(from: &Path, name: &str, count: usize, make: bool) -> File {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW;
    let mut folder = openat(CWD, from, flags, Mode::empty()).unwrap();
    for _ in 0..count {
        if make {
            mkdirat(&folder, name, Mode::RWXU).unwrap();
        }
        folder = openat(&folder, name, flags, Mode::empty()).unwrap();
    }
    folder.into()
}

#[test]
fn a_path_that_is_too_long_for_the_system_comes_back_and_folders_without_end_are_named() {
    let place = GatewayFixture::new();
    used(&place);
    let workspace = workspace(&place);
    let long = "long".repeat(50);
    let bottom = nested(&workspace, &long, 30, true);
    let flags = OFlags::CREATE | OFlags::WRONLY;
    let file = openat(&bottom, "file", flags, Mode::RUSR | Mode::WUSR).unwrap();
    rustix::io::write(&file, b"at the bottom").unwrap();
    nested(&workspace, "d", 200, true);
    let made = backup(&place, "kept", &["--json"]);
    let missed = not_copied(&made);
    assert!(made.code == Some(0) && missed.len() == 1, "{made:?}");
    assert!(missed[0].contains("d/d/d") && missed[0].contains("more than 128 folders deep"), "{missed:?}");
    let output = restore(&place, "kept", "again-in-a-folder-with-a-longer-name", &["--json"]);
    assert_eq!((output.code, &output.json()["not_restored"]), (Some(0), &json!([])), "{output:?}");
    let again = place.folder.join("again-in-a-folder-with-a-longer-name/agents/kitchen");
    let bottom = nested(&again, &long, 30, false);
    let mut text = String::new();
    File::from(openat(&bottom, "file", OFlags::RDONLY, Mode::empty()).unwrap()).read_to_string(&mut text).unwrap();
    assert_eq!(text, "at the bottom");
}

#[test]
fn names_that_agents_chose_are_shown_in_one_line_and_hide_nothing() {
    let place = GatewayFixture::new();
    used(&place);
    let workspace = workspace(&place);
    fs::write(workspace.join(OsStr::from_bytes(b"\xffesc\x1b[31m\nbackup    all is well")), "x").unwrap();
    symlink("/nowhere", place.data_dir().join("l\u{1b}[31mred")).unwrap();
    let made = backup(&place, "kept", &[]);
    assert_eq!(made.code, Some(0), "{made:?}");
    for (text, shown) in [(&made.err, r"esc\u{1b}[31m\u{a}backup"), (&made.out, r"l\u{1b}[31mred")] {
        assert!(text.contains(shown) && !text.contains('\u{1b}'), "{made:?}");
    }
    let output = place.run(&["backup", "no\u{1b}[31m/../data/inside", "--config", "config.yaml"]);
    assert!(output.code == Some(1) && !output.err.contains('\u{1b}'), "{output:?}");
}
