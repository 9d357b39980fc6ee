//! Slash commands, directives, names of tools, and texts about runs and executions.

use countersign_protocol::RawJson;
use countersign_protocol::gsv::channel::{
    ChannelOutboundMessage, ChatPeer, MessageSender, PeerKind, SenderAccess, SenderPolicy, sender_access,
};
use countersign_protocol::gsv::chat::Directives;
use countersign_protocol::gsv::command::{ChatCommand, CommandReply, INVALID_COUNT, ReplyStyle, StatusReply};
use countersign_protocol::gsv::directive::{ModelSelector, ThinkLevel, parse_directives};
use countersign_protocol::gsv::node::{ExecEvent, ExecState};
use countersign_protocol::gsv::session::{self, ResetMode, SessionTokens};
use countersign_protocol::gsv::tool::{ParsedToolName, ToolResultParams, check_node};
use serde_json::{Value, json};

use super::text;

#[test]
fn slash_commands_are_one_line_with_a_known_word() {
    let command = |keep| Some(ChatCommand::Compact { keep });
    for (message, want) in [
        ("/reset", Some(ChatCommand::Reset)),
        (" /NEW now ", Some(ChatCommand::Reset)),
        ("/compact", command(Ok(20))),
        ("/compact 5", command(Ok(5))),
        ("/compact 0", command(Err(INVALID_COUNT))),
        ("/compact -5", command(Err(INVALID_COUNT))),
        ("/compact many", command(Err(INVALID_COUNT))),
        ("/stop", Some(ChatCommand::Stop)),
        ("/status", Some(ChatCommand::Status)),
        ("/model", Some(ChatCommand::Model { selector: None })),
        ("/model p/x", Some(ChatCommand::Model { selector: Some(text("p/x")) })),
        ("/t high", Some(ChatCommand::Think { level: Some(text("high")) })),
        ("/thinking", Some(ChatCommand::Think { level: None })),
        ("/help", Some(ChatCommand::Help)),
        ("/?", None),
        ("/think:high", None),
        ("/unknown", None),
        ("/reset\nnow", None),
        ("reset", None),
        ("/", None),
        ("", None),
        // Answers to what waits.
        ("/approve", None),
        ("/deny why", None),
    ] {
        assert_eq!(ChatCommand::from_message(message), want, "{message:?}");
    }
    assert_eq!(ChatCommand::from_message("/t").unwrap().name(), "think");
}

#[test]
fn commands_are_answered_in_known_words() {
    let model = ModelSelector { provider: text("p"), id: text("x") };
    let status = CommandReply::Status(StatusReply {
        session: text("agent:main:main"),
        messages: 3,
        tokens: SessionTokens { input: 10, output: 5, total: 15 },
        model: model.clone(),
        thinking: Some(ThinkLevel::High),
        reset: Some(ResetMode::Daily),
    });
    for (reply, want) in [
        (CommandReply::Reset { archived: 3 }, "Session reset. Archived 3 messages."),
        (CommandReply::Compacted { kept: 20, archived: 4 }, "Compacted session. Kept 20 messages, archived 4."),
        (CommandReply::Stopped { run: text("r"), cancelled: 0 }, "Stopped run r."),
        (CommandReply::Stopped { run: text("r"), cancelled: 2 }, "Stopped run r, cancelled 2 pending tool(s)."),
        (CommandReply::SummaryStopped, "Stopped summarizing the conversation."),
        (CommandReply::NothingRuns, "No run in progress."),
        (
            status.clone(),
            "Session: agent:main:main\nMessages: 3\nTokens: 10 in / 5 out\nModel: p/x\nThinking: high\nReset: daily",
        ),
        (
            CommandReply::CurrentModel(model.clone()),
            "Current model: p/x\nUse provider/id, or an id of the current provider.",
        ),
        (CommandReply::ModelSet(model), "Model set to p/x"),
        (CommandReply::CurrentLevel(None), "Thinking level: off\nLevels: off, minimal, low, medium, high, xhigh"),
        (CommandReply::LevelSet(ThinkLevel::XHigh), "Thinking level set to xhigh"),
    ] {
        assert_eq!(reply.to_text(ReplyStyle::Plain), want);
    }
    assert_eq!(
        status.to_text(ReplyStyle::Marked),
        "**Session Status**\n- Session: `agent:main:main`\n- Messages: 3\n- Tokens: 10 in / 5 out\n- Model: `p/x`\n\
         - Thinking: high\n- Reset: daily"
    );
    assert!(CommandReply::Help.to_text(ReplyStyle::Plain).starts_with("Available commands:\n/reset - "));
    assert!(CommandReply::Help.to_text(ReplyStyle::Marked).contains("\n- `/deny [reason]` - Refuse"));
    for (style, directives) in [
        (ReplyStyle::Plain, "Show this list\n\nInline directives, for one message:\n/t:level - "),
        (ReplyStyle::Marked, "Show this list\n\n**Inline directives, for one message**\n- `/t:level` - "),
    ] {
        let help = CommandReply::Help.to_text(style);
        assert!(help.contains(directives) && help.contains("/m:provider/id") && !help.ends_with('\n'), "{help}");
    }
}

