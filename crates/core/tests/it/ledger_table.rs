//! Rest, use and refusals of a ledger in every state, in addition to the tables in its own module.

use countersign_core::{
    id::CallId,
    ledger::{BudgetAmount, BudgetBreach, BudgetLimits, Event, LedgerMetric, ReservationId, SettleError, State},
    time::Millis,
};

const NOW: Millis = Millis(1_000);
const LATE: Millis = Millis(1_600);

fn id(last: char) -> ReservationId {
    CallId::parse(&format!("{}{last}", "0".repeat(31))).expect("it is one").into()
}

fn of(tokens: u64, calls: u64, cost_micros: u64) -> BudgetAmount {
    BudgetAmount { tokens, calls, cost_micros }
}

fn budget() -> BudgetLimits {
    BudgetLimits { tokens: Some(100), calls: Some(3), wall_time: Some(500), cost_micros: Some(1_000) }
}

fn limited(budget: BudgetLimits, events: &[Event]) -> State {
    let mut state = State::default();
    state.apply_event(&state.set_limits(budget, NOW));
    events.iter().for_each(|event| state.apply_event(event));
    state
}

fn reserved(amount: BudgetAmount) -> Event {
    Event::Reserved { id: id('1'), amount }
}

fn settled(amount: BudgetAmount) -> Event {
    Event::Settled { id: id('1'), amount }
}

#[test]
fn what_is_left_is_the_limit_without_what_is_spent_and_reserved() {
    let (forty, ten) = (of(40, 1, 400), of(10, 1, 100));
    let all = [Some(100), Some(3), Some(500), Some(1_000)];
    for (case, state, now, want) in [
        ("no contract", State::default(), NOW, [None; 4]),
        ("no limits", limited(BudgetLimits::default(), &[reserved(forty)]), NOW, [None; 4]),
        ("untouched", limited(budget(), &[]), NOW, all),
        ("reserved", limited(budget(), &[reserved(forty)]), NOW, [Some(60), Some(2), Some(500), Some(600)]),
        (
            "reserved anew",
            limited(budget(), &[reserved(forty), reserved(ten)]),
            NOW,
            [Some(90), Some(2), Some(500), Some(900)],
        ),
        (
            "settled below",
            limited(budget(), &[reserved(forty), settled(ten)]),
            NOW,
            [Some(90), Some(2), Some(500), Some(900)],
        ),
        (
            "settled above",
            limited(budget(), &[reserved(ten), settled(of(400, 1, 1))]),
            NOW,
            [Some(0), Some(2), Some(500), Some(999)],
        ),
        ("settled without a reservation", limited(budget(), &[settled(forty)]), NOW, all),
        (
            "settled twice",
            limited(budget(), &[reserved(ten), settled(ten), settled(ten)]),
            NOW,
            [Some(90), Some(2), Some(500), Some(900)],
        ),
        ("time has passed", limited(budget(), &[]), Millis(1_499), [Some(100), Some(3), Some(1), Some(1_000)]),
        ("time is up", limited(budget(), &[]), LATE, [Some(100), Some(3), Some(0), Some(1_000)]),
    ] {
        let left = [LedgerMetric::Tokens, LedgerMetric::ToolCalls, LedgerMetric::WallTime, LedgerMetric::Cost]
            .map(|metric| state.amount_left(metric, now));
        assert_eq!(left, want, "{case}");
    }
}

#[test]
fn a_reservation_fits_up_to_each_limit_and_no_further() {
    let breach = |metric, limit, observed| Err(BudgetBreach { metric, limit, observed });
    let at = Ok(());
    for (case, state, amount, now, want) in [
        ("nothing", limited(budget(), &[]), of(0, 0, 0), NOW, at),
        ("every limit, at", limited(budget(), &[]), of(100, 3, 1_000), NOW, at),
        ("tokens", limited(budget(), &[]), of(101, 0, 0), NOW, breach(LedgerMetric::Tokens, 100, 101)),
        ("calls", limited(budget(), &[]), of(0, 4, 0), NOW, breach(LedgerMetric::ToolCalls, 3, 4)),
        ("money", limited(budget(), &[]), of(0, 0, 1_001), NOW, breach(LedgerMetric::Cost, 1_000, 1_001)),
        ("just in time", limited(budget(), &[]), of(0, 0, 0), Millis(1_499), at),
        ("time", limited(budget(), &[]), of(0, 0, 0), Millis(1_500), breach(LedgerMetric::WallTime, 500, 500)),
        (
            "beside what is reserved",
            limited(budget(), &[reserved(of(60, 0, 0))]),
            of(41, 0, 0),
            NOW,
            breach(LedgerMetric::Tokens, 100, 101),
        ),
        (
            "beside what is spent",
            limited(budget(), &[reserved(of(1, 0, 0)), settled(of(60, 0, 0))]),
            of(41, 0, 0),
            NOW,
            breach(LedgerMetric::Tokens, 100, 101),
        ),
        (
            "what was given back",
            limited(budget(), &[reserved(of(60, 0, 0)), settled(of(1, 0, 0))]),
            of(99, 0, 0),
            NOW,
            at,
        ),
        ("no limits", limited(BudgetLimits::default(), &[]), of(u64::MAX, u64::MAX, u64::MAX), LATE, at),
        ("no contract", State::default(), of(u64::MAX, 1, 1), LATE, at),
    ] {
        let event = state.reserve(id('2'), amount, now);
        assert_eq!(event, want.map(|()| Event::Reserved { id: id('2'), amount }), "{case}");
    }
}

