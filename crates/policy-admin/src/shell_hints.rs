//! Hints about rules on commands that cover less than they appear to, for `policy check`.
//!
//! It must not judge a command: it looks at the texts of rules alone.

use countersign_core::policy::{CompiledRules, RuleAction, RuleRef};

/// Returns a hint for each rule on commands that other spellings of the same command pass, a line each with file and line.
pub fn shell_hints(compiled: &CompiledRules) -> Vec<String> {
    compiled.rules().filter_map(|listed| Some(format!("{}: {}", listed.named.origin, shell_hint(&listed)?))).collect()
}

fn shell_hint(listed: &RuleRef<'_>) -> Option<String> {
    let pattern = listed.rule.pattern.as_deref()?;
    match listed.rule.action {
        RuleAction::Deny => option_hint(pattern),
        RuleAction::Allow => ["bash(*)", "bash*"].contains(&pattern).then(|| {
            format!(
                "\"{pattern}\" does not cover every command: a command that uses files outside the working folder, or whose \
                 effect its text does not show, still needs an approval; only the bare \"*\" covers it, and with it every tool"
            )
        }),
        RuleAction::Ask => None,
    }
}

/// Returns a hint about a denied command with options: the rule is passed by the same options in another order or spelling.
fn option_hint(pattern: &str) -> Option<String> {
    let command = pattern.strip_prefix("bash(")?.trim_end_matches(')');
    let words: Vec<&str> = command.split_whitespace().collect();
    let option = words.iter().skip(1).find(|word| is_option(word))?.trim_end_matches('*');
    let is_plain = |word: &&&str| !is_option(word) && !word.contains(['*', '?', '[']);
    let before: Vec<&str> = words.iter().take_while(is_plain).copied().collect();
    if before.is_empty() {
        return None;
    }
    let before = before.join(" ");
    let letters: Vec<char> = option.strip_prefix('-').unwrap_or_default().chars().collect();
    // Longer ones are names, as in `find -delete`.
    let example = if letters.contains(&'-') || !(2..=3).contains(&letters.len()) {
        String::new()
    } else {
        let turned: String = letters.iter().rev().collect();
        let apart: Vec<String> = letters.iter().map(|letter| format!("-{letter}")).collect();
        format!(", such as \"{before} -{turned}\" or \"{before} {}\"", apart.join(" "))
    };
    Some(format!(
        "\"{pattern}\" does not cover the same options in another order or spelling{example}; deny \"bash({before}*)\", or add \
         a rule that asks for it"
    ))
}

/// Reports whether a word of a pattern is an option, and not a text in which anything may stand for it.
fn is_option(word: &str) -> bool {
    let name = word.trim_start_matches('-');
    (1..=2).contains(&(word.len() - name.len())) && name.starts_with(|first: char| first.is_ascii_alphanumeric())
}

#[cfg(test)]
mod tests {
    use countersign_core::policy::{self, Rule, RuleAction, RuleLayer, RuleSet, RuleSource};

    use super::shell_hints;

    #[test]
    fn a_rule_on_options_and_one_on_all_commands_draw_a_hint() {
        let spelled = |pattern: &str, example: &str, before: &str| {
            Some(format!(
                "p:2: \"{pattern}\" does not cover the same options in another order or spelling{example}; deny \
                 \"bash({before}*)\", or add a rule that asks for it"
            ))
        };
        for (pattern, action, want) in [
            ("bash(rm -rf*)", RuleAction::Deny, spelled("bash(rm -rf*)", ", such as \"rm -fr\" or \"rm -r -f\"", "rm")),
            ("bash(rm -r *)", RuleAction::Deny, spelled("bash(rm -r *)", "", "rm")),
            ("bash(git push --force*)", RuleAction::Deny, spelled("bash(git push --force*)", "", "git push")),
            ("bash(git * -f)", RuleAction::Deny, spelled("bash(git * -f)", "", "git")),
            ("bash(find . -delete)", RuleAction::Deny, spelled("bash(find . -delete)", "", "find .")),
            ("bash(rm*)", RuleAction::Deny, None),
            ("bash(git push*)", RuleAction::Deny, None),
            ("bash(* -rf*)", RuleAction::Deny, None),
            ("bash(echo - x)", RuleAction::Deny, None),
            ("read(x -rf)", RuleAction::Deny, None),
            ("bash(rm -rf*)", RuleAction::Ask, None),
            ("bash(ls -la)", RuleAction::Allow, None),
            ("*", RuleAction::Allow, None),
        ] {
            assert_eq!(hint(pattern, action), want, "{pattern} {action:?}");
        }
        assert!(hint("bash(*)", RuleAction::Allow).unwrap().contains("only the bare \"*\" covers it"));
    }

    fn hint(pattern: &str, action: RuleAction) -> Option<String> {
        let rule = Rule { line: 2, ..Rule::new(pattern, action) };
        let rules = RuleSet { rules: vec![rule], ..RuleSet::default() };
        let source = RuleSource { name: "p".to_owned(), layer: RuleLayer::Main, rules };
        shell_hints(&policy::compile_rules(vec![source]).unwrap()).into_iter().next()
    }
}
