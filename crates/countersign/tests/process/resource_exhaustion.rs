//! Behaviour of a gateway without resources: room on the disk, descriptors, memory.

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpStream,
    os::unix::net::UnixStream,
    path::PathBuf,
    process::{Child, Command, Stdio},
};

use countersign_testkit::process::{
    AGENT_TOKEN, GatewayFixture, GatewayOptions, GatewayServer, SERVICE_TOKEN,
    agent_gate::{AgentClient, executed_result},
    eventually,
    gsv::{self, GsvPeer},
    http::HttpClient,
    provider::{ProviderReply, bash_part, text_reply},
    run_command,
};
use serde_json::{Value, json};

/// Password of the login.
const PASSWORD: &str = "pass-scarce-91c7";
/// Number of descriptors of a gateway that has few.
const FEW: usize = 96;

/// A small disk of its own below the data directory of a place, seen only by what is started on it.
struct TestDisk<'a> {
    holder: Child,
    /// Way for other processes to its place.
    into: &'static [&'static str],
    place: &'a GatewayFixture,
}

impl<'a> TestDisk<'a> {
    /// Mounts one. `None` if the system does not permit it.
    fn under(place: &'a GatewayFixture, size: &str) -> Option<Self> {
        let mount = format!("mount -t tmpfs -o size={size},mode=700 none data");
        Self::by(place, "-rm", &["-U", "-m", "--preserve-credentials"], &mount)
    }

    /// Mounts one that turns read-only at the first error. Only the system's own administrator may make that.
    fn that_breaks(place: &'a GatewayFixture) -> Option<Self> {
        let mount = "truncate -s 160M image && mkfs.ext4 -q image && mount -o loop,errors=remount-ro image data";
        Self::by(place, "-m", &["-m"], mount)
    }

    fn by(place: &'a GatewayFixture, apart: &str, into: &'static [&'static str], mount: &str) -> Option<Self> {
        fs::create_dir(place.data_dir()).unwrap();
        let mut holder = Command::new("unshare");
        let script = format!("cd \"$0\" && {mount} && touch data/.here && echo here && exec cat");
        holder.args([apart, "sh", "-c", &script]).arg(&place.folder);
        holder.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut holder = holder.spawn().ok()?;
        let mut first_line = String::new();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(holder.stdout.take().unwrap()), &mut first_line)
            .unwrap();
        let disk = Self { holder, into, place };
        (first_line == "here\n").then_some(disk)
    }

    /// Returns a command that is run where the disk is.
    fn command(&self, script: &str) -> Command {
        let plain = self.place.binary_command();
        let mut command = Command::new("nsenter");
        command.args(self.into).args(["-t", &self.holder.id().to_string()]);
        command.args(["sh", "-c", &format!("cd \"$0\" && {script}")]).arg(&self.place.folder).arg(plain.get_program());
        command.env_clear().envs(plain.get_envs().filter_map(|(name, value)| Some((name, value?))));
        command
    }

    fn start(&self) -> GatewayServer {
        GatewayServer::spawn(self.command("exec \"$1\" serve --config config.yaml"))
    }

    fn there(&self, script: &str) {
        let done = run_command(self.command(script));
        assert_eq!(done.code, Some(0), "{script}: {done:?}");
    }

    fn fill(&self) {
        // It ends with an error, which is what it is for.
        let _ = run_command(self.command("dd if=/dev/zero of=data/full bs=64k; dd if=/dev/zero of=data/rest bs=512"));
    }
}

impl Drop for TestDisk<'_> {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

fn lamp(thing: &str) -> Value {
    json!({ "thing": thing, "way": "on" })
}

