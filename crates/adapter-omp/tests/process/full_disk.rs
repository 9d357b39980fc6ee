//! A disk that takes nothing any more while a run works.

use std::{
    path::PathBuf,
    process::{Command, Stdio},
};

use countersign_testkit::process::{
    HostFixture, RpcHost,
    provider::{ProviderReply, bash_part},
    wait_dead,
};
use serde_json::json;

/// Starts a host whose agent directory is on a small disk of its own. `None` if the system does not permit one.
fn start(place: &HostFixture) -> Option<RpcHost> {
    let may = Command::new("unshare").args(["-rm", "true"]).stderr(Stdio::null()).status();
    if !may.is_ok_and(|status| status.success()) {
        return None;
    }
    let plain = RpcHost::omp_command(place, &["--model", "fake/fake-1"]);
    let disk = disk(place);
    std::fs::create_dir(&disk).unwrap();
    let mut command = Command::new("unshare");
    command.args(["-rm", "sh", "-c"]).current_dir(&place.work).env_clear();
    command.arg("mount -t tmpfs -o size=1m none \"$0\" && cp -r \"$1\"/. \"$0\" && shift && exec \"$@\"");
    command.args([&disk, &place.agent]).arg(plain.get_program()).args(plain.get_args());
    command.envs(plain.get_envs().filter_map(|(name, value)| Some((name, value?))));
    command.env("PI_CODING_AGENT_DIR", disk);
    let host = RpcHost::spawn(command);
    host.wait_event(0, "ready");
    Some(host)
}

fn disk(place: &HostFixture) -> PathBuf {
    place.home.join("disk")
}

/// Runs something where the disk of the host is.
fn there(host: &RpcHost, script: &str, place: &HostFixture) {
    let mut command = Command::new("nsenter");
    command.args(["-U", "-m", "--preserve-credentials", "-t", &host.process_id().to_string(), "sh", "-c", script]);
    command.arg(disk(place)).stderr(Stdio::null());
    command.status().unwrap();
}

#[test]
fn a_run_that_cannot_be_recorded_is_reported_and_stopped() {
    for command in ["abort", "abort_and_prompt"] {
        let place = HostFixture::new();
        let Some(mut host) = start(&place) else { return };
        host.run_turn("one");
        place
            .provider
            .script_replies([ProviderReply::new(vec![bash_part("k", "sh -c 'echo $$ > pid; exec sleep 300'")])]);
        let from = host.send_prompt("go");
        let pid = place.wait_for("pid");
        there(&host, "dd if=/dev/zero of=\"$0/full\" bs=1k", &place);
        let error = host.command_error(json!({ "type": command, "message": "on" }));
        assert!(error.contains("not recorded"), "{error}");
        let notice = host.wait_frame(from, "a notice", |frame| frame["method"] == "notify");
        assert_eq!((&notice["type"], &notice["notifyType"]), (&json!("extension_ui_request"), &json!("error")));
        assert!(notice["message"].as_str().unwrap().contains("not recorded"), "{notice}");
        wait_dead(&pid);
        there(&host, "rm \"$0/full\"", &place);
        host.wait_settled(from);
        assert_eq!((place.provider.request_count(), &host.session_state()["isStreaming"]), (2, &json!(false)));
        host.run_turn("next");
        assert_eq!(place.provider.request_count(), 3);
        assert!(place.provider.last_request().is_paired());
    }
}
