//! The flags that hosts start the adapter with. Source: docs/protocol/omp.md, Starting.

mod restrictive_flags;
mod stage_flag;

use std::{collections::BTreeSet, path::PathBuf};

use countersign_core::policy::ApprovalMode;

pub use self::stage_flag::StageFlag;

use self::restrictive_flags::{parse_tools, refusal_for, set_once};
use countersign_agent_dir::{AgentProduct, ProcessEnvironment};

/// Flags of the command line. Flags without a meaning here are accepted and ignored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AdapterFlags {
    /// Product whose adapter it is.
    pub product: AgentProduct,
    /// `--mode`.
    pub mode: Option<String>,
    /// `--provider`.
    pub provider: Option<String>,
    /// `--model`, with or without its provider.
    pub model: Option<String>,
    /// `--models a,b`: what `cycle_model` goes through.
    pub models: Vec<String>,
    /// `--api-key`.
    pub api_key: Option<String>,
    /// `--thinking`.
    pub thinking: Option<String>,
    /// `--session-dir`.
    pub session_dir: Option<PathBuf>,
    /// `--no-session`.
    pub no_session: bool,
    /// `--continue`.
    pub continues: bool,
    /// `--resume` or `--session`: a path or the beginning of an id.
    pub resume: Option<String>,
    /// `--fork`: a path or the beginning of an id.
    pub fork: Option<String>,
    /// `--tools a,b`.
    pub tools: Option<Vec<String>>,
    /// `--no-tools`, or `--no-builtin-tools`: tools of the host are its own affair.
    pub no_tools: bool,
    /// `--exclude-tools a,b`, of every time that it is given: names or patterns, of tools of the host too.
    pub excluded_tools: BTreeSet<String>,
    /// `--approval-mode`, or `--yolo`.
    pub approval: Option<ApprovalMode>,
    /// `--config`: settings over those of the usual files.
    pub configs: Vec<PathBuf>,
    /// `--no-context-files`: no instructions of `AGENTS.md` and its kin.
    pub no_context_files: bool,
    /// `--no-prompt-templates`: a text that begins with a slash stands for no file.
    pub no_templates: bool,
    /// `--system-prompt`.
    pub system_prompt: Option<String>,
    /// `--append-system-prompt`.
    pub append_system_prompt: Option<String>,
    /// `--permissions`: the rules file (ours).
    pub permissions: Option<PathBuf>,
    /// `--attach`: the session lives in the gateway of this machine (ours).
    pub attach: bool,
    /// `--attach=DIR`: in the gateway with this data directory.
    pub attach_to: Option<PathBuf>,
    /// `--listen`, of gjc alone: the socket to listen on in place of standard input.
    pub listen: Option<PathBuf>,
    /// `--insecure`, of gjc alone: the bridge does without TLS, on loopback.
    pub insecure: bool,
    /// `--stage`, of gjc alone (ours): the stage of a workflow that the first message starts.
    pub stage: Option<StageFlag>,
    /// `--allow-home`.
    pub allow_home: bool,
    /// `--cwd`.
    pub cwd: Option<PathBuf>,
    /// `--no-merge-deltas` (ours): one update for each piece that a provider sends.
    pub no_merge: bool,
    /// Flags that load code which is not run here.
    pub not_run: Vec<String>,
    /// Unknown flags. Hosts pass those of the original.
    pub unknown: Vec<String>,
    /// `@file` arguments, which this mode refuses.
    pub files: Vec<String>,
    /// `--help` or `-h`.
    pub help: bool,
    /// `--version` or `-v`.
    pub version: bool,
}

impl AdapterFlags {
    /// Reports whether the host shows the questions of tools as dialogs.
    pub fn shows_dialogs(&self) -> bool {
        matches!(self.mode.as_deref(), Some("rpc-ui" | "bridge"))
    }

    /// Returns the files of settings over the usual ones: those that `PI_CONFIG_FILES` names, then those of `--config`.
    pub(super) fn config_overlays(&self, environment: &ProcessEnvironment) -> Vec<PathBuf> {
        let named = environment.get("PI_CONFIG_FILES").unwrap_or_default();
        let named = named.split(':').filter(|file| !file.is_empty()).map(PathBuf::from);
        named.chain(self.configs.iter().cloned()).collect()
    }
}

