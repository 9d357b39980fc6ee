use std::{collections::BTreeSet, hint::black_box, time::Instant};
use countersign_core::{digest::Digest, id::{PrincipalId, SessionId}, policy::*, time::Millis, tool::Effect};
fn main() {
    for count in [10usize, 1_000, 10_000] {
        for (kind, make) in [
            ("prefix", (|at| format!("tool_{at}(*)")) as fn(usize) -> String),
            ("one tool", |at| format!("read(src/{at}/*)")),
            ("wild start", |at| format!("*x{at}y*")),
        ] {
            let rules = (0..count).map(|at| Rule { pattern: Some(make(at)), tool: None, args: None, action: [Action::Allow, Action::Deny, Action::Ask][at % 3], description: None, line: 0 });
            let started = Instant::now();
            let compiled = compile(vec![Source { name: "m".into(), layer: Layer::Main, rules: Rules { defaults: vec![], rules: rules.collect() } }]).unwrap();
            let compiling = started.elapsed();
            let (constraints, grants, surroundings) = (Constraints::default(), Grants::default(), Surroundings::default());
            let layers = Layers { compiled: &compiled, constraints: &constraints, contract: None, grants: &grants, posture: Posture::Gateway, surroundings: &surroundings };
            for (tool, signature, command) in [("read", format!("read(src/{}/a.rs)", count / 2), None), ("tool_7", "tool_7(a)".into(), None), ("none", "none(a)".into(), None), ("bash", "bash(ls -l src)".into(), Some("ls -l src"))] {
                let arguments: serde_json::Map<_, _> = [(if command.is_some() { "command" } else { "path" }.to_owned(), serde_json::Value::from(command.unwrap_or("a")))].into_iter().collect();
                let subject = Subject { principal: PrincipalId::new("a"), session: SessionId::new("s"), tool: tool.into(), signature, further_signatures: vec![], named: vec![], undeclared: vec![], arguments, arguments_digest: Digest::of(b""), effect: Effect::Reads, reach: Reach::Beyond, cwd: "/w".into(), paths: vec!["a".into()], classes: BTreeSet::new() };
                let times = if command.is_some() { 300 } else { 3_000 };
                for _ in 0..50 { black_box(evaluate(&layers, black_box(&subject), Millis(0))); }
                let started = Instant::now();
                for _ in 0..times { black_box(evaluate(&layers, black_box(&subject), Millis(0))); }
                println!("{count:>6} {kind:<10} {tool:<7} {:>9} ns (compile {compiling:?})", started.elapsed().as_nanos() / times);
            }
        }
    }
}
