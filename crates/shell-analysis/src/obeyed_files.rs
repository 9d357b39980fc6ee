//! Files that other programs run or obey later, by name: a rule covers a change of one only if it names the file.
//!
//! It must not look at the disk. Letters count alike in both cases, for some disks do not tell them apart.

use std::{collections::BTreeMap, sync::LazyLock};

use crate::{globs::GlobForm, path};

/// Names of one kind, relative to any folder, each with everything below it.
struct NameGroup {
    /// Names with white space between.
    names: &'static str,
    /// Follows "which", and tells what obeys them.
    because: &'static str,
}

const KINDS: [NameGroup; 8] = [
    NameGroup {
        names: ".git .gitmodules .gitconfig .config/git .hg .hgrc .jj .sl .svn .bzr",
        because: "version control runs or obeys later",
    },
    NameGroup {
        names: ".husky .huskyrc .githooks .git-hooks .lefthook .lefthook.yml .lefthook.yaml lefthook.yml lefthook.yaml \
            .pre-commit-config.yaml .pre-commit-config.yml .pre-commit-hooks.yaml .overcommit.yml .simple-git-hooks.json",
        because: "hooks of version control run later",
    },
    NameGroup {
        names: ".github .gitlab .gitlab-ci.yml .gitlab-ci.yaml .circleci .travis.yml .drone.yml .drone.star .woodpecker \
            .woodpecker.yml .woodpecker.yaml .forgejo .gitea .buildkite .cirrus.yml .cirrus.star .appveyor.yml appveyor.yml \
            azure-pipelines.yml azure-pipelines.yaml .azure-pipelines .azuredevops bitbucket-pipelines.yml jenkinsfile \
            .jenkins .teamcity .semaphore .builds .build.yml buildspec.yml cloudbuild.yaml cloudbuild.yml wercker.yml .ci \
            .drone.yaml .drone.jsonnet .tekton .harness codefresh.yml codefresh.yaml .codefresh bitrise.yml bitrise.yaml \
            .bitrise.yml codemagic.yaml codemagic.yml .zuul.yaml .zuul.d zuul.yaml zuul.d .vela.yml .vela.yaml .vela \
            screwdriver.yaml .prow.yaml circle.yml bamboo-specs .scrutinizer.yml",
        because: "a service for continuous integration runs later",
    },
    NameGroup {
        names: ".vscode .vscode-server .idea .fleet .zed .vs .devcontainer .devcontainer.json .vim .vimrc .gvimrc .exrc \
            .nvimrc .nvim.lua .lvimrc .config/nvim .nova .helix .config/helix .config/zed .config/code .config/kak .emacs .emacs.d .dir-locals.el .nanorc",
        because: "an editor runs or obeys later",
    },
    NameGroup {
        names: ".bashrc .bash_profile .bash_login .bash_logout .bash_aliases .bash_completion .profile .zshrc .zshenv \
            .zprofile .zlogin .zlogout .kshrc .mkshrc .shrc .cshrc .tcshrc .login .logout .inputrc .xprofile .xinitrc \
            .xsession .xsessionrc .pam_environment .config/fish .config/nushell .config/elvish .config/zsh .config/bash \
            .config/environment.d .config/autostart .config/systemd library/launchagents library/launchdaemons",
        because: "a shell or a login runs later",
    },
    NameGroup {
        names: ".envrc .direnvrc .config/direnv .mise.toml mise.toml .mise .config/mise .autoenv .autoenv.zsh .rvmrc .hooks",
        because: "a shell runs in that folder later",
    },
    NameGroup {
        names: ".claude .claude.json .mcp.json .codex .gemini .opencode opencode.json opencode.jsonc .countersign .omp .pi .gjc \
            .gsv .cursor .windsurf .codeium .continue .cline .roo .kilocode .kiro .qwen .crush .crush.json crush.json .goose \
            .amp .factory .junie .augment .aider.conf.yml .copilot .hermes .openhands .trae .agents .agent .config/opencode \
            .config/codex .config/goose .config/crush .config/amp mcp.json .cursorrules .windsurfrules .clinerules .roorules \
            .roomodes .kilocoderules .kilocodemodes .goosehints agents.md claude.md gemini.md",
        because: "an agent obeys later",
    },
    NameGroup {
        names: ".npmrc .yarnrc .yarnrc.yml .yarn .pnpmfile.cjs .bunfig.toml bunfig.toml .cargo .pypirc .pip pip.conf .config/pip \
            .condarc .gemrc .bundle .mvn .bazelrc .irbrc .pryrc .pythonrc .pythonrc.py .pdbrc .rprofile .renviron .gdbinit \
            .lldbinit .tmux.conf .screenrc .wgetrc .curlrc .netrc .ripgreprc .sqliterc .psqlrc .my.cnf .lesskey .lessfilter \
            .ssh .gnupg .docker .kube .terraformrc",
        because: "another program obeys later",
    },
];

