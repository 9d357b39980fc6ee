//! The built-in scripted model: it looks at the conversation and does one small real task, so that the gateway can be
//! seen at work without a key or a network.
//!
//! It must not pretend to be more: it says that it is scripted. It must not touch the folder either, which only the
//! tools that it calls do.

use futures_util::{StreamExt, stream, stream::BoxStream};
use serde_json::json;

use crate::{
    FinishReason, InputModality, LanguageModel, MessagePart, ModelApi, ModelEntry, ModelEvent, ModelFailure,
    ModelRequest, ModelUsage, PartKind, RequestMessage, TokenPrice, demo::script::ScriptedAnswer,
};

mod remote_shell;
mod script;

/// The provider's name.
pub const PROVIDER: &str = "demo";

/// The model's id.
pub const MODEL: &str = "scripted-1";

/// Task for the model in the demo. Any prompt that names `greet.sh` starts the same task.
pub const PROMPT: &str = "The test of greet.sh in this folder fails. Please find the bug, fix it, run the test, and publish the project next to this folder.";

/// The broken project: paths relative to the folder that the tools work in, and the content of the files. The folder needs
/// a name of its own below a scratch folder, since the last step publishes to `../published`.
pub const PROJECT: &[(&str, &str)] = &[
    (
        "greet.sh",
        concat!(
            "#!/bin/sh\n",
            "# Greets the given name, or the world.\n",
            "name=${1:-world}\n",
            "echo \"Hello, $nmae!\"\n"
        ),
    ),
    (
        "test.sh",
        concat!(
            "#!/bin/sh\n",
            "# Fails and prints the difference if a greeting is wrong.\n",
            "check() {\n",
            "  if [ \"$1\" = \"$2\" ]; then echo \"ok: $1\"; else echo \"FAILED: got '$1', want '$2'\"; exit 1; fi\n",
            "}\n",
            "check \"$(sh greet.sh)\" \"Hello, world!\"\n",
            "check \"$(sh greet.sh Ada)\" \"Hello, Ada!\"\n",
            "echo \"all tests passed\"\n",
        ),
    ),
];

/// The line of `greet.sh` that is wrong.
pub const BUG: &str = "echo \"Hello, $nmae!\"";

/// Line that the model puts in its place.
pub const FIX: &str = "echo \"Hello, $name!\"";

/// Command by which the model tests.
pub const TEST: &str = "sh test.sh";

/// Command that needs an approval: it replaces a folder outside of the one that the model works in.
pub const PUBLISH: &str = "rm -rf ../published && cp -R . ../published";

/// The scripted model.
#[derive(Clone, Copy, Debug, Default)]
pub struct DemoModel;

impl LanguageModel for DemoModel {
    fn stream(&self, request: ModelRequest) -> BoxStream<'static, Result<ModelEvent, ModelFailure>> {
        let events = answer_events(&request);
        stream::iter(events.into_iter().map(Ok)).boxed()
    }
}

/// Returns the model as a catalogue would list it. It costs nothing.
pub fn model_entry() -> ModelEntry {
    ModelEntry {
        id: MODEL.to_owned(),
        name: "Scripted demo model".to_owned(),
        api: ModelApi::Demo,
        provider: PROVIDER.to_owned(),
        base_url: String::new(),
        reasoning: false,
        input: vec![InputModality::Text],
        cost: TokenPrice::default(),
        context_window: 128_000,
        max_tokens: 8_192,
        thinking: None,
        headers: Default::default(),
        tells_usage: true,
    }
}

fn answer_events(request: &ModelRequest) -> Vec<ModelEvent> {
    let tools: Vec<String> = request.tools.iter().map(|tool| tool.name.clone()).collect();
    let elsewhere = remote_shell::next_answer(&request.messages, &tools);
    let ScriptedAnswer { text, calls } = elsewhere.unwrap_or_else(|| script::next_answer(&request.messages));
    let turn = request.messages.iter().filter(|message| matches!(message, RequestMessage::Assistant(_))).count();
    let mut events = vec![ModelEvent::Start { response_id: Some(format!("scripted-{turn}")) }];
    let mut output = text.len();
    let words = text.split_inclusive(' ').collect::<Vec<_>>();
    push_part(&mut events, PartKind::Text, words.chunks(3).map(<[&str]>::concat).collect(), MessagePart::text(text));
    let stop = if calls.is_empty() { FinishReason::Stop } else { FinishReason::ToolUse };
    for (index, call) in calls.into_iter().enumerate() {
        let id = format!("demo_{turn}_{index}");
        let name = call.tool;
        let arguments = call.arguments.to_string();
        output += arguments.len();
        let characters: Vec<_> = arguments.chars().collect();
        let deltas = characters.chunks(12).map(|piece| piece.iter().collect()).collect();
        let kind = PartKind::ToolCall { id: id.clone(), name: name.clone() };
        push_part(&mut events, kind, deltas, MessagePart::ToolCall { id, name, arguments, signature: None });
    }
    events.push(ModelEvent::Usage(estimate_usage(request, output)));
    events.push(ModelEvent::Stop(stop));
    events
}

fn push_part(events: &mut Vec<ModelEvent>, kind: PartKind, deltas: Vec<String>, part: MessagePart) {
    let index = events.iter().filter(|event| matches!(event, ModelEvent::PartStart { .. })).count();
    events.push(ModelEvent::PartStart { index, kind });
    events.extend(deltas.into_iter().map(|text| ModelEvent::Delta { index, text }));
    events.push(ModelEvent::PartEnd { index, part });
}

/// Estimates the usage: four characters a token, as the rule of thumb is.
fn estimate_usage(request: &ModelRequest, output: usize) -> ModelUsage {
    let of = |parts: &[MessagePart]| {
        let length = |part: &MessagePart| match part {
            MessagePart::Text { text, .. } | MessagePart::Thinking { text, .. } => text.len(),
            MessagePart::Redacted { .. } | MessagePart::Image { .. } => 0,
            MessagePart::ToolCall { arguments, .. } => arguments.len(),
        };
        parts.iter().map(length).sum::<usize>()
    };
    let messages: usize = request
        .messages
        .iter()
        .map(|message| match message {
            RequestMessage::User(parts)
            | RequestMessage::Developer(parts)
            | RequestMessage::ToolResult { parts, .. } => of(parts),
            RequestMessage::Assistant(answer) => of(&answer.parts),
        })
        .sum();
    let tools: usize =
        request.tools.iter().map(|tool| tool.description.len() + json!(tool.schema).to_string().len()).sum();
    let input = request.system.as_deref().map_or(0, str::len) + messages + tools;
    ModelUsage { input: input.div_ceil(4) as u64, output: output.div_ceil(4) as u64, cache_read: 0, cache_write: 0 }
}
