//! Methods about jobs.

use super::*;

#[test]
fn a_patch_of_a_job_keeps_what_it_does_not_name() {
    let update = |spec: Value| {
        let Ok(GsvRequest::CronUpdate(update)) = read("cron.update", json!({"id": "j", "patch": {"spec": spec}}))
        else {
            panic!("not an update")
        };
        update.spec.unwrap()
    };
    let task = CronTask {
        message: text("m"),
        model: Some(text("p/x")),
        thinking: None,
        timeout_seconds: Some(5),
        deliver: None,
        channel: None,
        to: None,
        best_effort_deliver: None,
    };
    let before = CronSpec::Task(task.clone());
    let patched = update(json!({"mode": "task", "timeoutSeconds": 9})).apply_to(Some(&before)).unwrap();
    assert_eq!(patched, CronSpec::Task(CronTask { timeout_seconds: Some(9), ..task }));
    let other = update(json!({"mode": "systemEvent"})).apply_to(Some(&before)).unwrap_err();
    assert_eq!((other.code, other.message.as_str()), (500, "spec.text required"));
}
