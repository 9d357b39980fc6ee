//! The gateway's own files: which words of a command lead there.

mod addresses;
mod option_folders;
mod overwrites;
mod whole_folders;

use std::collections::BTreeSet;

use super::{
    cwd::PossibleCwd,
    dataflow,
    line::{LineAnalysis, Place},
    path_aliases::{AliasTarget, MOST_WAYS},
    path_globs::matches_part,
    programs::base_name,
    word::{GLOB, ShellWord, UNKNOWN},
};
use crate::{narrow_path::braced_texts, path};

/// Maximum number of letters in a group of options that are looked at.
const MOST_LETTERS: usize = 16;

/// Relation of a text to a path of the gateway. A later one is stronger than an earlier.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum PathMatch {
    /// In a folder that is not known, a wildcard may match its name.
    Alike(String),
    /// Only a name in it is the same.
    Namesake(String),
    /// It names a folder above, and what follows is only known when the line runs.
    Above(String),
    /// The same, and it goes on with the beginning of the right name.
    Begun(String),
    /// It leads there.
    Surely(String),
}

/// Notes what the arguments of a command that may write would change.
pub(super) fn note_written(line: &mut LineAnalysis, place: &Place, here: &PossibleCwd, argv: &[ShellWord]) {
    match find_match(
        place,
        &option_folders::with_option_folders(here, argv),
        &place.protected,
        argv.get(1..).unwrap_or_default(),
    ) {
        Some(PathMatch::Surely(path)) => line.note_protected(path),
        Some(PathMatch::Begun(path) | PathMatch::Namesake(path)) => line.note_floor(may_change(&path)),
        Some(PathMatch::Above(path)) => note_above(line, place, &path, may_change(&path)),
        Some(PathMatch::Alike(path)) => line.note_opaque(format!("a path that {}", may_change(&path))),
        None => {}
    }
    if let Some(path) = overwrites::overwritten_path(place, here, argv, line.signs.carries) {
        line.note_floor(may_change(&path));
    }
}

/// Notes what the arguments of any command, or assignments, would give away.
pub(super) fn note_read(line: &mut LineAnalysis, place: &Place, here: &PossibleCwd, words: &[ShellWord]) {
    note_open(line, place, words);
    match find_match(place, &option_folders::with_option_folders(here, words), &place.unreadable, words) {
        Some(PathMatch::Surely(path)) => line.note_unreadable(path),
        Some(PathMatch::Begun(path)) => line.note_floor(may_read(&path)),
        Some(PathMatch::Namesake(path) | PathMatch::Alike(path)) => {
            line.note_opaque(format!("a path that {}", may_read(&path)));
        }
        Some(PathMatch::Above(path)) => note_above(line, place, &path, may_read(&path)),
        None => {}
    }
}

/// Notes what `words` say where another command of the line may use that as a path, or as a part of one.
pub(super) fn note_carried(line: &mut LineAnalysis, place: &Place, here: &PossibleCwd, words: &[ShellWord]) {
    if !line.signs.carries {
        return;
    }
    let texts: Vec<String> = words.iter().flat_map(dataflow::readable_texts).collect();
    let leads =
        |roots: &[String]| match find_in(place, here, roots, texts.iter().flat_map(|text| argument_pieces(text))) {
            Some(PathMatch::Surely(path) | PathMatch::Begun(path)) => Some(path),
            // Only what a backslash or a percent sign says is not known here: other words are looked at where they are used.
            Some(PathMatch::Namesake(path) | PathMatch::Above(path))
                if !words.iter().any(|word| word.value.contains(UNKNOWN)) =>
            {
                Some(path).filter(|path| !path::is_within(&place.cwd, path))
            }
            Some(PathMatch::Above(_) | PathMatch::Namesake(_) | PathMatch::Alike(_)) | None => None,
        };
    // Joined to another folder it leads there from that one.
    let climbs = |root: &&String| {
        let is_begun = |name: &str| root.rsplit('/').next().is_some_and(|own| name != ".." && own.starts_with(name));
        texts.iter().any(|text| text.contains("..") && path_parts(text).last().is_some_and(is_begun))
    };
    let climbing = || place.protected.iter().chain(&place.unreadable).find(climbs).cloned();
    if let Some(path) = leads(&place.protected).or_else(|| leads(&place.unreadable)).or_else(climbing) {
        line.note_opaque(format!("a word that another command may take for {path}, which belongs to the gateway"));
    }
}

