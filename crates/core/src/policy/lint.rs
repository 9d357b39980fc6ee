//! Finds rules whose text has another meaning than it appears to have. It must not decide whether a rule is accepted.

use std::{fmt, sync::LazyLock};

use regex::{Captures, Regex};

use crate::policy::{
    compile::RuleWarning,
    rule_scope::RuleScopeKey,
    rules::{ArgConditions, ArgMatcher, MatchOperator, Rule, RuleOrigin},
};

/// Name of the tool for which other agents write command rules.
const SHELL: &str = "bash";

/// Beginnings of tools whose signature is their name alone.
const BARE_SIGNATURES: [&str; 5] = ["mcp__", "claude__", "codex__", "gemini__", "copilot__"];

/// Tools of other agents that rules know under our names.
const RENAMED: [(&str, &str); 9] = [
    ("claude__Bash", SHELL),
    ("codex__Bash", SHELL),
    ("codex__exec_command", SHELL),
    ("gemini__run_shell_command", SHELL),
    ("copilot__bash", SHELL),
    ("claude__Read", "read"),
    ("claude__Write", "write"),
    ("claude__Edit", "edit"),
    ("claude__MultiEdit", "edit"),
];

/// Tools whose first argument is a command or a path, so that a call has one.
const WITH_ARGUMENT: [&str; 4] = [SHELL, "read", "write", "edit"];

/// Control, format, private and unassigned characters, and white space other than the blank.
static HIDDEN: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"[\p{C}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}\u{2800}]|[\p{Zs}--\x20]").expect("a constant class")
});

/// Texts that have a meaning in regular expressions and are rare in a command or a path.
static REGEX: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"^/?\^|\$$|\([^()\s|]+(?:\|[^()\s|]+)+\)|\\[sdwSDW][+{*?]|\.\+|\]\+|\{[^{}\s]*,[^{}\s]*\}")
        .expect("a constant expression")
});

/// Alternatives among the words of a command. A command that a rule is compared with has no pipe.
static ALTERNATIVES: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"[^\s|]+(?:\|[^\s|]+)+").expect("a constant expression"));

/// A dash other than the hyphen at the beginning of a word, as word processors put it before the name of an option.
static DASH: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"(?<before>^|[\s(])(?<dash>[\p{Pd}\u{2212}--\-][\p{Pd}\-]?)(?<name>\pL+)")
        .expect("a constant expression")
});

/// A part of a pattern that has another meaning to its author.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PatternOddity {
    /// Text with a meaning in regular expressions.
    Regex(String),
    /// Quotes around all arguments.
    Quoted {
        /// The pattern without them.
        proposed: String,
    },
    /// Blanks around all arguments.
    Blank {
        /// The pattern without them.
        proposed: String,
    },
    /// Arguments in the signature of a tool that has none there.
    BareSignature {
        /// The tool.
        tool: String,
    },
    /// A tool that rules know under another name.
    Renamed {
        /// That name.
        name: &'static str,
    },
    /// No argument, for a tool that always has one.
    NoArgument {
        /// The pattern for all calls.
        proposed: String,
    },
    /// An exclamation mark before the arguments.
    Negation,
    /// A folder in the place of a file.
    Folder {
        /// The pattern for everything in the folder.
        proposed: String,
    },
    /// A dash that is no hyphen.
    Dash {
        /// The dash.
        letter: char,
        /// The pattern with hyphens.
        proposed: String,
        /// The pattern with single ones, where a writer may have meant several short options.
        short: Option<String>,
    },
}

