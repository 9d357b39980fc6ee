//! Options by which harmless programs run another program, or write to an unseen place.
//!
//! It must not know rules. It reads options as the programs do: long ones may be cut short, short ones may stand together.

mod known;
mod operands;

use self::known::KNOWN;
pub(super) use self::operands::{leaves_database, sqlite_runs_more};
use super::{
    awk, git,
    option_words::{count_operands, has_only, is_option, may_be_option},
    programs::{is_interpreter, is_opaque_wrapper, is_reader},
    sed,
    word::ShellWord,
};

/// Reports whether options of `program` are known.
pub(super) fn has_known_options(program: &str) -> bool {
    KNOWN.iter().any(|known| known.programs.contains(&program))
}

/// Options that mean the same for any program.
const ANYWHERE: [&str; 15] = [
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
];

/// Reports whether one of `arguments` makes `program` run or write something else, in any spelling, or may.
pub(super) fn run_something(program: &str, arguments: &[ShellWord]) -> bool {
    let program = known_as(program);
    let before = &arguments[..options_end(program, arguments)];
    let options = || before.iter().flat_map(ShellWord::all_texts);
    let texts = || arguments.iter().flat_map(ShellWord::all_texts);
    if means_anywhere(program, before) {
        return true;
    }
    let own = KNOWN.iter().find(|options| options.programs.contains(&program));
    if own.is_some_and(|own| hide_options(program, before) || options().any(|text| own.matches_option(text))) {
        return true;
    }
    let begins = |prefixes: &[&str]| texts().any(|text| prefixes.iter().any(|option| text.starts_with(option)));
    match program {
        "git" => git::runs_something(arguments, before.len()),
        "tar" | "gtar" | "bsdtar" => operands::tar_runs_more(before),
        "awk" | "gawk" | "mawk" | "nawk" => awk::does_more(arguments),
        "sed" => !sed::only_edits(&arguments.iter().map(ShellWord::as_literal).collect::<Vec<_>>()),
        // Of a pager and of what shows pages in one most options can name a program or a file.
        "less" | "more" => texts().any(|text| !operands::only_pages(text)),
        "man" => texts().any(|text| !has_only(text, "afkwK")),
        "make" | "gmake" => operands::make_runs_more(arguments),
        "gcc" | "g++" | "cc" | "c++" | "clang" | "clang++" => begins(&["@"]) || texts().any(operands::links_with_more),
        "ld" | "ld.bfd" | "ld.gold" | "ld.lld" | "ar" | "nm" | "as" => begins(&["@"]),
        "uniq" | "xxd" => operands::count_written_operands(program, arguments) > 1,
        "tree" => options().any(|text| is_option(text, "oR", "--output")),
        "file" => options().any(|text| is_option(text, "C", "--compile")),
        "psql" | "mysql" | "mariadb" => texts().any(operands::leaves_database),
        "cmake" => begins(&["-E", "-P", "-C"]),
        "npm" | "pnpm" | "yarn" => operands::of_npm(&texts().collect::<Vec<_>>()),
        "go" => operands::of_go(&texts().collect::<Vec<_>>()),
        "gh" => {
            texts().next().is_some_and(|word| matches!(word, "alias" | "extension" | "extensions" | "ext" | "config"))
        }
        "rustc" => operands::rustc_links_more(arguments),
        "sqlite3" => texts().any(operands::sqlite_runs_more),
        // Two letters are one option, in a group too.
        "zip" => options().any(|text| text.starts_with('-') && text.contains("TT")),
        "find" => begins(&["-delete", "-fprint", "-fls", "-files0-from"]),
        "vi" | "vim" | "nvim" | "ex" | "emacs" | "ed" | "view" => true,
        "printf" => begins(&["-v"]) || arguments.first().is_some_and(operands::may_name_variable),
        "test" | "[" => operands::names_variable(arguments),
        "let" => true,
        "declare" | "typeset" | "local" | "readonly" | "export" | "read" | "wait" | "unset" | "getopts" => {
            operands::computes_index(program, arguments)
        }
        _ => false,
    }
}

/// Returns the name under which a program is known that goes by others too: compilers with their versions, and for other machines.
fn known_as(program: &str) -> &str {
    const AS_GCC: [&str; 8] = ["c89", "c99", "cpp", "gfortran", "f77", "f95", "gnat", "gdc"];
    const AS_LD: [&str; 3] = ["ld.bfd", "ld.gold", "ld.lld"];
    const TOOLS: &str = "gcc g++ cc c++ clang clang++ gcc-ar gcc-nm gcc-ranlib ld ar nm as strip objcopy objdump";
    let unversioned = program.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    let unversioned = unversioned.strip_suffix('-').unwrap_or(program);
    // The machine stands before it, in several parts.
    let mut tails = std::iter::successors(Some(unversioned), |name| name.split_once('-').map(|(_, tail)| tail));
    let known = |name: &str| match name {
        _ if AS_GCC.contains(&name) => Some("gcc"),
        _ if AS_LD.contains(&name) => Some("ld"),
        _ => TOOLS.split_ascii_whitespace().find(|known| *known == name),
    };
    tails.find_map(known).unwrap_or(program)
}

