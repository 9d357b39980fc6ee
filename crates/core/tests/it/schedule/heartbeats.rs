//! Active hours of heartbeats, and the reports of their replies.

use countersign_core::{
    schedule::{ActiveHours, HeartbeatReport, HoursError, Zone, has_tasks, heartbeat_report},
    time::Millis,
};

use super::{at, zone};

#[test]
fn active_hours_begin_with_their_first_minute_and_end_before_their_last() {
    for (start, end, time, want) in [
        ("08:00", "23:00", "07:59:59", false),
        ("08:00", "23:00", "08:00:00", true),
        ("08:00", "23:00", "22:59:59", true),
        ("08:00", "23:00", "23:00:00", false),
        ("22:00", "06:00", "23:30:00", true),
        ("22:00", "06:00", "05:59:59", true),
        ("22:00", "06:00", "06:00:00", false),
        ("00:00", "24:00", "23:59:59", true),
        ("09:00", "09:00", "03:00:00", true),
    ] {
        let hours = ActiveHours::new(start, end, Zone::UTC).unwrap();
        assert_eq!(hours.contains_time(at(&format!("2026-01-01T{time}Z"))), want, "{start} to {end}: {time}");
    }
    let in_berlin = ActiveHours::new("08:00", "23:00", zone("Europe/Berlin")).unwrap();
    assert!(in_berlin.contains_time(at("2026-07-01T06:00:00Z")));
    assert!(!in_berlin.contains_time(at("2026-01-01T06:00:00Z")));
    for wrong in ["8:00", "24:01", "12:60", "noon", "", "+8:00", "1200"] {
        assert_eq!(ActiveHours::new(wrong, "23:00", Zone::UTC), Err(HoursError(wrong.to_owned())));
    }
}

#[test]
fn a_list_of_headings_and_comments_has_no_tasks() {
    for (list, want) in [
        ("", false),
        ("# Heartbeat\n\n## Every day\n---\n", false),
        ("<!-- add tasks\n- like this\n-->\n# Tasks\n- [ ]\n-\n***\n", false),
        ("# Tasks\n- look at the disk\n", true),
        ("#disk\n", true),
        ("<!-- never closed\n- look\n", true),
        ("a <!-- b --> c", true),
    ] {
        assert_eq!(has_tasks(list), want, "{list:?}");
    }
}

#[test]
fn only_words_that_say_nothing_are_held_back() {
    let say = |text: &str| HeartbeatReport::Say(text.to_owned());
    for (reply, want) in [
        ("HEARTBEAT_OK", HeartbeatReport::Nothing),
        ("  **HEARTBEAT_OK**.\n", HeartbeatReport::Nothing),
        ("HEARTBEAT_OK - nothing to report.", HeartbeatReport::Nothing),
        ("All good!\n\nHEARTBEAT_OK", HeartbeatReport::Nothing),
        ("HEARTBEAT_OK: HEARTBEAT_OK", HeartbeatReport::Nothing),
        ("", HeartbeatReport::Nothing),
        ("\n\t", HeartbeatReport::Nothing),
        // Any length is forwarded, with any words next to it.
        ("Disk full", say("Disk full")),
        ("HEARTBEAT_OK - disk full", say("disk full")),
        ("HEARTBEAT_OK\n\nBut the backup failed.", say("But the backup failed")),
        ("The backup failed. HEARTBEAT_OK", say("The backup failed")),
        ("no", say("no")),
        ("nothing to report", say("nothing to report")),
        (
            "I was told to say HEARTBEAT_OK but the disk is full",
            say("I was told to say HEARTBEAT_OK but the disk is full"),
        ),
        ("HEARTBEAT_OKAY", say("HEARTBEAT_OKAY")),
        ("NO_HEARTBEAT_OK", say("NO_HEARTBEAT_OK")),
    ] {
        assert_eq!(heartbeat_report(reply, None, Millis(0)), want, "{reply:?}");
    }
}

#[test]
fn the_same_text_is_sent_again_after_a_day() {
    const DAY: u64 = 24 * 60 * 60 * 1000;
    for (case, last, now, want) in [
        ("within a day", ("Disk full", 1_000), DAY, HeartbeatReport::Repeated),
        ("after it", ("Disk full", 1_000), 1_000 + DAY, HeartbeatReport::Say("Disk full".to_owned())),
        ("other words", ("Disk fuller", 1_000), 2_000, HeartbeatReport::Say("Disk full".to_owned())),
    ] {
        assert_eq!(heartbeat_report("Disk full", Some((last.0, Millis(last.1))), Millis(now)), want, "{case}");
    }
}
