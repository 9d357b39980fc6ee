//! Parts of a command that no broad rule covers: words that lead out of the working folder, files that other programs obey, and the folder
//! that it runs in.
//!
//! It must not know programs by their options: a word is a path by its form, whatever precedes it.

use super::{
    awk,
    cwd::PossibleCwd,
    declarations, git,
    line::Place,
    programs::{base_name, obeys_repository},
    sed,
    word::{GLOB, ShellWord, UNKNOWN},
};
use crate::{
    narrow_path::{
        NarrowPath, NarrowReason, PathBases, braced_texts, decode_percent, joined_path, name_behind, separate_paths,
    },
    obeyed_files, path,
};

/// The most that is noted of one command. One is enough to ask.
const MOST: usize = 16;

/// Notes the parts of a command that only a rule that names them covers. `reads` says that it is known to read only.
pub(super) fn of_command(
    place: &Place,
    here: &PossibleCwd,
    assignments: &[ShellWord],
    argv: &[ShellWord],
    reads: bool,
) -> Vec<NarrowPath> {
    let Some((first, words)) = argv.split_first() else { return Vec::new() };
    let program = first.as_literal().map(base_name);
    let mut search = NarrowSearch::new(place, here);
    if !reads {
        let scripts = script_positions(program, words);
        let shows = only_shows(program, words);
        let may_change = !shows && (program != Some("git") || !git::only_records(words));
        let kept = words.iter().enumerate().filter(|(at, _)| !scripts.contains(at));
        // A word that sets how `read` cuts its words leads nowhere.
        let assigned = assignments.iter().filter(|word| declarations::assigned_name(&word.value) != "IFS");
        for (at, word) in kept.chain(assigned.map(|word| (0, word))) {
            let may_change = may_change && !leaves_out(words, at);
            for text in path_texts(word) {
                path_pieces(&text).into_iter().for_each(|piece| search.search_word(piece, may_change));
                // Git reads a colon at the beginning as the top of the working folder.
                if program != Some("git") || !text.starts_with(':') {
                    separate_paths(&text).into_iter().for_each(|piece| search.search_word(piece, may_change));
                }
            }
        }
        // Files that are unpacked or made there need no word for it.
        let gone_to: Vec<String> =
            here.possible_dirs().filter(|dir| !shows && *dir != place.cwd).map(str::to_owned).collect();
        gone_to.into_iter().for_each(|dir| search.note_obeyed(dir));
    }
    if let Some(program) = program.filter(|program| !reads || obeys_repository(program)) {
        search.note_folders(program, words);
    }
    search.found
}

/// Notes the files that a redirection into `target` would change and that other programs obey.
pub(super) fn redirected_paths(place: &Place, here: &PossibleCwd, target: &ShellWord) -> Vec<NarrowPath> {
    let mut search = NarrowSearch::new(place, here);
    for text in path_texts(target) {
        search.note_changed(&text);
    }
    search.found
}

struct NarrowSearch<'a> {
    place: &'a Place,
    here: &'a PossibleCwd,
    viewpoint: PathBases,
    found: Vec<NarrowPath>,
}

impl<'a> NarrowSearch<'a> {
    fn new(place: &'a Place, here: &'a PossibleCwd) -> Self {
        let dirs = here.possible_dirs().map(str::to_owned);
        Self { place, here, viewpoint: PathBases::new(dirs, place.home.as_deref(), &place.cwd), found: Vec::new() }
    }

    fn keep_path(&mut self, narrow: NarrowPath) {
        if self.found.len() < MOST && !self.found.contains(&narrow) {
            self.found.push(narrow);
        }
    }

    /// Looks at a piece of a word.
    fn search_word(&mut self, text: &str, may_change: bool) {
        // A file that is fetched from an address gets its name.
        if let Some(name) = name_behind(text).filter(|_| may_change) {
            self.note_changed(name);
            self.note_changed(&decode_percent(name));
        }
        // It is no path itself.
        if text.is_empty() || text.contains("://") {
            return;
        }
        if may_change {
            self.note_changed(text);
        }
        let text = &with_steps_up(text);
        let is_at_home = text.starts_with('~');
        if is_at_home && self.place.home.is_none() {
            return self.keep_path(NarrowPath::new(text.to_owned(), NarrowReason::Outside, &self.viewpoint));
        }
        if is_at_home || text.starts_with('/') || text.split('/').any(|part| part == "..") {
            let from: Vec<String> = self.here.likely_dirs().map(str::to_owned).collect();
            let working = self.place.cwd.as_str();
            let paths = PathBases::new(from, self.place.home.as_deref(), working).reached_paths(text);
            for path in paths.into_iter().filter(|path| !path::is_within(working, path) && !path::is_stream(path)) {
                self.keep_path(NarrowPath::new(path, NarrowReason::Outside, &self.viewpoint));
            }
        }
    }

