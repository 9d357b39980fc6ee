//! Values after an operator in braces: `${x%/*}`, `${x/a/b}`, `${x:1}`.
//!
//! It need not be all that it may be, and it must not know what the value is for.

use crate::{
    fnmatch::GlobPattern,
    word::{self, GLOB, KnownVariables, UNKNOWN},
};

/// The longest value that is computed with, and the longest that is put in: each way to cut it is tried, and all of its signs may be
/// replaced.
const LONGEST: usize = 256;

/// The same where pieces of it are looked for by a pattern with wildcards: each piece is tried.
const LONGEST_TO_REPLACE: usize = 64;

/// Returns the possible results of `operator`, as it follows a name in braces, on `values`. None if they cannot be determined.
pub(super) fn apply_operator(operator: &str, values: &[String]) -> Option<Vec<String>> {
    if values.is_empty() || values.iter().any(|value| value.len() > LONGEST) {
        return None;
    }
    let of_each = |make: &dyn Fn(&str) -> Vec<String>| values.iter().flat_map(|value| make(value)).collect();
    match operator.chars().next()? {
        sign @ ('%' | '#') => {
            let pattern = parse_pattern(operator.trim_start_matches(sign))?;
            Some(of_each(&|value| cut_pattern(value, &pattern, sign)))
        }
        '/' => {
            let (pattern_text, instead) = split_halves(operator.trim_start_matches('/'));
            // Whatever it replaces, it may be all that is left.
            let instead = unquoted_text(instead);
            if instead.len() > LONGEST {
                return None;
            }
            let at = pattern_text.chars().next().filter(|sign| matches!(sign, '#' | '%'));
            let pattern = parse_pattern(pattern_text.trim_start_matches(['#', '%']))?;
            let all = operator.starts_with("//");
            if pattern_text.contains(['*', '?', '[']) && values.iter().any(|value| value.len() > LONGEST_TO_REPLACE) {
                return None;
            }
            let mut made: Vec<String> = of_each(&|value| vec![replace_pieces(value, &pattern, &instead, at, all)]);
            made.push(instead);
            Some(made)
        }
        ':' => {
            let mut numbers = operator[1..].splitn(2, ':').map(|number| number.trim().parse::<usize>().ok());
            let (from, most) = (numbers.next().flatten()?, numbers.next());
            let most = most.unwrap_or(Some(usize::MAX))?;
            Some(of_each(&|value| vec![value.chars().skip(from).take(most).collect()]))
        }
        '^' | ',' => case_change(operator).map(|change| of_each(&|value| vec![change(value)])),
        _ => None,
    }
}

/// Letters in the other case: all, or the first. None where a pattern says which.
fn case_change(operator: &str) -> Option<fn(&str) -> String> {
    match operator {
        "^^" => Some(str::to_uppercase),
        ",," => Some(str::to_lowercase),
        "^" => Some(|value| with_first(value, str::to_uppercase)),
        "," => Some(|value| with_first(value, str::to_lowercase)),
        _ => None,
    }
}

fn with_first(value: &str, change: fn(&str) -> String) -> String {
    let (first, rest) = value.split_at(value.chars().next().map_or(0, char::len_utf8));
    change(first) + rest
}

/// Returns `value` without a piece at one end that the pattern matches: the shortest such piece, and the longest.
fn cut_pattern(value: &str, pattern: &GlobPattern, sign: char) -> Vec<String> {
    let ends = value.char_indices().map(|(at, _)| at).chain([value.len()]);
    let mut left: Vec<&str> = ends
        .filter_map(|at| {
            let (before, behind) = value.split_at(at);
            let (left, taken) = if sign == '%' { (before, behind) } else { (behind, before) };
            pattern.matches(taken).then_some(left)
        })
        .collect();
    left.sort_by_key(|left| left.len());
    match (left.first(), left.last()) {
        (Some(shortest), Some(longest)) => vec![(*shortest).to_owned(), (*longest).to_owned()],
        _ => vec![value.to_owned()],
    }
}