impl fmt::Display for PatternOddity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Regex(sign) => write!(
                f,
                "contains \"{sign}\", but a pattern is not a regular expression: \"*\" matches any text, \"?\" one \
                 character, \"[ab]\" one of several, all else itself; write one rule for each alternative"
            ),
            Self::Quoted { proposed } => {
                write!(f, "matches only arguments that include the quotes; write \"{proposed}\"")
            }
            Self::Blank { proposed } => {
                write!(f, "matches only arguments that start or end with a space; write \"{proposed}\"")
            }
            Self::BareSignature { tool } => {
                write!(f, "matches nothing: the signature of {tool} is its name; write \"{tool}\" with conditions under args")
            }
            Self::Renamed { name } => write!(f, "matches nothing: rules know this tool as {name}"),
            Self::NoArgument { proposed } => {
                write!(f, "matches only calls with an empty argument; write \"{proposed}\" for all calls")
            }
            Self::Negation => f.write_str(
                "matches only arguments that start with \"!\", because a pattern has no negation; write a rule with the other \
                 action before this one",
            ),
            Self::Folder { proposed } => {
                write!(f, "matches only a path that ends with a slash; write \"{proposed}\" for everything in the folder")
            }
            Self::Dash { letter, proposed, short } => {
                let code = u32::from(*letter);
                write!(f, "contains the dash U+{code:04X}, which does not start an option; write \"{proposed}\"")?;
                short.iter().try_for_each(|short| write!(f, " or \"{short}\""))
            }
        }
    }
}

/// Returns the properties of `rule` that its author probably does not see in its text.
pub(crate) fn rule_warnings(rule: &Rule, origin: &RuleOrigin) -> Vec<RuleWarning> {
    let foreign = rule.pattern.as_deref().and_then(|pattern| foreign_form(pattern, origin));
    let hidden = rule_texts(rule).into_iter().filter_map(|(key, text)| {
        // Most texts consist of visible ASCII characters, which is checked without the table of all others.
        let may_hide = !text.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic());
        let letter = may_hide.then(|| HIDDEN.find(&text))??.as_str().chars().next()?;
        Some(RuleWarning::HiddenCharacter { origin: origin.clone(), key, letter })
    });
    let odd = rule.pattern.as_deref().map(pattern_oddities).unwrap_or_default().into_iter().map(|oddity| {
        RuleWarning::Odd { origin: origin.clone(), pattern: rule.pattern.clone().unwrap_or_default(), oddity }
    });
    foreign.into_iter().chain(odd).chain(hidden).collect()
}

/// Returns the parts of a pattern that have another meaning to its author, for any tool.
fn pattern_oddities(pattern: &str) -> Vec<PatternOddity> {
    let mut found = Vec::new();
    let inside = pattern.split_once('(').and_then(|(_, inside)| inside.strip_suffix(')'));
    let with = |inside: &str| format!("{}({inside})", pattern.split('(').next().unwrap_or_default());
    let of_shell = pattern.strip_prefix(SHELL).filter(|rest| rest.starts_with('(')).and(inside);
    let sign = inside.and_then(|inside| REGEX.find(inside)).or_else(|| REGEX.find(pattern));
    let sign = sign.or_else(|| ALTERNATIVES.find(of_shell?));
    found.extend(sign.map(|sign| PatternOddity::Regex(sign.as_str().to_owned())));
    let tool = pattern.split('(').next().unwrap_or_default();
    let renamed = RENAMED.iter().find(|(foreign, _)| *foreign == tool.trim_end_matches('*'));
    if let Some((_, name)) = renamed {
        found.push(PatternOddity::Renamed { name });
    } else if inside.is_some() && BARE_SIGNATURES.iter().any(|begin| tool.starts_with(begin)) {
        found.push(PatternOddity::BareSignature { tool: tool.to_owned() });
    }
    if let Some(inside) = inside.filter(|_| WITH_ARGUMENT.contains(&tool)) {
        if inside.is_empty() {
            found.push(PatternOddity::NoArgument { proposed: with("*") });
        }
        // In a shell the word `!` alone is a command.
        if inside.starts_with('!') && !inside.starts_with("! ") {
            found.push(PatternOddity::Negation);
        }
        if inside.ends_with('/') && tool != SHELL {
            found.push(PatternOddity::Folder { proposed: with(&format!("{inside}*")) });
        }
    }
    if let Some(inside) = inside {
        let plain = inside.trim_matches(' ');
        if plain != inside && !plain.is_empty() {
            found.push(PatternOddity::Blank { proposed: with(plain) });
        }
        const QUOTES: [[char; 2]; 5] = [['"', '"'], ['\'', '\''], ['`', '`'], ['“', '”'], ['‘', '’']];
        let quoted = QUOTES.into_iter().find_map(|quotes| {
            let inner = plain.strip_prefix(quotes[0])?.strip_suffix(quotes[1])?;
            (!inner.is_empty() && !inner.contains(quotes)).then_some(inner)
        });
        found.extend(quoted.map(|inner| PatternOddity::Quoted { proposed: with(inner) }));
    }
    let dash = if pattern.is_ascii() { None } else { DASH.captures(pattern) };
    if let Some(letter) = dash.and_then(|found| found["dash"].chars().next()) {
        let with_hyphens = |of_words: &str| {
            let replaced = DASH.replace_all(pattern, |found: &Captures<'_>| {
                let hyphens = if found["name"].chars().count() == 1 { "-" } else { of_words };
                format!("{}{hyphens}{}", &found["before"], &found["name"])
            });
            replaced.into_owned()
        };
        let (proposed, short) = (with_hyphens("--"), with_hyphens("-"));
        // Programs that write text turn two hyphens into the longer dash, or any hyphen into the shorter one.
        let short = Some(short).filter(|short| letter != '\u{2014}' && *short != proposed);
        found.push(PatternOddity::Dash { letter, proposed, short });
    }
    found
}

