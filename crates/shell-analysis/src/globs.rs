//! Commands with wildcards, as rules that deny see them: the names of files decide what they say.

use super::{
    git,
    programs::base_name,
    word::{GLOB, ShellWord, UNKNOWN},
};

/// One form of a command in which wildcards stand.
#[derive(Clone, Debug)]
pub struct GlobForm {
    /// Its text, with [`Self::SIGN`] for what is only known when the line runs.
    pub text: String,
    /// True if that may hold slashes too.
    pub crosses: bool,
}

impl GlobForm {
    /// Stands for what the names of files make of a wildcard.
    pub const SIGN: char = GLOB;

    /// Returns the forms of `argv`; none without wildcards.
    pub(super) fn from_argv(tool: &str, argv: &[ShellWord]) -> Vec<Self> {
        if !argv.iter().any(|word| word.value.contains(GLOB)) {
            return Vec::new();
        }
        // A wildcard after a slash becomes several words, and each of them holds the slash again.
        let crosses =
            |word: &ShellWord| word.value.contains(UNKNOWN) || word.value.contains(GLOB) && word.value.contains('/');
        let crosses = argv.iter().any(crosses);
        let words: Vec<String> = argv.iter().map(glob_text).collect();
        let mut forms = vec![words.join(" ")];
        if let Some((program, rest)) = words.split_first() {
            let program = base_name(program);
            forms.push([&[program.to_owned()], rest].concat().join(" "));
            forms.extend(if program == "git" { git::plain_forms(rest) } else { Vec::new() });
        }
        forms.sort();
        forms.dedup();
        forms.into_iter().map(|text| Self { text: format!("{tool}({text})"), crosses }).collect()
    }
}

/// Returns the text of a word. Brackets are not kept apart from the text after them.
fn glob_text(word: &ShellWord) -> String {
    let text = word.value.replace(UNKNOWN, &GLOB.to_string());
    match (text.find(GLOB), text.rfind(']')) {
        (Some(start), Some(end)) if start < end => format!("{}{GLOB}{}", &text[..start], &text[end + 1..]),
        _ => text,
    }
}
