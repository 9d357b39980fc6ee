//! Keeps the grammar from being driven into the ground: what is too long or nests too deep is never parsed.

use brush_parser::Token;

use super::here_documents;

/// The longest line that is parsed, in bytes.
const LONGEST: usize = 64 * 1024;

/// Maximum nesting of a line. The grammar recurses, limited only by the stack.
const DEEPEST: usize = 32;

/// Maximum nesting of parentheses that open in pairs: they may be arithmetic or subshells, and the grammar tries every way.
const DEEPEST_ARITHMETIC: usize = 8;

/// Maximum nesting of `case`: for one without `;;` the grammar reads its content twice.
const DEEPEST_CASE: usize = 5;

/// Maximum number of substitutions and involved parameter expansions in one line, nested or not: telling would need the parse that this
/// guards.
const MOST_EXPANSIONS: usize = 48;

/// Maximum number of indices `name[` that a text may open, however they nest: the grammar recurses into each.
const MOST_INDICES: usize = 256;

/// Maximum nesting of indices if there are more of them.
const DEEPEST_INDEX: usize = 32;

/// The most tokens of one line.
const MOST_TOKENS: usize = 8_000;

/// The most words of one `[[ … ]]`, whose tree leans to one side.
const LONGEST_TEST: usize = 64;

/// Returns the reason why `text` must not be parsed, if there is one.
pub(super) fn too_much(text: &str) -> Option<&'static str> {
    if text.len() > LONGEST {
        return Some("is too long to be judged");
    }
    if text.contains(['\0', '\r', super::word::UNKNOWN, super::word::GLOB]) {
        return Some("holds characters that shells and people read differently");
    }
    if count_expansions(text) > MOST_EXPANSIONS
        || long_redirection_number(text)
        || tangled_indices(text)
        || here_documents::may_end_elsewhere(text)
    {
        return Some("is too involved to be judged");
    }
    None
}

/// Returns the reason why the tokens of a text must not be parsed, if there is one.
pub(super) fn too_deep(tokens: &[Token]) -> Option<&'static str> {
    let opens = |token: &Token| matches!(token, Token::Operator(..)) && token.to_str() == "(";
    let arithmetic = tokens.windows(2).any(|pair| pair.iter().all(opens));
    let (mut depth, mut parentheses) = (0_usize, 0_usize);
    let (mut negations, mut cases) = (0_usize, 0_usize);
    let mut test: Option<usize> = None;
    let mut starts_command = true;
    for token in tokens {
        let word = token.to_str();
        let is_operator = matches!(token, Token::Operator(..));
        cases = match (is_operator, word) {
            (false, "case") => cases + 1,
            (false, "esac") if starts_command => cases.saturating_sub(1),
            _ => cases,
        };
        match (is_operator, word) {
            (true, "(")
            | (false, "{" | "if" | "while" | "until" | "for" | "case" | "coproc" | "function" | "select") => depth += 1,
            (true, ")") => depth = depth.saturating_sub(1),
            (false, "}" | "fi" | "done" | "esac") if starts_command => depth = depth.saturating_sub(1),
            _ => {}
        }
        parentheses = match (is_operator, word) {
            (true, "(") => parentheses + 1,
            (true, ")") => parentheses.saturating_sub(1),
            _ => parentheses,
        };
        negations = if word == "!" { negations + 1 } else { 0 };
        test = match (word, test) {
            ("[[", None) => Some(0),
            ("]]", _) => None,
            (_, count) => count.map(|count| count + 1),
        };
        let tangled = arithmetic && parentheses > DEEPEST_ARITHMETIC;
        if depth > DEEPEST
            || tangled
            || cases > DEEPEST_CASE
            || negations > DEEPEST
            || test.is_some_and(|words| words > LONGEST_TEST)
        {
            return Some("is too involved to be judged");
        }
        starts_command = is_operator || matches!(word, "}" | "fi" | "done" | "esac" | "then" | "do" | "else" | "{");
    }
    (tokens.len() > MOST_TOKENS).then_some("is too involved to be judged")
}