/// A flag as the help text shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlagHelp {
    /// Its name, without the dashes.
    pub name: &'static str,
    /// Name of its value, if it takes one.
    pub value: Option<&'static str>,
    /// Purpose of the flag.
    pub help: &'static str,
}

/// The flags that mean something here, one spelling of each.
pub const FLAG_HELP: [FlagHelp; 27] = [
    value_flag("mode", "rpc|rpc-ui", "Protocol on standard input and output"),
    value_flag("provider", "PROVIDER", "Provider of the model"),
    value_flag("model", "MODEL", "Model: id, provider/id, or part of a name"),
    value_flag("models", "PATTERNS", "Models for cycle_model"),
    value_flag("api-key", "KEY", "API key for the provider of the first model"),
    value_flag("thinking", "LEVEL", "Thinking level: off, minimal, low, medium, high or xhigh"),
    value_flag("session-dir", "DIR", "Folder of session files"),
    switch_flag("no-session", "Keep no session file"),
    switch_flag("continue", "Continue the newest session of the working folder"),
    value_flag("resume", "SESSION", "Continue a session: a file, or the beginning of an id"),
    value_flag("fork", "SESSION", "Start a new session with the conversation of another"),
    value_flag("approval-mode", "MODE", "Calls that need an approval: always-ask, write or yolo"),
    switch_flag("yolo", "Same as --approval-mode yolo"),
    value_flag("tools", "NAMES", "Tools that runs can use"),
    switch_flag("no-tools", "Disable all tools except those of the host (also --no-builtin-tools)"),
    value_flag("exclude-tools", "NAMES", "Tools that runs cannot use"),
    value_flag("config", "FILE", "Settings that override config.yml"),
    switch_flag("no-context-files", "Do not read AGENTS.md"),
    switch_flag("no-prompt-templates", "Do not read files for slash commands"),
    value_flag("system-prompt", "TEXT", "System prompt, or a file that contains it"),
    value_flag("append-system-prompt", "TEXT", "Text to append to the system prompt, or a file that contains it"),
    value_flag("permissions", "FILE", "Rules file, instead of the agent directory's"),
    switch_flag(
        "attach",
        "Run the session in the gateway of this machine (--attach=DIR: in the gateway with this data directory)",
    ),
    switch_flag("allow-home", "Allow the home folder as the working folder"),
    value_flag("cwd", "DIR", "Working folder"),
    switch_flag("no-merge-deltas", "Send an update for every piece from the provider"),
    value_flag("extension", "FILE", "Accepted, but not run"),
];

const fn value_flag(name: &'static str, value: &'static str, help: &'static str) -> FlagHelp {
    FlagHelp { name, value: Some(value), help }
}

const fn switch_flag(name: &'static str, help: &'static str) -> FlagHelp {
    FlagHelp { name, value: None, help }
}

/// Flags that take a value which means nothing here.
const IGNORED_WITH_VALUE: [&str; 8] =
    ["--skills", "--plugin-dir", "--provider-session-id", "--smol", "--slow", "--plan", "--export", "--theme"];

/// Flags that take a value and are reported to a host.
const REPORTED_WITH_VALUE: [&str; 8] = [
    "--add-dir",
    "--agent",
    "--alias",
    "--name",
    "--prompt-cache-key",
    "--prompt-template",
    "--service-tier",
    "--skill",
];

/// Flags of the originals that switch off what is not here anyway. Hosts pass them at every start.
const IGNORED: [&str; 12] = [
    "--no-title",
    "--no-lsp",
    "--no-pty",
    "--no-rules",
    "--no-skills",
    "-ns",
    "--no-extensions",
    "-ne",
    "--no-themes",
    "--offline",
    "--verbose",
    "--hide-thinking",
];

/// Returns the flags of the adapter as a table for a person.
pub fn help_table() -> String {
    let name = |listed: &FlagHelp| match listed.value {
        Some(value) => format!("--{} {value}", listed.name),
        None => format!("--{}", listed.name),
    };
    let width = FLAG_HELP.iter().map(|listed| name(listed).len()).max().unwrap_or_default();
    FLAG_HELP.iter().map(|listed| format!("  {:width$}  {}\n", name(listed), listed.help)).collect()
}

