//! Slash commands, directives, names of tools, and what is said about runs and executions.

use countersign_protocol::Json;
use countersign_protocol::gsv::channel::{Access, OutboundMessage, Peer, PeerKind, Policy, Sender, access};
use countersign_protocol::gsv::chat::Directives;
use countersign_protocol::gsv::command::{Command, INVALID_COUNT, Reply, Status, Style};
use countersign_protocol::gsv::directive::{Level, Model, parse};
use countersign_protocol::gsv::node::{ExecEvent, ExecState};
use countersign_protocol::gsv::session::{self, ResetMode, Tokens};
use countersign_protocol::gsv::tool::{Name, Outcome, check_node};
use serde_json::{Value, json};

use super::text;

#[test]
fn slash_commands_are_one_line_with_a_known_word() {
    let command = |keep| Some(Command::Compact { keep });
    for (message, want) in [
        ("/reset", Some(Command::Reset)),
        (" /NEW now ", Some(Command::Reset)),
        ("/compact", command(Ok(20))),
        ("/compact 5", command(Ok(5))),
        ("/compact 0", command(Err(INVALID_COUNT))),
        ("/compact -5", command(Err(INVALID_COUNT))),
        ("/compact many", command(Err(INVALID_COUNT))),
        ("/stop", Some(Command::Stop)),
        ("/status", Some(Command::Status)),
        ("/model", Some(Command::Model { selector: None })),
        ("/model p/x", Some(Command::Model { selector: Some(text("p/x")) })),
        ("/t high", Some(Command::Think { level: Some(text("high")) })),
        ("/thinking", Some(Command::Think { level: None })),
        ("/help", Some(Command::Help)),
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
        assert_eq!(Command::read(message), want, "{message:?}");
    }
    assert_eq!(Command::read("/t").unwrap().name(), "think");
}

#[test]
fn commands_are_answered_in_known_words() {
    let model = Model { provider: text("p"), id: text("x") };
    let status = Reply::Status(Status {
        session: text("agent:main:main"),
        messages: 3,
        tokens: Tokens { input: 10, output: 5, total: 15 },
        model: model.clone(),
        thinking: Some(Level::High),
        reset: Some(ResetMode::Daily),
    });
    for (reply, want) in [
        (Reply::Reset { archived: 3 }, "Session reset. Archived 3 messages."),
        (Reply::Compacted { kept: 20, archived: 4 }, "Compacted session. Kept 20 messages, archived 4."),
        (Reply::Stopped { run: text("r"), cancelled: 0 }, "Stopped run r."),
        (Reply::Stopped { run: text("r"), cancelled: 2 }, "Stopped run r, cancelled 2 pending tool(s)."),
        (Reply::SummaryStopped, "Stopped summarizing the conversation."),
        (Reply::NothingRuns, "No run in progress."),
        (
            status.clone(),
            "Session: agent:main:main\nMessages: 3\nTokens: 10 in / 5 out\nModel: p/x\nThinking: high\nReset: daily",
        ),
        (Reply::CurrentModel(model.clone()), "Current model: p/x\nUse provider/id, or an id of the current provider."),
        (Reply::ModelSet(model), "Model set to p/x"),
        (Reply::CurrentLevel(None), "Thinking level: off\nLevels: off, minimal, low, medium, high, xhigh"),
        (Reply::LevelSet(Level::XHigh), "Thinking level set to xhigh"),
    ] {
        assert_eq!(reply.text(Style::Plain), want);
    }
    assert_eq!(
        status.text(Style::Marked),
        "**Session Status**\n- Session: `agent:main:main`\n- Messages: 3\n- Tokens: 10 in / 5 out\n- Model: `p/x`\n\
         - Thinking: high\n- Reset: daily"
    );
    assert!(Reply::Help.text(Style::Plain).starts_with("Available commands:\n/reset - "));
    assert!(Reply::Help.text(Style::Marked).contains("\n- `/deny [reason]` - Refuse"));
    for (style, directives) in [
        (Style::Plain, "Show this list\n\nInline directives, for one message:\n/t:level - "),
        (Style::Marked, "Show this list\n\n**Inline directives, for one message**\n- `/t:level` - "),
    ] {
        let help = Reply::Help.text(style);
        assert!(help.contains(directives) && help.contains("/m:provider/id") && !help.ends_with('\n'), "{help}");
    }
}