/// Recognises a pattern as other agents write it: `Bash(git *)` with their name of the shell, `Bash(git:*)` for git with any
/// arguments, `bash:git *`,
/// or a command without its tool.
fn foreign_form(pattern: &str, origin: &RuleOrigin) -> Option<RuleWarning> {
    let warning = |begins: &str, inside: &str| RuleWarning::ForeignForm {
        origin: origin.clone(),
        pattern: pattern.to_owned(),
        begins: begins.to_owned(),
        proposed: format!("{SHELL}({inside})"),
    };
    let begins = |text: &str| text.split(['*', '?', '[']).next().unwrap_or_default().to_owned();
    // Commands by their beginning, and every call of a tool.
    let begun = pattern.strip_suffix(":*").filter(|begun| !begun.is_empty() && !begun.contains(['(', '*', '?', '[']));
    if let Some(begun) = begun {
        let of_shell = begun.split_once(':').filter(|(tool, _)| tool.eq_ignore_ascii_case(SHELL));
        let inside = match of_shell {
            Some((_, command)) => format!("{} *", command.trim()),
            None if begun.eq_ignore_ascii_case(SHELL) => "*".to_owned(),
            None => format!("{begun} *"),
        };
        return Some(warning(&format!("{begun}:"), &inside));
    }
    if let Some(tool) = pattern.strip_suffix("(:*)").filter(|tool| !tool.is_empty() && !tool.contains(['*', '?', '[']))
    {
        let proposed = if tool.eq_ignore_ascii_case(SHELL) { format!("{SHELL}(*)") } else { format!("{tool}*") };
        let (origin, pattern) = (origin.clone(), pattern.to_owned());
        return Some(RuleWarning::ForeignForm { origin, pattern, begins: format!("{tool}(:"), proposed });
    }
    // The name of the argument, and an absolute path with two slashes.
    let named = pattern.strip_prefix(SHELL).and_then(|rest| rest.strip_prefix('(')?.strip_suffix(')'));
    if let Some(command) =
        named.and_then(|inside| ["command=", "command:"].iter().find_map(|key| inside.strip_prefix(key)))
    {
        return Some(warning(&begins(pattern), command.trim()));
    }
    if let Some((tool, path)) = pattern.split_once("(//").filter(|(tool, _)| *tool != SHELL) {
        let (origin, pattern) = (origin.clone(), pattern.to_owned());
        let (begins, proposed) = (format!("{tool}(//"), format!("{tool}(/{path}"));
        return Some(RuleWarning::ForeignForm { origin, pattern, begins, proposed });
    }
    match pattern.split_once('(') {
        Some((tool, inside)) if tool.eq_ignore_ascii_case(SHELL) => match inside.strip_suffix(":*)") {
            Some(command) => Some(warning(&format!("{tool}({command}:"), &format!("{command} *"))),
            None => inside.strip_suffix(')').filter(|_| tool != SHELL).map(|inside| warning(&begins(pattern), inside)),
        },
        None => match pattern.split_once(':').filter(|(tool, _)| tool.eq_ignore_ascii_case(SHELL)) {
            Some((_, command)) => Some(warning(&begins(pattern), command.trim())),
            // No tool has a name of several words.
            None if pattern.trim().contains(' ') && !pattern.starts_with(['*', '?', '[']) => {
                let words = pattern.trim();
                // A shell is a command too, if it gets options or a script.
                let is_script = |rest: &str| {
                    rest.starts_with('-') || rest.split(' ').next().is_some_and(|word| word.contains(['.', '/']))
                };
                let command = words.split_once(' ');
                let command = command.filter(|(tool, rest)| tool.eq_ignore_ascii_case(SHELL) && !is_script(rest));
                Some(warning(&begins(pattern), command.map_or(words, |(_, command)| command.trim())))
            }
            None => None,
        },
        Some(_) => None,
    }
}

