//! Flags that take rights away, of the originals and by their names of any other program: each is enforced, or the start is refused.
//! Source: docs/protocol/omp.md, Fields that restrict.

use std::path::PathBuf;

use countersign_agent_dir::{
    names::{self, RestrictionKind},
    restrictions,
};
use countersign_config::suggest;
use countersign_core::policy::ApprovalMode;
use countersign_runtime::models::entry::ThinkingLevel;

/// Flags that restrict, and how many slips away from one a flag still counts as meant for it.
const RESTRICTING: [(&str, usize); 14] = [
    ("--permissions", 2),
    ("--approval-mode", 2),
    ("--no-builtin-tools", 2),
    ("--exclude-tools", 2),
    ("--no-context-files", 2),
    ("--no-prompt-templates", 2),
    ("--no-session", 2),
    ("--no-approve", 2),
    ("--max-time", 1),
    ("--profile", 1),
    ("--models", 1),
    ("--no-tools", 1),
    ("--tools", 1),
    ("--config", 1),
];

/// Flags of the originals that restrict and are not enforced here, with what to do instead.
const REFUSED: [(&str, &str); 4] = [
    ("--max-time", "sessions have no time limit; end the process, or set countersign.bash_timeout in config.yml"),
    ("--profile", "profiles are not supported; set PI_CODING_AGENT_DIR to the folder with the settings and rules"),
    ("--no-approve", "project files are read by default; use --no-context-files and --no-prompt-templates"),
    ("-na", "project files are read by default; use --no-context-files and --no-prompt-templates"),
];

/// Short flags that restrict, each with how it is written.
const SHORT: [(&str, &str); 6] =
    [("xt", "-xt NAMES"), ("nbt", "-nbt"), ("nt", "-nt"), ("nc", "-nc"), ("np", "-np"), ("t", "-t NAMES")];

/// Short flags that are switches: other programs let them stand before another in one word.
const SWITCHES: [char; 5] = ['a', 'c', 'h', 'p', 'v'];

/// Returns why a start with `flag` is refused, if it is: it restricts in an original and is not enforced here, it is a slip in one that
/// restricts, or its name says that it restricts.
pub(super) fn refusal_for(flag: &str) -> Option<String> {
    if let Some((_, problem)) = REFUSED.iter().find(|(name, _)| *name == flag) {
        return Some(format!("{flag}: {problem}"));
    }
    if let Some(problem) = dash_problem(flag) {
        return Some(problem);
    }
    let name = flag.strip_prefix('-')?;
    let is_letter = name.chars().nth(1).is_none();
    if let Some(meant) = misspelt_flag(flag).filter(|_| !is_letter) {
        return Some(format!("{flag} is not a known flag; did you mean {meant}?"));
    }
    if let Some(what) = names::restriction_of(name) {
        let instead = alternative_to(what);
        return Some(format!("{flag} is not a known flag, and its name suggests a restriction: {instead}"));
    }
    let written = short_flag(name)?;
    let whole = if is_letter { String::new() } else { format!(", or --{name} for a flag of that name") };
    Some(format!("{flag} is not a known flag: write {written}{whole}"))
}

/// Reports whether `argument` is a flag that restricts, and so no value of another.
pub(super) fn is_flag(argument: &str) -> bool {
    let name = argument.split('=').next().unwrap_or(argument);
    let is_short = || name.strip_prefix('-').is_some_and(|name| SHORT.iter().any(|(short, _)| *short == name));
    RESTRICTING.iter().any(|(flag, _)| *flag == name) || is_short()
}

/// Reports whether `argument` is a message and no flag: a dash before a blank, or several words after a dash that is no hyphen, the first
/// of which is no flag that restricts.
pub(super) fn is_message(argument: &str) -> bool {
    let Some(rest) = argument.strip_prefix(is_dash) else { return false };
    if rest.starts_with(char::is_whitespace) {
        return true;
    }
    let Some((word, _)) = rest.trim_start_matches(is_dash).split_once(char::is_whitespace) else { return false };
    !argument.starts_with('-')
        && !word.contains('=')
        && ![format!("--{word}"), format!("-{word}")].iter().any(|flag| is_flag(flag))
}

/// Returns what to use in the place of a flag of another program.
const fn alternative_to(what: RestrictionKind) -> &'static str {
    match what {
        RestrictionKind::Tools => {
            "use --tools or --exclude-tools with names of tools, or --permissions with a rules file"
        }
        RestrictionKind::Approvals => {
            "use --approval-mode always-ask or --approval-mode write, or --permissions with a rules file"
        }
        RestrictionKind::Reach => {
            "use --tools read,grep,find,ls for a session that only reads, or countersign.sandbox in config.yml for commands"
        }
        RestrictionKind::Amount => {
            "sessions have no limit on turns, tokens, time or cost; end the process, or set countersign.bash_timeout in config.yml"
        }
    }
}