#[test]
fn directives_are_taken_out_and_lines_stay() {
    let level = |level| Directives { think_level: Some(level), model: None };
    for (message, want, left, acknowledged) in [
        ("hello", Directives::default(), "hello", None),
        ("/think:high go", level(ThinkLevel::High), "go", Some("_Thinking: high_")),
        ("a /T:0 b", level(ThinkLevel::None), "a b", Some("_Thinking: off_")),
        ("a /t:max\n\n  indented\n", level(ThinkLevel::XHigh), "a\n\n  indented\n", Some("_Thinking: xhigh_")),
        ("/t:low\nline", level(ThinkLevel::Low), "line", Some("_Thinking: low_")),
        ("/t:low /t:high x", level(ThinkLevel::Low), "/t:high x", Some("_Thinking: low_")),
        ("/t:often x", Directives::default(), "x", None),
        ("see http://a/t:high", Directives::default(), "see http://a/t:high", None),
        (
            "/m:X/y /thinking:min",
            Directives {
                think_level: Some(ThinkLevel::Minimal),
                model: Some(ModelSelector { provider: text("x"), id: text("y") }),
            },
            "",
            Some("_Thinking: minimal | Model: x/y_"),
        ),
        (
            "/model:y do",
            Directives { think_level: None, model: Some(ModelSelector { provider: text("p"), id: text("y") }) },
            "do",
            Some("_Model: p/y_"),
        ),
        (
            "/m:/ do",
            Directives::default(),
            "do",
            Some("Invalid model selector: /\nUse provider/id, or an id of the current provider."),
        ),
    ] {
        let parsed = parse_directives(message, "p");
        assert_eq!((&parsed.directives, parsed.text.as_str()), (&want, left), "{message:?}");
        assert_eq!(parsed.acknowledgement().as_deref(), acknowledged, "{message:?}");
    }
    assert!(parse_directives("/t:high\n/status", "p").is_all());
    assert!(parse_directives("/t:high\n/status", "p").status);
    assert!(!parse_directives("", "p").is_all());
}

#[test]
fn names_of_tools_say_whose_they_are() {
    for (name, want) in [
        ("macbook__Bash", ParsedToolName::OfNode { node: "macbook", tool: "Bash" }),
        ("macbook:Bash", ParsedToolName::OfNode { node: "macbook", tool: "Bash" }),
        ("a__b__c", ParsedToolName::OfNode { node: "a", tool: "b__c" }),
        ("gsv__Cron", ParsedToolName::Native("Cron")),
        ("gsv:Cron", ParsedToolName::Native("Cron")),
        ("Bash", ParsedToolName::Bare("Bash")),
        ("__Bash", ParsedToolName::Bare("__Bash")),
        ("macbook__", ParsedToolName::Bare("macbook__")),
    ] {
        assert_eq!(ParsedToolName::parse_name(name), want, "{name}");
    }
    assert_eq!(ParsedToolName::of_node("macbook", "Bash"), "macbook__Bash");
    assert!(check_node("node-box").is_ok() && check_node("GSV").is_err() && check_node("a_").is_err());
}

