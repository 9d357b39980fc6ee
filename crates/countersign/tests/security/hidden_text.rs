//! Texts with invisible parts: on every surface they read back to exactly what would run.

use std::sync::atomic::{AtomicI64, Ordering};

use countersign_testkit::process::{
    GatewayFixture, GatewayOptions, GatewayServer, eventually,
    gsv::GsvPeer,
    http::HttpClient,
    provider::{self, ProviderReply, bash_part, text_reply},
    server::FakeServer,
};
use countersign_view::{LineMode, escape};
use serde_json::{Value, json};

use crate::fixture::{SHELL, stdio_host};

/// Returns the first and last of every row of invisible characters, with those that a terminal, HTML or Markdown interprets.
fn hidden() -> Vec<char> {
    let is_hidden = |letter: char| escape(&letter.to_string(), LineMode::One).starts_with("\\u{");
    let mut found = Vec::new();
    let mut before = false;
    let mut last = '\0';
    for letter in (char::MIN..=char::MAX).filter(|letter| *letter != '\0') {
        let now = is_hidden(letter);
        if now != before {
            found.push(if now { letter } else { last });
        }
        (before, last) = (now, letter);
    }
    found.push(char::MAX);
    found
}

/// Returns the text of an escaped one, as a reader finds it by hand.
fn unescaped(shown: &str) -> String {
    let (mut text, mut rest) = (String::new(), shown);
    while let Some(at) = rest.find("\\u{") {
        let (before, form) = rest.split_at(at);
        text.push_str(before);
        let (digits, behind) = form[3..].split_once('}').unwrap();
        text.push(char::from_u32(u32::from_str_radix(digits, 16).unwrap()).unwrap());
        rest = behind;
    }
    text + rest
}

/// Returns the text of a page, without the page.
fn text_of(page: &str) -> String {
    let (mut text, mut rest) = (String::new(), page);
    while let Some((before, tag)) = rest.split_once('<') {
        text.push_str(before);
        rest = tag.split_once('>').map_or("", |(_, behind)| behind);
    }
    text.push_str(rest);
    text.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", "\"").replace("&#39;", "'").replace("&amp;", "&")
}

/// Commands in which every hidden character stands, among what could close a fence, a tag or a line.
fn commands() -> Vec<String> {
    let hidden = hidden();
    assert!(hidden.len() > 500, "{}", hidden.len());
    let traps =
        ["```", "<b>x</b>", "\\u{202e}", "&amp;", "*_`", "\r\u{1b}[2K", "\u{202e}live\u{202c}", "-->", "\n\n# ok\n"];
    let one = |(number, letters): (usize, &[char])| {
        let middle: String = letters.iter().flat_map(|letter| ['a', *letter]).collect();
        format!("printf {number} {} {middle} end-{number}-of-it", traps[number % traps.len()])
    };
    hidden.chunks(60).enumerate().map(one).collect()
}

fn holds_nothing_hidden(case: &str, text: &str) {
    let found = text.chars().find(|letter| {
        !matches!(letter, '\n' | '\t') && escape(&letter.to_string(), LineMode::Many) != letter.to_string()
    });
    assert_eq!(found, None, "{case}: {text:?}");
}

/// Checks that a shown text contains the command, and hides nothing.
fn reads_back(case: &str, shown: &str, command: &str) {
    holds_nothing_hidden(case, shown);
    // Lines of a value are marked, so that none of them passes for a line of the card.
    let shown = &shown.replace("\n  | ", "\n");
    let is_there = unescaped(shown).contains(command);
    assert!(is_there, "{case} does not read back: {command:?} in {shown:?}");
}

