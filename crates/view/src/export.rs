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

use super::{LineMode, escape};

mod image;

const STYLE: &str = include_str!("export/page.css");

/// Header of the page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExportHeader {
    /// The session's name, if it has one.
    pub name: Option<String>,
    /// The session's id.
    pub session: String,
    /// The folder it works in.
    pub cwd: String,
    /// The model in use, as `provider/id`.
    pub model: Option<String>,
    /// Start of the session.
    pub started: Option<Millis>,
    /// Time of the export.
    pub exported: Millis,
}

/// Writes the page of `messages`, each with its time.
///
/// Everything is escaped twice over: hidden characters become visible, and HTML's own signs become text. Images become
/// part of the page where they are base64 of a kind of image that cannot run anything; others are named.
pub fn export_html(header: &ExportHeader, messages: &[(StoredMessage, Millis)]) -> String {
    let mut page = HtmlPage::default();
    page.write_head(header);
    for (message, at) in messages {
        page.write_message(message, *at);
    }
    page.push_html("</main>\n</body>\n</html>\n");
    page.0
}

#[derive(Default)]
struct HtmlPage(String);

impl HtmlPage {
    fn push_html(&mut self, html: &str) {
        self.0.push_str(html);
    }

    /// Adds text among tags or in a quoted attribute.
    fn push_text(&mut self, text: &str, lines: LineMode) {
        for letter in escape(text, lines).chars() {
            match letter {
                '&' => self.push_html("&amp;"),
                '<' => self.push_html("&lt;"),
                '>' => self.push_html("&gt;"),
                '"' => self.push_html("&quot;"),
                '\'' => self.push_html("&#39;"),
                letter => self.0.push(letter),
            }
        }
    }

    fn push_line(&mut self, tag: &str, class: &str, text: &str) {
        let _ = write!(self.0, "<{tag} class=\"{class}\">");
        self.push_text(text, LineMode::One);
        let _ = writeln!(self.0, "</{tag}>");
    }

    fn push_pre(&mut self, class: &str, text: &str) {
        if text.is_empty() {
            return;
        }
        let _ = write!(self.0, "<pre class=\"{class}\">");
        // The first line end after <pre> is not shown by browsers.
        self.push_html("\n");
        self.push_text(text, LineMode::Many);
        self.push_html("</pre>\n");
    }

    fn write_head(&mut self, header: &ExportHeader) {
        let title = header.name.as_deref().unwrap_or(&header.session);
        self.push_html("<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n");
        self.push_html(
            "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; img-src data:; style-src 'unsafe-inline'\">\n",
        );
        self.push_html("<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n");
        self.push_html("<meta name=\"referrer\" content=\"no-referrer\">\n<meta name=\"color-scheme\" content=\"light dark\">\n<title>");
        self.push_text(title, LineMode::One);
        self.push_html("</title>\n<style>\n");
        self.push_html(STYLE);
        self.push_html("</style>\n</head>\n<body>\n<header>\n");
        self.push_line("h1", "name", title);
        self.push_html("<dl>\n");
        let facts = [
            ("Session", Some(header.session.clone())),
            ("Folder", Some(header.cwd.clone())),
            ("Model", header.model.clone()),
            ("Started", header.started.map(utc_time)),
            ("Exported", Some(utc_time(header.exported))),
        ];
        for (label, fact) in facts {
            if let Some(fact) = fact.filter(|fact| !fact.is_empty()) {
                self.push_line("dt", "label", label);
                self.push_line("dd", "fact", &fact);
            }
        }
        self.push_html("</dl>\n</header>\n<main>\n");
    }

