//! From the log's messages to a model's, and back.

use countersign_core::{
    id::Lsn,
    message::{AssistantReply, BashMessage, FileMentionMessage, MessageBlock, StopReason, StoredMessage, ToolResult},
    run::{ModelAnswer, ProviderFailure},
    session::{ContextPiece, Session, Settings},
};
use countersign_models::{self as models, AnswerMessage, MessagePart, ModelApi};
use countersign_store::LogReadError;

use super::RunEnvironment;
use crate::{deliver::ContentCache, message_content::encode_message};

/// Text for the model in the place of an old result that was cut out.
const PRUNED: &str = "[Output of an old call, removed to save room. Run the call again if you need it.]";

/// One piece of a context, without its text.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OutlineEntry {
    content: Lsn,
    is_pruned: bool,
}

/// Returns the context of a session, without its text.
pub(crate) fn session_outline(session: &Session) -> Vec<OutlineEntry> {
    let pieces = session.model_context();
    let outline = pieces.iter().map(|piece| {
        let entry = piece.entry();
        let is_pruned = matches!(piece, ContextPiece::Entry(_)) && entry.pruned.is_some();
        OutlineEntry { content: entry.content, is_pruned }
    });
    outline.collect()
}

/// Reads the messages of a context. What cannot be read as a message is passed over.
pub(crate) async fn read_messages(
    outline: &[OutlineEntry],
    contents: &ContentCache,
) -> Result<Vec<StoredMessage>, LogReadError> {
    let lsns: Vec<Lsn> = outline.iter().map(|piece| piece.content).collect();
    let texts = contents.get(&lsns).await?;
    let messages = outline.iter().zip(texts).filter_map(|(piece, text)| {
        let mut message: StoredMessage = serde_json::from_str(&text?).ok()?;
        if let (true, StoredMessage::ToolResult(result)) = (piece.is_pruned, &mut message) {
            result.content = vec![MessageBlock::from_text(PRUNED)];
        }
        Some(message)
    });
    Ok(messages.collect())
}

/// Prefix of the data of a picture that is kept outside the log. Base64 has no such sign.
const BESIDE: &str = "r2:";
/// Text for the model in the place of a picture that is not there any more.
const GONE: &str = "[A picture that is no longer kept.]";

/// Puts pictures that are kept outside the log into messages.
pub(crate) async fn with_pictures(messages: &mut [StoredMessage], host: &dyn RunEnvironment) {
    for message in messages {
        let (StoredMessage::User(user_message) | StoredMessage::Developer(user_message)) = message else { continue };
        for block in &mut user_message.content {
            let MessageBlock::Image(image) = block else { continue };
            if !image.data.starts_with(BESIDE) {
                continue;
            }
            match host.load_picture(&image.data).await {
                Some(data) => image.data = data,
                None => *block = MessageBlock::from_text(GONE),
            }
        }
    }
}

/// Returns the same with the results of each message in the order of its calls.
pub(crate) fn in_order(mut messages: Vec<StoredMessage>) -> Vec<StoredMessage> {
    let mut call_ids: Vec<String> = Vec::new();
    let mut from = 0;
    while from < messages.len() {
        let results =
            messages[from..].iter().take_while(|message| matches!(message, StoredMessage::ToolResult(_))).count();
        let place = |message: &StoredMessage| match message {
            StoredMessage::ToolResult(result) => call_ids.iter().position(|id| *id == result.tool_call_id),
            _ => None,
        };
        messages[from..from + results].sort_by_key(|message| place(message).unwrap_or(usize::MAX));
        from += results;
        if let Some(message) = messages.get(from) {
            call_ids = calls_of(message);
        }
        from += 1;
    }
    messages
}

fn calls_of(message: &StoredMessage) -> Vec<String> {
    let StoredMessage::Assistant(assistant) = message else { return Vec::new() };
    let calls = assistant.content.iter().filter_map(|block| match block {
        MessageBlock::ToolCall(call) => Some(call.id.clone()),
        MessageBlock::Text(_)
        | MessageBlock::Thinking(_)
        | MessageBlock::RedactedThinking { .. }
        | MessageBlock::Image(_) => None,
    });
    calls.collect()
}

/// Writes messages as a model is shown them.
pub(crate) fn to_model(messages: &[StoredMessage]) -> Vec<models::RequestMessage> {
    messages.iter().filter_map(message_to_model).collect()
}

fn message_to_model(message: &StoredMessage) -> Option<models::RequestMessage> {
    match message {
        StoredMessage::User(user_message) => Some(models::RequestMessage::User(model_parts(&user_message.content))),
        StoredMessage::Developer(developer_message) => {
            Some(models::RequestMessage::Developer(model_parts(&developer_message.content)))
        }
        StoredMessage::Assistant(assistant) => assistant_to_model(assistant),
        StoredMessage::ToolResult(ToolResult { tool_call_id, tool_name, content, is_error, .. }) => {
            Some(models::RequestMessage::ToolResult {
                id: tool_call_id.clone(),
                name: tool_name.clone(),
                parts: model_parts(content),
                is_error: *is_error,
            })
        }
        StoredMessage::BashExecution(bash) if bash.exclude_from_context => None,
        StoredMessage::BashExecution(bash) => Some(user_text(bash_text(bash))),
        StoredMessage::CompactionSummary(summary) => Some(user_text(format!(
            "The conversation before this point was summarised:\n\n<summary>\n{}\n</summary>",
            summary.summary
        ))),
        StoredMessage::BranchSummary(summary) => {
            Some(user_text(format!("Summary of another branch of this conversation:\n\n{}", summary.summary)))
        }
        StoredMessage::FileMention(mention) => {
            let images = mention.files.iter().filter_map(mentioned_image);
            Some(models::RequestMessage::User(
                std::iter::once(MessagePart::text(mention_text(mention))).chain(images).collect(),
            ))
        }
        StoredMessage::Custom(custom) => Some(models::RequestMessage::User(model_parts(&custom.content))),
    }
}

