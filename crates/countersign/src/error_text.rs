//! Error texts for users.

/// Returns an error with its causes in one line. A cause that the text before it names already is left out, and so is the path at
/// the beginning of a cause if the text before it has that path.
pub(crate) fn chain_text(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if text.is_empty() {
            text = cause;
            continue;
        }
        let is_known = |path: &str| !path.is_empty() && !path.contains(' ') && text.contains(path);
        let rest = cause.split_once(": ").filter(|(path, _)| is_known(path)).map_or(cause.as_str(), |(_, rest)| rest);
        if !text.contains(rest) {
            text = format!("{text}: {rest}");
        }
    }
    text
}

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
    use super::{chain_text, without_numbers};

    #[test]
    fn a_cause_is_named_once() {
        let cause = || std::io::Error::other("Permission denied");
        for (error, want) in [
            (anyhow::Error::from(cause()).context("cannot read x"), "cannot read x: Permission denied"),
            (
                anyhow::Error::from(cause()).context("cannot read x: Permission denied").context("no agents"),
                "no agents: cannot read x: Permission denied",
            ),
            (anyhow::Error::from(cause()), "Permission denied"),
            (anyhow::anyhow!("d/x: is full").context("d/x could not be opened"), "d/x could not be opened: is full"),
        ] {
            assert_eq!(chain_text(&error), want);
        }
    }

    #[test]
    fn an_error_is_text_alone() {
        for (text, want) in [
            ("a: Permission denied (os error 13)", "a: Permission denied"),
            ("a: gone (os error 2): b (os error 5).", "a: gone: b."),
            ("(os error x) (os error y)", "(os error x) (os error y)"),
        ] {
            assert_eq!(without_numbers(text), want);
        }
    }
}
