//! Words of `git`: options before its command, the command, and the other words that run or write something else.

use std::collections::BTreeSet;

use super::{
    option_words::{has_letter, has_long},
    programs::base_name,
    word::{FILLED, GLOB, ShellWord, UNKNOWN},
};

/// Options before the command whose value is the next word.
const VALUED: [&str; 9] = [
    "-C",
    "-c",
    "--git-dir",
    "--work-tree",
    "--namespace",
    "--super-prefix",
    "--config-env",
    "--attr-source",
    "--shallow-file",
];

/// Options before the command that stand alone.
const ALONE: &str = "-p --paginate -P --no-pager -v --version -h --help --bare --no-replace-objects --no-lazy-fetch \
    --no-optional-locks --no-advice --literal-pathspecs --glob-pathspecs --noglob-pathspecs --icase-pathspecs \
    --exec-path --html-path --man-path --info-path";

/// Options before the command that have it run, or read its configuration from, something else.
const GLOBALS: [&str; 7] = ["-c", "--config-env", "--exec-path", "--git-dir", "--work-tree", "--bare", "--paginate"];

/// Long options of its commands that run or write something else.
const LONG: [&str; 14] = [
    "--upload-pack",
    "--receive-pack",
    "--exec",
    "--ext-diff",
    "--textconv",
    "--open-files-in-pager",
    "--template",
    "--separate-git-dir",
    "--extcmd",
    "--output",
    "--export-marks",
    "--index-output",
    "--in-place",
    "--unsafe-paths",
];

/// Commands that run what they are given, or what their arguments or their input name.
const REFUSED: &str = "filter-branch difftool mergetool daemon instaweb merge-index merge-one-file hook send-email \
    credential credential-store fast-import cvsimport cvsexportcommit cvsserver archimport quiltimport p4 svn shell \
    upload-pack upload-archive receive-pack http-backend remote-ext remote-fd gui citool gitk web--browse for-each-repo \
    maintenance scalar bugreport diagnose mailinfo mailsplit checkout-index pack-objects index-pack fsmonitor--daemon \
    credential-cache credential-cache--daemon submodule--helper merge-file";

/// The others that git comes with. What else there is, an alias or another program gives a meaning.
const OWN: &str = "am annotate apply bisect blame bundle cat-file check-attr check-ignore check-mailmap check-ref-format cherry \
    clean column commit-graph commit-tree config count-objects describe diff-files diff-index diff-tree fast-export \
    fmt-merge-msg for-each-ref format-patch fsck fsck-objects gc get-tar-commit-id grep hash-object help init init-db \
    interpret-trailers last-modified lfs ls-files ls-tree merge-base merge-tree mktag mktree multi-pack-index \
    name-rev notes pack-redundant pack-refs patch-id prune prune-packed range-diff read-tree rebase reflog refs repack replace \
    replay repo rerere shortlog show-branch show-index show-ref sparse-checkout stage stripspace symbolic-ref unpack-file \
    unpack-objects update-index update-ref update-server-info var verify-commit verify-pack verify-tag version whatchanged \
    worktree write-tree";

/// Commands of `git lfs` that run and write nothing else.
const LFS: &str = "env fetch locks ls-files pull push status track untrack version";

/// Commands that speak to a repository, whose address can name a program.
const SPEAKERS: &str = "clone fetch pull push ls-remote remote submodule archive fetch-pack send-pack request-pull subtree http-fetch \
    http-push";

/// Commands with no option that would do harm, but for those of [`SHOWERS`].
const QUIET: &str = "add branch checkout cherry-pick commit diff log merge mv reset restore revert rev-list rev-parse rm show \
    stash status switch tag";

/// Those of them that an option has write what they show.
const SHOWERS: &str = "diff log show stash rev-list";

/// Commands whose `-m` takes a message.
const MESSAGES: &str = "commit tag stash merge notes";

/// The most places that are looked at.
const MOST_PLACES: usize = 8;