#[test]
fn directives_are_taken_out_and_lines_stay() {
    let level = |level| Directives { think_level: Some(level), model: None };
    for (message, want, left, acknowledged) in [
        ("hello", Directives::default(), "hello", None),
        ("/think:high go", level(Level::High), "go", Some("_Thinking: high_")),
        ("a /T:0 b", level(Level::None), "a b", Some("_Thinking: off_")),
        ("a /t:max\n\n  indented\n", level(Level::XHigh), "a\n\n  indented\n", Some("_Thinking: xhigh_")),
        ("/t:low\nline", level(Level::Low), "line", Some("_Thinking: low_")),
        ("/t:low /t:high x", level(Level::Low), "/t:high x", Some("_Thinking: low_")),
        ("/t:often x", Directives::default(), "x", None),
        ("see http://a/t:high", Directives::default(), "see http://a/t:high", None),
        (
            "/m:X/y /thinking:min",
            Directives { think_level: Some(Level::Minimal), model: Some(Model { provider: text("x"), id: text("y") }) },
            "",
            Some("_Thinking: minimal | Model: x/y_"),
        ),
        (
            "/model:y do",
            Directives { think_level: None, model: Some(Model { provider: text("p"), id: text("y") }) },
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
        let parsed = parse(message, "p");
        assert_eq!((&parsed.directives, parsed.text.as_str()), (&want, left), "{message:?}");
        assert_eq!(parsed.acknowledgement().as_deref(), acknowledged, "{message:?}");
    }
    assert!(parse("/t:high\n/status", "p").is_all());
    assert!(parse("/t:high\n/status", "p").status);
    assert!(!parse("", "p").is_all());
}

#[test]
fn names_of_tools_say_whose_they_are() {
    for (name, want) in [
        ("macbook__Bash", Name::OfNode { node: "macbook", tool: "Bash" }),
        ("macbook:Bash", Name::OfNode { node: "macbook", tool: "Bash" }),
        ("a__b__c", Name::OfNode { node: "a", tool: "b__c" }),
        ("gsv__Cron", Name::Native("Cron")),
        ("gsv:Cron", Name::Native("Cron")),
        ("Bash", Name::Bare("Bash")),
        ("__Bash", Name::Bare("__Bash")),
        ("macbook__", Name::Bare("macbook__")),
    ] {
        assert_eq!(Name::read(name), want, "{name}");
    }
    assert_eq!(Name::of_node("macbook", "Bash"), "macbook__Bash");
    assert!(check_node("node-box").is_ok() && check_node("GSV").is_err() && check_node("a_").is_err());
}

#[test]
fn results_are_read_by_the_model_as_text_or_json() {
    let outcome = |result: Option<Value>, error: Option<&str>| {
        Outcome { call_id: text("c"), result: result.map(Json::from), error: error.map(str::to_owned), fate: None }
            .text()
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
        event.message("macbook"),
        "System event: async_exec_completion\n{\"eventId\":\"e\",\"nodeId\":\"macbook\",\"sessionId\":\"s\",\"callId\":null,\
         \"event\":\"failed\",\"exitCode\":1,\"signal\":null,\"outputTail\":\"a\\nb\",\"startedAt\":1,\"endedAt\":2}"
    );
}

#[test]
fn who_may_speak_is_open_listed_or_asked_for() {
    let peer = |id: &str| Peer { kind: PeerKind::Group, id: text(id), name: None, handle: None };
    let sender = |id: &str| Sender { id: text(id), name: None, handle: None };
    for (case, policy, list, want) in [
        ("open", Policy::Open, &[][..], Access::Allowed),
        ("nobody", Policy::Allowlist, &[][..], Access::Blocked),
        ("not yet", Policy::Pairing, &[][..], Access::Pairing),
        ("everybody", Policy::Allowlist, &["*"][..], Access::Allowed),
        ("a number in another form", Policy::Pairing, &["+49 170 1234567"][..], Access::Allowed),
        ("the chat", Policy::Allowlist, &["room-1"][..], Access::Allowed),
        ("another name", Policy::Pairing, &["ana", "", " "][..], Access::Pairing),
    ] {
        let list: Vec<String> = list.iter().map(|entry| text(entry)).collect();
        let ana = sender("491701234567@s.whatsapp.net");
        assert_eq!(access(policy, &list, &peer("room-1"), Some(&ana)), want, "{case}");
    }
    assert_eq!(access(Policy::Allowlist, &[text("7")], &peer("7"), None), Access::Allowed);
    assert_eq!(access(Policy::Allowlist, &[text("bob")], &peer("x"), Some(&sender("ana"))), Access::Blocked);
    assert_eq!(Policy::named("pairing"), Some(Policy::Pairing));
    assert_eq!(Policy::named("closed"), None);
}

#[test]
fn an_archive_tells_its_session_whole_or_in_parts() {
    for (name, want) in [
        (session::archive("main", "s-1"), "s-1"),
        (session::archive_part("main", "s-1", 7), "s-1"),
        ("s-1.jsonl.json".to_owned(), "s-1"),
        ("s-1-part7.jsonl.json".to_owned(), "s-1"),
    ] {
        let name = name.strip_prefix(&format!("{}/", session::archives("main"))).unwrap_or(&name);
        assert_eq!(session::archived_session(name), Some(want), "{name}");
    }
    assert_eq!(session::archived_session("s-1.txt"), None);
}

#[test]
fn what_is_sent_to_a_chat_begins_with_its_first_line() {
    let sent = |text| OutboundMessage::new(text, None, None).map(|message| serde_json::to_value(message).unwrap());
    assert_eq!(sent("\n\n  code\nend\n\n"), Some(json!({"text": "  code\nend"})));
    assert_eq!(sent(" \n\t"), None);
    assert_eq!(sent(""), None);
    let with = OutboundMessage::new(" ", None, Some("data:,x")).map(|message| serde_json::to_value(message).unwrap());
    assert_eq!(with, Some(json!({"text": "", "mediaUrl": "data:,x"})));
}
