//! Commands that read, pack, link or take away whole folders, or fill them with names that come from elsewhere, over a folder that holds
//! files of the gateway.
//!
//! It must not know the state of the disk, of an archive or of an address: the most harmful content is assumed.

use super::{argument_pieces, holds_root, option_folders, path_parts, word_texts};
use crate::{
    cwd::PossibleCwd,
    git,
    line::Place,
    path,
    programs::base_name,
    word::{ShellWord, UNKNOWN},
};

/// Programs that name what lies in a folder, for another command of the line to use.
const LISTERS: [&str; 9] = ["find", "fd", "fdfind", "ls", "tree", "du", "rg", "grep", "dir"];

/// Programs that show what matches a pattern.
const SEARCHERS: [&str; 10] = ["grep", "egrep", "fgrep", "zgrep", "rgrep", "rg", "ag", "ack", "ug", "ugrep"];

/// Programs that put what they unpack where the packed file lies.
const UNPACKERS: [&str; 15] = [
    "gunzip",
    "gzip",
    "bunzip2",
    "bzip2",
    "unxz",
    "xz",
    "unlzma",
    "lzma",
    "unzstd",
    "zstd",
    "unlz4",
    "lz4",
    "uncompress",
    "lzip",
    "pigz",
];

/// Treatment of the folders among the words of a command.
#[derive(Clone, Copy, PartialEq, Eq)]
enum FolderUse {
    /// With all that is in them.
    Trees,
    /// Only a file that lies right in it counts: names that come from elsewhere are put there.
    Names,
    /// Makes other names for them, from which a path continues: above the working folder too.
    Links,
}

/// Returns the path of the gateway that `argv` may read, take away or write over without naming it. The words of it count from `here`,
/// where the folders are that its options name.
pub(super) fn affected_path(place: &Place, here: &PossibleCwd, argv: &[ShellWord], carries: bool) -> Option<String> {
    let (program, arguments) = argv.split_first()?;
    let name = base_name(&program.value);
    let takes = folder_use(base_name(program.as_literal()?), arguments)
        .or_else(|| (carries && LISTERS.contains(&name)).then_some(FolderUse::Trees))?;
    let options = option_folders::option_positions(argv);
    let kept = argv.iter().enumerate().skip(1).filter(|(at, _)| !options.contains(at)).map(|(_, word)| word.clone());
    let arguments = path_operands(name, &kept.collect::<Vec<_>>());
    let texts = || arguments.iter().flat_map(word_texts).filter(|text| !text.contains(UNKNOWN));
    let lead = |text: &str| here.possible_dirs().flat_map(|dir| here.reached_paths(dir, text)).collect::<Vec<_>>();
    // A slash among other letters is seldom the root.
    let in_words = texts().flat_map(argument_pieces).flat_map(lead).filter(|folder| folder != "/");
    let roots_of_all =
        texts().filter(|text| text.starts_with(['/', '.'])).flat_map(lead).filter(|folder| folder == "/");
    // A linked file gets its name.
    let gone_to = here.possible_dirs().filter(|dir| takes != FolderUse::Links && *dir != place.cwd).map(str::to_owned);
    let meets = |folder: &str, root: &String| {
        let is_there = match takes {
            FolderUse::Trees => holds_root(folder, root, here),
            FolderUse::Names => root.rsplit_once('/').is_some_and(|(parent, _)| {
                path_parts(folder).count() == path_parts(parent).count() && holds_root(folder, parent, here)
            }),
            FolderUse::Links => {
                holds_root(folder, root, here) || holds_root(folder, &place.cwd, here) && folder != place.cwd
            }
        };
        // The files in there lead to every folder that a process is in.
        let is_of_processes = takes != FolderUse::Names && path::is_within("/proc", folder);
        (is_there || is_of_processes) && !path::is_within(&place.cwd, root)
    };
    let roots = || place.protected.iter().chain(&place.unreadable);
    in_words.chain(roots_of_all).chain(gone_to).find_map(|folder| roots().find(|root| meets(&folder, root)).cloned())
}

/// Returns the words of `arguments` that may be paths: without the pattern of a search program, and of git those after `diff`.
fn path_operands(program: &str, arguments: &[ShellWord]) -> Vec<ShellWord> {
    if program == "git" && only_looks(arguments) {
        let behind = arguments.iter().position(|word| word.value == "diff").map_or(arguments.len(), |at| at + 1);
        return arguments[behind..].to_vec();
    }
    without_pattern(program, arguments)
}

/// Returns `arguments` without the pattern of a program that looks for one, which is no path.
fn without_pattern(program: &str, arguments: &[ShellWord]) -> Vec<ShellWord> {
    let is_elsewhere = |word: &ShellWord| {
        let says = |text: &str| ["--reg", "--fi", "--mat"].iter().any(|option| text.starts_with(option));
        let in_group = |text: &str| text.starts_with('-') && !text.starts_with("--") && text.contains(['e', 'f']);
        word.all_texts().any(|text| says(text) || in_group(text))
    };
    let looks = SEARCHERS.contains(&program) && !arguments.iter().any(is_elsewhere);
    let is_pattern = |word: &ShellWord| !word.value.starts_with('-') || word.value == "-";
    let ended = arguments.iter().position(|word| word.value == "--");
    let first = arguments.iter().position(is_pattern).into_iter().chain(ended.map(|at| at + 1)).min();
    let pattern = first.filter(|_| looks);
    let kept = arguments.iter().enumerate().filter(|(at, _)| Some(*at) != pattern);
    kept.map(|(_, word)| word.clone()).collect()
}

