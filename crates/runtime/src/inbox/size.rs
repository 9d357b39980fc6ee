//! About how many bytes a command brings.

use countersign_core::{
    call::{CallProgress, Command as CallCommand},
    channel::Command as ChannelCommand,
    engine::Command,
    gate::{Command as GateCommand, GateReply},
    peer::Command as PeerCommand,
    run::Command as RunCommand,
    schedule::{Command as JobCommand, FiringOutcome},
    session::{Command as SessionCommand, StagedEntry},
};
use serde_json::{Map, Value};

/// Estimates the bytes of a command, so that a batch stays within its size.
pub(super) fn size_of(command: &Command) -> usize {
    let content = match command {
        Command::Run(RunCommand::Answered { answer, .. }) => answer.message.content.len(),
        Command::Call(CallCommand::Ended { progress: CallProgress::Returned(returned), .. }) => {
            returned.message.content.len()
        }
        Command::Session(_, SessionCommand::Import { entries, .. }) => {
            entries.iter().map(|entry| entry.message.content.len()).sum()
        }
        Command::Session(_, SessionCommand::Gather { entries, .. }) => entries
            .iter()
            .map(|entry| match entry {
                StagedEntry::Known(id) => id.as_str().len(),
                StagedEntry::Foreign(entry) => entry.message.content.len(),
            })
            .sum(),
        Command::Session(_, command) => size_of_said(command),
        Command::Call(CallCommand::Request(request)) => {
            let texts = request.signatures.iter().chain(&request.named).chain(&request.undeclared).chain(&request.key);
            request.wire.len() + texts.map(String::len).sum::<usize>() + size_of_arguments(&request.arguments)
        }
        Command::Call(CallCommand::Run { arguments, signature, .. }) => signature.len() + size_of_arguments(arguments),
        Command::Call(CallCommand::Act(act)) => act.signature.len() + size_of_arguments(&act.arguments),
        Command::Call(CallCommand::Reach { host, .. }) => host.len(),
        Command::Peer(PeerCommand::Registered { description: text, .. }) => text.len(),
        Command::Call(CallCommand::Ended {
            progress: CallProgress::NotBegun(text) | CallProgress::Left { text, .. },
            ..
        }) => text.len(),
        Command::Gate(GateCommand::Answer { answer, .. } | GateCommand::AnswerAs { answer, .. }) => {
            size_of_answer(answer)
        }
        Command::Channel(ChannelCommand::Hear(inbound)) => inbound.then.as_ref().map_or(0, |then| size_of(then)),
        Command::Channel(ChannelCommand::Send(message)) => message.text.len(),
        Command::Schedule(JobCommand::Say { message, .. }) => message.message.content.len(),
        Command::Schedule(JobCommand::Add { content, .. } | JobCommand::Change { content, .. }) => content.len(),
        Command::Schedule(JobCommand::End { ending, .. }) => {
            let FiringOutcome { error, summary } = &ending.outcome;
            [error, summary].into_iter().flatten().map(String::len).sum()
        }
        _ => 0,
    };
    256 + content
}

fn size_of_said(command: &SessionCommand) -> usize {
    match command {
        SessionCommand::Prompt { message, .. }
        | SessionCommand::HandOff { message }
        | SessionCommand::Say { message, .. }
        | SessionCommand::Queue { message, .. }
        | SessionCommand::Steer { message } => message.content.len(),
        SessionCommand::Once { key, command } => key.name.len() + size_of_said(command),
        _ => 0,
    }
}

fn size_of_answer(answer: &GateReply) -> usize {
    match answer {
        GateReply::Deny { reason } => reason.as_ref().map_or(0, String::len),
        GateReply::Say(texts) => texts.iter().map(String::len).sum(),
        GateReply::Form(form) => size_of_answer(&form.answer) + size_of_value(&form.form),
        GateReply::Grant(grant) => grant.pattern.as_ref().map_or(0, String::len),
        GateReply::Allow(_) | GateReply::Decline => 0,
    }
}

fn size_of_arguments(arguments: &Map<String, Value>) -> usize {
    arguments.iter().map(|(name, value)| name.len() + size_of_value(value)).sum()
}

fn size_of_value(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 8,
        Value::String(text) => text.len(),
        Value::Array(values) => values.iter().map(size_of_value).sum(),
        Value::Object(arguments) => size_of_arguments(arguments),
    }
}

#[cfg(test)]
mod tests {
    use countersign_core::{
        call,
        engine::Command,
        gate::{self, GateReply},
        id::{EntryId, GateId, PrincipalId, SessionId},
        session::{Command as SessionCommand, FilePart, ImportedEntry, MessageContent, SessionEntryKind, StagedEntry},
    };

    use super::size_of;

    #[test]
    fn what_is_gathered_or_imported_counts_with_its_content() {
        let id = || EntryId::new("e".repeat(8));
        let message = MessageContent { content: "c".repeat(1_000).into(), tokens: 1 };
        let entry = ImportedEntry { id: id(), parent: None, kind: SessionEntryKind::User, message, made_at: None };
        let gather = |entries| SessionCommand::Gather { part: FilePart::First, entries };
        for (case, command, want) in [
            ("nothing", gather(Vec::new()), 256),
            ("known", gather(vec![StagedEntry::Known(id()), StagedEntry::Known(id())]), 272),
            ("foreign", gather(vec![StagedEntry::Foreign(entry.clone())]), 1_256),
            ("imported", SessionCommand::Import { entries: vec![entry], leaf: None }, 1_256),
        ] {
            assert_eq!(size_of(&Command::Session(SessionId::new("s"), command)), want, "{case}");
        }
    }

    #[test]
    fn what_a_person_says_or_runs_counts() {
        let gate = GateId::parse("gate_00000000000000000000000000000001").unwrap();
        let by = PrincipalId::new("ana");
        let answer = GateReply::Deny { reason: Some("n".repeat(1_000)) };
        let answered = Command::Gate(gate::Command::Answer { gate, answer, by, key: None });
        assert_eq!(size_of(&answered), 1_256);
        let command = serde_json::json!({ "command": ["c".repeat(1_000)] });
        let run = Command::Call(call::Command::Run {
            session: SessionId::new("s"),
            tool: "bash".into(),
            arguments: command.as_object().cloned().unwrap(),
            signature: "s".repeat(1_000),
            executor: call::Executor::Builtin,
        });
        assert_eq!(size_of(&run), 256 + 1_000 + 1_007);
    }
}
