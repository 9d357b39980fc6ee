//! Known properties of programs, by name.

use super::declarations;
use crate::shell::is_shell_in_rules;

/// Shells whose `-c` text is read by this grammar.
pub(super) const SHELLS: [&str; 4] = ["bash", "sh", "dash", "rbash"];

/// Programs that run any text or program given to them, so that a rule on their name alone grants everything.
const INTERPRETERS: &str = "bash sh dash rbash zsh ksh fish csh tcsh ash mksh pwsh nu elvish xonsh python python2 python3 \
    pypy pypy3 ipython node nodejs deno bun perl ruby irb php lua luajit tclsh wish expect Rscript R \
    julia ghci osascript scala groovy jshell gdb lldb eval source . exec command builtin env sudo \
    doas su xargs parallel nohup nice ionice timeout time watch setsid stdbuf strace ltrace script \
    ssh chroot unshare nsenter flock busybox toybox runuser pkexec systemd-run npx bunx uvx pipx \
    coproc trap alias";

/// Wrappers of which only a person can tell what they do with the rest of the line.
const OPAQUE_WRAPPERS: &str = "sudo doas su runuser pkexec ssh watch parallel chroot unshare nsenter flock busybox toybox \
    strace ltrace gdb script systemd-run docker podman kubectl lxc firejail bwrap proot fakeroot \
    taskset chrt numactl prlimit setarch unbuffer expect screen tmux at batch entr inotifywait \
    rlwrap torsocks proxychains dbus-run-session xvfb-run direnv chpst setpriv capsh";

/// Builtins that change what later words of the line mean, or run text.
const MEANING: &str = "alias unalias trap source . enable hash complete bind mapfile readarray shopt set unset coproc \
    fc history";

/// Programs that only read, whatever their arguments, except for options that have it write (`options.rs`).
const READERS: &str = "cat head tail less more grep egrep fgrep rg ls stat wc diff cmp file md5sum sha1sum sha256sum \
    sha512sum cksum cut sort tree find test [ echo printf jq du df realpath readlink basename \
    dirname cd pwd xxd od strings nl tac rev paste comm join tr column fold true false which type \
    pushd popd date uname id";

/// Programs that make an unreadable line a matter of the floor.
const DESTROYERS: &str = "rm dd shred wipefs blkdiscard mkswap fdisk sfdisk parted sgdisk shutdown reboot halt poweroff \
    find chmod chown chgrp mv rsync unlink srm truncate rmdir git kill killall5 init telinit \
    systemctl";

/// Reports whether `name` is one of the words of `list`.
fn is_listed(list: &str, name: &str) -> bool {
    list.split_ascii_whitespace().any(|known| known == name)
}

/// Reports whether `program` only reads, whatever else its options have it do.
pub(super) fn is_reader(program: &str) -> bool {
    is_listed(READERS, program)
}

/// Returns the part of a path after its last slash.
pub(super) fn base_name(program: &str) -> &str {
    program.rsplit('/').next().unwrap_or(program)
}

pub(super) fn is_opaque_wrapper(program: &str) -> bool {
    is_listed(OPAQUE_WRAPPERS, program)
}

/// Reports whether a table of this module has the name `program`.
pub(super) fn is_listed_program(program: &str) -> bool {
    is_reader(program)
        || is_interpreter(program)
        || changes_meaning(program)
        || deserves_each_look(program)
        || obeys_repository(program)
}

pub(super) fn changes_meaning(program: &str) -> bool {
    is_listed(MEANING, program)
}

/// Returns true for programs of which every call deserves a look of its own.
pub(super) fn deserves_each_look(program: &str) -> bool {
    is_listed(DESTROYERS, program) && program != "git"
        || matches!(program, "curl" | "wget" | "scp" | "sftp" | "nc" | "tee" | "cp" | "ln" | "install" | "crontab")
}

/// Returns true for `python`, `python3.12`, `perl5` and their kin.
pub(super) fn is_interpreter(program: &str) -> bool {
    let family = program.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    is_listed(INTERPRETERS, program) || (!family.is_empty() && is_listed(INTERPRETERS, family))
}

/// Returns a destructive program that unparsable `text` mentions.
pub(super) fn mentions_destroyer(text: &str) -> Option<&'static str> {
    let unquoted: String = text.chars().filter(|c| !matches!(c, '\\' | '\'' | '"')).collect();
    let mut words = unquoted.split(|c: char| !(c.is_ascii_alphanumeric() || c == '.' || c == '_' || c == '-'));
    words.find_map(|word| {
        let known = DESTROYERS.split_ascii_whitespace().find(|known| *known == word);
        known.or_else(|| word.starts_with("mkfs").then_some("mkfs"))
    })
}

/// Returns true for programs of version control, which run what the settings of the repository name that they find.
pub(super) fn obeys_repository(program: &str) -> bool {
    matches!(program, "git" | "hg" | "jj" | "sl")
}