/// Ends of names that have the same meaning.
const ENDS: [(&str, &str); 3] = [
    (".code-workspace", "an editor runs or obeys later"),
    (".sublime-project", "an editor runs or obeys later"),
    (".sublime-build", "an editor runs or obeys later"),
];

/// Folders whose files version control may run, where they are named like its hooks. Source: `githooks(5)`.
const HOOK_FOLDERS: [&str; 2] = ["hooks", "githooks"];

/// The names of hooks of version control.
const HOOKS: &str = "applypatch-msg pre-applypatch post-applypatch pre-commit pre-merge-commit prepare-commit-msg commit-msg \
    post-commit pre-rebase post-checkout post-merge pre-push pre-receive update proc-receive post-receive post-update \
    reference-transaction push-to-checkout pre-auto-gc post-rewrite sendemail-validate fsmonitor-watchman p4-changelist \
    p4-prepare-changelist p4-post-changelist p4-pre-submit post-index-change";

/// Reason for these.
const BY_HOOKS: &str = "version control may run as a hook later";

/// Files and folders of the system, outside of the working folder.
const OF_SYSTEM: &str = "/etc/profile /etc/profile.d /etc/bash.bashrc /etc/bashrc /etc/zsh /etc/zshrc /etc/zshenv /etc/zprofile \
    /etc/fish /etc/csh.cshrc /etc/environment /etc/gitconfig /etc/crontab /etc/cron.d /etc/cron.hourly /etc/cron.daily \
    /etc/cron.weekly /etc/cron.monthly /var/spool/cron /etc/systemd /etc/init.d /etc/rc.local /etc/ld.so.preload /etc/sudoers \
    /etc/sudoers.d /etc/pam.d";

/// Folders of the system: a write there changes what it runs or obeys. For files that a tool writes; the words that a command writes
/// are unknown.
const SYSTEM: &str = "/etc /bin /sbin /lib /lib32 /lib64 /libx32 /usr /boot /opt /var/spool /root /library /system";

/// Folders directly in the home folder in which each program has one of its own.
const SHARED: [&str; 2] = [".config", ".local"];

/// Names that lie directly in a hidden folder of an agent.
const OF_AGENTS: &str =
    "settings.json settings.local.json mcp.json hooks commands agents rules skills prompts instructions modes plugins";

/// Reason for these.
const BY_AGENT: &str = "an agent obeys later";

/// Reason for hidden files at home.
const BY_PROGRAM: &str = "another program obeys later";

/// Reason for hidden files in the working folder.
const BY_UNKNOWN: &str = "another program may obey later";

/// Hidden names that no program runs or obeys. A star stands for any text.
const HARMLESS: &str =
    ".*ignore .gitattributes .gitkeep .keep .editorconfig .*.md .*.txt .*.example .*.sample .*.template";

/// Reason for the files of the system.
const BY_SYSTEM: &str = "the system or a shell runs or obeys later";

