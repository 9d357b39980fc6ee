//! The options that are known, program by program.

use crate::option_words::{has_letter, has_long};
use crate::word::UNKNOWN;

/// Options of a program that run or write something else.
pub(super) struct KnownOptions {
    pub(super) programs: &'static [&'static str],
    /// Long ones, without their value.
    pub(super) long: &'static [&'static str],
    /// Letters, alone or among others after one dash.
    pub(super) letters: &'static str,
    /// Words that anywhere among the arguments mean it.
    pub(super) words: &'static [&'static str],
}

const NONE: KnownOptions = KnownOptions { programs: &[], long: &[], letters: "", words: &[] };

/// Programs of which options are known. Nothing that stands for an option of theirs may hide.
pub(super) const KNOWN: &[KnownOptions] = &[
    KnownOptions { programs: &["git"], ..NONE },
    KnownOptions {
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
        // After some letters the rest of the word is a value: its groups are looked at by themselves.
        letters: "",
        words: &[],
    },
    KnownOptions { programs: &["sort"], long: &["--compress-program", "--output"], letters: "o", words: &[] },
    KnownOptions { programs: &["split"], long: &["--filter"], letters: "", words: &[] },
    KnownOptions { programs: &["rg"], long: &["--pre", "--hostname-bin"], letters: "", words: &[] },
    KnownOptions {
        programs: &["rsync"],
        long: &["--rsh", "--rsync-path", "--daemon", "--config", "--remote-option"],
        letters: "eM",
        words: &[],
    },
    KnownOptions { programs: &["scp", "sftp"], long: &[], letters: "SoFD", words: &[] },
    KnownOptions { programs: &["zip"], long: &["--unzip-command"], letters: "", words: &[] },
    KnownOptions { programs: &["wget"], long: &["--use-askpass", "--execute", "--config"], letters: "e", words: &[] },
    KnownOptions { programs: &["curl"], long: &["--config", "--engine"], letters: "K", words: &[] },
    KnownOptions { programs: &["apt", "apt-get"], long: &["--option", "--config-file"], letters: "oc", words: &[] },
    KnownOptions { programs: &["cargo"], long: &["--config"], letters: "", words: &[] },
    KnownOptions {
        programs: &["npm", "pnpm", "yarn"],
        long: &["--script-shell", "--shell", "--node-options", "--userconfig", "--globalconfig"],
        letters: "",
        words: &[],
    },
    KnownOptions {
        programs: &["go"],
        long: &["-toolexec", "-vettool", "-exec", "--toolexec", "--vettool", "--exec"],
        ..NONE
    },
    KnownOptions {
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
    KnownOptions {
        programs: &["ld", "ld.bfd", "ld.gold", "ld.lld", "lld", "gold", "mold", "as"],
        long: &["--plugin", "-plugin", "-load", "--load-pass-plugin"],
        ..NONE
    },
    KnownOptions {
        programs: &["ar", "nm", "ranlib", "strip", "objcopy", "objdump", "size"],
        long: &["--plugin"],
        ..NONE
    },
    // These look for the program that they run where `-B` says.
    KnownOptions { programs: &["gcc-ar", "gcc-nm", "gcc-ranlib"], long: &["--plugin", "-B"], ..NONE },
    KnownOptions { programs: &["shuf"], long: &["--output"], letters: "o", words: &[] },
    KnownOptions {
        programs: &["svn"],
        long: &["--diff-cmd", "--diff3-cmd", "--editor-cmd", "--config-option", "--config-dir"],
        ..NONE
    },
    KnownOptions { programs: &["hg"], long: &["--config"], ..NONE },
    KnownOptions { programs: &["make", "gmake"], long: &["--eval"], letters: "E", words: &[] },
    KnownOptions { programs: &["fd", "fdfind"], long: &["--exec", "--exec-batch"], letters: "xX", words: &[] },
    KnownOptions { programs: &["install"], long: &["--strip-program"], letters: "", words: &[] },
    KnownOptions { programs: &["nix-shell"], long: &["--run", "--command"], letters: "", words: &[] },
    KnownOptions { programs: &["compgen"], long: &[], letters: "CFW", words: &[] },
    KnownOptions { programs: &["jobs"], long: &[], letters: "x", words: &[] },
    KnownOptions { programs: &["ssh-keygen"], long: &[], letters: "Dw", words: &[] },
    KnownOptions { programs: &["ssh-add"], long: &[], letters: "sS", words: &[] },
    KnownOptions { programs: &["tcpdump"], long: &[], letters: "z", words: &[] },
    KnownOptions { programs: &["clang-tidy", "clang-query", "clang-check"], long: &["-load", "--load"], ..NONE },
    KnownOptions {
        programs: &["dpkg"],
        long: &["--pre-invoke", "--post-invoke", "--status-logger", "--instdir", "--root"],
        ..NONE
    },
    KnownOptions { programs: &["sed", "less", "more", "man", "rustc", "sqlite3"], ..NONE },
];

impl KnownOptions {
    /// Reports whether `text` is one of them, or may be.
    pub(super) fn matches_option(&self, text: &str) -> bool {
        let is_open = text.starts_with('-') && text.contains(UNKNOWN) && !text.contains('=');
        let is_letters = is_open && !text.starts_with("--") && !self.letters.is_empty();
        has_long(text, self.long)
            || is_letters
            || self.letters.chars().any(|letter| has_letter(text, letter))
            || self.words.contains(&text)
    }
}
