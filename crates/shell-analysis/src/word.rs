//! One word of a shell line: what of it is literal, what the shell would expand, and what that would run.

mod braces;
mod scan;

pub(super) use self::{
    braces::{TooManyWords, expand_braces},
    scan::{scan_live, scan_word},
};

/// Placeholder in [`ShellWord::value`] for text that is only known when the line runs.
pub(super) const UNKNOWN: char = '\u{10FFFE}';

/// Possible value of a variable that the shell fills from its input or its state: it may be an option too.
pub(super) const FILLED: &str = "-\u{10FFFE}";

/// Placeholder in [`ShellWord::value`] for an unquoted pattern character.
pub(super) const GLOB: char = '\u{10FFFD}';

/// Placeholder for an unknown working folder: a name that no path has.
pub(super) const WORKING: &str = "/\u{10FFFC}";

/// Returns `text` as people read it.
pub(super) fn shown_text(text: &str) -> String {
    text.replace(UNKNOWN, "…").replace(GLOB, "*").replace(WORKING, ".")
}

/// One word, scanned.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct ShellWord {
    /// As written.
    pub(super) raw: String,
    /// Its text; [`UNKNOWN`] and [`GLOB`] stand for what is not text.
    pub(super) value: String,
    /// True if the shell expands anything in it, known or not.
    pub(super) expands: bool,
    /// True if it may become several words, or none: something in it is expanded that no quote keeps together.
    pub(super) splits: bool,
    /// True if its text cannot be determined: shells, or their settings, read it in different ways.
    pub(super) disguised: bool,
    /// True if a loop around it tells all that its variables may hold.
    pub(super) settled: bool,
    /// Commands that expanding it runs.
    pub(super) runs: Vec<String>,
    /// Why no rule covers it.
    pub(super) opaque: Option<&'static str>,
    /// The unknown variables in it, with the operators after them in braces.
    pub(super) names: Vec<String>,
    /// Its possible texts, as far as the line itself sets its variables.
    pub(super) perhaps: Vec<String>,
}

impl ShellWord {
    /// Returns a word of which nothing is known.
    pub(super) fn unknown_word() -> Self {
        Self { raw: "…".to_owned(), value: UNKNOWN.to_string(), expands: true, splits: true, ..Self::default() }
    }

    /// Returns a word that says `text`.
    pub(super) fn from_text(text: &str) -> Self {
        Self { raw: text.to_owned(), value: text.to_owned(), ..Self::default() }
    }

    /// Returns its text if nothing in it is expanded.
    pub(super) fn as_literal(&self) -> Option<&str> {
        (!self.expands && self.opaque.is_none()).then_some(self.value.as_str())
    }

    /// Returns every text that it may be.
    pub(super) fn all_texts(&self) -> impl Iterator<Item = &str> {
        std::iter::once(self.value.as_str()).chain(self.perhaps.iter().map(String::as_str))
    }

    /// Returns the same, but for what it says where nothing is known of its variables, if a loop tells all that they may hold.
    pub(super) fn possible_texts(&self) -> impl Iterator<Item = &str> {
        self.all_texts().skip(usize::from(self.settled))
    }

    /// Reports whether it may turn out to be an option, or to hold one, that is not seen here.
    pub(super) fn may_hide_options(&self) -> bool {
        let splits = self.splits && self.value.contains(UNKNOWN);
        let begins = |text: &str| text.starts_with([UNKNOWN, GLOB]) && !self.is_in_folder();
        splits || self.possible_texts().any(begins) || self.perhaps.iter().any(|text| text.starts_with('-'))
    }

    /// Reports whether a dash follows an unknown beginning, which may be empty.
    pub(super) fn may_begin_with_dash(&self) -> bool {
        let rest = self.value.trim_start_matches(UNKNOWN);
        rest.len() < self.value.len() && rest.starts_with('-')
    }

    /// Reports whether it begins with a folder of the shell's own, whichever that is: with a slash, then, or a tilde without a home.
    pub(super) fn is_in_folder(&self) -> bool {
        if self.raw.starts_with('~') {
            return true;
        }
        let raw = self.raw.trim_start_matches('"');
        ["$HOME", "${HOME}", "$PWD", "${PWD}"]
            .iter()
            .any(|folder| raw.strip_prefix(folder).is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', '"'])))
    }

    /// Returns its text as far as known, to be read as shell text again.
    pub(super) fn approximate_text(&self) -> String {
        self.value.replace(UNKNOWN, "$unknown").replace(GLOB, "*")
    }

    /// Returns the literal text quoted where it needs to be, or what was written.
    pub(super) fn normal_form(&self) -> String {
        self.as_literal().map_or_else(|| self.raw.clone(), quote_text)
    }

    /// Returns the literal text, or what was written.
    pub(super) fn plain_text(&self) -> &str {
        self.as_literal().unwrap_or(&self.raw)
    }
}

/// Values of the known variables of the shell.
#[derive(Clone, Copy, Debug)]
pub(super) struct KnownVariables<'a> {
    pub(super) home: Option<&'a str>,
    pub(super) cwd: Option<&'a str>,
    /// Variables that a value is tried for.
    pub(super) tried: &'a [(String, String)],
}

