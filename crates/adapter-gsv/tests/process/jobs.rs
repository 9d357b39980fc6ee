//! Jobs: their times, sessions and reports.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use countersign_testkit::process::{
    GatewayFixture, GatewayOptions, GatewayServer, Latch, eventually,
    gsv::{GsvPeer, TOKEN, error_body, mark_part},
    provider::{ProviderReply, ReplyPart, call_part, error_reply, text_part, text_reply},
    server::FakeServer,
};
use serde_json::{Value, json};

use crate::{
    chat::{message_text, send, talk},
    webhook,
};

/// Time in the distant future.
const LATER: u64 = 4_000_000_000_000;

/// Plans a job, and returns it.
fn add(peer: &mut GsvPeer, job: Value) -> Value {
    peer.expect_ok("cron.add", job)["job"].take()
}

fn id(job: &Value) -> &str {
    job["id"].as_str().unwrap()
}

/// Returns a job that runs only on request.
fn task(name: &str, message: &str) -> Value {
    let schedule = json!({ "kind": "at", "atMs": LATER });
    json!({ "name": name, "schedule": schedule, "spec": { "mode": "task", "message": message } })
}

fn force(peer: &mut GsvPeer, job: &Value) -> Value {
    peer.expect_ok("cron.run", json!({ "id": job["id"], "mode": "force" }))
}

/// Returns the job once it has no open work.
fn rested(peer: &mut GsvPeer, job: &Value) -> Value {
    eventually("the end of the job", || {
        let jobs = peer.expect_ok("cron.list", json!({}));
        let found = jobs["jobs"].as_array().unwrap().iter().find(|found| found["id"] == job["id"])?.clone();
        let state = &found["state"];
        (state["lastStatus"].is_string() && state["runningAtMs"].is_null()).then_some(found)
    })
}

#[test]
fn a_task_runs_in_a_session_of_its_own_with_its_model_and_is_waited_for() {
    let scene = GatewayFixture::for_peers();
    let (_gateway, mut peer) = scene.start_peer();
    let mut job = task("report", "Count the boxes.");
    job["spec"]["model"] = json!("local/small-2");
    let job = add(&mut peer, job);
    scene.provider.script_replies([text_reply("There are 7.")]);
    let mut ran = force(&mut peer, &job);
    let took = ran["results"][0]["durationMs"].take();
    assert!(took.is_u64());
    let result = json!({
        "jobId": job["id"], "status": "ok", "summary": "There are 7.", "durationMs": null, "nextRunAtMs": LATER,
    });
    assert_eq!(ran, json!({ "ok": true, "ran": 1, "results": [result] }));
    let request = scene.provider.last_request();
    assert_eq!(request.body["model"], "small-2");
    let message = request.messages().last().unwrap()["content"].to_string();
    assert!(message.contains("[cron · ") && message.contains("Count the boxes."), "{message}");
    let key = format!("agent:main:cron:{}", id(&job));
    let last = peer.wait_event("chat", &json!({ "sessionKey": key, "state": "final" }));
    assert_eq!(message_text(&last), "There are 7.");
    let found = rested(&mut peer, &job);
    let state = &found["state"];
    assert_eq!((&state["lastStatus"], &state["lastDurationMs"]), (&json!("ok"), &took));
    // Its next run begins without the messages of this one.
    scene.provider.script_replies([text_reply("There are 8.")]);
    force(&mut peer, &job);
    assert!(!scene.provider.last_request().messages_text().contains("There are 7."));
}