/// Notes the folders among words that are printed for another command to use: it may append a name to them.
pub(super) fn note_output_words(line: &mut LineAnalysis, place: &Place, here: &PossibleCwd, words: &[ShellWord]) {
    note_carried(line, place, here, words);
    if !line.signs.carries {
        return;
    }
    let all: Vec<String> = words.iter().flat_map(dataflow::readable_texts).collect();
    let has_roots = !place.protected.is_empty() || !place.unreadable.is_empty();
    // Several of them make a way up, and with a slash before it a name leads from the root.
    let is_step = |text: &String| text == "/" || text.contains("..") && text.chars().all(|c| matches!(c, '.' | '/'));
    let is_outside = |text: &String| {
        text.contains("..") || text.starts_with('/') && !path::is_within(&place.cwd, &path::resolve("/", text))
    };
    let says = all.iter().any(|text| !text.starts_with(UNKNOWN));
    if has_roots
        && (all.iter().any(is_step) || line.signs.rewrites && all.iter().any(is_outside) || line.signs.decodes && says)
    {
        line.note_opaque("a piece of a path that another command may go on from");
    }
    let texts: Vec<String> = all.into_iter().filter(|text| !text.contains([UNKNOWN, GLOB])).collect();
    let roots = || place.protected.iter().chain(&place.unreadable).filter(|root| !path::is_within(&place.cwd, root));
    let above = texts.iter().flat_map(|text| here.possible_dirs().map(move |dir| path::resolve(dir, text))).find_map(
        |folder| {
            let holds = |root: &&String| folder != "/" && folder != place.cwd && path::is_within(&folder, root);
            roots().find(holds).cloned()
        },
    );
    if let Some(path) = above {
        line.note_opaque(format!(
            "a folder that another command may go on from to {path}, which belongs to the gateway"
        ));
    }
}

/// Notes paths with only a known beginning that leads out of the working folder, if words of the line may be the rest.
fn note_open(line: &mut LineAnalysis, place: &Place, words: &[ShellWord]) {
    let has_roots = !place.protected.is_empty() || !place.unreadable.is_empty();
    if !line.signs.carries || !has_roots {
        return;
    }
    let leads_out = |text: &str| {
        let Some((known, _)) = text.split_once(UNKNOWN) else { return false };
        // After dots a slash may follow. A text that begins with a slash and continues is a pattern or an address as often as a path.
        matches!(known.rsplit('/').next(), Some("." | ".."))
            || known.starts_with('/') && known.trim_start_matches(['/', '.']).is_empty()
    };
    if words.iter().flat_map(word_texts).any(leads_out) {
        line.note_opaque("a path out of the working folder that is only known when the line runs");
    }
}

/// Notes that a command takes whole folders away, or fills them with names that come from elsewhere, where files of the gateway lie.
pub(super) fn note_whole(line: &mut LineAnalysis, place: &Place, here: &PossibleCwd, argv: &[ShellWord]) {
    let here = option_folders::with_option_folders(here, argv);
    let longer = match find_match(place, &here, &place.protected, &whole_folders::lengthened_words(argv)) {
        Some(PathMatch::Surely(path) | PathMatch::Begun(path)) => Some(path),
        Some(PathMatch::Above(path) | PathMatch::Namesake(path)) => {
            Some(path).filter(|path| !path::is_within(&place.cwd, path))
        }
        Some(PathMatch::Alike(_)) | None => None,
    };
    note_addresses(line, place, argv);
    note_behind_links(line, place, argv);
    if let Some(path) = longer.or_else(|| whole_folders::affected_path(place, &here, argv, line.signs.carries)) {
        line.note_opaque(format!("a command over a folder that holds {path}, which belongs to the gateway"));
    }
}