    /// Looks at a path that is changed.
    fn note_changed(&mut self, text: &str) {
        self.viewpoint.reached_paths(text).into_iter().for_each(|path| self.note_obeyed(path));
    }

    fn note_obeyed(&mut self, path: String) {
        if let Some(obeyed) = obeyed_files::obeyed_part(&self.place.cwd, &path) {
            self.keep_path(NarrowPath::new(path, NarrowReason::Obeyed(obeyed), &self.viewpoint));
        }
    }

    /// Looks at the folders that `program` may run in. A program that obeys a repository's settings may run in the working folder alone,
    /// for a repository may hold another; every other program in any folder of that.
    fn note_folders(&mut self, program: &str, words: &[ShellWord]) {
        let (working, is_strict) = (self.place.cwd.as_str(), obeys_repository(program));
        let from: Vec<Option<String>> = self.here.likely_dirs().map(|dir| Some(dir.to_owned())).collect();
        let from = if self.here.is_lost() { vec![None] } else { from };
        let mut folders = if is_strict { working_folders(program, working, from, words) } else { from };
        if program == "git" {
            folders.extend(repository_folders(working, &folders, words));
        }
        let why = || NarrowReason::Folder { program: program.to_owned() };
        for folder in folders {
            match folder {
                None => self.keep_path(NarrowPath::unknown_path(why(), &self.viewpoint)),
                Some(folder) if folder == working || !is_strict && path::is_within(working, &folder) => {}
                Some(folder) => self.keep_path(NarrowPath::new(folder, why(), &self.viewpoint)),
            }
        }
        if is_strict && self.here.is_below() {
            self.keep_path(NarrowPath::unknown_path(why(), &self.viewpoint));
        }
    }
}

/// Returns the folders of the other repositories that git works in or speaks to, from the folders `from`.
fn repository_folders(working: &str, from: &[Option<String>], words: &[ShellWord]) -> Vec<Option<String>> {
    let mut found = Vec::new();
    for text in git::named_repositories(words) {
        let is_known = !text.contains([UNKNOWN, GLOB]) && !text.starts_with('~');
        let known = from.iter().map(|from| from.as_ref().filter(|_| is_known));
        found.extend(known.map(|from| follow_path(working, from?, &text)));
    }
    found.truncate(MOST);
    found
}

/// Returns the folder that a program which follows links reaches from the folder `from` by `to`. None if a step up follows a name that
/// may be a link: its target is unknown. The working folder itself counts as none.
fn follow_path(working: &str, from: &str, to: &str) -> Option<String> {
    let is_up = |part: &str| part == "..";
    let behind_name = to.split('/').skip_while(|part| is_up(part) || matches!(*part, "" | ".")).any(is_up);
    let may_be_link = !to.starts_with('/') && from != working && to.split('/').any(is_up);
    (!behind_name && !may_be_link).then(|| path::resolve(from, to))
}

/// Returns the folders to which `program`, one of version control, goes from the folders `from` by its own options. None for an unknown
/// folder.
fn working_folders(
    program: &str,
    working: &str,
    from: Vec<Option<String>>,
    words: &[ShellWord],
) -> Vec<Option<String>> {
    let values: Vec<&str> = words.iter().map(|word| word.value.as_str()).collect();
    // After git's command the letter means something else.
    let (options, end): (&[&str], usize) = match program {
        "git" => (&["-C"], git::command_positions(&values).last().copied().unwrap_or(0)),
        _ => (&["-R", "--cwd", "--repository"], words.len()),
    };
    let mut folders = from;
    for (at, text) in values.iter().enumerate().take(end) {
        let joined = options.iter().find_map(|option| text.strip_prefix(option)?.strip_prefix('='));
        let to: Vec<&str> = match joined {
            Some(value) => vec![value],
            None if options.contains(text) => {
                words.get(at + 1).map(|word| word.possible_texts().collect()).unwrap_or_default()
            }
            None => continue,
        };
        let is_known = |text: &&str| !text.contains([UNKNOWN, GLOB]) && !text.starts_with('~');
        folders = match to.iter().all(is_known) {
            true => {
                let all = |folder: &Option<String>| {
                    to.iter().map(|to| follow_path(working, folder.as_ref()?, to)).collect::<Vec<_>>()
                };
                folders.iter().flat_map(all).take(MOST).collect()
            }
            false => vec![None],
        };
    }
    folders
}