#[test]
fn a_job_whose_time_has_come_runs_by_itself_and_only_once() {
    let scene = GatewayFixture::for_peers();
    let (gateway, mut peer) = scene.start_peer();
    scene.provider.script_replies([text_reply("one"), text_reply("two")]);
    let at = |delete: bool| {
        json!({
            "name": "once", "schedule": { "kind": "at", "atMs": 1 }, "deleteAfterRun": delete,
            "spec": { "mode": "task", "message": "go" },
        })
    };
    let stays = add(&mut peer, at(false));
    let found = rested(&mut peer, &stays);
    assert_eq!((&found["enabled"], &found["state"]["nextRunAtMs"]), (&json!(false), &Value::Null));
    let goes = add(&mut peer, at(true));
    let runs = eventually("the run of the other", || {
        let runs = peer.expect_ok("cron.runs", json!({ "jobId": goes["id"] }));
        (runs["count"] == 1).then_some(runs)
    });
    assert_eq!((&runs["runs"][0]["summary"], &runs["runs"][0]["status"]), (&json!("two"), &json!("ok")));
    let jobs = peer.expect_ok("cron.list", json!({}));
    assert_eq!((&jobs["count"], &jobs["jobs"][0]["id"]), (&json!(1), &stays["id"]));
    gateway.kill();
    let gateway = scene.start();
    let mut peer = GsvPeer::connect_client(&gateway, "again");
    let all = peer.expect_ok("cron.runs", json!({}));
    assert_eq!(
        (&all["count"], &all["runs"][0]["jobId"], &all["runs"][1]["jobId"]),
        (&json!(2), &goes["id"], &stays["id"])
    );
    assert_eq!(scene.provider.request_count(), 2);
    scene.verify_log();
}

#[test]
fn a_run_that_a_kill_cut_off_goes_on_and_is_the_same_firing() {
    let scene = GatewayFixture::for_peers();
    let (gateway, mut peer) = scene.start_peer();
    let latch = Latch::default();
    scene.provider.script_replies([
        ProviderReply::new(vec![ReplyPart::Until(latch.clone()), text_part("never")]),
        text_reply("at last"),
    ]);
    let schedule = json!({ "kind": "at", "atMs": 1 });
    let job = add(&mut peer, json!({ "name": "n", "schedule": schedule, "spec": { "mode": "task", "message": "go" } }));
    scene.provider.wait_request(0);
    gateway.kill();
    latch.open();
    let gateway = scene.start();
    let mut peer = GsvPeer::connect_client(&gateway, "again");
    let found = rested(&mut peer, &job);
    assert_eq!(found["state"]["lastStatus"], "ok");
    let runs = peer.expect_ok("cron.runs", json!({}));
    assert_eq!((&runs["count"], &runs["runs"][0]["summary"]), (&json!(1), &json!("at last")));
    scene.verify_log();
}

#[test]
fn what_was_missed_while_nobody_was_there_runs_once() {
    let scene = GatewayFixture::for_peers();
    let (gateway, mut peer) = scene.start_peer();
    let schedule = json!({ "kind": "every", "everyMs": 1000 });
    let job =
        json!({ "name": "n", "schedule": schedule, "enabled": false, "spec": { "mode": "task", "message": "go" } });
    let job = add(&mut peer, job);
    let latch = Latch::default();
    let held = || ProviderReply::new(vec![ReplyPart::Until(latch.clone()), text_part("late")]);
    scene.provider.script_replies([held(), held()]);
    peer.expect_ok("cron.update", json!({ "id": job["id"], "patch": { "enabled": true } }));
    scene.provider.wait_request(0);
    // Due times pass while its run is under way, with the gateway and without it.
    gateway.kill();
    let gateway = scene.start();
    let mut peer = GsvPeer::connect_client(&gateway, "again");
    scene.provider.wait_request(1);
    peer.expect_ok("cron.update", json!({ "id": job["id"], "patch": { "enabled": false } }));
    latch.open();
    rested(&mut peer, &job);
    assert_eq!(peer.expect_ok("cron.runs", json!({}))["count"], 1);
}

