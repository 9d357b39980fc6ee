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
        // Most texts are of letters that everybody sees, and telling that takes no table of all others.
        let may_hide = !text.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic());
        let letter = may_hide.then(|| HIDDEN.find(&text))??.as_str().chars().next()?;
        Some(Warning::HiddenCharacter { origin: origin.clone(), key, letter })
    });
    foreign.into_iter().chain(hidden).collect()
}

/// A pattern as other agents write it: `Bash(git *)` with their name of the shell, `Bash(git:*)` for git with any arguments, `bash:git *`,
/// or a command without its tool.
fn foreign_form(pattern: &str, origin: &Origin) -> Option<Warning> {
    let warning = |begins: &str, inside: &str| Warning::ForeignForm {
        origin: origin.clone(),
        pattern: pattern.to_owned(),
        begins: begins.to_owned(),
        proposed: format!("{SHELL}({inside})"),
    };
    let begins = |text: &str| text.split(['*', '?', '[']).next().unwrap_or_default().to_owned();
    match pattern.split_once('(') {
        Some((tool, inside)) if tool.eq_ignore_ascii_case(SHELL) => match inside.strip_suffix(":*)") {
            Some(command) => Some(warning(&format!("{tool}({command}:"), &format!("{command} *"))),
            None => inside.strip_suffix(')').filter(|_| tool != SHELL).map(|inside| warning(&begins(pattern), inside)),
        },
        None => match pattern.split_once(':').filter(|(tool, _)| tool.eq_ignore_ascii_case(SHELL)) {
            Some((_, command)) => Some(warning(&begins(pattern), command.trim())),
            // No tool has a name of several words.
            None => (pattern.trim().contains(' ') && !pattern.starts_with(['*', '?', '[']))
                .then(|| warning(&begins(pattern), pattern.trim())),
        },
        Some(_) => None,
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
            let more = if proposed.ends_with("*)") { " with any arguments" } else { "" };
            vec![format!(
                "p:1: \"{pattern}\" matches only what begins with \"{begins}\"; write \"{proposed}\" for the command{more}"
            )]
        };
        for (pattern, want) in [
            ("bash(git:*)", told("bash(git:", "bash(git:*)", "bash(git *)")),
            ("Bash(npm run test:*)", told("Bash(npm run test:", "Bash(npm run test:*)", "bash(npm run test *)")),
            ("git push*", told("git push", "git push*", "bash(git push*)")),
            ("git push", told("git push", "git push", "bash(git push)")),
            ("Bash(git *)", told("Bash(git ", "Bash(git *)", "bash(git *)")),
            ("Bash(git status)", told("Bash(git status)", "Bash(git status)", "bash(git status)")),
            ("BASH(*)", told("BASH(", "BASH(*)", "bash(*)")),
            ("bash:git *", told("bash:git ", "bash:git *", "bash(git *)")),
            ("Bash: npm test", told("Bash: npm test", "Bash: npm test", "bash(npm test)")),
            ("bash:ls*", told("bash:ls", "bash:ls*", "bash(ls*)")),
            ("bash x.sh *", told("bash x.sh ", "bash x.sh *", "bash(bash x.sh *)")),
            // Whether there is a tool that these could mean is not known here.
            ("Read(./src/**)", vec![]),
            ("WebFetch(domain:x)", vec![]),
            ("mac__Bash(git *)", vec![]),
            ("bash", vec![]),
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