/// A name, as far as it follows its first part, and why it counts.
type NameTail = (Vec<String>, &'static str);

/// The names by their first part.
static BY_FIRST: LazyLock<BTreeMap<String, Vec<NameTail>>> = LazyLock::new(|| {
    let mut all: BTreeMap<String, Vec<NameTail>> = BTreeMap::new();
    for kind in &KINDS {
        for name in kind.names.split_ascii_whitespace() {
            let mut parts = name.split('/').map(str::to_owned);
            if let Some(first) = parts.next() {
                all.entry(first).or_default().push((parts.collect(), kind.because));
            }
        }
    }
    all
});

/// The part of a path that makes it such a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObeyedPart {
    /// Start of the part in the path, at a slash.
    pub from: usize,
    /// End of the part.
    pub to: usize,
    /// Why; follows "which".
    pub because: &'static str,
}

/// Returns the part of `path` that makes it such a file, if it is one. Of a path in the folder `working` only what lies below that counts:
/// people may work in a folder of such a name. Both are absolute.
pub fn obeyed_part(working: &str, path: &str) -> Option<ObeyedPart> {
    let is_inside = path::is_within(working, path);
    let is_of_system = |folder: &&str| !is_inside && path::is_within(folder, path);
    if let Some(folder) = OF_SYSTEM.split_ascii_whitespace().find(is_of_system) {
        return Some(ObeyedPart { from: 0, to: folder.len(), because: BY_SYSTEM });
    }
    let skipped = if is_inside && working != "/" { working.len() } else { 0 };
    let mut parts: Vec<(usize, &str)> = Vec::new();
    let mut at = skipped;
    for part in path[skipped..].split('/') {
        if !part.is_empty() {
            parts.push((at, part));
        }
        at += part.len() + 1;
    }
    (0..parts.len()).find_map(|first| match_parts(&parts[first..]))
}

/// Returns the same of a path that a tool writes: what is hidden at home and everything of the system counts as well.
pub fn part_of_file(working: &str, home: Option<&str>, path: &str) -> Option<ObeyedPart> {
    if let Some(obeyed) = obeyed_part(working, path) {
        return Some(obeyed);
    }
    let home = home.filter(|home| *home != "/");
    let is_inside = path::is_within(working, path);
    if let Some(rest) = home.and_then(|home| path.strip_prefix(home)).filter(|rest| rest.starts_with("/.")) {
        let from = path.len() - rest.len();
        let mut ends = rest.match_indices('/').map(|(at, _)| from + at).skip(1).chain([path.len()]);
        let first = ends.next().unwrap_or(path.len());
        let to = if SHARED.contains(&&path[from + 1..first]) { ends.next().unwrap_or(first) } else { first };
        // People may work in a hidden folder.
        return (!is_inside || Some(working) == home).then_some(ObeyedPart { from, to, because: BY_PROGRAM });
    }
    if is_inside || home.is_some_and(|home| path::is_within(home, path)) {
        return None;
    }
    let lower = path.to_ascii_lowercase();
    let folder = SYSTEM.split_ascii_whitespace().find(|folder| path::is_within(folder, &lower))?;
    Some(ObeyedPart { from: 0, to: folder.len(), because: BY_SYSTEM })
}

/// Returns the hidden part of a path that a tool writes in the folder `working`. Programs keep their settings in hidden files, and nobody
/// knows all programs. A shell line is not judged by it: its words may be anything.
pub fn hidden_part(working: &str, path: &str) -> Option<ObeyedPart> {
    let start = if working == "/" { 0 } else { working.len() };
    let rest = path.get(start..).filter(|_| path::is_within(working, path))?;
    let (at, _) = rest.match_indices("/.").find(|(at, _)| {
        let name = rest[at + 1..].split('/').next().unwrap_or_default();
        !is_harmless(name)
    })?;
    let from = start + at;
    let to = path[from + 1..].find('/').map_or(path.len(), |end| from + 1 + end);
    Some(ObeyedPart { from, to, because: BY_UNKNOWN })
}

