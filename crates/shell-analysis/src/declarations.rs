//! Builtins that set variables: which of their words name one.

use super::{
    option_words::has_letter,
    word::{GLOB, ShellWord, UNKNOWN, shown_text},
};

/// Returns the names of the variables that `program` sets by its arguments, as far as they are known.
pub(super) fn declared_names<'w>(program: Option<&str>, words: &'w [ShellWord]) -> Vec<&'w str> {
    declared_assignments(program, words).into_iter().map(assigned_name).collect()
}

/// Returns the same with their values, where these stand there.
pub(super) fn declared_assignments<'w>(program: Option<&str>, words: &'w [ShellWord]) -> Vec<&'w str> {
    let is_option = |word: &&ShellWord| word.value.starts_with('-');
    let texts = match program {
        Some("env") => of_env(words),
        Some("export" | "declare" | "typeset" | "local" | "readonly" | "let") => {
            words.iter().filter(|word| !is_option(word)).map(|word| word.value.as_str()).collect()
        }
        // Its first operand says which options there are.
        Some("getopts") => words.iter().skip_while(is_option).skip(1).take(1).map(|word| word.value.as_str()).collect(),
        Some("read") => of_options(words, "adinNptu", 'a', OperandUse::AreNames),
        Some("wait") => of_options(words, "p", 'p', OperandUse::AreOthers),
        Some(_) | None => Vec::new(),
    };
    texts.into_iter().filter(|text| !assigned_name(text).is_empty()).collect()
}

/// Returns the variables that `env` sets, up to the command that it runs.
fn of_env(words: &[ShellWord]) -> Vec<&str> {
    let mut found = Vec::new();
    let mut rest = words.iter().map(|word| word.value.as_str());
    while let Some(text) = rest.next() {
        match text {
            "-u" | "--unset" | "-C" | "--chdir" => drop(rest.next()),
            _ if text.starts_with('-') => {}
            _ if text.contains(['=', UNKNOWN, GLOB]) => found.push(text),
            _ => break,
        }
    }
    found
}

/// Returns the names of the variables that a command fills with what it reads.
pub(super) fn filled_names(argv: &[ShellWord]) -> Vec<&str> {
    let program = argv.first().and_then(ShellWord::as_literal);
    match program {
        // Without a name there is one of its own.
        Some("read") => declared_names(program, &argv[1..]).into_iter().chain(["REPLY"]).collect(),
        Some("getopts") => declared_names(program, &argv[1..]).into_iter().chain(["OPTARG"]).collect(),
        Some("printf") => of_options(&argv[1..], "v", 'v', OperandUse::AreOthers),
        Some(_) | None => Vec::new(),
    }
}

/// Reports whether a command may set a variable that it does not name: the name is put together, or comes from a text of the shell's.
pub(super) fn may_set_any(argv: &[ShellWord]) -> bool {
    let Some(program) = argv.first() else { return false };
    let name = |word: &ShellWord| word.all_texts().map(|text| assigned_name(text).to_owned()).collect::<Vec<_>>();
    let is_open = |word: &ShellWord| name(word).iter().any(|name| name.contains([UNKNOWN, GLOB]));
    match program.as_literal() {
        Some("declare" | "typeset" | "local") => {
            let is_reference = |word: &ShellWord| word.all_texts().any(|text| has_letter(text, 'n'));
            argv[1..].iter().any(|word| is_open(word) || is_reference(word))
        }
        Some("export" | "readonly" | "unset" | "mapfile" | "readarray" | "eval" | "trap") | None => {
            argv[1..].iter().any(is_open)
        }
        Some("read" | "getopts" | "printf" | "wait") => {
            argv[1..].iter().any(|word| word.value.contains([UNKNOWN, GLOB])) && sets_by_name(program, &argv[1..])
        }
        // The content of a sourced file is not followed.
        Some(_) => false,
    }
}

/// Reports whether a builtin sets a variable that one of its words names: `printf` only with its option.
fn sets_by_name(program: &ShellWord, words: &[ShellWord]) -> bool {
    let may_be_option = |text: &str| text.starts_with("-v") || text.starts_with(UNKNOWN);
    program.as_literal() != Some("printf") || words.first().is_some_and(|word| word.all_texts().any(may_be_option))
}

/// Reports whether a builtin reads words as expressions or as names with an index, in which the shell expands what their quotes kept.
pub(super) fn expands_again(program: &str, words: &[ShellWord]) -> bool {
    match program {
        "let" | "declare" | "typeset" | "local" | "export" | "readonly" | "unset" | "read" | "mapfile"
        | "readarray" | "getopts" | "wait" => true,
        // It computes the index of a name, not the numbers that it compares.
        "test" | "[" => words.iter().any(|word| matches!(word.value.as_str(), "-v" | "-R")),
        "printf" => words.first().is_some_and(|word| word.value.starts_with("-v")),
        _ => false,
    }
}

/// Returns the name that an assignment sets.
pub(super) fn assigned_name(assignment: &str) -> &str {
    assignment.split(['=', '+', '[']).next().unwrap_or_default()
}

/// Returns the reason for an assignment that makes other programs load, find or run something else.
pub(super) fn assignment_reason(name: &str) -> String {
    format!("an assignment to {}", shown_text(name))
}

#[derive(Clone, Copy, PartialEq)]
enum OperandUse {
    AreNames,
    AreOthers,
}

/// Returns names among words whose options `valued` have values; the value of `naming` is a name.
fn of_options<'w>(words: &'w [ShellWord], valued: &str, naming: char, operands: OperandUse) -> Vec<&'w str> {
    let mut names = Vec::new();
    let mut rest = words.iter().map(|word| word.value.as_str());
    while let Some(text) = rest.next() {
        let letters = text.strip_prefix('-').filter(|letters| !letters.is_empty() && *letters != "-");
        let Some(letters) = letters else {
            let behind = (text != "--").then_some(text).into_iter().chain(rest);
            names.extend(behind.filter(|_| operands == OperandUse::AreNames));
            return names;
        };
        let Some((at, letter)) = letters.char_indices().find(|(_, letter)| valued.contains(*letter)) else { continue };
        let joined = &letters[at + letter.len_utf8()..];
        let value = if joined.is_empty() { rest.next() } else { Some(joined) };
        names.extend(value.filter(|_| letter == naming));
    }
    names
}

#[cfg(test)]
mod tests {
    use super::declared_names;
    use crate::word::{KnownVariables, ShellWord, scan_word};

    #[test]
    fn the_words_that_name_a_variable_are_known() {
        for (line, want) in [
            ("read -r a b", vec!["a", "b"]),
            ("read -p x: y", vec!["y"]),
            ("read -rp x: y", vec!["y"]),
            ("read -ra list", vec!["list"]),
            ("read -d x -t5 y", vec!["y"]),
            ("wait -n -p PATH", vec!["PATH"]),
            ("wait -np PATH 7", vec!["PATH"]),
            ("wait -pPATH", vec!["PATH"]),
            ("wait %1 $!", vec![]),
            ("getopts ab: opt", vec!["opt"]),
            ("export -n A=b C", vec!["A", "C"]),
            ("echo A=b", vec![]),
        ] {
            let words: Vec<ShellWord> = line
                .split(' ')
                .map(|word| scan_word(word, KnownVariables { home: None, cwd: None, tried: &[] }))
                .collect();
            assert_eq!(declared_names(words[0].as_literal(), &words[1..]), want, "{line}");
        }
    }
}