/// Reads the arguments after `omp`.
///
/// # Errors
/// The flag that lacks its value or has an invalid one; the one that restricts and is not enforced here; the one that
/// was probably meant to restrict, by its letters or its words. Without it the session would have other rights than its host expects.
pub fn parse(arguments: impl IntoIterator<Item = String>) -> Result<AdapterFlags, String> {
    parse_for(AgentProduct::Omp, arguments)
}

/// Reads the arguments after the name of an adapter of `product`.
///
/// # Errors
/// As [`parse`].
pub fn parse_for(product: AgentProduct, arguments: impl IntoIterator<Item = String>) -> Result<AdapterFlags, String> {
    let mut flags = AdapterFlags { product, ..AdapterFlags::default() };
    let mut arguments = arguments.into_iter().peekable();
    while let Some(argument) = arguments.next() {
        if restrictive_flags::is_message(&argument) {
            continue;
        }
        let (name, mut inline) = match argument.split_once('=') {
            Some((name, value)) if name.starts_with('-') => (name.to_owned(), Some(value.to_owned())),
            _ => (argument, None),
        };
        let is_bare = inline.is_none() && arguments.peek().is_none_or(|next| next.starts_with('-'));
        // A flag that restricts is never taken for the value of another.
        let mut value = || {
            let next = inline.take().or_else(|| arguments.next_if(|next| !restrictive_flags::is_flag(next)));
            next.ok_or_else(|| format!("{name} needs a value"))
        };
        match name.as_str() {
            "--mode" => flags.mode = Some(value()?),
            "--provider" => flags.provider = Some(value()?),
            "--model" => flags.model = Some(value()?),
            "--models" => flags.models = restrictive_flags::parse_patterns(&name, &value()?)?,
            "--api-key" => flags.api_key = Some(value()?),
            "--thinking" => flags.thinking = Some(restrictive_flags::parse_level(value()?)?),
            "--session-dir" => flags.session_dir = Some(restrictive_flags::parse_folder(&name, value()?)?),
            "--no-session" => flags.no_session = true,
            "--continue" | "-c" => flags.continues = true,
            // Without a session: the newest one.
            "--resume" | "-r" | "--session" if product == AgentProduct::Gjc && is_bare => flags.continues = true,
            "--resume" | "-r" | "--session" => flags.resume = Some(value()?),
            "--fork" => flags.fork = Some(value()?),
            "--tools" | "-t" => {
                set_once("--tools", &mut flags.tools, parse_tools(&name, &value()?)?, |names| names.join(","))?;
            }
            "--no-tools" | "-nt" | "--no-builtin-tools" | "-nbt" => flags.no_tools = true,
            "--exclude-tools" | "-xt" => {
                flags.excluded_tools.extend(restrictive_flags::parse_excluded(&name, &value()?)?)
            }
            "--approval-mode" => {
                let mode = restrictive_flags::parse_approval_mode(&value().unwrap_or_default())?;
                set_once("--approval-mode", &mut flags.approval, mode, |mode| mode.name().to_owned())?;
            }
            "--yolo" | "--auto-approve" => {
                set_once("--approval-mode", &mut flags.approval, ApprovalMode::Yolo, |mode| mode.name().to_owned())?;
            }
            "--config" => flags.configs.push(restrictive_flags::parse_file(&name, value()?)?),
            // Files of a project are read in any case.
            "--approve" | "-a" => {}
            "--no-context-files" | "-nc" => flags.no_context_files = true,
            "--no-prompt-templates" | "-np" => flags.no_templates = true,
            "--system-prompt" => flags.system_prompt = Some(value()?),
            "--append-system-prompt" => flags.append_system_prompt = Some(value()?),
            "--permissions" => {
                let file = restrictive_flags::parse_file(&name, value()?)?;
                set_once("--permissions", &mut flags.permissions, file, |file| file.display().to_string())?;
            }
            "--attach" => {
                flags.attach = true;
                flags.attach_to = inline.take().map(PathBuf::from);
            }
            "--allow-home" => flags.allow_home = true,
            "--cwd" => flags.cwd = Some(restrictive_flags::parse_folder(&name, value()?)?),
            "--listen" if product == AgentProduct::Gjc => flags.listen = Some(value()?.into()),
            "--insecure" if product == AgentProduct::Gjc => flags.insecure = true,
            "--stage" if product == AgentProduct::Gjc => {
                flags.stage = Some(StageFlag::from_name(&value()?).map_err(|problem| format!("--stage: {problem}"))?);
            }
            "--print" | "-p" if product == AgentProduct::Gjc => {}
            "--no-merge-deltas" => flags.no_merge = true,
            "-e" | "--extension" | "--hook" | "--trusted-extension" => {
                let file = value()?;
                flags.not_run.push(format!("{name} {file}"));
            }
            ignored if IGNORED.contains(&ignored) => drop(inline.take()),
            ignored if IGNORED_WITH_VALUE.contains(&ignored) => drop(value()?),
            reported if REPORTED_WITH_VALUE.contains(&reported) => {
                value()?;
                flags.unknown.push(reported.to_owned());
            }
            "--help" | "-h" => flags.help = true,
            "--version" | "-v" => flags.version = true,
            other if other.starts_with('@') => flags.files.push(other.to_owned()),
            other => match refusal_for(other) {
                Some(problem) => return Err(problem),
                None if other.starts_with('-') => {
                    inline = None;
                    flags.unknown.push(other.to_owned());
                }
                None => {}
            },
        }
        if let Some(value) = inline {
            return Err(format!("{name} takes no value, found {value:?}: leave the flag out to switch it off"));
        }
    }
    Ok(flags)
}

