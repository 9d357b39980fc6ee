//! Blocks commands that have a tool of their own, if a setting requests it, with a text that names the tool.
//!
//! It must not know who set the rules. It is no security boundary: an agent can write the same in another way. A stage that reads
//! the output of the stage before it is let through, since no tool can take its place.

mod segments;

use std::sync::Arc;

use regex::{Regex, RegexBuilder};

use segments::{CommandSegment, split_segments};

/// Rules by which commands are blocked. Without rules none is.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CommandInterceptor(Arc<[InterceptRule]>);

/// Blocks some commands in favour of one tool.
#[derive(Clone, Debug, PartialEq)]
pub struct InterceptRule {
    tool: String,
    matcher: RuleMatcher,
}

#[derive(Clone, Debug)]
enum RuleMatcher {
    /// Commands of the kind for which the tool is made.
    Standard(CommandKind),
    /// Pattern of commands, with the message for them.
    Pattern { pattern: Regex, message: String },
}

impl PartialEq for RuleMatcher {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Standard(one), Self::Standard(other)) => one == other,
            (Self::Pattern { pattern, message }, Self::Pattern { pattern: other, message: other_message }) => {
                pattern.as_str() == other.as_str() && message == other_message
            }
            (Self::Standard(_), Self::Pattern { .. }) | (Self::Pattern { .. }, Self::Standard(_)) => false,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CommandKind {
    /// Shows files.
    Show,
    /// Searches in files.
    Search,
    /// Looks for files by name or type.
    Find,
    /// Changes files in their place.
    Change,
    /// Writes a text to a file.
    Write,
}

impl CommandKind {
    const ALL: [(Self, &str); 5] = [
        (Self::Show, "read"),
        (Self::Search, "grep"),
        (Self::Find, "find"),
        (Self::Change, "edit"),
        (Self::Write, "write"),
    ];

    fn matches_segment(self, segment: &CommandSegment) -> bool {
        let Some((program, arguments)) = segment.words.split_first() else { return false };
        let program = program.rsplit('/').next().unwrap_or(program);
        let has = |test: fn(&str) -> bool| arguments.iter().any(|word| test(word));
        match self {
            Self::Show => ["cat", "head", "tail", "less", "more"].contains(&program) && !arguments.is_empty(),
            Self::Search => ["grep", "rg", "ripgrep", "ag", "ack"].contains(&program) && !arguments.is_empty(),
            Self::Find => {
                const TESTS: [&str; 5] = ["-name", "-iname", "-type", "--type", "-glob"];
                ["find", "fd", "locate"].contains(&program)
                    && has(|word| TESTS.iter().any(|test| word.starts_with(test)))
            }
            Self::Change => match program {
                "sed" => has(|word| word.starts_with("-i") || word.starts_with("--in-place")),
                "perl" => has(|word| {
                    word.strip_prefix('-')
                        .is_some_and(|flags| flags.trim_start_matches(['p', 'n', 'l']).starts_with('i'))
                }),
                "awk" | "gawk" => arguments.windows(2).any(|pair| pair == ["-i", "inplace"]),
                _ => false,
            },
            Self::Write => segment.writes && ["echo", "printf", "cat"].contains(&program),
        }
    }
}

impl InterceptRule {
    /// Returns the rules that hold unless others are added: for programs that show, search, find, change and write files.
    pub fn standard_rules() -> impl Iterator<Item = Self> {
        CommandKind::ALL
            .into_iter()
            .map(|(kind, tool)| Self { tool: tool.to_owned(), matcher: RuleMatcher::Standard(kind) })
    }

    /// Blocks commands that `pattern` matches anywhere, in favour of `tool`; `message` gives the reason.
    ///
    /// # Errors
    /// Error text about the pattern or its flags, of which `i`, `m` and `s` have a meaning and `g` and `u` have none.
    pub fn new(pattern: &str, flags: &str, tool: &str, message: &str) -> Result<Self, String> {
        if let Some(flag) = flags.chars().find(|flag| !['i', 'm', 's', 'g', 'u'].contains(flag)) {
            return Err(format!("unknown flag {flag:?}: expected i, m, s, g or u"));
        }
        let has = |flag| flags.contains(flag);
        let mut builder = RegexBuilder::new(pattern);
        builder.case_insensitive(has('i')).multi_line(has('m')).dot_matches_new_line(has('s'));
        let pattern = builder.build().map_err(|error| error.to_string())?;
        Ok(Self { tool: tool.to_owned(), matcher: RuleMatcher::Pattern { pattern, message: message.to_owned() } })
    }

    /// Returns the tool in whose favour it blocks.
    pub fn tool_name(&self) -> &str {
        &self.tool
    }

    fn matches_command(&self, command: &str, segments: &[CommandSegment]) -> bool {
        let mut apart = segments.iter().filter(|segment| !segment.is_fed);
        match &self.matcher {
            RuleMatcher::Standard(kind) => apart.any(|segment| kind.matches_segment(segment)),
            RuleMatcher::Pattern { pattern, .. } => {
                pattern.is_match(command.trim())
                    || apart.any(|segment| pattern.is_match(&segment.text) || pattern.is_match(&segment.call))
            }
        }
    }
}

