//! Every flag, setting and member that takes rights away: it is enforced, refused, or reported. The rows are those of
//! docs/protocol/omp.md, Fields that restrict.

use std::collections::BTreeSet;

use countersign_testkit::process::{
    HostFixture, RpcHost,
    provider::{ProviderReply, ReplyPart, bash_part, call_part, text_reply},
};
use serde_json::{Value, json};

const BOOK: &str = include_str!("../../../../docs/protocol/omp.md");

/// Effect of a restriction.
enum ExpectedEffect {
    /// The call requires an approval, as a `confirm`, and does not run by itself.
    Asks(ReplyPart),
    /// The call is denied without a question.
    Denied(ReplyPart),
    /// Of these tools the model is offered those that stand second.
    Offered(&'static [&'static str], &'static [&'static str]),
    /// The start is refused with these words.
    Refused(&'static str),
    /// It is reported with these words, and nothing else changes.
    Reported(&'static str),
    /// The model reads none of this.
    Unread(&'static str),
    /// A command is refused with these words.
    RefusedCommand(Value, &'static str),
    /// Checked by other tests, which stand here by their names.
    Elsewhere(#[allow(dead_code, reason = "for whoever reads the table")] &'static str),
}

use ExpectedEffect::{Asks, Denied, Elsewhere, Offered, Refused, RefusedCommand, Reported, Unread};

impl ExpectedEffect {
    /// Returns the word of the book for it.
    fn word(&self) -> &'static str {
        match self {
            Asks(_) | Denied(_) | Offered(..) | Unread(_) | Elsewhere(_) => "enforced",
            Refused(_) | RefusedCommand(..) => "refused",
            Reported(_) => "told",
        }
    }
}

const OURS: [&str; 9] = ["read", "write", "edit", "bash", "grep", "find", "ls", "todo_write", "ask"];

fn write() -> ReplyPart {
    call_part("k", "write", &json!({ "path": "made.txt", "content": "x" }))
}

fn touch() -> ReplyPart {
    bash_part("k", "echo hi > made.txt")
}

/// Returns each field, the settings and the flags of a start with it, and the expected effect.
fn rows() -> Vec<(&'static str, &'static str, &'static [&'static str], ExpectedEffect)> {
    vec![
        ("--approval-mode", "", &["--approval-mode", "write"], Asks(touch())),
        ("--approval-mode", "", &["--approval-mode=always-ask"], Asks(touch())),
        ("--approval-mode", "", &["--approval-mode=always-ask", "--mode", "rpc-ui"], Asks(write())),
        ("--approval-mode", "", &["--approval-mode=write"], Asks(bash_part("k", "ls"))),
        ("--permissions", "", &["--permissions", "../none.yaml"], Refused("none.yaml: there is no such file")),
        ("--tools", "", &["--tools", "read,glob"], Offered(&OURS, &["read", "find"])),
        ("--tools", "", &["--tools=read,lsp"], Reported("--tools: unknown tool \"lsp\"; the tools are read,")),
        ("--tools", "", &["-t=read"], Offered(&OURS, &["read"])),
        ("--tools", "", &["-tread"], Refused("-tread is not a known flag: write -t NAMES")),
        ("--tools", "", &["\u{2014}tools", "read"], Refused("instead of a hyphen: write --tools")),
        ("--no-tools", "", &["--no-tools"], Offered(&OURS, &[])),
        ("--no-tools", "", &["-nt=1"], Refused("-nt takes no value, found \"1\"")),
        ("--no-tools", "", &["--thinking", "--no-tools"], Refused("--thinking needs a value")),
        ("--no-builtin-tools", "", &["--no-builtin-tools", "--tools", "read"], Offered(&OURS, &[])),
        (
            "--exclude-tools",
            "",
            &["--exclude-tools", "bash,write,edit", "-xt", "ask"],
            Offered(&OURS, &["read", "grep", "find", "ls", "todo_write"]),
        ),
        ("--no-context-files", "", &["--no-context-files"], Unread("Answer in Latin")),
        ("--no-prompt-templates", "", &["-np"], Unread("Template of")),
        ("--config", "", &["--config", "../more.yml"], Asks(touch())),
        ("--config", "", &["--config", "none.yml"], Refused("none.yml: there is no such file")),
        ("--no-session", "", &["--no-session"], Elsewhere("sessions::")),
        (
            "--models",
            "",
            &["--models", "fake/*"],
            Elsewhere("model_scope::only_models_that_flag_and_settings_mean_are_cycled_through"),
        ),
        ("--models", "", &["--models", "bogus"], Refused("--models bogus: no usable model is left to cycle through")),
        (
            "--exclude-tools",
            "",
            &["--exclude-tools", "B*,w*,edit"],
            Offered(&OURS, &["read", "grep", "find", "ls", "todo_write", "ask"]),
        ),
        ("--exclude-tools", "", &["--exclude-tools", "bsah"], Refused("did you mean bash?")),
        (
            "--exclude-tools",
            "",
            &["--exclude-tools", "shell"],
            Reported("--exclude-tools: \"shell\" matches no built-in tool"),
        ),
        ("--max-time", "", &["--max-time", "5m"], Refused("--max-time: sessions have no time limit")),
        ("--profile", "", &["--profile=work"], Refused("--profile: profiles are not supported")),
        ("--no-approve", "", &["--no-approve"], Refused("--no-approve: project files are read by default")),
        (
            "--sandbox",
            "",
            &["--sandbox", "read-only"],
            Refused("--sandbox is not a known flag, and its name suggests a restriction: use --tools"),
        ),
        ("--extension", "", &["-e", "gate.ts"], Reported("-e gate.ts: JavaScript extensions and hooks are not run")),
        ("tools.approvalMode", "tools: { approvalMode: write }", &["--yolo"], Asks(touch())),
        ("tools.approvalMode", "tools: { approvalMode: never }", &[], Refused("expected always-ask, write or yolo")),
        ("tools.approval", "tools: { approval: { bash: prompt } }", &[], Elsewhere("restrictions::")),
        ("tools.approval", "tools: { approval: { write: deny } }", &[], Denied(write())),
        ("bash.patterns", "bash: { patterns: [ { match: 'echo *', approval: deny } ] }", &[], Denied(touch())),
        (
            "bash.enabled",
            "bash: { enabled: false }\ntodo: { enabled: false }",
            &[],
            Offered(&["bash", "todo_write", "read"], &["read"]),
        ),
        (
            "images.blockImages",
            "",
            &[],
            Elsewhere("settings::images_are_kept_from_the_model_where_the_settings_say_so"),
        ),
        (
            "enabledModels",
            "",
            &[],
            Elsewhere("model_scope::only_models_that_flag_and_settings_mean_are_cycled_through"),
        ),
        ("bashInterceptor.enabled", "bashInterceptor: { enabled: true }", &[], Denied(touch())),
        (
            "bashInterceptor.patterns",
            "bashInterceptor: { enabled: true, patterns: [ { pattern: '^touch ', tool: write } ] }",
            &[],
            Denied(bash_part("k", "touch made.txt")),
        ),
        ("secrets.enabled", "secrets: { enabled: true }", &[], Refused("secrets.enabled: is not enforced here")),
        (
            "edit.blockAutoGenerated",
            "edit: { blockAutoGenerated: true }",
            &[],
            Refused("edit.blockAutoGenerated: is not enforced here"),
        ),
        ("tools.maxTimeout", "", &[], Elsewhere("bash::no_command_of_the_agent_takes_longer_than_the_longest")),
        ("disabledProviders", "disabledProviders: [fake]", &[], Refused("the provider \"fake\" is switched off")),
        ("enabledProviders", "enabledProviders: [x]", &[], Refused("the provider \"fake\" is switched off")),
        (
            "countersign.sandbox",
            "countersign.sandbox.mode: enforce",
            &[],
            Refused("countersign.sandbox.mode: expected off, guard or workspace"),
        ),
        ("countersign.sandbox", "countersign: { sanbox: {} }", &[], Refused("did you mean countersign.sandbox?")),
        ("countersign.sandbox", "countersign:\n  sandbox:\n", &[], Refused("expected a value")),
        ("countersign.sandbox", "", &[], Elsewhere("sandbox::")),
        ("enabled: false", "", &[], Elsewhere("mcp_servers::settings_and_flags_switch_servers_off")),
        (
            "disabledTools",
            "disabledTools: [bash]",
            &[],
            Refused("disabledTools: unknown setting whose name suggests a restriction"),
        ),
        (
            "disabledTools",
            "tools: { bash: false }",
            &[],
            Refused("tools.bash: unknown setting whose name suggests a restriction"),
        ),
        (
            "excludeFromContext",
            "",
            &[],
            RefusedCommand(
                json!({ "type": "bash", "command": "echo secret", "excludeFromContext": true }),
                "`excludeFromContext` must be false",
            ),
        ),
        ("writable", "", &[], Elsewhere("released_clients::a_host_answers_for_what_lies_behind_its_uris")),
        (
            "hidden",
            "",
            &[],
            Elsewhere("host_capabilities::a_hidden_tool_is_there_and_not_shown_and_one_that_stays_is_as_it_was"),
        ),
    ]
}

fn host(place: &HostFixture, flags: &[&str]) -> RpcHost {
    let usual = ["--model", "fake/fake-1"];
    RpcHost::spawn(RpcHost::omp_command(place, &[&usual[..], flags].concat()))
}

fn check(field: &str, config: &str, flags: &[&str], want: ExpectedEffect) {
    let place = HostFixture::with_config(config);
    place.write_file("../more.yml", "tools: { approvalMode: always-ask }\n");
    place.write_file("AGENTS.md", "Answer in Latin");
    std::fs::create_dir(place.agent.join("prompts")).unwrap();
    std::fs::write(place.agent.join("prompts/pt.md"), "Template of a text").unwrap();
    // Rules that allow everything loosen no restriction.
    place.write_rules(
        "defaults: [ { pattern: \"*\", action: allow } ]\nrules: [ { pattern: \"write(*)\", action: allow } ]\n",
    );
    let mut host = host(&place, flags);
    let at = format!("{field} {flags:?} {config}");
    if let Refused(words) = want {
        let end = host.wait_end();
        assert!(end.code == Some(1) && end.stderr.contains(words), "{at}: {end:?}");
        assert!(end.frames.is_empty(), "{at}: {end:?}");
        return;
    }
    host.wait_event(0, "ready");
    let reported_text = if let Reported(words) = want { Some(words) } else { None };
    match want {
        Asks(part) => {
            place.provider.script_replies([ProviderReply::new(vec![part]), text_reply("done")]);
            let from = host.send_prompt("go");
            let dialog = host.wait_dialog(from);
            assert_eq!(dialog["method"], "confirm", "{at}: {dialog}");
            host.answer_dialog(&dialog, json!({ "confirmed": false }));
            host.wait_settled(from);
            assert_eq!(place.read_file("made.txt"), None, "{at}");
        }
        Denied(part) => {
            place.provider.script_replies([ProviderReply::new(vec![part]), text_reply("done")]);
            let frames = host.run_turn("go");
            assert!(frames.iter().all(|frame| frame["type"] != "extension_ui_request"), "{at}");
            assert_eq!(place.read_file("made.txt"), None, "{at}");
        }
        Offered(among, left) => {
            host.run_turn("go");
            let tools = place.provider.last_request().body["tools"].as_array().cloned().unwrap_or_default();
            let names = tools.iter().filter_map(|tool| tool["function"]["name"].as_str());
            let names: BTreeSet<&str> = names.filter(|name| among.contains(name)).collect();
            assert_eq!(names, left.iter().copied().collect(), "{at}");
        }
        Unread(words) => {
            host.run_turn("/pt");
            assert!(!place.provider.last_request().messages_text().contains(words), "{at}");
        }
        RefusedCommand(command, words) => {
            assert!(host.command_error(command).contains(words), "{at}");
        }
        Reported(_) | Elsewhere(_) | Refused(_) => {}
    }
    let end = host.close();
    assert_eq!(end.code, Some(0), "{at}: {end:?}");
    if let Some(words) = reported_text {
        assert!(end.stderr.contains(words), "{at}: {}", end.stderr);
    }
}

#[test]
fn each_restricting_field_is_enforced_refused_or_reported() {
    for (field, config, flags, want) in rows() {
        check(field, config, flags, want);
    }
}

#[test]
fn the_book_has_every_field_that_restricts_and_says_what_becomes_of_it() {
    let section = BOOK.split("### Fields that restrict\n").nth(1).unwrap().split("\n#").next().unwrap();
    let book: BTreeSet<(String, String)> = section
        .lines()
        .filter(|line| line.starts_with("| `"))
        .map(|line| {
            let cells: Vec<&str> = line.split('|').map(str::trim).collect();
            let field = cells[1].split('`').nth(1).unwrap_or_default();
            (field.to_owned(), cells[3].split([' ', ':']).next().unwrap_or_default().to_owned())
        })
        .collect();
    let mut fields: Vec<&str> = rows().iter().map(|(field, ..)| *field).collect();
    fields.dedup();
    assert_eq!(book.iter().map(|(field, _)| field.as_str()).collect::<BTreeSet<_>>(), fields.into_iter().collect());
    for (field, _, _, want) in rows() {
        let word = &book.iter().find(|(named, _)| named == field).unwrap().1;
        // An enforced field may be reported, or refused if its value is wrong.
        assert!(word == want.word() || word == "enforced", "{field}: {word}");
    }
}

#[test]
fn an_approval_mode_asks_again_after_an_answer_and_leaves_the_commands_of_the_host_alone() {
    let place = HostFixture::new();
    let mut host = place.start(&["--approval-mode", "write"]);
    for _ in 0..2 {
        place.provider.script_replies([ProviderReply::new(vec![touch()]), text_reply("done")]);
        let from = host.send_prompt("go");
        let dialog = host.wait_dialog(from);
        assert!(dialog.to_string().contains("the approval mode is write"), "{dialog}");
        host.answer_dialog(&dialog, json!({ "confirmed": true }));
        host.wait_settled(from);
        assert_eq!(place.read_file("made.txt").as_deref(), Some("hi\n"));
        std::fs::remove_file(place.work.join("made.txt")).unwrap();
    }
    assert_eq!(host.command_data(json!({ "type": "bash", "command": "echo mine" }))["output"], "mine\n");
    place.provider.script_replies([ProviderReply::new(vec![call_part("k", "ls", &json!({}))]), text_reply("done")]);
    let frames = host.run_turn("look");
    assert!(frames.iter().all(|frame| frame["type"] != "extension_ui_request"));
    host.close_cleanly();
}

#[test]
fn help_names_what_hosts_probe_for() {
    let place = HostFixture::new();
    for flag in ["--help", "-h"] {
        let output = place.binary_command().args(["omp", flag]).output().unwrap();
        let help = String::from_utf8(output.stdout).unwrap();
        for expected in
            ["rpc-ui", "--approval-mode", "--config", "--tools", "--no-tools", "--no-builtin-tools", "--exclude-tools"]
        {
            assert!(help.contains(expected), "{flag} names no {expected}: {help}");
        }
    }
}