/// Notes addresses of which `curl` makes others, or takes them for files.
fn note_addresses(line: &mut LineAnalysis, place: &Place, argv: &[ShellWord]) {
    let has_roots = !place.protected.is_empty() || !place.unreadable.is_empty();
    let is_curl = argv.first().is_some_and(|program| base_name(&program.value) == "curl");
    if !is_curl || !has_roots {
        return;
    }
    // The words after these are no address.
    const VALUED: &str = "-d --data --data-raw --data-binary --data-urlencode --json -F --form --form-string -w --write-out -H --header -A -e -b -u";
    let is_value = |at: usize| VALUED.split_ascii_whitespace().any(|option| argv[at - 1].value == option);
    let names_parts = argv.iter().any(|word| word.value.contains('#'));
    let is_web = |text: &str| text.starts_with("http://") || text.starts_with("https://");
    let mut texts = (1..argv.len()).filter(|at| !is_value(*at)).flat_map(|at| argv[at].all_texts());
    let is_open = |text: &str| {
        let is_joined = VALUED.split_ascii_whitespace().any(|option| match text.strip_prefix(option) {
            Some(value) => !option.starts_with("--") || value.starts_with('='),
            None => false,
        });
        let is_known = (is_web(text) || is_joined) && !names_parts;
        let puts_together = ["--proto-d", "--variable", "--expand"].iter().any(|option| text.starts_with(option));
        puts_together || !is_known && addresses::may_lead_anywhere(text)
    };
    if texts.any(is_open) {
        line.note_opaque("an address that curl makes others of");
    }
}

/// Notes paths that go up in a line that makes links: the folder above the target of a link is unknown.
fn note_behind_links(line: &mut LineAnalysis, place: &Place, argv: &[ShellWord]) {
    let Some((program, arguments)) = argv.split_first().filter(|_| line.signs.links) else { return };
    // From a known folder, the shell goes up as its text says; after a link, and from there, the target is unknown.
    let is_plain = !line.signs.goes || base_name(&program.value) == "cd";
    let goes_up = |text: &str| match is_plain {
        true => path_parts(text).skip_while(|part| *part == "..").any(|part| part == ".."),
        false => path_parts(text).any(|part| part == ".."),
    };
    let has_roots = !place.protected.is_empty() || !place.unreadable.is_empty();
    if has_roots && base_name(&program.value) != "ln" && arguments.iter().flat_map(word_texts).any(goes_up) {
        line.note_opaque("a path that goes up, in a line that makes links");
    }
}

/// Notes a path of which only a folder above is known. In the working folder such paths are common.
fn note_above(line: &mut LineAnalysis, place: &Place, path: &str, what: String) {
    if !path::is_within(&place.cwd, path) {
        line.note_opaque(format!("a path that {what}"));
    }
}

/// Notes what a redirection into `target` would change.
pub(super) fn note_redirected_into(line: &mut LineAnalysis, place: &Place, here: &PossibleCwd, target: &ShellWord) {
    match find_in(place, here, &place.protected, word_texts(target)) {
        // In the working folder names that are only known later are common, and a person can tell.
        Some(PathMatch::Above(path)) if path::is_within(&place.cwd, &path) => line.note_floor(may_change(&path)),
        Some(PathMatch::Surely(path) | PathMatch::Begun(path) | PathMatch::Above(path)) => line.note_protected(path),
        Some(PathMatch::Namesake(path) | PathMatch::Alike(path)) => line.note_floor(may_change(&path)),
        None => {}
    }
}

