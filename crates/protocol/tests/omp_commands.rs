//! Reading of a host's lines, and the answers to lines that cannot be read.

use countersign_protocol::lines::DecodedLine;
use countersign_protocol::omp::command::{PageLimit, StreamingBehavior, SubscriptionLevel};
use countersign_protocol::omp::message::ImageContent;
use countersign_protocol::omp::{
    OmpCommand, OmpInboundFrame, OmpRequestId, OmpResponse, UiAnswer, parse_line, receive_line,
};
use countersign_protocol::{ExtraMembers, encode_line};
use proptest::prelude::*;

fn image() -> ImageContent {
    ImageContent { data: "iVBO".to_owned(), mime_type: "image/png".to_owned(), extra: ExtraMembers::default() }
}

#[test]
fn every_command_is_read() {
    let text = || "x".to_owned();
    let some = || Some("x".to_owned());
    let table = [
        (
            r#"{"type":"prompt","message":"x","images":[{"type":"image","data":"iVBO","mimeType":"image/png"}],"streamingBehavior":"followUp"}"#,
            OmpCommand::Prompt {
                message: text(),
                images: vec![image()],
                streaming_behavior: Some(StreamingBehavior::FollowUp),
            },
        ),
        (
            r#"{"type":"prompt","message":"","streamingBehavior":"steer"}"#,
            OmpCommand::Prompt {
                message: String::new(),
                images: Vec::new(),
                streaming_behavior: Some(StreamingBehavior::Steer),
            },
        ),
        (
            r#"{"type":"prompt","message":"x","images":null,"streamingBehavior":null,"later":[1]}"#,
            OmpCommand::Prompt { message: text(), images: Vec::new(), streaming_behavior: None },
        ),
        (r#"{"type":"steer","message":"x","images":[]}"#, OmpCommand::Steer { message: text(), images: Vec::new() }),
        (r#"{"type":"follow_up","message":"x"}"#, OmpCommand::FollowUp { message: text(), images: Vec::new() }),
        (r#"{"type":"abort"}"#, OmpCommand::Abort),
        (
            r#"{"type":"abort_and_prompt","message":"x"}"#,
            OmpCommand::AbortAndPrompt { message: text(), images: Vec::new() },
        ),
        (r#"{"type":"new_session"}"#, OmpCommand::NewSession { parent_session: None }),
        (r#"{"type":"new_session","parentSession":"x"}"#, OmpCommand::NewSession { parent_session: some() }),
        (r#"{"type":"get_state"}"#, OmpCommand::GetState),
        (
            r#"{"type":"set_model","provider":"p","modelId":"x"}"#,
            OmpCommand::SetModel { provider: "p".to_owned(), model_id: text() },
        ),
        (r#"{"type":"cycle_model"}"#, OmpCommand::CycleModel),
        (r#"{"type":"get_available_models"}"#, OmpCommand::GetAvailableModels),
        (r#"{"type":"set_thinking_level","level":"x"}"#, OmpCommand::SetThinkingLevel { level: text() }),
        (r#"{"type":"cycle_thinking_level"}"#, OmpCommand::CycleThinkingLevel),
        (r#"{"type":"set_steering_mode","mode":"x"}"#, OmpCommand::SetSteeringMode { mode: text() }),
        (r#"{"type":"set_follow_up_mode","mode":"x"}"#, OmpCommand::SetFollowUpMode { mode: text() }),
        (r#"{"type":"set_interrupt_mode","mode":"x"}"#, OmpCommand::SetInterruptMode { mode: text() }),
        (r#"{"type":"compact"}"#, OmpCommand::Compact { custom_instructions: None }),
        (r#"{"type":"compact","customInstructions":"x"}"#, OmpCommand::Compact { custom_instructions: some() }),
        (r#"{"type":"set_auto_compaction","enabled":true}"#, OmpCommand::SetAutoCompaction { enabled: true }),
        (r#"{"type":"set_auto_retry","enabled":false}"#, OmpCommand::SetAutoRetry { enabled: false }),
        (r#"{"type":"abort_retry"}"#, OmpCommand::AbortRetry),
        (r#"{"type":"bash","command":"x"}"#, OmpCommand::Bash { command: text() }),
        (r#"{"type":"abort_bash"}"#, OmpCommand::AbortBash),
        (r#"{"type":"get_session_stats"}"#, OmpCommand::GetSessionStats),
        (r#"{"type":"export_html"}"#, OmpCommand::ExportHtml { output_path: None }),
        (r#"{"type":"export_html","outputPath":"x"}"#, OmpCommand::ExportHtml { output_path: some() }),
        (r#"{"type":"switch_session","sessionPath":"x"}"#, OmpCommand::SwitchSession { session_path: text() }),
        (r#"{"type":"branch","entryId":"x"}"#, OmpCommand::Branch { entry_id: text() }),
        (r#"{"type":"get_branch_messages"}"#, OmpCommand::GetBranchMessages),
        (r#"{"type":"get_last_assistant_text"}"#, OmpCommand::GetLastAssistantText),
        (r#"{"type":"set_session_name","name":"x"}"#, OmpCommand::SetSessionName { name: text() }),
        (r#"{"type":"get_messages"}"#, OmpCommand::GetMessages),
    ];
    for (line, command) in table {
        assert!(line.contains(&format!(r#""type":"{}""#, command.name())), "{line} is named {}", command.name());
        let with_id = line.replacen('{', r#"{"id":"a","#, 1);
        assert_eq!(parse_line(line), Ok(OmpInboundFrame::Command { id: None, command: command.clone() }), "{line}");
        assert_eq!(parse_line(&with_id), Ok(OmpInboundFrame::Command { id: Some("a".into()), command }), "{with_id}");
    }
}

#[test]
fn every_command_of_later_versions_and_of_pi_is_read() {
    let limit = PageLimit::default;
    for (line, command) in [
        (r#"{"type":"negotiate_protocol","protocolVersion":2}"#, OmpCommand::NegotiateProtocol { version: 2 }),
        (r#"{"type":"set_fast_mode","enabled":true}"#, OmpCommand::SetFastMode { enabled: true }),
        (r#"{"type":"get_available_commands"}"#, OmpCommand::GetAvailableCommands),
        (r#"{"type":"get_commands"}"#, OmpCommand::GetCommands),
        (
            r#"{"type":"set_subagent_subscription","level":"events"}"#,
            OmpCommand::SetSubagentSubscription { level: SubscriptionLevel::Events },
        ),
        (r#"{"type":"get_subagents"}"#, OmpCommand::GetSubagents),
        (
            r#"{"type":"get_subagent_messages","sessionFile":"f","subagentId":"s","fromByte":0}"#,
            OmpCommand::GetSubagentMessages { subagent: Some("s".to_owned()) },
        ),
        (r#"{"type":"get_subagent_messages"}"#, OmpCommand::GetSubagentMessages { subagent: None }),
        (r#"{"type":"get_messages_page"}"#, OmpCommand::GetMessagesPage { cursor: None, limit: limit() }),
        (
            r#"{"type":"get_messages_page","cursor":"c","limit":null}"#,
            OmpCommand::GetMessagesPage { cursor: Some("c".to_owned()), limit: limit() },
        ),
        (r#"{"type":"get_available_thinking_levels"}"#, OmpCommand::GetAvailableThinkingLevels),
        (r#"{"type":"fork","entryId":"x"}"#, OmpCommand::Fork { entry_id: "x".to_owned() }),
        (r#"{"type":"clone"}"#, OmpCommand::Clone),
        (r#"{"type":"get_fork_messages"}"#, OmpCommand::GetForkMessages),
    ] {
        assert!(line.contains(&format!(r#""type":"{}""#, command.name())), "{line} is named {}", command.name());
        assert_eq!(parse_line(line), Ok(OmpInboundFrame::Command { id: None, command }), "{line}");
    }
    for name in [
        "queue_message",
        "set_queue_mode",
        "reset",
        "get_entries",
        "get_tree",
        "open_session",
        "set_event_filter",
        "clear_queue",
    ] {
        let parsed = parse_line(&format!(r#"{{"id":"a","type":"{name}"}}"#));
        let Ok(OmpInboundFrame::Command { id: Some(_), command: OmpCommand::NotServed { name: named, reason } }) =
            parsed
        else {
            panic!("{name}")
        };
        assert!(named == name && reason.contains(": "), "{name}: {reason}");
    }
    for line in [
        r#"{"id":"a","type":"set_todos","phases":[]}"#,
        r#"{"id":"a","type":"set_host_tools","tools":[{"name":"t","description":"d","parameters":{}}]}"#,
        r#"{"id":"a","type":"set_host_uri_schemes","schemes":[{"scheme":"db"}]}"#,
        r#"{"id":"a","type":"handoff"}"#,
        r#"{"id":"a","type":"get_login_providers"}"#,
        r#"{"id":"a","type":"login","providerId":"p"}"#,
    ] {
        let Ok(OmpInboundFrame::Adopted { id: Some(_), command }) = parse_line(line) else { panic!("{line}") };
        assert!(line.contains(command.name()), "{line}");
    }
    // Frames that only hosts of gjc send are unknown to omp.
    for name in ["negotiate_unattended", "workflow_gate_response", "set_capabilities", "resume"] {
        let unknown = OmpInboundFrame::Unknown { type_name: Some(name.to_owned()) };
        assert_eq!(parse_line(&format!(r#"{{"id":"a","type":"{name}"}}"#)), Ok(unknown), "{name}");
    }
}

#[test]
fn what_a_host_says_of_its_tools_and_uris_is_read_and_no_command() {
    for (line, is_read) in [
        (r#"{"type":"host_tool_result","id":"c","result":{"content":[{"type":"text","text":"hi"}]}}"#, true),
        (r#"{"type":"host_tool_update","id":"c","partialResult":{"content":[]}}"#, true),
        (r#"{"type":"host_uri_result","id":"c","content":"x"}"#, true),
        (r#"{"type":"host_tool_result","id":"c"}"#, false),
        (r#"{"type":"host_tool_update","partialResult":{"content":[]}}"#, false),
    ] {
        let read = matches!(parse_line(line), Ok(OmpInboundFrame::HostTool { .. } | OmpInboundFrame::HostUri { .. }));
        assert_eq!(read, is_read, "{line}");
        assert!(is_read || matches!(parse_line(line), Ok(OmpInboundFrame::Unknown { .. })), "{line}");
    }
}

#[test]
fn a_field_of_a_later_command_that_is_wrong_is_named_with_what_is_accepted() {
    for (line, want) in [
        (r#"{"type":"negotiate_protocol"}"#, "negotiate_protocol: `protocolVersion` is required"),
        (
            r#"{"type":"negotiate_protocol","protocolVersion":"2"}"#,
            "negotiate_protocol: `protocolVersion` must be a whole number that is not negative",
        ),
        (r#"{"type":"set_fast_mode","enabled":"on"}"#, "set_fast_mode: `enabled` must be true or false"),
        (
            r#"{"type":"set_subagent_subscription","level":""}"#,
            "set_subagent_subscription: `level` must be \"off\", \"progress\" or \"events\"",
        ),
        (r#"{"type":"set_subagent_subscription"}"#, "set_subagent_subscription: `level` is required"),
        (
            r#"{"type":"get_messages_page","limit":257}"#,
            "get_messages_page: `limit` must be a whole number from 1 to 256",
        ),
        (
            r#"{"type":"get_messages_page","limit":0}"#,
            "get_messages_page: `limit` must be a whole number from 1 to 256",
        ),
        (
            r#"{"type":"get_messages_page","limit":1.5}"#,
            "get_messages_page: `limit` must be a whole number from 1 to 256",
        ),
        (r#"{"type":"get_messages_page","cursor":5}"#, "get_messages_page: `cursor` must be a string"),
        (
            r#"{"type":"get_subagent_messages","fromByte":-1}"#,
            "get_subagent_messages: `fromByte` must be a whole number that is not negative",
        ),
        (r#"{"type":"fork"}"#, "fork: `entryId` is required"),
        (r#"{"type":"login"}"#, "login: `providerId` is required"),
        (r#"{"type":"set_host_tools","tools":[{}]}"#, "Host tool at index 0 must provide a non-empty name"),
        (r#"{"type":"set_host_tools","tools":{}}"#, "set_host_tools: `tools` must be an array"),
        (
            r#"{"type":"bash","command":"ls","excludeFromContext":true}"#,
            "bash: `excludeFromContext` must be false: the model is told what the commands of a host print",
        ),
    ] {
        let with_id = line.replacen('{', r#"{"id":"a","#, 1);
        let malformed = parse_line(&with_id).expect_err(line);
        let (id, text) = (Some("a".into()), format!("Failed to parse command: {want}"));
        assert_eq!(
            encode_line(&malformed.to_response()),
            encode_line(&OmpResponse::failure(id, "parse", text)),
            "{line}"
        );
    }
    assert!(parse_line(r#"{"type":"bash","command":"ls","excludeFromContext":false}"#).is_ok());
}

#[test]
fn an_id_is_echoed_as_it_came_and_null_is_none() {
    for (line, want) in [
        (
            r#"{"id":"r\u00e9q","type":"abort"}"#,
            r#"{"id":"r\u00e9q","type":"response","command":"abort","success":true}"#,
        ),
        (r#"{"id":7.50,"type":"abort"}"#, r#"{"id":7.50,"type":"response","command":"abort","success":true}"#),
        (r#"{"id":null,"type":"abort"}"#, r#"{"type":"response","command":"abort","success":true}"#),
        (r#"{"id":1e999,"type":"abort"}"#, r#"{"type":"response","command":"abort","success":true}"#),
        (r#"{"id":"a","id":"b","type":"abort"}"#, r#"{"id":"b","type":"response","command":"abort","success":true}"#),
    ] {
        let Ok(OmpInboundFrame::Command { id, command }) = parse_line(line) else { panic!("{line}") };
        assert_eq!(encode_line(&OmpResponse::ack(id, command.name())), format!("{want}\n"), "{line}");
    }
}

#[test]
fn an_unknown_command_is_answered_by_name_and_without_id() {
    for (line, want) in [
        (
            r#"{"id":"a","type":"nonsense"}"#,
            r#"{"type":"response","command":"nonsense","success":false,"error":"Unknown command: nonsense"}"#,
        ),
        (r#"{"id":"a"}"#, r#"{"type":"response","success":false,"error":"Unknown command: undefined"}"#),
        (r#"{"type":null}"#, r#"{"type":"response","success":false,"error":"Unknown command: undefined"}"#),
        (r#"{"type":5}"#, r#"{"type":"response","command":"5","success":false,"error":"Unknown command: 5"}"#),
    ] {
        let Ok(OmpInboundFrame::Unknown { type_name }) = parse_line(line) else { panic!("{line}") };
        assert_eq!(encode_line(&OmpResponse::unknown_command(type_name)), format!("{want}\n"), "{line}");
    }
}

#[test]
fn a_line_that_cannot_be_read_is_answered_with_what_is_wrong() {
    let text = |line: &str| DecodedLine::Text(line.to_owned());
    for (line, want) in [
        (text("{bad json"), r#""error":"Failed to parse command: key must be a string at line 1 column 2""#),
        (text("{\"type\":"), r#""error":"Failed to parse command: EOF while parsing a value at line 1 column 8""#),
        (text("null"), r#""error":"Failed to parse command: a command is an object""#),
        (text("[1]"), r#""error":"Failed to parse command: a command is an object""#),
        (DecodedLine::NotUtf8, r#""error":"Failed to parse command: the line is not UTF-8""#),
        (DecodedLine::TooLong { limit: 8 }, r#""error":"Failed to parse command: the line is longer than 8 bytes""#),
        (
            text(r#"{"type":"extension_ui_response","id":"u"}"#),
            r#""error":"Failed to parse command: extension_ui_response: needs either `value`, `confirmed` or `cancelled`: true""#,
        ),
        (
            text(r#"{"type":"extension_ui_response","id":"u","value":"Deny","confirmed":true}"#),
            r#""error":"Failed to parse command: extension_ui_response: needs either `value`, `confirmed` or `cancelled`: true""#,
        ),
        (
            text(r#"{"type":"extension_ui_response","id":"u","value":1}"#),
            r#""error":"Failed to parse command: extension_ui_response: `value` must be a string""#,
        ),
    ] {
        let answer = encode_line(&receive_line(&line).unwrap_err().to_response());
        assert_eq!(
            answer,
            format!("{{\"type\":\"response\",\"command\":\"parse\",\"success\":false,{want}}}\n"),
            "{line:?}"
        );
    }
}

#[test]
fn a_wrong_field_is_named_with_the_id_of_its_request() {
    for (line, want) in [
        (r#"{"id":"a","type":"prompt"}"#, "prompt: `message` is required"),
        (r#"{"id":"a","type":"prompt","message":null}"#, "prompt: `message` is required"),
        (r#"{"id":"a","type":"bash","command":["ls"]}"#, "bash: `command` must be a string"),
        (r#"{"id":"a","type":"set_auto_retry","enabled":"yes"}"#, "set_auto_retry: `enabled` must be true or false"),
        (
            r#"{"id":"a","type":"prompt","message":"x","streamingBehavior":"later"}"#,
            r#"prompt: `streamingBehavior` must be "steer" or "followUp""#,
        ),
        (
            r#"{"id":"a","type":"steer","message":"x","images":[{"data":1}]}"#,
            "steer: `images` must be an array of images, each with the strings `data` and `mimeType`",
        ),
    ] {
        let want = OmpResponse::failure(Some("a".into()), "parse", format!("Failed to parse command: {want}"));
        assert_eq!(parse_line(line).unwrap_err().to_response(), want, "{line}");
    }
}

#[test]
fn an_answer_to_a_dialog_says_one_thing() {
    for (rest, want) in [
        (r#""value":"x""#, UiAnswer::Value("x".to_owned())),
        (r#""value":"x","confirmed":null,"cancelled":false"#, UiAnswer::Value("x".to_owned())),
        (r#""confirmed":false"#, UiAnswer::Confirmed(false)),
        (r#""cancelled":true"#, UiAnswer::Cancelled { timed_out: false }),
        (r#""cancelled":true,"timedOut":true"#, UiAnswer::Cancelled { timed_out: true }),
        (r#""cancelled":true,"confirmed":true"#, UiAnswer::Cancelled { timed_out: false }),
    ] {
        let line = format!(r#"{{"type":"extension_ui_response","id":"u1",{rest}}}"#);
        assert_eq!(parse_line(&line), Ok(OmpInboundFrame::UiResponse { id: "u1".to_owned(), answer: want }), "{rest}");
    }
}

#[test]
fn a_text_cut_inside_a_character_is_still_a_prompt() {
    let Ok(OmpInboundFrame::Command { command: OmpCommand::Prompt { message, .. }, .. }) =
        parse_line(r#"{"type":"prompt","message":"cut \ud83d"}"#)
    else {
        panic!("not read")
    };
    assert_eq!(message, "cut \u{fffd}");
}

proptest! {
    #[test]
    fn no_bytes_make_reading_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        countersign_protocol::omp::command::fuzz(&bytes);
        countersign_protocol::omp::session_file::fuzz(&bytes);
    }

    #[test]
    fn no_object_makes_reading_panic(line in r#"\{("(type|id|message|value)":("prompt"|"bash"|null|[0-9.e]{0,4}|\[\]|"\\u[dD8]{1,4}")?,?){0,4}\}?"#) {
        countersign_protocol::omp::command::fuzz(line.as_bytes());
    }

    #[test]
    fn every_message_arrives(message in any::<String>(), id in any::<String>()) {
        let line = format!(r#"{{"type":"follow_up","id":{},"message":{}}}"#,
            serde_json::to_string(&id).unwrap(), serde_json::to_string(&message).unwrap());
        let command = OmpCommand::FollowUp { message, images: Vec::new() };
        prop_assert_eq!(parse_line(&line), Ok(OmpInboundFrame::Command { id: Some(OmpRequestId::from(id.as_str())), command }));
    }
}
