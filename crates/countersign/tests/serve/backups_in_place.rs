//! Where a backup and what is restored from it are put, and what is in their way there.

use std::{fs, os::unix::fs::symlink};

use crate::{
    backups::{backup, restore, used},
    place::Place,
};

#[test]
fn nothing_is_deleted_in_a_folder_of_somebody_else_under_the_name_of_a_part() {
    let place = Place::new();
    used(&place);
    assert_eq!(backup(&place, "kept", &[]).code, Some(0));
    let precious = place.folder.join("precious");
    fs::create_dir(&precious).unwrap();
    fs::write(precious.join("gold"), "gold").unwrap();
    let parts = [place.folder.join(".more.part"), place.folder.join(".again.part")];
    let in_the_way = |what: &str| {
        for said in [backup(&place, "more", &[]), restore(&place, "kept", "again", &[])] {
            assert!(said.code == Some(1) && said.err.contains("is in the way"), "{what}: {said:?}");
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
    // What an attempt leaves that is ended at its very beginning, or later.
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