#[test]
fn a_system_event_is_a_message_in_the_main_session() {
    let scene = GatewayFixture::for_peers();
    let (_gateway, mut peer) = scene.start_peer();
    talk(&mut peer, "main", "hello", "r-1");
    let schedule = json!({ "kind": "at", "atMs": LATER });
    let spec = json!({ "mode": "systemEvent", "text": "The door bell rang." });
    let job = add(&mut peer, json!({ "name": "bell", "schedule": schedule, "spec": spec }));
    scene.provider.script_replies([text_reply("I look.")]);
    let ran = force(&mut peer, &job);
    assert_eq!((&ran["ran"], &ran["results"][0]["summary"]), (&json!(1), &json!("I look.")));
    let last = scene.provider.last_request();
    assert!(last.messages_text().contains("hello") && last.messages_text().contains("The door bell rang."));
    let last =
        peer.wait_event("chat", &json!({ "sessionKey": "main", "state": "final", "runId": format!("{}-1", id(&job)) }));
    assert_eq!(message_text(&last), "I look.");
    assert!(
        !scene.provider.last_request().messages_text().contains("delivered by itself"),
        "nobody has spoken in a chat network"
    );
}

#[test]
fn what_a_system_event_is_answered_goes_to_the_chat_that_spoke_last() {
    let scene = GatewayFixture::for_peers();
    let (gateway, mut peer) = scene.start_peer();
    let other = FakeServer::start(|_| (204, String::new()));
    webhook::set_up(&mut peer, Some(&other.url));
    scene.provider.script_replies([text_reply("hello")]);
    webhook::post(&gateway.address, "/channels/webhook", "m1", 0, &webhook::hello("hi"), |it| it);
    let posted_body = |number: usize| other.wait_request(number, |_| true).body;
    assert_eq!(posted_body(0)["message"]["text"], "hello");
    let schedule = json!({ "kind": "at", "atMs": LATER });
    let spec = json!({ "mode": "systemEvent", "text": "The door bell rang." });
    let job = add(&mut peer, json!({ "name": "bell", "schedule": schedule, "spec": spec }));
    let to = json!({ "kind": "dm", "id": "ana" });
    for (number, reply, want) in [
        (1, text_reply("I look."), "I look."),
        (2, error_reply(400, "no such thing"), "The job \"bell\" failed: LLM error: "),
    ] {
        scene.provider.script_replies([reply]);
        force(&mut peer, &job);
        let body = posted_body(number);
        assert!(body["message"]["text"].as_str().unwrap().starts_with(want), "{body}");
        assert_eq!((&body["sessionKey"], &body["peer"]), (&json!("agent:main:main"), &to));
    }
    assert!(
        scene.provider.last_request().messages_text().contains("delivered by itself"),
        "the model need not send it"
    );
    scene.verify_log();
}

#[test]
fn a_job_that_is_due_already_and_is_forced_runs_once_and_is_waited_for() {
    let scene = GatewayFixture::for_peers();
    let (_gateway, mut peer) = scene.start_peer();
    let latch = Latch::default();
    scene.provider.script_replies([
        ProviderReply::new(vec![ReplyPart::Until(latch.clone()), text_part("done")]),
        text_reply("twice"),
    ]);
    let schedule = json!({ "kind": "at", "atMs": 1 });
    let job = add(&mut peer, json!({ "name": "n", "schedule": schedule, "spec": { "mode": "task", "message": "go" } }));
    let request_id = peer.send_request("cron.run", json!({ "id": job["id"], "mode": "force" }));
    scene.provider.wait_request(0);
    let again = peer.send_request("cron.run", json!({ "id": job["id"], "mode": "force" }));
    peer.expect_ok("cron.status", json!({}));
    latch.open();
    for request_id in [request_id, again] {
        let ran = peer.wait_response(&request_id)["payload"].take();
        let result = &ran["results"][0];
        assert_eq!((&ran["ran"], &result["status"], &result["summary"]), (&json!(1), &json!("ok"), &json!("done")));
    }
    assert_eq!((&peer.expect_ok("cron.runs", json!({}))["count"], scene.provider.request_count()), (&json!(1), 1));
}

#[test]
fn jobs_are_started_in_the_order_of_the_requests_of_a_connection() {
    let scene = GatewayFixture::for_peers();
    let (_gateway, mut peer) = scene.start_peer();
    let latch = Latch::default();
    for number in 1..=3 {
        scene.provider.script_replies([ProviderReply::new(vec![ReplyPart::Until(latch.clone()), text_part("done")])]);
        let job = add(&mut peer, task(&format!("n{number}"), "go"));
        peer.send_request("cron.run", json!({ "id": job["id"], "mode": "force" }));
        assert_eq!(peer.expect_ok("cron.status", json!({}))["runningCount"], number);
    }
    latch.open();
}

