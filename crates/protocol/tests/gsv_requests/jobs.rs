//! Methods about jobs.

use super::*;

#[test]
fn a_patch_of_a_job_keeps_what_it_does_not_name() {
    let update = |spec: Value| {
        let Ok(Request::CronUpdate(update)) = read("cron.update", json!({"id": "j", "patch": {"spec": spec}})) else {
            panic!("not an update")
        };
        update.spec.unwrap()
    };
    let task = Task {
        message: text("m"),
        model: Some(text("p/x")),
        thinking: None,
        timeout_seconds: Some(5),
        deliver: None,
        channel: None,
        to: None,
        best_effort_deliver: None,
    };
    let before = Spec::Task(task.clone());
    let patched = update(json!({"mode": "task", "timeoutSeconds": 9})).applied(Some(&before)).unwrap();
    assert_eq!(patched, Spec::Task(Task { timeout_seconds: Some(9), ..task }));
    let other = update(json!({"mode": "systemEvent"})).applied(Some(&before)).unwrap_err();
    assert_eq!((other.code, other.message.as_str()), (500, "spec.text required"));
}
