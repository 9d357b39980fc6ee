//! Slash commands: what a message that is one asks for, and the texts that it is answered.

use std::fmt::Write as _;

use super::directive::{LEVELS, MODEL_HINT, ModelSelector, ThinkLevel};
use super::session::{ResetMode, SessionTokens};

/// A message that is a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChatCommand {
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

impl ChatCommand {
    /// Reads a message. Absent if it is no command: it has more than one line, or its word is not known. `/approve` and
    /// `/deny` are answers, and are not read here.
    pub fn from_message(message: &str) -> Option<Self> {
        let message = message.trim();
        if message.contains(['\n', '\r']) {
            return None;
        }
        let (word, rest) = {
            let command_text = message.strip_prefix('/')?;
            command_text.split_once(char::is_whitespace).unwrap_or((command_text, ""))
        };
        let rest = rest.trim();
        let given = || (!rest.is_empty()).then(|| rest.to_owned());
        Some(match word.to_ascii_lowercase().as_str() {
            "reset" | "new" => Self::Reset,
            "compact" => Self::Compact { keep: parse_count(rest) },
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

fn parse_count(text: &str) -> Result<usize, &'static str> {
    if text.is_empty() {
        return Ok(super::session::SessionCompactParams::KEEP);
    }
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    let count = is_number.then(|| text.parse().ok()).flatten().filter(|count| *count > 0);
    count.ok_or(INVALID_COUNT)
}

/// Where a text is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyStyle {
    /// In a client, as it is.
    Plain,
    /// In a chat network, with marks for bold and code.
    Marked,
}

/// What a command is answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommandReply {
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
    Status(StatusReply),
    /// Which model answers.
    CurrentModel(ModelSelector),
    /// Which model answers from now on.
    ModelSet(ModelSelector),
    /// How hard the model thinks.
    CurrentLevel(Option<ThinkLevel>),
    /// How hard it thinks from now on.
    LevelSet(ThinkLevel),
    /// Which commands there are.
    Help,
}

/// How a session stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatusReply {
    /// Its key.
    pub session: String,
    /// How many messages it has.
    pub messages: usize,
    /// What it took.
    pub tokens: SessionTokens,
    /// Which model answers in it.
    pub model: ModelSelector,
    /// How hard that thinks, if it is set.
    pub thinking: Option<ThinkLevel>,
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

impl CommandReply {
    /// The text for where it is read.
    pub fn to_text(&self, style: ReplyStyle) -> String {
        let code = |text: &str| match style {
            ReplyStyle::Plain => text.to_owned(),
            ReplyStyle::Marked => format!("`{text}`"),
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
            Self::Status(status) => status.to_text(style, code),
            Self::CurrentModel(model) => format!("Current model: {}\n{MODEL_HINT}", code(&model.to_string())),
            Self::ModelSet(model) => format!("Model set to {}", code(&model.to_string())),
            Self::CurrentLevel(level) => {
                format!("Thinking level: {}\n{LEVELS}", level.map_or("off", ThinkLevel::display_name))
            }
            Self::LevelSet(level) => format!("Thinking level set to {}", level.display_name()),
            Self::Help => help_text(style, code),
        }
    }
}

impl StatusReply {
    fn to_text(&self, style: ReplyStyle, code: impl Fn(&str) -> String) -> String {
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
            ("Thinking", self.thinking.map(|level| level.display_name().to_owned())),
            ("Reset", reset.map(str::to_owned)),
        ];
        let mut text = match style {
            ReplyStyle::Plain => String::new(),
            ReplyStyle::Marked => "**Session Status**\n".to_owned(),
        };
        for (name, value) in rows {
            let Some(value) = value else { continue };
            // Writing to a String cannot fail.
            let _ = match style {
                ReplyStyle::Plain => writeln!(text, "{name}: {value}"),
                ReplyStyle::Marked => writeln!(text, "- {name}: {value}"),
            };
        }
        text.truncate(text.trim_end().len());
        text
    }
}

fn help_text(style: ReplyStyle, code: impl Fn(&str) -> String) -> String {
    let mut text = String::new();
    let mut list = |title: &str, rows: &[(&str, &str)]| {
        let _ = match style {
            ReplyStyle::Plain => write!(text, "{title}:"),
            ReplyStyle::Marked => write!(text, "**{title}**"),
        };
        for (usage, meaning) in rows {
            let _ = match style {
                ReplyStyle::Plain => write!(text, "\n{usage} - {meaning}"),
                ReplyStyle::Marked => write!(text, "\n- {} - {meaning}", code(usage)),
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
pub fn failure_text(why: &str) -> String {
    format!("Command failed: {why}")
}