#[test]
fn a_run_that_takes_too_long_or_fails_says_so() {
    let scene = GatewayFixture::for_peers();
    let (_gateway, mut peer) = scene.start_peer();
    let latch = Latch::default();
    let mut slow = task("slow", "go");
    slow["spec"]["timeoutSeconds"] = json!(1);
    let slow = add(&mut peer, slow);
    scene.provider.script_replies([ProviderReply::new(vec![ReplyPart::Until(latch.clone()), text_part("never")])]);
    let ran = force(&mut peer, &slow);
    latch.open();
    let result = &ran["results"][0];
    assert_eq!((&result["status"], &result["error"]), (&json!("error"), &json!("timed out after 1 s")));
    assert!(result["durationMs"].as_u64().unwrap() >= 1000, "{result}");
    let found = rested(&mut peer, &slow);
    assert_eq!(found["state"]["lastError"], "timed out after 1 s");
    let bad = add(&mut peer, task("bad", "go"));
    scene.provider.script_replies([error_reply(400, "no such thing")]);
    let ran = force(&mut peer, &bad);
    let result = &ran["results"][0];
    assert_eq!(result["status"], "error");
    assert!(result["error"].as_str().unwrap().starts_with("LLM error: "), "{result}");
}

#[test]
fn what_a_job_asks_goes_to_a_person_and_without_one_is_refused() {
    let scene = GatewayFixture::for_peers();
    scene.create_marks();
    let (_gateway, mut peer) = scene.start_peer();
    let job = add(&mut peer, task("marks", "go"));
    let key = format!("agent:main:cron:{}", id(&job));
    scene.provider.script_replies([ProviderReply::new(vec![mark_part("c0")]), text_reply("done")]);
    let request_id = peer.send_request("cron.run", json!({ "id": job["id"], "mode": "force" }));
    let card = peer.wait_event("chat", &json!({ "sessionKey": key, "state": "final" }));
    assert!(message_text(&card).contains("marks: once"), "{card}");
    send(&mut peer, &key, "yes", "r-yes");
    let ran = peer.wait_response(&request_id);
    assert_eq!(ran["payload"]["results"][0]["summary"], "done");
    assert_eq!(scene.read_marks(), "marks: once\n");

    let scene = GatewayOptions::for_models()
        .with_config(&format!("clients: {{ token: {TOKEN} }}\napproval_timeout: 1\n"))
        .create();
    scene.create_marks();
    let (_gateway, mut peer) = scene.start_peer();
    let job = add(&mut peer, task("marks", "go"));
    scene.provider.script_replies([ProviderReply::new(vec![mark_part("c0")]), text_reply("nobody was there")]);
    let ran = force(&mut peer, &job);
    let result = &ran["results"][0];
    assert_eq!((&result["status"], &result["summary"]), (&json!("ok"), &json!("nobody was there")));
    assert_eq!(scene.read_marks(), "marks:\n");
}

