use countersign_core::{
    message::{
        AssistantReply, BashMessage, ExtensionMessage, FileMentionMessage, ImageBlock, InputMessage, MessageBlock,
        StoredMessage, SummaryMessage, ThinkingBlock, ToolCallBlock, ToolResult,
    },
    time::Millis,
};
use serde_json::json;

use super::{ExportHeader, export_html};

const EVIL: &str = "</pre><script>alert(1)</script><img src=x onerror=alert(2)>\"' \u{202e}&amp; javascript:";

fn every_kind(text: &str) -> Vec<(StoredMessage, Millis)> {
    let input = || InputMessage { content: vec![MessageBlock::from_text(text)], ..InputMessage::default() };
    let summary = || SummaryMessage {
        summary: text.to_owned(),
        short_summary: Some(text.to_owned()),
        ..SummaryMessage::default()
    };
    let image =
        |kind: &str, data: &str| MessageBlock::Image(ImageBlock { data: data.to_owned(), mime_type: kind.to_owned() });
    let messages = [
        StoredMessage::User(InputMessage {
            content: vec![
                MessageBlock::from_text(text),
                image("image/png", "aGVsbG8="),
                image(text, "aGVsbG8="),
                image("image/png", text),
            ],
            ..InputMessage::default()
        }),
        StoredMessage::Developer(input()),
        StoredMessage::Assistant(AssistantReply {
            content: vec![
                MessageBlock::Thinking(ThinkingBlock { thinking: text.to_owned(), thinking_signature: None }),
                MessageBlock::RedactedThinking { data: text.to_owned() },
                MessageBlock::from_text(text),
                MessageBlock::ToolCall(ToolCallBlock {
                    name: text.to_owned(),
                    arguments: json!({text: text, "deep": {text: [text]}}).as_object().unwrap().clone(),
                    intent: Some(text.to_owned()),
                    ..ToolCallBlock::default()
                }),
            ],
            provider: text.to_owned(),
            model: text.to_owned(),
            error_message: Some(text.to_owned()),
            ..AssistantReply::default()
        }),
        StoredMessage::ToolResult(ToolResult {
            tool_name: text.to_owned(),
            content: vec![MessageBlock::from_text(text)],
            is_error: true,
            ..ToolResult::default()
        }),
        StoredMessage::BashExecution(BashMessage {
            command: text.to_owned(),
            output: text.to_owned(),
            exit_code: Some(1),
            ..BashMessage::default()
        }),
        StoredMessage::CompactionSummary(summary()),
        StoredMessage::BranchSummary(summary()),
        StoredMessage::FileMention(FileMentionMessage {
            files: vec![json!({"path": text, "content": text})],
            ..FileMentionMessage::default()
        }),
        StoredMessage::Custom(ExtensionMessage {
            custom_type: text.to_owned(),
            content: vec![MessageBlock::from_text(text)],
            ..ExtensionMessage::default()
        }),
    ];
    messages.into_iter().map(|message| (message, Millis(1_700_000_000_000))).collect()
}

fn header(text: &str) -> ExportHeader {
    ExportHeader {
        name: Some(text.to_owned()),
        session: text.to_owned(),
        cwd: text.to_owned(),
        model: Some(text.to_owned()),
        started: Some(Millis(0)),
        exported: Millis(u64::MAX),
    }
}

#[test]
fn hostile_content_stays_text_everywhere() {
    let page = export_html(&header(EVIL), &every_kind(EVIL));
    for danger in [
        "<script",
        "onerror=alert(2)>",
        "\u{202e}",
        "</pre><",
        "src=x",
        "src=\"http",
        "url(",
        "@import",
        "<svg",
        "<link",
        "<iframe",
    ] {
        let harmless = page.replace("&lt;img src=x onerror=alert(2)&gt;", "");
        assert!(!harmless.contains(danger), "{danger}");
    }
    // Every tag of the page is one that we wrote.
    let tags: std::collections::BTreeSet<&str> = page
        .split('<')
        .skip(1)
        .map(|tag| tag.split(['>', ' ', '\n']).next().unwrap().trim_start_matches('/'))
        .collect();
    let known = [
        "!doctype", "article", "body", "dd", "details", "dl", "dt", "h1", "head", "header", "html", "img", "main",
        "meta", "p", "pre", "style", "summary", "time", "title",
    ];
    assert_eq!(tags.into_iter().collect::<Vec<_>>(), known);
}

#[test]
fn a_page_is_the_same_but_for_its_text_whatever_the_text() {
    let tags = |text: &str| {
        let page = export_html(&header(text), &every_kind(text));
        page.split('<').skip(1).map(|tag| tag.split('>').next().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(tags(EVIL), tags("harmless text"));
}

#[test]
fn a_page_shows_the_messages_and_their_images() {
    let page = export_html(&header("My session"), &every_kind("hello"));
    for part in [
        "<title>My session</title>",
        "default-src 'none'; img-src data:; style-src 'unsafe-inline'",
        "<time>2023-11-14 22:13:20 UTC</time>",
        "<img alt=\"image\" src=\"data:image/png;base64,aGVsbG8=\">",
        "<summary class=\"fold\">Thinking</summary>",
        "exit code 1",
        "prefers-color-scheme: dark",
        "@media print",
    ] {
        assert!(page.contains(part), "{part}");
    }
}
