//! Paths that a broad rule does not cover: a rule has to name them.
//!
//! It must not know where a path was found, or look at the disk.

use std::{fmt, sync::Arc};

use crate::{fnmatch::GlobPattern, obeyed_files::ObeyedPart, path};

/// A path that a rule covers only if it names it.
#[derive(Clone, Debug, PartialEq)]
pub struct NarrowPath {
    /// Absolute, or as written if the home with which it begins is not known. None: the path is unknown.
    path: Option<String>,
    why: NarrowReason,
    viewpoint: PathBases,
}

/// The reason for which a broad rule does not cover a path.
#[derive(Clone, Debug, PartialEq)]
pub enum NarrowReason {
    /// Another program runs or obeys what lies there.
    Obeyed(ObeyedPart),
    /// It lies outside of the working folder, and a program may change it that is not known to read only.
    Outside,
    /// A program runs there, and obeys the settings that it finds.
    Folder {
        /// The program, as people know it.
        program: String,
    },
}

/// The folders that the relative paths of a call count from, and those of the rules that name them.
#[derive(Clone, Debug, PartialEq)]
pub struct PathBases(Arc<BaseFolders>);

#[derive(Debug, PartialEq)]
struct BaseFolders {
    from: Vec<String>,
    home: Option<String>,
    working: String,
}

impl PathBases {
    /// Creates the bases of the folders `from`, in the working folder `working`. All are absolute.
    pub fn new(from: impl IntoIterator<Item = String>, home: Option<&str>, working: &str) -> Self {
        let from = from.into_iter().collect();
        Self(Arc::new(BaseFolders { from, home: home.map(str::to_owned), working: working.to_owned() }))
    }

    /// Returns the paths that `text` may lead to.
    pub fn reached_paths(&self, text: &str) -> Vec<String> {
        let mut reached: Vec<String> = self.0.from.iter().map(|from| self.resolve_path(from, text)).collect();
        reached.dedup();
        reached
    }

    /// Returns the working folder.
    pub fn working_folder(&self) -> &str {
        &self.0.working
    }

    /// Returns the path that `text` leads to from the folder `from`. A home that is not known stays as it is written.
    fn resolve_path(&self, from: &str, text: &str) -> String {
        match (text.strip_prefix('~'), &self.0.home) {
            (Some(rest), Some(home)) if rest.is_empty() || rest.starts_with('/') => {
                path::resolve(home, rest.trim_start_matches('/'))
            }
            (Some(_), _) => text.to_owned(),
            (None, _) => path::resolve(from, text),
        }
    }
}

impl NarrowPath {
    /// Creates the path `path`, which a rule has to name because of `why`.
    pub fn new(path: String, why: NarrowReason, viewpoint: &PathBases) -> Self {
        Self { path: Some(path), why, viewpoint: viewpoint.clone() }
    }

    /// Builds a path whose target is unknown, so that no rule names it.
    pub fn unknown_path(why: NarrowReason, viewpoint: &PathBases) -> Self {
        Self { path: None, why, viewpoint: viewpoint.clone() }
    }

    /// Reports whether another program obeys what lies there.
    pub const fn is_obeyed(&self) -> bool {
        matches!(self.why, NarrowReason::Obeyed(_))
    }

    /// Reports whether a rule with this pattern, which matches the call, was meant for the path as well. A bare `*` is meant for everything
    /// but what other programs obey.
    pub fn is_named_by(&self, pattern: &str) -> bool {
        if GlobPattern::new(pattern).is_everything() {
            return !self.is_obeyed();
        }
        let Some(path) = &self.path else { return false };
        pattern_tokens(pattern).iter().any(|token| self.is_told_by(path, token))
    }

    /// Returns the texts by which a rule on `cd` may name the folder that a program runs in; none for another path.
    pub fn folder_texts(&self) -> Vec<String> {
        let (NarrowReason::Folder { .. }, Some(path)) = (&self.why, &self.path) else { return Vec::new() };
        let BaseFolders { home, working, .. } = &*self.viewpoint.0;
        let mut texts = vec![path.clone()];
        let relative = relative_path(working, path);
        texts.extend((!relative.starts_with("..")).then(|| format!("./{relative}")));
        texts.push(relative);
        let at_home = home.as_ref().filter(|home| path::is_within(home, path)).map(|home| &path[home.len()..]);
        texts.extend(at_home.map(|rest| format!("~{rest}")));
        texts.iter().flat_map(|text| [text.clone(), format!("{text}/")]).collect()
    }

