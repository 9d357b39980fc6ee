//! Options by which programs that do no harm run another program, or write where nobody sees it.
//!
//! It must not know rules. It reads options as the programs do: long ones may be cut short, short ones may stand together.

use super::{
    sed,
    word::{UNKNOWN, Word},
};

/// What of a program's options runs or writes something else.
struct Options {
    programs: &'static [&'static str],
    /// Long ones, without their value.
    long: &'static [&'static str],
    /// Letters, alone or among others behind one dash.
    letters: &'static str,
    /// Words that anywhere among the arguments mean it.
    words: &'static [&'static str],
}

const NONE: Options = Options { programs: &[], long: &[], letters: "", words: &[] };

/// Programs of which options are known. Nothing that stands for an option of theirs may hide.
const KNOWN: &[Options] = &[
    Options {
        programs: &["git"],
        long: &[
            "--config-env",
            "--exec-path",
            "--git-dir",
            "--work-tree",
            "--paginate",
            "--upload-pack",
            "--receive-pack",
            "--exec",
            "--ext-diff",
            "--textconv",
            "--open-files-in-pager",
            "--template",
            "--extcmd",
            "--output",
        ],
        // `-u` and `-p` of its commands mean other things, and are looked at below.
        letters: "cOx",
        words: &["filter-branch", "difftool", "mergetool", "bisect", "foreach", "daemon", "instaweb", "config"],
    },
    Options {
        programs: &["tar", "bsdtar", "gtar"],
        long: &[
            "--to-command",
            "--checkpoint-action",
            "--use-compress-program",
            "--rsh-command",
            "--rmt-command",
            "--info-script",
            "--new-volume-script",
            // Names in the file that begin with a dash are options.
            "--files-from",
        ],
        letters: "IFT",
        words: &[],
    },
    Options { programs: &["sort"], long: &["--compress-program", "--output"], letters: "o", words: &[] },
    Options { programs: &["split"], long: &["--filter"], letters: "", words: &[] },
    Options { programs: &["rg"], long: &["--pre", "--hostname-bin"], letters: "", words: &[] },
    Options {
        programs: &["rsync"],
        long: &["--rsh", "--rsync-path", "--daemon", "--config", "--remote-option"],
        letters: "eM",
        words: &[],
    },
    Options { programs: &["scp", "sftp"], long: &[], letters: "SoFD", words: &[] },
    Options { programs: &["zip"], long: &["--unzip-command"], letters: "", words: &["-TT"] },
    Options { programs: &["wget"], long: &["--use-askpass", "--execute", "--config"], letters: "e", words: &[] },
    Options { programs: &["curl"], long: &["--config"], letters: "K", words: &[] },
    Options { programs: &["apt", "apt-get"], long: &["--option", "--config-file"], letters: "oc", words: &[] },
    Options { programs: &["cargo"], long: &["--config"], letters: "", words: &[] },
    Options {
        programs: &["npm", "pnpm", "yarn"],
        long: &["--script-shell", "--shell", "--node-options", "--userconfig", "--globalconfig"],
        letters: "",
        words: &[],
    },
    Options {
        programs: &["go"],
        long: &["-toolexec", "-vettool", "-exec", "--toolexec", "--vettool", "--exec"],
        ..NONE
    },
    Options {
        programs: &["gcc", "g++", "cc", "c++", "clang", "clang++"],
        long: &["-wrapper", "-fplugin", "-specs", "--specs", "-B/", "-B."],
        letters: "",
        words: &["-B"],
    },
    Options { programs: &["make", "gmake"], long: &["--eval"], letters: "E", words: &[] },
    Options { programs: &["awk", "gawk", "mawk", "nawk", "sed", "less", "more", "man"], ..NONE },
];

/// What any program may mean by it.
const ANYWHERE: [&str; 16] = [
    "--to-command",
    "--checkpoint-action",
    "--use-compress-program",
    "--compress-program",
    "--rsh",
    "--pager",
    "--pre=",
    "--upload-pack",
    "--receive-pack",
    "--ext-diff",
    "--open-files-in-pager",
    "--exec",
    "--textconv",
    "--info-script",
    "--new-volume-script",
    "--run",
];