/// Reports whether no program obeys a hidden file of this name.
fn is_harmless(name: &str) -> bool {
    let lower = name.to_ascii_lowercase();
    HARMLESS.split_ascii_whitespace().any(|pattern| match pattern.split_once('*') {
        Some((begin, end)) => lower.len() > pattern.len() && lower.starts_with(begin) && lower.ends_with(end),
        None => lower == pattern,
    })
}

/// Returns why a broad rule does not cover a change of `path`, if it is such a file; follows "which". A relative path counts from the
/// working folder `working`, which is absolute.
pub fn obeyed_by(working: &str, path: &str) -> Option<&'static str> {
    obeyed_part(&path::resolve("/", working), &path::resolve(working, path)).map(|obeyed| obeyed.because)
}

fn match_parts(parts: &[(usize, &str)]) -> Option<ObeyedPart> {
    let ((at, name), behind) = parts.split_first()?;
    let from = at.saturating_sub(1);
    let lower = name.to_ascii_lowercase();
    if let Some((_, because)) = ENDS.iter().find(|(end, _)| lower.ends_with(end)) {
        return Some(ObeyedPart { from, to: at + name.len(), because });
    }
    if let [(file_at, file)] = behind
        && is_hook(&lower, &file.to_ascii_lowercase())
    {
        return Some(ObeyedPart { from, to: file_at + file.len(), because: BY_HOOKS });
    }
    let rests: Vec<&NameTail> = match name.contains(GlobForm::SIGN) {
        false => BY_FIRST.get(&lower).into_iter().flatten().collect(),
        // A wildcard alone matches no name that begins with a dot.
        true if name.starts_with('.') => {
            BY_FIRST.iter().filter(|(first, _)| may_be(&lower, first)).flat_map(|(_, rests)| rests).collect()
        }
        true => Vec::new(),
    };
    let fits = |rest: &NameTail| {
        rest.0.len() <= behind.len()
            && rest.0.iter().zip(behind).all(|(expected, (_, part))| may_be(&part.to_ascii_lowercase(), expected))
    };
    if let Some((rest, because)) = rests.into_iter().find(|rest| fits(rest)) {
        let to = rest.len().checked_sub(1).map_or(at + name.len(), |last| behind[last].0 + behind[last].1.len());
        return Some(ObeyedPart { from, to, because });
    }
    if let Some(because) = derived_name_reason(&lower) {
        return Some(ObeyedPart { from, to: at + name.len(), because });
    }
    let (own_at, own) = behind.first().filter(|_| lower.starts_with('.') && !lower.contains(GlobForm::SIGN))?;
    let is_of_agent = OF_AGENTS.split_ascii_whitespace().any(|known| own.eq_ignore_ascii_case(known));
    is_of_agent.then(|| ObeyedPart { from, to: own_at + own.len(), because: BY_AGENT })
}

/// Returns why a name counts that is one of these with a suffix, or with text before its last dot: `.envrc.local`, `lefthook-local.yml`.
fn derived_name_reason(lower: &str) -> Option<&'static str> {
    let known = |name: &str| {
        let mut rests = BY_FIRST.get(name)?.iter();
        rests.find(|(rest, _)| rest.is_empty()).map(|(_, because)| *because)
    };
    let end = lower.rfind('.').filter(|at| *at > 0 && at + 1 < lower.len())?;
    let longer = lower.match_indices('.').filter(|(at, _)| *at > 0).find_map(|(at, _)| known(&lower[..at]));
    let with_end = |at: usize| known(&format!("{}{}", &lower[..at], &lower[end..]));
    let between = || lower[..end].match_indices(['-', '_', '.']).filter(|(at, _)| *at > 1).map(|(at, _)| at);
    longer.or_else(|| between().find_map(with_end))
}

