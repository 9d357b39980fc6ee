//! Matches text against patterns exactly as Python's `fnmatch.fnmatchcase` does on POSIX. Knows nothing of rules.

use std::{collections::BTreeSet, fmt::Write as _, str::Chars};

/// One pattern, read once.
///
/// `*` is any run, `?` one code point, `[…]` a class that `!` negates; nothing escapes. Source: Python's `fnmatch.fnmatchcase`, which
/// agent-gate's rules are matched with.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct GlobPattern {
    parts: Vec<PatternPart>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum PatternPart {
    Literal(char),
    One,
    Run,
    /// Each range by its first and its last character.
    Class {
        negated: bool,
        ranges: Vec<(char, char)>,
    },
}

/// Reports whether `pattern` matches the whole of `text`, as the patterns of rules do.
pub fn pattern_matches(pattern: &str, text: &str) -> bool {
    GlobPattern::new(pattern).matches(text)
}

impl GlobPattern {
    /// Reads a pattern. Every text is one.
    pub fn new(pattern: &str) -> Self {
        let chars: Vec<char> = pattern.chars().collect();
        let mut parts = Vec::with_capacity(chars.len());
        let mut at = 0;
        while let Some(&c) = chars.get(at) {
            at += 1;
            match c {
                '*' if matches!(parts.last(), Some(PatternPart::Run)) => {}
                '*' => parts.push(PatternPart::Run),
                '?' => parts.push(PatternPart::One),
                '[' => match parse_class(&chars, at) {
                    Some((part, end)) => {
                        parts.push(part);
                        at = end;
                    }
                    None => parts.push(PatternPart::Literal('[')),
                },
                _ => parts.push(PatternPart::Literal(c)),
            }
        }
        Self { parts }
    }

    /// Returns a pattern that only `text` matches.
    pub fn from_literal(text: &str) -> Self {
        Self { parts: text.chars().map(PatternPart::Literal).collect() }
    }

    /// Returns the literal text before the first wildcard.
    pub fn literal_prefix(&self) -> String {
        self.parts.iter().map_while(|part| if let PatternPart::Literal(c) = part { Some(*c) } else { None }).collect()
    }

    /// Returns the literal texts between wildcards. Every match contains each of them.
    pub fn literal_pieces(&self) -> BTreeSet<String> {
        let (mut pieces, mut piece) = (BTreeSet::new(), String::new());
        for part in &self.parts {
            match part.single_char() {
                Some(c) => piece.push(c),
                None => drop(pieces.insert(std::mem::take(&mut piece))),
            }
        }
        pieces.insert(piece);
        pieces.remove("");
        pieces
    }

    /// Returns true for `*` alone.
    pub fn is_everything(&self) -> bool {
        matches!(self.parts[..], [PatternPart::Run])
    }

    /// Reports whether the whole of `text` matches, in time linear in it for every run of the pattern.
    pub fn matches(&self, text: &str) -> bool {
        let (mut part, mut rest) = (0, text.chars());
        let mut retry: Option<(usize, Chars<'_>)> = None;
        loop {
            let mut behind = rest.clone();
            let Some(c) = behind.next() else { break };
            match self.parts.get(part) {
                Some(PatternPart::Run) => {
                    retry = Some((part + 1, rest.clone()));
                    part += 1;
                }
                Some(one) if one.covers_char(c) => {
                    part += 1;
                    rest = behind;
                }
                Some(_) | None => match &mut retry {
                    Some((after, from)) => {
                        from.next();
                        part = *after;
                        rest = from.clone();
                    }
                    None => return false,
                },
            }
        }
        self.parts[part..].iter().all(|part| matches!(part, PatternPart::Run))
    }

    /// Reports whether a matching text may equal `text`, where `wild` stands for any run of characters that `covers` accepts.
    pub fn may_match(&self, text: &str, wild: char, covers: impl Fn(char) -> bool) -> bool {
        self.may_end(text, wild, &covers) && self.may_match_whole(text, wild, covers)
    }

    /// Returns false if the end of `text` alone shows that it cannot match, which is a far cheaper check.
    fn may_end(&self, text: &str, wild: char, covers: impl Fn(char) -> bool) -> bool {
        let mut parts = self.parts.iter().rev().peekable();
        let mut letters = text.chars().rev().peekable();
        while let Some(c) = letters.next() {
            if c != wild {
                match parts.next() {
                    Some(PatternPart::Run) => return true,
                    Some(part) if part.covers_char(c) => continue,
                    Some(_) | None => return false,
                }
            }
            // If the character before it could be a part of it, its beginning is unknown.
            if letters.peek().is_some_and(|before| *before == wild || covers(*before)) {
                return true;
            }
            while parts.next_if(|part| matches!(part, PatternPart::Literal(c) if covers(*c))).is_some() {}
            if matches!(parts.peek(), Some(PatternPart::One | PatternPart::Class { .. })) {
                return true;
            }
        }
        true
    }

    fn may_match_whole(&self, text: &str, wild: char, covers: impl Fn(char) -> bool) -> bool {
        let covered = |part: &PatternPart| if let PatternPart::Literal(c) = part { covers(*c) } else { true };
        // Parts that may be next; a run may always be passed over.
        let close = |next: &mut [bool]| {
            for (at, part) in self.parts.iter().enumerate() {
                next[at + 1] |= next[at] && matches!(part, PatternPart::Run);
            }
        };
        let mut next = vec![false; self.parts.len() + 1];
        next[0] = true;
        close(&mut next);
        for c in text.chars() {
            if c == wild {
                for (at, part) in self.parts.iter().enumerate() {
                    next[at + 1] |= next[at] && (covered(part) || matches!(part, PatternPart::Run));
                }
                continue;
            }
            let mut behind = vec![false; next.len()];
            for (at, part) in self.parts.iter().enumerate().filter(|(at, _)| next[*at]) {
                match part {
                    PatternPart::Run => behind[at] = true,
                    PatternPart::Literal(_) | PatternPart::One | PatternPart::Class { .. } => {
                        behind[at + 1] |= part.covers_char(c)
                    }
                }
            }
            next = behind;
            close(&mut next);
            if !next.contains(&true) {
                return false;
            }
        }
        next[self.parts.len()]
    }

    /// Writes the same language as an anchored regular expression, for sets of many patterns.
    pub fn to_regex(&self) -> String {
        let mut text = String::from(r"(?s)\A");
        for part in &self.parts {
            match part {
                PatternPart::Literal(c) => text.push_str(&regex::escape(c.encode_utf8(&mut [0; 4]))),
                PatternPart::One => text.push('.'),
                PatternPart::Run => text.push_str(".*"),
                PatternPart::Class { negated, ranges } => write_class(&mut text, *negated, ranges),
            }
        }
        text.push_str(r"\z");
        text
    }
}

impl PatternPart {
    /// Returns the one character that this covers, if it covers no other.
    fn single_char(&self) -> Option<char> {
        match self {
            Self::Literal(c) => Some(*c),
            Self::Class { negated: false, ranges } => match &ranges[..] {
                [(first, last)] if first == last => Some(*first),
                _ => None,
            },
            Self::One | Self::Run | Self::Class { negated: true, .. } => None,
        }
    }