/// True if `program` is told to run or write something else by one of `arguments`, in any spelling, or may be.
pub(super) fn run_something(program: &str, arguments: &[Word]) -> bool {
    let texts = || arguments.iter().flat_map(Word::texts);
    let any = |wanted: &[&str]| texts().any(|text| wanted.iter().any(|option| text.starts_with(option)));
    if program != "echo" && program != "printf" && any(&ANYWHERE) {
        return true;
    }
    let own = KNOWN.iter().find(|options| options.programs.contains(&program));
    if let Some(own) = own
        && (arguments.iter().any(Word::may_hide_options) || texts().any(|text| own.has(text)))
    {
        return true;
    }
    let is_old_style =
        |letters: &str| arguments.first().is_some_and(|word| word.value.contains(|c| letters.contains(c)));
    match program {
        "git" => {
            let has = |wanted: &str| texts().any(|text| text == wanted);
            // `ext::` and its kin run what follows.
            texts().any(|text| text.contains("::"))
                || has("clone") && texts().any(|text| has_letter(text, 'u'))
                || pages(arguments)
        }
        // What has no dash can be the letters of old.
        "tar" | "gtar" | "bsdtar" => {
            arguments.first().is_some_and(|word| !word.value.starts_with('-')) && is_old_style("IFT")
        }
        "awk" | "gawk" | "mawk" | "nawk" => texts().any(|text| {
            let is_option = text.starts_with('-') && text.len() > 1;
            is_option && !text.starts_with("-F") && !text.starts_with("-v")
                || ["system", "|", ">", "getline", "@"].iter().any(|sign| text.contains(sign))
        }),
        "sed" => !sed::only_edits(&arguments.iter().map(Word::as_literal).collect::<Vec<_>>()),
        // Of a pager and of what shows pages in one most options can name a program or a file.
        "less" | "more" => texts().any(|text| !has_only(text, "NRSFXniIeEMmsqQwWgG")),
        "man" => texts().any(|text| !has_only(text, "afkwK")),
        "make" | "gmake" => any(&["SHELL="]),
        "find" => any(&["-delete", "-fprint", "-fls", "-files0-from"]),
        "vi" | "vim" | "nvim" | "ex" | "emacs" | "ed" | "view" => true,
        "printf" => any(&["-v"]),
        // The index of an array is computed, and computing runs commands.
        "test" | "[" => texts().any(|text| matches!(text, "-v" | "-R")),
        "let" => true,
        "declare" | "typeset" | "local" | "readonly" | "export" | "read" | "wait" | "unset" | "getopts" => {
            let declares = matches!(program, "declare" | "typeset" | "local");
            let computes =
                |text: &str| declares && (has_letter(text, 'i') || has_letter(text, 'n')) || text.contains('[');
            arguments.iter().any(|word| word.raw.contains('[') || word.texts().any(computes))
        }
        _ => false,
    }
}

/// Whether git is told before its command, where `-p` means that, to have a pager run.
fn pages(arguments: &[Word]) -> bool {
    let mut words = arguments.iter().map(|word| word.value.as_str());
    while let Some(word) = words.next().filter(|word| word.starts_with('-')) {
        match word {
            "-p" => return true,
            "-C" | "-c" | "--git-dir" | "--work-tree" | "--namespace" | "--exec-path" | "--config-env" => {
                let _value = words.next();
            }
            _ => {}
        }
    }
    false
}

impl Options {
    fn has(&self, text: &str) -> bool {
        let long = text.split(['=', UNKNOWN]).next().unwrap_or(text);
        let is_open = text.starts_with('-') && text.contains(UNKNOWN) && !text.contains('=');
        // What is cut short must still say more than its dashes and a letter, unless nobody knows how it goes on.
        let says = long.len() > 3 || is_open;
        let is_long = says && self.long.iter().any(|known| text.starts_with(known) || known.starts_with(long));
        let is_letters = is_open && !text.starts_with("--") && !self.letters.is_empty();
        is_long
            || is_letters
            || self.letters.chars().any(|letter| has_letter(text, letter))
            || self.words.contains(&text)
    }
}

/// Whether `letter` stands among those behind one dash, or behind another letter as its value.
fn has_letter(text: &str, letter: char) -> bool {
    text.strip_prefix('-').is_some_and(|letters| !letters.starts_with('-') && letters.contains(letter))
}

/// Whether `text` is no option, or one of these letters alone.
fn has_only(text: &str, letters: &str) -> bool {
    if text.starts_with('+') {
        return false;
    }
    text.strip_prefix('-').is_none_or(|given| given.chars().all(|c| c.is_ascii_digit() || letters.contains(c)))
}

