//! Programs of `awk` that do nothing but print the text that passes.
//!
//! It must not know more of awk than such programs need: what is not read here may run a program, or write or read a file.

use super::word::{GLOB, ShellWord, UNKNOWN};

/// The most prints of one program that are looked at.
const MOST_PRINTS: usize = 200;

/// Reports whether the arguments of `awk` may have it do more than that.
pub(super) fn does_more(arguments: &[ShellWord]) -> bool {
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        if word.may_hide_options() {
            return true;
        }
        match word.value.as_str() {
            "--" => return words.next().is_some_and(program_does_more),
            "-F" | "-v" => drop(words.next()),
            text if text.starts_with("-F") || text.starts_with("-v") => {}
            text if text.starts_with('-') && text.len() > 1 => return true,
            // After its program there are no options.
            _ => return program_does_more(word),
        }
    }
    false
}

/// Returns the number of arguments of `awk` before its files: its options with their values, and its program.
pub(super) fn behind_program(arguments: &[&str]) -> usize {
    let mut at = 0;
    while let Some(word) = arguments.get(at) {
        at += match *word {
            "--" => return (at + 2).min(arguments.len()),
            "-F" | "-v" => 2,
            text if text.starts_with('-') && text.len() > 1 => 1,
            _ => return at + 1,
        };
    }
    arguments.len()
}

fn program_does_more(word: &ShellWord) -> bool {
    word.possible_texts().any(|text| text.contains([UNKNOWN, GLOB])) || word.all_texts().any(text_does_more)
}

fn text_does_more(program: &str) -> bool {
    let calls = |at: usize| !matches!(program[at + 1..].chars().next(), None | Some('"'));
    program.contains("system")
        || program.matches("print").count() > MOST_PRINTS
        || program.contains("getline")
        // Files that gawk loads or includes, and functions that it calls by a name that is only known when it runs.
        || program.match_indices('@').any(|(at, _)| calls(at))
        || program.match_indices("print").any(|(at, _)| may_print_elsewhere(&program[at..]))
}

/// Reports whether a `print` may print elsewhere: a comparison or a pattern before it does not matter.
fn may_print_elsewhere(text: &str) -> bool {
    if let Some(code) = without_texts(text) {
        let end = code.find([';', '}']).unwrap_or(code.len());
        return prints_elsewhere(&code[..end]);
    }
    let end = text.find([';', '}']).unwrap_or(text.len());
    let statement = &text[..end];
    // If a text, a pattern or a comment may hide its end, all that follows counts.
    let is_sure = !statement.contains(['\\', '/', '#']) && statement.matches('"').count().is_multiple_of(2);
    let statement = if is_sure { statement } else { text };
    statement.replace("||", "").contains(['>', '|'])
}

/// Returns the parts of a program that are no text in quotes. None if a pattern or a comment may hide a quote.
fn without_texts(program: &str) -> Option<String> {
    let (mut code, mut is_text) = (String::new(), false);
    let mut chars = program.chars();
    while let Some(c) = chars.next() {
        match c {
            '"' => is_text = !is_text,
            '\\' if is_text => drop(chars.next()),
            '/' | '#' | '\\' if !is_text => return None,
            _ if !is_text => code.push(c),
            _ => {}
        }
    }
    (!is_text).then_some(code)
}

/// Reports whether a statement has a sign that leads elsewhere. In parentheses it compares.
fn prints_elsewhere(statement: &str) -> bool {
    let mut depth = 0_usize;
    statement.replace("||", "").chars().any(|c| {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        depth == 0 && matches!(c, '>' | '|')
    })
}

#[cfg(test)]
mod tests {
    use super::does_more;
    use crate::word::{KnownVariables, scan_word};

    fn read(line: &str) -> bool {
        let words: Vec<_> = line
            .split("  ")
            .map(|word| scan_word(word, KnownVariables { home: None, cwd: None, tried: &[] }))
            .collect();
        !does_more(&words)
    }

    #[test]
    fn what_only_prints_is_known() {
        for line in [
            "'{print $1}'  x",
            "'NR>10'  x",
            "'$3 > 5'  x",
            "'$3 > 5 {print $1}'  x",
            "'/a|b/'  x",
            "'/a|b/ {print $1}'  x",
            "'a || b'  x",
            "'{print a || b}'  x",
            "-F'|'  '{print $2}'  x",
            "-F  '|'  '{print $2}'  x",
            "-v  \"n=$n\"  '{print n}'  x",
            "'{print $1 \"@\" $2}'  x",
            "'{s += $1} END {print s}'  \"$f\"",
            "'BEGIN {printf \"%s\\n\", 1}'",
        ] {
            assert!(read(line), "{line}");
        }
    }

    #[test]
    fn what_may_do_more_is_not() {
        for line in [
            "'{print > \"x\"}'  y",
            "'{print \"a;b\" > \"x\"}'  y",
            "'{print /\"/, \"x;\" > \"f\"}'",
            "'{print a, # }\n b > \"f\"}'",
            "'{print \"\\\";\" > \"f\"}'",
            "'{print | \"evil\"}'",
            "'{print |& \"evil\"}'",
            "'BEGIN { \"evil\" | getline }'",
            "'BEGIN{system(\"evil\")}'",
            "'@load \"x\"'",
            "'{x = \"sys\" \"tem\"; @x(\"evil\")}'",
            "-f  prog",
            "-We  prog",
            "-E  prog",
            "\"$x\"",
            "\"/$x/ {print}\"",
            "--  \"$x\"",
            "\"-$x\"  '{print}'",
        ] {
            assert!(!read(line), "{line}");
        }
    }
}
