//! Errors of each method for unaccepted parameters.

use super::*;

#[test]
fn missing_and_invalid_fields_get_the_texts_that_clients_know() {
    let job = |schedule: Value, spec: Value| json!({"name": "n", "schedule": schedule, "spec": spec});
    let event = json!({"mode": "systemEvent", "text": "t"});
    let every = json!({"kind": "every", "everyMs": 1});
    let inbound =
        |peer: Value, message: Value| json!({"channel": "c", "accountId": "a", "peer": peer, "message": message});
    for (method, params, code, want) in [
        ("connect", json!({}), 400, "Already connected"),
        ("chat.send", json!([]), 400, "params must be an object"),
        ("chat.send", json!({}), 400, "sessionKey and message required"),
        ("chat.send", json!({"sessionKey": "k", "message": ""}), 400, "sessionKey and message required"),
        ("chat.send", json!({"sessionKey": 5, "message": "m"}), 400, "sessionKey must be a string"),
        ("config.get", json!({"path": "a..b"}), 400, "Invalid config path: a..b"),
        ("config.set", json!({"value": 1}), 400, "path required"),
        ("config.set", json!({"path": "a"}), 400, "value required"),
        ("config.set", json!({"path": "__proto__.x", "value": 1}), 400, "Invalid config path: __proto__.x"),
        ("tool.invoke", json!({}), 400, "tool required"),
        ("tool.invoke", json!({"tool": "t", "args": []}), 400, "args must be an object"),
        ("tool.result", json!({"result": 1}), 400, "callId required"),
        ("tool.result", json!({"callId": "c", "fate": "x"}), 400, "fate must be one of not_begun, unknown"),
        ("tool.request", json!({"callId": "c", "tool": "t"}), 400, "callId, tool, and sessionKey required"),
        ("node.probe.result", json!({}), 400, "probeId required"),
        ("node.probe.result", json!({"probeId": "p"}), 400, "ok required"),
        ("logs.get", json!({"lines": 0}), 400, "lines must be a positive number"),
        ("logs.get", json!({"lines": -5}), 400, "lines must be a positive number"),
        ("logs.get", json!({"lines": "all"}), 400, "lines must be a positive number"),
        ("logs.result", json!({"callId": "c", "lines": [1]}), 400, "lines must be an array of strings"),
        ("sessions.list", json!({"limit": -1}), 400, "limit must be a whole number from 0 up"),
        ("session.get", json!({}), 400, "sessionKey required"),
        ("session.stats", json!({}), 400, "sessionKey required"),
        ("session.reset", json!({}), 400, "sessionKey required"),
        ("session.history", json!({}), 400, "sessionKey required"),
        ("session.preview", json!({}), 400, "sessionKey required"),
        (
            "session.compact",
            json!({"sessionKey": "k", "keepMessages": 0}),
            400,
            "keepMessages must be a positive number",
        ),
        ("session.patch", json!({"sessionKey": "k", "settings": 1}), 400, "settings must be an object"),
        (
            "session.patch",
            json!({"sessionKey": "k", "settings": {"model": "p/id"}}),
            400,
            "settings.model must be an object",
        ),
        (
            "session.patch",
            json!({"sessionKey": "k", "settings": {"model": {"id": " "}}}),
            400,
            "settings.model.id must not be empty",
        ),
        (
            "session.patch",
            json!({"sessionKey": "k", "settings": {"model": {}}}),
            400,
            "settings.model must name provider, id or both; null unsets it",
        ),
        (
            "session.patch",
            json!({"sessionKey": "k", "settings": {"model": {"provider": null}}}),
            400,
            "settings.model must name provider, id or both; null unsets it",
        ),
        (
            "session.patch",
            json!({"sessionKey": "k", "settings": {"systemPrompt": " "}}),
            400,
            "settings.systemPrompt must not be empty; null unsets it",
        ),
        (
            "session.patch",
            json!({"sessionKey": "k", "resetPolicy": {}}),
            400,
            "resetPolicy must name mode, atHour or idleMinutes",
        ),
        (
            "session.patch",
            json!({"sessionKey": "k", "resetPolicy": {"idleMinutes": 525_601}}),
            400,
            "resetPolicy.idleMinutes must be from 0 to 525600, not 525601",
        ),
        (
            "session.patch",
            json!({"sessionKey": "k", "settings": {"thinkingLevel": "hard"}}),
            400,
            "settings.thinkingLevel must be one of none, off, minimal, low, medium, high, xhigh",
        ),
        (
            "session.patch",
            json!({"sessionKey": "k", "settings": {"maxTokens": 0}}),
            400,
            "settings.maxTokens must be at least 1",
        ),
        ("session.patch", json!({"sessionKey": "k", "label": 1}), 400, "label must be a string"),
        ("session.patch", json!({"sessionKey": "k", "label": ""}), 400, "label must not be empty; null unsets it"),
        ("session.patch", json!({"sessionKey": "k", "label": "  "}), 400, "label must not be empty; null unsets it"),
        (
            "session.patch",
            json!({"sessionKey": "k", "resetPolicy": {"atHour": 24}}),
            400,
            "resetPolicy.atHour must be from 0 to 23",
        ),
        (
            "session.patch",
            json!({"sessionKey": "k", "resetPolicy": {"mode": "weekly"}}),
            400,
            "resetPolicy.mode must be one of manual, daily, idle",
        ),
        ("channel.inbound", json!({"channel": "c"}), 400, "channel, accountId, peer, and message required"),
        ("channel.inbound", inbound(json!({"id": "7"}), json!({})), 400, "peer.kind required"),
        (
            "channel.inbound",
            inbound(json!({"kind": "crowd", "id": "7"}), json!({})),
            400,
            "peer.kind must be one of dm, group, channel, thread",
        ),
        (
            "channel.inbound",
            inbound(json!({"kind": "dm", "id": "7"}), json!({"media": [{"type": "image"}]})),
            400,
            "message.media[0].mimeType required",
        ),
        ("channel.start", json!({}), 400, "channel required"),
        ("channel.stop", json!({}), 400, "channel required"),
        ("channel.status", json!({}), 400, "channel required"),
        ("channel.login", json!({"channel": "c", "force": "yes"}), 400, "force must be true or false"),
        ("channel.logout", json!({}), 400, "channel required"),
        ("heartbeat.trigger", json!({"agentId": 5}), 400, "agentId must be a string"),
        ("cron.add", json!({"name": "n"}), 400, "name, schedule, and spec are required"),
        ("cron.add", json!({"name": " ", "schedule": {}, "spec": {}}), 500, "Cron job name must not be empty"),
        ("cron.add", job(json!({}), event.clone()), 500, "schedule.kind required"),
        (
            "cron.add",
            job(json!({"kind": "sometimes"}), event.clone()),
            400,
            "schedule.kind must be one of at, every, cron",
        ),
        ("cron.add", job(json!({"kind": "at"}), event.clone()), 500, "schedule.atMs required"),
        (
            "cron.add",
            job(json!({"kind": "every", "everyMs": 0}), event.clone()),
            500,
            "schedule.everyMs must be a positive number",
        ),
        ("cron.add", job(json!({"kind": "cron", "expr": " "}), event), 500, "schedule.expr required"),
        ("cron.add", job(every.clone(), json!({})), 500, "spec.mode required"),
        ("cron.add", job(every.clone(), json!({"mode": "systemEvent"})), 500, "spec.text required"),
        ("cron.add", job(every.clone(), json!({"mode": "task"})), 500, "spec.message required"),
        (
            "cron.add",
            job(every.clone(), json!({"mode": "task", "message": "m", "thinking": "hard"})),
            500,
            "Invalid level: hard\nLevels: off, minimal, low, medium, high, xhigh",
        ),
        (
            "cron.add",
            job(every.clone(), json!({"mode": "task", "message": "m", "model": ""})),
            500,
            "spec.model must not be empty",
        ),
        (
            "cron.add",
            job(every, json!({"mode": "task", "message": "m", "channel": " "})),
            500,
            "spec.channel must not be empty",
        ),
        (
            "cron.update",
            json!({"id": "j", "patch": {"spec": {"mode": "task", "to": ""}}}),
            500,
            "spec.to must not be empty",
        ),
        ("cron.update", json!({"id": "j"}), 400, "id and patch are required"),
        ("cron.update", json!({"id": "j", "patch": {"enabled": "no"}}), 400, "patch.enabled must be true or false"),
        ("cron.update", json!({"id": "j", "patch": {"spec": {"text": "t"}}}), 500, "spec.mode required"),
        ("cron.remove", json!({}), 400, "id is required"),
        ("cron.run", json!({"mode": "force"}), 500, "cron.run with mode=force requires id"),
        ("cron.run", json!({"mode": "now"}), 400, "mode must be one of due, force"),
        ("cron.runs", json!({"limit": "x"}), 400, "limit must be a whole number from 0 up"),
        ("pair.approve", json!({"channel": "c"}), 400, "channel and senderId required"),
        ("pair.reject", json!({"senderId": "s"}), 400, "channel and senderId required"),
        ("skills.update", json!({"force": 1}), 400, "force must be true or false"),
        ("workspace.list", json!({"path": "a/../.."}), 500, "Path traversal not allowed"),
        ("workspace.read", json!({}), 400, "path required"),
        ("workspace.read", json!({"path": "/"}), 400, "path required"),
        ("workspace.read", json!({"path": "..\\x"}), 500, "Path traversal not allowed"),
        ("workspace.read", json!({"path": "C:/x"}), 500, "Path traversal not allowed"),
        ("workspace.read", json!({"path": "a\0b"}), 400, "path must not contain NUL"),
        ("workspace.write", json!({"path": "a"}), 400, "content is required"),
        ("workspace.delete", json!({"path": "memory/../../x"}), 500, "Path traversal not allowed"),
    ] {
        let fault = read(method, params.clone()).unwrap_err();
        assert_eq!((fault.code, fault.message.as_str()), (code, want), "{method}");
    }
}

