//! The messenger with an engine, a service and a chat, in virtual time.
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

mod approvals;
mod crashes;
mod fake_api;
mod fixture;
mod outages;
mod questions;
mod taps;

#[test]
fn a_time_on_a_card_names_its_zone() {
    let noon = super::Millis(1_780_660_800_000);
    for (hours, want) in [(0, "12:00 UTC"), (2, "14:00 UTC+02:00"), (-5, "07:00 UTC-05:00")] {
        let zone = chrono::FixedOffset::east_opt(hours * 3600).unwrap();
        assert_eq!(super::in_zone(noon, &zone), want);
    }
    assert_eq!(super::in_zone(noon, &chrono::Utc), "12:00 UTC");
}
