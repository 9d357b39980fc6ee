use countersign_core::engine::Command;

use crate::{
    engine_fixture::seconds,
    states::{backing_off, thinking},
};

#[test]
fn a_run_asks_again_when_it_has_waited_long_enough() {
    for (case, mut stage, wait, want) in [
        ("before", backing_off(), 1_999, ""),
        ("at", backing_off(), 2_000, "run resumed, run turn_opened, run asked"),
        ("long after", backing_off(), 3_600_000, "run resumed, run turn_opened, run asked"),
        ("nothing is waited for", thinking(crate::engine_fixture::open_rules()), 3_600_000, ""),
    ] {
        stage.now.0 += wait;
        assert_eq!(stage.send_command(Command::Tick).0.join(", "), want, "{case}");
        assert_eq!(stage.send_command(Command::Tick).0.join(", "), "", "{case}, again");
    }
}

#[test]
fn the_next_deadline_is_when_it_asks_again() {
    let stage = backing_off();
    assert_eq!(stage.engine.state().next_deadline(), Some(stage.now + seconds(2)));
}

#[test]
fn a_run_that_was_stopped_meanwhile_does_not_ask_again() {
    let mut stage = backing_off();
    stage.abort();
    assert_eq!(stage.engine.state().next_deadline(), None);
    stage.now.0 += 3_600_000;
    assert_eq!(stage.send_command(Command::Tick).0.join(", "), "");
}
