//! Patterns of a shell for names of models and tools.
//!
//! It must not know the matched names.

/// Reports whether `text` matches `pattern`: `*` any letters, `?` any one letter, `[…]` one of them (`[!…]` none of
/// them).
pub fn matches(pattern: &str, text: &str) -> bool {
    let (pattern, text): (Vec<char>, Vec<char>) = (pattern.chars().collect(), text.chars().collect());
    // Only the last star is ever tried again: with it all earlier ones have what they need.
    let (mut at, mut from, mut star) = (0, 0, None);
    while from < text.len() {
        match pattern.get(at) {
            Some('*') => {
                star = Some((at, from));
                at += 1;
                continue;
            }
            Some(_) => {
                if let Some(next) = match_one(&pattern, at, text[from]) {
                    (at, from) = (next, from + 1);
                    continue;
                }
            }
            None => {}
        }
        let Some((star_at, star_from)) = star else { return false };
        star = Some((star_at, star_from + 1));
        (at, from) = (star_at + 1, star_from + 1);
    }
    pattern[at..].iter().all(|letter| *letter == '*')
}

/// Returns the position at which the pattern continues if its part at `at` means `letter`.
fn match_one(pattern: &[char], at: usize, letter: char) -> Option<usize> {
    if pattern[at] == '?' {
        return Some(at + 1);
    }
    let close = (pattern[at] == '[')
        .then(|| pattern.iter().skip(at + 2).position(|letter| *letter == ']'))
        .flatten()
        .map(|behind| at + 2 + behind);
    let Some(close) = close else { return (pattern[at] == letter).then_some(at + 1) };
    let inside = &pattern[at + 1..close];
    let (inside, expected) = match inside.split_first() {
        Some(('!' | '^', rest)) => (rest, false),
        Some(_) | None => (inside, true),
    };
    let mut found = false;
    let mut rest = inside;
    while let Some((first, behind)) = rest.split_first() {
        rest = behind;
        match behind {
            ['-', last, tail @ ..] => {
                found |= (*first..=*last).contains(&letter);
                rest = tail;
            }
            _ => found |= *first == letter,
        }
    }
    (found == expected).then_some(close + 1)
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn a_pattern_means_what_a_shell_would_say() {
        for (pattern, text, want) in [
            ("*", "", true),
            ("claude-*", "claude-1", true),
            ("claude-*", "a/claude-1", false),
            ("*/claude-*-5", "a/claude-x-4-5", true),
            ("a?c", "abc", true),
            ("a?c", "ac", false),
            ("[a-c]x", "bx", true),
            ("[!a-c]x", "bx", false),
            ("[!a-c]x", "dx", true),
            ("[x", "[x", true),
            ("*a*b", "aab", true),
            ("*a*b", "aba", false),
            ("", "", true),
            ("", "a", false),
        ] {
            assert_eq!(matches(pattern, text), want, "{pattern} {text}");
        }
    }
}
