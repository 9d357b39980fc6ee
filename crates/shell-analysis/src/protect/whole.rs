//! Commands that read, pack, link or take away whole folders, or fill them with names that come from elsewhere, over a folder that holds
//! files of the gateway.
//!
//! It must not know what is on the disk, in an archive or at an address: whatever would do harm may be there.

use super::{counted, holds, parts, pieces, whole};
use crate::{
    git,
    here::Here,
    line::Place,
    path,
    programs::base_name,
    word::{UNKNOWN, Word},
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

/// How a command treats the folders among its words.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Takes {
    /// With all that is in them.
    Trees,
    /// Only a file that lies right in it counts: names that come from elsewhere are put there.
    Names,
    /// Makes other names for them, behind which a path leads from there on: above the working folder too.
    Links,
}

/// The path of the gateway that `argv` may read, take away or write over without naming it. The words of it count from `here`, where the
/// folders are that its options name.
pub(super) fn met(place: &Place, here: &Here, argv: &[Word], carries: bool) -> Option<String> {
    let (program, arguments) = argv.split_first()?;
    let name = base_name(&program.value);
    let takes = takes(base_name(program.as_literal()?), arguments)
        .or_else(|| (carries && LISTERS.contains(&name)).then_some(Takes::Trees))?;
    let options = counted::places(argv);
    let kept = argv.iter().enumerate().skip(1).filter(|(at, _)| !options.contains(at)).map(|(_, word)| word.clone());
    let arguments = operands(name, &kept.collect::<Vec<_>>());
    let texts = || arguments.iter().flat_map(whole).filter(|text| !text.contains(UNKNOWN));
    let lead = |text: &str| here.dirs().flat_map(|dir| here.reached(dir, text)).collect::<Vec<_>>();
    // A slash among other letters is seldom the root.
    let in_words = texts().flat_map(pieces).flat_map(lead).filter(|folder| folder != "/");
    let roots_of_all =
        texts().filter(|text| text.starts_with(['/', '.'])).flat_map(lead).filter(|folder| folder == "/");
    // What it links it names.
    let gone_to = here.dirs().filter(|dir| takes != Takes::Links && *dir != place.cwd).map(str::to_owned);
    let meets = |folder: &str, root: &String| {
        let is_there = match takes {
            Takes::Trees => holds(folder, root, here),
            Takes::Names => root.rsplit_once('/').is_some_and(|(parent, _)| {
                parts(folder).count() == parts(parent).count() && holds(folder, parent, here)
            }),
            Takes::Links => holds(folder, root, here) || holds(folder, &place.cwd, here) && folder != place.cwd,
        };
        // What lies in there leads to every folder that a process is in.
        let is_of_processes = takes != Takes::Names && path::is_within("/proc", folder);
        (is_there || is_of_processes) && !path::is_within(&place.cwd, root)
    };
    let roots = || place.protected.iter().chain(&place.unreadable);
    in_words.chain(roots_of_all).chain(gone_to).find_map(|folder| roots().find(|root| meets(&folder, root)).cloned())
}

/// The words of `arguments` that may be paths: without the pattern of a program that looks for one, and of git those behind `diff`.
fn operands(program: &str, arguments: &[Word]) -> Vec<Word> {
    if program == "git" && only_looks(arguments) {
        let behind = arguments.iter().position(|word| word.value == "diff").map_or(arguments.len(), |at| at + 1);
        return arguments[behind..].to_vec();
    }
    without_pattern(program, arguments)
}

/// `arguments` without the pattern of a program that looks for one, which is no path.
fn without_pattern(program: &str, arguments: &[Word]) -> Vec<Word> {
    let is_elsewhere = |word: &Word| {
        let says = |text: &str| ["--reg", "--fi", "--mat"].iter().any(|option| text.starts_with(option));
        let in_group = |text: &str| text.starts_with('-') && !text.starts_with("--") && text.contains(['e', 'f']);
        word.texts().any(|text| says(text) || in_group(text))
    };
    let looks = SEARCHERS.contains(&program) && !arguments.iter().any(is_elsewhere);
    let is_pattern = |word: &Word| !word.value.starts_with('-') || word.value == "-";
    let ended = arguments.iter().position(|word| word.value == "--");
    let first = arguments.iter().position(is_pattern).into_iter().chain(ended.map(|at| at + 1)).min();
    let pattern = first.filter(|_| looks);
    let kept = arguments.iter().enumerate().filter(|(at, _)| Some(*at) != pattern);
    kept.map(|(_, word)| word.clone()).collect()
}