/// Returns `text` as the shell reads it back, in single quotes where it must be.
pub(super) fn quote_text(text: &str) -> String {
    let harmless =
        |c: char| c.is_ascii_alphanumeric() || "-_./:=@%+,".contains(c) || (!c.is_ascii() && c.is_alphanumeric());
    // Alone a bracket is a program, or the end of what that reads.
    if matches!(text, "[" | "]") || !text.is_empty() && text.chars().all(harmless) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::{GLOB, KnownVariables, UNKNOWN, scan_word};

    const KNOWN: KnownVariables<'static> = KnownVariables { home: Some("/home/ana"), cwd: Some("/w"), tried: &[] };

    #[test]
    fn a_word_is_its_text_where_nothing_expands() {
        for (raw, want) in [
            ("rm", "rm"),
            ("r\\m", "rm"),
            ("'r'\"m\"", "rm"),
            ("$'\\x72m'", "rm"),
            ("$'\\162m'", "rm"),
            ("$'a\\'b\\\\\\n'", "a'b\\\n"),
            ("$'\\xe2\\x9c\\x93 \\u2713 \\303\\251'", "\u{2713} \u{2713} \u{e9}"),
            ("\"a\\\"b\\c\"", "a\"b\\c"),
            ("a\\\nb", "ab"),
            ("'$(x)'", "$(x)"),
            ("a$", "a$"),
        ] {
            assert_eq!(scan_word(raw, KNOWN).as_literal(), Some(want), "{raw}");
        }
    }

    #[test]
    fn what_shells_read_in_different_ways_is_a_disguise() {
        for raw in [
            "$'\\x{72}m'",
            "$'rm\\0x'",
            "$'rm\\x00x'",
            "$'rm\\u0000'",
            "$'\\562m'",
            "$'\\cA'",
            "$'\\xg'",
            "$'\\q'",
            // Invalid bytes would all read alike.
            "$'x\\xe9'",
            "$'\\xc2y\\xc3'",
            "a${X:-$'\\x{72}m'}",
            "\"${X:-\"$'\\x{72}m'\"}\"",
        ] {
            let word = scan_word(raw, KNOWN);
            assert!(word.disguised && word.as_literal().is_none(), "{raw}: {word:?}");
        }
        for raw in ["$'\\x72m\\n\\t\\e\\\\\\'\\\"\\?\\101'", "a\\x{72}", "'$\\x{72}'"] {
            assert!(!scan_word(raw, KNOWN).disguised, "{raw}");
        }
    }

    #[test]
    fn what_no_quote_keeps_together_may_become_several_words() {
        for (raw, splits) in [
            ("$X", true),
            ("${X:-a b}", true),
            ("a$X", true),
            ("*", true),
            ("{a,$X}", true),
            ("$(id)", true),
            ("`id`", true),
            ("\"$@\"", true),
            ("\"${a[@]}\"", true),
            ("\"$X\"", false),
            ("\"$(id)\"", false),
            ("$HOME", false),
            ("~/x", false),
            ("a", false),
            ("'$X'", false),
        ] {
            assert_eq!(scan_word(raw, KNOWN).splits, splits, "{raw}");
        }
    }

    #[test]
    fn what_expands_is_marked_and_what_runs_is_found() {
        let unknown = UNKNOWN.to_string();
        let glob = GLOB.to_string();
        for (raw, value, runs, opaque) in [
            ("~/x", "/home/ana/x".to_owned(), vec![], false),
            ("$HOME", "/home/ana".to_owned(), vec![], false),
            ("${PWD}/a", "/w/a".to_owned(), vec![], false),
            ("~bob/x", format!("{unknown}/x"), vec![], false),
            ("a*", format!("a{glob}"), vec![], false),
            ("$X/y", format!("{unknown}/y"), vec![], false),
            ("${X:-y}", unknown.clone(), vec![], false),
            ("$(id)", unknown.clone(), vec!["id"], true),
            ("\"`id`\"", unknown.clone(), vec!["id"], true),
            ("${X:-$(rm x)}", unknown.clone(), vec!["rm x"], true),
            ("${X:-'$(rm x)'}", unknown.clone(), vec!["rm x"], true),
            ("${X:-<(id)}", unknown.clone(), vec!["id"], true),
            ("${X:-a>(rm x; rm <(id))}", unknown.clone(), vec!["rm x; rm <(id)"], true),
            ("${a[$(id)]}", unknown.clone(), vec!["id"], true),
            ("$((1 + 2))", unknown.clone(), vec![], false),
            ("$((a[$(id)]))", unknown.clone(), vec!["(a[$(id)])", "id"], true),
            ("${!X}", unknown.clone(), vec![], true),
            ("${X@P}", unknown.clone(), vec![], true),
            ("${X:=y}", unknown.clone(), vec![], true),
            ("$(echo \")\" ; id)", unknown, vec!["echo \")\" ; id"], true),
        ] {
            let word = scan_word(raw, KNOWN);
            let found: Vec<&str> = word.runs.iter().map(String::as_str).collect();
            assert_eq!((word.value.as_str(), found, word.opaque.is_some()), (value.as_str(), runs, opaque), "{raw}");
            assert_eq!(word.as_literal(), None, "{raw}");
        }
    }
}
