//! The demo model does its task to the end, with any outcome.

use std::path::Path;
use std::process::Command;

use countersign_models::{
    AnswerMessage, FinishReason, LanguageModel, MessagePart, ModelEvent, ModelRequest, ModelTool, ProviderClient,
    RequestMessage,
    demo::{BUG, FIX, MODEL, PROJECT, PROMPT, PROVIDER, PUBLISH, TEST, model_entry},
};
use futures_util::StreamExt;

use crate::request;

/// Returns the parts of the next answer and how it stopped.
async fn next(messages: &[RequestMessage]) -> (Vec<MessagePart>, FinishReason) {
    let mut request = request(model_entry());
    request.messages = messages.to_vec();
    let items: Vec<_> = ProviderClient::default().stream(request).map(Result::unwrap).collect().await;
    let Some(ModelEvent::Stop(stop)) = items.last() else { panic!("the answer has an end") };
    let parts = items.iter().filter_map(|item| match item {
        ModelEvent::PartEnd { part, .. } => Some(part.clone()),
        ModelEvent::Start { .. }
        | ModelEvent::PartStart { .. }
        | ModelEvent::Delta { .. }
        | ModelEvent::Usage(_)
        | ModelEvent::Idle { .. }
        | ModelEvent::Payload(_)
        | ModelEvent::Stop(_) => None,
    });
    (parts.collect(), *stop)
}

#[tokio::test]
async fn where_only_other_machines_have_a_shell_it_looks_at_the_one_that_was_named() {
    let tool =
        |name: &str| ModelTool { name: name.to_owned(), description: String::new(), schema: serde_json::json!({}) };
    let mut request = request(model_entry());
    request.tools = ["gsv__ReadFile", "attic__Bash", "kitchen__Bash"].map(tool).to_vec();
    request.messages = vec![RequestMessage::User(vec![MessagePart::text("what is on the kitchen?")])];
    let mut answers = Vec::new();
    for (result, is_error) in
        [(r#"{"output":"Linux kitchen\n"}"#, false), ("Denied by ana", true), ("no such node", true)]
    {
        let parts = parts_of(&request).await;
        let Some(MessagePart::ToolCall { id, name, .. }) = parts.last().cloned() else { panic!("{parts:?}") };
        assert_eq!(name, "kitchen__Bash");
        let answer = AnswerMessage {
            parts,
            api: model_entry().api,
            provider: PROVIDER.into(),
            model: MODEL.into(),
            payload: None,
        };
        let mut follow_up = request.clone();
        let result = RequestMessage::ToolResult { id, name, parts: vec![MessagePart::text(result)], is_error };
        follow_up.messages.extend([RequestMessage::Assistant(answer), result]);
        let parts = parts_of(&follow_up).await;
        let [MessagePart::Text { text, .. }] = &parts[..] else { panic!("{parts:?}") };
        answers.push(text.clone());
    }
    assert_eq!(answers[0], "kitchen says: Linux kitchen");
    assert!(answers[1].contains("nothing ran on kitchen"), "{answers:?}");
    assert!(answers[2].contains("no such node"), "{answers:?}");
}

/// Returns the parts of the answer to a request.
async fn parts_of(request: &ModelRequest) -> Vec<MessagePart> {
    let items: Vec<_> = ProviderClient::default().stream(request.clone()).map(Result::unwrap).collect().await;
    let parts = items.into_iter().filter_map(|item| match item {
        ModelEvent::PartEnd { part, .. } => Some(part),
        ModelEvent::Start { .. }
        | ModelEvent::PartStart { .. }
        | ModelEvent::Delta { .. }
        | ModelEvent::Usage(_)
        | ModelEvent::Idle { .. }
        | ModelEvent::Payload(_)
        | ModelEvent::Stop(_) => None,
    });
    parts.collect()
}

/// Runs the task; `tool` gets the name and arguments of each call and returns the result. Gives the calls and the last
/// text.
async fn run(tool: impl Fn(&str, &str) -> Result<String, String>) -> (Vec<String>, String) {
    let mut messages = vec![RequestMessage::User(vec![MessagePart::text(PROMPT)])];
    let mut calls = Vec::new();
    loop {
        let (parts, stop) = next(&messages).await;
        let text = match &parts[0] {
            MessagePart::Text { text, .. } => text.clone(),
            other => panic!("an answer begins with text, not {other:?}"),
        };
        messages.push(RequestMessage::Assistant(AnswerMessage {
            parts: parts.clone(),
            api: model_entry().api,
            provider: PROVIDER.to_owned(),
            model: MODEL.to_owned(),
            payload: None,
        }));
        if stop == FinishReason::Stop {
            return (calls, text);
        }
        for part in parts {
            if let MessagePart::ToolCall { id, name, arguments, .. } = part {
                let result = tool(&name, &arguments);
                let is_error = result.is_err();
                let parts = vec![MessagePart::text(result.unwrap_or_else(|error| error))];
                calls.push(name.clone());
                messages.push(RequestMessage::ToolResult { id, name, parts, is_error });
            }
        }
    }
}

#[tokio::test]
async fn the_task_takes_five_calls_and_its_end_says_what_came_of_them() {
    let deny = |call: &str, arguments: &str| match call {
        "bash" if arguments.contains("published") => Err("Denied by ana: not today".to_owned()),
        _ => Ok("fine".to_owned()),
    };
    let break_off = |call: &str, arguments: &str| match call {
        "bash" if arguments.contains("published") => Err("cp: no space left".to_owned()),
        _ => Ok("fine".to_owned()),
    };
    let all = ["read", "read", "edit", "bash", "bash"];
    for (case, (calls, text), words) in [
        (
            "approved",
            run(|_, _| Ok("fine".to_owned())).await,
            "published in ../published, since the command was allowed",
        ),
        ("denied", run(deny).await, "publishing was denied"),
        ("failed", run(break_off).await, "publishing did not work: cp: no space left"),
    ] {
        assert_eq!(calls, all, "{case}");
        assert!(text.contains(words), "{case}: {text}");
    }
    let (calls, text) = run(|_, _| Err("no such file".to_owned())).await;
    assert_eq!(calls, ["read", "read"]);
    assert!(text.contains("Nothing was published"), "{text}");
}

#[tokio::test]
async fn it_states_that_it_is_scripted_for_any_prompt() {
    for prompt in [PROMPT, "What is the capital of France?"] {
        let (parts, _) = next(&[RequestMessage::User(vec![MessagePart::text(prompt)])]).await;
        assert!(
            matches!(&parts[0], MessagePart::Text { text, .. } if text.starts_with("I am a scripted model")),
            "{parts:?}"
        );
    }
}

#[test]
fn the_project_is_broken_until_the_models_edit_and_the_commands_do_what_they_say() {
    let scratch = std::env::temp_dir().join(format!("countersign-demo-{}", std::process::id()));
    let folder = scratch.join("project");
    std::fs::create_dir_all(&folder).unwrap();
    for (path, content) in PROJECT {
        std::fs::write(folder.join(path), content).unwrap();
    }
    let shell = |command: &str| Command::new("sh").args(["-c", command]).current_dir(&folder).output().unwrap().status;
    assert!(!shell(TEST).success());
    let file = folder.join("greet.sh");
    let content = std::fs::read_to_string(&file).unwrap();
    assert_eq!(content.matches(BUG).count(), 1);
    std::fs::write(&file, content.replace(BUG, FIX)).unwrap();
    assert!(shell(TEST).success() && shell(PUBLISH).success());
    assert!(Path::new(&scratch.join("published/greet.sh")).exists());
    std::fs::remove_dir_all(scratch).unwrap();
}