fn split_list(value: &str) -> Vec<String> {
    value.split(',').map(str::trim).filter(|part| !part.is_empty()).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use countersign_core::policy::ApprovalMode;

    use super::{AdapterFlags, AgentProduct, FLAG_HELP, StageFlag, parse, parse_for};

    fn read(line: &str) -> Result<AdapterFlags, String> {
        parse(line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn flags_are_read_and_unknown_ones_noted() {
        for (line, want) in [
            (
                "--mode rpc --model p/m",
                AdapterFlags { mode: Some("rpc".into()), model: Some("p/m".into()), ..AdapterFlags::default() },
            ),
            (
                "--models=a,b --no-lsp --what",
                AdapterFlags {
                    models: vec!["a".into(), "b".into()],
                    unknown: vec!["--what".into()],
                    ..AdapterFlags::default()
                },
            ),
            ("--skills x --continue hello", AdapterFlags { continues: true, ..AdapterFlags::default() }),
            ("@file.txt", AdapterFlags { files: vec!["@file.txt".into()], ..AdapterFlags::default() }),
            ("-e x.ts", AdapterFlags { not_run: vec!["-e x.ts".into()], ..AdapterFlags::default() }),
        ] {
            assert_eq!(read(line), Ok(want), "{line}");
        }
    }

    #[test]
    fn flags_that_restrict_are_read_or_refused() {
        let names = |names: &[&str]| Some(names.iter().map(|name| (*name).to_owned()).collect());
        let read_and_find = AdapterFlags { tools: names(&["read", "find"]), ..AdapterFlags::default() };
        for (line, want) in [
            ("--approval-mode write", AdapterFlags { approval: Some(ApprovalMode::Write), ..AdapterFlags::default() }),
            (
                "--approval-mode=always-ask",
                AdapterFlags { approval: Some(ApprovalMode::AlwaysAsk), ..AdapterFlags::default() },
            ),
            (
                "--approval-mode yolo --yolo",
                AdapterFlags { approval: Some(ApprovalMode::Yolo), ..AdapterFlags::default() },
            ),
            ("--auto-approve", AdapterFlags { approval: Some(ApprovalMode::Yolo), ..AdapterFlags::default() }),
            ("--tools Read,glob", read_and_find.clone()),
            ("-t read,find --tools=read,glob", read_and_find),
            ("--no-builtin-tools", AdapterFlags { no_tools: true, ..AdapterFlags::default() }),
            ("-nbt", AdapterFlags { no_tools: true, ..AdapterFlags::default() }),
            ("-nt", AdapterFlags { no_tools: true, ..AdapterFlags::default() }),
            (
                "--exclude-tools bash -xt write,bash",
                AdapterFlags { excluded_tools: ["bash", "write"].map(str::to_owned).into(), ..AdapterFlags::default() },
            ),
            (
                "--config a.yml --config=b.yml",
                AdapterFlags { configs: vec!["a.yml".into(), "b.yml".into()], ..AdapterFlags::default() },
            ),
            ("-nc -np", AdapterFlags { no_context_files: true, no_templates: true, ..AdapterFlags::default() }),
            ("--no-themes --add-dir /x", AdapterFlags { unknown: vec!["--add-dir".into()], ..AdapterFlags::default() }),
        ] {
            assert_eq!(read(line), Ok(want), "{line}");
        }
        let modes = "expected one of always-ask, write, yolo";
        let names = "expected tool names separated by commas, such as read,grep; use --no-tools for none";
        let patterns = "expected model patterns separated by commas, such as claude-*";
        for (line, want) in [
            ("--approval-mode", format!("--approval-mode \"\": {modes}")),
            ("--approval-mode=", format!("--approval-mode \"\": {modes}")),
            ("--approval-mode ask", format!("--approval-mode \"ask\": {modes}")),
            ("--approval-mode --no-session", format!("--approval-mode \"\": {modes}")),
            ("--approval-mode --yolo", format!("--approval-mode \"--yolo\": {modes}")),
            (
                "--approval-mode write --yolo",
                "--approval-mode is given twice, as write and as yolo: expected one value".to_owned(),
            ),
            ("--tools=", format!("--tools \"\": {names}")),
            ("--tools ,", format!("--tools \",\": {names}")),
            ("--exclude-tools=", format!("--exclude-tools \"\": {names}")),
            ("--tools read --tools bash", "--tools is given twice, as read and as bash: expected one value".to_owned()),
            ("--config=", "--config \"\": expected the name of a file".to_owned()),
            ("--permissions=", "--permissions \"\": expected the name of a file".to_owned()),
            (
                "--permissions a --permissions b",
                "--permissions is given twice, as a and as b: expected one value".to_owned(),
            ),
            ("--session-dir=", "--session-dir \"\": expected the name of a folder".to_owned()),
            ("--cwd=", "--cwd \"\": expected the name of a folder".to_owned()),
            ("--models=", format!("--models \"\": {patterns}")),
            ("--models ,", format!("--models \",\": {patterns}")),
            (
                "--thinking bogus",
                "--thinking \"bogus\": expected one of off, minimal, low, medium, high, xhigh".to_owned(),
            ),
        ] {
            assert_eq!(read(line), Err(want), "{line}");
        }
        for line in ["--max-time 5m", "--profile work", "--no-approve", "-na"] {
            let name = line.split(' ').next().unwrap_or(line);
            assert!(read(line).is_err_and(|problem| problem.starts_with(&format!("{name}: "))), "{line}");
        }
    }

    #[test]
    fn a_switch_takes_no_value() {
        for flag in [
            "--yolo",
            "--auto-approve",
            "--no-tools",
            "--no-builtin-tools",
            "--no-session",
            "--no-context-files",
            "--no-prompt-templates",
            "--continue",
            "--approve",
            "--allow-home",
            "--no-merge-deltas",
            "--help",
        ] {
            for value in ["false", "true", "0", ""] {
                let want = format!("{flag} takes no value, found {value:?}: leave the flag out to switch it off");
                assert_eq!(read(&format!("{flag}={value}")), Err(want), "{flag}={value}");
            }
        }
        for line in ["--attach=/x", "--no-title=1", "--what=1", "--model=m", "--name=n", "-x=1", "-r=id", "-e=x.ts"] {
            assert!(read(line).is_ok(), "{line}");
        }
    }

    #[test]
    fn a_short_flag_that_restricts_is_read_or_refused() {
        let tools = AdapterFlags { tools: Some(vec!["read".into()]), ..AdapterFlags::default() };
        let excluded = |names: &[&str]| AdapterFlags {
            excluded_tools: names.iter().map(|name| (*name).to_owned()).collect(),
            ..AdapterFlags::default()
        };
        for (line, want) in [
            ("-t=read", tools.clone()),
            ("-t read", tools),
            ("-xt=bash", excluded(&["bash"])),
            ("-xt=bash,write", excluded(&["bash", "write"])),
        ] {
            for product in [AgentProduct::Omp, AgentProduct::Gjc] {
                let want = AdapterFlags { product, ..want.clone() };
                assert_eq!(parse_for(product, line.split(' ').map(str::to_owned)), Ok(want), "{line}");
            }
        }
        for (line, want) in [
            ("-nt=1", "-nt takes no value, found \"1\": leave the flag out to switch it off"),
            ("-nbt=true", "-nbt takes no value, found \"true\": leave the flag out to switch it off"),
            ("-nc=1", "-nc takes no value, found \"1\": leave the flag out to switch it off"),
            ("-t=", "-t \"\": expected tool names separated by commas, such as read,grep; use --no-tools for none"),
            ("-tread", "-tread is not a known flag: write -t NAMES, or --tread for a flag of that name"),
            ("-xtbash", "-xtbash is not a known flag: write -xt NAMES, or --xtbash for a flag of that name"),
            ("-nt1", "-nt1 is not a known flag: write -nt, or --nt1 for a flag of that name"),
            ("-nbttrue", "-nbttrue is not a known flag: write -nbt, or --nbttrue for a flag of that name"),
            ("-T read", "-T is not a known flag: write -t NAMES"),
            ("-XT=bash", "-XT is not a known flag: write -xt NAMES, or --XT for a flag of that name"),
            ("-ct read", "-ct is not a known flag: write -t NAMES, or --ct for a flag of that name"),
            ("-pnt", "-pnt is not a known flag: write -nt, or --pnt for a flag of that name"),
            ("-tools read", "-tools is not a known flag; did you mean --tools?"),
            ("-no-tools", "-no-tools is not a known flag; did you mean --no-tools?"),
            ("-approval-mode=write", "-approval-mode is not a known flag; did you mean --approval-mode?"),
            (
                "-allowed-tools read",
                "-allowed-tools is not a known flag, and its name suggests a restriction: use --tools or \
                 --exclude-tools with names of tools, or --permissions with a rules file",
            ),
            ("\u{2014}tools read", "\u{2014}tools starts with '\u{2014}' instead of a hyphen: write --tools"),
            ("\u{2014}tools=x", "\u{2014}tools=x starts with '\u{2014}' instead of a hyphen: write --tools=x"),
            ("\u{2013}\u{2013}yolo", "\u{2013}\u{2013}yolo starts with '\u{2013}' instead of a hyphen: write --yolo"),
            ("-\u{2013}tools read", "-\u{2013}tools starts with '\u{2013}' instead of a hyphen: write --tools"),
            ("\u{2212}t read", "\u{2212}t starts with '\u{2212}' instead of a hyphen: write -t"),
        ] {
            for product in [AgentProduct::Omp, AgentProduct::Gjc] {
                assert_eq!(parse_for(product, line.split(' ').map(str::to_owned)), Err(want.to_owned()), "{line}");
            }
        }
        for line in ["-x", "-s value", "-canary", "-print", "-name n", "- \u{2014}", "a\u{2014}b"] {
            assert!(read(line).is_ok(), "{line}: {:?}", read(line));
        }
    }

    #[test]
    fn a_message_that_begins_with_a_dash_is_no_flag() {
        for message in [
            "- allow x = y",
            "- deny tools\n- ask",
            "-\tno tools",
            "\u{2014}always use tools",
            "\u{2014} use tools = x",
            "\u{2013}allow a=b",
        ] {
            for product in [AgentProduct::Omp, AgentProduct::Gjc] {
                let want = AdapterFlags { product, ..AdapterFlags::default() };
                assert_eq!(parse_for(product, [message.to_owned()]), Ok(want), "{message:?}");
            }
        }
        for flag in [
            "--allow x = y",
            "-allow x",
            "\u{2014}tools read",
            "\u{2014}t read",
            "\u{2014}\u{2014}tools read",
            "\u{2014}allow=a b",
            "-\u{2014}allow x",
        ] {
            assert!(parse([flag.to_owned()]).is_err(), "{flag:?}");
        }
    }

    #[test]
    fn a_flag_that_restricts_is_no_value_of_another() {
        for line in ["--model --no-tools", "--theme -nt", "--name --tools=x", "--system-prompt -xt bash", "--cwd -t=x"]
        {
            let name = line.split(' ').next().unwrap_or(line);
            assert_eq!(read(line), Err(format!("{name} needs a value")), "{line}");
        }
        assert!(read("--append-system-prompt --x --name -1").is_ok());
    }

    #[test]
    fn a_slip_in_a_flag_that_restricts_is_refused() {
        for (slip, meant) in [
            ("--approvalMode", "--approval-mode"),
            ("--approval_mode", "--approval-mode"),
            ("--aproval-mode=write", "--approval-mode"),
            ("--no-tool", "--no-tools"),
            ("--tool", "--tools"),
            ("--no-builtin-tool", "--no-builtin-tools"),
            ("--exclude-tool", "--exclude-tools"),
            ("--confg", "--config"),
            ("--no-sesion", "--no-session"),
            ("--noapprove", "--no-approve"),
            ("--moddels", "--models"),
            ("--max-tme", "--max-time"),
            ("--profil", "--profile"),
        ] {
            let name = slip.split('=').next().unwrap_or(slip);
            let want = format!("{name} is not a known flag; did you mean {meant}?");
            assert_eq!(read(slip), Err(want), "{slip}");
        }
    }

    #[test]
    fn a_slip_in_a_flag_that_carries_policy_is_refused() {
        for slip in ["--permision", "--permission", "--Permissions", "--premissions", "--permisions=x"] {
            let name = slip.split('=').next().unwrap_or(slip);
            let want = format!("{name} is not a known flag; did you mean --permissions?");
            assert_eq!(read(&format!("{slip} rules.yaml")), Err(want));
        }
        assert!(read("--perform x --models a").is_ok());
    }

    #[test]
    fn a_flag_of_another_program_that_restricts_by_its_name_is_refused() {
        let tools = "use --tools or --exclude-tools with names of tools, or --permissions with a rules file";
        let approvals = "use --approval-mode always-ask or --approval-mode write, or --permissions with a rules file";
        let holds = "use --tools read,grep,find,ls for a session that only reads, or countersign.sandbox in config.yml \
                     for commands";
        let limits = "sessions have no limit on turns, tokens, time or cost; end the process, or set countersign.bash_timeout in config.yml";
        for (instead, lines) in [
            (
                tools,
                &[
                    "--allowed-tools read",
                    "--allowedTools=read",
                    "--disallowed-tools bash",
                    "--deny-tool bash",
                    "--block x",
                    "--toolsets none",
                    "--no-bash",
                    "--disable_network",
                    "--without-edits",
                    "--disable bash",
                    "--noexec",
                ][..],
            ),
            (
                approvals,
                &[
                    "--permission-mode plan",
                    "--permit x",
                    "--approval never",
                    "--ask-for-approval",
                    "--confirm",
                    "--safe-mode",
                    "--manual",
                    "--no-yolo",
                    "--policy p.yaml",
                    "--dangerously-skip-permissions",
                ],
            ),
            (holds, &["--read-only", "--readonly", "--ro", "--sandbox workspace-write", "--SANDBOX", "--dry-run"]),
            (limits, &["--max-turns 3", "--max-budget-usd 1", "--rate-limit 5"]),
        ] {
            for line in lines {
                let name = line.split([' ', '=']).next().unwrap_or(line);
                let want = format!("{name} is not a known flag, and its name suggests a restriction: {instead}");
                for product in [AgentProduct::Omp, AgentProduct::Gjc] {
                    assert_eq!(parse_for(product, line.split(' ').map(str::to_owned)), Err(want.clone()), "{line}");
                }
            }
        }
    }

    #[test]
    fn a_flag_that_adds_comfort_is_noted() {
        for flag in ["--output-format", "--no-color", "--disable-telemetry", "--masked", "--retool", "-s", "--x-y_zW"] {
            let want = AdapterFlags { unknown: vec![flag.to_owned()], ..AdapterFlags::default() };
            assert_eq!(read(&format!("{flag} value")), Ok(want), "{flag}");
        }
    }

    /// As their `--help` and their readers of arguments have them, with a value where they take one. A flag that restricts in its
    /// original is in the tests above.
    #[test]
    fn no_flag_of_an_original_that_adds_comfort_is_refused() {
        let omp = "--smol m --slow m --plan m --prewalk --no-prewalk --prewalk-into m --plan-yolo --plan-yolo-into m --provider p \
                   --api-key k --system-prompt s --append-system-prompt s --allow-home --alias a --cwd d --mode rpc --config c \
                   --add-dir d --print --print-thoughts --continue --resume s --from-claude --from-codex --session-dir d --no-session \
                   --models m --no-tools --no-lsp --no-pty --tools read --thinking low --hide-thinking --advisor \
                   --external-thinking --hook h --extension e --trusted-extension t --plugin-dir d --no-extensions --no-skills \
                   --skills s --no-rules --export f --list-models --no-title --service-tier t --prompt-cache-key k \
                   --provider-session-id s --auto-approve --yolo --approval-mode yolo --session s --fork s --model m";
        let pi = "--name n -n n --session-id i --skill s --prompt-template f --theme t --use-theme t --no-themes --tui-mode regular \
                  --approve -a --verbose --offline --no-builtin-tools --exclude-tools bash --no-context-files \
                  --no-prompt-templates -c -e x -nbt -nc -ne -np -ns -nt -p -r s -t read -xt bash";
        for line in [omp, pi] {
            assert!(read(line).is_ok(), "{:?}", read(line));
        }
        let gjc =
            "--listen p --mode bridge --no-session --no-skills --no-rules --no-title --no-lsp --no-pty -p -c --session";
        assert!(parse_for(AgentProduct::Gjc, gjc.split_whitespace().map(str::to_owned)).is_ok());
    }

    #[test]
    fn every_listed_flag_is_one_that_is_read() {
        for listed in FLAG_HELP {
            let line = format!("--{} {}", listed.name, listed.value.unwrap_or_default());
            assert_ne!(read(&line), Ok(AdapterFlags::default()), "{line}");
            let alone = read(&format!("--{}", listed.name));
            assert_eq!(alone.is_err(), listed.value.is_some(), "{line}");
        }
    }

    #[test]
    fn gjc_has_flags_of_its_own() {
        let gjc = |line: &str| parse_for(AgentProduct::Gjc, line.split_whitespace().map(str::to_owned));
        let of = |flags: AdapterFlags| Ok(AdapterFlags { product: AgentProduct::Gjc, ..flags });
        for (line, want) in [
            ("-r --no-title", AdapterFlags { continues: true, ..AdapterFlags::default() }),
            ("--session", AdapterFlags { continues: true, ..AdapterFlags::default() }),
            ("--resume abc", AdapterFlags { resume: Some("abc".into()), ..AdapterFlags::default() }),
            (
                "--mode bridge --insecure",
                AdapterFlags { mode: Some("bridge".into()), insecure: true, ..AdapterFlags::default() },
            ),
            ("--stage ralplan", AdapterFlags { stage: Some(StageFlag::Ralplan), ..AdapterFlags::default() }),
            ("--stage=ultragoal", AdapterFlags { stage: Some(StageFlag::Ultragoal), ..AdapterFlags::default() }),
            ("--listen s.sock -p", AdapterFlags { listen: Some("s.sock".into()), ..AdapterFlags::default() }),
            ("--provider-session-id x -x", AdapterFlags { unknown: vec!["-x".into()], ..AdapterFlags::default() }),
        ] {
            assert_eq!(gjc(line), of(want), "{line}");
        }
        assert_eq!(read("--session"), Err("--session needs a value".to_owned()));
        assert_eq!(gjc("--stage"), Err("--stage needs a value".to_owned()));
        for stage in ["", "team", "Ralplan"] {
            let problem =
                format!("--stage: unknown stage {stage:?}: expected one of deep-interview, ralplan, ultragoal");
            assert_eq!(gjc(&format!("--stage={stage}")), Err(problem));
        }
    }

    #[test]
    fn a_flag_without_its_value_is_named() {
        assert_eq!(read("--mode rpc --model"), Err("--model needs a value".to_owned()));
    }
}
