//! Here-documents of which shells and the grammar may not agree where they end.

/// The longest word that may end a here-document, in bytes.
const LONGEST_END: usize = 256;

/// Reports whether a here-document in `text` may end elsewhere for a shell than for the grammar, or nowhere.
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
        if word_length(word) > LONGEST_END {
            return true;
        }
        let end = word.find(|c: char| c.is_whitespace() || ";|&()<>".contains(c)).unwrap_or(word.len());
        let (word, behind) = word.split_at(end);
        // The grammar looks for what is written, a shell for what it says.
        if behind.contains('\n') && word.contains(['$', '`']) {
            return true;
        }
        // After a quoted word no lines are joined.
        if !word.is_empty() && !word.contains(['\'', '"', '\\']) {
            words.push(word.to_owned());
        }
    }
    !words.is_empty() && ends_in_joined_lines(text, &words)
}

/// Returns the length of the word with which `text` begins, as long as that matters.
fn word_length(text: &str) -> usize {
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

/// Reports whether lines that a backslash joins form one of `words`, or one of them alone does: a shell looks for it in the joined text,
/// the grammar in the written one.
fn ends_in_joined_lines(text: &str, words: &[String]) -> bool {
    let ends = |line: &str| {
        let line = line.replace('\t', "");
        // In a substitution its parenthesis may follow the word.
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

/// Returns the text of `$(cat <<'E' …)`: that of a here-document in which nothing is expanded, without the breaks at its end. None for any
/// other substitution, and where an old shell may find its end elsewhere.
pub(super) fn document_text(substitution: &str) -> Option<String> {
    const BLANKS: [char; 2] = [' ', '\t'];
    let inner = substitution.strip_prefix("$(")?.strip_suffix(')')?;
    let rest = inner.trim_start_matches([' ', '\t', '\n']).strip_prefix("cat")?;
    let rest = rest.trim_start_matches(BLANKS).strip_prefix("<<")?.trim_start_matches(BLANKS);
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let (end, rest) = match rest.chars().next()? {
        quote @ ('\'' | '"') => rest[1..].split_once(quote)?,
        '\\' => rest[1..].split_at(rest[1..].find(|c| !is_name(c))?),
        _ => return None,
    };
    if end.is_empty() || !end.chars().all(is_name) {
        return None;
    }
    let mut lines = rest.trim_start_matches(BLANKS).strip_prefix('\n')?.split('\n');
    let body: Vec<&str> = lines.by_ref().take_while(|line| *line != end).collect();
    // After the line that ends it come only a break and blanks.
    let behind: Vec<&str> = lines.collect();
    let is_alone = !behind.is_empty() && behind.iter().all(|line| line.trim_matches(BLANKS).is_empty());
    (is_alone && keeps_parentheses(&body)).then(|| body.join("\n").trim_end_matches('\n').to_owned())
}

/// Reports whether each parenthesis has its partner on its line, and no quote between them. Old shells also look for the parenthesis that
/// ends a substitution in its here-documents.
fn keeps_parentheses(lines: &[&str]) -> bool {
    lines.iter().all(|line| {
        let mut open = Vec::new();
        for c in line.chars() {
            match c {
                '(' => open.push(true),
                ')' if open.pop() != Some(true) => return false,
                '\'' | '"' | '`' | '\\' => open.iter_mut().for_each(|is_sure| *is_sure = false),
                _ => {}
            }
        }
        open.is_empty()
    })
}

#[cfg(test)]
mod tests {
    use super::{document_text, may_end_elsewhere};

    #[test]
    fn a_substitution_that_only_says_a_document_is_its_text() {
        for (text, want) in [
            ("$(cat <<'EOF'\nfix: a (b)\n\nIt's $x `y`\nEOF\n)", "fix: a (b)\n\nIt's $x `y`"),
            ("$(cat << \"E_1\"\na\n\n\nE_1\n)", "a"),
            ("$( cat <<\\E\n a\nE\n  )", " a"),
            ("$(cat <<'E'\nE\n)", ""),
        ] {
            assert_eq!(document_text(text).as_deref(), Some(want), "{text:?}");
        }
        for text in [
            "$(cat <<E\n$(evil)\nE\n)",
            "$(cat <<-'E'\na\nE\n)",
            "$(cat x <<'E'\na\nE\n)",
            "$(cat <<'E' | evil\na\nE\n)",
            "$(cat <<'E' >x\na\nE\n)",
            "$(cat <<'E'\na\nE\nevil\n)",
            "$(cat <<'E'\na\nE)",
            "$(cat <<'E'\na\n)",
            "$(cat <<'E'x\na\nEx\n)",
            "$(cat <<''\na\n\n)",
            "$(cat <<'$x'\na\n$x\n)",
            "$(sh <<'E'\nevil\nE\n)",
            "$(cat<<<'E'\n)",
            "$(cat <<'E'\n)\nE\n)",
            "$(cat <<'E'\n'(' ) evil\nE\n)",
            "$(cat <<'E'\n(\n)\nE\n)",
            "`cat <<'E'\na\nE\n`",
        ] {
            assert_eq!(document_text(text), None, "{text:?}");
        }
    }

    #[test]
    fn a_document_that_ends_in_joined_lines_is_detected() {
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
