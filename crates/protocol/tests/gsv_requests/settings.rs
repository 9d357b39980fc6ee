//! Methods about settings.

use super::*;

#[test]
fn a_setting_that_there_is_not_is_refused_by_its_name() {
    let patch = |members: Value| {
        let mut params = json!({"sessionKey": "k"});
        params.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
        params
    };
    let job = |schedule: Value, spec: Value| json!({"name": "n", "schedule": schedule, "spec": spec});
    let at = || json!({"kind": "at", "atMs": 1});
    let event = |more: Value| {
        let mut spec = json!({"mode": "systemEvent", "text": "t"});
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        spec
    };
    let (settings, model) = ("model, thinkingLevel, systemPrompt, maxTokens", "provider, id");
    let (top, jobs) = (
        "sessionKey, settings, label, resetPolicy",
        "agentId, name, description, enabled, deleteAfterRun, schedule, spec",
    );
    let task = "mode, message, model, thinking, timeoutSeconds, deliver, channel, to, bestEffortDeliver";
    for (method, params, name, takes) in [
        ("session.patch", patch(json!({"settings": {"toolPolicy": "ask"}})), "settings.toolPolicy", settings),
        // Null takes a setting away, and there is none to take.
        ("session.patch", patch(json!({"settings": {"temperature": null}})), "settings.temperature", settings),
        ("session.patch", patch(json!({"settings": {"model": {"name": "x"}}})), "settings.model.name", model),
        ("session.patch", patch(json!({"model": "p/x"})), "model", top),
        ("session.patch", patch(json!({"resetPolicy": {"hour": 4}})), "resetPolicy.hour", "mode, atHour, idleMinutes"),
        ("cron.add", job(at(), event(json!({"deliver": false}))), "spec.deliver", "mode, text"),
        ("cron.add", job(at(), event(json!({"channel": "wx"}))), "spec.channel", "mode, text"),
        ("cron.add", job(at(), event(json!({"to": "ana"}))), "spec.to", "mode, text"),
        ("cron.add", job(at(), event(json!({"timeoutSeconds": 5}))), "spec.timeoutSeconds", "mode, text"),
        ("cron.add", job(at(), json!({"mode": "task", "message": "m", "tools": []})), "spec.tools", task),
        (
            "cron.add",
            job(json!({"kind": "at", "atMs": 1, "everyMs": 5}), event(json!({}))),
            "schedule.everyMs",
            "kind, atMs, tz",
        ),
        (
            "cron.add",
            job(json!({"kind": "every", "everyMs": 1000, "until": 5}), event(json!({}))),
            "schedule.until",
            "kind, everyMs, anchorMs, tz",
        ),
        (
            "cron.add",
            json!({"name": "n", "schedule": at(), "spec": event(json!({})), "deliver": false}),
            "deliver",
            jobs,
        ),
        (
            "cron.update",
            json!({"id": "j", "patch": {"spec": event(json!({"deliver": false}))}}),
            "patch.spec.deliver",
            "mode, text",
        ),
        ("cron.update", json!({"id": "j", "patch": {"enabeld": false}}), "patch.enabeld", jobs),
        ("cron.update", json!({"id": "j", "patch": {}, "enabled": false}), "enabled", "id, patch"),
    ] {
        let fault = read(method, params.clone()).unwrap_err();
        let want = format!("Unknown setting: {name}; accepted: {takes}");
        assert_eq!((fault.code, fault.message), (400, want), "{method} {params}");
    }
    // Null counts as absent in a job.
    assert!(read("cron.add", job(at(), event(json!({"deliver": null, "to": null})))).is_ok());
}