#[test]
fn a_full_disk_refuses_what_cannot_be_recorded_and_work_goes_on_once_there_is_room() {
    let place = GatewayFixture::new();
    let Some(disk) = TestDisk::under(&place, "80m") else { return };
    let mut gateway = disk.start();
    let mut agent = AgentClient::connect_authenticated(&gateway, AGENT_TOKEN);
    assert_eq!(agent.call_tool(1, "turn", lamp("lamp_a"))["status"], "executed");
    agent.confirm_received();
    disk.fill();
    let refused = agent.call_tool(2, "turn", lamp("lamp_b"));
    let why = refused["message"].as_str().unwrap_or_default();
    assert!(refused["code"].is_i64() && why.contains("not recorded"), "{refused}");
    assert_eq!(place.service.request_count("/turn/lamp_b"), 0, "nothing runs that is not recorded");
    let (_, readiness) =
        eventually("not ready", || Some(gateway.get_json("/readyz")).filter(|(status, _)| *status == 503));
    let problems: Vec<&str> = readiness["problems"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    assert!(problems.contains(&"too little free disk space"), "{readiness}");
    gateway.wait_for_log("not ready: ");
    disk.there("rm data/full data/rest");
    eventually("ready again", || (gateway.get_json("/readyz").0 == 200).then_some(()));
    assert_eq!(agent.call_tool(3, "turn", lamp("lamp_c"))["status"], "executed");
    assert_eq!(place.service.request_count("/turn/lamp_b"), 0, "what was refused is not done later");
    assert!(!gateway.log_text().contains(SERVICE_TOKEN));
    gateway.stop();
    let verified = run_command(disk.command("exec \"$1\" audit verify --json --log data/countersign.db"));
    assert_eq!((verified.code, &verified.json()["flaw"]), (Some(0), &Value::Null), "{verified:?}");
}

#[test]
fn a_data_directory_that_is_read_only_is_named_at_the_start() {
    let place = GatewayFixture::new();
    let Some(disk) = TestDisk::under(&place, "80m") else { return };
    disk.there("mount -o remount,ro \"$0/data\"");
    let refused = run_command(disk.command("exec \"$1\" serve --config config.yaml"));
    assert_eq!((refused.code, refused.out.as_str()), (Some(1), ""), "{refused:?}");
    assert!(refused.err.contains("data") && refused.err.contains("Read-only file system"), "{refused:?}");
    assert_eq!(refused.err.trim_end().lines().count(), 1, "{refused:?}");
}

#[test]
fn a_disk_that_turns_read_only_refuses_everything_and_ends_nothing() {
    let place = GatewayFixture::new();
    let Some(disk) = TestDisk::that_breaks(&place) else { return };
    let mut gateway = disk.start();
    let mut agent = AgentClient::connect_authenticated(&gateway, AGENT_TOKEN);
    assert_eq!(agent.call_tool(1, "turn", lamp("lamp_a"))["status"], "executed");
    agent.confirm_received();
    let broken = run_command(
        disk.command("echo 1 > /sys/fs/ext4/$(basename \"$(findmnt -no SOURCE --target data)\")/trigger_fs_error"),
    );
    if broken.code != Some(0) {
        return;
    }
    let refused = agent.call_tool(2, "turn", lamp("lamp_b"));
    let why = refused["message"].as_str().unwrap_or_default();
    // The system does not say how much of what was written last is there.
    assert!(refused["code"].is_i64() && why.contains("recorded"), "{refused}");
    assert_eq!(place.service.request_count("/turn/lamp_b"), 0, "nothing runs that is not recorded");
    let (_, readiness) =
        eventually("not ready", || Some(gateway.get_json("/readyz")).filter(|(status, _)| *status == 503));
    assert!(readiness["problems"].as_array().unwrap().contains(&json!("the record cannot be written")), "{readiness}");
    assert_eq!(HttpClient::new(&gateway.address).get("/livez").status, 200);
    assert!(agent.exchange_frame(json!({ "method": "list_tools", "id": 3 }))["result"].is_object());
    assert_eq!(gateway.stop().code, Some(0));
    let kept = run_command(disk.command(
        "mkdir kept && cp data/countersign.db* kept && exec \"$1\" audit verify --json --log kept/countersign.db",
    ));
    assert_eq!((kept.code, &kept.json()["flaw"]), (Some(0), &Value::Null), "{kept:?}");
}

/// Starts a gateway with few descriptors and a login.
fn with_few() -> (GatewayFixture, GatewayServer) {
    let scene = GatewayOptions::for_models()
        .with_config(&format!("clients: {{ token: {} }}\nweb: {{ password: {PASSWORD} }}\n", gsv::TOKEN))
        .create();
    let rules = "defaults:\n  - { pattern: 'turn(door*', action: ask }\n  - { pattern: '*', action: allow }\n";
    scene.write_file("permissions.yaml", rules);
    let mut command = Command::new("sh");
    let plain = scene.binary_command();
    command.args(["-c", &format!("ulimit -n {FEW} && exec \"$0\" serve --config config.yaml")]);
    command.arg(plain.get_program()).current_dir(&scene.folder).env_clear();
    command.envs(plain.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let gateway = GatewayServer::spawn(command);
    gateway.wait_for_log("the limit of 96 file descriptors");
    (scene, gateway)
}

/// Connects from another address of this machine and sends nothing.
fn stranger(gateway: &GatewayServer) -> TcpStream {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.2:0".parse().unwrap()).unwrap();
        socket.connect(gateway.address.parse().unwrap()).await.unwrap().into_std().unwrap()
    })
}