/// Returns the names that `argv` writes beyond its words: counted pieces, suffixes, names from an address.
pub(super) fn lengthened_words(argv: &[ShellWord]) -> Vec<ShellWord> {
    let Some((program, arguments)) = argv.split_first() else { return Vec::new() };
    let has_suffix = || {
        let is_suffix = |text: &str| {
            text.starts_with("--s") || text.starts_with('-') && !text.starts_with("--") && text.contains('S')
        };
        arguments.iter().flat_map(ShellWord::all_texts).any(is_suffix)
    };
    let longer = |text: &str| ShellWord::from_text(&format!("{text}{UNKNOWN}"));
    let texts = arguments.iter().flat_map(ShellWord::all_texts);
    match program.as_literal().map(base_name) {
        Some("split" | "csplit") => texts.map(longer).collect(),
        Some("cp" | "mv" | "ln" | "install") if has_suffix() => texts.map(longer).collect(),
        // Its output for a file has its name without the ending.
        Some(program) if UNPACKERS.contains(&program) => {
            let shorter = |text: &str| text.rsplit_once('.').map(|(name, _)| ShellWord::from_text(name));
            texts.filter_map(shorter).collect()
        }
        Some("curl") => {
            let numbers = ('1'..='9').map(|digit| format!("#{digit}"));
            let open =
                |text: &str| numbers.clone().fold(text.to_owned(), |text, number| text.replace(&number, "\u{10FFFE}"));
            texts.filter(|text| text.contains('#')).map(|text| ShellWord::from_text(&open(text))).collect()
        }
        Some(_) | None => Vec::new(),
    }
}

/// Returns the treatment of folders by `program`. None if it does not treat them.
fn folder_use(program: &str, arguments: &[ShellWord]) -> Option<FolderUse> {
    let letter = |letter: char| {
        let has = |text: &str| text.starts_with('-') && !text.starts_with("--") && text.contains(letter);
        arguments.iter().flat_map(ShellWord::all_texts).any(has)
    };
    let begins = |begins: &str| arguments.iter().flat_map(ShellWord::all_texts).any(|text| text.starts_with(begins));
    match program {
        "tar" | "gtar" | "bsdtar" | "rsync" | "unzip" | "7z" | "7za" | "7zr" | "cpio" | "pax" | "ar" => {
            Some(FolderUse::Trees)
        }
        "git" if !only_looks(arguments) => Some(FolderUse::Trees),
        // Outside a repository it compares what lies in folders.
        "git" if arguments.iter().any(|word| word.value == "diff") => Some(FolderUse::Trees),
        "grep" | "egrep" | "fgrep" | "zgrep" | "ugrep"
            if letter('r') || letter('R') || letter('d') || begins("--r") || begins("--d") =>
        {
            Some(FolderUse::Trees)
        }
        _ if SEARCHERS.contains(&program) && !program.ends_with("grep") || program == "rgrep" => Some(FolderUse::Trees),
        // Of a folder and a file it compares the file of that name.
        "diff" | "sdiff" | "colordiff" | "vimdiff" | "icdiff" => Some(FolderUse::Trees),
        _ if UNPACKERS.contains(&program) && (letter('r') || begins("--r")) => Some(FolderUse::Trees),
        "zip" if letter('r') || letter('R') || letter('@') || begins("--r") => Some(FolderUse::Trees),
        "chmod" | "chown" | "chgrp" | "setfacl" | "chattr" if letter('R') || begins("--r") => Some(FolderUse::Trees),
        // After the name that it makes no path can be followed any more.
        "ln" if letter('s') || begins("--s") => Some(FolderUse::Links),
        "mount" | "bindfs" => Some(FolderUse::Trees),
        // Links are copied as they are, or made.
        "cp" if "sPdLH".chars().any(letter) || begins("--s") || begins("--d") || begins("--no-d") => {
            Some(FolderUse::Trees)
        }
        "cp" | "scp" if letter('r') || letter('R') || letter('a') || begins("--r") || begins("--a") => {
            Some(FolderUse::Trees)
        }
        "wget" if letter('r') || letter('x') || letter('m') || begins("--") => Some(FolderUse::Trees),
        "zip" | "wget" | "curl" | "patch" | "split" | "csplit" => Some(FolderUse::Names),
        _ => None,
    }
}

/// Reports whether a command of git only lists, and neither takes nor puts files.
fn only_looks(arguments: &[ShellWord]) -> bool {
    const LOOKS: &str = "status log diff show shortlog rev-parse rev-list ls-files ls-tree cat-file merge-base blame describe branch remote tag \
        config fetch";
    let values: Vec<&str> = arguments.iter().map(|word| word.value.as_str()).collect();
    let looks =
        |at: &usize| values.get(*at).is_some_and(|word| LOOKS.split_ascii_whitespace().any(|known| known == *word));
    git::command_positions(&values).iter().all(looks)
}
