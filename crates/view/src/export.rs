//! A session as one HTML page that loads nothing, runs nothing and can be printed.
//!
//! It must not know where a session is kept: it is handed the messages.

use std::fmt::Write as _;

use countersign_core::{
    message::{
        AssistantReply, BashMessage, ImageBlock, MessageBlock, StoredMessage, SummaryMessage, ToolCallBlock, ToolResult,
    },
    time::Millis,
};
use serde_json::Value;

use super::{Lines, escape};

mod image;

const STYLE: &str = include_str!("export/page.css");

/// What stands at the head of the page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// The session's name, if it has one.
    pub name: Option<String>,
    /// The session's id.
    pub session: String,
    /// The folder it works in.
    pub cwd: String,
    /// The model in use, as `provider/id`.
    pub model: Option<String>,
    /// When it began.
    pub started: Option<Millis>,
    /// When the page was made.
    pub exported: Millis,
}

/// Writes the page of `messages`, each with its time.
///
/// Everything is escaped twice over: hidden characters become visible, and HTML's own signs become text. Images become
/// part of the page where they are base64 of a kind of image that cannot run anything; others are named.
pub fn export_html(header: &Header, messages: &[(StoredMessage, Millis)]) -> String {
    let mut page = Page::default();
    page.head(header);
    for (message, at) in messages {
        page.message(message, *at);
    }
    page.raw("</main>\n</body>\n</html>\n");
    page.0
}

#[derive(Default)]
struct Page(String);

impl Page {
    fn raw(&mut self, html: &str) {
        self.0.push_str(html);
    }

    /// Text among tags or in a quoted attribute.
    fn text(&mut self, text: &str, lines: Lines) {
        for letter in escape(text, lines).chars() {
            match letter {
                '&' => self.raw("&amp;"),
                '<' => self.raw("&lt;"),
                '>' => self.raw("&gt;"),
                '"' => self.raw("&quot;"),
                '\'' => self.raw("&#39;"),
                letter => self.0.push(letter),
            }
        }
    }

    fn line(&mut self, tag: &str, class: &str, text: &str) {
        let _ = write!(self.0, "<{tag} class=\"{class}\">");
        self.text(text, Lines::One);
        let _ = writeln!(self.0, "</{tag}>");
    }

    fn pre(&mut self, class: &str, text: &str) {
        if text.is_empty() {
            return;
        }
        let _ = write!(self.0, "<pre class=\"{class}\">");
        // The first line end behind <pre> is not shown by browsers.
        self.raw("\n");
        self.text(text, Lines::Many);
        self.raw("</pre>\n");
    }

    fn head(&mut self, header: &Header) {
        let title = header.name.as_deref().unwrap_or(&header.session);
        self.raw("<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n");
        self.raw(
            "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; img-src data:; style-src 'unsafe-inline'\">\n",
        );
        self.raw("<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n");
        self.raw("<meta name=\"referrer\" content=\"no-referrer\">\n<meta name=\"color-scheme\" content=\"light dark\">\n<title>");
        self.text(title, Lines::One);
        self.raw("</title>\n<style>\n");
        self.raw(STYLE);
        self.raw("</style>\n</head>\n<body>\n<header>\n");
        self.line("h1", "name", title);
        self.raw("<dl>\n");
        let facts = [
            ("Session", Some(header.session.clone())),
            ("Folder", Some(header.cwd.clone())),
            ("Model", header.model.clone()),
            ("Started", header.started.map(clock)),
            ("Exported", Some(clock(header.exported))),
        ];
        for (label, fact) in facts {
            if let Some(fact) = fact.filter(|fact| !fact.is_empty()) {
                self.line("dt", "label", label);
                self.line("dd", "fact", &fact);
            }
        }
        self.raw("</dl>\n</header>\n<main>\n");
    }