/// Notes what a redirection from `target` would give away.
pub(super) fn note_redirected_from(line: &mut LineAnalysis, place: &Place, here: &PossibleCwd, target: &ShellWord) {
    // After the descriptor of a folder paths continue.
    let is_above =
        |folder: &String| place.unreadable.iter().chain(&place.protected).any(|root| path::is_within(folder, root));
    if word_texts(target)
        .flat_map(|text| here.possible_dirs().flat_map(move |dir| here.reached_paths(dir, text)))
        .any(|folder| is_above(&folder))
    {
        line.note_opaque("a redirection from a folder that holds files of the gateway");
    }
    match find_in(place, here, &place.unreadable, word_texts(target)) {
        Some(PathMatch::Surely(path) | PathMatch::Begun(path)) => line.note_unreadable(path),
        Some(PathMatch::Above(path)) => line.note_floor(may_read(&path)),
        Some(PathMatch::Namesake(path) | PathMatch::Alike(path)) => {
            line.note_opaque(format!("a path that {}", may_read(&path)));
        }
        None => {}
    }
}

/// Notes that a command which `find` runs may come across files of the gateway: `find` sees hidden names, a wildcard does not.
///
/// A program that only reads gives away keys and rules. In the working folder such files are named by commands that mean them.
pub(super) fn note_come_across(
    line: &mut LineAnalysis,
    place: &Place,
    here: &PossibleCwd,
    start: &str,
    does_more: bool,
) {
    let changed = place.protected.iter().filter(|_| does_more);
    let read = place.unreadable.iter().filter(|root| !path::is_within(&place.cwd, root));
    let roots: Vec<&String> = changed.chain(read).collect();
    let is_of_processes = |start: &str| path::is_within("/proc", start);
    let meets = |start: &str| roots.iter().any(|root| holds_root(start, root, here) || is_of_processes(start));
    if here.possible_dirs().flat_map(|dir| here.reached_paths(dir, start)).any(|start| meets(&start)) {
        line.note_opaque("a find that may hand files of the gateway to what it runs");
    }
}

/// Reports whether `text` surely leads to a protected path.
pub(super) fn leads_to_protected(place: &Place, here: &PossibleCwd, text: &str) -> bool {
    matches!(match_text(place, here, &place.protected, text), Some(PathMatch::Surely(_)))
}

fn may_change(path: &str) -> String {
    format!("may change {path}, which belongs to the gateway")
}

fn may_read(path: &str) -> String {
    format!("may read {path}, where keys and rules of the gateway lie")
}

fn find_match(place: &Place, here: &PossibleCwd, roots: &[String], words: &[ShellWord]) -> Option<PathMatch> {
    if roots.is_empty() {
        return None;
    }
    let addressed: Vec<String> = words.iter().flat_map(word_texts).filter_map(addresses::file_path).collect();
    // An address is a path even where nothing is known of it.
    let is_any = |path: &String| path.trim_start_matches('/').starts_with(UNKNOWN);
    let any = addressed.iter().any(is_any).then(|| PathMatch::Above(roots[0].clone()));
    let addressed = addressed.iter().map(String::as_str);
    let found = find_in(
        place,
        here,
        roots,
        words.iter().flat_map(|word| word_texts(word).flat_map(argument_pieces)).chain(addressed),
    );
    found.max(any)
}

fn find_in<'a>(
    place: &Place,
    here: &PossibleCwd,
    roots: &[String],
    texts: impl Iterator<Item = &'a str>,
) -> Option<PathMatch> {
    texts.filter_map(|text| match_text(place, here, roots, text)).max()
}

/// Returns every text that a word may stand for.
fn word_texts(word: &ShellWord) -> impl Iterator<Item = &str> {
    // The value of a variable is split at white space where it is not quoted.
    std::iter::once(word.value.as_str())
        .chain(word.perhaps.iter().flat_map(|text| std::iter::once(text.as_str()).chain(text.split_whitespace())))
}

/// Returns how many additional ways a word is read whose end is only known when the line runs: each letter of a group may be the option
/// whose value the rest is.
pub(super) fn ways_to_read(text: &str) -> usize {
    let letters = text.strip_prefix('-').filter(|rest| rest.contains([UNKNOWN, GLOB])).unwrap_or_default();
    letters.chars().take(MOST_LETTERS).take_while(char::is_ascii_alphanumeric).count()
}