fn user_text(text: String) -> models::RequestMessage {
    models::RequestMessage::User(vec![MessagePart::text(text)])
}

fn assistant_to_model(assistant: &AssistantReply) -> Option<models::RequestMessage> {
    // An answer that a provider broke off is not part of the conversation, and its calls are void.
    if assistant.stop_reason == StopReason::Error {
        return None;
    }
    let parts = model_parts(&assistant.content);
    if parts.is_empty() {
        return None;
    }
    Some(models::RequestMessage::Assistant(AnswerMessage {
        parts,
        api: assistant.api.parse().unwrap_or(ModelApi::Demo),
        provider: assistant.provider.clone(),
        model: assistant.model.clone(),
        payload: assistant.provider_payload.as_ref().map(serde_json::Value::to_string),
    }))
}

fn model_parts(blocks: &[MessageBlock]) -> Vec<MessagePart> {
    let parts = blocks.iter().map(|block| match block {
        MessageBlock::Text(text) => {
            MessagePart::Text { text: text.text.clone(), signature: text.text_signature.clone() }
        }
        MessageBlock::Thinking(thinking) => {
            MessagePart::Thinking { text: thinking.thinking.clone(), signature: thinking.thinking_signature.clone() }
        }
        MessageBlock::RedactedThinking { data } => MessagePart::Redacted { data: data.clone() },
        MessageBlock::Image(image) => {
            MessagePart::Image { mime_type: image.mime_type.clone(), data: image.data.clone() }
        }
        MessageBlock::ToolCall(call) => MessagePart::ToolCall {
            id: call.id.clone(),
            name: call.name.clone(),
            arguments: serde_json::Value::Object(call.arguments.clone()).to_string(),
            signature: call.thought_signature.clone(),
        },
    });
    parts.collect()
}

fn bash_text(bash: &BashMessage) -> String {
    let output = if bash.output.trim().is_empty() { "(no output)" } else { bash.output.as_str() };
    let mut text = format!("Ran `{}`\n```\n{output}\n```", bash.command);
    if let Some(note) = cut_note(bash) {
        text.push_str(&format!("\n\n{note}"));
    }
    if bash.cancelled {
        text.push_str("\n\n(command cancelled)");
    } else if let Some(code) = bash.exit_code.filter(|code| *code != 0) {
        text.push_str(&format!("\n\nCommand exited with code {code}"));
    }
    text
}

/// Notes for an incomplete output which part is shown, and where the rest is.
fn cut_note(bash: &BashMessage) -> Option<String> {
    let cut = bash.meta.as_ref().and_then(|meta| meta.get("truncation")).filter(|_| bash.truncated);
    let count = |key: &str| cut.and_then(|cut| cut.get(key)).and_then(serde_json::Value::as_u64);
    let whole = cut.and_then(|cut| cut.get("artifact")).and_then(serde_json::Value::as_str);
    let shown = match (count("outputBytes"), count("totalBytes")) {
        (Some(shown), Some(all)) => format!("the last {shown} of {all} bytes"),
        _ => "the end of it".to_owned(),
    };
    let place = whole.map(|path| format!(". Full output: {path}")).unwrap_or_default();
    bash.truncated.then(|| format!("[The output was cut: this is {shown}{place}]"))
}

fn mention_text(mention: &FileMentionMessage) -> String {
    let mut text = String::new();
    for file in &mention.files {
        let part = |key: &str| file.get(key).and_then(serde_json::Value::as_str).unwrap_or_default();
        text.push_str(&format!("<file path=\"{}\">\n{}\n</file>\n", part("path"), part("content")));
    }
    text
}

/// Returns the image of a mentioned file.
fn mentioned_image(file: &serde_json::Value) -> Option<MessagePart> {
    let image = file.get("image")?;
    let text = |key: &str| image.get(key)?.as_str().map(str::to_owned);
    Some(MessagePart::Image { mime_type: text("mimeType")?, data: text("data")? })
}

/// Returns an answer that was stopped before a word of it came.
pub(crate) fn aborted_answer(settings: &Settings) -> ModelAnswer {
    let failure = ProviderFailure { retryable: false, overflow: false, after: None };
    let answer = failed_answer(settings, "Request was aborted", failure, StopReason::Aborted);
    ModelAnswer { failure: None, ..answer }
}

/// Returns an answer that is nothing but a failure.
pub(crate) fn failed_answer(
    settings: &Settings,
    message: &str,
    failure: ProviderFailure,
    stop: StopReason,
) -> ModelAnswer {
    let (provider, model) =
        settings.model.as_ref().map_or(("", ""), |model| (model.provider.as_str(), model.id.as_str()));
    let assistant = AssistantReply {
        provider: provider.to_owned(),
        model: model.to_owned(),
        stop_reason: stop,
        error_message: Some(message.to_owned()),
        ..AssistantReply::default()
    };
    ModelAnswer {
        message: encode_message(&StoredMessage::Assistant(assistant)),
        stop,
        total_tokens: 0,
        calls: Vec::new(),
        failure: Some(failure),
        others: Vec::new(),
        spent: None,
    }
}