#[test]
fn amounts_beyond_counting_are_a_breach_and_no_overflow() {
    let state = limited(budget(), &[reserved(of(u64::MAX, 0, 0)), settled(of(u64::MAX, 0, 0))]);
    let breach = BudgetBreach { metric: LedgerMetric::Tokens, limit: 100, observed: u64::MAX };
    assert_eq!(state.reserve(id('2'), of(u64::MAX, 0, 0), NOW), Err(breach));
    assert_eq!(state.current_breach(NOW), Some(breach));
}

#[test]
fn an_end_counts_once_and_for_what_was_reserved_only() {
    let open = [reserved(of(40, 1, 0))];
    let ended = [open[0], settled(of(10, 1, 0))];
    let closed = |last| Err(SettleError::NotOpen(id(last)));
    let ends = |amount| Ok(Event::Settled { id: id('1'), amount });
    for (case, state, last, settle, in_doubt) in [
        ("never reserved", limited(budget(), &[]), '1', closed('1'), closed('1')),
        ("open", limited(budget(), &open), '1', ends(of(7, 1, 0)), ends(of(40, 1, 0))),
        ("another is open", limited(budget(), &open), '2', closed('2'), closed('2')),
        ("settled", limited(budget(), &ended), '1', closed('1'), closed('1')),
        ("no contract", State::default(), '1', closed('1'), closed('1')),
    ] {
        assert_eq!(state.settle_reservation(id(last), of(7, 1, 0)), settle, "{case}");
        assert_eq!(state.settle_in_doubt(id(last)), in_doubt, "{case}");
    }
}

#[test]
fn an_end_counts_after_the_limits_are_passed_too() {
    let mut state = limited(budget(), &[reserved(of(40, 1, 0))]);
    state.apply_event(&state.set_limits(BudgetLimits { tokens: Some(1), ..BudgetLimits::default() }, NOW));
    assert_eq!(state.settle_reservation(id('1'), of(7, 1, 0)), Ok(settled(of(7, 1, 0))));
    state.apply_event(&settled(of(7, 1, 0)));
    assert_eq!((state.spent(), state.reserved()), (of(7, 1, 0), of(0, 0, 0)));
    assert_eq!(state.current_breach(NOW), Some(BudgetBreach { metric: LedgerMetric::Tokens, limit: 1, observed: 7 }));
}

#[test]
fn a_request_reserves_its_input_and_as_much_output_as_fits() {
    let price = |input: u64, output: u64| input + output * 10;
    let breach = |metric, limit, observed| Err(BudgetBreach { metric, limit, observed });
    let fits =
        |output: u64| Ok((Event::Reserved { id: id('2'), amount: of(10 + output, 0, 10 + output * 10) }, output));
    let only = |tokens, cost_micros| BudgetLimits { tokens, cost_micros, ..BudgetLimits::default() };
    for (case, state, cap, now, want) in [
        ("all of it", limited(budget(), &[]), 50, NOW, fits(50)),
        ("cut to the tokens", limited(only(Some(30), None), &[]), 50, NOW, fits(20)),
        ("cut to the money", limited(only(None, Some(64)), &[]), 50, NOW, fits(5)),
        ("cut to the lesser", limited(only(Some(12), Some(64)), &[]), 50, NOW, fits(2)),
        ("one token", limited(only(Some(11), None), &[]), 50, NOW, fits(1)),
        ("not one", limited(only(Some(10), None), &[]), 50, NOW, breach(LedgerMetric::Tokens, 10, 11)),
        ("no money for one", limited(only(None, Some(19)), &[]), 50, NOW, breach(LedgerMetric::Cost, 19, 20)),
        ("no output", limited(only(Some(10), None), &[]), 0, NOW, fits(0)),
        ("beside what is reserved", limited(only(Some(70), None), &[reserved(of(40, 0, 0))]), 50, NOW, fits(20)),
        ("time is up", limited(budget(), &[]), 50, LATE, breach(LedgerMetric::WallTime, 500, 600)),
    ] {
        assert_eq!(state.reserve_request(id('2'), 10, cap, price, now), want, "{case}");
    }
}

#[test]
fn the_clock_starts_with_the_first_limits() {
    for (case, state, want) in [
        ("no contract", State::default(), None),
        ("no limit of time", limited(BudgetLimits::default(), &[]), None),
        ("limited", limited(budget(), &[]), Some(Millis(1_500))),
        (
            "limited again later",
            limited(budget(), &[Event::Limited { budget: budget(), at: LATE }]),
            Some(Millis(1_500)),
        ),
        (
            "a limit that came later",
            limited(BudgetLimits::default(), &[Event::Limited { budget: budget(), at: LATE }]),
            Some(Millis(1_500)),
        ),
    ] {
        assert_eq!(state.deadline(), want, "{case}");
    }
}

#[test]
fn facts_that_are_read_back_make_the_same_ledger() {
    let events = [
        Event::Limited { budget: budget(), at: NOW },
        reserved(of(40, 1, 3)),
        Event::Reserved { id: id('2'), amount: BudgetAmount::CALL },
        settled(of(7, 1, 2)),
    ];
    let (mut state, mut again) = (State::default(), State::default());
    for event in &events {
        state.apply_event(event);
        let text = serde_json::to_string(event).unwrap();
        again.apply_event(&serde_json::from_str(&text).unwrap());
    }
    assert_eq!(state, again);
    assert_eq!((state.spent(), state.reserved()), (of(7, 1, 2), BudgetAmount::CALL));
}
