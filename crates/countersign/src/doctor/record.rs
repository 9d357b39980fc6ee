//! The record and what it lies on: the folder, the disk, the chain's head, the clock.

use std::{fs, os::unix::fs::PermissionsExt as _, path::Path};

use countersign_config::DatabaseSettings;
use countersign_core::{id::Lsn, time::Millis};
use countersign_gateway::control;
use countersign_store::{DatabaseError, Log as _, LogHead, LogOpenError, Partition};
use countersign_view::{shell_quote, time::format_iso};
use nix::{
    sys::statvfs::statvfs,
    unistd::{AccessFlags, access},
};

use super::{
    DoctorCheck,
    database::{check_database, database_advice},
    display_folder,
};
use crate::{
    audit::{block_on, open_located, open_record},
    data_dir::DataDir,
    error_text::chain_text,
    record_location::RecordLocation,
};

/// Less free space than this is soon too little.
const LITTLE: u64 = 256 << 20;
/// Maximum time by which a record may be ahead of the clock: clocks are set by little steps all the time.
const AHEAD: u64 = 60_000;
/// Maximum length of a record that is read as a whole: a longer one would take more than a moment.
const WALKED: u64 = 20_000;
/// No clock of a machine that knows the time is before this: 2025-01-01.
const PAST: Millis = Millis(1_735_689_600_000);

/// Checks the record. `meant` are the flags of this place, for the commands in its advice.
pub(super) fn record_checks(place: &DataDir, meant: &str, now: Millis) -> Vec<DoctorCheck> {
    let mut checks = vec![check_folder(&place.folder), check_disk(&place.folder)];
    if let Some(settings) = &place.database {
        let last = database_checks(settings, &mut checks);
        checks.push(check_clock(last, now));
        return checks;
    }
    let is_parted = |error: &anyhow::Error| matches!(error.downcast_ref(), Some(LogOpenError::Parted { .. }));
    let last = if place.log.exists() {
        match newest_entry(&place.record()) {
            Ok((head, at)) => {
                let read = verified_part(head);
                let (count, path) = (head.lsn, place.log.display());
                checks.push(DoctorCheck::ok(
                    "record",
                    format!("{count} entries in {path}, {read}; head {count}:{}", head.chain),
                ));
                at
            }
            Err(error) if is_newer(&error) => {
                let advice = format!(
                    "a newer version of countersign wrote it: use that version, or restore an earlier backup with `countersign restore DIR --replace{meant}`"
                );
                checks.push(DoctorCheck::fix("record", chain_text(&error), advice));
                None
            }
            Err(error) => {
                let advice = format!(
                    "keep the file, and restore a backup with `countersign restore DIR --replace{meant}`; `countersign audit verify{meant}` \
                     shows where it is damaged"
                );
                checks.push(DoctorCheck::fix("record", chain_text(&error), advice));
                None
            }
        }
    } else if let Some(error) = open_record(&place.log).err().filter(is_parted) {
        checks.push(DoctorCheck::fix("record", chain_text(&error), "do this before you start `serve`"));
        None
    } else {
        checks.push(DoctorCheck::note("record", format!("none yet: {} does not exist", place.log.display())));
        None
    };
    checks.push(check_clock(last, now));
    checks
}

/// Reports whether a later version of the program wrote it.
fn is_newer(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(LogOpenError::NewerSchema { .. } | LogOpenError::NewerEvents { .. }))
}

/// Adds the checks of a record in a database, and returns when its last entry was made.
fn database_checks(settings: &DatabaseSettings, checks: &mut Vec<DoctorCheck>) -> Option<Millis> {
    if let Some(problem) = check_database(settings) {
        checks.push(problem);
        return None;
    }
    let record = RecordLocation::Database(settings.clone());
    match newest_entry(&record) {
        Ok((head, at)) => {
            let (count, read) = (head.lsn, verified_part(head));
            checks.push(DoctorCheck::ok(
                "record",
                format!("{count} entries in {record}, {read}; head {count}:{}", head.chain),
            ));
            at
        }
        Err(error) => {
            checks.push(match error.downcast_ref::<DatabaseError>() {
                Some(DatabaseError::NoLog { .. }) => DoctorCheck::note("record", "none yet: the database has no record"),
                Some(known) => DoctorCheck::fix("record", known.to_string(), database_advice(known)),
                None => {
                    let advice = "restore a backup with `countersign restore`; `countersign audit verify` shows where it is damaged";
                    DoctorCheck::fix("record", chain_text(&error), advice)
                }
            });
            None
        }
    }
}

/// Says how much of a record was verified.
fn verified_part(head: LogHead) -> &'static str {
    if head.lsn.0 <= WALKED {
        "chain verified"
    } else {
        "only the newest was read; `countersign audit verify` checks all"
    }
}