/// Returns true for a word `name[…]` with anything but plain text inside: the grammar parses the index with a recursion of its own.
pub(super) fn is_involved_index(word: &str) -> bool {
    let rest = word.trim_start_matches(|c: char| c.is_ascii_alphanumeric() || c == '_');
    rest.len() < word.len() && rest.starts_with('[') && rest.contains(['$', '`', '"', '\'', '('])
}

/// Reports whether the indices of a text may nest deeper than the grammar's recursion should go. Quotes within one could hide where it
/// ends, so that a text with many indices has none.
fn tangled_indices(text: &str) -> bool {
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let (mut count, mut depth, mut deepest, mut is_hidden, mut before) = (0_usize, 0_usize, 0_usize, false, b' ');
    for byte in text.bytes() {
        match byte {
            b'[' if is_name(before) => {
                (count, depth) = (count + 1, depth + 1);
                deepest = deepest.max(depth);
            }
            b']' => depth = depth.saturating_sub(1),
            b'"' | b'\'' | b'\\' | b'`' if depth > 0 => is_hidden = true,
            _ => {}
        }
        before = byte;
    }
    count > MOST_INDICES && (deepest > DEEPEST_INDEX || is_hidden)
}

fn count_expansions(text: &str) -> usize {
    let plain_parameter = |rest: &str| {
        let name = rest.trim_start_matches(|c: char| c.is_ascii_alphanumeric() || c == '_');
        name.len() < rest.len() && name.starts_with('}')
    };
    let opened = text.match_indices(['$', '<', '>']).filter(|(at, sign)| match (&text[at + 1..], *sign) {
        (rest, "$") if rest.starts_with('{') => !plain_parameter(&rest[1..]),
        (rest, _) => rest.starts_with(['(', '[']),
    });
    opened.count() + text.matches('`').count() / 2
}

/// Reports whether a redirection has a long number: the grammar's own reading of `99999999999>x` fails hard.
fn long_redirection_number(text: &str) -> bool {
    let mut digits = 0;
    text.bytes().any(|byte| {
        let long = digits > 8 && matches!(byte, b'<' | b'>');
        digits = if byte.is_ascii_digit() { digits + 1 } else { 0 };
        long
    })
}

#[cfg(test)]
mod tests {
    use crate::{analyze as judge, line::Place};

    #[test]
    fn a_here_document_that_ends_at_nothing_is_not_parsed() {
        for word in ["''", "\"\"", "$''", "\\\n''", "\u{c}", "\u{c}x", "''\"\""] {
            for start in ["$( e<<", "echo $( e<< ", "\"$( e <<-\t", "`e << ", "e <<", "${x:-$(e <<", "a <<< x <<"] {
                for end in ["", " ", "\n", " )", "\nx\n"] {
                    let text = format!("{start}{word}{end}");
                    assert!(judge(&text, &Place::default()).opaque.is_some(), "{text:?}");
                }
            }
        }
        for text in ["cat <<< ''", "cat <<X\na\nX", "cat <<'X'\na\nX", "cat <<-\"X\"\na\nX"] {
            assert!(judge(text, &Place::default()).opaque.is_none(), "{text:?}");
        }
    }

    /// A test's thread has the stack of any worker: what recurses without a bound ends the process.
    #[test]
    fn indices_without_end_are_not_parsed() {
        for unit in ["a[", "_[", "a[ ", "9[", "a[]a[", "a[\"]\"+a[", "a[\\]a[", "a['']", "b[b", "a[a[]"] {
            for start in ["echo ", "git status ", "(( ", "x=", "", "${", "[[ ", "let ", "cat <<E\n"] {
                let text = format!("{start}{}", unit.repeat(8_000 / unit.len()));
                assert!(judge(&text, &Place::default()).opaque.is_some(), "{start}{unit}");
            }
        }
    }