/// Reports whether `file` in `folder` may be a hook of version control. Of two names with wildcards nothing is known.
fn is_hook(folder: &str, file: &str) -> bool {
    !(folder.contains(GlobForm::SIGN) && file.contains(GlobForm::SIGN))
        && HOOK_FOLDERS.iter().any(|hooks| may_be(folder, hooks))
        && HOOKS.split_ascii_whitespace().any(|hook| may_be(file, hook))
}

/// Reports whether a part of a path, perhaps with wildcards, may be `name`.
fn may_be(part: &str, name: &str) -> bool {
    let Some(begin) = part.split(GlobForm::SIGN).next().filter(|begin| begin.len() < part.len()) else {
        return part == name;
    };
    // Brackets are not kept apart from the text after the wildcard.
    let end = part.rsplit([GlobForm::SIGN, ']']).next().unwrap_or_default();
    name.starts_with(begin) && name.ends_with(end)
}

#[cfg(test)]
mod tests {
    use super::{hidden_part, obeyed_part, part_of_file};
    use crate::GlobForm;

    #[test]
    fn obeyed_files_are_recognised_by_name() {
        for path in [
            "/w/.git/hooks/pre-commit",
            "/w/.git",
            "/w/vendor/sub/.git/config",
            "/w/.GIT/config",
            "/w/.git/modules/sub/config",
            "/w/.husky/pre-commit",
            "/w/.github/workflows/ci.yml",
            "/w/.gitlab-ci.yml",
            "/w/Jenkinsfile",
            "/w/.envrc",
            "/w/a/.vscode/tasks.json",
            "/w/x.code-workspace",
            "/w/.claude/settings.json",
            "/srv/x/.codex/config.toml",
            "/srv/x/.gemini/settings.json",
            "/srv/x/.opencode/plugin/a.js",
            "/home/ana/.bashrc",
            "/home/ana/.config/fish/config.fish",
            "/etc/profile.d/x.sh",
            "/w/.gi*/hooks/x",
            "/w/.g*",
            "/w/.config/fis*",
            "/w/hooks/pre-commit",
            "/w/githooks/post-checkout",
            "/w/tools/Hooks/update",
            "/w/hooks/pre-*",
            "/w/hooks/pre-*c]ommit",
            "/w/hooks/*",
            "/w/hook*/commit-msg",
            "/w/.tekton/push.yaml",
            "/w/.harness/pipeline.yaml",
            "/w/.drone.yaml",
            "/w/.drone.jsonnet",
            "/w/codefresh.yml",
            "/w/bitrise.yml",
            "/w/codemagic.yaml",
            "/w/.cursorrules",
            "/w/.windsurfrules",
            "/w/.clinerules/style.md",
            "/w/.roomodes",
            "/home/ana/.config/codex/config.toml",
            "/w/mcp.json",
            "/w/.nova/Tasks/x.json",
            "/w/x.sublime-build",
            "/w/.envrc.local",
            "/home/ana/.zshrc.local",
            "/w/Jenkinsfile.prod",
            "/w/lefthook-local.yml",
            "/w/azure-pipelines-pr.yml",
            "/w/AGENTS.md",
            "/w/sub/CLAUDE.md",
            "/w/CLAUDE.local.md",
            "/w/GEMINI.md",
            "/w/.newagent/settings.json",
            "/w/.newagent/hooks/x.sh",
            "/w/.newagent/commands/x.md",
        ] {
            let path = path.replace('*', &GlobForm::SIGN.to_string());
            assert!(obeyed_part("/w", &path).is_some(), "{path}");
        }
        for path in [
            "/w/src/hooks/use.ts",
            "/w/src/hooks",
            "/w/src/hooks/*.ts",
            "/w/src/hooks/update.ts",
            "/w/src/hooks/update/use.ts",
            "/w/src/*/*",
            "/w/pre-commit",
            "/w/scripts/update",
            "/w/.gitignore",
            "/w/.gitattributes",
            "/w/x.git",
            "/w/git/config",
            "/w/.config/app",
            "/w/README.md",
            "/w/agents.rs",
            "/w/.newagent/notes.txt",
            "/w/.env.local",
            "/w/a-b.yml",
            "/w/lefthook-local.rs",
            "/w/settings.json",
            "/w/*",
            "/w/*.yml",
            "/w/package.json",
            "/w",
        ] {
            let path = path.replace('*', &GlobForm::SIGN.to_string());
            assert_eq!(obeyed_part("/w", &path), None, "{path}");
        }
    }

