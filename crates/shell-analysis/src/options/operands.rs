//! Meaning of the words of single programs if a table of options is not enough.

use crate::{
    option_words::{has_letter, has_only},
    word::{FILLED, GLOB, ShellWord, UNKNOWN},
};

/// Reports whether one of the letters of `tar` has it run something, or write another file.
pub(super) fn tar_runs_more(words: &[ShellWord]) -> bool {
    // The text after a letter with a value is that value.
    const VALUED: &str = "fCbXKNVLHgTIF";
    let runs = |letters: &str| letters.contains(['I', 'F', 'T', 'g']);
    let in_group = |text: &str| {
        let letters = text.strip_prefix('-').filter(|letters| !letters.starts_with('-')).unwrap_or_default();
        let end = letters.find(|c| VALUED.contains(c)).map_or(letters.len(), |at| at + 1);
        runs(letters.get(..end).unwrap_or_default())
    };
    // A word without a dash can be the old-style letters, whose values are the next words.
    let is_of_old = words.first().is_some_and(|word| !word.value.starts_with('-') && runs(&word.value));
    is_of_old || words.iter().flat_map(ShellWord::all_texts).any(in_group)
}

/// Reports whether a word of a pager only sets how and where it shows its text.
pub(super) fn only_pages(text: &str) -> bool {
    let is_place = |place: &str| matches!(place, "F" | "G") || place.bytes().all(|byte| byte.is_ascii_digit());
    has_only(text, "NRSFXniIeEMmsqQwWgG") || text.strip_prefix('+').is_some_and(is_place)
}

/// Reports whether a word of `make` runs something by itself, or has it read another file after the target that a rule names.
pub(super) fn make_runs_more(words: &[ShellWord]) -> bool {
    const FILES: [&str; 4] = ["--file", "--makefile", "--directory", "--include-dir"];
    let is_target = |text: &str| !text.starts_with('-') && !text.contains('=') && text.parse::<u32>().is_err();
    let reads = |text: &str| {
        FILES.iter().any(|option| text.starts_with(option))
            || ['f', 'C', 'I'].iter().any(|letter| has_letter(text, *letter))
    };
    let sets = |text: &str| {
        let name = text.split_once('=').map_or("", |(name, _)| name);
        name.ends_with('!') || matches!(name.trim_end_matches([':', '+', '?', ' ']), "SHELL" | ".SHELLFLAGS")
    };
    let texts = || words.iter().flat_map(ShellWord::all_texts);
    let takes_next =
        |at: usize| at > 0 && matches!(words[at - 1].value.as_str(), "-f" | "-C" | "-I" | "-j" | "-o" | "-W" | "-l");
    let is_first = |at: &usize| is_target(&words[*at].value) && !takes_next(*at);
    let behind = (0..words.len()).find(is_first).unwrap_or(words.len());
    texts().any(|text| sets(text) || text.contains("$(") || text.contains("${"))
        || words[behind..].iter().flat_map(ShellWord::all_texts).any(reads)
}

/// Reports whether the words of `rustc` set what it links with.
pub(super) fn rustc_links_more(words: &[ShellWord]) -> bool {
    let texts = words.iter().map(|word| word.value.as_str());
    let joined = texts.clone().any(|text| {
        let value = text.strip_prefix("-C").or_else(|| text.strip_prefix("--codegen="));
        value.is_some_and(|value| value.starts_with("link")) || text.contains("codegen-backend")
    });
    let behind = texts
        .clone()
        .zip(texts.skip(1))
        .any(|(option, value)| matches!(option, "-C" | "--codegen") && value.starts_with("link"));
    joined || behind
}

/// Reports whether a compiler's word hands the linker more than it links, or another of its programs an option that is not known here.
pub(super) fn links_with_more(text: &str) -> bool {
    const LOADS: [&str; 6] = ["@", "-fplugin", "-iplugindir", "-plugin", "--plugin", "-load"];
    let loads = |part: &str| LOADS.iter().any(|option| part.starts_with(option));
    let plugs =
        |part: &str| part.starts_with('@') || part.trim_start_matches('-').starts_with("pl") && part.starts_with('-');
    text.strip_prefix("-Wl,").is_some_and(|rest| rest.split(',').any(plugs))
        || ["-Wp,", "-Wa,"]
            .iter()
            .filter_map(|hands_on| text.strip_prefix(hands_on))
            .any(|rest| rest.split(',').any(loads))
}