/// Returns the number of `arguments` before a `--` that ends the options. After an option it may be that one's value.
fn options_end(program: &str, arguments: &[ShellWord]) -> usize {
    let is_sure = |before: &ShellWord| {
        before.as_literal().is_some_and(|word| match program {
            "cargo" | "npm" | "pnpm" | "yarn" => true,
            "git" => !word.starts_with('-') || GIT_ALONE.split_ascii_whitespace().any(|known| known == word),
            _ => !word.starts_with('-'),
        })
    };
    // After letters without a dash `tar` takes the next word for a value, whatever it is.
    let knows_none = matches!(
        program,
        "find"
            | "go"
            | "make"
            | "gmake"
            | "gcc"
            | "g++"
            | "cc"
            | "c++"
            | "clang"
            | "clang++"
            | "tar"
            | "gtar"
            | "bsdtar"
    );
    let ends = |at: &usize| {
        arguments[*at].as_literal() == Some("--") && at.checked_sub(1).is_none_or(|before| is_sure(&arguments[before]))
    };
    (0..arguments.len()).find(|at| !knows_none && ends(at)).unwrap_or(arguments.len())
}

/// Options of git's commands that take no value.
const GIT_ALONE: &str = "--oneline --stat --name-only --name-status --numstat --shortstat --cached --staged --quiet -q -p \
    --patch --all --graph --reverse --no-merges -w";

/// Reports whether one of `words` is an option of any program. Programs that only read are known well enough, and the words after the name
/// of a script are the script's own.
fn means_anywhere(program: &str, words: &[ShellWord]) -> bool {
    let runs_program = is_opaque_wrapper(program) || matches!(program, "npx" | "bunx" | "uvx" | "pipx");
    let is_script = is_interpreter(program) && !runs_program;
    let own = words.iter().take_while(|word| !is_script || word.value.starts_with('-'));
    !is_reader(program)
        && own.flat_map(ShellWord::all_texts).any(|text| ANYWHERE.iter().any(|option| text.starts_with(option)))
}

/// Reports whether one of `words` may turn out to be a hidden option.
fn hide_options(program: &str, words: &[ShellWord]) -> bool {
    if program == "git" { git::hide_options(words) } else { words.iter().any(ShellWord::may_hide_options) }
}

/// Reports whether `program` with `arguments` only reads.
pub(super) fn only_reads(program: &str, arguments: &[&str]) -> bool {
    let git = || {
        let sub = arguments.iter().find(|word| !word.starts_with('-')).copied();
        sub.is_some_and(|sub| {
            matches!(sub, "status" | "log" | "diff" | "show" | "rev-parse" | "ls-files" | "blame" | "describe")
        })
    };
    // The text that it has another program read may be anything.
    let hands_on = || program == "rg" && arguments.iter().any(|word| word.starts_with("--pre"));
    (is_reader(program) || program == "git" && git()) && !may_write(program, arguments) && !hands_on()
}

/// Reports whether `arguments` make a program that reads write a file, or may.
pub(super) fn may_write(program: &str, arguments: &[&str]) -> bool {
    let option = |letter: &str, name: &str| {
        may_be_option(arguments) || arguments.iter().any(|word| is_option(word, letter, name))
    };
    let begins =
        |prefixes: &[&str]| arguments.iter().any(|word| prefixes.iter().any(|option| word.starts_with(option)));
    match program {
        "sort" => option("o", "--output"),
        // `-R` writes a page into each folder.
        "tree" => option("oR", "--output"),
        "less" | "more" => option("oO", "--log-file") || option("oO", "--LOG-FILE"),
        "uniq" => count_operands(arguments) > 1,
        "xxd" => count_operands(arguments) > 1 || option("r", "-revert"),
        "file" => option("C", "--compile"),
        "git" => option("", "--output"),
        "find" => may_be_option(arguments) || begins(&["-delete", "-exec", "-ok", "-fprint", "-fls"]),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::run_something;
    use crate::word::{KnownVariables, scan_word};

    fn runs(line: &str) -> bool {
        let known = KnownVariables { home: Some("/home/ana"), cwd: Some("/w"), tried: &[] };
        let words: Vec<_> = line.split(' ').map(|word| scan_word(word, known)).collect();
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
            "gcc-12 -wrapper evil x.c",
            "x86_64-linux-gnu-gcc-13 -fplugin=evil x.c",
            "clang++-17 -B evil x.cc",
            "c99 -wrapper evil x.c",
            "cpp -fplugin=evil x.c",
            "gcc -Wp,-fplugin=evil x.c",
            "x86_64-linux-gnu-cpp-12 -B./ x.c",
            "gcc-ar -B./ x",
            "x86_64-linux-gnu-gcc-nm-12 -B./ x",
            "x86_64-linux-gnu-ld.gold --plugin evil x.o",
            "x86_64-linux-gnu-objdump --plugin=evil x.o",
            "f95 -wrapper evil x.f",
            "x86_64-linux-gnu-ld -plugin evil x.o",
            "sqlite3 x.db select(EDIT(x))",
            "sqlite3 x.db select([edit](x))",
            "sqlite3 x.db fsdir",
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
            "gcc-12 -O2 -o x x.c",
            "g++ -std=c++20 -Wall x.cc",
            "sqlite3 x.db select.credit",
            "sqlite3 x.db select.edit",
            "gcc -Wl,--as-needed -Wp,-D_FORTIFY_SOURCE=2 x.c",
            "gcc -Wp,-MD,x.d -c x.c",
            "gcc -Wa,--noexecstack -c x.S",
            "echo --exec",
        ] {
            assert!(!runs(line), "{line}");
        }
    }
}