/// True if a program that reads is told to write a file by `arguments`, or may be.
pub(super) fn may_write(program: &str, arguments: &[&str]) -> bool {
    let option = |letter: &str, name: &str| {
        may_be_option(arguments) || arguments.iter().any(|word| is_option(word, letter, name))
    };
    let begins = |wanted: &[&str]| arguments.iter().any(|word| wanted.iter().any(|option| word.starts_with(option)));
    match program {
        "sort" => option("o", "--output"),
        // `-R` writes a page into each folder.
        "tree" => option("oR", "--output"),
        "less" | "more" => option("oO", "--log-file") || option("oO", "--LOG-FILE"),
        "uniq" => operands(arguments) > 1,
        "xxd" => operands(arguments) > 1 || option("r", "-revert"),
        "file" => option("C", "--compile"),
        "git" => option("", "--output"),
        "find" => may_be_option(arguments) || begins(&["-delete", "-exec", "-ok", "-fprint", "-fls"]),
        _ => false,
    }
}

/// True if `word` is a group of short options with one of `letters`, or the long option `name`, perhaps cut short.
pub(super) fn is_option(word: &str, letters: &str, name: &str) -> bool {
    match word.strip_prefix("--") {
        Some("") | None => is_short(word, letters) || (word.len() > 3 && word.starts_with(name)),
        Some(_) => name.starts_with(word.split('=').next().unwrap_or(word)),
    }
}

/// True if `word` is a group of short options with one of `letters`.
pub(super) fn is_short(word: &str, letters: &str) -> bool {
    letters.chars().any(|letter| has_letter(word, letter))
}

/// True if a word may turn out to be an option.
pub(super) fn may_be_option(arguments: &[&str]) -> bool {
    arguments.iter().any(|word| word.starts_with(UNKNOWN))
}

/// How many words are no options.
pub(super) fn operands(arguments: &[&str]) -> usize {
    arguments.iter().filter(|word| !word.starts_with('-') || **word == "-").count()
}

#[cfg(test)]
mod tests {
    use super::run_something;
    use crate::policy::shell::word::{Known, scan};

    fn runs(line: &str) -> bool {
        let known = Known { home: Some("/home/ana"), cwd: Some("/w"), tried: &[] };
        let words: Vec<_> = line.split(' ').map(|word| scan(word, known)).collect();
        run_something(words[0].as_literal().unwrap(), &words[1..])
    }

    #[test]
    fn an_option_that_runs_something_is_known_in_every_spelling() {
        for line in [
            "sort --compress-prog=evil -S 1k x",
            "sort -uo out x",
            "tar cf o.tar --checkpoint=1 --checkpoint-act=exec=evil x",
            "tar cf o.tar --use-compress-pro=evil x",
            "tar -cvIevil -f o.tar x",
            "tar cIf evil o.tar x",
            "tar xf o.tar --to-comm=evil",
            "tar czf o.tar -T names",
            "git grep --open=evil x",
            "git grep -nOevil x",
            "git clone -u evil . c",
            "git clone --upload-pa=evil . c",
            "git ls-remote --exe=evil .",
            "git fetch --upload-pa=evil .",
            "git push --receive-pa=evil . x",
            "git -p log",
            "git -C x -p log",
            "git config alias.x !evil",
            "git clone ext::evil c",
            "split --filter=evil x",
            "awk -We e.awk",
            "awk -E e.awk",
            "sed s_.*_evil_e x",
            "rsync -avze evil a b",
            "rg --hostname-bin=evil x",
            "less -kkeys x",
            "man -Hevil x",
            "printf -va[$(evil)] x",
            "test -v a[1]",
            "test a -ef b -o -v x",
            "declare -i x=y",
            "read a[1]",
            "cargo build --config=build.rustc-wrapper",
            "go test -exec evil",
            "sort $X",
            "tar cf o.tar *",
            "git ${X:--p} log",
            "tar cf o.tar \"--checkpoint-act$X\" x",
            "sort \"-$X\" x",
        ] {
            assert!(runs(line), "{line}");
        }
    }

    #[test]
    fn what_runs_nothing_else_is_left_alone() {
        for line in [
            "sort -u x",
            "sort --unique --reverse x",
            "tar czf o.tar src",
            "tar -xzf o.tar -C out",
            "git status --short",
            "git commit -m mend",
            "git add src/*.rs",
            "git log --oneline -n 5",
            "git clone a b",
            "git push -u origin main",
            "git diff --exit-code",
            "awk -F: -v x=1 {print} x",
            "sed -n 1,20p x",
            "rg -n pattern src",
            "less -R x",
            "man -k words",
            "test -f x",
            "test -n \"$X\"",
            "cargo test --all",
            "export A=b",
            "split -l 10 x",
            "echo --exec",
        ] {
            assert!(!runs(line), "{line}");
        }
    }
}
