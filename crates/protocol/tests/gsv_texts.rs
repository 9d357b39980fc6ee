//! What texts of the protocol mean: keys, slash commands, directives, names of tools, settings, skills.

use std::collections::BTreeMap;

use countersign_protocol::Json;
use countersign_protocol::gsv::RawKeys;
use countersign_protocol::gsv::channel::{Access, OutboundMessage, Peer, PeerKind, Policy, Sender, access};
use countersign_protocol::gsv::chat::Directives;
use countersign_protocol::gsv::command::{Command, INVALID_COUNT, Reply, Status, Style};
use countersign_protocol::gsv::directive::{Level, Model, parse};
use countersign_protocol::gsv::key::{self, DmScope, Keys};
use countersign_protocol::gsv::message::safe_to_show;
use countersign_protocol::gsv::node::{ExecEvent, ExecState};
use countersign_protocol::gsv::runtime::{Capability, HostRole};
use countersign_protocol::gsv::session::{self, ResetMode, Tokens};
use countersign_protocol::gsv::settings::{Change, Got, Path, defaults, get, got, merged, set};
use countersign_protocol::gsv::skill::{Eligibility, Host, Requirements, eligibility};
use countersign_protocol::gsv::tool::{Name, Outcome, check_node};
use proptest::prelude::*;
use serde_json::{Value, json};

fn text(text: &str) -> String {
    text.to_owned()
}

#[test]
fn keys_have_one_canonical_form() {
    let keys = |scope| Keys { scope, ..Keys::default() };
    let main = keys(DmScope::Main);
    let of_peer = keys(DmScope::PerPeer);
    let of_channel = keys(DmScope::PerChannelPeer);
    let of_account = keys(DmScope::PerAccountChannelPeer);
    let home = Keys { main_key: text("home"), agent: text("ana"), ..Keys::default() };
    for (case, keys, raw, want) in [
        ("the word", &main, " main ", "agent:main:main"),
        ("another word", &home, "home", "agent:ana:home"),
        ("main is always main", &home, "main", "agent:ana:home"),
        ("three parts", &home, "agent:Bob:main", "agent:bob:home"),
        ("a free key", &main, "my notes", "my notes"),
        ("a free key with points", &main, "a:b:c:d", "a:b:c:d"),
        ("the command line's", &main, "agent:main:cli:dm:main", "agent:main:main"),
        ("a browser's", &main, "agent:main:web:dm:local", "agent:main:main"),
        ("one a person", &of_peer, "agent:main:web:dm:Local", "agent:main:dm:local"),
        ("one a person and network", &of_channel, "agent:main:Web:dm:local", "agent:main:web:dm:local"),
        ("without an account", &of_account, "agent:main:web:dm:local", "agent:main:web:default:dm:local"),
        ("with one", &of_account, "agent:main:web:Bot 1:dm:local", "agent:main:web:bot-1:dm:local"),
        ("an id with points", &of_peer, "agent:main:matrix:dm:@a:b.org", "agent:main:dm:@a_b.org"),
        ("a group", &main, "agent:main:Discord:group:A B", "agent:main:discord:group:a_b"),
        ("a job", &main, "agent:main:cron:dm:x", "agent:main:cron:dm:x"),
        ("a heartbeat", &main, "agent:main:heartbeat:system:internal", "agent:main:heartbeat:system:internal"),
        ("nobody", &main, "agent:main:web:dm", "agent:main:web:dm"),
        ("no agent", &main, "agent::main", "agent:main:main"),
        ("too short", &main, "agent:main", "agent:main"),
    ] {
        assert_eq!(keys.canonical(raw), want, "{case}");
    }
}