#[test]
fn shown_is_not_run_zero_width_bidi_ansi_and_fences() {
    let api = {
        let next = AtomicI64::new(1);
        FakeServer::start(move |request| {
            let result = match request.path.rsplit('/').next().unwrap_or_default() {
                "getMe" => json!({ "id": 1, "is_bot": true, "username": "guard_bot" }),
                "getUpdates" => {
                    std::thread::park_timeout(std::time::Duration::from_secs(5));
                    json!([])
                }
                "sendMessage" => {
                    let id = next.fetch_add(1, Ordering::SeqCst);
                    json!({ "message_id": id, "date": 1, "chat": { "id": request.body["chat_id"], "type": "private" } })
                }
                _ => json!(true),
            };
            (200, json!({ "ok": true, "result": result }).to_string())
        })
    };
    let scene = GatewayOptions::for_models().with_config(&format!(
        "messenger: {{ type: telegram, telegram: {{ token: '42:tok', chat_id: -5, allowed_users: [7], api_url: '{}' }} }}\n",
        api.url
    )).create();
    scene.write_file("permissions.yaml", SHELL);
    let gateway = scene.start();
    let http = HttpClient::new(&gateway.address);
    for (number, command) in commands().iter().enumerate() {
        let gate = wait_listed_gate(&scene, &gateway, command);
        let id = gate["id"].as_str().unwrap();
        // Programs get it exactly, and what they may show.
        assert_eq!(gate["arguments"]["command"], json!(command));
        let page = http.get(&format!("/console/gates/{id}")).body;
        reads_back("the console's card", &text_of(&page), command);
        reads_back("the console's inbox", &text_of(&http.get("/console/").body), command);
        let record = http.get(&format!("/console/record/{id}")).body;
        holds_nothing_hidden("the console's record", &text_of(&record));
        let session = gate["session"].as_str().unwrap();
        let card = http.get(&format!("/api/approval/pending?session_id={session}")).json();
        reads_back("hermes", card["pending"]["command"].as_str().unwrap(), command);
        let listed = scene.run_as_person(&["gates", "list"]);
        reads_back("the command line", &listed.out, command);
        let card = api.wait_request(0, |request| {
            let text = request.body["text"].as_str().unwrap_or_default();
            request.path.ends_with("/sendMessage") && text.contains(&format!("end-{number}-of-it"))
        });
        let text = card.body["text"].as_str().unwrap();
        let text = if card.body["parse_mode"] == "HTML" { text_of(text) } else { text.to_owned() };
        reads_back("Telegram", &text, command);
        let denied = http.post(&format!("/api/v1/gates/{id}/deny"), &json!({}));
        assert_eq!(denied.status, 200, "{denied:?}");
        let path = format!("/api/v1/sessions/{session}");
        eventually("rest", || (http.get(&path).json()["state"] == "resting").then_some(()));
    }
}

/// Returns the gate about this command, once it waits.
fn wait_listed_gate(scene: &GatewayFixture, gateway: &GatewayServer, command: &str) -> Value {
    scene.provider.script_replies([ProviderReply::new(vec![bash_part("c1", command)]), text_reply("done")]);
    let http = HttpClient::new(&gateway.address);
    let opened = http.post("/api/v1/sessions", &json!({ "message": "go" }));
    assert_eq!(opened.status, 201, "{opened:?}");
    eventually("the gate", || {
        let listing = http.get("/api/v1/gates").json();
        listing["gates"].as_array()?.first().cloned()
    })
}

/// In a chat the card is a message like any other: Markdown around it must not end within it.
#[test]
fn a_prompt_in_a_chat_reads_back() {
    let scene = GatewayOptions::for_models().with_config("").create();
    scene.write_file("permissions.yaml", "defaults:\n  - { pattern: '*', action: ask }\n");
    let gateway = scene.start();
    let mut peer = GsvPeer::connect_client(&gateway, "c");
    for (number, command) in commands().iter().enumerate() {
        let path = format!("n{number}.txt");
        let call = provider::call_part("c1", "gsv__WriteFile", &json!({ "path": path, "content": command }));
        scene.provider.script_replies([ProviderReply::new(vec![call]), text_reply("done")]);
        let session = format!("s{number}");
        let run = format!("r{number}");
        peer.expect_ok("chat.send", json!({ "sessionKey": session, "message": "write", "runId": run }));
        let event = peer.wait_event("chat", &json!({ "runId": run, "state": "final" }));
        let text: String =
            event["message"]["content"].as_array().unwrap().iter().filter_map(|part| part["text"].as_str()).collect();
        reads_back("gsv", &text, command);
        let answer = peer
            .expect_ok("chat.send", json!({ "sessionKey": session, "message": "no", "runId": format!("a{number}") }));
        assert_eq!(answer["status"], "started", "{answer}");
        peer.wait_event("chat", &json!({ "runId": format!("a{number}"), "state": "final" }));
    }
}

/// The dialogs of both stdio adapters.
#[test]
fn a_hosts_dialog_reads_back() {
    for (product, variable) in [("omp", "PI_CODING_AGENT_DIR"), ("gjc", "GJC_CODING_AGENT_DIR")] {
        let scene = GatewayFixture::for_peers();
        let agent = stdio_host::agent_dir(&scene, "rules:\n  - { pattern: 'bash(*)', action: ask }\n");
        let mut host = stdio_host::StdioHost::start(&scene, product, variable, &agent, &[]);
        for command in commands() {
            scene.provider.script_replies([ProviderReply::new(vec![bash_part("c1", &command)]), text_reply("done")]);
            host.send_frame(&json!({ "id": "p", "type": "prompt", "message": "go" }));
            let dialog = host
                .wait_frame("a dialog", |frame| frame["type"] == "extension_ui_request" && frame["method"] != "notify");
            let shown: String = ["title", "message"].iter().filter_map(|name| dialog[*name].as_str()).collect();
            reads_back(product, &shown, &command);
            host.send_frame(&json!({ "type": "extension_ui_response", "id": dialog["id"], "cancelled": true }));
            host.wait_frame("the end", |frame| frame.to_string().contains("\"agent_end\""));
        }
        host.close_and_read();
    }
}