    fn message(&mut self, message: &StoredMessage, at: Millis) {
        let (class, label) = match message {
            StoredMessage::User(_) => ("user", "User"),
            StoredMessage::Developer(_) => ("system", "System"),
            StoredMessage::Assistant(_) => ("assistant", "Assistant"),
            StoredMessage::ToolResult(_) => ("tool", "Result"),
            StoredMessage::BashExecution(_) => ("tool", "Command"),
            StoredMessage::CompactionSummary(_) => ("summary", "Summary of what came before"),
            StoredMessage::BranchSummary(_) => ("summary", "Summary of another branch"),
            StoredMessage::FileMention(_) => ("system", "Files mentioned"),
            StoredMessage::Custom(_) => ("system", "Extension"),
        };
        let _ = writeln!(self.0, "<article class=\"{class}\">");
        self.raw("<p class=\"who\">");
        self.text(label, Lines::One);
        self.raw(" <time>");
        self.text(&clock(at), Lines::One);
        self.raw("</time></p>\n");
        match message {
            StoredMessage::User(said) | StoredMessage::Developer(said) => self.blocks(&said.content),
            StoredMessage::Assistant(assistant) => self.assistant(assistant),
            StoredMessage::ToolResult(result) => self.result(result),
            StoredMessage::BashExecution(execution) => self.execution(execution),
            StoredMessage::CompactionSummary(summary) | StoredMessage::BranchSummary(summary) => self.summary(summary),
            StoredMessage::FileMention(mention) => {
                for file in &mention.files {
                    self.fold(file["path"].as_str().unwrap_or("file"), file["content"].as_str().unwrap_or_default());
                }
            }
            StoredMessage::Custom(custom) => {
                self.line("p", "note", &custom.custom_type);
                self.blocks(&custom.content);
            }
        }
        self.raw("</article>\n");
    }

    fn assistant(&mut self, assistant: &AssistantReply) {
        self.blocks(&assistant.content);
        if let Some(error) = &assistant.error_message {
            self.pre("error", error);
        }
        let used = format!(
            "{}/{} · {} tokens · ${:.4}",
            assistant.provider, assistant.model, assistant.usage.total_tokens, assistant.usage.cost.total
        );
        self.line("p", "note", &used);
    }

    fn result(&mut self, result: &ToolResult) {
        self.line("p", if result.is_error { "name error" } else { "name" }, &result.tool_name);
        self.blocks(&result.content);
    }

    fn execution(&mut self, execution: &BashMessage) {
        self.pre("call", &format!("$ {}", execution.command));
        self.pre("output", &execution.output);
        let mut notes = Vec::new();
        notes.extend(execution.exit_code.map(|code| format!("exit code {code}")));
        notes.extend(execution.cancelled.then(|| "cancelled".to_owned()));
        notes.extend(execution.truncated.then(|| "the beginning of the output is not here".to_owned()));
        notes.extend(execution.exclude_from_context.then(|| "not shown to the model".to_owned()));
        self.line("p", "note", &notes.join(" · "));
    }

    fn summary(&mut self, summary: &SummaryMessage) {
        self.fold(summary.short_summary.as_deref().unwrap_or("Summary"), &summary.summary);
    }

    fn fold(&mut self, title: &str, text: &str) {
        self.raw("<details>\n");
        self.line("summary", "fold", title);
        self.pre("text", text);
        self.raw("</details>\n");
    }

    fn blocks(&mut self, blocks: &[MessageBlock]) {
        for block in blocks {
            match block {
                MessageBlock::Text(text) => self.pre("text", &text.text),
                MessageBlock::Thinking(thinking) => self.fold("Thinking", &thinking.thinking),
                MessageBlock::RedactedThinking { .. } => self.line("p", "note", "Thinking, sealed by the provider"),
                MessageBlock::Image(image) => self.image(image),
                MessageBlock::ToolCall(call) => self.call(call),
            }
        }
    }

    fn call(&mut self, call: &ToolCallBlock) {
        self.line("p", "name", &call.name);
        if let Some(intent) = &call.intent {
            self.line("p", "note", intent);
        }
        for (key, value) in &call.arguments {
            self.line("p", "label", key);
            match value {
                Value::String(text) => self.pre("call", text),
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
                    self.pre("call", &serde_json::to_string_pretty(value).unwrap_or_else(|_| value.to_string()));
                }
            }
        }
    }

    fn image(&mut self, image: &ImageBlock) {
        match image::data_uri(image) {
            Some(uri) => {
                let _ = writeln!(self.0, "<img alt=\"image\" src=\"{uri}\">");
            }
            None => self.line("p", "note", &format!("An image that cannot be shown ({})", image.mime_type)),
        }
    }
}

/// Date and time in UTC.
fn clock(at: Millis) -> String {
    i64::try_from(at.0)
        .ok()
        .and_then(chrono::DateTime::from_timestamp_millis)
        .map_or_else(|| at.to_string(), |time| time.format("%Y-%m-%d %H:%M:%S UTC").to_string())
}

#[cfg(test)]
mod tests;
