//! The options that are known, program by program.

use crate::option_words::{has_letter, has_long};
use crate::word::UNKNOWN;

/// What of a program's options runs or writes something else.
pub(super) struct Options {
    pub(super) programs: &'static [&'static str],
    /// Long ones, without their value.
    pub(super) long: &'static [&'static str],
    /// Letters, alone or among others behind one dash.
    pub(super) letters: &'static str,
    /// Words that anywhere among the arguments mean it.
    pub(super) words: &'static [&'static str],
}

const NONE: Options = Options { programs: &[], long: &[], letters: "", words: &[] };

/// Programs of which options are known. Nothing that stands for an option of theirs may hide.
pub(super) const KNOWN: &[Options] = &[
    Options { programs: &["git"], ..NONE },
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
            "--index-file",
            "--listed-incremental",
            "--volno-file",
        ],
        // Behind some letters the rest of the word is a value: its groups are looked at by themselves.
        letters: "",
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
    Options { programs: &["zip"], long: &["--unzip-command"], letters: "", words: &[] },
    Options { programs: &["wget"], long: &["--use-askpass", "--execute", "--config"], letters: "e", words: &[] },
    Options { programs: &["curl"], long: &["--config", "--engine"], letters: "K", words: &[] },
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
        long: &[
            "-wrapper",
            "-fplugin",
            "-fpass-plugin",
            "-fmodule-mapper",
            "-iplugindir",
            "-specs",
            "--specs",
            "-B",
            "--prefix",
            "--plugin",
            "--for-linker",
            "--for-assembler",
            "--ld-path",
            "-fuse-ld=/",
            "-fuse-ld=.",
            "-Xlinker",
            "-Xclang",
            "--config",
        ],
        letters: "",
        words: &["-B", "-load"],
    },
    Options {
        programs: &["ld", "ld.bfd", "ld.gold", "ld.lld", "lld", "gold", "mold", "as"],
        long: &["--plugin", "-plugin", "-load", "--load-pass-plugin"],
        ..NONE
    },
    Options { programs: &["ar", "nm", "ranlib", "strip", "objcopy", "objdump", "size"], long: &["--plugin"], ..NONE },
    // These look for the program that they run where `-B` says.
    Options { programs: &["gcc-ar", "gcc-nm", "gcc-ranlib"], long: &["--plugin", "-B"], ..NONE },
    Options { programs: &["shuf"], long: &["--output"], letters: "o", words: &[] },
    Options {
        programs: &["svn"],
        long: &["--diff-cmd", "--diff3-cmd", "--editor-cmd", "--config-option", "--config-dir"],
        ..NONE
    },
    Options { programs: &["hg"], long: &["--config"], ..NONE },
    Options { programs: &["make", "gmake"], long: &["--eval"], letters: "E", words: &[] },
    Options { programs: &["fd", "fdfind"], long: &["--exec", "--exec-batch"], letters: "xX", words: &[] },
    Options { programs: &["install"], long: &["--strip-program"], letters: "", words: &[] },
    Options { programs: &["nix-shell"], long: &["--run", "--command"], letters: "", words: &[] },
    Options { programs: &["compgen"], long: &[], letters: "CFW", words: &[] },
    Options { programs: &["jobs"], long: &[], letters: "x", words: &[] },
    Options { programs: &["ssh-keygen"], long: &[], letters: "Dw", words: &[] },
    Options { programs: &["ssh-add"], long: &[], letters: "sS", words: &[] },
    Options { programs: &["tcpdump"], long: &[], letters: "z", words: &[] },
    Options { programs: &["clang-tidy", "clang-query", "clang-check"], long: &["-load", "--load"], ..NONE },
    Options {
        programs: &["dpkg"],
        long: &["--pre-invoke", "--post-invoke", "--status-logger", "--instdir", "--root"],
        ..NONE
    },
    Options { programs: &["sed", "less", "more", "man", "rustc", "sqlite3"], ..NONE },
];

impl Options {
    /// Whether `text` is one of them, or may be.
    pub(super) fn has(&self, text: &str) -> bool {
        let is_open = text.starts_with('-') && text.contains(UNKNOWN) && !text.contains('=');
        let is_letters = is_open && !text.starts_with("--") && !self.letters.is_empty();
        has_long(text, self.long)
            || is_letters
            || self.letters.chars().any(|letter| has_letter(text, letter))
            || self.words.contains(&text)
    }
}