    fn is_told_by(&self, path: &str, token: &PatternToken<'_>) -> bool {
        let least = match &self.why {
            NarrowReason::Obeyed(obeyed) => obeyed.from..obeyed.to,
            // The root is no name.
            NarrowReason::Outside | NarrowReason::Folder { .. } => 0..2,
        };
        let ends = |at: usize| token.goes_on || at == path.len() || path[at..].starts_with('/');
        if token.is_open {
            // Whatever precedes it, its text has the part that counts.
            let Some(known_part) = token.text.find('/').map(|at| &token.text[at..]).filter(|_| self.is_obeyed()) else {
                return false;
            };
            let known_part = if token.goes_on { known_part } else { known_part.trim_end_matches('/') };
            let covers =
                |at: usize| at <= least.start && at + known_part.len() >= least.end && ends(at + known_part.len());
            return path.match_indices(known_part).any(|(at, _)| covers(at));
        }
        // A word that is no path must not name a folder in which the program of the rule runs.
        if matches!(self.why, NarrowReason::Folder { .. }) && !token.is_path() {
            return false;
        }
        self.viewpoint.0.from.iter().chain([&self.viewpoint.0.working]).any(|from| {
            if !token.goes_on {
                let named = self.viewpoint.resolve_path(from, token.text);
                return named.len() >= least.end && path::is_within(&named, path);
            }
            let (folder, begun) =
                token.text.rsplit_once('/').map_or(("", token.text), |(folder, begun)| match folder {
                    "" => ("/", begun),
                    folder => (folder, begun),
                });
            let folder = self.viewpoint.resolve_path(from, folder);
            let named = format!("{}/{begun}", folder.trim_end_matches('/'));
            let is_enough = if self.is_obeyed() { named.len() } else { folder.len() } >= least.end;
            is_enough && path.starts_with(&named)
        })
    }
}

impl fmt::Display for NarrowPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let working = self.viewpoint.working_folder();
        let shown = self.path.as_deref().map(|path| match path.strip_prefix(working) {
            Some(rest) if rest.starts_with('/') && working.len() > 1 => &rest[1..],
            Some(_) | None => path,
        });
        let shown = shown.map(crate::word::shown_text);
        match (&self.why, shown) {
            (NarrowReason::Obeyed(obeyed), shown) => {
                let shown = shown.unwrap_or_default();
                write!(f, "a change of {shown}, which {}; a rule has to name that path", obeyed.because)
            }
            (NarrowReason::Outside, Some(shown)) => {
                write!(f, "{shown}, which is outside the working folder; a rule has to name that path")
            }
            (NarrowReason::Folder { program }, Some(shown)) => write!(
                f,
                "{program} in the folder {shown}, which is not the working folder and whose settings it obeys; a rule has to name that folder"
            ),
            (NarrowReason::Outside | NarrowReason::Folder { .. }, None) => {
                let program = match &self.why {
                    NarrowReason::Folder { program } => program.as_str(),
                    NarrowReason::Outside | NarrowReason::Obeyed(_) => "it",
                };
                write!(f, "{program} in a folder that is only known when the line runs")
            }
        }
    }
}

/// A piece of a pattern without wildcards in it.
#[derive(Debug)]
struct PatternToken<'p> {
    text: &'p str,
    /// True if a wildcard stands right before it.
    is_open: bool,
    /// True if a wildcard follows immediately.
    goes_on: bool,
    /// True if an option, or a program that goes to a folder, stands before it.
    is_value: bool,
}

impl PatternToken<'_> {
    /// Returns true for a text that cannot be another word.
    fn is_path(&self) -> bool {
        self.is_value || self.text.starts_with(['.', '~']) || self.text.contains('/')
    }
}