/// Returns the possible positions of the command among `words`. Several, if an option before it is not known: its value may be the next
/// word.
pub(super) fn command_positions<T: AsRef<str>>(words: &[T]) -> BTreeSet<usize> {
    let (mut found, mut open) = (BTreeSet::new(), BTreeSet::from([0]));
    while let Some(at) = open.pop_first().filter(|_| found.len() < MOST_PLACES) {
        match words.get(at).map(AsRef::as_ref).filter(|word| word.starts_with('-')) {
            Some(word) if VALUED.contains(&word) => drop(open.insert(at + 2)),
            Some(word) if word.contains('=') || is_listed(ALONE, word) => drop(open.insert(at + 1)),
            Some(_) => open.extend([at + 1, at + 2]),
            None => drop(found.insert(at.min(words.len()))),
        }
    }
    found
}

/// Returns the plain forms of a command of git, for rules: `git -C x push` and `git send-pack` are a `git push`, and so is one for each
/// repository.
pub(super) fn plain_forms(rest: &[String]) -> Vec<String> {
    let tails = command_positions(rest).into_iter().flat_map(|at| {
        let words = &rest[at..];
        let is = |name: &str| words.first().is_some_and(|word| word == name);
        let sent = is("send-pack").then(|| join_words("git push", &words[1..]));
        let behind =
            (1..words.len()).filter(|at| is("for-each-repo") && !words[*at].starts_with('-')).take(MOST_PLACES);
        let each: Vec<String> = behind.map(|at| join_words("git", &words[at..])).collect();
        (at > 0).then(|| join_words("git", words)).into_iter().chain(sent).chain(each)
    });
    tails.collect()
}

/// Reports whether the words of a command give git an alias, so that the command of that name cannot be determined.
pub(super) fn sets_alias(argv: &[ShellWord]) -> bool {
    let is_setting = |word: &ShellWord| {
        let text = word.value.trim_start_matches("-c").trim_start_matches("--config-env=");
        text.get(..6).is_some_and(|begin| begin.eq_ignore_ascii_case("alias."))
    };
    argv.first().and_then(ShellWord::as_literal).map(base_name) == Some("git") && argv.iter().any(is_setting)
}

fn join_words(program: &str, words: &[String]) -> String {
    format!("{program} {}", words.join(" "))
}

/// Reports whether `arguments` have git run or write something else; the first `options` of them may be options.
pub(super) fn runs_something(arguments: &[ShellWord], options: usize) -> bool {
    let values: Vec<&str> = arguments.iter().map(|word| word.value.as_str()).collect();
    let places = command_positions(&values);
    places.len() == MOST_PLACES
        || places.into_iter().any(|at| {
            let (globals, rest) = arguments.split_at(at);
            let is_global = |text: &str| text == "-p" || GLOBALS.iter().any(|known| text.starts_with(known));
            let command = rest.split_first().map_or("", |(command, _)| command.value.as_str());
            let options = options.saturating_sub(at + 1);
            globals.iter().flat_map(ShellWord::all_texts).any(is_global)
                || command_runs(command, rest.get(1..).unwrap_or_default(), options)
        })
}

/// Returns the words by which `arguments` name other repositories as folders. What is the name of a remote as well is none.
pub(super) fn named_repositories(arguments: &[ShellWord]) -> Vec<String> {
    let values: Vec<&str> = arguments.iter().map(|word| word.value.as_str()).collect();
    let named = |at: usize| {
        let command = values.get(at).copied().unwrap_or_default();
        let rest = arguments.get(at + 1..).unwrap_or_default();
        let subcommand = rest.first().map_or("", |word| word.value.as_str());
        let takes = match command {
            "remote" if matches!(subcommand, "add" | "set-url") => RepositoryOperands::Any,
            "submodule" if subcommand == "add" => RepositoryOperands::Any,
            "archive" | "remote" | "submodule" => RepositoryOperands::Options,
            "subtree" | "request-pull" => RepositoryOperands::Plain,
            _ if is_listed(SPEAKERS, command) => RepositoryOperands::First,
            _ => return Vec::new(),
        };
        named_folders(rest, takes)
    };
    command_positions(&values).into_iter().flat_map(named).collect()
}

