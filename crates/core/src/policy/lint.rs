//! Looks for rules whose text says something else than their author reads. It must not decide whether a rule is taken.

use std::sync::LazyLock;

use regex::Regex;

use crate::policy::{
    bound::Side,
    compile::Warning,
    rules::{Args, Matcher, Operator, Origin, Rule},
};

/// The tool whose commands other agents write rules about.
const SHELL: &str = "bash";

/// Control, format, private and unassigned characters, and white space other than the blank.
static HIDDEN: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"[\p{C}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}\u{2800}]|[\p{Zs}--\x20]").expect("a constant class")
});

/// Returns what the author of `rule` probably does not see in its text.
pub(crate) fn warnings(rule: &Rule, origin: &Origin) -> Vec<Warning> {
    let foreign = rule.pattern.as_deref().and_then(|pattern| foreign_form(pattern, origin));
    let hidden = texts(rule).into_iter().filter_map(|(key, text)| {
        let letter = HIDDEN.find(&text)?.as_str().chars().next()?;
        Some(Warning::HiddenCharacter { origin: origin.clone(), key, letter })
    });
    foreign.into_iter().chain(hidden).collect()
}

/// A pattern as other agents write it: `Bash(git:*)` for git with any arguments, or a command without its tool.
fn foreign_form(pattern: &str, origin: &Origin) -> Option<Warning> {
    let warning = |begins: &str, proposed: String| Warning::ForeignForm {
        origin: origin.clone(),
        pattern: pattern.to_owned(),
        begins: begins.to_owned(),
        proposed,
    };
    match pattern.split_once('(') {
        Some((tool, inside)) if tool.eq_ignore_ascii_case(SHELL) => {
            let command = inside.strip_suffix(":*)")?;
            Some(warning(&format!("{tool}({command}:"), format!("{SHELL}({command} *)")))
        }
        // No tool has a name of several words.
        None if pattern.trim().contains(' ') && !pattern.starts_with(['*', '?', '[']) => {
            let begins = pattern.split(['*', '?', '[']).next().unwrap_or_default();
            Some(warning(begins, format!("{SHELL}({})", pattern.trim())))
        }
        Some(_) | None => None,
    }
}

/// Every text of a rule that is compared with something, each with its key.
fn texts(rule: &Rule) -> Vec<(&'static str, String)> {
    let mut texts: Vec<(&'static str, String)> = Vec::new();
    let named = [("pattern", &rule.pattern), ("tool", &rule.tool)];
    texts.extend(named.into_iter().filter_map(|(key, text)| Some((key, text.clone()?))));
    texts.extend(Side::ALL.into_iter().filter_map(|side| Some((side.word(), side.of(rule)?.to_owned()))));
    if let Some(Args::Each(each)) = &rule.args {
        for (path, matcher) in each {
            texts.push(("args", path.clone()));
            texts.extend(of_matcher(matcher).into_iter().map(|text| ("args", text)));
        }
    }
    texts
}

fn of_matcher(matcher: &Matcher) -> Vec<String> {
    match matcher {
        Matcher::Pattern(text) => vec![text.clone()],
        Matcher::Equals(value) | Matcher::Operator(Operator::Is(value)) => {
            value.as_str().map(str::to_owned).into_iter().collect()
        }
        Matcher::Operator(Operator::In(values)) => {
            values.iter().filter_map(|value| value.as_str().map(str::to_owned)).collect()
        }
        Matcher::Operator(Operator::Not(matcher)) => of_matcher(matcher),
        Matcher::Operator(Operator::Max(_) | Operator::Min(_) | Operator::Present(_)) => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::warnings;
    use crate::policy::{Origin, Rule};

    fn lines(rule: Value) -> Vec<String> {
        let rule: Rule = serde_json::from_value(rule).unwrap();
        let origin = Origin { file: "p".to_owned(), line: 1 };
        warnings(&rule, &origin).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn the_form_of_another_agent_is_told_with_what_it_matches_and_what_was_meant() {
        let told = |begins: &str, pattern: &str, proposed: &str| {
            vec![format!(
                "p:1: \"{pattern}\" matches only what begins with \"{begins}\"; write \"{proposed}\" for the command with any \
                 arguments"
            )]
        };
        for (pattern, want) in [
            ("bash(git:*)", told("bash(git:", "bash(git:*)", "bash(git *)")),
            ("Bash(npm run test:*)", told("Bash(npm run test:", "Bash(npm run test:*)", "bash(npm run test *)")),
            ("git push*", told("git push", "git push*", "bash(git push*)")),
            ("bash(git *)", vec![]),
            ("bash(npm run test:unit)", vec![]),
            ("ha_call_service(light.turn_on, *)", vec![]),
            ("* push*", vec![]),
            ("read", vec![]),
        ] {
            assert_eq!(lines(json!({"pattern": pattern, "action": "deny"})), want, "{pattern}");
        }
    }

    #[test]
    fn a_character_that_nobody_sees_is_named_wherever_it_stands() {
        let told = |key: &str, code: &str| {
            vec![format!("p:1: {key} holds the invisible character U+{code}; remove it, or no plain text matches")]
        };
        for (rule, want) in [
            (json!({"pattern": "bash(git\u{a0}push*)", "action": "deny"}), told("pattern", "00A0")),
            (json!({"pattern": "read(\u{200b}*.pem)", "action": "deny"}), told("pattern", "200B")),
            (json!({"tool": "read\u{feff}", "action": "deny"}), told("tool", "FEFF")),
            (json!({"pattern": "t", "principal": "kitchen\u{202e}", "action": "deny"}), told("principal", "202E")),
            (json!({"tool": "t", "args": {"a\u{2060}": 1}, "action": "deny"}), told("args", "2060")),
            (json!({"tool": "t", "args": {"a": {"not": {"in": ["x\u{7f}"]}}}, "action": "deny"}), told("args", "007F")),
            (json!({"pattern": "t(größer 日本語 שלום 🙂)", "action": "deny"}), vec![]),
        ] {
            assert_eq!(lines(rule.clone()), want, "{rule}");
        }
    }
}