/// Returns the parts of an argument that may be a path: `--out=x`, `-ox`, `@x`, `a:x`, `file://x`, `%output{x}`.
fn argument_pieces(text: &str) -> impl Iterator<Item = &str> {
    let option = text.strip_prefix('-');
    let behind_slash = option.and_then(|rest| rest.find('/').map(|at| &rest[at..]));
    // Each letter of a group may be the one whose value the rest is.
    let letters =
        option.map_or(0, |rest| rest.chars().take(MOST_LETTERS).take_while(char::is_ascii_alphanumeric).count());
    let behind_letters = (1..=letters).filter_map(move |at| option.and_then(|rest| rest.get(at..)));
    const SIGNS: [char; 7] = ['=', '@', ':', ',', '<', ';', '"'];
    let cut = text.contains(SIGNS).then(|| text.split(SIGNS));
    let behind_equals = text.split_once('=').map(|(_, rest)| rest);
    [Some(text), behind_slash, behind_equals]
        .into_iter()
        .flatten()
        .chain(behind_letters)
        .chain(cut.into_iter().flatten())
        .chain(braced_texts(text))
        .filter(|piece| !piece.is_empty())
}

/// Returns the way in which `text` leads to one of `roots`, the surest of all.
fn match_text(place: &Place, here: &PossibleCwd, roots: &[String], text: &str) -> Option<PathMatch> {
    if roots.is_empty() || text.is_empty() || !may_lead(here, roots, text) {
        return None;
    }
    // The shell expands `~` after an equals sign too.
    let at_home = text.strip_prefix("~/").zip(place.home.as_ref()).map(|(rest, home)| format!("{home}/{rest}"));
    let mut best = None;
    let mut seen = BTreeSet::new();
    let mut left = vec![at_home.unwrap_or_else(|| text.to_owned())];
    while let Some(text) = left.pop() {
        if seen.contains(&text) {
            continue;
        }
        let ways: Vec<AliasTarget> = here.possible_dirs().filter_map(|dir| here.alias_target(dir, &text)).collect();
        if ways.contains(&AliasTarget::Anywhere) || seen.len() > MOST_WAYS {
            let root = roots.iter().find(|root| !path::is_within(&place.cwd, root)).unwrap_or(&roots[0]);
            return Some(PathMatch::Above(root.clone()));
        }
        match ways.is_empty() {
            true => best = best.max(found_at(here, roots, &text)),
            false => left.extend(ways.iter().filter_map(AliasTarget::known_path).map(str::to_owned)),
        }
        seen.insert(text);
    }
    best
}

/// Returns the same of a text that goes no roundabout way.
fn found_at(here: &PossibleCwd, roots: &[String], text: &str) -> Option<PathMatch> {
    let cut = text.split_once(UNKNOWN);
    // An unknown variable may be empty.
    let without = text.replace(UNKNOWN, "");
    let mut best = None;
    // From the root it is the same path wherever the shell is.
    let is_same = text.starts_with('/');
    for dir in here.possible_dirs().take(if is_same { 1 } else { usize::MAX }) {
        // Once for all roots, of which there are many.
        let target = path::resolve(dir, if cut.is_some() { &without } else { text });
        let beginning = cut.map(|(known, _)| PathBeginning::from_known(dir, known));
        // It may be no more than the slash at the root.
        let from_root = text.starts_with(UNKNOWN).then(|| path::resolve("/", &without));
        for root in roots {
            let found = match &beginning {
                None => matches_into(&target, root, here).then(|| PathMatch::Surely(root.clone())),
                Some(beginning) => {
                    let leads = !without.is_empty()
                        && (matches_into(&target, root, here)
                            || from_root.as_ref().is_some_and(|target| matches_into(target, root, here)));
                    beginning.leads_to(root, here).max(leads.then(|| PathMatch::Begun(root.clone())))
                }
            };
            best = best.max(found);
        }
    }
    // In an unknown folder the parts of the path after it show at least that it may be ours.
    let rest = match cut {
        Some((_, rest)) => rest,
        None if here.is_unknown() && !text.starts_with('/') => text,
        None => "",
    };
    let name = |root: &String| root.rsplit('/').next().map(str::to_owned);
    let same = |root: &&String| name(root).is_some_and(|name| path_parts(rest).any(|part| part == name));
    let alike = |root: &&String| {
        name(root).is_some_and(|name| path_parts(rest).any(|part| matches_part(part, &name, here.hidden_names())))
    };
    best.or_else(|| roots.iter().find(same).map(|root| PathMatch::Namesake(root.clone()))).or_else(|| {
        roots
            .iter()
            .find(alike)
            .filter(|_| cut.is_none() || rest.contains(".."))
            .map(|root| PathMatch::Alike(root.clone()))
    })
}