/// Returns the number of operands of a program whose second one is written; none of its options' values among them.
pub(super) fn count_written_operands(program: &str, words: &[ShellWord]) -> usize {
    let valued = if program == "uniq" { "fsw" } else { "cglonsR" };
    let mut is_value = false;
    let is_operand = |word: &&ShellWord| {
        let text = word.value.as_str();
        if std::mem::take(&mut is_value) {
            return false;
        }
        let letters = text.strip_prefix('-').filter(|letters| !letters.is_empty());
        is_value = letters.is_some_and(|letters| letters.len() == 1 && valued.contains(letters));
        letters.is_none()
    };
    words.iter().filter(is_operand).count()
        + words.iter().filter(|word| word.splits && word.value.contains(UNKNOWN)).count()
}

/// Reports whether a word of a database's client runs a program, or reads or writes a file.
pub(crate) fn leaves_database(text: &str) -> bool {
    const TELLS: [&str; 11] = ["d", "dt", "dn", "du", "l", "x", "timing", "q", "conninfo", "pset", "echo"];
    let lower = text.to_ascii_lowercase();
    let commands = lower.split('\\').skip(1).map(|rest| rest.split(|c: char| !c.is_ascii_alphanumeric()).next());
    let mut does = commands.map(|name| !name.is_some_and(|name| TELLS.contains(&name.trim_end_matches('+'))));
    const LINES: [&str; 5] = ["source", "system", "tee", "pager", "edit"];
    let is_told = |line: &str| line.split_whitespace().next().is_some_and(|word| LINES.contains(&word));
    does.any(|does| does)
        || lower.lines().any(is_told)
        || lower.contains("outfile")
        || lower.contains("dumpfile")
        || lower.contains("program")
        || lower.trim_start_matches("-o").starts_with('|')
        || lower.contains("system ")
}

/// Reports whether words of a package manager of Node name the program that it runs, or set the one that its later calls run. It takes long
/// options after one dash, too, and cut short.
pub(super) fn of_npm(words: &[&str]) -> bool {
    const RUNS: [&str; 10] = [
        "script-shell",
        "node-options",
        "userconfig",
        "globalconfig",
        "git",
        "node-gyp",
        "browser",
        "editor",
        "viewer",
        "init-module",
    ];
    let names_program = |word: &str| {
        let name = word.trim_start_matches('-').split('=').next().unwrap_or_default();
        word.starts_with('-') && name.len() > 2 && RUNS.iter().any(|known| known.starts_with(name))
    };
    let is_config = |word: &str| word == "c" || word.len() > 2 && "config".starts_with(word);
    // The word after an option may be its value, or the command.
    let may_be_command = |at: usize| {
        (0..at).all(|before| words[before].starts_with('-') || before > 0 && words[before - 1].starts_with('-'))
    };
    let sets = |at: usize| match words[at] {
        "set" => true,
        word if is_config(word) => {
            let next = words[at + 1..].iter().find(|word| !word.starts_with('-'));
            next.is_some_and(|word| !matches!(*word, "get" | "list" | "ls"))
        }
        _ => false,
    };
    words.iter().any(|word| names_program(word)) || (0..words.len()).any(|at| may_be_command(at) && sets(at))
}

/// Reports whether words of `go` name the linker that it runs, or set what its later calls run.
pub(super) fn of_go(words: &[&str]) -> bool {
    let is_set =
        words.first() == Some(&"env") && words.iter().any(|word| word.trim_start_matches('-').starts_with('w'));
    let parts = words.iter().flat_map(|word| word.split(|c: char| c.is_whitespace() || "='\"".contains(c)));
    is_set || parts.map(|part| part.trim_start_matches('-')).any(|part| part == "extld")
}

