//! Where the paths among a command's words count from: options name folders that a program goes to, or puts before its paths.

use crate::policy::shell::{here::Here, programs::base_name, word::Word};

/// Long options whose value is such a folder. They may be cut short.
const FOLDERS: [&str; 6] = ["--directory", "--chdir", "--output-dir", "--prefix", "--directory-prefix", "--work-tree"];

/// The shortest that such an option may be cut to, dashes included.
const SHORTEST: usize = 4;

/// `here`, with every folder that the words of `argv` may count from.
pub(super) fn from(here: &Here, argv: &[Word]) -> Here {
    let mut here = here.clone();
    for (at, word) in argv.iter().enumerate() {
        let text = word.value.as_str();
        let next = || argv.get(at + 1);
        let (joined, apart): (Option<&str>, Vec<&Word>) = match (text.strip_prefix("--"), text.strip_prefix('-')) {
            (Some(_), _) => {
                let (name, value) = text.split_once('=').map_or((text, None), |(name, value)| (name, Some(value)));
                let is_known = name.len() >= SHORTEST && FOLDERS.iter().any(|known| known.starts_with(name));
                match (is_known, value) {
                    (true, None) => (None, next().into_iter().collect()),
                    (true, value) => (value, Vec::new()),
                    (false, _) => (None, Vec::new()),
                }
            }
            (None, Some(letters)) => match letters.split_once(folder_letter(argv)) {
                Some((_, "")) => (None, next().into_iter().collect()),
                Some((_, folder)) => (Some(folder), Vec::new()),
                None => (None, Vec::new()),
            },
            // The letters of old of `tar`: their values stand behind them, one by one.
            (None, None) if at == 1 && text.contains('C') && is_tar(argv) => {
                (None, argv.iter().skip(2).take(text.len()).collect())
            }
            (None, None) => (None, Vec::new()),
        };
        let targets = joined.into_iter().chain(apart.iter().flat_map(|word| word.texts()));
        targets.filter(|target| !target.is_empty()).for_each(|target| here.go(Some(target)));
    }
    here
}

/// The letter behind which a folder stands.
fn folder_letter(argv: &[Word]) -> char {
    match argv.first().and_then(Word::as_literal).map(base_name) {
        Some("wget") => 'P',
        Some("unzip" | "patch") => 'd',
        Some(_) | None => 'C',
    }
}

fn is_tar(argv: &[Word]) -> bool {
    argv.first().is_some_and(|program| program.value.ends_with("tar"))
}