impl CommandInterceptor {
    /// Keeps those of `rules` whose tool is there.
    pub fn new(rules: impl IntoIterator<Item = InterceptRule>, is_there: impl Fn(&str) -> bool) -> Self {
        Self(rules.into_iter().filter(|rule| is_there(&rule.tool)).collect())
    }

    /// Lets a command through.
    ///
    /// # Errors
    /// The tool to use instead, for the model.
    pub fn check_command(&self, command: &str) -> Result<(), String> {
        let segments = if self.0.is_empty() { Vec::new() } else { split_segments(command) };
        let Some(rule) = self.0.iter().find(|rule| rule.matches_command(command, &segments)) else { return Ok(()) };
        let tool = &rule.tool;
        let message = match &rule.matcher {
            RuleMatcher::Pattern { message, .. } => message.clone(),
            RuleMatcher::Standard(CommandKind::Show) => format!("use the {tool} tool to show a file."),
            RuleMatcher::Standard(CommandKind::Search) => format!("use the {tool} tool to search in files."),
            RuleMatcher::Standard(CommandKind::Find) => format!("use the {tool} tool to look for files."),
            RuleMatcher::Standard(CommandKind::Change) => format!("use the {tool} tool to change a file."),
            RuleMatcher::Standard(CommandKind::Write) => format!("use the {tool} tool to write a file."),
        };
        Err(format!("Blocked: {message}\n\nOriginal command: {command}"))
    }
}

#[cfg(test)]
mod tests {
    use super::{CommandInterceptor, InterceptRule};

    /// Returns the tool that a command is blocked for.
    fn blocked(interceptor: &CommandInterceptor, command: &str) -> Option<String> {
        let text = interceptor.check_command(command).err()?;
        assert!(text.starts_with("Blocked: ") && text.ends_with(&format!("\n\nOriginal command: {command}")), "{text}");
        Some(text.split(' ').nth(3)?.to_owned())
    }

    #[test]
    fn a_command_that_has_a_tool_of_its_own_is_blocked_with_the_name_of_the_tool() {
        let interceptor = CommandInterceptor::new(InterceptRule::standard_rules(), |_| true);
        for (command, want) in [
            ("cat a.txt", Some("read")),
            ("  head -n 3 a.txt", Some("read")),
            ("cd x && /bin/tail -5 a", Some("read")),
            ("A=1 B='2 3' cat a", Some("read")),
            ("cat a | wc -l", Some("read")),
            ("grep -r x .", Some("grep")),
            ("rg x; ls", Some("grep")),
            ("find . -name '*.rs'", Some("find")),
            ("fd --type f", Some("find")),
            ("sed -i s/a/b/ f", Some("edit")),
            ("sed -n -i.bak s/a/b/ f", Some("edit")),
            ("perl -pi -e s/a/b/ f", Some("edit")),
            ("awk -i inplace '{print}' f", Some("edit")),
            ("echo $(date) | tr a b; (cat a)", Some("read")),
            ("echo hi > f", Some("write")),
            ("printf '%s' x >> \"$F\"", Some("write")),
            ("cat > f <<EOF\ngrep x y\nEOF", Some("write")),
            ("echo a > /dev/null > f", Some("write")),
            ("make 2>&1 | grep error", None),
            ("ps aux | head -3", None),
            ("cat", None),
            ("find .", None),
            ("sed -n 3p f", None),
            ("perl -Mstrict -e 1", None),
            ("echo 'a > b'", None),
            ("echo \"a > b\"", None),
            ("echo \"$(cat x; cat y)\" `cat z`", None),
            ("true |\n cat a", None),
            ("echo hi >&2", None),
            ("echo hi 2>/dev/null", None),
            ("echo hi > /dev/null", None),
            ("python3 <<EOF\ncat x\nEOF", None),
            ("git commit -m 'cat x'", None),
            ("echo # > f", None),
            ("cargo test && ls", None),
        ] {
            assert_eq!(blocked(&interceptor, command).as_deref(), want, "{command}");
        }
    }

    #[test]
    fn a_rule_holds_only_where_its_tool_is_there() {
        let interceptor = CommandInterceptor::new(InterceptRule::standard_rules(), |tool| tool == "grep");
        assert_eq!(interceptor.check_command("cat a.txt"), Ok(()));
        assert!(interceptor.check_command("cat a.txt; grep x a").is_err());
        assert_eq!(CommandInterceptor::default().check_command("grep x a"), Ok(()));
    }

    #[test]
    fn a_pattern_blocks_the_commands_that_it_matches() {
        let rule = InterceptRule::new("^git\\s+push", "i", "deploy", "Use deploy.").unwrap();
        let interceptor = CommandInterceptor::new([rule], |_| true);
        for (command, is_blocked) in [
            ("GIT push", true),
            ("cd x && git push", true),
            ("A=1 git push", true),
            ("echo git push", false),
            ("echo x | git push", false),
        ] {
            assert_eq!(interceptor.check_command(command).is_err(), is_blocked, "{command}");
        }
        let text = interceptor.check_command("git push").unwrap_err();
        assert_eq!(text, "Blocked: Use deploy.\n\nOriginal command: git push");
        assert!(InterceptRule::new("(?<!a)b", "", "x", "y").is_err(), "look-behind");
        assert_eq!(
            InterceptRule::new("a", "iy", "x", "y"),
            Err("unknown flag 'y': expected i, m, s, g or u".to_owned())
        );
    }
}