/// Reports whether `program` only shows the output of its script.
fn only_shows(program: Option<&str>, words: &[ShellWord]) -> bool {
    let is_known = || words.iter().all(|word| word.as_literal().is_some());
    match program {
        Some("sed") => sed::only_shows(&words.iter().map(ShellWord::as_literal).collect::<Vec<_>>()),
        Some("awk" | "gawk" | "mawk" | "nawk") => is_known() && !awk::does_more(words),
        Some(_) | None => false,
    }
}

/// Returns the positions among `words` of the texts that `program` reads as scripts: they are no paths.
fn script_positions(program: Option<&str>, words: &[ShellWord]) -> Vec<usize> {
    let values: Vec<&str> = words.iter().map(|word| word.value.as_str()).collect();
    match program {
        Some("sed") => sed::script_positions(&values),
        Some("awk" | "gawk" | "mawk" | "nawk") => (0..awk::behind_program(&values)).collect(),
        Some(_) | None => Vec::new(),
    }
}

/// Reports whether an option has the word at `at` name files that are left out.
fn leaves_out(words: &[ShellWord], at: usize) -> bool {
    const OPTIONS: [&str; 2] = ["--exclude", "--exclude-dir"];
    let before = at.checked_sub(1).and_then(|at| words.get(at));
    let name = words.get(at).and_then(|word| word.value.split_once('=')).map(|(name, _)| name);
    name.is_some_and(|name| OPTIONS.contains(&name))
        || before.is_some_and(|word| OPTIONS.contains(&word.value.as_str()))
}

/// Returns every text that a word may be, where it leads somewhere. Where nothing is known of what stands before a slash, that may be
/// nothing.
fn path_texts(word: &ShellWord) -> Vec<String> {
    let is_open = word.value.starts_with(UNKNOWN);
    let own = match is_open {
        // A home that is not known, or another user's.
        true if word.raw.starts_with('~') => Some(word.raw.clone()),
        // The shell holds the last word of the command before in `$_`.
        true if word.is_in_folder() || word.settled || word.names.iter().all(|name| name == "_") => None,
        true => {
            let rest = word.value.trim_start_matches(UNKNOWN);
            Some(if rest.starts_with('/') { rest.to_owned() } else { word.value.clone() })
        }
        false => Some(word.value.clone()).filter(|_| !word.settled),
    };
    let parts = |text: &String| {
        let parts = text.split_whitespace().map(str::to_owned).filter(|_| word.splits);
        std::iter::once(text.clone()).chain(parts).collect::<Vec<_>>()
    };
    own.into_iter().chain(word.perhaps.iter().flat_map(parts)).collect()
}

/// Returns `text` with those parts that a wildcard may make a way up taken for one.
fn with_steps_up(text: &str) -> String {
    let may_be =
        |part: &&str| part.starts_with('.') && part.contains(GLOB) && part.chars().all(|c| matches!(c, '.' | GLOB));
    text.split('/').map(|part| if may_be(&part) { ".." } else { part }).collect::<Vec<_>>().join("/")
}

/// Returns the parts of a word that may be a path whatever its form: all of it, the part after `=`, the part joined to the letters of
/// an option, and the parts between braces.
fn path_pieces(text: &str) -> Vec<&str> {
    let file = |text| {
        let text: &str = text;
        let text = text.trim_start_matches(['@', '<']);
        match text.strip_prefix("file://") {
            Some(rest) => rest.find('/').map_or("", |at| &rest[at..]),
            None => text,
        }
    };
    let value = text.split_once('=').filter(|(name, _)| !name.contains(char::is_whitespace)).map(|(_, value)| value);
    let behind_letter = text.strip_prefix('-').filter(|rest| !rest.starts_with('-')).and_then(|rest| rest.get(1..));
    [Some(text), value, behind_letter, joined_path(text)]
        .into_iter()
        .flatten()
        .chain(braced_texts(text))
        .map(file)
        .collect()
}