    fn covers_char(&self, c: char) -> bool {
        match self {
            Self::Literal(literal) => *literal == c,
            Self::One => true,
            Self::Run => false,
            Self::Class { negated, ranges } => {
                ranges.iter().any(|(first, last)| (*first..=*last).contains(&c)) != *negated
            }
        }
    }
}

/// Reads the class that begins before `start`; none if it never ends.
fn parse_class(chars: &[char], start: usize) -> Option<(PatternPart, usize)> {
    let negated = chars.get(start) == Some(&'!');
    let first = start + usize::from(negated);
    let search = first + usize::from(chars.get(first) == Some(&']'));
    let end = search + chars.get(search..)?.iter().position(|c| *c == ']')?;
    let members = &chars[first..end];
    let mut ranges = Vec::new();
    let mut at = 0;
    while at < members.len() {
        // A hyphen between two members makes a range; CPython looks for the next hyphen two places on from a range's end.
        if at + 2 < members.len() && members[at + 1] == '-' {
            if members[at] <= members[at + 2] {
                ranges.push((members[at], members[at + 2]));
            }
            at += 3;
        } else {
            ranges.push((members[at], members[at]));
            at += 1;
        }
    }
    Some((PatternPart::Class { negated, ranges }, end + 1))
}

fn write_class(text: &mut String, negated: bool, ranges: &[(char, char)]) {
    match (negated, ranges.is_empty()) {
        (false, true) => text.push_str(r"[^\s\S]"),
        (true, true) => text.push('.'),
        (_, false) => {
            text.push_str(if negated { "[^" } else { "[" });
            for (first, last) in ranges {
                // Writing to a string cannot fail.
                let _ = write!(text, r"\x{{{:x}}}-\x{{{:x}}}", u32::from(*first), u32::from(*last));
            }
            text.push(']');
        }
    }
}

#[cfg(test)]
mod tests {
    use super::GlobPattern;

    #[test]
    fn a_text_with_wildcards_may_match() {
        for (pattern, text, want) in [
            ("git push*", "git pus~ origin main", true),
            ("git push*", "git p~ origin main", true),
            ("git push*", "git ~", true),
            ("git push*", "git add src/~.rs", false),
            ("cat /etc*", "cat ~.md", false),
            ("rm -rf *", "rm ~.o", true),
            ("rm -rf *", "rm src/~.o", false),
            ("rm -rf *", "rm build~", false),
            ("a?c", "a~", true),
            ("a[b]c", "~", true),
        ] {
            assert_eq!(GlobPattern::new(pattern).may_match(text, '~', |c| c != '/'), want, "{pattern} {text}");
        }
    }

    #[test]
    fn every_recorded_case_of_cpython_matches_alike_by_hand_and_by_regex() {
        #[derive(serde::Deserialize)]
        struct PatternCase {
            pattern: String,
            name: String,
            r#match: bool,
        }
        let mut count = 0;
        for line in include_str!("../tests/data/fnmatch_cases.jsonl").lines() {
            let case: PatternCase = serde_json::from_str(line).unwrap();
            let pattern = GlobPattern::new(&case.pattern);
            assert_eq!(pattern.matches(&case.name), case.r#match, "{line}");
            let regex = regex::Regex::new(&pattern.to_regex()).unwrap();
            assert_eq!(regex.is_match(&case.name), case.r#match, "{line} as {regex}");
            count += 1;
        }
        assert_eq!(count, 6000);
    }

    proptest::proptest! {
        #[test]
        fn the_end_of_a_text_hides_no_match(pattern in r"[ab.*?\[\]!]{0,8}", text in r"[ab.~]{0,8}") {
            let pattern = GlobPattern::new(&pattern);
            let covers = |c: char| c.is_ascii_alphabetic();
            let is_possible = pattern.may_match_whole(&text, '~', covers);
            proptest::prop_assert!(!is_possible || pattern.may_end(&text, '~', covers));
        }
    }

    #[test]
    fn many_runs_do_not_backtrack_for_ever() {
        let pattern = GlobPattern::new(&"*a".repeat(50));
        assert!(!pattern.matches(&"a".repeat(20_000).replace('a', "ab")));
    }
}
