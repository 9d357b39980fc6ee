//! Slash commands: what a message that is one asks for, and the texts that it is answered.

use std::fmt::Write as _;

use super::directive::{LEVELS, Level, MODEL_HINT, Model};
use super::session::{ResetMode, Tokens};

/// A message that is a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Begin anew.
    Reset,
    /// Put all but the last messages away.
    Compact {
        /// How many stay; an error's text if that cannot be told.
        keep: Result<usize, &'static str>,
    },
    /// Stop the run.
    Stop,
    /// Say how the session stands.
    Status,
    /// Say or set the model.
    Model {
        /// The one to set.
        selector: Option<String>,
    },
    /// Say or set how hard the model thinks.
    Think {
        /// The level to set.
        level: Option<String>,
    },
    /// Say which commands there are.
    Help,
}

/// What `/compact` says to a count that is none.
pub const INVALID_COUNT: &str = "Invalid count. Usage: /compact [N]";

impl Command {
    /// Reads a message. Absent if it is no command: it has more than one line, or its word is not known. `/approve` and
    /// `/deny` are answers, and are not read here.
    pub fn read(message: &str) -> Option<Self> {
        let message = message.trim();
        if message.contains(['\n', '\r']) {
            return None;
        }
        let (word, rest) = {
            let said = message.strip_prefix('/')?;
            said.split_once(char::is_whitespace).unwrap_or((said, ""))
        };
        let rest = rest.trim();
        let given = || (!rest.is_empty()).then(|| rest.to_owned());
        Some(match word.to_ascii_lowercase().as_str() {
            "reset" | "new" => Self::Reset,
            "compact" => Self::Compact { keep: count(rest) },
            "stop" => Self::Stop,
            "status" => Self::Status,
            "model" => Self::Model { selector: given() },
            "think" | "thinking" | "t" => Self::Think { level: given() },
            "help" => Self::Help,
            _ => return None,
        })
    }

    /// Its proper name, which answers repeat.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Reset => "reset",
            Self::Compact { .. } => "compact",
            Self::Stop => "stop",
            Self::Status => "status",
            Self::Model { .. } => "model",
            Self::Think { .. } => "think",
            Self::Help => "help",
        }
    }
}

fn count(text: &str) -> Result<usize, &'static str> {
    if text.is_empty() {
        return Ok(super::session::Compact::KEEP);
    }
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    let count = is_number.then(|| text.parse().ok()).flatten().filter(|count| *count > 0);
    count.ok_or(INVALID_COUNT)
}

/// Where a text is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// In a client, as it is.
    Plain,
    /// In a chat network, with marks for bold and code.
    Marked,
}

/// What a command is answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The session begins anew.
    Reset {
        /// How many messages were put away.
        archived: usize,
    },
    /// Messages were put away.
    Compacted {
        /// How many stay.
        kept: usize,
        /// How many do not.
        archived: usize,
    },
    /// The run was stopped.
    Stopped {
        /// Which one.
        run: String,
        /// How many of its calls ended with it.
        cancelled: usize,
    },
    /// No run worked; the summary that was being made was stopped.
    SummaryStopped,
    /// Nothing runs.
    NothingRuns,
    /// How the session stands.
    Status(Status),
    /// Which model answers.
    CurrentModel(Model),
    /// Which model answers from now on.
    ModelSet(Model),
    /// How hard the model thinks.
    CurrentLevel(Option<Level>),
    /// How hard it thinks from now on.
    LevelSet(Level),
    /// Which commands there are.
    Help,
}

/// How a session stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// Its key.
    pub session: String,
    /// How many messages it has.
    pub messages: usize,
    /// What it took.
    pub tokens: Tokens,
    /// Which model answers in it.
    pub model: Model,
    /// How hard that thinks, if it is set.
    pub thinking: Option<Level>,
    /// When it begins anew by itself, if it is set.
    pub reset: Option<ResetMode>,
}