    #[test]
    fn a_file_of_the_system_or_hidden_at_home_counts_where_it_is_written() {
        let found = |working: &str, path: &str| part_of_file(working, Some("/home/ana"), path);
        for (path, named) in [
            ("/etc/passwd", "/etc"),
            ("/usr/local/bin/x", "/usr"),
            ("/lib/systemd/system/x.service", "/lib"),
            ("/boot/x", "/boot"),
            ("/opt/x", "/opt"),
            ("/home/ana/.foorc", "/.foorc"),
            ("/home/ana/.foo/x/y", "/.foo"),
            ("/home/ana/.config/app/x", "/.config/app"),
            ("/home/ana/.local/bin/x", "/.local/bin"),
            ("/home/ana/.config", "/.config"),
        ] {
            let obeyed = found("/w", path).unwrap();
            assert_eq!(&path[obeyed.from..obeyed.to], named, "{path}");
        }
        for path in ["/w/a", "/srv/x", "/tmp/x", "/home/ana/x", "/home/ana/x/.foo", "/home/bob/.foorc", "/dev/null"] {
            assert_eq!(found("/w", path), None, "{path}");
        }
        assert_eq!(found("/home/ana/.work/x", "/home/ana/.work/x/a"), None);
        assert_eq!(found("/usr/src/x", "/usr/src/x/a"), None);
        assert_eq!(part_of_file("/w", Some("/usr/home/ana"), "/usr/home/ana/a"), None);
        assert!(found("/home/ana", "/home/ana/.foorc").is_some());
    }

    #[test]
    fn a_hidden_file_of_the_working_folder_counts_where_it_is_written() {
        for (path, named) in [
            ("/w/.rvmrc", Some("/.rvmrc")),
            ("/w/sub/.lintstagedrc.json", Some("/.lintstagedrc.json")),
            ("/w/.idx/dev.nix", Some("/.idx")),
            ("/w/.env", Some("/.env")),
            ("/w/a/.unheard-of/b/c.txt", Some("/.unheard-of")),
            ("/w/.gitignore/.hooks", Some("/.hooks")),
            ("/w/.gitignore", None),
            ("/w/.dockerignore", None),
            ("/w/.env.example", None),
            ("/w/sub/.gitkeep", None),
            ("/w/a.b/c", None),
            ("/w/src/main.rs", None),
            ("/w", None),
            ("/elsewhere/.rvmrc", None),
            ("/ws/.rvmrc", None),
        ] {
            let found = hidden_part("/w", path).map(|part| &path[part.from..part.to]);
            assert_eq!(found, named, "{path}");
        }
        assert!(hidden_part("/", "/.x").is_some());
        assert_eq!(hidden_part("/w/.work/x", "/w/.work/x/a"), None);
    }

    #[test]
    fn a_working_folder_in_such_a_folder_is_worked_in() {
        assert_eq!(obeyed_part("/w/.claude/worktrees/x", "/w/.claude/worktrees/x/src/a.rs"), None);
        assert!(obeyed_part("/w/.claude/worktrees/x", "/w/.claude/worktrees/x/.git").is_some());
        assert!(obeyed_part("/w/.claude/worktrees/x", "/w/.claude/settings.json").is_some());
        assert_eq!(obeyed_part("/etc/cron.d", "/etc/cron.d/x"), None);
        assert_eq!(obeyed_part("/w", "/etc/passwd"), None);
        let found = obeyed_part("/", "/a/.config/fish/x").unwrap();
        assert_eq!(&"/a/.config/fish/x"[found.from..found.to], "/.config/fish");
    }
}