/// Assignments that make other programs load, find or run something else.
pub(super) fn is_dangerous_variable(name: &str) -> bool {
    const NAMES: &str = "PATH IFS ENV BASH_ENV SHELLOPTS BASHOPTS PS0 PS1 PS2 PS4 PROMPT_COMMAND CDPATH HOME PWD OLDPWD SHELL \
        VISUAL BROWSER LESSOPEN LESSCLOSE LESS LESSKEYIN NODE_PATH PERL5LIB PERL5OPT PERL5DB RUBYOPT RUBYLIB LUA_INIT CC CXX \
        MAKE MAKEFILES COMPILER_PATH GCONV_PATH HOSTALIASES FCEDIT SUDO_ASKPASS GLOBIGNORE HISTFILE RIPGREP_CONFIG_PATH \
        BAT_CONFIG_PATH AWS_CONFIG_FILE PIP_CONFIG_FILE KUBECONFIG GOROOT GOPATH GOENV GOBIN GOTOOLCHAIN GOTOOLDIR GOWORK \
        GOPROXY ZIPOPT WGETRC CURL_HOME RSYNC_CONNECT_PROG PYTEST_PLUGINS DOTNET_STARTUP_HOOKS OPENSSL_CONF SVN_SSH \
        AWKLIBPATH AWKPATH POSIXLY_CORRECT TEXTDOMAIN TEXTDOMAINDIR LANGUAGE LOCPATH NLSPATH \
        AR AS LD NM RANLIB LINKER PERLLIB PHPRC PHP_INI_SCAN_DIR VIMINIT EXINIT GVIMINIT MYVIMRC INPUTRC CLASSPATH JAVA_HOME \
        TF_CLI_CONFIG_FILE QT_PLUGIN_PATH GTK_MODULES GTK_PATH GTK_IM_MODULE_FILE R_HOME R_LIBS R_PROFILE R_ENVIRON \
        R_PROFILE_USER R_ENVIRON_USER R_LIBS_USER SIMPLE_BACKUP_SUFFIX MAKESHELL NODE_EXTRA_CA_CERTS TERMINFO \
        PYENV_ROOT COMPOSER_HOME MAVEN_ARGS M2_HOME MAVEN_HOME ZDOTDIR NODE_REPL_EXTERNAL_MODULE XZ_OPT XZ_DEFAULTS MYPYPATH \
        JULIA_LOAD_PATH JULIA_DEPOT_PATH ERL_LIBS TCLLIBPATH HELM_PLUGINS SBT_HOME CPATH C_INCLUDE_PATH CPLUS_INCLUDE_PATH \
        OBJC_INCLUDE_PATH LIBRARY_PATH OBJC CPP YACC";
    // The shell computes values that are assigned to them, and computing runs commands.
    const COMPUTED: &str =
        "RANDOM SRANDOM SECONDS HISTCMD OPTIND LINENO EPOCHSECONDS EPOCHREALTIME BASHPID PPID UID EUID";
    const PREFIXES: [&str; 31] = [
        "LD_",
        "DYLD_",
        "GIT_",
        "BASH_",
        "PYTHON",
        "SSH_",
        "npm_config_",
        "NPM_CONFIG_",
        "CARGO_",
        "RUSTC",
        "RUSTDOC",
        "XDG_",
        "GCC_",
        "DOCKER_",
        "CONTAINER_",
        "RUSTUP_",
        "PYTEST_",
        "CMAKE_",
        "CC_",
        "CXX_",
        "AR_",
        "GEM_",
        "BUNDLE_",
        "LUA_",
        "OPENSSL_",
        "PIP_",
        "UV_",
        "ANSIBLE_",
        "GRADLE_",
        "TF_CLI_ARGS",
        "MISE_",
    ];
    const ENDS: [&str; 14] = [
        "PAGER",
        "EDITOR",
        "_CONFIG",
        "_RSH",
        "_WRAPPER",
        "FLAGS",
        "_OPTS",
        "_OPTIONS",
        "_ADDOPTS",
        "_LAUNCHER",
        "_CC",
        "_CXX",
        "_AR",
        "_LINKER",
    ];
    is_listed(NAMES, name)
        || is_listed(COMPUTED, name)
        || PREFIXES.iter().any(|prefix| name.starts_with(prefix))
        || ENDS.iter().any(|end| name.ends_with(end))
        || !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// Reports whether an assignment to a lever, `NAME=value` as far as it is known, leaves nothing to run or load: a pager or an editor that
/// is the plain name of a program which only reads, or none, and a switch for how something is shown or whether it asks.
pub(super) fn is_idle(assignment: &str) -> bool {
    // The last words of such switches.
    const SWITCHES: &str =
        "COLOR COLORS COLOUR VERBOSE QUIET PROGRESS PROMPT OFFLINE INCREMENTAL UNBUFFERED DONTWRITEBYTECODE";
    const POSITIONS: &str = "always never auto true false yes no on off";
    let Some((name, value)) = assignment.split_once('=') else { return false };
    let is_name = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    let is_program = ["PAGER", "EDITOR"].iter().any(|end| name.ends_with(end));
    let is_switch = SWITCHES.split_ascii_whitespace().any(|end| name.ends_with(end));
    let is_position = is_listed(POSITIONS, value) || value.len() < 3 && value.bytes().all(|byte| byte.is_ascii_digit());
    is_name && (is_program && (value.is_empty() || is_reader(value)) || is_switch && is_position)
}

/// Reports whether other programs read the variable as well, and users may have one of that name: such names matter where programs get
/// them.
pub(super) fn is_dangerous_in_environment(name: &str) -> bool {
    const NAMES: &str = "UNZIP BZIP BZIP2 ZIP GZIP MAGIC LEX FC STRIP OBJCOPY RM CO GET MAKEINFO TEX TEXI2DVI WEAVE CWEAVE TANGLE CTANGLE \
        M2C PC LINT";
    is_dangerous_variable(name) || is_listed(NAMES, name)
}

/// Reports whether an assignment that a line makes for one of its commands is no lever, as far as is known: its name is none that
/// makes programs load, find or run something else, and does not end like one; or its value leaves nothing of that.
pub(super) fn is_setting(assignment: &str) -> bool {
    const LEVERS: &str = "PATH HOME COMMAND CMD SHELL HOOK HOOKS PRELOAD PLUGIN PLUGINS ARGS OPTS OPTIONS FLAGS RUNNER LOADER EXEC \
        PROGRAM PROG BIN SCRIPT CONF CONFIG RC INIT MODULE MODULES INCLUDE AUTH PROXY REGISTRY MIRROR PROFILER WRAPPER COMPILER \
        LINKER ASKPASS TUNABLES";
    // As a word of its own: a file to write into. `RUST_BACKTRACE` is none.
    const LAST_WORD: &str = "TRACE";
    // Of these programs any variable may be one.
    const PROGRAMS: [&str; 14] = [
        "YARN_",
        "PNPM_",
        "NODE_REDIRECT_",
        "NODE_V8_",
        "COREPACK_",
        "COR_",
        "CORECLR_",
        "DOTNET_",
        "MSBUILD",
        "GOAUTH",
        "GOCACHE",
        "GOMOD",
        "GOSUMDB",
        "GOINSECURE",
    ];
    if is_idle(assignment) {
        return true;
    }
    let name = declarations::assigned_name(assignment);
    let upper = name.to_ascii_uppercase();
    !name.is_empty()
        && !is_path_value(assignment)
        && !is_dangerous_in_environment(name)
        && upper.rsplit('_').next() != Some(LAST_WORD)
        && !LEVERS.split_ascii_whitespace().any(|end| upper.ends_with(end))
        && !PROGRAMS.iter().any(|program| upper.starts_with(program))
}

/// Reports whether the value of an assignment is a path, which the program may run, load or read its settings from. An address is none.
fn is_path_value(assignment: &str) -> bool {
    let value = assignment.split_once('=').map_or("", |(_, value)| value);
    let is_file = value.get(..5).is_some_and(|begin| begin.eq_ignore_ascii_case("file:"));
    value.starts_with(['.', '~']) || value.contains('/') && (is_file || !value.contains("://"))
}

/// Returns the interpreter or wrapper that an allow pattern would grant whole.
pub fn grants_interpreter(pattern: &str) -> Option<&str> {
    let (tool, inner) = pattern.split_once('(')?;
    is_shell_in_rules(tool).then_some(())?;
    let literal = &inner[..inner.find(['*', '?', '['])?];
    let mut words = literal.split(' ').filter(|word| !word.is_empty());
    let program = words.next()?;
    let name = base_name(program);
    // The name must be finished, or be one itself, and nothing but options may stand before the wildcard.
    (is_interpreter(name) || is_opaque_wrapper(name)).then_some(())?;
    words.all(|word| word.starts_with('-')).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::grants_interpreter;

    #[test]
    fn a_rule_may_name_a_script_but_not_an_interpreter_alone() {
        for (pattern, want) in [
            ("bash(python*)", Some("python")),
            ("bash(python3.12 *)", Some("python3.12")),
            ("bash(/usr/bin/env *)", Some("env")),
            ("bash(bash -c *)", Some("bash")),
            ("bash(sudo *)", Some("sudo")),
            ("bash(python manage.py *)", None),
            ("bash(npm *)", None),
            ("bash(python x.py)", None),
            ("bash(*)", None),
            ("mac__Bash(python*)", Some("python")),
            ("*__Bash(sudo *)", Some("sudo")),
            ("mac__Read(python*)", None),
            ("*", None),
        ] {
            assert_eq!(grants_interpreter(pattern), want, "{pattern}");
        }
    }
}
