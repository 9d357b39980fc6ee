use std::collections::BTreeMap;
fn main() {
    let n: u64 = std::env::args().nth(1).unwrap().parse().unwrap();
    let one: Option<u64> = std::env::args().nth(2).map(|x| x.parse().unwrap());
    if let Some(seed) = one {
        println!("{:?}", countersign_testkit::sim::run(seed, 60, None).map_err(|e| println!("{e}")));
        return;
    }
    let mut by: BTreeMap<String, (u64, u32, u32)> = BTreeMap::new();
    let mut ok = countersign_testkit::sim::Figures::default();
    for seed in 0..n {
        match std::panic::catch_unwind(|| countersign_testkit::sim::run(seed, 60, None)) {
            Ok(Ok(f)) => ok.add(f),
            Ok(Err(e)) => {
                let key: String = e.broken.split(|c: char| c == ':' ).next().unwrap().chars().filter(|c| !c.is_ascii_digit()).take(90).collect();
                let x = by.entry(key).or_insert((seed, e.step, 0));
                x.2 += 1;
                if e.step < x.1 { x.0 = seed; x.1 = e.step }
            }
            Err(_) => { by.entry("panic".into()).or_insert((seed, 0, 0)).2 += 1; }
        }
    }
    println!("{ok:#?}");
    for (k, v) in by { println!("{:5} seed {} step {}: {k}", v.2, v.0, v.1); }
}
