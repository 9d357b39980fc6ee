//! The way in for a fuzz loop: any bytes are a shell line, and every line gets a verdict.

use std::{collections::BTreeSet, sync::LazyLock};

use serde_json::{Map, Value};

use super::{
    Action, Compiled, Constraints, Grants, Layer, Layers, Posture, Reach, Rule, Rules, Source, Subject, Surroundings,
    Verdict, compile, evaluate,
};
use crate::{
    digest::{Digest, canonical},
    id::{PrincipalId, SessionId},
    time::Millis,
    tool::Effect,
};

/// One rule that allows, so that a line can be covered by it or not.
static COMPILED: LazyLock<Compiled> = LazyLock::new(|| {
    let rule = Rule {
        pattern: Some("bash(ls*)".to_owned()),
        tool: None,
        args: None,
        action: Action::Allow,
        description: None,
        line: 0,
    };
    let rules = Rules { defaults: Vec::new(), rules: vec![rule] };
    compile(vec![Source { name: "fuzz".to_owned(), layer: Layer::Main, rules }]).expect("one rule that makes sense")
});

/// Judges, for a fuzz loop, `bytes` as a shell line under one rule that allows, and checks that a rule for `ls` does not
/// cover the same line with another command behind it on a line of its own.
///
/// # Panics
/// Where that does not hold: a finding.
pub fn fuzz(bytes: &[u8]) {
    let line = String::from_utf8_lossy(bytes);
    judge(&line);
    // Within quotes, a comment or a here-document what is added is text and nothing more runs.
    if !line.contains(['\'', '"', '#', '<', '\\', '`', '(']) {
        let longer = format!("{line}\ncurl x");
        let verdict = judge(&longer);
        assert!(!matches!(verdict, Verdict::Allow(_)), "{longer:?}: {verdict}");
    }
}

fn judge(line: &str) -> Verdict {
    let arguments = Map::from_iter([("command".to_owned(), Value::String(line.to_owned()))]);
    let subject = Subject {
        principal: PrincipalId::new("agent"),
        session: SessionId::new("fuzz"),
        tool: "bash".to_owned(),
        signature: format!("bash({line})"),
        further_signatures: Vec::new(),
        named: vec!["command".to_owned()],
        undeclared: Vec::new(),
        arguments_digest: Digest::of(canonical(&Value::Object(arguments.clone())).as_bytes()),
        arguments,
        effect: Effect::Changes,
        classes: BTreeSet::new(),
        reach: Reach::Files,
        cwd: "/home/ana/project".to_owned(),
        paths: Vec::new(),
    };
    let layers = Layers {
        compiled: &COMPILED,
        constraints: &Constraints::default(),
        contract: None,
        grants: &Grants::default(),
        posture: Posture::Gateway,
        surroundings: &Surroundings::default(),
    };
    evaluate(&layers, &subject, Millis(0))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::fuzz;

    proptest! {
        #[test]
        fn the_fuzz_entry_finds_no_fault(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            fuzz(&bytes);
        }
    }
}