/// What `argv` writes under longer names than it says, or others: pieces that are counted, suffixes, what an address says.
pub(super) fn lengthened(argv: &[Word]) -> Vec<Word> {
    let Some((program, arguments)) = argv.split_first() else { return Vec::new() };
    let has_suffix = || {
        let is_suffix = |text: &str| {
            text.starts_with("--s") || text.starts_with('-') && !text.starts_with("--") && text.contains('S')
        };
        arguments.iter().flat_map(Word::texts).any(is_suffix)
    };
    let longer = |text: &str| Word::said(&format!("{text}{UNKNOWN}"));
    let texts = arguments.iter().flat_map(Word::texts);
    match program.as_literal().map(base_name) {
        Some("split" | "csplit") => texts.map(longer).collect(),
        Some("cp" | "mv" | "ln" | "install") if has_suffix() => texts.map(longer).collect(),
        // What it makes of a file has its name without the ending.
        Some(program) if UNPACKERS.contains(&program) => {
            let shorter = |text: &str| text.rsplit_once('.').map(|(name, _)| Word::said(name));
            texts.filter_map(shorter).collect()
        }
        Some("curl") => {
            let numbers = ('1'..='9').map(|digit| format!("#{digit}"));
            let open =
                |text: &str| numbers.clone().fold(text.to_owned(), |text, number| text.replace(&number, "\u{10FFFE}"));
            texts.filter(|text| text.contains('#')).map(|text| Word::said(&open(text))).collect()
        }
        Some(_) | None => Vec::new(),
    }
}

/// How `program` treats them. None if it does not.
fn takes(program: &str, arguments: &[Word]) -> Option<Takes> {
    let letter = |letter: char| {
        let has = |text: &str| text.starts_with('-') && !text.starts_with("--") && text.contains(letter);
        arguments.iter().flat_map(Word::texts).any(has)
    };
    let begins = |begins: &str| arguments.iter().flat_map(Word::texts).any(|text| text.starts_with(begins));
    match program {
        "tar" | "gtar" | "bsdtar" | "rsync" | "unzip" | "7z" | "7za" | "7zr" | "cpio" | "pax" | "ar" => {
            Some(Takes::Trees)
        }
        "git" if !only_looks(arguments) => Some(Takes::Trees),
        // Outside a repository it compares what lies in folders.
        "git" if arguments.iter().any(|word| word.value == "diff") => Some(Takes::Trees),
        "grep" | "egrep" | "fgrep" | "zgrep" | "ugrep"
            if letter('r') || letter('R') || letter('d') || begins("--r") || begins("--d") =>
        {
            Some(Takes::Trees)
        }
        _ if SEARCHERS.contains(&program) && !program.ends_with("grep") || program == "rgrep" => Some(Takes::Trees),
        // Of a folder and a file it compares the file of that name.
        "diff" | "sdiff" | "colordiff" | "vimdiff" | "icdiff" => Some(Takes::Trees),
        _ if UNPACKERS.contains(&program) && (letter('r') || begins("--r")) => Some(Takes::Trees),
        "zip" if letter('r') || letter('R') || letter('@') || begins("--r") => Some(Takes::Trees),
        "chmod" | "chown" | "chgrp" | "setfacl" | "chattr" if letter('R') || begins("--r") => Some(Takes::Trees),
        // Behind the name that it makes no path can be followed any more.
        "ln" if letter('s') || begins("--s") => Some(Takes::Links),
        "mount" | "bindfs" => Some(Takes::Trees),
        // Links are copied as they are, or made.
        "cp" if "sPdLH".chars().any(letter) || begins("--s") || begins("--d") || begins("--no-d") => Some(Takes::Trees),
        "cp" | "scp" if letter('r') || letter('R') || letter('a') || begins("--r") || begins("--a") => {
            Some(Takes::Trees)
        }
        "wget" if letter('r') || letter('x') || letter('m') || begins("--") => Some(Takes::Trees),
        "zip" | "wget" | "curl" | "patch" | "split" | "csplit" => Some(Takes::Names),
        _ => None,
    }
}

/// Whether git is asked what there is, and neither takes nor puts files.
fn only_looks(arguments: &[Word]) -> bool {
    const LOOKS: &str = "status log diff show shortlog rev-parse rev-list ls-files ls-tree cat-file merge-base blame describe branch remote tag \
        config fetch";
    let values: Vec<&str> = arguments.iter().map(|word| word.value.as_str()).collect();
    let looks =
        |at: &usize| values.get(*at).is_some_and(|word| LOOKS.split_ascii_whitespace().any(|known| known == *word));
    git::commands(&values).iter().all(looks)
}