/// Returns the head, and when the last record was made. All of a record that is not long has to fit.
fn newest_entry(record: &RecordLocation) -> anyhow::Result<(LogHead, Option<Millis>)> {
    block_on(async {
        let log = open_located(record)?;
        let head = log.head(Partition::ZERO).await?;
        if head.lsn.0 <= WALKED
            && let Some(flaw) = log.verify_chain(Partition::ZERO, None).await?.flaw
        {
            anyhow::bail!("{record}: {flaw}");
        }
        let last = log.read_records(Partition::ZERO, Lsn(head.lsn.0.saturating_sub(1)), 1).await?;
        Ok((head, last.first().map(|stored| stored.at)))
    })
}

fn check_folder(folder: &Path) -> DoctorCheck {
    let name = display_folder(folder);
    let Ok(found) = fs::metadata(existing_ancestor(folder)) else {
        return DoctorCheck::fix("data", format!("{name} cannot be read"), "pass another folder with --data");
    };
    let is_there = existing_ancestor(folder) == folder || folder.as_os_str().is_empty();
    if !found.is_dir() {
        return DoctorCheck::fix("data", format!("{name} is not a folder"), "set another with --data or storage.path");
    }
    if let Err(why) = control::has_room(folder) {
        return DoctorCheck::fix("data", format!("{name}: {why}"), "use a shorter path");
    }
    let nearest = existing_ancestor(folder);
    if access(nearest, AccessFlags::W_OK | AccessFlags::X_OK).is_err() {
        let advice =
            format!("give the user of the gateway write access: chown or chmod {}", shell_quote(nearest.display()));
        let what = if is_there {
            format!("{name} is not writable")
        } else {
            format!("{name} cannot be created: {} is not writable", nearest.display())
        };
        return DoctorCheck::fix("data", what, advice);
    }
    if is_there && found.permissions().mode() & 0o002 != 0 {
        let advice = format!("chmod o-w {}", shell_quote(folder.display()));
        return DoctorCheck::fix(
            "data",
            format!("{name}, and with it the record, can be changed by every user"),
            advice,
        );
    }
    DoctorCheck::ok("data", if is_there { name } else { format!("{name} will be created by `serve`") })
}

/// Returns the nearest folder above that is there.
fn existing_ancestor(folder: &Path) -> &Path {
    let found = folder.ancestors().find(|folder| folder.exists());
    found.filter(|folder| !folder.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."))
}

fn check_disk(folder: &Path) -> DoctorCheck {
    match statvfs(existing_ancestor(folder)) {
        Err(error) => DoctorCheck::fix(
            "disk",
            format!("free space of {} is unknown: {error}", display_folder(folder)),
            "check the file system",
        ),
        Ok(found) => {
            #[allow(clippy::useless_conversion, reason = "they are narrower on some systems")]
            let free = u64::from(found.blocks_available()).saturating_mul(u64::from(found.fragment_size()));
            let what = format!("{} MiB free", free >> 20);
            if free < LITTLE {
                DoctorCheck::fix(
                    "disk",
                    what,
                    "free some space: on a full disk the gateway cannot record calls, and runs none",
                )
            } else {
                DoctorCheck::ok("disk", what)
            }
        }
    }
}

fn check_clock(last: Option<Millis>, now: Millis) -> DoctorCheck {
    let shown = format_iso(now);
    match last {
        _ if now < PAST => DoctorCheck::fix(
            "clock",
            format!("the time is {shown}"),
            "set the clock: deadlines and the record depend on it",
        ),
        Some(last) if last.0 > now.0 + AHEAD => {
            let what = format!("the time is {shown}, but the newest entry is of {}", format_iso(last));
            DoctorCheck::fix("clock", what, "set the clock: deadlines do not advance until it passes the newest entry")
        }
        _ => DoctorCheck::ok("clock", shown),
    }
}

#[cfg(test)]
mod tests {
    use countersign_core::time::Millis;

    use super::{super::CheckState, check_clock};

    #[test]
    fn a_clock_that_lost_the_time_or_went_back_is_a_finding() {
        let now = Millis(1_800_000_000_000);
        for (case, last, now, want) in [
            ("no record", None, now, CheckState::Ok),
            ("a record of before", Some(Millis(now.0 - 5)), now, CheckState::Ok),
            ("a little step", Some(Millis(now.0 + 1000)), now, CheckState::Ok),
            ("set back", Some(Millis(now.0 + 3_600_000)), now, CheckState::Fix),
            ("never set", None, Millis(12), CheckState::Fix),
        ] {
            assert_eq!(check_clock(last, now).state, want, "{case}");
        }
    }
}