/// Returns why an argument is refused that begins with a dash other than the hyphen, as word processors put it before a name.
fn dash_problem(argument: &str) -> Option<String> {
    let rest = argument.trim_start_matches(is_dash);
    let dash = argument[..argument.len() - rest.len()].chars().find(|letter| *letter != '-')?;
    if !rest.starts_with(char::is_alphanumeric) {
        return None;
    }
    let name = rest.split('=').next().unwrap_or(rest);
    let is_short = name.chars().nth(1).is_none() || SHORT.iter().any(|(short, _)| *short == name);
    let hyphens = if is_short { "-" } else { "--" };
    Some(format!("{argument} starts with {dash:?} instead of a hyphen: write {hyphens}{rest}"))
}

const fn is_dash(letter: char) -> bool {
    matches!(
        letter,
        '-' | '\u{ad}' | '\u{2010}'
            ..='\u{2015}' | '\u{2043}' | '\u{2212}' | '\u{2e3a}' | '\u{2e3b}' | '\u{fe58}' | '\u{fe63}' | '\u{ff0d}'
    )
}

/// Returns the spelling of the short flag that restricts and with which `name` begins, or ends after switches.
fn short_flag(name: &str) -> Option<&'static str> {
    let small = name.to_lowercase();
    let is_behind_switches =
        |short: &str| small.strip_suffix(short).is_some_and(|rest| rest.chars().all(|c| SWITCHES.contains(&c)));
    let begins = SHORT.iter().find(|(short, _)| small.starts_with(short));
    begins.or_else(|| SHORT.iter().find(|(short, _)| is_behind_switches(short))).map(|(_, written)| *written)
}

/// Returns the flag that restricts and that `flag` was probably meant to be.
fn misspelt_flag(flag: &str) -> Option<&'static str> {
    let near = RESTRICTING.into_iter().filter(|(name, most)| suggest::did_you_mean(flag, [*name], *most).is_some());
    near.min_by_key(|(_, most)| *most).map(|(name, _)| name)
}

/// Reads the value of `--approval-mode`.
pub(super) fn parse_approval_mode(value: &str) -> Result<ApprovalMode, String> {
    let accepted = ApprovalMode::ALL.map(ApprovalMode::name).join(", ");
    ApprovalMode::from_name(value).ok_or_else(|| format!("--approval-mode {value:?}: expected one of {accepted}"))
}

/// Reads names or patterns of tools with commas between, as tools are called here.
pub(super) fn parse_tools(flag: &str, value: &str) -> Result<Vec<String>, String> {
    let names = parse_excluded(flag, value)?;
    Ok(names.iter().map(|name| restrictions::name_of(name).to_owned()).collect())
}

/// Reads names or patterns of tools separated by commas, in lower case: a host may call its tools as an original does.
pub(super) fn parse_excluded(flag: &str, value: &str) -> Result<Vec<String>, String> {
    let names: Vec<String> = super::split_list(value).into_iter().map(|name| name.to_lowercase()).collect();
    if names.is_empty() {
        return Err(format!(
            "{flag} {value:?}: expected tool names separated by commas, such as read,grep; use --no-tools for none"
        ));
    }
    Ok(names)
}

/// Reads patterns of models with commas between.
pub(super) fn parse_patterns(flag: &str, value: &str) -> Result<Vec<String>, String> {
    let patterns = super::split_list(value);
    if patterns.is_empty() {
        return Err(format!("{flag} {value:?}: expected model patterns separated by commas, such as claude-*"));
    }
    Ok(patterns)
}

/// Reads the value of `--thinking`.
pub(super) fn parse_level(value: String) -> Result<String, String> {
    if let Some(level) = ThinkingLevel::parse(&value) {
        return Ok(level.as_str().to_owned());
    }
    let accepted = ThinkingLevel::ALL.map(ThinkingLevel::as_str).join(", ");
    Err(format!("--thinking {value:?}: expected one of {accepted}"))
}

/// Reads the name of a file.
pub(super) fn parse_file(flag: &str, value: String) -> Result<PathBuf, String> {
    parse_path(flag, value, "file")
}

/// Reads the name of a folder.
pub(super) fn parse_folder(flag: &str, value: String) -> Result<PathBuf, String> {
    parse_path(flag, value, "folder")
}

fn parse_path(flag: &str, value: String, kind: &str) -> Result<PathBuf, String> {
    if value.is_empty() { Err(format!("{flag} \"\": expected the name of a {kind}")) } else { Ok(value.into()) }
}

/// Sets what may be given once. The same value again changes nothing; `word` is how a value is written.
pub(super) fn set_once<T: PartialEq>(
    flag: &str,
    place: &mut Option<T>,
    value: T,
    word: impl Fn(&T) -> String,
) -> Result<(), String> {
    match place {
        Some(before) if *before != value => {
            Err(format!("{flag} is given twice, as {} and as {}: expected one value", word(before), word(&value)))
        }
        _ => {
            *place = Some(value);
            Ok(())
        }
    }
}