#[test]
fn results_are_read_by_the_model_as_text_or_json() {
    let outcome = |result: Option<Value>, error: Option<&str>| {
        ToolResultParams {
            call_id: text("c"),
            result: result.map(RawJson::from),
            error: error.map(str::to_owned),
            fate: None,
        }
        .model_text()
    };
    assert_eq!(outcome(Some(json!("plain\ntext")), None), "plain\ntext");
    assert_eq!(outcome(Some(json!({"a": [1]})), None), r#"{"a":[1]}"#);
    assert_eq!(outcome(Some(json!(1)), Some("no")), "Error: no");
    assert_eq!(outcome(None, None), "null");
}

#[test]
fn the_end_of_an_execution_is_a_message_of_two_lines() {
    let event = ExecEvent {
        event_id: text("e"),
        session_id: text("s"),
        event: ExecState::Failed,
        call_id: None,
        exit_code: Some(1),
        signal: None,
        output_tail: Some(text("a\nb")),
        started_at: Some(1),
        ended_at: Some(2),
    };
    assert_eq!(
        event.completion_message("macbook"),
        "System event: async_exec_completion\n{\"eventId\":\"e\",\"nodeId\":\"macbook\",\"sessionId\":\"s\",\"callId\":null,\
         \"event\":\"failed\",\"exitCode\":1,\"signal\":null,\"outputTail\":\"a\\nb\",\"startedAt\":1,\"endedAt\":2}"
    );
}

#[test]
fn senders_are_open_listed_or_paired() {
    let peer = |id: &str| ChatPeer { kind: PeerKind::Group, id: text(id), name: None, handle: None };
    let sender = |id: &str| MessageSender { id: text(id), name: None, handle: None };
    for (case, policy, list, want) in [
        ("open", SenderPolicy::Open, &[][..], SenderAccess::Allowed),
        ("nobody", SenderPolicy::Allowlist, &[][..], SenderAccess::Blocked),
        ("not yet", SenderPolicy::Pairing, &[][..], SenderAccess::Pairing),
        ("everybody", SenderPolicy::Allowlist, &["*"][..], SenderAccess::Allowed),
        ("a number in another form", SenderPolicy::Pairing, &["+49 170 1234567"][..], SenderAccess::Allowed),
        ("the chat", SenderPolicy::Allowlist, &["room-1"][..], SenderAccess::Allowed),
        ("another name", SenderPolicy::Pairing, &["ana", "", " "][..], SenderAccess::Pairing),
    ] {
        let list: Vec<String> = list.iter().map(|entry| text(entry)).collect();
        let ana = sender("491701234567@s.whatsapp.net");
        assert_eq!(sender_access(policy, &list, &peer("room-1"), Some(&ana)), want, "{case}");
    }
    assert_eq!(sender_access(SenderPolicy::Allowlist, &[text("7")], &peer("7"), None), SenderAccess::Allowed);
    assert_eq!(
        sender_access(SenderPolicy::Allowlist, &[text("bob")], &peer("x"), Some(&sender("ana"))),
        SenderAccess::Blocked
    );
    assert_eq!(SenderPolicy::from_name("pairing"), Some(SenderPolicy::Pairing));
    assert_eq!(SenderPolicy::from_name("closed"), None);
}

#[test]
fn the_name_of_an_archive_has_its_session_whole_or_in_parts() {
    for (name, want) in [
        (session::archive_path("main", "s-1"), "s-1"),
        (session::archive_part("main", "s-1", 7), "s-1"),
        ("s-1.jsonl.json".to_owned(), "s-1"),
        ("s-1-part7.jsonl.json".to_owned(), "s-1"),
    ] {
        let name = name.strip_prefix(&format!("{}/", session::archive_folder("main"))).unwrap_or(&name);
        assert_eq!(session::archived_session(name), Some(want), "{name}");
    }
    assert_eq!(session::archived_session("s-1.txt"), None);
}

#[test]
fn what_is_sent_to_a_chat_begins_with_its_first_line() {
    let sent =
        |text| ChannelOutboundMessage::new(text, None, None).map(|message| serde_json::to_value(message).unwrap());
    assert_eq!(sent("\n\n  code\nend\n\n"), Some(json!({"text": "  code\nend"})));
    assert_eq!(sent(" \n\t"), None);
    assert_eq!(sent(""), None);
    let with =
        ChannelOutboundMessage::new(" ", None, Some("data:,x")).map(|message| serde_json::to_value(message).unwrap());
    assert_eq!(with, Some(json!({"text": "", "mediaUrl": "data:,x"})));
}
