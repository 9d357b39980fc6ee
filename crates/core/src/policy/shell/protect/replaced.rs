//! Folders of the gateway's own files that a command puts others in the place of, by naming a folder above them as where they go.
//!
//! It must not know what is on the disk: what a folder holds that is copied is whatever would do harm.

use super::{matches_part, parts};
use crate::policy::{
    path,
    shell::{
        here::Here,
        line::Place,
        programs::base_name,
        word::{UNKNOWN, Word},
    },
};

/// The path of the gateway that a copy or a move of whole folders may write over.
pub(super) fn replaced(place: &Place, here: &Here, argv: &[Word]) -> Option<String> {
    let (program, arguments) = argv.split_first()?;
    let program = base_name(&program.value);
    let given = Given::read(arguments, program != "rsync");
    let takes_folders = match program {
        "cp" | "rsync" => given.is_recursive,
        "mv" => true,
        _ => false,
    };
    let into = given.into.filter(|_| takes_folders)?;
    let at_home =
        into.strip_prefix('~').filter(|rest| rest.is_empty() || rest.starts_with('/')).zip(place.home.as_ref());
    let into = at_home.map_or_else(|| into.to_owned(), |(rest, home)| format!("{home}{rest}"));
    let of_dir = |dir: &str| {
        let into = path::resolve(dir, &into);
        let holds_only = |source: &str| given.is_onto || (program == "rsync" && source.ends_with('/'));
        let mut written = given.sources.iter().map(|source| match name(source).filter(|_| !holds_only(source)) {
            Some(name) => path::resolve(&into, name),
            // What the folder holds goes there itself.
            None => into.clone(),
        });
        written.find_map(|target| place.protected.iter().find(|root| holds(&target, root, here)).cloned())
    };
    here.dirs().find_map(of_dir)
}

struct Given<'a> {
    into: Option<&'a str>,
    sources: Vec<&'a str>,
    is_recursive: bool,
    /// The target is what is made, not where it is put.
    is_onto: bool,
}

impl<'a> Given<'a> {
    /// `takes_target` says whether `-t` has a folder behind it.
    fn read(arguments: &'a [Word], takes_target: bool) -> Self {
        let mut given = Self { into: None, sources: Vec::new(), is_recursive: false, is_onto: false };
        let mut words = arguments.iter().map(|word| word.value.as_str());
        let mut is_over = false;
        while let Some(word) = words.next() {
            match word {
                _ if is_over || !word.starts_with('-') => given.sources.push(word),
                "--" => is_over = true,
                "--target-directory" => given.into = words.next(),
                _ if word.starts_with("--") => {
                    if let Some(folder) = word.strip_prefix("--target-directory=") {
                        given.into = Some(folder);
                    }
                    given.is_recursive |= ["--r", "--a"].iter().any(|begins| word.starts_with(begins));
                    given.is_onto |= word.starts_with("--no-t");
                }
                _ => {
                    let (letters, folder) = match word.split_once('t').filter(|_| takes_target) {
                        Some((letters, "")) => (letters, words.next()),
                        Some((letters, folder)) => (letters, Some(folder)),
                        None => (word, None),
                    };
                    given.into = given.into.or(folder);
                    given.is_recursive |= letters.contains(['r', 'R', 'a']);
                    given.is_onto |= letters.contains('T');
                }
            }
        }
        if given.into.is_none() && given.sources.len() > 1 {
            given.into = given.sources.pop();
        }
        given
    }
}

/// The name under which a source arrives. `None` if it is what the source holds that arrives, or that is not known.
fn name(source: &str) -> Option<&str> {
    let source = source.trim_end_matches('/');
    let name = source.rsplit('/').next().unwrap_or(source);
    (!matches!(name, "" | "." | "..") && !name.contains(UNKNOWN)).then_some(name)
}

/// Whether a path, perhaps with wildcards, is `root` or a folder above it.
fn holds(target: &str, root: &str, here: &Here) -> bool {
    let mut wanted = parts(root);
    parts(target).all(|part| wanted.next().is_some_and(|wanted| matches_part(part, wanted, here)))
}