#[test]
fn jobs_are_listed_by_their_time_in_pages_and_counted() {
    let scene = GatewayFixture::for_peers();
    let (_gateway, mut peer) = scene.start_peer();
    let plan = |name: &str, at: u64, agent: &str, enabled: bool| {
        let schedule = json!({ "kind": "at", "atMs": at });
        let spec = json!({ "mode": "systemEvent", "text": "t" });
        json!({ "name": name, "agentId": agent, "enabled": enabled, "schedule": schedule, "spec": spec })
    };
    for (name, at, agent, enabled) in [
        ("c", LATER + 3, "main", true),
        ("a", LATER + 1, "other", true),
        ("off", LATER, "main", false),
        ("b", LATER + 2, "main", true),
    ] {
        add(&mut peer, plan(name, at, agent, enabled));
    }
    for (params, names, count) in [
        (json!({}), "a b c off", 4),
        (json!({ "includeDisabled": false }), "a b c", 3),
        (json!({ "agentId": "main" }), "b c off", 3),
        (json!({ "limit": 2, "offset": 1 }), "b c", 4),
        (json!({ "offset": 9 }), "", 4),
    ] {
        let listed = peer.expect_ok("cron.list", params.clone());
        let jobs = listed["jobs"].as_array().unwrap();
        let found: Vec<&str> = jobs.iter().map(|job| job["name"].as_str().unwrap()).collect();
        assert_eq!((found.join(" "), &listed["count"]), (names.to_owned(), &json!(count)), "{params}");
    }
    let status = peer.expect_ok("cron.status", json!({}));
    let want = json!({
        "enabled": true, "count": 4, "dueCount": 0, "runningCount": 0, "nextRunAtMs": LATER + 1, "maxJobs": 200,
        "maxConcurrentRuns": 4,
    });
    assert_eq!(status, want);
}

#[test]
fn a_patch_changes_what_it_names() {
    let scene = GatewayFixture::for_peers();
    let (gateway, mut peer) = scene.start_peer();
    let job = add(&mut peer, task("before", "one"));
    let patch = json!({
        "name": "after", "description": "what for", "enabled": false,
        "schedule": { "kind": "cron", "expr": "0 4 * * *", "tz": "Europe/Berlin" },
        "spec": { "mode": "task", "deliver": false },
    });
    let changed = peer.expect_ok("cron.update", json!({ "id": job["id"], "patch": patch }));
    let mut want = job.clone();
    for (name, value) in [
        ("name", json!("after")),
        ("description", json!("what for")),
        ("enabled", json!(false)),
        ("schedule", patch["schedule"].clone()),
        ("spec", json!({ "mode": "task", "message": "one", "deliver": false })),
        ("state", json!({})),
        ("updatedAtMs", changed["job"]["updatedAtMs"].clone()),
    ] {
        want[name] = value;
    }
    assert_eq!(changed, json!({ "ok": true, "job": want }));
    let changed = peer.expect_ok("cron.update", json!({ "id": job["id"], "patch": { "enabled": true } }));
    assert!(changed["job"]["state"]["nextRunAtMs"].is_u64());
    gateway.kill();
    let gateway = GatewayServer::start(&scene);
    let mut peer = GsvPeer::connect_client(&gateway, "again");
    assert_eq!(peer.expect_ok("cron.list", json!({}))["jobs"][0], changed["job"]);
    let removed = |peer: &mut GsvPeer| peer.expect_ok("cron.remove", json!({ "id": job["id"] }));
    assert_eq!(removed(&mut peer), json!({ "ok": true, "removed": true }));
    assert_eq!(removed(&mut peer), json!({ "ok": true, "removed": false }));
}

#[test]
fn a_job_that_is_not_due_does_not_run() {
    let scene = GatewayFixture::for_peers();
    let (gateway, mut peer) = scene.start_peer();
    let job = add(&mut peer, task("later", "go"));
    let none = json!({ "ok": true, "ran": 0, "results": [] });
    assert_eq!(peer.expect_ok("cron.run", json!({ "id": job["id"] })), none);
    assert_eq!(peer.expect_ok("cron.run", json!({})), none);
    let latch = Latch::default();
    scene.provider.script_replies([ProviderReply::new(vec![ReplyPart::Until(latch.clone()), text_part("done")])]);
    let request_id = peer.send_request("cron.run", json!({ "id": job["id"], "mode": "force" }));
    scene.provider.wait_request(0);
    let mut other = GsvPeer::connect_client(&gateway, "other");
    let again = other.expect_ok("cron.run", json!({ "id": job["id"], "mode": "force" }));
    assert_eq!((&again["ran"], &again["results"][0]["status"]), (&json!(0), &json!("skipped")));
    assert_eq!(other.expect_ok("cron.status", json!({}))["runningCount"], 1);
    latch.open();
    assert_eq!(peer.wait_response(&request_id)["payload"]["ran"], 1);
}

