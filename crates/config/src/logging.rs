//! Filter of the program's own log, and its change at run time. The record of decisions is another thing.
//!
//! It must not know the writer of the log.

use std::fmt;

/// Format of log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogLineFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line, for programs.
    Json,
}

impl LogLineFormat {
    /// Both, by name.
    pub const ALL: [(&'static str, Self); 2] = [("text", Self::Text), ("json", Self::Json)];

    /// Returns its name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Json => "json",
        }
    }
}

/// Names of the log levels.
const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

/// The parts that write log lines: ours, and the built-in libraries.
const PARTS: &[&str] = &[
    "countersign",
    "countersign_adapter_agent_gate",
    "countersign_adapter_gjc",
    "countersign_adapter_gsv",
    "countersign_adapter_hermes",
    "countersign_adapter_mcp",
    "countersign_adapter_omp",
    "countersign_agent_dir",
    "countersign_api",
    "countersign_config",
    "countersign_console",
    "countersign_conversations",
    "countersign_core",
    "countersign_files",
    "countersign_gateway",
    "countersign_http",
    "countersign_models",
    "countersign_otlp",
    "countersign_policy_admin",
    "countersign_protocol",
    "countersign_runtime",
    "countersign_server",
    "countersign_shell_analysis",
    "countersign_store",
    "countersign_telegram",
    "countersign_tools",
    "countersign_view",
    "h2",
    "hyper",
    "hyper_util",
    "landlock",
    "reqwest",
    "rustls",
    "tokio_tungstenite",
    "tower_http",
    "tungstenite",
];

/// The crate that the others of a gateway came of. Settings and scripts name it.
const FORMER: &str = "countersign_server";

/// The crates that replace [`FORMER`], each with the modules of it that it has.
const SUCCESSORS: &[(&str, &[&str])] = &[
    ("countersign_adapter_agent_gate", &["agent_gate"]),
    ("countersign_adapter_gjc", &["gjc"]),
    ("countersign_adapter_gsv", &["gsv"]),
    ("countersign_adapter_hermes", &["hermes"]),
    ("countersign_adapter_omp", &["omp", "attach", "session_file"]),
    ("countersign_agent_dir", &["agent_dir"]),
    ("countersign_api", &["api"]),
    ("countersign_config", &["config", "yaml", "logging", "slips", "strangers"]),
    ("countersign_console", &["console"]),
    ("countersign_conversations", &["chats", "prompt", "sessions"]),
    ("countersign_files", &["objects", "paths"]),
    ("countersign_gateway", &["gateway", "control", "metrics", "retention", "site"]),
    ("countersign_http", &["listen", "limits", "tokens", "web"]),
    ("countersign_otlp", &["traces"]),
    ("countersign_policy_admin", &["gateway"]),
    ("countersign_telegram", &["messenger"]),
    ("countersign_view", &["view", "record", "decisions"]),
];

/// Returns `text` with each part that names `countersign_server`, or a module of it, replaced by the crates that have its code now.
pub fn with_successors(text: &str) -> String {
    let replaced = |one: &str| {
        let Some((part, level)) = one.split_once('=') else { return one.to_owned() };
        let module = match part.trim().split_once("::") {
            None if part.trim() == FORMER => None,
            Some((FORMER, path)) => path.split("::").next(),
            _ => return one.to_owned(),
        };
        let has = |modules: &[&str]| module.is_none_or(|module| modules.contains(&module));
        let crates = SUCCESSORS.iter().filter(|(_, modules)| has(modules));
        crates.map(|(name, _)| format!("{name}={level}")).collect::<Vec<_>>().join(",")
    };
    let all = text.split(',').map(replaced).filter(|one| !one.is_empty());
    all.collect::<Vec<_>>().join(",")
}

/// Returns the part of a text about a log that this program does not have.
fn unknown_part(text: &str) -> Option<&str> {
    let parts = text.split(',').filter_map(|one| Some(one.split_once('=')?.0.trim()));
    parts.into_iter().find(|part| !PARTS.contains(&part.split("::").next().unwrap_or(part)))
}