    /// Each hands on all that follows, or looks at all of it again: without a bound one line keeps the judge for minutes.
    #[test]
    fn what_hands_on_without_end_is_given_up() {
        for text in [
            format!("env {}x", "-S env ".repeat(400)),
            format!("sudo {}{}", "sudo ".repeat(9), "a ".repeat(7_000)),
            format!("{}'{}'", "sudo ".repeat(12), "echo a b; ".repeat(4_000)),
            format!("cat <<'{0}'\n{1}{0}", "A".repeat(9_000), "\n".repeat(9_000)),
            format!("echo {}", "{a,b}".repeat(40)),
        ] {
            assert!(judge(&text, &Place::default()).floor.is_some(), "{text:.60}");
        }
        let folders: String = ('a'..='h').map(|name| format!("cd {name}; ")).collect();
        let values: String = (0..60).map(|value| format!("v{value} ")).collect();
        for text in [
            format!("git {}foreach x", "-a submodule ".repeat(1_500)),
            format!("find {} {}", "a ".repeat(1_200), "-exec x {} \\; ".repeat(1_200)),
            format!("awk '{}'", "print ".repeat(9_000)),
            format!("echo {}", "[".repeat(60_000)),
            format!("echo $({}ls)", " ".repeat(60_000)),
            // Many folders, many pieces of many words, many values.
            format!("{folders}touch {}", "-abcdefghijklmnop0,a:b@c ".repeat(2_000)),
            format!("{folders}for v in {values}; do touch {}; done", "$v/a=b,c:d@e=f,g ".repeat(300)),
            format!("tar {}cf x {}", "-C d ".repeat(16), "f ".repeat(5_000)),
            format!("cp {}", "-abcdefghijklmnop ".repeat(3_500)),
        ] {
            let line = judge(&text, &Place::default());
            assert!(!line.commands.is_empty(), "{text:.60}");
        }
    }

    /// A few dozen of them would be more than any machine holds.
    #[test]
    fn variables_that_double_without_end_need_approval() {
        let chain: String = (0..40).map(|at| format!("A{}=$A{at}$A{at}; ", at + 1)).collect();
        for text in [
            format!("A=a; {}cat $A", "A=\"$A $A\"; ".repeat(40)),
            format!("A=a; {}cat $A", "A=$A$A; ".repeat(40)),
            format!("A=a; {}cat $A", "A+=$A; ".repeat(40)),
            format!("A=a; {}cat $A", "export A=$A$A; ".repeat(40)),
            format!("A=a; {}cat $A", "B=$A; A=$B$B; ".repeat(40)),
            format!("A0=aa; {chain}cat $A40"),
        ] {
            let line = judge(&text, &Place::default());
            assert!(line.opaque.is_some() || line.floor.is_some(), "{text:.60}");
        }
        let body = format!("BODY='{}'", "{\"name\": \"value\"}, ".repeat(500));
        for text in ["A=some; A=\"$A more\"; echo $A".to_owned(), format!("{body}; echo \"$BODY\"")] {
            let line = judge(&text, &Place::default());
            assert!(line.opaque.is_none() && line.floor.is_none(), "{text:.60}: {:?} {:?}", line.opaque, line.floor);
        }
    }

    #[test]
    fn a_document_that_nests_without_end_is_given_up() {
        for unit in ["$[", "a[${", "a[$((", "a[$("] {
            let text = format!("cat <<'E'\na[{}\nE", unit.repeat(64_000 / unit.len()));
            assert!(judge(&text, &Place::default()).opaque.is_some(), "{unit}");
        }
    }

    #[test]
    fn what_people_write_with_many_brackets_is_judged() {
        for text in [
            format!("echo {}", "x[1] ".repeat(400)),
            format!("grep '{}' notes", "[a-z]".repeat(400)),
            format!("echo {}", "a[b[c[1]]] ".repeat(200)),
        ] {
            let line = judge(&text, &Place::default());
            assert!(line.opaque.is_none() && line.floor.is_none(), "{text}: {line:?}");
        }
    }
}