/// Operands of a command that may name a repository.
#[derive(Clone, Copy, PartialEq)]
enum RepositoryOperands {
    /// None: only options do.
    Options,
    /// Those that are plainly folders.
    Plain,
    /// The same, and the first of all.
    First,
    /// Each of them.
    Any,
}

fn named_folders(words: &[ShellWord], takes: RepositoryOperands) -> Vec<String> {
    let mut found = Vec::new();
    let mut is_first = true;
    for word in words {
        if word.value.starts_with('-') {
            let value = |text: &str| {
                let value = ["--repo=", "--remote="].iter().find_map(|option| text.strip_prefix(option))?;
                Some(address_folder(value).to_owned()).filter(|value| !is_address(value) && value.contains(['/', '.']))
            };
            found.extend(word.possible_texts().filter_map(value));
            continue;
        }
        if takes == RepositoryOperands::Options {
            continue;
        }
        // The text after an address is something else.
        if word.possible_texts().any(|text| is_address(address_folder(text))) {
            return found;
        }
        let may_be = is_first && takes == RepositoryOperands::First || takes == RepositoryOperands::Any;
        let is_folder = |text: &&str| {
            let is_plain =
                ["./", "../", "/", "~"].iter().any(|begin| text.starts_with(begin)) || matches!(*text, "." | "..");
            is_plain || may_be && text.contains('/')
        };
        found.extend(word.possible_texts().map(address_folder).filter(is_folder).map(str::to_owned));
        is_first = false;
    }
    found
}

/// Returns the path of an address that is a file's, else the text itself.
fn address_folder(text: &str) -> &str {
    match text.strip_prefix("file://") {
        Some(rest) => rest.find('/').map_or(rest, |at| &rest[at..]),
        None => text,
    }
}

/// Reports whether a colon stands before the first slash, as after a scheme or a host.
fn is_address(text: &str) -> bool {
    text.split('/').next().is_some_and(|begin| begin.contains(':'))
}

/// Reports whether `arguments` only record the content of files, and change none of them.
pub(super) fn only_records(arguments: &[ShellWord]) -> bool {
    let values: Vec<&str> = arguments.iter().map(|word| word.value.as_str()).collect();
    let mut before_paths = values.iter().take_while(|word| **word != "--");
    let is_cached = before_paths.any(|word| *word == "--cached");
    let records = |at: &usize| {
        values.get(*at).is_some_and(|word| matches!(*word, "add" | "stage" | "commit") || *word == "rm" && is_cached)
    };
    command_positions(&values).iter().all(records)
}

/// Reports whether one of `words` may turn out to be a hidden option.
pub(super) fn hide_options(words: &[ShellWord]) -> bool {
    let values: Vec<&str> = words.iter().map(|word| word.value.as_str()).collect();
    let places = command_positions(&values);
    let all = |list: &str| places.iter().all(|at| values.get(*at).is_some_and(|word| is_listed(list, word)));
    let shows = places.iter().any(|at| values.get(*at).is_some_and(|word| is_listed(SHOWERS, word)));
    let (is_quiet, has_messages) = (all(QUIET), all(MESSAGES));
    let mut is_value = false;
    words.iter().any(|word| {
        // A message may have any text, and where nothing is known of a text in quotes, it names what users work at. Words that the line
        // itself reads, or gets, may be an option.
        let is_option = |text: &String| text.starts_with(['-', UNKNOWN, GLOB]) && (shows || text != FILLED);
        let is_given = !shows || word.raw.contains('$');
        let is_name = is_quiet && is_given && !word.may_begin_with_dash() && !word.perhaps.iter().any(is_option);
        let hides = word.may_hide_options() && (word.splits || !is_value && !is_name);
        is_value = has_messages && !is_value && matches!(word.as_literal(), Some("-m" | "-am" | "--message"));
        hides
    })
}

