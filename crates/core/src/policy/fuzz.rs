//! Entry point of a fuzz loop: any bytes are a shell line, every line gets a verdict, an addition to a line never frees it, and
//! no line is freer on an unknown machine than here.

use std::{collections::BTreeSet, sync::LazyLock};

use countersign_shell_analysis::{ShellContext, UNPARSABLE, analyze};
use serde_json::{Map, Value};

use super::{
    ApprovalMode, CompiledRules, Constraints, DefaultPolicy, EffectReach, GrantSet, PathContext, PolicyLayers,
    PolicySubject, Rule, RuleAction, RuleLayer, RuleSet, RuleSource, Verdict, compile_rules, evaluate,
};
use crate::{
    digest::{Digest, canonical_json},
    id::{PrincipalId, SessionId},
    time::Millis,
    tool::{ShellInput, ShellMachine, ToolEffect},
};

/// Rules of which none covers `x` or `curl`.
static NARROW: LazyLock<CompiledRules> =
    LazyLock::new(|| compiled(&[("bash(ls*)", RuleAction::Allow), ("bash(echo *)", RuleAction::Allow)]));

/// Everything is allowed except denied calls.
static WIDE: LazyLock<CompiledRules> =
    LazyLock::new(|| compiled(&[("*", RuleAction::Allow), ("bash(curl*)", RuleAction::Deny)]));

/// Rules that ask, so that the order of the layers shows.
static ASKING: LazyLock<CompiledRules> = LazyLock::new(|| {
    compiled(&[("bash(x*)", RuleAction::Allow), ("bash(ls*)", RuleAction::Ask), ("bash(rm*)", RuleAction::Deny)])
});

/// The same for both, for a line that runs here and for one of a node.
static BOTH: LazyLock<CompiledRules> = LazyLock::new(|| {
    compiled(&[
        ("bash(ls*)", RuleAction::Allow),
        ("m__Bash(ls*)", RuleAction::Allow),
        ("bash(x*)", RuleAction::Allow),
        ("m__Bash(x*)", RuleAction::Allow),
        ("bash(rm*)", RuleAction::Allow),
        ("m__Bash(rm*)", RuleAction::Allow),
        ("bash(curl*)", RuleAction::Deny),
        ("m__Bash(curl*)", RuleAction::Deny),
    ])
});

fn compiled(rules: &[(&str, RuleAction)]) -> CompiledRules {
    let rules = rules.iter().map(|(pattern, action)| Rule::new(*pattern, *action));
    let rules = RuleSet { defaults: Vec::new(), rules: rules.collect() };
    compile_rules(vec![RuleSource { name: "fuzz".to_owned(), layer: RuleLayer::Main, rules }])
        .expect("rules that make sense")
}

/// Judges, for a fuzz loop, `bytes` as a shell line under a few sets of rules, and checks that another command after it never
/// makes it more allowed, and that a command that is denied stays denied with any text on the next line.
///
/// # Panics
/// If that does not hold: a finding.
pub fn fuzz(bytes: &[u8]) {
    let line = String::from_utf8_lossy(bytes);
    let denied = format!("curl x\n{line}");
    let verdict = judge(&WIDE, &denied);
    assert!(matches!(verdict, Verdict::Deny(_)) || verdict.is_floor(), "{denied:?}: {verdict}");
    // Within quotes, a comment or a here-document an addition is text and nothing more runs.
    let swallows = line.contains(['\'', '"', '#', '<', '\\', '`', '(']);
    for rules in [&NARROW, &WIDE, &ASKING] {
        let before = judge(rules, &line);
        for longer in [format!("{line}; x"), format!("{line}\nx")] {
            if swallows || !parses(&line) || !parses(&longer) {
                continue;
            }
            let after = judge(rules, &longer);
            assert!(freedom(&after) <= freedom(&before), "{line:?}: {before}, but {longer:?}: {after}");
        }
    }
    let longer = format!("{line}\ncurl x");
    let verdict = judge(&NARROW, &longer);
    assert!(swallows || !matches!(verdict, Verdict::Allow(_)), "{longer:?}: {verdict}");
    let bare = PathContext {
        home: Some("/home/ana".to_owned()),
        temporary: vec!["/tmp".to_owned(), "/var/tmp".to_owned()],
        ..PathContext::default()
    };
    let here = judge_in(&BOTH, &subject("bash", &line, ShellInput::of_own("bash")), &bare);
    let machine = ShellMachine::Other;
    let shell = ShellInput::Line { argument: "command".into(), machine };
    let there = judge_in(&BOTH, &subject("m__Bash", &line, shell), &bare);
    assert!(freedom(&there) <= freedom(&here), "{line:?}: {there} at a node, {here} here");
    let perhaps = judge_in(&BOTH, &subject("m__Bash", &line, ShellInput::Perhaps { machine }), &bare);
    let is_compound = line.contains(['\n', ';']);
    assert!(!is_compound || !matches!(perhaps, Verdict::Allow(_)), "{line:?}: {perhaps}");
}

