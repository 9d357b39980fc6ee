//! The classes of programs by name and arguments.

use crate::policy::{
    contract::Class,
    shell::{
        programs::{is_interpreter, runs_by_option},
        word::UNKNOWN,
    },
};

/// Programs and builtins that only read, whatever their arguments but for those of [`written`].
const READERS: &str = "ls cat pwd echo printf grep egrep fgrep rg head tail wc stat file which type date whoami true false \
    test [ : diff sort uniq cut basename dirname realpath readlink cmp column tr tree jq du df md5sum sha1sum sha256sum \
    sha512sum cksum xxd od strings nl tac rev paste comm join fold cd pushd popd dirs uname id groups hostname arch nproc \
    seq sleep wait read exit return break continue shift local getopts dir vdir less more tput printenv uptime free ps \
    pgrep cal tty locale getconf getent env command builtin exec nohup nice ionice stdbuf setsid time";

/// Programs that change something, but no file in a way that has a class of its own.
const MUTATORS: &str = "mv cp mkdir touch ln chmod chown chgrp install patch npm bun pnpm yarn pip pip3 cargo make apt apt-get \
    brew go gradle systemctl service find curl sed awk gawk mawk perl python3 python node ruby kill pkill tar unzip zip xargs";

/// Programs that take files away.
const DELETERS: &str = "rm rmdir unlink srm trash trash-put";

/// Programs that destroy what cannot be had again.
const DESTROYERS: &str = "dd shred wipefs blkdiscard mkswap badblocks fdisk sfdisk gdisk cgdisk cfdisk sgdisk parted mke2fs \
    cryptsetup pvremove vgremove lvremove pvcreate vgcreate shutdown reboot halt poweroff init telinit killall5 scrub";

fn listed(list: &str, name: &str) -> bool {
    list.split_ascii_whitespace().any(|known| known == name)
}

/// True if the name is that of a program which is known here.
pub(super) fn is_known(program: &str) -> bool {
    [READERS, MUTATORS, DELETERS, DESTROYERS].iter().any(|list| listed(list, program))
        || matches!(program, "git" | "tee" | "truncate" | "wget" | "rsync")
        || program.starts_with("mkfs")
        || is_interpreter(program)
}

/// The class of `program` with `arguments`, in which [`UNKNOWN`] may stand.
pub(super) fn class(program: &str, arguments: &[&str]) -> Class {
    let has = |wanted: &[&str]| arguments.iter().any(|word| wanted.contains(word));
    let begins = |wanted: &[&str]| arguments.iter().any(|word| wanted.iter().any(|option| word.starts_with(option)));
    let when = |worse: bool, class: Class| if worse { class } else { Class::BashMutating };
    match program {
        "git" => super::git::class(arguments),
        "find" => match (begins(&["-delete", "-exec", "-ok"]), begins(&["-fprint", "-fls"])) {
            (true, _) => Class::FileDelete,
            (false, writes) => when(writes || unknown_option(arguments), Class::FileWrite),
        },
        "rsync" => when(begins(&["--del", "--remove-source-files"]), Class::FileDelete),
        "crontab" => when(has(&["-r"]), Class::BashDestructive),
        "zpool" | "zfs" => when(has(&["destroy"]), Class::BashDestructive),
        "hdparm" => when(begins(&["--security-erase", "--trim"]), Class::BashDestructive),
        "nvme" => when(has(&["format", "sanitize"]), Class::BashDestructive),
        "kill" => when(has(&["-1"]) && arguments.len() > 1, Class::BashDestructive),
        "tee" => when(operands(arguments) > 0, Class::FileWrite),
        "truncate" | "sponge" => Class::FileWrite,
        "curl" => when(begins(&["-o", "-O", "--output", "--remote-name"]) || short(arguments, "oO"), Class::FileWrite),
        "wget" => when(
            !has(&["-qO-", "-O-", "--spider"]) && !arguments.windows(2).any(|pair| pair == ["-O", "-"]),
            Class::FileWrite,
        ),
        "sed" => {
            let in_place = begins(&["-i", "--in-place"]) || short(arguments, "i");
            when(in_place || runs_by_option("sed", arguments) || unknown_option(arguments), Class::FileWrite)
        }
        "perl" | "ruby" => when(short(arguments, "i"), Class::FileWrite),
        _ if listed(DELETERS, program) => Class::FileDelete,
        _ if listed(DESTROYERS, program) || program.starts_with("mkfs") => Class::BashDestructive,
        _ if listed(READERS, program) => reader(program, arguments),
        _ => Class::BashMutating,
    }
}

/// A program that reads, unless an option of it writes, or runs another.
fn reader(program: &str, arguments: &[&str]) -> Class {
    if written(program, arguments) {
        return Class::FileWrite;
    }
    let changes = match program {
        "date" => arguments.iter().any(|word| !word.starts_with(['-', '+']) || is_option(word, "s", "--set")),
        "hostname" => operands(arguments) > 0,
        "less" | "more" => arguments.iter().any(|word| word.starts_with('+')),
        "file" => arguments.iter().any(|word| is_option(word, "C", "--compile")),
        _ => false,
    };
    if changes || runs_by_option(program, arguments) { Class::BashMutating } else { Class::BashReadonly }
}

/// True if a reader is told to write a file, or may be.
fn written(program: &str, arguments: &[&str]) -> bool {
    let option = |letter: &str, name: &str| {
        unknown_option(arguments) || arguments.iter().any(|word| is_option(word, letter, name))
    };
    match program {
        "sort" => option("o", "--output"),
        "tree" => option("o", "--output"),
        "less" | "more" => option("oO", "--log-file"),
        "uniq" => operands(arguments) > 1,
        "xxd" => operands(arguments) > 1 || option("r", "-revert"),
        _ => false,
    }
}

/// True if `word` is a group of short options with one of `letters`, or the long option `name`, perhaps cut short.
fn is_option(word: &str, letters: &str, name: &str) -> bool {
    match word.strip_prefix("--") {
        Some("") | None => short(&[word], letters) || (word.len() > 3 && word.starts_with(name)),
        Some(_) => name.starts_with(word.split('=').next().unwrap_or(word)),
    }
}

fn short(arguments: &[&str], letters: &str) -> bool {
    let group = |word: &&&str| word.starts_with('-') && !word.starts_with("--");
    arguments.iter().filter(group).any(|word| word[1..].contains(|c| letters.contains(c)))
}

/// True if a word may turn out to be an option.
fn unknown_option(arguments: &[&str]) -> bool {
    arguments.iter().any(|word| word.starts_with(UNKNOWN))
}

fn operands(arguments: &[&str]) -> usize {
    arguments.iter().filter(|word| !word.starts_with('-') || **word == "-").count()
}
