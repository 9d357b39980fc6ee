//! The built-in scripted model: it looks at the conversation and does one small real task, so that the gateway can be
//! seen at work without a key or a network.
//!
//! It must not pretend to be more: it says that it is scripted. It must not touch the folder either, which only the
//! tools that it calls do.

use futures_util::{StreamExt, stream, stream::BoxStream};
use serde_json::json;

use crate::{
    Api, Entry, Event, Failure, Message, Modality, Model, Part, PartKind, Price, Request, Stop, Usage,
    demo::script::Answer,
};

mod elsewhere;
mod script;

/// The provider's name.
pub const PROVIDER: &str = "demo";

/// The model's id.
pub const MODEL: &str = "scripted-1";

/// What the model is asked for in the demo. Any prompt that names `greet.sh` starts the same task.
pub const PROMPT: &str = "The test of greet.sh in this folder fails. Please find the bug, fix it, run the test, and publish the project beside this folder.";

/// The broken project: paths relative to the folder that the tools work in, and what is in the files. The folder needs
/// a name of its own below a scratch folder, since the last step publishes to `../published`.
pub const PROJECT: &[(&str, &str)] = &[
    (
        "greet.sh",
        concat!(
            "#!/bin/sh\n",
            "# Greets whoever is named, or the world.\n",
            "name=${1:-world}\n",
            "echo \"Hello, $nmae!\"\n"
        ),
    ),
    (
        "test.sh",
        concat!(
            "#!/bin/sh\n",
            "# Says what is wrong and fails, or says that all is well.\n",
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

/// What the model puts in its place.
pub const FIX: &str = "echo \"Hello, $name!\"";

/// How the model tests.
pub const TEST: &str = "sh test.sh";

/// What needs an approval: it replaces a folder outside of the one that the model works in.
pub const PUBLISH: &str = "rm -rf ../published && cp -R . ../published";

/// The scripted model.
#[derive(Clone, Copy, Debug, Default)]
pub struct Demo;

impl Model for Demo {
    fn stream(&self, request: Request) -> BoxStream<'static, Result<Event, Failure>> {
        let events = answer(&request);
        stream::iter(events.into_iter().map(Ok)).boxed()
    }
}

/// The model as a catalogue would list it. It costs nothing.
pub fn entry() -> Entry {
    Entry {
        id: MODEL.to_owned(),
        name: "Scripted demo model".to_owned(),
        api: Api::Demo,
        provider: PROVIDER.to_owned(),
        base_url: String::new(),
        reasoning: false,
        input: vec![Modality::Text],
        cost: Price::default(),
        context_window: 128_000,
        max_tokens: 8_192,
        thinking: None,
        headers: Default::default(),
        tells_usage: true,
    }
}

fn answer(request: &Request) -> Vec<Event> {
    let tools: Vec<String> = request.tools.iter().map(|tool| tool.name.clone()).collect();
    let elsewhere = elsewhere::answer(&request.messages, &tools);
    let Answer { text, calls } = elsewhere.unwrap_or_else(|| script::answer(&request.messages));
    let turn = request.messages.iter().filter(|message| matches!(message, Message::Assistant(_))).count();
    let mut events = vec![Event::Start { response_id: Some(format!("scripted-{turn}")) }];
    let mut output = text.len();
    let words = text.split_inclusive(' ').collect::<Vec<_>>();
    part(&mut events, PartKind::Text, words.chunks(3).map(<[&str]>::concat).collect(), Part::text(text));
    let stop = if calls.is_empty() { Stop::Stop } else { Stop::ToolUse };
    for (index, call) in calls.into_iter().enumerate() {
        let id = format!("demo_{turn}_{index}");
        let name = call.tool;
        let arguments = call.arguments.to_string();
        output += arguments.len();
        let characters: Vec<_> = arguments.chars().collect();
        let deltas = characters.chunks(12).map(|piece| piece.iter().collect()).collect();
        let kind = PartKind::ToolCall { id: id.clone(), name: name.clone() };
        part(&mut events, kind, deltas, Part::ToolCall { id, name, arguments, signature: None });
    }
    events.push(Event::Usage(usage(request, output)));
    events.push(Event::Stop(stop));
    events
}

fn part(events: &mut Vec<Event>, kind: PartKind, deltas: Vec<String>, part: Part) {
    let index = events.iter().filter(|event| matches!(event, Event::PartStart { .. })).count();
    events.push(Event::PartStart { index, kind });
    events.extend(deltas.into_iter().map(|text| Event::Delta { index, text }));
    events.push(Event::PartEnd { index, part });
}

/// Four characters a token, as the rule of thumb is.
fn usage(request: &Request, output: usize) -> Usage {
    let of = |parts: &[Part]| {
        let length = |part: &Part| match part {
            Part::Text { text, .. } | Part::Thinking { text, .. } => text.len(),
            Part::Redacted { .. } | Part::Image { .. } => 0,
            Part::ToolCall { arguments, .. } => arguments.len(),
        };
        parts.iter().map(length).sum::<usize>()
    };
    let messages: usize = request
        .messages
        .iter()
        .map(|message| match message {
            Message::User(parts) | Message::Developer(parts) | Message::ToolResult { parts, .. } => of(parts),
            Message::Assistant(said) => of(&said.parts),
        })
        .sum();
    let tools: usize =
        request.tools.iter().map(|tool| tool.description.len() + json!(tool.schema).to_string().len()).sum();
    let input = request.system.as_deref().map_or(0, str::len) + messages + tools;
    Usage { input: input.div_ceil(4) as u64, output: output.div_ceil(4) as u64, cache_read: 0, cache_write: 0 }
}