#[test]
fn chats_have_sessions_of_their_scope() {
    let peer = |kind, id: &str| Peer { kind, id: text(id), name: None, handle: None };
    let keys = Keys { scope: DmScope::PerChannelPeer, ..Keys::default() };
    assert_eq!(keys.of_chat("main", "WhatsApp", "x", &peer(PeerKind::Dm, "+49 1")), "agent:main:whatsapp:dm:+49_1");
    assert_eq!(keys.of_chat("Main", "discord", "x", &peer(PeerKind::Thread, "T1")), "agent:main:discord:thread:t1");
    assert_eq!(Keys::of_job("main", "j1"), "agent:main:cron:j1");
    assert_eq!(Keys::of_heartbeat("main"), "agent:main:heartbeat:system:internal");
    for own in [Keys::of_job("main", "j1"), Keys::of_heartbeat("main")] {
        assert!(key::is_of_automation(&own), "{own}");
    }
    for peoples in ["agent:cron:main", "agent:main:wx:group:cron", "agent:main", "cron"] {
        assert!(!key::is_of_automation(peoples), "{peoples}");
    }
    assert_eq!(key::agent_of("agent:bob:main"), Some("bob"));
    assert_eq!(key::agent_of("notes"), None);
    let linked = Keys {
        scope: DmScope::PerPeer,
        identities: BTreeMap::from([(text("ana"), vec![text("whatsapp:+491701234567"), text("discord:4711")])]),
        ..Keys::default()
    };
    for (channel, id, want) in [
        ("whatsapp", "491701234567:12@s.whatsapp.net", "agent:main:dm:ana"),
        ("discord", "4711", "agent:main:dm:ana"),
        ("telegram", "4711", "agent:main:dm:4711"),
    ] {
        assert_eq!(linked.of_chat("main", channel, "x", &peer(PeerKind::Dm, id)), want, "{channel} {id}");
    }
}

#[test]
fn phone_numbers_are_told_apart_from_other_ids() {
    for (id, want) in [
        ("491701234567@s.whatsapp.net", "+491701234567"),
        ("491701234567:12@s.whatsapp.net", "+491701234567"),
        ("+49 170 / 1234567", "+491701234567"),
        ("4711", "4711"),
        ("+4711", "+4711"),
        // Ids without a number stay different from each other.
        ("@ana:matrix.org", "@ana:matrix.org"),
        ("ana", "ana"),
        ("ana2", "ana2"),
        // A group of a network is no person whose number has the same digits.
        ("-1001234567890", "-1001234567890"),
        ("-4711", "-4711"),
        ("", ""),
    ] {
        assert_eq!(key::phone(id), want, "{id}");
    }
    assert_eq!(key::agent_id(" My Agent! "), "my-agent");
    assert_eq!(key::agent_id("éé"), "main");
    assert_eq!(key::agent_id(&"a".repeat(99)).len(), 64);
}

proptest! {
    #[test]
    fn a_canonical_key_is_its_own(
        raw in prop_oneof!["agent:[a-zA-Z ]{0,3}(:(dm|group|cron|main|web|X y|)){0,6}", "\\PC{0,24}"],
        scope in proptest::sample::select(&[
            DmScope::Main, DmScope::PerPeer, DmScope::PerChannelPeer, DmScope::PerAccountChannelPeer,
        ][..]),
    ) {
        let keys = Keys { scope, ..Keys::default() };
        let once = keys.canonical(&raw);
        prop_assert_eq!(keys.canonical(&once), once);
    }

    #[test]
    fn a_message_without_directives_stays_as_it_is(message in "[a-z /:\n\t]{0,40}") {
        let parsed = parse(&message, "p");
        if !parsed.any {
            prop_assert_eq!(parsed.text, message);
        }
    }

    #[test]
    fn shown_text_can_be_cut_where_the_command_line_cuts(shown in "\\PC{0,300}") {
        let safe = safe_to_show(&shown);
        prop_assert!(safe.len() <= 200 || safe.is_char_boundary(200));
        prop_assert_eq!(safe.replace(' ', ""), shown.replace(' ', ""));
    }
}

#[test]
fn a_connection_is_told_the_keys_that_it_wrote() {
    let mut keys = RawKeys::default();
    keys.note("agent:main:main", "agent:main:cli:dm:main");
    assert_eq!(keys.of("agent:main:main"), "agent:main:cli:dm:main");
    assert_eq!(keys.of("agent:main:other"), "agent:main:other");
    keys.note("agent:main:main", "main");
    assert_eq!(keys.of("agent:main:main"), "main");
    keys.note("agent:main:main", "agent:main:main");
    assert_eq!(keys.of("agent:main:main"), "agent:main:main");
    // One that names ever new sessions costs no more than one that names some.
    for number in 0..300 {
        keys.note(&format!("agent:main:dm:{number}"), &format!("raw{number}"));
    }
    assert_eq!(keys.of("agent:main:dm:299"), "raw299");
    assert_eq!(keys.of("agent:main:dm:0"), "agent:main:dm:0");
}

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