/// Returns the pieces of the arguments in `pattern`.
fn pattern_tokens(pattern: &str) -> Vec<PatternToken<'_>> {
    let inner = pattern.split_once('(').map_or(pattern, |(_, inner)| inner.strip_suffix(')').unwrap_or(inner));
    let mut pieces = Vec::new();
    let (mut from, mut at, mut is_open) = (0, 0, false);
    while let Some(sign) = inner[at..].chars().next() {
        let behind = at + sign.len_utf8();
        let end = match sign {
            '*' | '?' => Some((behind, true)),
            '[' => class_end(&inner[behind..]).map(|length| (behind + length, true)),
            sign if sign.is_whitespace() || "'\",=".contains(sign) => Some((behind, false)),
            _ => None,
        };
        match end {
            Some((next, is_wild)) => {
                pieces.push((&inner[from..at], is_open, is_wild));
                (from, at, is_open) = (next, next, is_wild);
            }
            None => at = behind,
        }
    }
    pieces.push((&inner[from..], is_open, false));
    let mut is_value = false;
    let mut found = Vec::new();
    for (text, is_open, goes_on) in pieces.into_iter().filter(|(text, ..)| !text.is_empty()) {
        let is_option = text.starts_with('-');
        found.push(PatternToken { text: path_of(text), is_open, goes_on, is_value: is_value && !is_option });
        let paths = separate_paths(text);
        for (at, path) in paths.iter().enumerate().filter(|(_, path)| **path != text) {
            // After a wildcard the beginning of the first of them is unknown.
            if !(is_open && at == 0 && text.starts_with(path)) {
                let goes_on = goes_on && at + 1 == paths.len() && text.ends_with(path);
                found.push(PatternToken { text: path, is_open: false, goes_on, is_value: true });
            }
        }
        if let Some(name) = name_behind(text) {
            found.push(PatternToken {
                text: name,
                is_open: false,
                goes_on: goes_on && text.ends_with(name),
                is_value: false,
            });
        }
        is_value = is_option || matches!(text, "cd" | "pushd");
    }
    found
}

/// Returns the part of a word that may be a path: the part joined to an option, or after the sign before a file's name.
fn path_of(word: &str) -> &str {
    if word.starts_with('-') {
        return joined_path(word).unwrap_or(word);
    }
    word.trim_start_matches(['@', '<'])
}

/// Returns the path that is joined to the letters of an option, as in `-o/etc/x`.
pub fn joined_path(word: &str) -> Option<&str> {
    let letters = word.strip_prefix('-').filter(|rest| !rest.starts_with('-'))?;
    let at = letters.find(|c: char| !c.is_ascii_alphanumeric()).filter(|at| *at > 0)?;
    let rest = &letters[at..];
    rest.starts_with(['/', '~', '.']).then_some(rest)
}

/// Returns the paths in `word` that lead somewhere by themselves, each between two of the signs that separate such values. The path of an
/// address is one only if the address has no host, or is a file's. Text after white space does not count.
pub fn separate_paths(word: &str) -> Vec<&str> {
    let word = word.split(char::is_whitespace).next().unwrap_or_default();
    let is_path = |text: &str| {
        ["/", "./", ".."].iter().any(|begin| text.starts_with(begin)) || text.starts_with('~') && text.contains('/')
    };
    let is_in_scheme = |c: char| c.is_ascii_alphanumeric() || "+-.".contains(c);
    let mut found = Vec::new();
    let mut at = 0;
    loop {
        let rest = &word[at..];
        let signs = || rest.char_indices();
        let end = signs().map(|(sign, _)| sign).find(|sign| is_separator(word, at + sign));
        let path = &rest[..end.unwrap_or(rest.len())];
        if is_path(path) {
            found.push(path);
        }
        let sign = signs().find(|(sign, c)| is_separator(word, at + sign) || matches!(c, '=' | '@'));
        let Some((sign, _)) = sign else { return found };
        let (before, behind) = (&word[..at + sign], at + sign + 1);
        let scheme = &before[before.trim_end_matches(is_in_scheme).len()..];
        let address = word[behind..].strip_prefix("//").filter(|_| rest[sign..].starts_with(':'));
        at = match address.filter(|host| !scheme.is_empty() && !host.starts_with('/')) {
            None => behind,
            Some(host) if scheme.to_ascii_lowercase().rsplit('+').next() == Some("file") => {
                behind + 2 + host.find('/').unwrap_or(host.len())
            }
            Some(_) if scheme.len() == before.len() => return found,
            Some(host) => behind + 2 + host.find([',', '"', '\'']).unwrap_or(host.len()),
        };
    }
}

/// Returns the texts between braces in a word, such as the file in `%output{x}`.
pub(super) fn braced_texts(word: &str) -> impl Iterator<Item = &str> {
    word.split('{')
        .skip(1)
        .filter_map(|rest| rest.split_once('}'))
        .map(|(inner, _)| inner)
        .filter(|inner| !inner.is_empty())
}