/// Reports whether a word of `sqlite3` may run a program, or read or write another file.
pub(crate) fn sqlite_runs_more(text: &str) -> bool {
    const TELLS: &str = ".tables .schema .dump .headers .mode .indexes .databases .width .stats .timer .fullschema";
    const CALLS: [&str; 5] = ["load_extension", "writefile", "readfile", "tokenizer", "fsdir"];
    let does = |line: &str| {
        let command = line.split_ascii_whitespace().next().unwrap_or_default();
        command.starts_with('.')
            && !command.contains('/')
            && !TELLS.split_ascii_whitespace().any(|known| known == command)
    };
    let lower = text.to_ascii_lowercase();
    let is_option =
        ["-cmd", "--cmd", "-init", "--init", "-A", "--archive"].iter().any(|option| text.starts_with(option));
    is_option
        || text.lines().any(does)
        || CALLS.iter().any(|call| lower.contains(call))
        || calls_function(&lower, "edit")
        || calls_function(&lower, "zipfile")
        || lower.contains("attach")
        || lower.contains("vacuum") && lower.contains("into")
}

/// Reports whether a text of SQL calls `function`: its name, perhaps quoted, and a parenthesis, perhaps with a comment between them.
fn calls_function(text: &str, function: &str) -> bool {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.match_indices(function).any(|(at, _)| {
        let behind = &text[at + function.len()..];
        let next = behind.trim_start_matches(|c: char| c.is_whitespace() || "\"'`]".contains(c));
        !text[..at].ends_with(is_name) && next.starts_with(['(', '/', '-'])
    })
}

/// Reports whether a builtin computes the index of the variable that it sets, or its value.
pub(super) fn computes_index(program: &str, words: &[ShellWord]) -> bool {
    let declares = matches!(program, "declare" | "typeset" | "local");
    let sets = declares || matches!(program, "export" | "readonly");
    // The value of a variable keeps no brackets apart from wildcards.
    let in_name = |text: &str| text.split('=').next().is_some_and(|name| name.contains(['[', GLOB]));
    let computes = |text: &str| declares && (has_letter(text, 'i') || has_letter(text, 'n')) || text.contains('[');
    let is_list =
        words.iter().flat_map(ShellWord::all_texts).any(|text| has_letter(text, 'a') || has_letter(text, 'A'));
    words.iter().any(|word| {
        word.raw.contains('[')
            || word.all_texts().any(computes)
            || word.perhaps.iter().any(|text| in_name(text))
            || sets && word.all_texts().any(|text| sets_list(text, is_list))
    })
}

/// Reports whether a variable is set to a possible list: the text in its parentheses is expanded once more, though quotes were around it.
fn sets_list(text: &str, is_list: bool) -> bool {
    let Some((_, value)) = text.split_once('=') else { return false };
    let known_value = value.trim_start_matches(UNKNOWN);
    known_value.starts_with('(') || (is_list && known_value.len() < value.len()) || value == FILLED
}

/// Reports whether the first word of `printf` may turn out to be its `-v`: the index of the variable is computed, and computing runs
/// commands.
pub(super) fn may_name_variable(word: &ShellWord) -> bool {
    let is_open = |text: &str| text.contains(UNKNOWN) && text.replace(UNKNOWN, "").starts_with('-');
    word.all_texts().any(is_open) || word.perhaps.iter().any(|text| text.starts_with("-v"))
}

/// Reports whether `test` looks, or may look, at a variable by its name, whose index is computed.
pub(super) fn names_variable(words: &[ShellWord]) -> bool {
    let names = |text: &str| matches!(text.replace(UNKNOWN, "").as_str(), "-v" | "-R");
    let is_filled = |text: &str| text.starts_with('-') && text.contains(UNKNOWN);
    words.iter().enumerate().any(|(at, word)| {
        let parts = word.perhaps.iter().filter(|_| word.splits).flat_map(|text| text.split_whitespace());
        // Before what compares it, or alone, it is a text.
        let is_compared = words.get(at + 1).is_none_or(|next| next.as_literal().is_some_and(is_comparison));
        let may_name = word.perhaps.iter().any(|text| is_filled(text)) && (word.splits || !is_compared);
        word.all_texts().chain(parts).any(names) || may_name
    })
}

/// Reports whether a word of `test` ends the expression before it, or compares it with the next one.
fn is_comparison(word: &str) -> bool {
    const KNOWN: &str = "= == != < > -eq -ne -lt -le -gt -ge -nt -ot -ef -a -o ] )";
    KNOWN.split_ascii_whitespace().any(|known| known == word)
}