fn logged_in(gateway: &GatewayServer) -> HttpClient {
    let http = HttpClient::new(&gateway.address);
    let reply = http.post("/api/auth/login", &json!({ "password": PASSWORD }));
    assert_eq!(reply.status, 200, "{reply:?}");
    let cookie = reply.header("set-cookie").unwrap().split(';').next().unwrap().to_owned();
    http.with_header("cookie", &cookie)
}

fn open_files(http: &HttpClient) -> usize {
    let metrics = http.get("/metrics").body;
    let line =
        metrics.lines().find_map(|line| line.strip_prefix("process_open_fds ")).unwrap_or_else(|| panic!("{metrics}"));
    line.trim().parse().unwrap()
}

#[test]
fn a_flood_of_connections_takes_no_descriptor_of_those_who_are_known() {
    let (scene, mut gateway) = with_few();
    let person = logged_in(&gateway);
    let mut agent = AgentClient::connect_authenticated(&gateway, AGENT_TOKEN);
    agent.request_tool(1, "turn", json!({ "thing": "door" }));
    let gate = scene.wait_gate();
    let events = person.open_stream("/api/v1/events");
    // From elsewhere, and from where the others are.
    let from = |number: usize| match number % 3 {
        0 => TcpStream::connect(&gateway.address).unwrap(),
        _ => stranger(&gateway),
    };
    let flood: Vec<TcpStream> = (0..5 * FEW).map(from).collect();
    assert!(open_files(&person) < FEW);
    let answered = person.post(&format!("/api/v1/gates/{gate}/allow"), &json!({}));
    assert_eq!(answered.status, 200, "{answered:?}");
    assert_eq!(agent.wait_reply(&json!(1))["result"]["status"], "executed");
    assert_eq!(logged_in(&gateway).get("/api/v1/gates").status, 200, "whoever is not known yet gets in as well");
    let room = run(&scene, &person, "echo ran > ran");
    assert_eq!(fs::read_to_string(room.join("ran")).unwrap(), "ran\n", "there are descriptors for commands");
    let log = gateway.log_text();
    assert!(log.lines().count() < 5, "{log}");
    drop((events, flood));
    assert_eq!(gateway.stop().code, Some(0));
    scene.verify_log();
}

/// Has a run work to its end on one command, and gives the folder in which it ran.
fn run(scene: &GatewayFixture, http: &HttpClient, command: &str) -> PathBuf {
    scene.provider.script_replies([ProviderReply::new(vec![bash_part("c1", command)]), text_reply("done")]);
    let opened = http.post("/api/v1/sessions", &json!({ "message": "go" })).json();
    let path = format!("/api/v1/sessions/{}", opened["id"].as_str().unwrap());
    eventually("the end of the run", || (http.get(&path).json()["state"] == "resting").then_some(()));
    scene.folder.join("agents/main")
}

#[test]
fn if_authenticated_connections_take_all_places_the_next_gets_a_reason() {
    let (scene, gateway) = with_few();
    let mut known = Vec::new();
    let refused = eventually("a refusal", || {
        let line = GsvPeer::open_connection_with(&gateway, &[]);
        match line {
            Ok(mut peer) => {
                peer.expect_ok("connect", gsv::connect_params("client", &format!("c-{}", known.len())));
                known.push(peer);
                None
            }
            Err(status) => Some(status),
        }
    });
    assert_eq!(refused, 503);
    assert!(known.len() > FEW / 4 && known.len() < FEW, "{}", known.len());
    gateway.wait_for_log("as many as its descriptors allow");
    // There is one for each thing that the gateway does itself.
    assert!(known[0].expect_ok("sessions.list", json!({}))["sessions"].is_array());
    assert_eq!(scene.run_as_person(&["gates", "list"]).out, "No pending approvals.\n");
    drop(known);
    eventually("a place", || GsvPeer::open_connection_with(&gateway, &[]).ok());
}

