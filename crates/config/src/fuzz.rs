//! The ways in for a fuzz loop: any bytes are a configuration file, or a rules file.

use std::path::Path;

use countersign_core::policy::{Rule, RuleAction, compile_rules};

use super::{
    diagnostics::FileDiagnostics, load, permissions::RulesText, problem::ConfigErrors, rule_lines,
    settings::ConfigFlags,
};

/// Value of the variable `SECRET`.
const SECRET: &str = "hunter2-of-the-fuzz-loop";

/// Reads `bytes` as the configuration, and checks that every refusal names a line of the file or a key and the problem, and
/// that no refusal, warning or figure holds the value of a variable.
///
/// # Panics
/// If that does not hold: a finding.
pub fn settings(bytes: &[u8]) {
    // It comes in by its variable alone: as a name it would be shown.
    let text = String::from_utf8_lossy(bytes).replace(SECRET, "SECRET");
    let environment = |name: &str| match name {
        "SECRET" => Some(SECRET.to_owned()),
        "NUMBER" => Some("8443".to_owned()),
        _ => None,
    };
    let output = match load::read_config(
        &text,
        None,
        &ConfigFlags::default(),
        &environment,
        FileDiagnostics::for_file(Path::new("config.yaml")),
    ) {
        Ok(loaded) => loaded.warnings.join("\n"),
        Err(errors) => {
            named(&errors, &text);
            errors.to_string()
        }
    };
    // A name that is shown to distinguish it from others may be anything; a secret is nowhere used as that name.
    let is_secret = ["token", "api_key", "password", "client_secret"]
        .iter()
        .any(|key| text.contains(&format!("{key}: ${{SECRET}}")));
    let elsewhere = text.matches("${SECRET}").count() > 1;
    assert!(!is_secret || elsewhere || !output.contains(SECRET), "{output}");
}

/// Reads `bytes` as a rules file, and checks that every refusal names a line of the file or a key, that every rule that was read
/// has a line of the file, and that a rule that is put in is there afterwards and the others are as they were.
///
/// # Panics
/// If that does not hold: a finding.
pub fn rules(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    // Rules of this layer have no file of cases next to theirs that would be read.
    let read = |text: &str| RulesText { path: "rules.yaml".into(), tightens: true, text: text.to_owned() }.parse();
    let before = match read(&text) {
        Ok(permissions) => permissions.source,
        Err(errors) => return named(&errors, &text),
    };
    let lines = lines(&text);
    for rule in before.rules.rules.iter().chain(&before.rules.defaults) {
        assert!(rule.line >= 1 && u64::from(rule.line) <= lines, "{rule:?} of {lines} lines");
    }
    if let Err(errors) = compile_rules(vec![before.clone()]) {
        for error in errors {
            assert!(error.to_string().contains("rules.yaml"), "{error} names no place");
        }
    }
    let fresh = Rule::new("fuzz(\u{202e}\"it\\'s*)", RuleAction::Deny);
    let Ok(longer) = rule_lines::with_rule(&text, &rule_lines::rule_line(&fresh)) else { return };
    let after = read(&longer).unwrap_or_else(|errors| panic!("{errors}: {longer:?}")).source;
    let (last, others) = after.rules.rules.split_last().expect("a rule was put in");
    assert_eq!((&last.pattern, last.action), (&fresh.pattern, fresh.action), "{longer:?}");
    let bare = |rules: &[Rule]| rules.iter().map(|rule| Rule { line: 0, ..rule.clone() }).collect::<Vec<_>>();
    assert_eq!(bare(others), bare(&before.rules.rules), "{longer:?}");
    assert_eq!(bare(&after.rules.defaults), bare(&before.rules.defaults), "{longer:?}");
    // Several rules on one line cannot be distinguished there.
    let Ok((shorter, cut)) = rule_lines::without_rule(&longer, last.line.into(), None) else { return };
    let again = read(&shorter).unwrap_or_else(|errors| panic!("{errors}: {shorter:?}")).source;
    assert!(!cut.is_empty());
    assert_eq!(bare(&again.rules.rules), bare(&before.rules.rules), "{shorter:?}");
}

fn lines(text: &str) -> u64 {
    // YAML breaks lines at a carriage return too.
    u64::try_from(text.split(['\n', '\r']).count()).unwrap_or(u64::MAX)
}

fn named(errors: &ConfigErrors, text: &str) {
    assert!(!errors.0.is_empty());
    for problem in &errors.0 {
        assert!(problem.line <= lines(text), "{problem} of {} lines", lines(text));
        assert!(!problem.fault.to_string().is_empty(), "{problem:?} says nothing");
    }
}