/// Reports whether a text needs a closer look. Most are plain names, which lead to a root only if they hold its own, or if the shell may be
/// in it.
fn may_lead(here: &PossibleCwd, roots: &[String], text: &str) -> bool {
    text.starts_with(['/', '~'])
        || text.contains([UNKNOWN, GLOB])
        || text.contains("..")
        || roots.iter().any(|root| root.rsplit('/').next().is_some_and(|name| text.contains(name)))
        || here.possible_dirs().any(|dir| roots.iter().any(|root| path::is_within(root, dir)))
}

/// Known part of a path whose end is not: a folder, and the beginning of a name in it.
struct PathBeginning<'t> {
    is_empty: bool,
    folder: String,
    begun: &'t str,
    /// The folder above, if the name may continue after dots with a slash.
    above: Option<String>,
}

impl<'t> PathBeginning<'t> {
    fn from_known(dir: &str, known: &'t str) -> Self {
        let cut = known.rfind('/').map_or(0, |at| at + 1);
        let (folder, begun) = (path::resolve(dir, &known[..cut]), &known[cut..]);
        let above = (begun == "..").then(|| path::resolve(&folder, begun));
        Self { is_empty: known.is_empty(), folder, begun, above }
    }

    /// Returns the way in which it leads to `root`.
    fn leads_to(&self, root: &str, here: &PossibleCwd) -> Option<PathMatch> {
        if self.is_empty {
            return None;
        }
        if matches_into(&self.folder, root, here) {
            return Some(PathMatch::Surely(root.to_owned()));
        }
        let next_below = |folder: &str| {
            let mut root_parts = path_parts(root);
            let is_above = path_parts(folder).all(|part| {
                root_parts.next().is_some_and(|expected| matches_part(part, expected, here.hidden_names()))
            });
            root_parts.next().filter(|_| is_above)
        };
        if self.above.as_ref().is_some_and(|above| next_below(above).is_some()) {
            return Some(PathMatch::Above(root.to_owned()));
        }
        let next = next_below(&self.folder)?;
        match self.begun {
            // A text that begins with a slash and is unknown after it is a pattern or an address as often as a path.
            "" if self.folder == "/" => None,
            "" => Some(PathMatch::Above(root.to_owned())),
            begun => matches_part(&format!("{begun}{GLOB}"), next, here.hidden_names())
                .then(|| PathMatch::Begun(root.to_owned())),
        }
    }
}

/// Reports whether a path, perhaps with wildcards, can lead to `root` or into it.
fn matches_into(target: &str, root: &str, here: &PossibleCwd) -> bool {
    let mut given = path_parts(target);
    path_parts(root).all(|expected| given.next().is_some_and(|part| matches_part(part, expected, here.hidden_names())))
}

/// Reports whether a path, perhaps with wildcards, is `root` or a folder above it.
fn holds_root(target: &str, root: &str, here: &PossibleCwd) -> bool {
    let mut root_parts = path_parts(root);
    path_parts(target)
        .all(|part| root_parts.next().is_some_and(|expected| matches_part(part, expected, here.hidden_names())))
}

fn path_parts(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter(|part| !part.is_empty())
}

#[cfg(test)]
mod tests;