#[test]
fn a_job_that_is_removed_while_it_runs_runs_to_its_end() {
    let scene = GatewayFixture::for_peers();
    let (gateway, mut peer) = scene.start_peer();
    let job = add(&mut peer, task("goes", "go"));
    let latch = Latch::default();
    scene.provider.script_replies([ProviderReply::new(vec![ReplyPart::Until(latch.clone()), text_part("done")])]);
    let request_id = peer.send_request("cron.run", json!({ "id": job["id"], "mode": "force" }));
    scene.provider.wait_request(0);
    let mut other = GsvPeer::connect_client(&gateway, "other");
    assert_eq!(other.expect_ok("cron.remove", json!({ "id": job["id"] }))["removed"], true);
    latch.open();
    let ran = peer.wait_response(&request_id)["payload"].take();
    assert_eq!((&ran["ran"], &ran["results"][0]["summary"]), (&json!(1), &json!("done")), "{ran}");
}

#[test]
fn what_cannot_be_planned_is_refused_with_its_reason() {
    let scene = GatewayFixture::for_peers();
    let (_gateway, mut peer) = scene.start_peer();
    let with =
        |schedule: Value| json!({ "name": "n", "schedule": schedule, "spec": { "mode": "systemEvent", "text": "t" } });
    let cron = |expr: &str| with(json!({ "kind": "cron", "expr": expr }));
    let mut odd = task("n", "m");
    odd["spec"]["model"] = json!("two words");
    for (method, params, code, message) in [
        ("cron.add", json!({}), 400, "name, schedule, and spec are required"),
        ("cron.add", with(json!({ "kind": "every", "everyMs": 0 })), 500, "schedule.everyMs must be a positive number"),
        (
            "cron.add",
            with(json!({ "kind": "every", "everyMs": 10 })),
            500,
            "schedule.everyMs: every 10 ms is too often: a second is the least",
        ),
        (
            "cron.add",
            cron("* * *"),
            500,
            "schedule.expr: a cron expression has five fields (minute hour day month weekday), this one has 3",
        ),
        (
            "cron.add",
            cron("0 0 31 2 *"),
            500,
            "schedule.expr: \"0 0 31 2 *\" is never due: none of its months has such a day",
        ),
        (
            "cron.add",
            with(json!({ "kind": "cron", "expr": "* * * * *", "tz": "Mars/Base" })),
            500,
            "schedule.tz: \"Mars/Base\" is no time zone: an IANA name such as \"Europe/Berlin\" is wanted",
        ),
        ("cron.add", odd, 500, "Invalid model selector: two words\nUse provider/id, or an id of the current provider."),
        ("cron.update", json!({ "id": "x" }), 400, "id and patch are required"),
        ("cron.update", json!({ "id": "x", "patch": {} }), 500, "Unknown cron job id: x"),
        ("cron.update", json!({ "id": "heartbeat:main", "patch": {} }), 500, "Unknown cron job id: heartbeat:main"),
        ("cron.remove", json!({}), 400, "id is required"),
        ("cron.run", json!({ "mode": "force" }), 500, "cron.run with mode=force requires id"),
        ("cron.run", json!({ "id": "x" }), 500, "Unknown cron job id: x"),
        ("cron.run", json!({ "id": "x", "mode": "force" }), 500, "Unknown cron job id: x"),
    ] {
        assert_eq!(peer.expect_error(method, params.clone()), error_body(code, message), "{method} {params}");
    }
    assert_eq!(peer.expect_ok("cron.remove", json!({ "id": "x" })), json!({ "ok": true, "removed": false }));
    for _ in 0..200 {
        add(&mut peer, task("n", "m"));
    }
    assert_eq!(peer.expect_error("cron.add", task("n", "m")), error_body(500, "Cron job limit reached (200)"));
}

