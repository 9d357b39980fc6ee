//! Names of types, functions and variables.

use std::collections::BTreeMap;

use crate::tidy::source::{RustSource, is_word};

/// Identifiers that name no thing: participles that stand for a message, an answer, a request.
const BANNED_WORDS: [&str; 5] = ["told", "said", "asked", "wanted", "heard"];

/// Type names that many modules may have, as they are used with their module in front.
const FREQUENT: &[&str] =
    &["Command", "Config", "Error", "Event", "Kind", "Options", "Request", "Response", "Settings", "State"];

/// Definitions that a name may have in the workspace.
const MOST_DEFINITIONS: usize = 3;

/// Functions that a trait of the standard library or a convention of all Rust code names.
const STANDARD_FUNCTIONS: &[&str] = &[
    "as_bytes",
    "as_ref",
    "as_str",
    "clone",
    "cmp",
    "default",
    "deref",
    "deref_mut",
    "description",
    "deserialize",
    "drop",
    "eq",
    "fmt",
    "from",
    "from_str",
    "hash",
    "index",
    "into_iter",
    "is_empty",
    "iter",
    "len",
    "main",
    "new",
    "next",
    "partial_cmp",
    "poll",
    "poll_next",
    "serialize",
    "source",
    "to_string",
    "try_from",
];

/// Figures of the names in the code of the workspace. Tests count for the banned words only.
#[derive(Debug, Default)]
pub(super) struct NameFigures {
    types: BTreeMap<String, usize>,
    functions: usize,
    one_word_functions: usize,
    banned: usize,
}

impl NameFigures {
    /// Adds the names of a file.
    pub(super) fn add(&mut self, source: &RustSource<'_>) {
        for (line, code) in source.code_lines() {
            self.banned += words(code).filter(|word| BANNED_WORDS.contains(word)).count();
            if line > source.lines_without_tests {
                continue;
            }
            if let Some(name) = type_name(code) {
                *self.types.entry(name.to_owned()).or_default() += 1;
            }
            if let Some(name) = function_name(code).filter(|name| !STANDARD_FUNCTIONS.contains(name)) {
                self.functions += 1;
                self.one_word_functions += usize::from(!name.trim_matches('_').contains('_'));
            }
        }
    }

    /// Returns the share of type definitions with a name of one word, in percent.
    pub(super) fn one_word_types(&self) -> f64 {
        let one_word: usize =
            self.types.iter().filter(|(name, _)| camel_words(name) == 1).map(|(_, count)| count).sum();
        percent(one_word, self.definitions())
    }

    /// Returns how many definitions a type name has on average.
    pub(super) fn definitions_per_name(&self) -> f64 {
        ratio(self.definitions(), self.types.len())
    }

    /// Returns the share of functions with a name of one word, in percent.
    pub(super) fn one_word_functions(&self) -> f64 {
        percent(self.one_word_functions, self.functions)
    }

    /// Returns how often the banned words stand as identifiers.
    pub(super) fn banned_words(&self) -> f64 {
        ratio(self.banned, 1)
    }

    /// Returns how many type names have more definitions than they may.
    pub(super) fn too_frequent(&self) -> f64 {
        ratio(self.repeated().count(), 1)
    }

    /// Returns the type names with more definitions than they may have.
    pub(super) fn repeated(&self) -> impl Iterator<Item = (&str, usize)> {
        let names = self.types.iter().map(|(name, count)| (name.as_str(), *count));
        names.filter(|(name, count)| *count > MOST_DEFINITIONS && !FREQUENT.contains(name))
    }

    fn definitions(&self) -> usize {
        self.types.values().sum()
    }
}

#[allow(clippy::cast_precision_loss, reason = "counts of names are far below 2^52")]
fn ratio(part: usize, whole: usize) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

fn percent(part: usize, whole: usize) -> f64 {
    ratio(part, whole) * 100.0
}