    fn write_message(&mut self, message: &StoredMessage, at: Millis) {
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
        self.push_html("<p class=\"who\">");
        self.push_text(label, LineMode::One);
        self.push_html(" <time>");
        self.push_text(&utc_time(at), LineMode::One);
        self.push_html("</time></p>\n");
        match message {
            StoredMessage::User(input) | StoredMessage::Developer(input) => self.write_blocks(&input.content),
            StoredMessage::Assistant(assistant) => self.write_assistant(assistant),
            StoredMessage::ToolResult(result) => self.write_result(result),
            StoredMessage::BashExecution(execution) => self.write_execution(execution),
            StoredMessage::CompactionSummary(summary) | StoredMessage::BranchSummary(summary) => {
                self.write_summary(summary)
            }
            StoredMessage::FileMention(mention) => {
                for file in &mention.files {
                    self.write_details(
                        file["path"].as_str().unwrap_or("file"),
                        file["content"].as_str().unwrap_or_default(),
                    );
                }
            }
            StoredMessage::Custom(custom) => {
                self.push_line("p", "note", &custom.custom_type);
                self.write_blocks(&custom.content);
            }
        }
        self.push_html("</article>\n");
    }

    fn write_assistant(&mut self, assistant: &AssistantReply) {
        self.write_blocks(&assistant.content);
        if let Some(error) = &assistant.error_message {
            self.push_pre("error", error);
        }
        let used = format!(
            "{}/{} · {} tokens · ${:.4}",
            assistant.provider, assistant.model, assistant.usage.total_tokens, assistant.usage.cost.total
        );
        self.push_line("p", "note", &used);
    }

    fn write_result(&mut self, result: &ToolResult) {
        self.push_line("p", if result.is_error { "name error" } else { "name" }, &result.tool_name);
        self.write_blocks(&result.content);
    }

    fn write_execution(&mut self, execution: &BashMessage) {
        self.push_pre("call", &format!("$ {}", execution.command));
        self.push_pre("output", &execution.output);
        let mut notes = Vec::new();
        notes.extend(execution.exit_code.map(|code| format!("exit code {code}")));
        notes.extend(execution.cancelled.then(|| "cancelled".to_owned()));
        notes.extend(execution.truncated.then(|| "the beginning of the output is not here".to_owned()));
        notes.extend(execution.exclude_from_context.then(|| "not shown to the model".to_owned()));
        self.push_line("p", "note", &notes.join(" · "));
    }

    fn write_summary(&mut self, summary: &SummaryMessage) {
        self.write_details(summary.short_summary.as_deref().unwrap_or("Summary"), &summary.summary);
    }

    fn write_details(&mut self, title: &str, text: &str) {
        self.push_html("<details>\n");
        self.push_line("summary", "fold", title);
        self.push_pre("text", text);
        self.push_html("</details>\n");
    }

    fn write_blocks(&mut self, blocks: &[MessageBlock]) {
        for block in blocks {
            match block {
                MessageBlock::Text(text) => self.push_pre("text", &text.text),
                MessageBlock::Thinking(thinking) => self.write_details("Thinking", &thinking.thinking),
                MessageBlock::RedactedThinking { .. } => {
                    self.push_line("p", "note", "Thinking, sealed by the provider")
                }
                MessageBlock::Image(image) => self.write_image(image),
                MessageBlock::ToolCall(call) => self.write_call(call),
            }
        }
    }

    fn write_call(&mut self, call: &ToolCallBlock) {
        self.push_line("p", "name", &call.name);
        if let Some(intent) = &call.intent {
            self.push_line("p", "note", intent);
        }
        for (key, value) in &call.arguments {
            self.push_line("p", "label", key);
            match value {
                Value::String(text) => self.push_pre("call", text),
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
                    self.push_pre("call", &serde_json::to_string_pretty(value).unwrap_or_else(|_| value.to_string()));
                }
            }
        }
    }

    fn write_image(&mut self, image: &ImageBlock) {
        match image::data_uri(image) {
            Some(uri) => {
                let _ = writeln!(self.0, "<img alt=\"image\" src=\"{uri}\">");
            }
            None => self.push_line("p", "note", &format!("An image that cannot be shown ({})", image.mime_type)),
        }
    }
}

/// Formats date and time in UTC.
fn utc_time(at: Millis) -> String {
    i64::try_from(at.0)
        .ok()
        .and_then(chrono::DateTime::from_timestamp_millis)
        .map_or_else(|| at.to_string(), |time| time.format("%Y-%m-%d %H:%M:%S UTC").to_string())
}

#[cfg(test)]
mod tests;
