//! Error texts for users.

/// Returns an error text without the system's numbers at its end.
pub(crate) fn without_numbers(text: &str) -> String {
    let mut parts = text.split(" (os error ");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| {
        let behind = part.trim_start_matches(|c: char| c.is_ascii_digit()).strip_prefix(')');
        behind.map_or_else(|| format!("{text} (os error {part}"), |behind| format!("{text}{behind}"))
    })
}

#[cfg(test)]
mod tests {
    use super::without_numbers;

    #[test]
    fn what_went_wrong_is_told_in_words_alone() {
        for (text, want) in [
            ("a: Permission denied (os error 13)", "a: Permission denied"),
            ("a: gone (os error 2): b (os error 5).", "a: gone: b."),
            ("(os error x) (os error y)", "(os error x) (os error y)"),
        ] {
            assert_eq!(without_numbers(text), want);
        }
    }
}