/// Returns `value` with the first piece that the pattern matches replaced, or all of them, taken as long as it goes. `at` says at which end
/// it must be.
fn replace_pieces(value: &str, pattern: &GlobPattern, instead: &str, at: Option<char>, all: bool) -> String {
    let mut made = String::new();
    let mut rest = value;
    let ends = |text: &str| text.char_indices().map(|(at, _)| at).chain([text.len()]).collect::<Vec<_>>();
    while !rest.is_empty() {
        let piece = ends(rest).into_iter().rev().find(|end| {
            let is_there = match at {
                Some('#') => made.is_empty(),
                Some(_) => *end == rest.len(),
                None => true,
            };
            *end > 0 && is_there && pattern.matches(&rest[..*end])
        });
        match piece {
            Some(end) => {
                made.push_str(instead);
                rest = &rest[end..];
                if !all {
                    break;
                }
            }
            None => {
                let next = rest.chars().next().map_or(rest.len(), char::len_utf8);
                made.push_str(&rest[..next]);
                rest = &rest[next..];
            }
        }
    }
    made + rest
}

/// Splits a pattern from the text after its slash.
fn split_halves(text: &str) -> (&str, &str) {
    let mut escaped = false;
    let slash = text.char_indices().find(|(_, c)| {
        let is_end = *c == '/' && !escaped;
        escaped = *c == '\\' && !escaped;
        is_end
    });
    slash.map_or((text, ""), |(at, _)| (&text[..at], &text[at + 1..]))
}

fn parse_pattern(operand: &str) -> Option<GlobPattern> {
    let operand = operand.replace("\\/", "/");
    if !operand.contains(['\'', '"', '\\', '$', '`', '~', '(']) {
        return Some(GlobPattern::new(&operand.replace("[^", "[!")));
    }
    let plain = unquoted_text(&operand);
    let is_literal = |c: char| !matches!(c, '*' | '?' | '[' | ']' | GLOB | UNKNOWN);
    plain.chars().all(is_literal).then(|| GlobPattern::new(&plain))
}

/// Returns the text of an operand without quotes.
fn unquoted_text(operand: &str) -> String {
    word::scan_word(operand, KnownVariables { home: None, cwd: None, tried: &[] }).value
}

#[cfg(test)]
mod tests {
    use super::apply_operator;

    #[test]
    fn removed_and_inserted_text_is_known() {
        for (operator, want) in [
            ("%/*", vec!["", "/home/ana"]),
            ("%/", vec!["/home/ana/w"]),
            ("%\"/w\"", vec!["/home/ana", "/home/ana"]),
            ("##*/", vec!["w", "home/ana/w"]),
            ("/ana/x", vec!["/home/x/w", "x"]),
            ("/*/-rf", vec!["-rf", "-rf"]),
            ("//e\\/*", vec!["/hom", ""]),
            (":0:5", vec!["/home"]),
            (":5", vec!["/ana/w"]),
            ("#?", vec!["home/ana/w", "home/ana/w"]),
            ("%%[^/]", vec!["/home/ana/", "/home/ana/"]),
            ("//a", vec!["/home/n/w", ""]),
            ("/%a", vec!["/home/ana/w", ""]),
            ("/#\\//x", vec!["xhome/ana/w", "x"]),
            ("^^", vec!["/HOME/ANA/W"]),
            (",", vec!["/home/ana/w"]),
        ] {
            let made = apply_operator(operator, &["/home/ana/w".to_owned()]);
            assert_eq!(made, Some(want.into_iter().map(str::to_owned).collect()), "{operator}");
        }
    }

    #[test]
    fn operators_that_are_not_followed_are_unknown() {
        for operator in ["%$x", "@P", ": -3", "^^[a]", "#\"*\"", "/$(x)/y"] {
            assert_eq!(apply_operator(operator, &["/home/ana/w".to_owned()]), None, "{operator}");
        }
        assert_eq!(apply_operator("#x", &["x".repeat(300)]), None);
        let put_in = |length: usize| apply_operator(&format!("//a/{}", "b".repeat(length)), &["a".repeat(200)]);
        assert_eq!((put_in(257), put_in(256).unwrap()[0].len()), (None, 200 * 256));
    }
}