/// Lets a gateway have no descriptor from this number on.
fn below(gateway: &GatewayServer, most: usize) {
    let limit = format!("--nofile={most}:{FEW}");
    let done = Command::new("prlimit").args(["--pid", &gateway.pid().to_string(), &limit]).status();
    assert!(done.unwrap().success());
}

#[test]
fn where_no_descriptor_is_left_it_waits_says_so_once_and_goes_on() {
    let (scene, mut gateway) = with_few();
    let mut agent = AgentClient::connect_authenticated(&gateway, AGENT_TOKEN);
    // None is above those that every program has.
    below(&gateway, 3);
    let _waiting = UnixStream::connect(scene.data_dir().join("countersign.sock")).unwrap();
    gateway.wait_for_log("failed to accept a connection to the control socket");
    let waiting: Vec<TcpStream> = (0..9).map(|_| stranger(&gateway)).collect();
    gateway.wait_for_log("failed to accept a connection on a port");
    // A connected client is served: reading needs no descriptor.
    assert!(agent.exchange_frame(json!({ "method": "list_tools", "id": 1 }))["result"].is_object());
    below(&gateway, FEW);
    drop(waiting);
    eventually("a connection", || (HttpClient::new(&gateway.address).get("/livez").status == 200).then_some(()));
    assert_eq!(agent.call_tool(2, "look", json!({ "thing": "a" })), executed_result(json!({ "did": "/look/a" })));
    let log = gateway.log_text();
    assert!(log.matches("failed to accept a connection").count() == 2 && log.lines().count() < 20, "{log}");
    assert_eq!(gateway.stop().code, Some(0));
    scene.verify_log();
}

/// Returns the answer, on an existing connection, to a client that shows a token.
fn status(line: &mut TcpStream, token: &str) -> String {
    let request = format!("GET /api/v1/gates HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {token}\r\n\r\n");
    line.write_all(request.as_bytes()).unwrap();
    let mut reader = BufReader::new(line);
    let (mut response_head, mut length) = (String::new(), 0);
    loop {
        let mut next = String::new();
        reader.read_line(&mut next).unwrap();
        if let Some(value) = next.to_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
        if next.trim().is_empty() {
            break;
        }
        response_head.push_str(&next);
    }
    reader.read_exact(&mut vec![0; length]).unwrap();
    response_head.split(' ').nth(1).unwrap_or_else(|| panic!("{response_head:?}")).to_owned()
}

#[test]
fn tokens_that_could_not_be_read_for_want_of_descriptors_are_read_again() {
    let (scene, mut gateway) = with_few();
    let mut line = TcpStream::connect(&gateway.address).unwrap();
    assert_eq!(status(&mut line, "cst_nobody"), "401");
    below(&gateway, 3);
    let made = scene.run_as_person(&["tokens", "add", "ci", "--scope", "read"]);
    assert_eq!(made.code, Some(0), "{made:?}");
    let token = made.out.trim();
    assert_eq!(status(&mut line, token), "401");
    gateway.wait_for_log("all tokens are rejected: the token file cannot be read");
    below(&gateway, FEW);
    eventually("a token", || (status(&mut line, token) == "200").then_some(()));
    let log = gateway.log_text();
    assert_eq!(log.matches("all tokens are rejected").count(), 1, "{log}");
    assert_eq!(gateway.stop().code, Some(0));
}

