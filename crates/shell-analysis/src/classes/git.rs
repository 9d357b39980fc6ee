//! The classes of git's commands.

use crate::{action_class::ActionClass as Class, git, word::UNKNOWN};

/// Commands that only read, unless an option writes.
const READERS: &str = "status log diff show rev-parse rev-list ls-files ls-remote ls-tree for-each-ref describe cat-file \
    blame shortlog whatchanged grep var version help merge-base name-rev count-objects check-ignore";

/// Returns the class of `git` with `arguments`: the worst, where more than one of them may be its command.
pub(super) fn git_class(arguments: &[&str]) -> Class {
    git::command_positions(arguments)
        .into_iter()
        .map(|at| of_command(arguments, at))
        .max()
        .unwrap_or(Class::BashReadonly)
}

fn of_command(arguments: &[&str], at: usize) -> Class {
    // A setting on the line can be a program to run.
    let configured = arguments[..at].iter().any(|word| {
        let begins = ["--config-env", "--exec-path=", "--git-dir", "--work-tree"];
        matches!(*word, "-c" | "-p" | "--paginate") || begins.iter().any(|option| word.starts_with(option))
    });
    let Some((sub, rest)) = arguments[at..].split_first() else { return Class::BashReadonly };
    if sub.contains(UNKNOWN) {
        return Class::BashDestructive;
    }
    let class = subcommand_class(sub, rest);
    if configured { class.max(Class::BashMutating) } else { class }
}

fn subcommand_class(sub: &str, rest: &[&str]) -> Class {
    let has = |any_of: &[&str]| rest.iter().any(|word| any_of.contains(word));
    let long = |option: &str| rest.iter().any(|word| is_long(word, option));
    let short = |letter: char| rest.iter().any(|word| is_short(word, letter));
    let unknown = rest.iter().any(|word| word.starts_with(UNKNOWN));
    let when = |worse: bool, class: Class| if worse { class } else { Class::BashMutating };
    match sub {
        "push" => {
            let refs = rest.iter().any(|word| word.starts_with(['+', ':']));
            let options = ["--force", "--mirror", "--delete", "--prune"].into_iter().any(long);
            let forced = options || rest.iter().any(|word| word.starts_with("--force"));
            when(refs || forced || short('f') || short('d') || unknown, Class::GitForcePush)
        }
        "reset" => when(long("--hard") || unknown, Class::BashDestructive),
        "clean" => when(!long("--dry-run") && !short('n'), Class::BashDestructive),
        "checkout" | "switch" => {
            let discards = long("--force") || long("--discard-changes") || short('f') || has(&["--", ".", "./", "*"]);
            when(discards, Class::BashDestructive)
        }
        "restore" => {
            let staged = long("--staged") || short('S');
            when(!staged || long("--worktree") || short('W'), Class::BashDestructive)
        }
        "stash" => when(has(&["drop", "clear"]), Class::BashDestructive),
        "branch" => when(short('D') || long("--delete") && long("--force"), Class::BashDestructive),
        "reflog" => when(has(&["expire", "delete"]), Class::BashDestructive),
        "gc" => when(long("--prune"), Class::BashDestructive),
        "update-ref" => when(short('d') || long("--stdin"), Class::BashDestructive),
        "filter-branch" | "filter-repo" | "prune" => Class::BashDestructive,
        "rm" => when(!long("--cached"), Class::FileDelete),
        "worktree" => when(has(&["remove", "prune"]), Class::FileDelete),
        _ if READERS.split_ascii_whitespace().any(|known| known == sub) => {
            let writes = long("--output") || has(&["-o"]) || unknown && sub != "rev-parse" && sub != "ls-files";
            let runs =
                long("--ext-diff") || long("--textconv") || long("--open-files-in-pager") || long("--upload-pack");
            match (writes, runs || sub == "grep" && rest.iter().any(|word| word.starts_with("-O"))) {
                (true, _) => Class::FileWrite,
                (false, true) => Class::BashMutating,
                (false, false) => Class::BashReadonly,
            }
        }
        _ => Class::BashMutating,
    }
}

/// Reports whether `word` is the long option `option`, perhaps cut short, perhaps with a value.
fn is_long(word: &str, option: &str) -> bool {
    let name = word.split('=').next().unwrap_or(word);
    name.len() > 2 && option.starts_with(name)
}

/// Reports whether `word` is a group of short options with `letter` among them.
fn is_short(word: &str, letter: char) -> bool {
    word.len() > 1 && word.starts_with('-') && !word.starts_with("--") && word[1..].contains(letter)
}