/// Returns every text of a rule that is compared with something, each with its key.
fn rule_texts(rule: &Rule) -> Vec<(&'static str, String)> {
    let mut texts: Vec<(&'static str, String)> = Vec::new();
    let named = [("pattern", &rule.pattern), ("tool", &rule.tool)];
    texts.extend(named.into_iter().filter_map(|(key, text)| Some((key, text.clone()?))));
    texts.extend(
        RuleScopeKey::ALL.into_iter().filter_map(|side| Some((side.key_name(), side.rule_pattern(rule)?.to_owned()))),
    );
    if let Some(ArgConditions::Each(each)) = &rule.args {
        for (path, matcher) in each {
            texts.push(("args", path.clone()));
            texts.extend(matcher_texts(matcher).into_iter().map(|text| ("args", text)));
        }
    }
    texts
}

fn matcher_texts(matcher: &ArgMatcher) -> Vec<String> {
    match matcher {
        ArgMatcher::Pattern(text) => vec![text.clone()],
        ArgMatcher::Equals(value) | ArgMatcher::Operator(MatchOperator::Is(value)) => {
            value.as_str().map(str::to_owned).into_iter().collect()
        }
        ArgMatcher::Operator(MatchOperator::In(values)) => {
            values.iter().filter_map(|value| value.as_str().map(str::to_owned)).collect()
        }
        ArgMatcher::Operator(MatchOperator::Not(matcher)) => matcher_texts(matcher),
        ArgMatcher::Operator(MatchOperator::Max(_) | MatchOperator::Min(_) | MatchOperator::Present(_)) => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::rule_warnings;
    use crate::policy::{Rule, RuleOrigin};

    fn lines(rule: Value) -> Vec<String> {
        let rule: Rule = serde_json::from_value(rule).unwrap();
        let origin = RuleOrigin { file: "p".to_owned(), line: 1 };
        rule_warnings(&rule, &origin).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_pattern_in_the_form_of_another_agent_is_reported_with_a_correction() {
        let foreign_warning = |begins: &str, pattern: &str, proposed: &str| {
            let more = if proposed.ends_with("*)") { " with any arguments" } else { "" };
            vec![format!(
                "p:1: \"{pattern}\" matches only signatures that start with \"{begins}\"; write \"{proposed}\" for the command{more}"
            )]
        };
        for (pattern, want) in [
            ("Bash:*", foreign_warning("Bash:", "Bash:*", "bash(*)")),
            ("git:*", foreign_warning("git:", "git:*", "bash(git *)")),
            ("npm run test:*", foreign_warning("npm run test:", "npm run test:*", "bash(npm run test *)")),
            ("bash(:*)", foreign_warning("bash(:", "bash(:*)", "bash(*)")),
            (
                "write(:*)",
                vec!["p:1: \"write(:*)\" matches only signatures that start with \"write(:\"; write \"write*\" for the tool with any arguments".to_owned()],
            ),
            ("bash(git:*)", foreign_warning("bash(git:", "bash(git:*)", "bash(git *)")),
            ("Bash(npm run test:*)", foreign_warning("Bash(npm run test:", "Bash(npm run test:*)", "bash(npm run test *)")),
            ("git push*", foreign_warning("git push", "git push*", "bash(git push*)")),
            ("git push", foreign_warning("git push", "git push", "bash(git push)")),
            ("Bash(git *)", foreign_warning("Bash(git ", "Bash(git *)", "bash(git *)")),
            ("Bash(git status)", foreign_warning("Bash(git status)", "Bash(git status)", "bash(git status)")),
            ("BASH(*)", foreign_warning("BASH(", "BASH(*)", "bash(*)")),
            ("bash:git *", foreign_warning("bash:git ", "bash:git *", "bash(git *)")),
            ("Bash: npm test", foreign_warning("Bash: npm test", "Bash: npm test", "bash(npm test)")),
            ("bash:ls*", foreign_warning("bash:ls", "bash:ls*", "bash(ls*)")),
            ("bash x.sh *", foreign_warning("bash x.sh ", "bash x.sh *", "bash(bash x.sh *)")),
            ("bash rm *", foreign_warning("bash rm ", "bash rm *", "bash(rm *)")),
            ("bash -c *", foreign_warning("bash -c ", "bash -c *", "bash(bash -c *)")),
            ("bash(command=rm *)", foreign_warning("bash(command=rm ", "bash(command=rm *)", "bash(rm *)")),
            ("bash(command: rm *)", foreign_warning("bash(command: rm ", "bash(command: rm *)", "bash(rm *)")),
            (
                "read(//etc/passwd)",
                vec!["p:1: \"read(//etc/passwd)\" matches only signatures that start with \"read(//\"; write \"read(/etc/passwd)\" for the path".to_owned()],
            ),
            // The existence of a tool with this name is not known here.
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
    fn characters_with_another_meaning_in_a_pattern_are_reported() {
        let regex = |pattern: &str, sign: &str| {
            vec![format!(
                "p:1: \"{pattern}\" contains \"{sign}\", but a pattern is not a regular expression: \"*\" matches any text, \"?\" \
                 one character, \"[ab]\" one of several, all else itself; write one rule for each alternative"
            )]
        };
        let oddity_warning = |pattern: &str, what: &str, proposed: &str| {
            vec![format!("p:1: \"{pattern}\" {what}; write \"{proposed}\"")]
        };
        let no_argument = "matches only calls with an empty argument";
        for (pattern, want) in [
            ("bash()", vec![format!("p:1: \"bash()\" {no_argument}; write \"bash(*)\" for all calls")]),
            (
                "bash(!git *)",
                vec![
                    "p:1: \"bash(!git *)\" matches only arguments that start with \"!\", because a pattern has no negation; write a \
                     rule with the other action before this one"
                        .to_owned(),
                ],
            ),
            (
                "read(secrets/)",
                vec![
                    "p:1: \"read(secrets/)\" matches only a path that ends with a slash; write \"read(secrets/*)\" for everything \
                     in the folder"
                        .to_owned(),
                ],
            ),
            (
                "mcp__desk__turn(*)",
                vec![
                    "p:1: \"mcp__desk__turn(*)\" matches nothing: the signature of mcp__desk__turn is its name; write \
                     \"mcp__desk__turn\" with conditions under args"
                        .to_owned(),
                ],
            ),
            (
                "claude__Write*",
                vec!["p:1: \"claude__Write*\" matches nothing: rules know this tool as write".to_owned()],
            ),
            ("claude__WebFetch", vec![]),
            ("mcp__desk__*", vec![]),
            ("list_tools()", vec![]),
            ("bash(! git diff --quiet)", vec![]),
            ("bash(ls src/)", vec![]),
            ("read(secrets/*)", vec![]),
        ] {
            assert_eq!(lines(json!({"pattern": pattern, "action": "deny"})), want, "{pattern}");
        }
        let quotes = "matches only arguments that include the quotes";
        let blanks = "matches only arguments that start or end with a space";
        let dash = |code: &str| format!("contains the dash U+{code}, which does not start an option");
        for (pattern, want) in [
            ("bash(^git .*)", regex("bash(^git .*)", "^")),
            ("bash(git (status|log))", regex("bash(git (status|log))", "(status|log)")),
            ("read(*.pem$)", regex("read(*.pem$)", "$")),
            ("bash(curl|wget *)", regex("bash(curl|wget *)", "curl|wget")),
            ("bash({curl,wget} *)", regex("bash({curl,wget} *)", "{curl,wget}")),
            ("edit(src/{a,b}/*)", regex("edit(src/{a,b}/*)", "{a,b}")),
            ("bash(/^rm/)", regex("bash(/^rm/)", "/^")),
            (r"bash(rm\s*)", regex(r"bash(rm\s*)", r"\s*")),
            ("bash(“rm *”)", oddity_warning("bash(“rm *”)", quotes, "bash(rm *)")),
            ("bash(git .+)", regex("bash(git .+)", ".+")),
            (r"bash(git\s+push)", regex(r"bash(git\s+push)", r"\s+")),
            ("^bash(git*", regex("^bash(git*", "^")),
            ("bash(\"git status\")", oddity_warning("bash(\"git status\")", quotes, "bash(git status)")),
            ("read('x*')", oddity_warning("read('x*')", quotes, "read(x*)")),
            ("bash( git *)", oddity_warning("bash( git *)", blanks, "bash(git *)")),
            ("read(x )", oddity_warning("read(x )", blanks, "read(x)")),
            (
                "bash(git –force)",
                vec![format!(
                    "p:1: \"bash(git –force)\" {}; write \"bash(git --force)\" or \"bash(git -force)\"",
                    dash("2013")
                )],
            ),
            ("bash(rm –f)", oddity_warning("bash(rm –f)", &dash("2013"), "bash(rm -f)")),
            ("bash(git —force −f *)", oddity_warning("bash(git —force −f *)", &dash("2014"), "bash(git --force -f *)")),
            ("bash(ls .*)", vec![]),
            ("read(*/.*)", vec![]),
            ("bash(a | b)", vec![]),
            ("bash(\"a b\" \"c\")", vec![]),
            ("bash(echo $HOME *)", vec![]),
            (r"read(C:\src\*)", vec![]),
            ("t(größer – kleiner, 2020–2024)", vec![]),
            ("bash(git push --force *)", vec![]),
            ("bash([!a]*)", vec![]),
        ] {
            assert_eq!(lines(json!({"pattern": pattern, "action": "deny"})), want, "{pattern}");
        }
    }

    #[test]
    fn a_character_that_nobody_sees_is_named_wherever_it_stands() {
        let hidden_warning = |key: &str, code: &str| {
            vec![format!("p:1: {key} contains the invisible character U+{code}; remove it, or no plain text matches")]
        };
        for (rule, want) in [
            (json!({"pattern": "bash(git\u{a0}push*)", "action": "deny"}), hidden_warning("pattern", "00A0")),
            (json!({"pattern": "read(\u{200b}*.pem)", "action": "deny"}), hidden_warning("pattern", "200B")),
            (json!({"tool": "read\u{feff}", "action": "deny"}), hidden_warning("tool", "FEFF")),
            (
                json!({"pattern": "t", "principal": "kitchen\u{202e}", "action": "deny"}),
                hidden_warning("principal", "202E"),
            ),
            (json!({"tool": "t", "args": {"a\u{2060}": 1}, "action": "deny"}), hidden_warning("args", "2060")),
            (
                json!({"tool": "t", "args": {"a": {"not": {"in": ["x\u{7f}"]}}}, "action": "deny"}),
                hidden_warning("args", "007F"),
            ),
            (json!({"pattern": "t(größer 日本語 שלום 🙂)", "action": "deny"}), vec![]),
        ] {
            assert_eq!(lines(rule.clone()), want, "{rule}");
        }
    }
}
