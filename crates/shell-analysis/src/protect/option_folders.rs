//! Base folders of the paths among a command's words: options name folders that a program goes to, or puts before its paths.

use crate::{cwd::PossibleCwd, programs::base_name, word::ShellWord};

/// Long options whose value is such a folder. They may be cut short.
const FOLDERS: [&str; 6] = ["--directory", "--chdir", "--output-dir", "--prefix", "--directory-prefix", "--work-tree"];

/// The shortest that such an option may be cut to, dashes included.
const SHORTEST: usize = 4;

/// Returns `here`, with every folder that the words of `argv` may count from.
pub(super) fn with_option_folders(here: &PossibleCwd, argv: &[ShellWord]) -> PossibleCwd {
    let mut here = here.clone();
    for (_, targets) in folder_options(argv) {
        targets.iter().for_each(|target| here.change_dir(Some(target)));
    }
    here
}

/// Returns the places of the words that name such folders: they do not count from there themselves.
pub(super) fn option_positions(argv: &[ShellWord]) -> Vec<usize> {
    folder_options(argv).into_iter().map(|(at, _)| at).collect()
}

/// Returns the places of words that name folders, and what they name.
fn folder_options(argv: &[ShellWord]) -> Vec<(usize, Vec<String>)> {
    let mut options = Vec::new();
    let texts =
        |word: &ShellWord| word.all_texts().filter(|text| !text.is_empty()).map(str::to_owned).collect::<Vec<_>>();
    for (at, word) in argv.iter().enumerate() {
        let text = word.value.as_str();
        let (joined, apart) = match (text.strip_prefix("--"), text.strip_prefix('-')) {
            (Some(_), _) => {
                let (name, value) = text.split_once('=').map_or((text, None), |(name, value)| (name, Some(value)));
                let is_known = name.len() >= SHORTEST && FOLDERS.iter().any(|known| known.starts_with(name));
                (value.filter(|_| is_known), is_known && value.is_none())
            }
            (None, Some(letters)) => match letters.split_once(folder_letter(argv)) {
                Some((_, "")) => (None, true),
                Some((_, folder)) => (Some(folder), false),
                None => (None, false),
            },
            // The old-style letters of `tar`: their values follow them, one by one.
            (None, None) if at == 1 && text.contains('C') && is_tar(argv) => {
                let values = argv.iter().skip(2).take(text.len()).flat_map(texts).collect();
                options.push((usize::MAX, values));
                (None, false)
            }
            (None, None) => (None, false),
        };
        if let Some(folder) = joined.filter(|folder| !folder.is_empty()) {
            options.push((at, vec![folder.to_owned()]));
        }
        if let Some(next) = argv.get(at + 1).filter(|_| apart) {
            options.push((at + 1, texts(next)));
        }
    }
    options
}

/// Returns the letter that is followed by a folder.
fn folder_letter(argv: &[ShellWord]) -> char {
    match argv.first().and_then(ShellWord::as_literal).map(base_name) {
        Some("wget") => 'P',
        Some(program) if ["gcc", "g++", "cc", "c++", "clang", "clang++", "cpp", "as"].contains(&program) => 'I',
        Some("ld") => 'L',
        Some("unzip" | "patch") => 'd',
        Some(_) | None => 'C',
    }
}

fn is_tar(argv: &[ShellWord]) -> bool {
    argv.first().is_some_and(|program| program.value.ends_with("tar"))
}
