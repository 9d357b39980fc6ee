//! Meaning of a text while a gate is pending, and a moment after.

use std::time::Duration;

use countersign_core::reply_parser::{
    AllowReach, DecidedGate, LATE, ReplyAnswer, ReplyContext, ReplyIntent, WaitingGate, parse_reply,
};

const WAITING: ReplyContext<'_> =
    ReplyContext { waiting: Some(WaitingGate { token: "#k7f3", is_shown: true }), decided: None };

fn decided(ago: Duration, spoken_since: bool) -> ReplyContext<'static> {
    ReplyContext { waiting: None, decided: Some(DecidedGate { token: "#k7f3", ago, spoken_since, is_elsewhere: true }) }
}

fn allow(reach: AllowReach) -> ReplyIntent {
    ReplyIntent::Answer(ReplyAnswer::Allow(reach))
}

fn deny(reason: Option<&str>) -> ReplyIntent {
    ReplyIntent::Answer(ReplyAnswer::Deny { reason: reason.map(str::to_owned) })
}

#[test]
fn while_something_waits_a_whole_answer_is_an_answer() {
    for (text, want) in [
        ("yes", allow(AllowReach::Once)),
        (" Y \n", allow(AllowReach::Once)),
        ("Yes!", allow(AllowReach::Once)),
        ("allow", allow(AllowReach::Once)),
        ("#k7f3", allow(AllowReach::Once)),
        ("#K7F3", allow(AllowReach::Once)),
        ("yes #k7f3", allow(AllowReach::Once)),
        ("/approve", allow(AllowReach::Once)),
        ("/Approve always", allow(AllowReach::Always)),
        ("/approve SESSION", allow(AllowReach::Session)),
        ("/approve #k7f3", allow(AllowReach::Once)),
        ("/approve #k7f3 session", allow(AllowReach::Session)),
        ("no", deny(None)),
        ("N.", deny(None)),
        ("no #k7f3", deny(None)),
        ("/deny", deny(None)),
        ("/deny the branch\nis wrong", deny(Some("the branch\nis wrong"))),
        ("/deny #k7f3 not today", deny(Some("not today"))),
        // Sentences are messages.
        ("yes please do", ReplyIntent::Message),
        ("no, use the other branch", ReplyIntent::Message),
        ("y/n?", ReplyIntent::Message),
        ("sure", ReplyIntent::Message),
        ("", ReplyIntent::Message),
        ("/approver", ReplyIntent::Message),
        // Only explicit approvals count.
        ("/approve it", ReplyIntent::Unclear("it".to_owned())),
        ("/approve always please", ReplyIntent::Unclear("always please".to_owned())),
        ("/approve #other", ReplyIntent::OtherToken("#other".to_owned())),
        ("/deny #other", ReplyIntent::OtherToken("#other".to_owned())),
        ("yes #other", ReplyIntent::Message),
        ("#other", ReplyIntent::Message),
    ] {
        assert_eq!(parse_reply(text, WAITING), want, "{text:?}");
    }
}

#[test]
fn a_bare_word_is_late_for_a_minute_and_as_long_as_nobody_spoke() {
    for (text, ago, spoken, want) in [
        ("yes", LATE, false, ReplyIntent::Late),
        ("no", Duration::ZERO, false, ReplyIntent::Late),
        ("yes", LATE + Duration::from_millis(1), false, ReplyIntent::Message),
        ("yes", Duration::ZERO, true, ReplyIntent::Message),
        ("/approve", LATE * 100, true, ReplyIntent::Late),
        ("/deny why", LATE * 100, true, ReplyIntent::Late),
        ("#k7f3", LATE * 100, true, ReplyIntent::Late),
        ("yes #k7f3", LATE * 100, true, ReplyIntent::Late),
        ("/deny #other", Duration::ZERO, false, ReplyIntent::OtherToken("#other".to_owned())),
        ("go on", Duration::ZERO, false, ReplyIntent::Message),
    ] {
        assert_eq!(parse_reply(text, decided(ago, spoken)), want, "{text:?} after {ago:?}");
    }
}

#[test]
fn an_answer_without_a_token_is_for_the_gate_that_waits() {
    let before = DecidedGate { token: "#k7f3", ago: Duration::ZERO, spoken_since: false, is_elsewhere: false };
    let both = ReplyContext { waiting: Some(WaitingGate { token: "#next", is_shown: true }), decided: Some(before) };
    for (text, want) in [
        ("yes", allow(AllowReach::Once)),
        ("#next", allow(AllowReach::Once)),
        ("yes #k7f3", ReplyIntent::Late),
        ("#k7f3", ReplyIntent::Late),
        ("/approve #k7f3 always", ReplyIntent::Late),
    ] {
        assert_eq!(parse_reply(text, both), want, "{text:?}");
    }
}

#[test]
fn nobody_answers_what_they_have_not_seen() {
    let next = |is_shown| Some(WaitingGate { token: "#next", is_shown });
    let mine = DecidedGate { token: "#k7f3", ago: Duration::ZERO, spoken_since: false, is_elsewhere: false };
    let others = DecidedGate { is_elsewhere: true, ..mine };
    let old = DecidedGate { ago: LATE * 2, ..others };
    let spoken = DecidedGate { spoken_since: true, ..others };
    for (waiting, decided, want) in [
        // Sent twice in quick succession: the second was not an answer to the next card.
        (next(false), Some(mine), ReplyIntent::Late),
        (next(true), Some(mine), allow(AllowReach::Once)),
        (next(false), None, ReplyIntent::NotShown),
        // Decided by another person a moment ago: the sender may still look at that card.
        (next(true), Some(others), ReplyIntent::Late),
        (next(true), Some(old), allow(AllowReach::Once)),
        (next(true), Some(spoken), allow(AllowReach::Once)),
    ] {
        for text in ["yes", "/approve"] {
            assert_eq!(parse_reply(text, ReplyContext { waiting, decided }), want, "{text} {waiting:?} {decided:?}");
        }
        assert_eq!(parse_reply("yes #next", ReplyContext { waiting, decided }), allow(AllowReach::Once), "it is named");
    }
}

#[test]
fn where_nothing_waits_words_are_words_and_commands_say_so() {
    let nothing = ReplyContext::default();
    for (text, want) in [
        ("yes", ReplyIntent::Message),
        ("#k7f3", ReplyIntent::Message),
        ("/approve", ReplyIntent::NothingWaits),
        ("/deny because", ReplyIntent::NothingWaits),
        ("/deny #k7f3", ReplyIntent::OtherToken("#k7f3".to_owned())),
    ] {
        assert_eq!(parse_reply(text, nothing), want, "{text:?}");
    }
}