/// Parameters with a value at one place of them.
type ParamsWithValue = Box<dyn Fn(Value) -> Value>;

/// Every parameter that is a whole number, by its method, its place and its name in errors.
fn integers() -> Vec<(&'static str, ParamsWithValue, &'static str)> {
    let session = |name: &'static str| move |value: Value| json!({"sessionKey": "k", name: value});
    let plain = |name: &'static str| move |value: Value| json!({name: value});
    let job = |schedule: Value, spec: Value| json!({"name": "n", "schedule": schedule, "spec": spec});
    let event = || json!({"mode": "systemEvent", "text": "t"});
    let at = || json!({"kind": "at", "atMs": 1});
    vec![
        ("sessions.list", Box::new(plain("limit")), "limit"),
        ("sessions.list", Box::new(plain("offset")), "offset"),
        ("cron.list", Box::new(plain("limit")), "limit"),
        ("cron.list", Box::new(plain("offset")), "offset"),
        ("cron.runs", Box::new(plain("limit")), "limit"),
        ("cron.runs", Box::new(plain("offset")), "offset"),
        ("session.preview", Box::new(session("limit")), "limit"),
        ("session.compact", Box::new(session("keepMessages")), "keepMessages"),
        (
            "session.patch",
            Box::new(|value| json!({"sessionKey": "k", "settings": {"maxTokens": value}})),
            "settings.maxTokens",
        ),
        (
            "session.patch",
            Box::new(|value| json!({"sessionKey": "k", "resetPolicy": {"atHour": value}})),
            "resetPolicy.atHour",
        ),
        (
            "session.patch",
            Box::new(|value| json!({"sessionKey": "k", "resetPolicy": {"idleMinutes": value}})),
            "resetPolicy.idleMinutes",
        ),
        ("skills.update", Box::new(plain("timeoutMs")), "timeoutMs"),
        ("cron.add", Box::new(move |value| job(json!({"kind": "at", "atMs": value}), event())), "schedule.atMs"),
        (
            "cron.add",
            Box::new(move |value| job(json!({"kind": "every", "everyMs": value}), event())),
            "schedule.everyMs",
        ),
        (
            "cron.add",
            Box::new(move |value| job(json!({"kind": "every", "everyMs": 1000, "anchorMs": value}), event())),
            "schedule.anchorMs",
        ),
        (
            "cron.add",
            Box::new(move |value| job(at(), json!({"mode": "task", "message": "m", "timeoutSeconds": value}))),
            "spec.timeoutSeconds",
        ),
        (
            "cron.update",
            Box::new(|value| json!({"id": "j", "patch": {"schedule": {"kind": "at", "atMs": value}}})),
            "patch.schedule.atMs",
        ),
        (
            "cron.update",
            Box::new(|value| json!({"id": "j", "patch": {"spec": {"mode": "task", "timeoutSeconds": value}}})),
            "patch.spec.timeoutSeconds",
        ),
    ]
}

