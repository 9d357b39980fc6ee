//! Agents' input: their files, skills and models, and their memory.

use std::{fs, path::PathBuf};

use countersign_testkit::process::{
    GatewayFixture, Latch, eventually,
    gsv::{GsvPeer, error_body, node_params},
    provider::{ProviderReply, ProviderRequest, ReplyPart, call_part, text_part, text_reply},
};
use serde_json::{Value, json};

use crate::chat::{message_text, send, talk};

fn write(scene: &GatewayFixture, name: &str, text: &str) {
    let path = scene.folder.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// Returns the system prompt of a request to the model.
fn system(scene: &GatewayFixture, number: usize) -> String {
    let request = scene.provider.wait_request(number);
    request.messages()[0]["content"].as_str().map_or_else(|| request.messages()[0].to_string(), str::to_owned)
}

#[test]
fn a_run_has_the_files_of_its_agent_as_they_were_at_its_start() {
    let scene = GatewayFixture::for_peers();
    for (name, text) in
        [("SOUL.md", "I am calm."), ("MEMORY.md", "Ana has a cat."), ("BOOTSTRAP.md", "Say hello first.")]
    {
        write(&scene, &format!("agents/main/{name}"), text);
    }
    let (_gateway, mut peer) = scene.start_peer();
    let change = call_part("c0", "gsv__WriteFile", &json!({ "_i": "w", "path": "SOUL.md", "content": "I am wild." }));
    scene.provider.script_replies([
        ProviderReply::new(vec![change]),
        text_reply("one"),
        text_reply("two"),
        text_reply("three"),
    ]);
    talk(&mut peer, "main", "hello", "r-1");
    for number in 0..2 {
        let prompt = system(&scene, number);
        for part in [
            "I am calm.",
            "Ana has a cat.",
            "# First run",
            "Say hello first.",
            "- gsv__ReadFile: ",
            "Session: agent:main:main",
        ] {
            assert!(prompt.contains(part), "{part} in {prompt}");
        }
        assert!(!prompt.contains("I am wild."), "{number}");
    }
    fs::remove_file(scene.folder.join("agents/main/BOOTSTRAP.md")).unwrap();
    talk(&mut peer, "book", "hello", "r-2");
    let prompt = system(&scene, 2);
    assert!(
        prompt.contains("I am wild.") && !prompt.contains("Ana has a cat.") && !prompt.contains("# First run"),
        "{prompt}"
    );
    peer.expect_ok("config.set", json!({ "path": "systemPrompt", "value": "You are Tom." }));
    talk(&mut peer, "book", "hello", "r-3");
    assert!(system(&scene, 3).starts_with("You are Tom."));
}

#[test]
fn an_unusable_model_reports_the_reason_and_a_new_key_counts_at_once() {
    let scene = GatewayFixture::for_peers();
    let (_gateway, mut peer) = scene.start_peer();
    let model = |provider: &str, id: &str| json!({ "model": { "provider": provider, "id": id } });
    for (run, settings, want) in [
        ("r-1", model("local", "none"), "Model not found: local/none"),
        ("r-2", model("nobody", "x"), "Model not found: nobody/x"),
        ("r-3", model("anthropic", "claude-opus-4-5"), "API key not configured for provider: anthropic"),
        // The default without a configuration.
        ("r-4", model("anthropic", "claude-sonnet-4-20250514"), "API key not configured for provider: anthropic"),
    ] {
        peer.expect_ok("session.patch", json!({ "sessionKey": "book", "settings": settings }));
        send(&mut peer, "book", "hello", run);
        let failed = peer.wait_event("chat", &json!({ "runId": run, "state": "error" }));
        assert_eq!(failed["error"], want);
    }
    peer.expect_ok("config.set", json!({ "path": "apiKeys.local", "value": "sk-of-settings" }));
    peer.expect_ok("session.patch", json!({ "sessionKey": "book", "settings": { "model": null } }));
    scene.provider.script_replies([text_reply("hello")]);
    talk(&mut peer, "book", "hello", "r-5");
    peer.expect_ok("config.set", json!({ "path": "model.id", "value": "small-2" }));
    scene.provider.script_replies([text_reply("hello again")]);
    talk(&mut peer, "book", "hello", "r-6");
    assert_eq!(
        (&scene.provider.wait_request(0).body["model"], &scene.provider.wait_request(1).body["model"]),
        (&json!("small-1"), &json!("small-2"))
    );
}

#[test]
fn the_model_reads_the_skills_that_can_be_used() {
    let scene = GatewayFixture::for_peers();
    write(
        &scene,
        "skills/tea/SKILL.md",
        "---\ndescription: Makes tea\nmetadata: {\"gsv\":{\"requires\":{\"os\":[\"linux\"],\"capabilities\":[\"shell.exec\"],},},}\n---\n",
    );
    write(
        &scene,
        "skills/fly/SKILL.md",
        "---\nmetadata: {\"gsv\":{\"requires\":{\"env\":[\"WINGS\"]}}}\n---\n# Fly\n\nFlies away.\n",
    );
    write(&scene, "agents/main/skills/plain/SKILL.md", "---\nname: simple\nalways: true\n---\nDoes it.\n");
    let (gateway, mut peer) = scene.start_peer();
    let skills_and_status = |peer: &mut GsvPeer| {
        let status = peer.expect_ok("skills.status", json!({}));
        let of = |skill: &Value| json!([skill["name"], skill["eligible"], skill["eligibleHosts"], skill["reasons"]]);
        (status["skills"].as_array().unwrap().iter().map(of).collect::<Value>(), status)
    };
    let (skills, status) = skills_and_status(&mut peer);
    assert_eq!(
        skills,
        json!([
            ["fly", false, [], ["no connected hosts"]],
            ["simple", true, [], []],
            ["tea", false, [], ["no connected hosts"]],
        ])
    );
    let location = |at: usize| status["skills"][at]["location"].clone();
    assert_eq!((location(1), location(2)), (json!("agents/main/skills/plain/SKILL.md"), json!("skills/tea/SKILL.md")));
    assert_eq!(
        (&status["agentId"], &status["nodes"], &status["requiredBins"]),
        (&json!("main"), &json!([]), &json!([]))
    );
    let mut pi = GsvPeer::open_connection(&gateway);
    pi.expect_ok("connect", node_params("pi", &["Bash"]));
    let (skills, status) = skills_and_status(&mut peer);
    assert_eq!(
        skills,
        json!([["fly", false, [], ["requires env: WINGS"]], ["simple", true, ["pi"], []], ["tea", true, ["pi"], []],])
    );
    assert_eq!((&status["nodes"][0]["nodeId"], &status["nodes"][0]["hostOs"]), (&json!("pi"), &json!("linux")));
    scene.provider.script_replies([text_reply("hello"), text_reply("hello")]);
    talk(&mut peer, "main", "hello", "r-1");
    let prompt = system(&scene, 0);
    assert!(
        prompt.contains("- simple: Does it. [skills/plain/SKILL.md]\n- tea (on pi): Makes tea [skills/tea/SKILL.md]"),
        "{prompt}"
    );
    assert!(!prompt.contains("Flies away"));
    peer.expect_ok("config.set", json!({ "path": "skills.entries.tea.enabled", "value": false }));
    let (skills, _) = skills_and_status(&mut peer);
    assert_eq!(skills[2], json!(["tea", false, [], ["disabled by skills.entries policy"]]));
    assert_eq!(
        peer.expect_error("skills.status", json!({ "agentId": 5 })),
        error_body(400, "agentId must be a string")
    );
}

fn only_file_in(folder: PathBuf, fits: impl Fn(&str) -> bool) -> PathBuf {
    let names: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    let mut fitting = names.into_iter().filter(|path| fits(path.to_str().unwrap()));
    let found = fitting.next().unwrap();
    assert_eq!(fitting.next(), None);
    found
}

#[test]
fn what_is_summed_up_is_put_away_first_and_what_matters_is_remembered() {
    let scene = GatewayFixture::for_peers();
    let (gateway, mut peer) = scene.start_peer();
    let compaction = json!({ "reserveTokens": 95_000, "keepRecentTokens": 2_400 });
    peer.expect_ok("config.set", json!({ "path": "compaction", "value": compaction }));
    let long = |number: usize| format!("{number}{}", " word".repeat(80));
    scene.provider.script_replies([text_reply("ok"), text_reply("ok"), text_reply("ok").with_input_tokens(6_000)]);
    for number in 0..3 {
        talk(&mut peer, "main", &long(number), &format!("r-{number}"));
    }
    scene.provider.script_replies([
        text_reply("What was said before."),
        text_reply("- Ana likes tea"),
        text_reply("done"),
    ]);
    assert_eq!(message_text(&talk(&mut peer, "main", "go on", "r-3")), "done");
    let memory = only_file_in(scene.folder.join("agents/main/memory"), |_| true);
    let notes = fs::read_to_string(memory).unwrap();
    assert!(notes.ends_with(" -->\n- Ana likes tea\n"), "{notes}");
    let request = scene.provider.wait_request(4);
    assert!(
        request.messages_text().contains("NONE") && request.messages_text().contains(&long(0)),
        "{}",
        request.messages_text()
    );
    let archives = scene.data_dir().join("objects/agents/main/sessions");
    let part = only_file_in(archives, |name| name.contains("-part") && name.ends_with(".jsonl.gz"));
    let file = flate2::read::GzDecoder::new(fs::File::open(part).unwrap());
    let lines: Vec<Value> = std::io::BufRead::lines(std::io::BufReader::new(file))
        .map(|line| serde_json::from_str(&line.unwrap()).unwrap())
        .collect();
    assert_eq!((lines.len(), &lines[0]["content"]), (2, &json!(long(0))));
    let look = |peer: &mut GsvPeer| peer.expect_ok("session.preview", json!({ "sessionKey": "main" }));
    let shown = look(&mut peer);
    let first = &shown["messages"][0];
    assert_eq!((&first["role"], &shown["messageCount"]), (&json!("user"), &json!(7)), "{shown}");
    assert!(first["content"].as_str().unwrap().contains("What was said before."), "{first}");
    gateway.kill();
    let gateway = scene.start();
    let mut peer = GsvPeer::connect_client(&gateway, "again");
    assert_eq!(look(&mut peer), shown);
    let compacted = peer.expect_ok("session.compact", json!({ "sessionKey": "main", "keepMessages": 2 }));
    assert_eq!((&compacted["trimmedMessages"], &compacted["keptMessages"]), (&json!(5), &json!(2)));
    scene.provider.script_replies([text_reply("still here")]);
    talk(&mut peer, "main", "and now", "r-4");
    let prompt = scene.provider.last_request().messages_text();
    assert!(!prompt.contains("What was said before.") && prompt.contains("go on"), "{prompt}");
}

#[test]
fn a_stop_while_a_summary_is_made_says_which_run_does_not_begin() {
    let scene = GatewayFixture::for_peers();
    let (_gateway, mut peer) = scene.start_peer();
    let compaction = json!({ "reserveTokens": 95_000, "keepRecentTokens": 2_400, "extractMemories": false });
    peer.expect_ok("config.set", json!({ "path": "compaction", "value": compaction }));
    let long = |number: usize| format!("{number}{}", " word".repeat(80));
    scene.provider.script_replies([text_reply("ok"), text_reply("ok"), text_reply("ok").with_input_tokens(6_000)]);
    for number in 0..3 {
        talk(&mut peer, "main", &long(number), &format!("r-{number}"));
    }
    let latch = Latch::default();
    scene.provider.script_replies([ProviderReply::new(vec![
        ReplyPart::Until(latch.clone()),
        text_part("What was said before."),
    ])]);
    send(&mut peer, "main", "go on", "r-3");
    scene.provider.wait_request(3);
    let stopped = peer.expect_ok("chat.send", json!({ "sessionKey": "main", "message": "/stop" }));
    assert_eq!(stopped["response"], "Stopped run r-3.");
    let ended = peer.wait_event("chat", &json!({ "runId": "r-3" }));
    assert_eq!((&ended["state"], &ended["error"]), (&json!("error"), &json!("Run cancelled by user")));
    latch.open();
    let stopped = peer.expect_ok("chat.send", json!({ "sessionKey": "main", "message": "/stop" }));
    assert_eq!(stopped["response"], "No run in progress.");
}

#[test]
fn a_session_reset_extracts_memories_of_the_conversation() {
    let scene = GatewayFixture::for_peers();
    let (_gateway, mut peer) = scene.start_peer();
    scene.provider.script_replies([text_reply("noted")]);
    talk(&mut peer, "main", "I like tea", "r-1");
    scene.provider.script_replies([text_reply("- Ana likes tea")]);
    peer.expect_ok("session.reset", json!({ "sessionKey": "main" }));
    let folder = scene.folder.join("agents/main/memory");
    let notes = eventually("notes", || {
        let file = fs::read_dir(&folder).ok()?.next()?.ok()?.path();
        fs::read_to_string(file).ok().filter(|notes| !notes.is_empty())
    });
    assert!(notes.ends_with(" -->\n- Ana likes tea\n"), "{notes}");
    assert!(scene.provider.wait_request(1).messages_text().contains("I like tea"));
    // The next archive has marks of its own, and a conversation without anything to remember leaves the notes as they are.
    scene.provider.script_replies([text_reply("hello"), text_reply("NONE"), text_reply("here")]);
    talk(&mut peer, "main", "hi", "r-2");
    let reset = peer.expect_ok("session.reset", json!({ "sessionKey": "main" }));
    assert_eq!(reset["archivedMessages"], 2);
    scene.provider.wait_request(3);
    assert_eq!(message_text(&talk(&mut peer, "main", "still there?", "r-3")), "here");
    let prompt = system(&scene, 4);
    assert!(prompt.contains("- Ana likes tea") && !prompt.contains("NONE"), "{prompt}");
}

#[test]
fn extraction_of_memories_is_repeated_after_a_kill_and_noted_once() {
    let scene = GatewayFixture::for_peers();
    let (gateway, mut peer) = scene.start_peer();
    scene.provider.script_replies([text_reply("Nice to meet you."), ProviderReply::new(vec![ReplyPart::Hang])]);
    talk(&mut peer, "main", "I am Ana", "r-1");
    peer.expect_ok("session.reset", json!({ "sessionKey": "main" }));
    let is_wanted =
        |request: &ProviderRequest| request.messages_text().contains("Write down what the agent should still know");
    scene.provider.wait_request_when(1, is_wanted);
    gateway.kill();
    scene.provider.script_replies([text_reply("- Her name is Ana.")]);
    let mut gateway = scene.start();
    let notes = || {
        let folder = fs::read_dir(scene.folder.join("agents/main/memory")).ok()?;
        // A file that is being replaced may be gone again.
        Some(folder.filter_map(|file| fs::read_to_string(file.ok()?.path()).ok()).collect::<String>())
    };
    let noted = eventually("notes", || notes().filter(|notes| notes.contains("Her name is Ana.")));
    // Once that is recorded no model is asked again.
    eventually("its record", || {
        scene.run_as_person(&["audit", "export"]).out.contains(r#""remembered":{"renewed""#).then_some(())
    });
    assert_eq!(gateway.stop().code, Some(0));
    let request_count = scene.provider.request_count();
    let gateway = scene.start();
    let mut peer = GsvPeer::connect_client(&gateway, "again");
    scene.provider.script_replies([text_reply("Hello.")]);
    talk(&mut peer, "main", "hello", "r-2");
    assert_eq!((notes(), scene.provider.request_count()), (Some(noted), request_count + 1));
    scene.verify_log();
}