fn command_runs(command: &str, rest: &[ShellWord], options: usize) -> bool {
    let options = &rest[..options.min(rest.len())];
    // A variable that is read names what users work at where no option would do harm.
    let is_harmless = is_listed(QUIET, command) && !is_listed(SHOWERS, command);
    let may_be = |text: &&str| !is_harmless || *text != FILLED;
    let possible = |word: &ShellWord| {
        let perhaps = word.perhaps.iter().map(String::as_str).filter(may_be);
        std::iter::once(word.value.as_str()).chain(perhaps).map(str::to_owned).collect::<Vec<_>>()
    };
    let all: Vec<String> = options.iter().flat_map(possible).collect();
    let texts = || all.iter().map(String::as_str);
    let letter = |letter: char| texts().any(|text| has_letter(text, letter));
    let first = || rest.iter().map(|word| word.value.as_str()).find(|word| !word.starts_with('-'));
    let names_program = |text: &str| {
        let address = text.rsplit('=').next().unwrap_or(text);
        let scheme = address.split_once("::").map(|(scheme, _)| scheme);
        scheme.is_some_and(|scheme| {
            scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c) || c == UNKNOWN)
        })
    };
    let is_own = [QUIET, SPEAKERS, OWN].iter().any(|list| is_listed(list, command));
    !(is_own || command.is_empty())
        || is_listed(REFUSED, command)
        || texts().any(|text| has_long(text, &LONG) && !text.starts_with("--output-indicator-"))
        || is_listed(SPEAKERS, command) && rest.iter().flat_map(ShellWord::all_texts).any(names_program)
        || match command {
            "archive" | "format-patch" => letter('o'),
            "clone" => letter('u') || letter('c') || texts().any(|text| has_long(text, &["--config"])),
            "grep" => letter('O'),
            "rebase" => letter('x'),
            "bundle" => first() == Some("create"),
            "bisect" => first().is_some_and(|word| matches!(word, "run" | "view" | "visualize")),
            "submodule" => rest.iter().any(|word| word.value == "foreach"),
            "config" => !only_tells(rest),
            "lfs" => !first().is_some_and(|word| is_listed(LFS, word)),
            _ => false,
        }
}

/// Reports whether `git config` only reads settings.
fn only_tells(rest: &[ShellWord]) -> bool {
    const ASKS: &str = "--get --get-all --get-regexp --get-urlmatch --list -l get list";
    const SHAPES: &str = "--show-origin --show-scope --name-only --global --local --system --worktree --null -z --bool --int \
        --path --includes --no-includes";
    let words: Vec<&str> = rest.iter().filter_map(ShellWord::as_literal).collect();
    let mut names = words.iter().filter(|word| !is_listed(SHAPES, word));
    let asks = words.len() == rest.len()
        && match (names.next(), names.next()) {
            // A name alone has a dot, and words that do something have none.
            (Some(name), None) => is_listed(ASKS, name) || name.contains('.') && !name.starts_with('-'),
            (Some(first), Some(_)) => is_listed(ASKS, first),
            (None, _) => false,
        };
    asks && names.all(|word| !word.starts_with('-'))
}

fn is_listed(list: &str, word: &str) -> bool {
    list.split_ascii_whitespace().any(|known| known == word)
}

#[cfg(test)]
mod tests {
    use super::{command_positions, plain_forms};

    #[test]
    fn the_command_stands_behind_options_and_their_values() {
        for (line, want) in [
            ("push x", vec![0]),
            ("-C x push", vec![2]),
            ("-c a=b --no-pager push", vec![3]),
            ("--git-dir=x push", vec![1]),
            ("--attr-source HEAD push", vec![2]),
            ("--new-option HEAD push", vec![1, 2]),
            ("-C", vec![1]),
        ] {
            let words: Vec<&str> = line.split(' ').collect();
            assert_eq!(command_positions(&words).into_iter().collect::<Vec<_>>(), want, "{line}");
        }
    }

    #[test]
    fn a_push_has_more_than_one_name() {
        let forms = |line: &str| plain_forms(&line.split(' ').map(str::to_owned).collect::<Vec<_>>());
        assert_eq!(forms("--attr-source HEAD push origin"), ["git push origin"]);
        assert_eq!(forms("send-pack x main"), ["git push x main"]);
        assert!(forms("for-each-repo --config=x -- push origin").contains(&"git push origin".to_owned()));
        assert!(forms("push origin").is_empty());
    }
}
