//! Here-documents of which shells and the grammar may not agree where they end.

/// The longest word that may end a here-document, in bytes.
const LONGEST_END: usize = 256;

/// Whether a here-document in `text` may end elsewhere for a shell than for the grammar, or nowhere.
pub(super) fn may_end_elsewhere(text: &str) -> bool {
    let joined = text.replace("\\\n", "");
    let (mut at, mut words) = (0, Vec::new());
    while let Some(found) = joined[at..].find("<<") {
        at += found + 2;
        let rest = &joined[at..];
        if let Some(behind) = rest.strip_prefix('<') {
            // A here-string.
            at = joined.len() - behind.len();
            continue;
        }
        let word = rest.strip_prefix('-').unwrap_or(rest).trim_start_matches([' ', '\t']);
        // Looking for an empty word the grammar has no end of its own (see `grammar`). Other white space belongs to the word, and is
        // taken off it.
        let is_odd = word.starts_with(|c: char| c.is_ascii_whitespace() && c != '\n');
        // So it does where no word stands there at all, within a substitution and before another that is not closed.
        let is_missing = word.starts_with([';', '|', '&', '(', ')', '<', '>']);
        if is_odd || is_missing || ["''", "\"\"", "$''", "$\"\""].iter().any(|empty| word.starts_with(empty)) {
            return true;
        }
        // At each line of a document the grammar takes the quotes out of it again.
        if length(word) > LONGEST_END {
            return true;
        }
        let end = word.find(|c: char| c.is_whitespace() || ";|&()<>".contains(c)).unwrap_or(word.len());
        let (word, behind) = word.split_at(end);
        // The grammar looks for what is written, a shell for what it says.
        if behind.contains('\n') && word.contains(['$', '`']) {
            return true;
        }
        // Behind a quoted word no lines are joined.
        if !word.is_empty() && !word.contains(['\'', '"', '\\']) {
            words.push(word.to_owned());
        }
    }
    !words.is_empty() && ends_in_joined_lines(text, &words)
}

/// How long the word is with which `text` begins, as long as that matters.
fn length(text: &str) -> usize {
    let mut quote = None;
    let is_within = |(_, c): &(usize, char)| {
        quote = match (quote, c) {
            (None, '\'' | '"') => Some(*c),
            (Some(open), c) if open == *c => None,
            _ => quote,
        };
        quote.is_some() || !c.is_whitespace() && !";|&()<>".contains(*c)
    };
    text.char_indices().take(LONGEST_END + 1).take_while(is_within).last().map_or(0, |(at, c)| at + c.len_utf8())
}

/// Whether lines that a backslash joins say one of `words` together, or one of them alone: a shell looks for it in what is joined, the
/// grammar in what is written.
fn ends_in_joined_lines(text: &str, words: &[String]) -> bool {
    let ends = |line: &str| {
        let line = line.replace('\t', "");
        // In a substitution its parenthesis may stand behind the word.
        let rest = words.iter().filter_map(|word| line.strip_prefix(word.as_str()));
        rest.into_iter().any(|rest| rest.is_empty() || rest.contains(')'))
    };
    let (mut joined, mut is_joined) = (String::new(), false);
    for line in text.split('\n') {
        let goes_on = (line.len() - line.trim_end_matches('\\').len()) % 2 == 1;
        joined.push_str(if goes_on { &line[..line.len() - 1] } else { line });
        is_joined |= goes_on;
        if is_joined && ends(line) {
            return true;
        }
        if !goes_on {
            if is_joined && ends(&joined) {
                return true;
            }
            (joined, is_joined) = (String::new(), false);
        }
    }
    is_joined && ends(&joined)
}

#[cfg(test)]
mod tests {
    use super::may_end_elsewhere;

    #[test]
    fn a_document_that_ends_in_joined_lines_is_told() {
        for text in [
            "cat <<E\nE\\\n\nevil\nE",
            "cat <<-E\n\tE\\\n\nevil\nE",
            "cat <<E >/dev/null\nE\\\n\nevil\nE",
            "cat <<E\nx\\\nE\ncat <<F\nE\nevil\nF",
            "cat <<EO\\\nF\nE\\\nOF\nevil\nEOF",
            "echo $(cat <<E\nE\\\n)",
            "cat <<$'E'\nE\nevil\n$E",
            "cat <<${E}\nE\n",
            "echo $( e<< )$( e<> x",
            "$( a <<- )$( e",
            "${y:-$( e<< ; )}$( e",
            "$( a <<\\\n & )$( e",
            "$( a << ( )$( e",
        ] {
            assert!(may_end_elsewhere(text), "{text:?}");
        }
        for text in [
            "cat <<EOF\nRUN a \\\n    b\nEOF",
            "cat <<EOF \\\n  | grep x\na\nEOF",
            "cat <<'E'\nE\\\n\nE",
            "cat <<EOF\na\\\\\nEOF",
            "cat <<E && \\\nls\nx\nE",
            "echo $((1 << 2))",
            "echo \"a << $x\"",
            "cat <<< $x",
        ] {
            assert!(!may_end_elsewhere(text), "{text:?}");
        }
    }
}