#[test]
fn settings_take_what_they_can_be_and_say_what_that_is() {
    let path = |path: &str| Path::read(path).unwrap();
    for (at, value, want) in [
        ("timeouts.toolMs", json!(5_000), None),
        (
            "timeouts.toolMs",
            json!("5"),
            Some("Invalid value for timeouts.toolMs: a whole number from 1000 to 3600000 is wanted"),
        ),
        (
            "timeouts.toolMs",
            json!(1),
            Some("Invalid value for timeouts.toolMs: a whole number from 1000 to 3600000 is wanted"),
        ),
        (
            "timeouts",
            json!({"toolMs": 1}),
            Some("Invalid value for timeouts.toolMs: a whole number from 1000 to 3600000 is wanted"),
        ),
        ("timeouts", json!(5), Some("Invalid value for timeouts: an object is wanted")),
        ("timeouts.fly", json!(5), Some("Unknown setting: timeouts.fly")),
        ("wings", json!({}), Some("Unknown setting: wings")),
        (
            "auth.token",
            json!(""),
            Some(
                "Invalid value for auth.token: a text of 1 to 4096 bytes without control characters or white space at its ends is wanted",
            ),
        ),
        ("channels.telegram.dmPolicy", json!("pairing"), None),
        (
            "channels.telegram.dmPolicy",
            json!("closed"),
            Some("Invalid value for channels.telegram.dmPolicy: one of open, allowlist, pairing is wanted"),
        ),
        ("channels.telegram", json!({"allowFrom": ["*"]}), None),
        ("agents.defaultHeartbeat.every", json!("1h30m"), None),
        ("agents.defaultHeartbeat.every", json!(0), None),
        (
            "agents.defaultHeartbeat.every",
            json!("often"),
            Some(
                "Invalid value for agents.defaultHeartbeat.every: a span such as 30m or 1h30m, or 0 for never is wanted",
            ),
        ),
        (
            "agents.defaultHeartbeat.activeHours.start",
            json!("24:01"),
            Some("Invalid value for agents.defaultHeartbeat.activeHours.start: a time such as 08:00 is wanted"),
        ),
        ("session.identityLinks", json!({"ana": ["1"]}), None),
        (
            "session.identityLinks.ana",
            json!(["1", 2]),
            Some("Invalid value for session.identityLinks.ana: an array of strings is wanted"),
        ),
        (
            "session.defaultResetPolicy.atHour",
            json!(24),
            Some("Invalid value for session.defaultResetPolicy.atHour: a whole number from 0 to 23 is wanted"),
        ),
        ("session.mainKey", json!("Home_1"), None),
        (
            "session.mainKey",
            json!("dm:ana"),
            Some("Invalid value for session.mainKey: a name of 1 to 64 letters, digits, `_`, `-` and `.` is wanted"),
        ),
        ("userTimezone", Value::Null, None),
    ] {
        let mut tree = json!({});
        let refused = set(&mut tree, &path(at), &value).map_err(|fault| fault.message).err();
        assert_eq!(refused.as_deref(), want, "{at}");
        let is = get(&tree, &path(at)).cloned();
        assert_eq!(is, want.is_none().then_some(value).filter(|value| !value.is_null()), "{at}");
    }
}

