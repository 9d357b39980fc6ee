//! Slash commands: what a message that is one asks for, and the texts that it is answered.

use std::fmt::Write as _;

use super::directive::{LEVELS, MODEL_HINT, ModelSelector, ThinkLevel};
use super::session::{ResetMode, SessionTokens};

/// A message that is a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChatCommand {
    /// Start a new session.
    Reset,
    /// Put all but the last messages away.
    Compact {
        /// Number of messages to keep; the text of the error if it is not a count.
        keep: Result<usize, &'static str>,
    },
    /// Stop the run.
    Stop,
    /// Report the state of the session.
    Status,
    /// Report or set the model.
    Model {
        /// The one to set.
        selector: Option<String>,
    },
    /// Report or set the thinking level.
    Think {
        /// The level to set.
        level: Option<String>,
    },
    /// List the commands.
    Help,
}

/// Reply to `/compact` with a count that is none.
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

/// Markup of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyStyle {
    /// In a client, as it is.
    Plain,
    /// In a chat network, with marks for bold and code.
    Marked,
}

/// Reply to a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommandReply {
    /// The session was reset.
    Reset {
        /// Number of archived messages.
        archived: usize,
    },
    /// Messages were put away.
    Compacted {
        /// Number of messages that stay.
        kept: usize,
        /// Number of archived messages.
        archived: usize,
    },
    /// The run was stopped.
    Stopped {
        /// Id of the run.
        run: String,
        /// Number of its calls that ended with it.
        cancelled: usize,
    },
    /// No run worked; the summary that was being made was stopped.
    SummaryStopped,
    /// Nothing runs.
    NothingRuns,
    /// State of the session.
    Status(StatusReply),
    /// The model that answers.
    CurrentModel(ModelSelector),
    /// The model that answers from now on.
    ModelSet(ModelSelector),
    /// Thinking level of the model.
    CurrentLevel(Option<ThinkLevel>),
    /// Thinking level from now on.
    LevelSet(ThinkLevel),
    /// List of the commands.
    Help,
}

/// State of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatusReply {
    /// Its key.
    pub session: String,
    /// Number of messages.
    pub messages: usize,
    /// Tokens used.
    pub tokens: SessionTokens,
    /// The model that answers in it.
    pub model: ModelSelector,
    /// Thinking level, if it is set.
    pub thinking: Option<ThinkLevel>,
    /// Rule by which it resets itself, if it is set.
    pub reset: Option<ResetMode>,
}

/// Description of each command, by its usage.
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

/// Description of each directive, by its usage: words anywhere in a message.
const DIRECTIVES: [(&str, &str); 2] = [
    ("/t:level", "Use this thinking level (also /think:level, /thinking:level)"),
    ("/m:provider/id", "Use this model (also /model:provider/id; a bare id is of the session's provider)"),
];

impl CommandReply {
    /// Returns the text in the markup of `style`.
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

/// Returns the reply for an unforeseen failure of a command.
pub fn failure_text(why: &str) -> String {
    format!("Command failed: {why}")
}
