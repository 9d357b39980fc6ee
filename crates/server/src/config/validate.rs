//! Regular expressions as tools files have them, with the meaning of Python's `re.match`.
//!
//! Anchored at the start, open at the end. Where the two dialects mean different things by the same text it is
//! rewritten; what has no counterpart (looking around, back references) does not compile.

use regex::{Regex, RegexBuilder};

/// What a value must match.
#[derive(Clone, Debug)]
pub struct Validate {
    source: String,
    regex: Regex,
}

impl PartialEq for Validate {
    fn eq(&self, other: &Self) -> bool {
        self.source == other.source
    }
}

impl Eq for Validate {}

impl Validate {
    /// Compiles `source`.
    ///
    /// # Errors
    /// What is wrong with it, in one line.
    pub fn new(source: &str) -> Result<Self, String> {
        let pattern = format!(r"\A(?:{})", translated(source));
        // Compiled alone first: `)|(` would be sound between the parentheses.
        for pattern in [&translated(source), &pattern] {
            if let Err(error) = built(pattern) {
                let text = error.to_string();
                let last = text.lines().last().unwrap_or_default();
                return Err(last.trim_start_matches("error: ").to_owned());
            }
        }
        let regex = built(&pattern).map_err(|error| error.to_string())?;
        Ok(Self { source: source.to_owned(), regex })
    }

    /// The text as the file has it.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// True if `value` matches from its start.
    pub fn matches(&self, value: &str) -> bool {
        self.regex.is_match(value)
    }
}

fn built(pattern: &str) -> Result<Regex, regex::Error> {
    RegexBuilder::new(pattern).size_limit(1 << 20).nest_limit(100).build()
}

fn translated(source: &str) -> String {
    let mut result = String::with_capacity(source.len());
    let mut letters = source.chars().peekable();
    // `Some(n)`: inside a class, n members in.
    let mut class: Option<usize> = None;
    while let Some(letter) = letters.next() {
        match (letter, class) {
            ('\\', _) => {
                match letters.next() {
                    Some('Z') if class.is_none() => result.push_str(r"\z"),
                    // To Rust these are the edges of words, to Python nothing but themselves.
                    Some(edge @ ('<' | '>')) => result.push(edge),
                    Some(other) => result.extend(['\\', other]),
                    None => result.push('\\'),
                }
                class = class.map(|members| members + 1);
            }
            ('[', None) => {
                result.push('[');
                if letters.next_if_eq(&'^').is_some() {
                    result.push('^');
                }
                class = Some(0);
            }
            (']', Some(members)) if members > 0 => {
                result.push(']');
                class = None;
            }
            // In a class these begin a class within it, or join two.
            ('[' | ']' | '&' | '~', Some(members)) => {
                result.extend(['\\', letter]);
                class = Some(members + 1);
            }
            (_, Some(members)) => {
                result.push(letter);
                class = Some(members + 1);
            }
            (_, None) => result.push(letter),
        }
    }
    result
}

#[cfg(test)]
mod tests {
    use super::Validate;

    #[test]
    fn a_value_is_matched_as_python_matches_it() {
        for (source, value, want) in [
            ("a", "abc", true),
            ("a", "ba", false),
            ("a|b", "b", true),
            ("a|b", "cb", false),
            ("^[a-z]+$", "abc", true),
            ("^[a-z]+$", "abc1", false),
            (r"[a-z]+\Z", "abc", true),
            (r"[a-z]+\Z", "abc1", false),
            ("(?i)abc", "ABC", true),
            ("[[a]+$", "[a", true),
            ("[]a]+$", "]a", true),
            ("[^]a]+$", "]", false),
            ("[a&&b]+$", "a&b", true),
            (r"\<a\>$", "<a>", true),
            ("(?P<n>a)b$", "ab", true),
        ] {
            assert_eq!(Validate::new(source).map(|validate| validate.matches(value)), Ok(want), "{source} {value}");
        }
    }

    #[test]
    fn what_has_no_meaning_here_does_not_compile() {
        for source in ["[", "(", ")|(", "*", "(?=a)b", r"(a)\1", "a{99999}{99999}"] {
            let error = Validate::new(source).unwrap_err();
            assert!(!error.is_empty() && !error.contains('\n'), "{source}: {error}");
        }
    }
}
