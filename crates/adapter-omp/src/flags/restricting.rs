//! Flags that take rights away, of the originals and by their names of any other program: each is enforced, or the start is refused.
//! Source: docs/protocol/omp.md, Fields that restrict.

use std::path::PathBuf;

use countersign_agent_dir::restrictions;
use countersign_config::slips;
use countersign_core::policy::ApprovalMode;
use countersign_runtime::models::entry::Level;

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
    (
        "--max-time",
        "the time of a session has no limit here; end the process, or set countersign.bash_timeout in config.yml",
    ),
    ("--profile", "there are no profiles here; PI_CODING_AGENT_DIR names the folder whose settings and rules hold"),
    ("--no-approve", "files of the project are read here; use --no-context-files and --no-prompt-templates"),
    ("-na", "files of the project are read here; use --no-context-files and --no-prompt-templates"),
];

/// Words of a flag's name that say that it restricts, and what to use in its place. A star stands for any end of the word.
const WORDS: [(&[&str], &str); 4] = [
    (
        &[
            "allow*",
            "disallow*",
            "deny*",
            "denied",
            "block*",
            "forbid*",
            "exclud*",
            "restrict*",
            "tool*",
            "whitelist*",
            "blacklist*",
            "capabilit*",
            "privileg*",
        ],
        "use --tools or --exclude-tools with names of tools, or --permissions with a file of rules",
    ),
    (
        &[
            "approv*", "permi*", "confirm*", "ask", "polic*", "safe*", "secur*", "guard*", "protect*", "strict*",
            "trust*", "untrust*", "requir*", "review*", "rule*",
        ],
        "use --approval-mode always-ask or --approval-mode write, or --permissions with a file of rules",
    ),
    (
        &["sandbox*", "readonly", "only", "isolat*", "jail*", "access*", "dry", "dryrun"],
        "use --tools read,grep,find,ls for a session that only reads, or countersign.sandbox in config.yml for commands",
    ),
    (
        &["max", "limit*", "budget*", "quota*"],
        "turns, tokens, time and cost of a session have no limit here; end the process, or set countersign.bash_timeout in \
         config.yml",
    ),
];

/// Words that take away what another word of the name says.
const NEGATIONS: [&str; 5] = ["no", "not", "without", "disable*", "prevent*"];

/// Words for what an agent can do. With one of [`NEGATIONS`] they restrict.
const ABILITIES: [&str; 10] =
    ["bash", "shell*", "exec*", "command*", "writ*", "edit*", "net", "network*", "internet", "web*"];

/// Returns why a start with `flag` is refused, if it is: it restricts in an original and is not enforced here, it is a slip in one that
/// restricts, or its name says that it restricts.
pub(super) fn refused(flag: &str) -> Option<String> {
    if let Some((_, problem)) = REFUSED.iter().find(|(name, _)| *name == flag) {
        return Some(format!("{flag}: {problem}"));
    }
    if let Some(meant) = slip(flag) {
        return Some(format!("{flag} is not a flag of this door; did you mean {meant}?"));
    }
    let words = words(flag);
    let has = |patterns: &[&str]| words.iter().any(|word| patterns.iter().any(|pattern| fits(word, pattern)));
    let by_word = WORDS.iter().find(|(patterns, _)| has(patterns)).map(|(_, instead)| *instead);
    let instead = by_word.or_else(|| (has(&NEGATIONS) && has(&ABILITIES)).then_some(WORDS[0].1))?;
    Some(format!("{flag} is not a flag of this door, and its name says that it restricts: {instead}"))
}

/// Returns the words of a long flag's name in lower case: apart at dashes, underscores, dots and capitals.
fn words(flag: &str) -> Vec<String> {
    let Some(name) = flag.strip_prefix("--") else { return Vec::new() };
    let mut words = vec![String::new()];
    let mut was_small = false;
    for letter in name.chars() {
        if !letter.is_alphanumeric() || letter.is_uppercase() && was_small {
            words.push(String::new());
        }
        if letter.is_alphanumeric() {
            words.last_mut().into_iter().for_each(|word| word.extend(letter.to_lowercase()));
        }
        was_small = letter.is_lowercase();
    }
    words.retain(|word| !word.is_empty());
    words
}

fn fits(word: &str, pattern: &str) -> bool {
    pattern.strip_suffix('*').map_or(word == pattern, |begin| word.starts_with(begin))
}

/// Returns the flag that restricts and that `flag` was probably meant to be.
fn slip(flag: &str) -> Option<&'static str> {
    let near = RESTRICTING.into_iter().filter(|(name, most)| slips::meant(flag, [*name], *most).is_some());
    near.min_by_key(|(_, most)| *most).map(|(name, _)| name)
}

/// Reads the value of `--approval-mode`.
pub(super) fn mode(value: &str) -> Result<ApprovalMode, String> {
    let accepted = ApprovalMode::ALL.map(ApprovalMode::name).join(", ");
    ApprovalMode::named(value).ok_or_else(|| format!("--approval-mode {value:?}: expected one of {accepted}"))
}

/// Reads names or patterns of tools with commas between, as tools are called here.
pub(super) fn listed(flag: &str, value: &str) -> Result<Vec<String>, String> {
    let names = excluded(flag, value)?;
    Ok(names.iter().map(|name| restrictions::name_of(name).to_owned()).collect())
}

/// Reads names or patterns of tools with commas between, in small letters: a host may call its tools as an original does.
pub(super) fn excluded(flag: &str, value: &str) -> Result<Vec<String>, String> {
    let names: Vec<String> = super::list(value).into_iter().map(|name| name.to_lowercase()).collect();
    if names.is_empty() {
        return Err(format!(
            "{flag} {value:?}: expected names of tools with commas between, such as read,grep; --no-tools gives none"
        ));
    }
    Ok(names)
}

/// Reads patterns of models with commas between.
pub(super) fn patterns(flag: &str, value: &str) -> Result<Vec<String>, String> {
    let patterns = super::list(value);
    if patterns.is_empty() {
        return Err(format!("{flag} {value:?}: expected patterns of models with commas between, such as claude-*"));
    }
    Ok(patterns)
}

/// Reads the value of `--thinking`. Newer versions know `max`.
pub(super) fn level(value: String) -> Result<String, String> {
    if Level::parse(&value).is_some() {
        return Ok(value);
    }
    if value == "max" {
        return Ok(Level::Xhigh.as_str().to_owned());
    }
    let accepted = Level::ALL.map(Level::as_str).join(", ");
    Err(format!("--thinking {value:?}: expected one of {accepted}"))
}

/// Reads the name of a file.
pub(super) fn file(flag: &str, value: String) -> Result<PathBuf, String> {
    path(flag, value, "file")
}

/// Reads the name of a folder.
pub(super) fn folder(flag: &str, value: String) -> Result<PathBuf, String> {
    path(flag, value, "folder")
}

fn path(flag: &str, value: String, kind: &str) -> Result<PathBuf, String> {
    if value.is_empty() { Err(format!("{flag} \"\": expected the name of a {kind}")) } else { Ok(value.into()) }
}

/// Sets what may be given once. The same value again changes nothing; `word` is how a value is written.
pub(super) fn once<T: PartialEq>(
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