/// What each command does, by its usage.
const COMMANDS: [(&str, &str); 9] = [
    ("/reset", "Archive this session and start a new one (also /new)"),
    ("/compact [N]", "Keep the last N messages (default 20), archive the rest"),
    ("/stop", "Stop the current run"),
    ("/status", "Show session status"),
    ("/model [provider/id]", "Show or set the model"),
    ("/think [level]", "Show or set the thinking level (also /t)"),
    ("/approve [session|always]", "Allow what waits for an answer (also yes)"),
    ("/deny [reason]", "Refuse what waits for an answer (also no)"),
    ("/help", "Show this list"),
];

/// What each directive does, by its usage: words anywhere in a message.
const DIRECTIVES: [(&str, &str); 2] = [
    ("/t:level", "Use this thinking level (also /think:level, /thinking:level)"),
    ("/m:provider/id", "Use this model (also /model:provider/id; a bare id is of the session's provider)"),
];

impl Reply {
    /// The text for where it is read.
    pub fn text(&self, style: Style) -> String {
        let code = |text: &str| match style {
            Style::Plain => text.to_owned(),
            Style::Marked => format!("`{text}`"),
        };
        match self {
            Self::Reset { archived } => format!("Session reset. Archived {archived} messages."),
            Self::Compacted { kept, archived } => {
                format!("Compacted session. Kept {kept} messages, archived {archived}.")
            }
            Self::Stopped { run, cancelled: 0 } => format!("Stopped run {}.", code(run)),
            Self::Stopped { run, cancelled } => {
                format!("Stopped run {}, cancelled {cancelled} pending tool(s).", code(run))
            }
            Self::SummaryStopped => "Stopped summarizing the conversation.".to_owned(),
            Self::NothingRuns => "No run in progress.".to_owned(),
            Self::Status(status) => status.text(style, code),
            Self::CurrentModel(model) => format!("Current model: {}\n{MODEL_HINT}", code(&model.to_string())),
            Self::ModelSet(model) => format!("Model set to {}", code(&model.to_string())),
            Self::CurrentLevel(level) => {
                format!("Thinking level: {}\n{LEVELS}", level.map_or("off", Level::shown))
            }
            Self::LevelSet(level) => format!("Thinking level set to {}", level.shown()),
            Self::Help => help(style, code),
        }
    }
}

impl Status {
    fn text(&self, style: Style, code: impl Fn(&str) -> String) -> String {
        let tokens = format!("{} in / {} out", self.tokens.input, self.tokens.output);
        let reset = self.reset.map(|mode| match mode {
            ResetMode::Manual => "manual",
            ResetMode::Daily => "daily",
            ResetMode::Idle => "idle",
        });
        let rows = [
            ("Session", Some(code(&self.session))),
            ("Messages", Some(self.messages.to_string())),
            ("Tokens", Some(tokens)),
            ("Model", Some(code(&self.model.to_string()))),
            ("Thinking", self.thinking.map(|level| level.shown().to_owned())),
            ("Reset", reset.map(str::to_owned)),
        ];
        let mut text = match style {
            Style::Plain => String::new(),
            Style::Marked => "**Session Status**\n".to_owned(),
        };
        for (name, value) in rows {
            let Some(value) = value else { continue };
            // Writing to a String cannot fail.
            let _ = match style {
                Style::Plain => writeln!(text, "{name}: {value}"),
                Style::Marked => writeln!(text, "- {name}: {value}"),
            };
        }
        text.truncate(text.trim_end().len());
        text
    }
}

fn help(style: Style, code: impl Fn(&str) -> String) -> String {
    let mut text = String::new();
    let mut list = |title: &str, rows: &[(&str, &str)]| {
        let _ = match style {
            Style::Plain => write!(text, "{title}:"),
            Style::Marked => write!(text, "**{title}**"),
        };
        for (usage, meaning) in rows {
            let _ = match style {
                Style::Plain => write!(text, "\n{usage} - {meaning}"),
                Style::Marked => write!(text, "\n- {} - {meaning}", code(usage)),
            };
        }
        text.push_str("\n\n");
    };
    list("Available commands", &COMMANDS);
    list("Inline directives, for one message", &DIRECTIVES);
    text.truncate(text.trim_end().len());
    text
}

/// What went wrong with a command beyond what is foreseen.
pub fn failed(why: &str) -> String {
    format!("Command failed: {why}")
}