/// Reports whether the grammar reads `line` and finds a command in it.
fn parses(line: &str) -> bool {
    let judged = analyze(line, &ShellContext::default());
    judged.opaque.as_deref() != Some(UNPARSABLE) && !judged.commands.is_empty()
}

const fn freedom(verdict: &Verdict) -> u8 {
    match verdict {
        Verdict::Deny(_) => 0,
        Verdict::Ask(_) => 1,
        Verdict::Allow(_) => 2,
    }
}

fn judge(compiled: &CompiledRules, line: &str) -> Verdict {
    let surroundings = PathContext {
        home: Some("/home/ana".to_owned()),
        temporary: vec!["/tmp".to_owned()],
        protected: vec!["/home/ana/project/.countersign".to_owned(), "/home/ana/.config/countersign".to_owned()],
        unreadable: vec!["/home/ana/.config/countersign".to_owned()],
        door: None,
        realm: None,
        approval: ApprovalMode::default(),
        always_asked: Vec::new(),
    };
    judge_in(compiled, &subject("bash", line, ShellInput::of_own("bash")), &surroundings)
}

fn subject(tool: &str, line: &str, shell: ShellInput) -> PolicySubject {
    let arguments = Map::from_iter([("command".to_owned(), Value::String(line.to_owned()))]);
    PolicySubject {
        principal: PrincipalId::new("agent"),
        door: None,
        target: None,
        session: SessionId::new("fuzz"),
        tool: tool.to_owned(),
        signature: format!("{tool}({line})"),
        further_signatures: Vec::new(),
        named: vec!["command".to_owned()],
        undeclared: Vec::new(),
        arguments_digest: Digest::hash_bytes(canonical_json(&Value::Object(arguments.clone())).as_bytes()),
        arguments,
        effect: ToolEffect::Changes,
        classes: BTreeSet::new(),
        reach: EffectReach::Files,
        cwd: "/home/ana/project".to_owned(),
        session_folder: None,
        is_later: false,
        leads_to: None,
        paths: Vec::new(),
        shell,
    }
}

fn judge_in(compiled: &CompiledRules, subject: &PolicySubject, surroundings: &PathContext) -> Verdict {
    let layers = PolicyLayers {
        compiled,
        constraints: &Constraints::default(),
        contract: None,
        grants: &GrantSet::default(),
        default_policy: DefaultPolicy::Gateway,
        path_context: surroundings,
    };
    evaluate(&layers, subject, Millis(0))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::fuzz;

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn the_fuzz_entry_finds_no_fault(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            fuzz(&bytes);
        }

        #[test]
        fn the_fuzz_entry_finds_no_fault_in_what_looks_like_shell(
            line in r"(ls|rm|curl|x|A=|\$A|~|/| |;|&&|\||&|\n|\{|\}|\(|\)|>|<|\*|if|fi|then|for|in|do|done|\$\(|'|!){0,24}",
        ) {
            fuzz(line.as_bytes());
        }
    }
}
