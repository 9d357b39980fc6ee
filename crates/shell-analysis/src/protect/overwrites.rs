//! Folders of the gateway's own files that a command puts others in the place of, by naming a folder above them as where they go.
//!
//! It must not know the state of the disk: a copied folder is assumed to hold the most harmful files.

use super::{holds_root, matches_into, path_parts};
use crate::{
    cwd::PossibleCwd,
    line::Place,
    path,
    path_globs::matches_part,
    programs::base_name,
    word::{GLOB, ShellWord, UNKNOWN},
};

/// Programs that put what they are given into a folder, under its own name.
const PROGRAMS: [&str; 6] = ["cp", "mv", "rsync", "install", "ln", "scp"];

/// Returns the path of the gateway that a copy or a move of whole folders may write over.
///
/// If the line `carries` words from one command to another, a folder that is only known when it runs may be any.
pub(super) fn overwritten_path(place: &Place, here: &PossibleCwd, argv: &[ShellWord], carries: bool) -> Option<String> {
    let (program, arguments) = argv.split_first()?;
    if !PROGRAMS.contains(&base_name(&program.value)) {
        return None;
    }
    let most = arguments.iter().map(|word| word.perhaps.len()).max().unwrap_or(0);
    let tried = |at: Option<usize>| -> Vec<String> {
        let one = |word: &ShellWord| at.and_then(|at| word.perhaps.get(at)).unwrap_or(&word.value).clone();
        arguments.iter().map(one).collect()
    };
    let mut ways = std::iter::once(None).chain((0..most).map(Some)).map(tried);
    ways.find_map(|words| of_words(place, here, base_name(&program.value), &words, carries))
}

fn of_words(place: &Place, here: &PossibleCwd, program: &str, words: &[String], carries: bool) -> Option<String> {
    let given = CopyArguments::parse_words(words, program);
    let takes_folders = match program {
        "cp" | "rsync" => given.is_recursive || given.keeps_paths,
        "mv" => true,
        _ => false,
    };
    let is_open = |into: &str| into.contains(UNKNOWN) || into.contains(GLOB);
    if carries && given.into.is_none_or(is_open) {
        let own = |root: &&String| root.rsplit('/').next().unwrap_or_default().to_owned();
        let is_named = |source: &&&str, root: &&String| {
            target_name(source).is_some_and(|name| matches_part(name, &own(root), here.hidden_names()))
        };
        let mut roots =
            place.protected.iter().filter(|root| given.sources.iter().any(|source| is_named(&source, root)));
        if let Some(root) = roots.next() {
            return Some(root.clone());
        }
    }
    // A file that is linked alone gets its name in the current folder.
    let into = given.into.or_else(|| (program == "ln" && given.sources.len() == 1).then_some("."))?;
    let at_home =
        into.strip_prefix('~').filter(|rest| rest.is_empty() || rest.starts_with('/')).zip(place.home.as_ref());
    let into = at_home.map_or_else(|| into.to_owned(), |(rest, home)| format!("{home}{rest}"));
    let of_folder = |into: String| {
        let holds_only = |source: &str| given.is_onto || (program == "rsync" && source.ends_with('/'));
        let mut written =
            given.sources.iter().map(|source| match target_name(source).filter(|_| !holds_only(source)) {
                Some(_) if given.keeps_paths => path::resolve(&into, source.trim_start_matches('/')),
                Some(name) => path::resolve(&into, name),
                // The content of the folder goes there itself.
                None => into.clone(),
            });
        let meets = |target: &str, root: &str| {
            takes_folders && holds_root(target, root, here) || given.keeps_paths && matches_into(target, root, here)
        };
        // A file that goes into a folder has its own name there, or an unknown one with a suffix.
        let is_named = |source: &str, root: &str| {
            let Some((folder, own)) = root.rsplit_once('/') else { return false };
            let is_there = path_parts(&into).count() == path_parts(folder).count() && holds_root(&into, folder, here);
            is_there
                && !given.is_onto
                && target_name(source).is_none_or(|name| matches_part(name, own, here.hidden_names()))
        };
        let mut sources = given.sources.iter().filter(|_| program != "rsync" || !given.is_onto);
        let named = sources.find_map(|source| place.protected.iter().find(|root| is_named(source, root)));
        if let Some(root) = named {
            return Some(root.clone());
        }
        written.find_map(|target| place.protected.iter().find(|root| meets(&target, root)).cloned())
    };
    here.possible_dirs().flat_map(|dir| here.reached_paths(dir, &into)).find_map(of_folder)
}

struct CopyArguments<'a> {
    into: Option<&'a str>,
    sources: Vec<&'a str>,
    is_recursive: bool,
    /// The target is what is made, not where it is put.
    is_onto: bool,
    /// The folders of a source's own path are made in the target.
    keeps_paths: bool,
}

impl<'a> CopyArguments<'a> {
    fn parse_words(arguments: &'a [String], program: &str) -> Self {
        // True if `-t` takes a folder, and the letter of the option that keeps paths.
        let (takes_target, keeps) = if program == "rsync" { (false, 'R') } else { (true, '\0') };
        let mut given =
            Self { into: None, sources: Vec::new(), is_recursive: false, is_onto: false, keeps_paths: false };
        let mut words = arguments.iter().map(String::as_str);
        let mut is_over = false;
        while let Some(word) = words.next() {
            match word {
                _ if is_over || !word.starts_with('-') => given.sources.push(word),
                "--" => is_over = true,
                _ if word.starts_with("--") => {
                    let (name, value) = word.split_once('=').map_or((word, None), |(name, value)| (name, Some(value)));
                    if takes_target && name.len() > 2 && "--target-directory".starts_with(name) {
                        given.into = value.or_else(|| words.next());
                    }
                    given.is_recursive |= ["--r", "--a"].iter().any(|begins| word.starts_with(begins));
                    given.is_onto |= word.starts_with("--no-t");
                    given.keeps_paths |= word.starts_with("--pa") || word.starts_with("--rel");
                }
                _ => {
                    // The text after `S` is a suffix.
                    let group = word.split_once('S').filter(|_| takes_target).map_or(word, |(letters, _)| letters);
                    let (letters, folder) = match group.find('t').filter(|_| takes_target) {
                        Some(at) if at + 1 < word.len() => (&group[..at], Some(&word[at + 1..])),
                        Some(at) => (&group[..at], words.next()),
                        None => (group, None),
                    };
                    given.into = given.into.or(folder);
                    given.is_recursive |= letters.contains(['r', 'R', 'a']);
                    given.is_onto |= letters.contains('T');
                    given.keeps_paths |= letters.contains(keeps);
                }
            }
        }
        if given.into.is_none() && given.sources.len() > 1 {
            given.into = given.sources.pop();
        }
        given
    }
}

/// Returns the name under which a source arrives. `None` if it is what the source holds that arrives, or that is not known.
fn target_name(source: &str) -> Option<&str> {
    let source = source.trim_end_matches('/');
    let name = source.rsplit(['/', ':']).next().unwrap_or(source);
    (!matches!(name, "" | "." | "..") && !name.contains(UNKNOWN)).then_some(name)
}