#[test]
fn secrets_of_webhooks_sign_and_addresses_hold_none() {
    let path = |path: &str| Path::read(path).unwrap();
    for (at, value, is_taken) in [
        ("channels.webhook.secret", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", true),
        ("channels.webhook.accounts.b.secret", "sixteen letters!", true),
        ("channels.webhook.secret", "hunter2", false),
        ("channels.webhook.secret", "whsec_MfKQ9r8GKYqrTwjUPD8=", false),
        ("channels.webhook.secret", "whsec_!!!!9r8GKYqrTwjUPD8ILPZIo2LaLaSw", false),
        ("channels.webhook.secret", "***", false),
        ("channels.webhook.url", "https://example.org/a@b?c=d@e", true),
        ("channels.webhook.url", "https://ana:pw@example.org/", false),
        ("channels.webhook.url", "ftp://example.org/", false),
    ] {
        let mut tree = json!({});
        assert_eq!(set(&mut tree, &path(at), &json!(value)).is_ok(), is_taken, "{at} {value}");
    }
}

#[test]
fn lists_of_agents_and_bindings_are_looked_at_item_by_item() {
    for (at, value, want) in [
        ("agents.list", json!([{"id": "a", "default": true, "model": {"id": "m"}, "heartbeat": {"every": 0}}]), None),
        ("agents.list", json!([{"default": true}]), Some("Invalid value for agents.list.0.id: it is missing")),
        (
            "agents.list",
            json!([{"id": "a"}, {"id": "a"}]),
            Some("Invalid value for agents.list.1.id: another one has it"),
        ),
        (
            "agents.list",
            json!([{"id": "a"}, {"id": "A"}]),
            Some("Invalid value for agents.list.1.id: another one has it"),
        ),
        ("agents.list", json!([{"id": "a", "apiKey": "k"}]), Some("Unknown setting: agents.list.0.apiKey")),
        ("agents.list", json!([1]), Some("Invalid value for agents.list: an array of objects is wanted")),
        (
            "agents",
            json!({"list": [{"id": 5}]}),
            Some("Invalid value for agents.list.0.id: a text that is not empty is wanted"),
        ),
        ("agents.list.0.id", json!("b"), Some("agents.list is set as a whole")),
        ("channels.x.allowFrom.0", json!("b"), Some("channels.x.allowFrom is set as a whole")),
        (
            "agents.bindings",
            json!([{"agentId": "a", "match": {"channel": "c", "peer": {"kind": "dm", "id": "1"}}}]),
            None,
        ),
        (
            "agents.bindings",
            json!([{"agentId": "a", "match": {"peer": {"kind": "crowd"}}}]),
            Some("Invalid value for agents.bindings.0.match.peer.kind: one of dm, group, channel, thread is wanted"),
        ),
    ] {
        let refused = Change::of(&Path::read(at).unwrap(), &value).map_err(|fault| fault.message).err();
        assert_eq!(refused.as_deref(), want, "{at} {value}");
    }
}

#[test]
fn secrets_are_taken_out_of_what_is_set_wherever_they_stand_in_it() {
    let change = |at: &str, value: Value| Change::of(&Path::read(at).unwrap(), &value);
    let secret = |at: &str, value: &str| (Path::read(at).unwrap(), text(value));
    for (at, value, left, secrets) in [
        ("auth.token", json!("t"), None, vec![secret("auth.token", "t")]),
        ("auth", json!({"token": "t"}), Some(json!({})), vec![secret("auth.token", "t")]),
        ("auth.token", Value::Null, None, vec![]),
        ("apiKeys", json!({"a": "1", "b": null}), Some(json!({})), vec![secret("apiKeys.a", "1")]),
        ("cron", json!({"maxJobs": 3, "enabled": null}), Some(json!({"maxJobs": 3})), vec![]),
    ] {
        assert_eq!(change(at, value), Ok(Change { value: left, secrets }), "{at}");
    }
    for (at, value) in [("auth.token", json!("***")), ("apiKeys", json!({"a": "***"}))] {
        let refused = change(at, value).unwrap_err();
        assert!(refused.message.ends_with("*** stands for the secret, and is not the secret itself"), "{at}");
    }
    for wrong in ["", " t", "t\n", "a\u{7}b"] {
        assert!(change("auth.token", json!(wrong)).is_err(), "{wrong:?}");
    }
}

#[test]
fn the_defaults_are_settings_too() {
    let mut tree = json!({});
    for (name, value) in defaults().as_object().unwrap() {
        set(&mut tree, &Path::read(name).unwrap(), value).unwrap();
    }
    assert_eq!(tree, defaults());
    let over = json!({"cron": {"maxJobs": 5}, "channels": {"discord": {"allowFrom": ["a"]}}});
    let all = merged(&defaults(), &over);
    let at = |path: &str| get(&all, &Path::read(path).unwrap()).cloned();
    assert_eq!(at("cron.maxJobs"), Some(json!(5)));
    assert_eq!(at("cron.enabled"), Some(json!(true)));
    assert_eq!(at("channels.discord.dmPolicy"), Some(json!("open")));
    assert_eq!(at("channels.discord.allowFrom.0"), Some(json!("a")));
}

#[test]
fn secrets_are_masked_on_every_path() {
    let tree = json!({
        "apiKeys": {"anthropic": "sk-1"}, "auth": {"token": "t"},
        "channels": {"telegram": {"botToken": "b", "dmPolicy": "open"}}, "agents": {"list": [{"id": "a", "apiKey": "k"}]},
    });
    let of = |path: &str| got(&tree, Some(&Path::read(path).unwrap()));
    let one = |path: &str, value: Value| Got::One { path: text(path), value: Some(value) };
    let masked = json!({
        "apiKeys": {"anthropic": "***"}, "auth": {"token": "***"},
        "channels": {"telegram": {"botToken": "***", "dmPolicy": "open"}}, "agents": {"list": [{"id": "a", "apiKey": "***"}]},
    });
    assert_eq!(got(&tree, None), Got::All { config: masked });
    assert_eq!(of("apiKeys.anthropic"), one("apiKeys.anthropic", json!("***")));
    assert_eq!(of("apiKeys"), one("apiKeys", json!({"anthropic": "***"})));
    assert_eq!(of("auth.token"), one("auth.token", json!("***")));
    assert_eq!(of("auth"), one("auth", json!({"token": "***"})));
    assert_eq!(of("channels.telegram.dmPolicy"), one("channels.telegram.dmPolicy", json!("open")));
    assert_eq!(of("agents.list.0.apiKey"), one("agents.list.0.apiKey", json!("***")));
    assert_eq!(of("apiKeys.openai"), Got::One { path: text("apiKeys.openai"), value: None });
}

#[test]
fn a_skill_can_be_used_where_one_machine_has_all_that_it_needs() {
    let host = |node: &str, bins: &[&str], env: &[&str]| Host {
        node: text(node),
        role: Some(HostRole::Execution),
        capabilities: vec![Capability::ShellExec],
        os: Some(text("linux")),
        env: env.iter().map(|name| text(name)).collect(),
        bins: bins.iter().map(|name| text(name)).collect(),
    };
    let hosts = [host("a", &["git"], &[]), host("b", &["gh"], &["TOKEN"])];
    let none = Requirements::default();
    let bins =
        |bins: &[&str]| Requirements { bins: bins.iter().map(|it| text(it)).collect(), ..Requirements::default() };
    let fine = |nodes: &[&str]| Eligibility {
        eligible: true,
        hosts: nodes.iter().map(|it| text(it)).collect(),
        reasons: Vec::new(),
    };
    let not = |reason: &str| Eligibility { eligible: false, hosts: Vec::new(), reasons: vec![text(reason)] };
    let both = Requirements { env: vec![text("TOKEN")], ..bins(&["git"]) };
    let config = Requirements { config: vec![text("apiKeys.x")], ..Requirements::default() };
    for (case, always, needs, hosts, want) in [
        ("no needs", false, &none, &hosts[..], fine(&["a", "b"])),
        ("always", true, &bins(&["fly"]), &[][..], fine(&[])),
        ("one has it", false, &bins(&["git"]), &hosts[..], fine(&["a"])),
        ("nobody has it", false, &bins(&["fly", "git"]), &hosts[..], not("requires bins: fly, git")),
        ("nobody has both", false, &both, &hosts[..], not("requires bins: git")),
        ("nobody is there", false, &bins(&["git"]), &[][..], not("no connected hosts")),
        ("a setting", false, &config, &hosts[..], not("requires config: apiKeys.x")),
        (
            "any of them",
            false,
            &Requirements { any_bins: vec![text("gh"), text("hub")], ..Requirements::default() },
            &hosts[..],
            fine(&["b"]),
        ),
        (
            "another system",
            false,
            &Requirements { os: vec![text("macos")], ..none.clone() },
            &hosts[..],
            not("requires os: macos"),
        ),
        (
            "a capability",
            false,
            &Requirements { capabilities: vec![Capability::TextSearch], ..none.clone() },
            &hosts[..],
            not("requires capabilities: text.search"),
        ),
    ] {
        assert_eq!(eligibility(always, Some(needs), hosts, |_| false), want, "{case}");
    }
    assert!(eligibility(false, Some(&config), &[], |path| path == "apiKeys.x").eligible);
}