fn words(code: &str) -> impl Iterator<Item = &str> {
    code.split(|c: char| !is_word(c)).filter(|word| !word.is_empty())
}

/// Returns the type, trait or alias that a line of code defines. An alias within an implementation or a trait is none.
pub(crate) fn type_name(code: &str) -> Option<&str> {
    let is_alias = !code.starts_with(' ');
    if !code.trim_start().starts_with(is_word) {
        return None;
    }
    let mut words =
        words(code).skip_while(|word| matches!(*word, "pub" | "crate" | "super" | "in" | "unsafe" | "async"));
    match words.next()? {
        "struct" | "enum" | "trait" | "union" => {}
        "type" if is_alias => {}
        _ => return None,
    }
    words.next().filter(|name| name.starts_with(char::is_uppercase))
}

/// Returns the function that a line of code declares.
fn function_name(code: &str) -> Option<&str> {
    let at = code.match_indices("fn ").map(|(at, _)| at).find(|at| !code[..*at].ends_with(is_word))?;
    let name = code[at + 3..].split(|c: char| !is_word(c)).next()?;
    Some(name).filter(|name| !name.is_empty())
}

/// Returns the number of words in a name in camel case. An abbreviation counts as one.
fn camel_words(name: &str) -> usize {
    let letters: Vec<char> = name.chars().collect();
    let begins = |at: &usize| {
        let is_after_small = *at == 0 || !letters[at - 1].is_uppercase();
        let is_before_small = letters.get(at + 1).is_some_and(|next| next.is_lowercase());
        letters[*at].is_uppercase() && (is_after_small || is_before_small)
    };
    (0..letters.len()).filter(begins).count()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn of(texts: &[&str]) -> NameFigures {
        let mut figures = NameFigures::default();
        texts.iter().for_each(|text| figures.add(&RustSource::new(Path::new("src/a.rs"), text)));
        figures
    }

    #[test]
    fn definitions_of_types_are_counted_by_name() {
        let figures = of(&[
            "pub struct Place;\npub(crate) enum GateSummary {\n}\nimpl X {\n    type Of = u8;\n}\n",
            "    struct Place<T>(T);\n    .union(Place::A)\ntype Place = u8;\nlet structure = \"struct No\"; // enum No\ntrait HTTPServer {}\n",
            "#[cfg(test)]\nmod tests {\n    struct Place;\n    struct Stage;\n}\n",
        ]);
        assert_eq!(
            figures.types.iter().map(|(name, n)| (name.as_str(), *n)).collect::<Vec<_>>(),
            [("GateSummary", 1), ("HTTPServer", 1), ("Place", 3)]
        );
        assert_eq!((figures.one_word_types(), figures.definitions_per_name()), (60.0, 5.0 / 3.0));
        assert_eq!(figures.repeated().count(), 0);
        assert_eq!(of(&["struct A;"; 4]).repeated().collect::<Vec<_>>(), [("A", 4)]);
        assert_eq!(of(&["struct Error;"; 4]).repeated().count(), 0);
    }

    #[test]
    fn functions_are_counted_without_standard_names() {
        let figures =
            of(&["fn tell() {}\n    pub async fn send_event() {}\nfn fmt() {}\ntype F = fn(u8);\nfn _of() {}\n"]);
        assert_eq!((figures.functions, figures.one_word_functions), (3, 2));
    }

    #[test]
    fn banned_words_count_as_whole_identifiers_in_tests_too() {
        let figures = of(&[
            "let told = untold(said_it, \"asked\"); // wanted\n#[cfg(test)]\nmod tests {\n    let heard = told;\n}\n",
        ]);
        assert_eq!(figures.banned, 3);
    }

    #[test]
    fn words_of_a_name() {
        for (name, want) in
            [("Gate", 1), ("GateSummary", 2), ("HTTPServer", 2), ("IO", 1), ("A", 1), ("Sha256", 1), ("OpenAiApi", 3)]
        {
            assert_eq!(camel_words(name), want, "{name}");
        }
    }
}