/// Reports whether the sign at `at` stands between two values of `word`. A bracket in the middle of a name belongs to the name, as in
/// `app/[id]/page.tsx` and `feat(/api)`, and so does the end of a group of alternatives, as in `{src,test}/*`. The end of options, as in
/// `[f=mp4]/x`, stands between.
fn is_separator(word: &str, at: usize) -> bool {
    let is_of_name = |c: char| c.is_alphanumeric() || "/._-~".contains(c);
    let begins_apart = |at: usize| !word[..at].chars().next_back().is_some_and(is_of_name);
    match word[at..].chars().next() {
        Some(':' | ',' | '"' | '\'' | '|' | ';' | '<' | '>' | '&') => true,
        Some('[' | '(' | '{') => begins_apart(at),
        Some(']' | ')' | '}') => {
            let open = word[..at].rfind(['[', '(', '{']);
            open.is_none_or(|open| begins_apart(open) && word[open..at].contains('='))
        }
        Some(_) | None => false,
    }
}

/// Returns the last name in an address, without its query. None for a word that has no address.
pub fn name_behind(word: &str) -> Option<&str> {
    let word = word.split(char::is_whitespace).next().unwrap_or_default();
    let path = match word.split_once("://") {
        Some((_, address)) => address.split(['?', '#']).next().unwrap_or_default(),
        None => word.split_once(':')?.1,
    };
    path.trim_end_matches('/').rsplit(['/', ':']).next().filter(|name| !name.is_empty())
}

