//! Frames of hosts, and the answers to those that cannot be read.

use countersign_protocol::gjc::bridge::{self, BridgeError, DialogAnswer, PermissionAnswer, PermissionKind};
use countersign_protocol::gjc::command::CommandOrder;
use countersign_protocol::gjc::host_tool::HostToolAnswer;
use countersign_protocol::gjc::state::StateIncludes;
use countersign_protocol::gjc::ui::UiAnswer;
use countersign_protocol::gjc::unattended::CommandScope;
use countersign_protocol::gjc::{GjcCommand, GjcInboundFrame, OmpResponse, parse_line};
use countersign_protocol::{RawJson, encode_line, omp};
use proptest::prelude::*;

fn read(line: &str) -> GjcCommand {
    match parse_line(line) {
        Ok(GjcInboundFrame::Command { command, .. }) => command,
        other => panic!("{line}: {other:?}"),
    }
}

/// Every command with its order and scope, one line for each.
#[test]
fn every_command_has_its_lane_and_its_scope() {
    let (fast, ordered) = (CommandOrder::Fast, CommandOrder::Ordered);
    for (line, order, scope) in [
        (r#"{"type":"prompt","message":"m"}"#, ordered, CommandScope::Prompt),
        (r#"{"type":"steer","message":"m"}"#, ordered, CommandScope::Prompt),
        (r#"{"type":"follow_up","message":"m"}"#, ordered, CommandScope::Prompt),
        (r#"{"type":"abort"}"#, fast, CommandScope::Prompt),
        (r#"{"type":"abort_and_prompt","message":"m"}"#, ordered, CommandScope::Prompt),
        (r#"{"type":"workflow_gate_response","gate_id":"g","answer":1}"#, fast, CommandScope::Prompt),
        (r#"{"type":"new_session"}"#, ordered, CommandScope::Session),
        (r#"{"type":"switch_session","sessionPath":"p"}"#, ordered, CommandScope::Session),
        (r#"{"type":"branch","entryId":"e"}"#, ordered, CommandScope::Session),
        (r#"{"type":"get_branch_messages"}"#, fast, CommandScope::Session),
        (r#"{"type":"set_session_name","name":"n"}"#, ordered, CommandScope::Session),
        (r#"{"type":"get_state"}"#, fast, CommandScope::MessageRead),
        (r#"{"type":"get_session_stats"}"#, fast, CommandScope::MessageRead),
        (r#"{"type":"get_last_assistant_text"}"#, fast, CommandScope::MessageRead),
        (r#"{"type":"get_messages"}"#, fast, CommandScope::MessageRead),
        (r#"{"type":"get_pending_workflow_gates"}"#, fast, CommandScope::MessageRead),
        (r#"{"type":"set_todos","phases":[]}"#, ordered, CommandScope::Control),
        (r#"{"type":"set_steering_mode","mode":"all"}"#, ordered, CommandScope::Control),
        (r#"{"type":"set_follow_up_mode","mode":"one-at-a-time"}"#, ordered, CommandScope::Control),
        (r#"{"type":"set_interrupt_mode","mode":"wait"}"#, ordered, CommandScope::Control),
        (r#"{"type":"compact"}"#, ordered, CommandScope::Control),
        (r#"{"type":"set_auto_compaction","enabled":true}"#, ordered, CommandScope::Control),
        (r#"{"type":"set_auto_retry","enabled":true}"#, ordered, CommandScope::Control),
        (r#"{"type":"abort_retry"}"#, fast, CommandScope::Control),
        (r#"{"type":"negotiate_unattended"}"#, ordered, CommandScope::Control),
        (r#"{"type":"set_capabilities","capabilities":[]}"#, ordered, CommandScope::Control),
        (r#"{"type":"set_host_tools","tools":[]}"#, ordered, CommandScope::HostTools),
        (r#"{"type":"set_host_uri_schemes","schemes":[]}"#, ordered, CommandScope::HostUri),
        (r#"{"type":"set_model","provider":"p","modelId":"m"}"#, ordered, CommandScope::Model),
        (r#"{"type":"cycle_model"}"#, ordered, CommandScope::Model),
        (r#"{"type":"get_available_models"}"#, fast, CommandScope::Model),
        (r#"{"type":"set_thinking_level","level":"max"}"#, ordered, CommandScope::Model),
        (r#"{"type":"cycle_thinking_level"}"#, ordered, CommandScope::Model),
        (r#"{"type":"set_default_model_selection","provider":"p","modelId":"m"}"#, ordered, CommandScope::Model),
        (r#"{"type":"bash","command":"ls"}"#, ordered, CommandScope::Bash),
        (r#"{"type":"abort_bash"}"#, fast, CommandScope::Bash),
        (r#"{"type":"export_html"}"#, ordered, CommandScope::Export),
        (r#"{"type":"handoff"}"#, ordered, CommandScope::Admin),
        (r#"{"type":"get_login_providers"}"#, fast, CommandScope::Admin),
        (r#"{"type":"login","providerId":"p"}"#, ordered, CommandScope::Admin),
    ] {
        let command = read(line);
        assert_eq!((command.order(), command.required_scope()), (order, scope), "{line}");
        assert!(line.starts_with(&format!(r#"{{"type":"{}""#, command.name())), "{line}");
    }
}

#[test]
fn only_what_causes_work_takes_a_call_of_the_budget() {
    for (line, want) in [
        (r#"{"type":"bash","command":"ls"}"#, true),
        (r#"{"type":"prompt","message":"m"}"#, true),
        (r#"{"type":"steer","message":"m"}"#, true),
        (r#"{"type":"follow_up","message":"m"}"#, true),
        (r#"{"type":"abort_and_prompt","message":"m"}"#, true),
        (r#"{"type":"abort"}"#, false),
        (r#"{"type":"compact"}"#, false),
        (r#"{"type":"workflow_gate_response","gate_id":"g"}"#, false),
    ] {
        assert_eq!(read(line).takes_a_call(), want, "{line}");
    }
}

#[test]
fn fields_are_read_as_they_are_meant() {
    let both = StateIncludes { tools: true, system_prompt: true };
    for (line, want) in [
        (
            r#"{"type":"get_state","include":["dumpTools","nonsense","systemPrompt"]}"#,
            GjcCommand::GetState { include: both },
        ),
        (r#"{"type":"get_state","include":null}"#, GjcCommand::GetState { include: StateIncludes::default() }),
        (r#"{"type":"abort"}"#, GjcCommand::Shared(omp::OmpCommand::Abort)),
        (
            r#"{"type":"workflow_gate_response","gate_id":"g"}"#,
            GjcCommand::WorkflowGateResponse {
                gate_id: "g".to_owned(),
                answer: RawJson::from_wire(&()),
                idempotency_key: None,
            },
        ),
        (
            r#"{"type":"workflow_gate_response","gate_id":"g","answer":{"a":[1]},"idempotency_key":"k"}"#,
            GjcCommand::WorkflowGateResponse {
                gate_id: "g".to_owned(),
                answer: RawJson::parse(r#"{"a":[1]}"#.to_owned()).unwrap(),
                idempotency_key: Some("k".to_owned()),
            },
        ),
        (r#"{"type":"negotiate_unattended"}"#, GjcCommand::NegotiateUnattended { declaration: None }),
    ] {
        assert_eq!(read(line), want, "{line}");
    }
}

#[test]
fn what_cannot_be_read_is_answered_in_the_name_of_its_command() {
    let phases = "set_todos: `phases` must be an array of phases {name, tasks: [{content, status: pending, in_progress, completed or abandoned, notes?: [string]}]}";
    for (line, command, error) in [
        (r#"{"id":1,"type":"prompt"}"#, "prompt", "prompt: `message` is required"),
        (r#"{"id":1,"type":"bash","command":["ls"]}"#, "bash", "bash: `command` must be a string"),
        (
            r#"{"id":1,"type":"get_state","include":"tools"}"#,
            "get_state",
            "get_state: `include` must be an array of strings",
        ),
        (
            r#"{"id":1,"type":"set_todos","phases":[{"name":"n","tasks":[{"content":"c","status":"done"}]}]}"#,
            "set_todos",
            phases,
        ),
        (
            r#"{"id":1,"type":"set_host_tools","tools":{}}"#,
            "set_host_tools",
            "set_host_tools: `tools` must be an array",
        ),
        (
            r#"{"id":1,"type":"set_host_tools","tools":[{}]}"#,
            "set_host_tools",
            "Host tool at index 0 must provide a non-empty name",
        ),
        (
            r#"{"id":1,"type":"set_host_uri_schemes","schemes":[{"scheme":"pr"}]}"#,
            "set_host_uri_schemes",
            "Host URI scheme is reserved: pr",
        ),
        (r#"{"id":1,"type":"set_steering_mode","mode":"some"}"#, "set_steering_mode", "Invalid steering mode: some"),
        (r#"{"id":1,"type":"set_follow_up_mode","mode":"some"}"#, "set_follow_up_mode", "Invalid follow-up mode: some"),
        (r#"{"id":1,"type":"set_interrupt_mode","mode":"all"}"#, "set_interrupt_mode", "Invalid interrupt mode: all"),
        (
            r#"{"id":1,"type":"set_thinking_level","level":"hard"}"#,
            "set_thinking_level",
            "Invalid thinking level: hard",
        ),
        (
            r#"{"id":1,"type":"set_default_model_selection","provider":"p","modelId":"m","thinkingLevel":"inherit"}"#,
            "set_default_model_selection",
            "Invalid thinking level: inherit",
        ),
        (
            r#"{"id":1,"type":"set_default_model_selection","provider":" ","modelId":"m"}"#,
            "set_default_model_selection",
            "set_default_model_selection: `provider` must not be blank",
        ),
        (r#"{"id":1,"type":"login"}"#, "login", "login: `providerId` is required"),
        (
            r#"{"id":1,"type":"workflow_gate_response","answer":1}"#,
            "workflow_gate_response",
            "workflow_gate_response: `gate_id` is required",
        ),
    ] {
        let id = Some(RawJson::parse("1".to_owned()).unwrap().into());
        assert_eq!(parse_line(line).unwrap_err().to_response(), OmpResponse::failure(id, command, error), "{line}");
    }
    for line in
        ["{", "null", "[1]", r#"{"type":"extension_ui_response","id":"u"}"#, r#"{"type":"extension_ui_response"}"#]
    {
        let answer = encode_line(&parse_line(line).unwrap_err().to_response());
        let begin = r#"{"type":"response","command":"parse","success":false,"error":"Failed to parse command: "#;
        assert!(answer.starts_with(begin.as_bytes()), "{line}: {answer:?}");
    }
}

#[test]
fn an_unknown_command_is_answered_with_its_id() {
    for (line, want) in [
        (
            r#"{"id":"a","type":"x"}"#,
            r#"{"id":"a","type":"response","command":"x","success":false,"error":"Unknown command: x"}"#,
        ),
        (r#"{"id":7}"#, r#"{"id":7,"type":"response","success":false,"error":"Unknown command: undefined"}"#),
        (
            r#"{"type":"host_tool_result","id":"c","result":{"content":"done"}}"#,
            r#"{"id":"c","type":"response","command":"host_tool_result","success":false,"error":"Unknown command: host_tool_result"}"#,
        ),
        (
            r#"{"type":"host_tool_update","id":5,"partialResult":{"content":[]}}"#,
            r#"{"id":5,"type":"response","command":"host_tool_update","success":false,"error":"Unknown command: host_tool_update"}"#,
        ),
        (
            r#"{"type":"host_tool_result","id":"c","result":{"content":[]},"isError":"yes"}"#,
            r#"{"id":"c","type":"response","command":"host_tool_result","success":false,"error":"Unknown command: host_tool_result"}"#,
        ),
        (
            r#"{"type":"host_uri_result","id":"u","contentType":"image/png"}"#,
            r#"{"id":"u","type":"response","command":"host_uri_result","success":false,"error":"Unknown command: host_uri_result"}"#,
        ),
    ] {
        let Ok(GjcInboundFrame::Unknown { id, type_name }) = parse_line(line) else { panic!("{line}") };
        assert_eq!(encode_line(&OmpResponse::unknown_command_with_id(id, type_name)), format!("{want}\n"), "{line}");
    }
}

#[test]
fn a_host_speaks_about_its_calls_and_its_uris() {
    let line =
        r#"{"type":"host_tool_result","id":"c","result":{"content":[{"type":"text","text":"no"}]},"isError":true}"#;
    let want = GjcInboundFrame::HostTool { id: "c".to_owned(), answer: HostToolAnswer::Failed("no".to_owned()) };
    assert_eq!(parse_line(line), Ok(want));
    let line = r#"{"type":"host_uri_result","id":"u","content":"x","contentType":"text/markdown","notes":["n"],"immutable":false}"#;
    let Ok(GjcInboundFrame::HostUri { id, result }) = parse_line(line) else { panic!("{line}") };
    assert_eq!((id.as_str(), result.content.as_deref(), result.immutable), ("u", Some("x"), Some(false)));
    assert_eq!(parse_line(r#"{"type":"resume","last_seq":7}"#), Ok(GjcInboundFrame::Resume { last_seq: 7 }));
}

#[test]
fn the_bridge_is_stricter_and_says_so() {
    for (body, want) in [
        ("{", "invalid_json"),
        ("[]", "the body must be an object"),
        (r#"{"type":"nonsense"}"#, "Unknown command: nonsense"),
        (r#"{"type":"abort","id":5}"#, "`id` must be a string"),
        (r#"{"type":"get_state","include":["all"]}"#, "get_state: `include` cannot be \"all\""),
        (r#"{"type":"workflow_gate_response","gate_id":"g"}"#, "workflow_gate_response: `answer` is required"),
        (r#"{"type":"bash"}"#, "bash: `command` is required"),
    ] {
        let error = bridge::read_command(body).unwrap_err();
        assert_eq!(error.status_code(), 400, "{body}");
        assert!(error.error_body().as_text().contains(want.replace('"', "\\\"").as_str()), "{body}: {error:?}");
    }
    assert!(bridge::read_command(r#"{"type":"set_steering_mode","mode":"some"}"#).unwrap().is_err());
    let Ok(Ok((Some(_), GjcCommand::Shared(omp::OmpCommand::Abort)))) =
        bridge::read_command(r#"{"type":"abort","id":"a"}"#)
    else {
        panic!("not read")
    };
    assert_eq!(bridge::last_seq(Some("12")), Ok(Some(12)));
    assert_eq!(bridge::last_seq(None), Ok(None));
    for text in ["-1", "x", "1.5", ""] {
        assert_eq!(bridge::last_seq(Some(text)).unwrap_err().status_code(), 400, "{text}");
    }
}

#[test]
fn answers_to_the_bridge_say_one_thing() {
    for (body, want) in [
        (r#"{"status":"value","value":"a"}"#, Some(DialogAnswer::Answered(UiAnswer::Value("a".to_owned())))),
        (r#"{"status":"value","value":true}"#, Some(DialogAnswer::Answered(UiAnswer::Confirmed(true)))),
        (r#"{"status":"cancelled"}"#, Some(DialogAnswer::Answered(UiAnswer::Cancelled { timed_out: false }))),
        (
            r#"{"status":"cancelled","reason":"timeout"}"#,
            Some(DialogAnswer::Answered(UiAnswer::Cancelled { timed_out: true })),
        ),
        (r#"{"status":"unsupported","capability":"x","reason":"y"}"#, Some(DialogAnswer::Unsupported)),
        (r#"{"status":"value","value":1}"#, None),
        (r#"{"status":"value"}"#, None),
        (r#"{"value":"a"}"#, None),
    ] {
        assert_eq!(DialogAnswer::from_body(body).ok(), want, "{body}");
    }
    let selected = PermissionAnswer::Selected { option_id: PermissionKind::AllowOnce };
    for (body, want) in [
        (r#"{"outcome":"selected","optionId":"allow_once"}"#, Some(selected)),
        (r#"{"outcome":"cancelled"}"#, Some(PermissionAnswer::Cancelled)),
        (r#"{"outcome":"selected","optionId":"allow"}"#, None),
        (r#"{"outcome":"selected"}"#, None),
    ] {
        assert_eq!(PermissionAnswer::from_body(body).ok(), want, "{body}");
    }
    for (body, want) in [
        (r#"{"gate_id":"g","answer":null}"#, Ok(())),
        (r#"{"gate_id":"h","answer":1}"#, Err("`gate_id` must be that of the path")),
        (r#"{"gate_id":"g"}"#, Err("`answer` is required")),
    ] {
        let error_text = bridge::gate_answer(body, "g").map(drop).map_err(|error| error.to_string());
        assert_eq!(error_text, want.map_err(str::to_owned), "{body}");
    }
    assert!(bridge::host_tool_result(r#"{"type":"host_tool_result","result":{"content":[]}}"#).is_ok());
    assert!(bridge::host_tool_result(r#"{"result":{"content":[]}}"#).is_err());
    assert!(bridge::host_uri_result("{}").is_ok());
    assert_eq!(bridge::host_uri_result("nonsense"), Err(BridgeError::InvalidJson));
}

proptest! {
    #[test]
    fn no_bytes_make_reading_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        countersign_protocol::gjc::command::fuzz(&bytes);
    }

    #[test]
    fn no_object_makes_reading_panic(line in r#"\{("(type|id|gate_id|tools|schemes|phases|include|result|answer)":("set_host_tools"|"host_tool_result"|"set_todos"|null|[0-9.e]{0,4}|\[\{?\}?\]|\{"content":\[\]\}|"\\u[dD8]{1,4}")?,?){0,5}\}?"#) {
        countersign_protocol::gjc::command::fuzz(line.as_bytes());
    }
}
