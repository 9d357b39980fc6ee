//! What an operator in braces leaves of a value: `${x%/*}`, `${x/a/b}`, `${x:1}`.
//!
//! It need not be all that it may be, and it must not know what the value is for.

use crate::policy::{
    fnmatch::Pattern,
    shell::word::{self, GLOB, Known, UNKNOWN},
};

/// The longest value that is computed with: each way to cut it is tried.
const LONGEST: usize = 256;

/// What `operator`, as it stands behind a name in braces, may make of `values`.
pub(super) fn computed(operator: &str, values: &[String]) -> Vec<String> {
    let of_each = |make: &dyn Fn(&str) -> Vec<String>| {
        values.iter().filter(|value| value.len() <= LONGEST).flat_map(|value| make(value)).collect()
    };
    match operator.chars().next() {
        Some(sign @ ('%' | '#')) => {
            let Some(pattern) = pattern(operator.trim_start_matches(sign)) else { return Vec::new() };
            of_each(&|value| cut(value, &pattern, sign))
        }
        Some('/') => {
            let (wanted, instead) = halves(operator.trim_start_matches('/'));
            // Whatever it is in the place of, it may be all that is left.
            let instead = text(instead);
            let replaced: Vec<String> = match pattern(wanted.trim_start_matches(['#', '%'])) {
                Some(pattern) => of_each(&|value| replaced(value, &pattern, &instead)),
                None => Vec::new(),
            };
            replaced.into_iter().chain([instead]).collect()
        }
        Some(':') => {
            let mut numbers = operator[1..].splitn(2, ':').map(|number| number.trim().parse::<usize>().ok());
            let (from, most) = (numbers.next().flatten(), numbers.next());
            let (Some(from), Some(most)) = (from, most.unwrap_or(Some(usize::MAX))) else { return Vec::new() };
            of_each(&|value| vec![value.chars().skip(from).take(most).collect()])
        }
        Some('^' | ',') => values.to_vec(),
        Some(_) | None => Vec::new(),
    }
}

/// Without a piece at one end that the pattern matches: the shortest such piece, and the longest.
fn cut(value: &str, pattern: &Pattern, sign: char) -> Vec<String> {
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

/// With the first piece that the pattern matches replaced, taken as long as it goes.
fn replaced(value: &str, pattern: &Pattern, instead: &str) -> Vec<String> {
    let ends: Vec<usize> = value.char_indices().map(|(at, _)| at).chain([value.len()]).collect();
    let pieces =
        ends.iter().flat_map(|from| ends.iter().rev().take_while(move |end| from < *end).map(move |end| (*from, *end)));
    let found = pieces.take(LONGEST).find(|(from, end)| pattern.matches(&value[*from..*end]));
    vec![match found {
        Some((from, end)) => format!("{}{instead}{}", &value[..from], &value[end..]),
        None => value.to_owned(),
    }]
}

/// A pattern and what stands behind its slash.
fn halves(text: &str) -> (&str, &str) {
    let mut escaped = false;
    let slash = text.char_indices().find(|(_, c)| {
        let is_end = *c == '/' && !escaped;
        escaped = *c == '\\' && !escaped;
        is_end
    });
    slash.map_or((text, ""), |(at, _)| (&text[..at], &text[at + 1..]))
}

fn pattern(text: &str) -> Option<Pattern> {
    let plain = self::text(text);
    let is_literal = |c: char| !matches!(c, '*' | '?' | '[' | ']');
    (!plain.contains(UNKNOWN) && plain.chars().all(is_literal)).then(|| Pattern::new(&plain.replace(GLOB, "*")))
}

/// What quotes in an operand say.
fn text(operand: &str) -> String {
    word::scan(operand, Known { home: None, cwd: None, tried: &[] }).value
}

#[cfg(test)]
mod tests {
    use super::computed;

    #[test]
    fn what_is_cut_off_or_put_in_is_told() {
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
            ("^^", vec!["/home/ana/w"]),
            ("%$x", vec![]),
            ("@P", vec![]),
        ] {
            assert_eq!(computed(operator, &["/home/ana/w".to_owned()]), want, "{operator}");
        }
    }
}