/// Decodes the bytes that `text` spells in hexadecimal: some programs read them before they name a file.
pub fn decode_percent(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once('%') {
        bytes.extend_from_slice(before.as_bytes());
        let byte = behind.get(..2).and_then(|digits| u8::from_str_radix(digits, 16).ok());
        bytes.push(byte.unwrap_or(b'%'));
        rest = if byte.is_some() { &behind[2..] } else { behind };
    }
    bytes.extend_from_slice(rest.as_bytes());
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Returns the length of a class in a pattern after its bracket, with the bracket that ends it.
fn class_end(text: &str) -> Option<usize> {
    let skipped = text.len() - text.strip_prefix('!').unwrap_or(text).len();
    let first = text[skipped..].chars().next()?.len_utf8();
    text[skipped + first..].find(']').map(|end| skipped + first + end + 1)
}

/// Returns the way from the folder `from` to `to`, both absolute.
pub fn relative_path(from: &str, to: &str) -> String {
    fn path_parts(path: &str) -> Vec<&str> {
        path.split('/').filter(|part| !part.is_empty()).collect()
    }
    let (from, to) = (path_parts(from), path_parts(to));
    let same = from.iter().zip(&to).take_while(|(one, other)| one == other).count();
    let up = std::iter::repeat_n("..", from.len() - same);
    let down = to[same..].iter().copied();
    let way: Vec<&str> = up.chain(down).collect();
    if way.is_empty() { ".".to_owned() } else { way.join("/") }
}

#[cfg(test)]
mod tests {
    use super::{NarrowPath, NarrowReason, PathBases, separate_paths};
    use crate::obeyed_files;

    fn viewpoint() -> PathBases {
        PathBases::new(["/w".to_owned(), "/w/sub".to_owned()], Some("/home/ana"), "/w")
    }

    #[test]
    fn a_bracket_within_a_name_belongs_to_it_and_one_of_options_stands_between_values() {
        for (word, want) in [
            ("[f=mp4]/x/b|c", &["/x/b"][..]),
            ("tee:[f=mp4]/x", &["/x"]),
            ("a|/x", &["/x"]),
            ("{/x,a}", &["/x"]),
            ("of=/x", &["/x"]),
            ("src/app/[id]/page.tsx", &[]),
            ("app/[locale]/(shop)/page.tsx", &[]),
            ("./app/[id]/page.tsx", &["./app/[id]/page.tsx"]),
            ("/x/[id]/y", &["/x/[id]/y"]),
            ("{src,test}/**/*.ts", &[]),
            ("TestX/(a|b)/c", &[]),
            ("feat(/api):", &[]),
        ] {
            assert_eq!(separate_paths(word), want, "{word}");
        }
    }

    #[test]
    fn a_rule_names_what_others_obey_by_the_part_that_counts() {
        for (pattern, path, want) in [
            ("*", "/w/.git/config", false),
            ("write*", "/w/.git/config", false),
            ("write(*)", "/w/.git/config", false),
            ("write(vendor/*)", "/w/vendor/sub/.git/config", false),
            ("write(.g*)", "/w/.git/config", false),
            ("write(.git*)", "/w/.git/config", true),
            ("write(.git/*)", "/w/.git/config", true),
            ("write(/w/.git/*)", "/w/.git/config", true),
            ("write(./.git/config)", "/w/.git/config", true),
            ("write(.git/config)", "/w/.git/hooks/x", false),
            ("write(.git/hooks/*)", "/w/.git/config", false),
            ("write(*/.git/*)", "/w/vendor/sub/.git/config", true),
            ("write(*/.git/hooks/*)", "/w/vendor/sub/.git/config", false),
            ("write(*.git/*)", "/w/.git/config", false),
            ("write(*.yml)", "/w/.gitlab-ci.yml", false),
            ("write(.gitlab-ci.yml)", "/w/.gitlab-ci.yml", true),
            ("write(.github/workflows/*)", "/w/.github/workflows/ci.yml", true),
            ("write(Jenkinsfile)", "/w/Jenkinsfile", true),
            ("write(~/.bashrc)", "/home/ana/.bashrc", true),
            ("write(~/*)", "/home/ana/.bashrc", false),
            ("bash(tee *)", "/w/.envrc", false),
            ("bash(tee .envrc)", "/w/.envrc", true),
            ("bash(tee .git/description*)", "/w/.git/hooks/x", false),
            ("bash(cp * .husky/*)", "/w/.husky/pre-commit", true),
            ("bash(git clone *.git)", "/w/.git/x", false),
            ("write([.]git/*)", "/w/.git/config", false),
        ] {
            let obeyed = obeyed_files::obeyed_part("/w", path).unwrap();
            let narrow = NarrowPath::new(path.to_owned(), NarrowReason::Obeyed(obeyed), &viewpoint());
            assert_eq!(narrow.is_named_by(pattern), want, "{pattern} {path}");
        }
    }

    #[test]
    fn a_rule_names_a_path_outside_or_a_folder_above_it() {
        for (pattern, path, want) in [
            ("*", "/etc/x", true),
            ("bash(*)", "/etc/x", false),
            ("bash(tee *)", "/etc/x", false),
            ("bash(tee /*)", "/etc/x", false),
            ("bash(tee /e*)", "/etc/x", false),
            ("bash(tee /etc/*)", "/etc/x", true),
            ("bash(tee /etc/x)", "/etc/x", true),
            ("bash(tee /etc/x*)", "/etc/y", false),
            ("bash(tee /tmp/a*)", "/etc/x", false),
            ("bash(curl -o/etc/* *)", "/etc/x", true),
            ("bash(curl --output=/etc/* *)", "/etc/x", true),
            ("bash(cp * ../out/*)", "/out/x", true),
            ("bash(cp * ../out/*)", "/other/x", false),
            ("bash(cp * ~/out/*)", "/home/ana/out/x", true),
            ("bash(cp * /etc)", "/etc", true),
            ("bash(sed -n */x* /etc/*)", "/etc/x", true),
        ] {
            let narrow = NarrowPath::new(path.to_owned(), NarrowReason::Outside, &viewpoint());
            assert_eq!(narrow.is_named_by(pattern), want, "{pattern} {path}");
        }
    }

    #[test]
    fn a_word_that_is_no_path_names_no_folder_to_run_in() {
        let folder = |path: &str| {
            NarrowPath::new(path.to_owned(), NarrowReason::Folder { program: "git".to_owned() }, &viewpoint())
        };
        for (pattern, path, want) in [
            ("bash(git status*)", "/w/status", false),
            ("bash(git -C status *)", "/w/status", true),
            ("bash(git -C /x/evil *)", "/x/evil", true),
            ("bash(git -C /x/evil *)", "/x/other", false),
            ("bash(cd crates/core)", "/w/crates/core", true),
            ("bash(cd crates/*)", "/w/crates/core", true),
            ("bash(cd sub)", "/w/sub", true),
            ("bash(cd *)", "/w/sub", false),
        ] {
            assert_eq!(folder(path).is_named_by(pattern), want, "{pattern} {path}");
        }
        let entries = folder("/w/sub/x").folder_texts();
        assert!(["/w/sub/x", "sub/x", "./sub/x/"].iter().all(|text| entries.iter().any(|entry| entry == text)));
        assert!(folder("/x").folder_texts().contains(&"../x".to_owned()));
        let unknown = NarrowPath::unknown_path(NarrowReason::Folder { program: "git".to_owned() }, &viewpoint());
        assert!(unknown.is_named_by("*") && !unknown.is_named_by("bash(git *)") && unknown.folder_texts().is_empty());
    }
}