#[test]
fn an_agent_plans_in_the_words_of_people() {
    let scene = GatewayFixture::for_peers();
    let (_gateway, mut peer) = scene.start_peer();
    let plan = json!({
        "action": "add",
        "job": { "name": "tea", "schedule": "in 2 hours", "spec": { "mode": "systemEvent", "text": "Tea!" } },
    });
    let wrong = json!({ "action": "add", "job": { "name": "n", "schedule": "tomorrow" } });
    let calls = [call_part("c0", "gsv__Cron", &plan), call_part("c1", "gsv__Cron", &wrong)];
    scene.provider.script_replies([ProviderReply::new(calls.into()), text_reply("planned")]);
    assert_eq!(message_text(&talk(&mut peer, "main", "tea in two hours, please", "r-1")), "planned");
    let last = scene.provider.last_request();
    assert!(last.call_result("c1").unwrap().contains("has no time of day"), "{:?}", last.call_result("c1"));
    let jobs = peer.expect_ok("cron.list", json!({}));
    let job = &jobs["jobs"][0];
    assert_eq!((&jobs["count"], &job["name"], &job["agentId"]), (&json!(1), &json!("tea"), &json!("main")));
    // The text and the record each read the clock.
    let (at, made) = (job["schedule"]["atMs"].as_u64().unwrap(), job["createdAtMs"].as_u64().unwrap());
    assert!(at.abs_diff(made + 7_200_000) <= 10_000, "{job}");
}

#[test]
fn limits_are_those_of_the_settings_as_they_are_now() {
    let scene = GatewayFixture::for_peers();
    let (_gateway, mut peer) = scene.start_peer();
    for (path, value) in [("cron.enabled", json!(false)), ("cron.maxJobs", json!(1))] {
        peer.expect_ok("config.set", json!({ "path": path, "value": value }));
    }
    let status = eventually("the settings", || {
        let status = peer.expect_ok("cron.status", json!({}));
        (status["enabled"] == false && status["maxJobs"] == 1).then_some(status)
    });
    assert_eq!(status["count"], 0);
    let schedule = json!({ "kind": "at", "atMs": 1 });
    let job = add(&mut peer, json!({ "name": "n", "schedule": schedule, "spec": { "mode": "task", "message": "go" } }));
    assert_eq!(peer.expect_ok("cron.status", json!({}))["dueCount"], 1);
    assert_eq!(peer.expect_error("cron.add", task("n", "m")), error_body(500, "Cron job limit reached (1)"));
    scene.provider.script_replies([text_reply("done")]);
    let ran = peer.expect_ok("cron.run", json!({}));
    assert_eq!((&ran["ran"], &ran["results"][0]["jobId"]), (&json!(1), &job["id"]));
}

#[test]
fn what_a_job_came_to_goes_to_its_chat_and_so_does_that_it_failed() {
    let scene = GatewayFixture::for_peers();
    let (gateway, mut peer) = scene.start_peer();
    let other = FakeServer::start(|_| (204, String::new()));
    webhook::set_up(&mut peer, Some(&other.url));
    let mut report = task("report", "Count the boxes.");
    report["spec"]["deliver"] = json!(true);
    let report = add(&mut peer, report);
    scene.provider.script_replies([text_reply("There are 7.")]);
    let ran = force(&mut peer, &report);
    let nobody = "delivery failed: nobody has spoken with main in a chat network yet";
    assert_eq!((&ran["results"][0]["status"], &ran["results"][0]["error"]), (&json!("error"), &json!(nobody)));
    scene.provider.script_replies([text_reply("hello")]);
    webhook::post(&gateway.address, "/channels/webhook", "m1", 0, &webhook::hello("hi"), |it| it);
    let text =
        |number: usize| other.wait_request(number, |_| true).body["message"]["text"].as_str().unwrap().to_owned();
    assert_eq!(text(0), "hello");
    let (key, to) = (format!("agent:main:cron:{}", id(&report)), json!({ "kind": "dm", "id": "ana" }));
    for (number, reply, want) in [
        (1, text_reply("There are 8."), "There are 8."),
        (2, error_reply(400, "no such thing"), "The job \"report\" failed: LLM error: "),
    ] {
        scene.provider.script_replies([reply]);
        force(&mut peer, &report);
        assert!(text(number).starts_with(want), "{}", text(number));
        let body = other.wait_request(number, |_| true).body;
        assert_eq!((&body["sessionKey"], &body["peer"]), (&json!(key), &to));
    }
    // The same report is not sent again; the next one is.
    for reply in [error_reply(400, "no such thing"), text_reply("There are 9.")] {
        scene.provider.script_replies([reply]);
        force(&mut peer, &report);
    }
    assert_eq!(text(3), "There are 9.");
    let mut silent = task("silent", "go");
    silent["spec"]["deliver"] = json!(false);
    let silent = add(&mut peer, silent);
    scene.provider.script_replies([error_reply(400, "no"), text_reply("There are 10.")]);
    force(&mut peer, &silent);
    force(&mut peer, &report);
    assert_eq!(text(4), "There are 10.");
    let mut odd = task("odd", "go");
    odd["spec"]["model"] = json!("no/such");
    odd["spec"]["deliver"] = json!(true);
    let odd = add(&mut peer, odd);
    assert_eq!(force(&mut peer, &odd)["results"][0]["status"], "error");
    assert!(text(5).starts_with("The job \"odd\" failed: "), "{}", text(5));
    // The messages of each run of a job are archived.
    let kept = std::fs::read_dir(scene.data_dir().join("objects/agents/main/sessions")).unwrap();
    assert!(kept.count() > 2, "archives and their notes");
    scene.verify_log();
}

