//! Texts that `sh` reads: where it is not bash, some signs mean something else to it.

/// Signs that bash reads as one thing and a plain `sh`, such as dash, as another.
const OF_BASH: [&str; 9] = ["&>", "$'", "$\"", "[[", "((", "<<<", "<(", ">(", "function"];

/// Reports whether every `sh` reads `text` as bash does, as far as what runs is concerned.
pub(super) fn reads_alike(text: &str) -> bool {
    // `$((1 + 2))` is arithmetic to both, and what is doubled in any other place is looked at.
    let text = text.replace("$((", "$ ");
    !OF_BASH.iter().any(|sign| text.contains(sign))
}

/// Returns `text` written so that bash reads it as a plain `sh` reads `text`.
pub(super) fn as_posix(text: &str) -> String {
    // In bash the dollar belongs to the quote, and the ampersand to what follows it.
    let text = text.replace("&>", "& >").replace("$'", "\\$'").replace("$\"", "\\$\"");
    let text = text.replace("$((", "\u{1}").replace("((", "( (").replace('\u{1}', "$((");
    text.replace("[[", "\\[[")
}

#[cfg(test)]
mod tests {
    use super::{as_posix, reads_alike};

    #[test]
    fn what_sh_reads_otherwise_is_written_as_it_reads_it() {
        for (text, want) in [
            ("echo &>/dev/null evil", "echo & >/dev/null evil"),
            ("echo $'\\'; evil #'", "echo \\$'\\'; evil #'"),
            ("echo $\"a\"", "echo \\$\"a\""),
            ("[[ a && evil ]]", "\\[[ a && evil ]]"),
            ("((evil))", "( (evil))"),
        ] {
            assert!(!reads_alike(text), "{text}");
            assert_eq!(as_posix(text), want);
        }
        for text in ["cd a && make", "echo $((1 + 2)) > x 2>&1", "for f in *; do wc \"$f\"; done", "echo '$x' | cat"] {
            assert!(reads_alike(text), "{text}");
        }
    }
}
