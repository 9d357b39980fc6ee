//! The classes of programs by name and arguments.

use crate::{
    action_class::ActionClass as Class,
    option_words::{count_operands, is_option, is_short, may_be_option},
    options::may_write,
    programs::is_interpreter,
};

/// Programs and builtins that only read, whatever their arguments, except those of [`may_write`].
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

fn is_listed(list: &str, name: &str) -> bool {
    list.split_ascii_whitespace().any(|known| known == name)
}

/// Reports whether the name is that of a program which only reads, except for some of its options.
pub(super) fn is_reader(program: &str) -> bool {
    is_listed(READERS, program)
}

/// Reports whether the name is that of a program which is known here.
pub(super) fn is_known(program: &str) -> bool {
    [READERS, MUTATORS, DELETERS, DESTROYERS].iter().any(|list| is_listed(list, program))
        || matches!(program, "git" | "tee" | "truncate" | "wget" | "rsync")
        || program.starts_with("mkfs")
        || is_interpreter(program)
}

/// Returns the class of `program` with `arguments`, in which `UNKNOWN` may stand.
pub(super) fn program_class(program: &str, arguments: &[&str]) -> Class {
    let has = |any_of: &[&str]| arguments.iter().any(|word| any_of.contains(word));
    let begins =
        |prefixes: &[&str]| arguments.iter().any(|word| prefixes.iter().any(|option| word.starts_with(option)));
    let when = |worse: bool, class: Class| if worse { class } else { Class::BashMutating };
    match program {
        "git" => super::git::git_class(arguments),
        "find" => match (begins(&["-delete", "-exec", "-ok"]), begins(&["-fprint", "-fls"])) {
            (true, _) => Class::FileDelete,
            (false, writes) => when(writes || may_be_option(arguments), Class::FileWrite),
        },
        "rsync" => when(begins(&["--del", "--remove-source-files"]), Class::FileDelete),
        "crontab" => when(has(&["-r"]), Class::BashDestructive),
        "zpool" | "zfs" => when(has(&["destroy"]), Class::BashDestructive),
        "hdparm" => when(begins(&["--security-erase", "--trim"]), Class::BashDestructive),
        "nvme" => when(has(&["format", "sanitize"]), Class::BashDestructive),
        "kill" => when(has(&["-1"]) && arguments.len() > 1, Class::BashDestructive),
        "tee" => when(count_operands(arguments) > 0, Class::FileWrite),
        "truncate" | "sponge" => Class::FileWrite,
        "curl" => {
            when(begins(&["-o", "-O", "--output", "--remote-name"]) || has_short(arguments, "oO"), Class::FileWrite)
        }
        "wget" => when(
            !has(&["-qO-", "-O-", "--spider"]) && !arguments.windows(2).any(|pair| pair == ["-O", "-"]),
            Class::FileWrite,
        ),
        "sed" => {
            let in_place = begins(&["-i", "--in-place"]) || has_short(arguments, "i");
            when(in_place || may_be_option(arguments), Class::FileWrite)
        }
        "perl" | "ruby" => when(has_short(arguments, "i"), Class::FileWrite),
        _ if is_listed(DELETERS, program) => Class::FileDelete,
        _ if is_listed(DESTROYERS, program) || program.starts_with("mkfs") => Class::BashDestructive,
        _ if is_listed(READERS, program) => reader_class(program, arguments),
        _ => Class::BashMutating,
    }
}

/// Returns the class of a program that reads, unless an option of it writes, or runs another.
fn reader_class(program: &str, arguments: &[&str]) -> Class {
    if may_write(program, arguments) {
        return Class::FileWrite;
    }
    let changes = match program {
        "date" => arguments.iter().any(|word| !word.starts_with(['-', '+']) || is_option(word, "s", "--set")),
        "hostname" => count_operands(arguments) > 0,
        "less" | "more" => arguments.iter().any(|word| word.starts_with('+')),
        "file" => arguments.iter().any(|word| is_option(word, "C", "--compile")),
        _ => false,
    };
    if changes { Class::BashMutating } else { Class::BashReadonly }
}

fn has_short(arguments: &[&str], letters: &str) -> bool {
    arguments.iter().any(|word| is_short(word, letters))
}