#[test]
fn a_delivery_that_a_kill_cut_off_is_made_and_is_the_same_letter() {
    let scene = GatewayFixture::for_peers();
    let (gateway, mut peer) = scene.start_peer();
    let is_well = Arc::new(AtomicBool::new(false));
    let well = Arc::clone(&is_well);
    let other = FakeServer::start(move |_| (if well.load(Ordering::SeqCst) { 204 } else { 503 }, String::new()));
    webhook::set_up(&mut peer, Some(&other.url));
    let mut report = task("report", "Count the boxes.");
    report["spec"]["channel"] = json!("webhook");
    report["spec"]["to"] = json!("ana");
    let report = add(&mut peer, report);
    peer.expect_ok("channel.start", json!({ "channel": "webhook" }));
    scene.provider.script_replies([text_reply("There are 7.")]);
    assert_eq!(force(&mut peer, &report)["results"][0]["status"], "ok");
    let first = other.wait_request(0, |_| true);
    gateway.kill();
    is_well.store(true, Ordering::SeqCst);
    let before = other.request_count(|_| true);
    let _gateway = scene.start();
    let again = other.wait_request(before, |_| true);
    assert_eq!((first.header("webhook-id"), &first.body), (again.header("webhook-id"), &again.body));
    assert_eq!((&again.body["message"]["text"], scene.provider.request_count()), (&json!("There are 7."), 1));
}

#[test]
fn archives_of_jobs_are_kept_for_as_many_runs_as_are_remembered() {
    let scene = GatewayFixture::for_peers();
    let (_gateway, mut peer) = scene.start_peer();
    peer.expect_ok("config.set", json!({ "path": "cron.maxRunsPerJobHistory", "value": 1 }));
    talk(&mut peer, "main", "hello", "r-1");
    peer.expect_ok("session.reset", json!({ "sessionKey": "main" }));
    let job = add(&mut peer, task("often", "go"));
    for _ in 0..18 {
        force(&mut peer, &job);
    }
    // Users' messages stay, and of the job the last archive and those since the folder was read.
    let folder = scene.data_dir().join("objects/agents/main/sessions");
    let archives = || {
        std::fs::read_dir(&folder)
            .unwrap()
            .filter(|it| it.as_ref().unwrap().path().extension().is_some_and(|ending| ending == "gz"))
    };
    eventually("the end of what is too old", || (archives().count() <= 3).then_some(()));
    let of_main = peer.expect_ok("session.history", json!({ "sessionKey": "main" }))["previousSessionIds"][0].take();
    assert!(folder.join(format!("{}.jsonl.gz", of_main.as_str().unwrap())).exists());
    scene.verify_log();
}
