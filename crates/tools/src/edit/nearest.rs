//! The lines of a text that are most like lines that were not found in it.
//!
//! It must not decide that they are meant.

use std::collections::HashSet;

/// Number of target lines that are compared.
const COMPARED: usize = 8;
/// Most lines of a text that are searched.
const LOOKED_AT: usize = 50_000;
/// Most lines that are shown.
const SHOWN: usize = 12;

/// Describes the place in `text` that is most like `target`, with line numbers; [`None`] if nothing is like it.
pub(super) fn describe_nearest(text: &str, target: &str) -> Option<String> {
    let lines: Vec<&str> = text.lines().take(LOOKED_AT).collect();
    let sought: Vec<&str> = target.lines().skip_while(|line| line.trim().is_empty()).take(COMPARED).collect();
    let sought_pairs: Vec<HashSet<(char, char)>> = sought.iter().map(|line| letter_pairs(line)).collect();
    let pairs: Vec<HashSet<(char, char)>> = lines.iter().map(|line| letter_pairs(line)).collect();
    let score = |start: usize| -> f64 {
        let likeness = sought_pairs.iter().zip(&pairs[start..]).map(|(sought, found)| pair_similarity(sought, found));
        likeness.sum()
    };
    let mut best = (0, 0.0);
    for start in 0..lines.len() {
        let score = score(start);
        if score > best.1 {
            best = (start, score);
        }
    }
    #[expect(clippy::cast_precision_loss, reason = "there are at most eight")]
    if best.1 < 0.4 * sought.len() as f64 {
        return None;
    }
    let count = target.lines().count().clamp(1, SHOWN);
    let shown: Vec<&str> = lines[best.0..].iter().take(count).copied().collect();
    let trimmed = |lines: &[&str]| -> Vec<String> { lines.iter().map(|line| collapse_whitespace(line)).collect() };
    let whole: Vec<&str> = target.lines().skip_while(|line| line.trim().is_empty()).take(SHOWN).collect();
    let reason = if trimmed(&shown) == trimmed(&whole) { " (they differ in white space only)" } else { "" };
    let mut made = format!("The nearest lines{reason}:");
    for (at, line) in shown.iter().enumerate() {
        made.push_str(&format!("\n{:>5}: {line}", best.0 + at + 1));
    }
    Some(made)
}

fn collapse_whitespace(line: &str) -> String {
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn letter_pairs(line: &str) -> HashSet<(char, char)> {
    let line = line.trim();
    // With the first letter doubled, a line of one letter is not like every other such line.
    line.chars().take(1).chain(line.chars()).take(200).zip(line.chars()).collect()
}

/// Returns Dice's coefficient: 1 for the same pairs of letters, 0 for none in common.
fn pair_similarity(left: &HashSet<(char, char)>, right: &HashSet<(char, char)>) -> f64 {
    if left.is_empty() || right.is_empty() {
        return f64::from(u8::from(left.is_empty() && right.is_empty()));
    }
    #[expect(clippy::cast_precision_loss, reason = "there are at most 200")]
    let share = 2.0 * left.intersection(right).count() as f64 / (left.len() + right.len()) as f64;
    share
}

#[cfg(test)]
mod tests {
    use super::describe_nearest;

    const TEXT: &str = "fn one() {\n    first();\n}\n\nfn two() {\n    second();\n}\n";

    #[test]
    fn the_nearest_lines_are_shown_with_their_numbers() {
        for (target, want) in [
            ("fn two() {\n    secnd();\n", Some("The nearest lines:\n    5: fn two() {\n    6:     second();")),
            (
                "fn two() {\n\tsecond();\n",
                Some("The nearest lines (they differ in white space only):\n    5: fn two() {\n    6:     second();"),
            ),
            ("quite something else", None),
        ] {
            assert_eq!(describe_nearest(TEXT, target).as_deref(), want, "{target}");
        }
        assert_eq!(describe_nearest("", "a"), None);
    }
}