/// Reports whether `text` is a log filter: a level, or several `part=level` between commas.
pub fn is_level(text: &str) -> bool {
    let is_level = |word: &str| LEVELS.iter().any(|level| word.eq_ignore_ascii_case(level));
    let is_part = |part: &str| {
        !part.is_empty()
            && part.chars().all(|letter| letter.is_ascii_alphanumeric() || matches!(letter, '_' | ':' | '-'))
    };
    !text.is_empty()
        && text.split(',').map(str::trim).all(|one| match one.split_once('=') {
            Some((part, level)) => is_part(part) && is_level(level),
            None => is_level(one),
        })
}

/// Reads the current filter, or changes it.
type LevelChange = dyn Fn(Option<&str>) -> Result<String, String> + Send + Sync;

/// Current log filter, with the right to change it.
pub struct LogLevels(Box<LevelChange>);

impl LogLevels {
    /// Makes levels that `change` changes: with a text to that, without to nothing; it returns the filter from then on.
    pub fn new(change: impl Fn(Option<&str>) -> Result<String, String> + Send + Sync + 'static) -> Self {
        Self(Box::new(change))
    }

    /// Returns the current filter; sets it to `requested` first, if that is given.
    ///
    /// # Errors
    /// The reason for the refusal; the filter stays as it was.
    pub fn change_levels(&self, requested: Option<&str>) -> Result<String, String> {
        match requested {
            Some(text) if !is_level(text) => Err(format!(
                "invalid log level {text:?}: expected one of {}, or part=level pairs separated by commas",
                LEVELS.join(", ")
            )),
            filter => match filter.and_then(unknown_part) {
                Some(part) => Err(format!("unknown part {part} of the log: expected one of {}", PARTS.join(", "))),
                None => (self.0)(filter),
            },
        }
    }
}

impl fmt::Debug for LogLevels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LogLevels").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::{LogLevels, PARTS, SUCCESSORS, is_level, with_successors};

    #[test]
    fn the_former_part_stands_for_the_crates_that_came_of_it() {
        assert!(SUCCESSORS.iter().all(|(name, _)| PARTS.contains(name)));
        for (text, want) in [
            ("info", "info"),
            ("warn,countersign_runtime=debug", "warn,countersign_runtime=debug"),
            ("countersign_server::listen=trace,info", "countersign_http=trace,info"),
            ("countersign_server::gateway::rules=debug", "countersign_gateway=debug,countersign_policy_admin=debug"),
        ] {
            assert_eq!(with_successors(text), want, "{text}");
        }
        let whole = with_successors("info,countersign_server=debug");
        assert!(whole.starts_with("info,countersign_adapter_agent_gate=debug,"), "{whole}");
        assert_eq!(whole.matches("=debug").count(), SUCCESSORS.len(), "{whole}");
    }

    #[test]
    fn a_level_is_a_word_or_one_for_each_part() {
        for (text, want) in [
            ("info", true),
            ("WARN", true),
            ("off", true),
            ("warn,countersign_runtime=debug", true),
            ("countersign_server::listen=trace", true),
            ("", false),
            ("loud", false),
            ("a=", false),
            ("=debug", false),
            ("[span]=debug", false),
            ("warn,,info", false),
        ] {
            assert_eq!(is_level(text), want, "{text:?}");
        }
    }

    #[test]
    fn what_is_no_level_changes_nothing() {
        let levels = LogLevels::new(|filter| Ok(filter.unwrap_or("warn").to_owned()));
        assert_eq!(
            (levels.change_levels(None), levels.change_levels(Some("info"))),
            (Ok("warn".to_owned()), Ok("info".to_owned()))
        );
        assert!(levels.change_levels(Some("loud")).is_err_and(|why| why.contains("error, warn, info")));
        for (text, want) in [
            ("warn,countersign_server::listen=trace", None),
            ("rustls=debug", None),
            ("warn,nosuchpart=debug", Some("nosuchpart")),
            ("countersign_sever=debug", Some("countersign_sever")),
        ] {
            let got = levels.change_levels(Some(text)).err();
            let expected = want.map(|part| format!("unknown part {part} of the log: expected one of countersign, "));
            assert_eq!(got.is_some(), expected.is_some(), "{text}: {got:?}");
            assert!(got.unwrap_or_default().starts_with(&expected.unwrap_or_default()), "{text}");
        }
    }
}
