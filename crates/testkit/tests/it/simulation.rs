use countersign_testkit::sim::{self, PlantedFault, SimStats};

/// Steps of one seed.
const STEPS: u32 = 60;

fn seeds() -> u64 {
    std::env::var("COUNTERSIGN_SIM_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(200)
}

#[test]
fn whatever_happens_and_wherever_it_dies_every_promise_holds() {
    let mut figures = SimStats::default();
    for seed in 0..seeds() {
        match sim::run(seed, STEPS, None) {
            Ok(run) => figures.add(run),
            Err(failure) => panic!("{failure}"),
        }
    }
    println!("{figures:#?}");
}

#[test]
fn a_seed_gives_the_same_run_twice() {
    assert_eq!(sim::run(1, STEPS, None), sim::run(1, STEPS, None));
}

#[test]
fn every_planted_mistake_is_noticed() {
    for fault in PlantedFault::ALL {
        let noticed = (0..400).find(|seed| sim::run(*seed, STEPS, Some(fault)).is_err());
        assert!(noticed.is_some(), "{fault:?}");
    }
}