#[test]
fn a_whole_number_is_no_fraction_no_negative_and_no_text() {
    for (method, params, name) in integers() {
        for wrong in
            [json!(1.5), json!(1.001), json!(-1), json!(-0.5), json!("7"), json!(true), json!([1]), json!(1e300)]
        {
            let fault = read(method, params(wrong.clone())).unwrap_err();
            let want = format!("{name} must be a whole number from 0 up");
            assert_eq!((fault.code, fault.message), (400, want), "{method} {wrong}");
        }
        // Some languages write every number with a point, and floats miss whole numbers by a little.
        for same in [json!(7.0), json!(7.000_000_000_000_001), json!(6.999_999_999_999_999)] {
            assert_eq!(read(method, params(same.clone())), read(method, params(json!(7))), "{method} {name} {same}");
        }
        assert!(read(method, params(json!(7))).is_ok(), "{method} {name}");
    }
}

#[test]
fn what_stands_among_facts_has_a_length() {
    let prompt = |prompt: String| json!({"sessionKey": "k", "settings": {"systemPrompt": prompt}});
    let longest = 48 << 10;
    assert!(read("session.patch", prompt("p".repeat(longest - 2))).is_ok());
    for (params, why) in [
        (prompt("p".repeat(longest - 1)), "settings.systemPrompt has 49153 bytes, at most 49152 are taken"),
        // As JSON it is twice as long.
        (prompt("\n".repeat(longest / 2)), "settings.systemPrompt has 49154 bytes, at most 49152 are taken"),
        (json!({"sessionKey": "k", "label": "l".repeat(1023)}), "label has 1025 bytes, at most 1024 are taken"),
        (
            json!({"sessionKey": "k", "settings": {"model": {"id": "m".repeat(2000)}}}),
            "settings.model.id has 2002 bytes, at most 1024 are taken",
        ),
    ] {
        assert_eq!(read("session.patch", params).unwrap_err().message, why);
    }
}