#[test]
fn connections_to_the_control_socket_take_no_descriptor_of_the_port() {
    let (scene, mut gateway) = with_few();
    let socket = scene.data_dir().join("countersign.sock");
    let held: Vec<UnixStream> = (0..2 * FEW).filter_map(|_| UnixStream::connect(&socket).ok()).collect();
    assert!(held.len() > FEW, "{}", held.len());
    let mut agent = AgentClient::connect_authenticated(&gateway, AGENT_TOKEN);
    assert_eq!(agent.call_tool(2, "look", json!({ "thing": "a" })), executed_result(json!({ "did": "/look/a" })));
    drop(held);
    assert_eq!(scene.run_as_person(&["gates", "list"]).out, "No pending approvals.\n");
    assert!(!gateway.log_text().contains("failed to accept a connection"));
    assert_eq!(gateway.stop().code, Some(0));
}

fn score(pid: &str) -> Option<i32> {
    fs::read_to_string(format!("/proc/{pid}/oom_score_adj")).ok()?.trim().parse().ok()
}

#[test]
fn where_memory_runs_out_commands_go_before_the_gateway() {
    // The runner of the tests may have set the same for all of them.
    let Some(own) = score("self").filter(|own| *own < 500) else { return };
    let scene = GatewayOptions::for_models().with_config("").create();
    let gateway = scene.start();
    scene.write_file("permissions.yaml", "defaults:\n  - { pattern: '*', action: allow }\n");
    let room = run(
        &scene,
        &HttpClient::new(&gateway.address),
        "cat /proc/self/oom_score_adj > own; cat /proc/$$/oom_score_adj > shell",
    );
    for name in ["own", "shell"] {
        assert_eq!(fs::read_to_string(room.join(name)).unwrap(), "500\n", "{name}");
    }
    assert_eq!(score(&gateway.pid().to_string()), Some(own));
}

/// A group of processes that may have so much memory together.
struct MemoryCgroup(PathBuf);

impl MemoryCgroup {
    /// Creates one. `None` if the system does not permit it.
    fn new(most: &str) -> Option<Self> {
        let name = format!("countersign-{}", std::process::id());
        let first = PathBuf::from("/sys/fs/cgroup/memory").join(&name);
        let second = PathBuf::from("/sys/fs/cgroup").join(&name);
        let (folder, limit) = if first.parent()?.join("memory.limit_in_bytes").exists() {
            (first, "memory.limit_in_bytes")
        } else {
            (second, "memory.max")
        };
        fs::create_dir(&folder).ok()?;
        let group = Self(folder);
        // Without the second there may be so much again on a swap device.
        let _ = fs::write(group.0.join("memory.swap.max"), "0");
        let is_set = group.0.join(limit).exists() && fs::write(group.0.join(limit), most).is_ok();
        let _ = fs::write(group.0.join("memory.memsw.limit_in_bytes"), most);
        is_set.then_some(group)
    }
}

impl Drop for MemoryCgroup {
    fn drop(&mut self) {
        // Its processes end a moment before it may be removed.
        eventually("an end of the group", || {
            let is_gone = !self.0.exists() || fs::remove_dir(&self.0).is_ok();
            is_gone.then_some(())
        });
    }
}

#[test]
fn a_command_that_takes_all_memory_is_killed_and_the_gateway_goes_on() {
    let Some(group) = MemoryCgroup::new("512M") else { return };
    let scene = GatewayOptions::for_models().with_config("").create();
    scene.write_file("permissions.yaml", "defaults:\n  - { pattern: '*', action: allow }\n");
    let plain = scene.binary_command();
    let mut command = Command::new("sh");
    command.args(["-c", "echo $$ > \"$1/cgroup.procs\" && exec \"$0\" serve --config config.yaml"]);
    command.arg(plain.get_program()).arg(&group.0).current_dir(&scene.folder).env_clear();
    command.envs(plain.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let mut gateway = GatewayServer::spawn(command);
    // A line that has no end.
    let room =
        run(&scene, &HttpClient::new(&gateway.address), "tail /dev/zero; code=$?; echo $code > code; exit $code");
    assert_eq!(fs::read_to_string(room.join("code")).unwrap(), "137\n");
    let result = scene.provider.last_request().call_result("c1").unwrap();
    assert!(result.contains("it was killed") && result.contains("memory ran out"), "{result}");
    assert_eq!(HttpClient::new(&gateway.address).get("/livez").status, 200);
    assert_eq!(gateway.stop().code, Some(0));
    scene.verify_log();
}
