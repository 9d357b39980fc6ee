//! What a text means while something waits, and a moment after.

use std::time::Duration;

use countersign_core::reading::{Decided, LATE, Meaning, Reach, Situation, Waiting, Words, read};

const WAITING: Situation<'_> = Situation { waiting: Some(Waiting { token: "#k7f3", is_shown: true }), decided: None };

fn decided(ago: Duration, spoken_since: bool) -> Situation<'static> {
    Situation { waiting: None, decided: Some(Decided { token: "#k7f3", ago, spoken_since, is_elsewhere: true }) }
}

fn allow(reach: Reach) -> Meaning {
    Meaning::Answer(Words::Allow(reach))
}

fn deny(reason: Option<&str>) -> Meaning {
    Meaning::Answer(Words::Deny { reason: reason.map(str::to_owned) })
}

#[test]
fn while_something_waits_a_whole_answer_is_an_answer() {
    for (text, want) in [
        ("yes", allow(Reach::Once)),
        (" Y \n", allow(Reach::Once)),
        ("Yes!", allow(Reach::Once)),
        ("allow", allow(Reach::Once)),
        ("#k7f3", allow(Reach::Once)),
        ("#K7F3", allow(Reach::Once)),
        ("yes #k7f3", allow(Reach::Once)),
        ("/approve", allow(Reach::Once)),
        ("/Approve always", allow(Reach::Always)),
        ("/approve SESSION", allow(Reach::Session)),
        ("/approve #k7f3", allow(Reach::Once)),
        ("/approve #k7f3 session", allow(Reach::Session)),
        ("no", deny(None)),
        ("N.", deny(None)),
        ("no #k7f3", deny(None)),
        ("/deny", deny(None)),
        ("/deny the branch\nis wrong", deny(Some("the branch\nis wrong"))),
        ("/deny #k7f3 not today", deny(Some("not today"))),
        // Sentences are messages.
        ("yes please do", Meaning::Message),
        ("no, use the other branch", Meaning::Message),
        ("y/n?", Meaning::Message),
        ("sure", Meaning::Message),
        ("", Meaning::Message),
        ("/approver", Meaning::Message),
        // Nothing is allowed that was not said.
        ("/approve it", Meaning::Unclear("it".to_owned())),
        ("/approve always please", Meaning::Unclear("always please".to_owned())),
        ("/approve #other", Meaning::OtherToken("#other".to_owned())),
        ("/deny #other", Meaning::OtherToken("#other".to_owned())),
        ("yes #other", Meaning::Message),
        ("#other", Meaning::Message),
    ] {
        assert_eq!(read(text, WAITING), want, "{text:?}");
    }
}

#[test]
fn a_bare_word_is_late_for_a_minute_and_as_long_as_nobody_spoke() {
    for (text, ago, spoken, want) in [
        ("yes", LATE, false, Meaning::Late),
        ("no", Duration::ZERO, false, Meaning::Late),
        ("yes", LATE + Duration::from_millis(1), false, Meaning::Message),
        ("yes", Duration::ZERO, true, Meaning::Message),
        ("/approve", LATE * 100, true, Meaning::Late),
        ("/deny why", LATE * 100, true, Meaning::Late),
        ("#k7f3", LATE * 100, true, Meaning::Late),
        ("yes #k7f3", LATE * 100, true, Meaning::Late),
        ("/deny #other", Duration::ZERO, false, Meaning::OtherToken("#other".to_owned())),
        ("go on", Duration::ZERO, false, Meaning::Message),
    ] {
        assert_eq!(read(text, decided(ago, spoken)), want, "{text:?} after {ago:?}");
    }
}

#[test]
fn an_answer_without_a_token_is_for_the_gate_that_waits() {
    let before = Decided { token: "#k7f3", ago: Duration::ZERO, spoken_since: false, is_elsewhere: false };
    let both = Situation { waiting: Some(Waiting { token: "#next", is_shown: true }), decided: Some(before) };
    for (text, want) in [
        ("yes", allow(Reach::Once)),
        ("#next", allow(Reach::Once)),
        ("yes #k7f3", Meaning::Late),
        ("#k7f3", Meaning::Late),
        ("/approve #k7f3 always", Meaning::Late),
    ] {
        assert_eq!(read(text, both), want, "{text:?}");
    }
}

#[test]
fn nobody_answers_what_they_have_not_seen() {
    let next = |is_shown| Some(Waiting { token: "#next", is_shown });
    let mine = Decided { token: "#k7f3", ago: Duration::ZERO, spoken_since: false, is_elsewhere: false };
    let others = Decided { is_elsewhere: true, ..mine };
    let old = Decided { ago: LATE * 2, ..others };
    let spoken = Decided { spoken_since: true, ..others };
    for (waiting, decided, want) in [
        // Said twice in one breath: the second was not said of the next card.
        (next(false), Some(mine), Meaning::Late),
        (next(true), Some(mine), allow(Reach::Once)),
        (next(false), None, Meaning::NotShown),
        // Decided by somebody else a moment ago: whoever says yes may still look at that card.
        (next(true), Some(others), Meaning::Late),
        (next(true), Some(old), allow(Reach::Once)),
        (next(true), Some(spoken), allow(Reach::Once)),
    ] {
        for text in ["yes", "/approve"] {
            assert_eq!(read(text, Situation { waiting, decided }), want, "{text} {waiting:?} {decided:?}");
        }
        assert_eq!(read("yes #next", Situation { waiting, decided }), allow(Reach::Once), "it is named");
    }
}

#[test]
fn where_nothing_waits_words_are_words_and_commands_say_so() {
    let nothing = Situation::default();
    for (text, want) in [
        ("yes", Meaning::Message),
        ("#k7f3", Meaning::Message),
        ("/approve", Meaning::NothingWaits),
        ("/deny because", Meaning::NothingWaits),
        ("/deny #k7f3", Meaning::OtherToken("#k7f3".to_owned())),
    ] {
        assert_eq!(read(text, nothing), want, "{text:?}");
    }
}
