//! Nodes whose clocks are minutes apart.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use countersign_testkit::process::{AGENT_TOKEN, GatewayServer, agent_gate::AgentClient};
use serde_json::json;

use crate::cluster_fixture::{ClusterFixture, log_in, read_record, take_missed};

/// Library that moves the clock of a process by `CLOCK_OFFSET` seconds.
const SHIFTED_CLOCK: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>

int clock_gettime(clockid_t clock, struct timespec *now) {
    static int (*next)(clockid_t, struct timespec *);
    if (!next) next = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    const char *offset = getenv("CLOCK_OFFSET");
    int result = next(clock, now);
    if (!result && offset && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += atol(offset);
    return result;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec exact;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &exact);
    now->tv_sec = exact.tv_sec;
    now->tv_usec = exact.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *now) {
    struct timespec exact;
    clock_gettime(CLOCK_REALTIME, &exact);
    if (now) *now = exact.tv_sec;
    return exact.tv_sec;
}
"#;

/// Compiles the library; none where there is no compiler for C.
#[allow(clippy::print_stderr, reason = "it says why the test does nothing")]
fn compile_shifted_clock(folder: &Path) -> Option<PathBuf> {
    let (source, library) = (folder.join("shifted_clock.c"), folder.join("shifted_clock.so"));
    std::fs::write(&source, SHIFTED_CLOCK).unwrap();
    let mut command = Command::new("cc");
    command.args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source).arg("-ldl");
    if command.output().is_ok_and(|output| output.status.success()) {
        return Some(library);
    }
    eprintln!("skipped: there is no compiler for C (cc)");
    None
}

#[test]
fn a_lease_moves_between_nodes_with_clocks_twenty_minutes_apart() {
    let Some(cluster) = ClusterFixture::create() else { return };
    let Some(library) = compile_shifted_clock(&cluster.place.folder) else { return };
    cluster.add_config("approval_timeout: 4");
    let start = |name: &str, offset: &str| {
        let mut command = cluster.node_command(name);
        command.env("LD_PRELOAD", &library).env("CLOCK_OFFSET", offset);
        GatewayServer::spawn(command)
    };
    let late = start("b", "-600");
    late.wait_for_log("node b serves the realm");
    let early = start("a", "600");
    early.wait_for_log("node b serves the realm");
    let mut agent = AgentClient::connect_authenticated(&early, AGENT_TOKEN);
    agent.request_tool(1, "turn", json!({ "thing": "door" }));
    let gate = cluster.wait_gate_at("a");

    // By the clock of the next owner, the gate would have expired before it was opened.
    late.kill();
    early.wait_for_log("node a serves the realm");
    assert_eq!(cluster.wait_gate_at("a"), gate);
    let late = start("b", "-600");
    late.wait_for_log("node a serves the realm");
    let moved = cluster.run_at("a", &["cluster", "move", "b"]);
    assert_eq!(moved["realms"][0]["owner"], "b", "{moved}");
    late.wait_for_log("node b serves the realm");

    // By the clock of this one, time stands still for twenty minutes.
    drop(agent);
    let mut agent = AgentClient::connect_authenticated(&early, AGENT_TOKEN);
    let expired = agent.call_tool(2, "turn", json!({ "thing": "window" }));
    assert_eq!((&expired["code"], &expired["message"]), (&json!(-32002), &json!("Approval timed out")), "{expired}");
    assert_eq!(cluster.wait_gate_at("b"), gate);
    cluster.allow_at("a", &gate);
    take_missed(&mut agent, 3);
    assert_eq!(cluster.place.service.request_count("/turn/door"), 1);
    assert_eq!(cluster.place.service.request_count("/turn/window"), 0);
    read_record(&cluster, &early, &log_in(&early));
    cluster.verify_record();
}
