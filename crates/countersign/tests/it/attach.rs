//! Sessions that live in a gateway, while their hosts speak to the process that they started.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Stdio,
};

use serde_json::{Value, json};

use crate::{
    gateway::Gateway,
    host::{Host, only, soon, text},
    http::Http,
    place::{Place, check_chain, lines_with},
    provider::{Latch, Part, Reply, bash, call, say, text as say_part},
};

/// A gateway on this machine, and where it keeps what it knows.
pub(crate) struct House {
    pub(crate) place: Place,
    data: PathBuf,
}

impl House {
    /// Every call of `bash` asks.
    fn new() -> Self {
        Self::with("")
    }

    /// With more lines in the gateway's configuration.
    pub(crate) fn with(more: &str) -> Self {
        let place = Place::asking();
        let folder = place.home.join("gate");
        fs::create_dir(&folder).unwrap();
        let config = "gateway: { host: 127.0.0.1, port: 0 }\nstorage: { type: sqlite, path: data/countersign.db }\n";
        let config = format!("{config}{more}");
        fs::write(folder.join("config.yaml"), config).unwrap();
        Self { place, data: folder.join("data") }
    }

    pub(crate) fn gateway(&self) -> Gateway {
        let mut command = self.place.command();
        command.args(["serve", "--config", "gate/config.yaml"]);
        Gateway::spawn(command)
    }

    fn attach(&self) -> String {
        format!("--attach={}", self.data.display())
    }

    /// A host whose session lives in the gateway.
    pub(crate) fn host(&self, flags: &[&str]) -> Host {
        self.place.start(&[&[self.attach().as_str()], flags].concat())
    }

    /// How a host ends that cannot begin.
    fn refused(&self, flags: &[&str]) -> String {
        let mut host = Host::spawn(Host::command_of(&self.place, &[&["--model", "fake/fake-1"], flags].concat()));
        let end = host.wait_end();
        assert_eq!((end.code, end.frames.len()), (Some(1), 0), "{end:?}");
        end.stderr
    }

    fn people(&self, arguments: &[&str]) -> Value {
        let mut command = self.place.command();
        command.args(arguments).arg("--data").arg(&self.data).stdin(Stdio::null());
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    pub(crate) fn gates(&self) -> Vec<Value> {
        self.people(&["gates", "list", "--json"]).as_array().unwrap().clone()
    }

    fn allow(&self, gate: &Value) {
        self.people(&["gates", "allow", gate["id"].as_str().unwrap(), "--json"]);
    }

    /// Has the model want a command and then be done, and gives the dialog about it.
    pub(crate) fn asked(&self, host: &mut Host, command: &str) -> (usize, Value) {
        self.place.provider.script([Reply::new(vec![bash("k", command)]), say("done")]);
        let from = host.prompt("go");
        (from, host.dialog(from))
    }

    fn homes(&self) -> Vec<PathBuf> {
        files(&self.place.agent.join("countersign"), "home")
    }
}

fn files(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let files = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    files.filter(|path| path.extension().is_some_and(|found| found == extension)).collect()
}

pub(crate) fn session(host: &mut Host) -> String {
    host.state()["sessionId"].as_str().unwrap().to_owned()
}

#[test]
fn an_approval_of_an_attached_session_is_answered_at_the_gateway() {
    let house = House::new();
    let _gateway = house.gateway();
    let mut host = house.host(&[]);
    let (from, dialog) = house.asked(&mut host, "touch ran");
    let gates = house.gates();
    assert_eq!((gates.len(), &gates[0]["door"], &gates[0]["title"]), (1, &json!("omp"), &json!("bash")), "{gates:?}");
    assert_eq!(gates[0]["session"], session(&mut host).as_str());
    house.allow(&gates[0]);
    let frames = host.settled(from);
    let taken_away = frames.iter().find(|frame| frame["method"] == "cancel").expect("the dialog is taken away");
    assert_eq!(taken_away["targetId"], dialog["id"]);
    assert_eq!(host.said().last().unwrap(), "done");
    assert!(house.place.get("ran").is_some(), "it ran in the host's working folder");
    assert_eq!(house.gates(), Vec::<Value>::new());
    let file = host.file();
    host.close_cleanly();
    lines_with(&file, "done");
    assert_eq!(files(&house.place.agent.join("countersign"), "db"), Vec::<PathBuf>::new(), "it has no log of its own");
    assert_eq!(house.homes().len(), 1);
}

#[test]
fn a_gate_survives_the_gateway_and_its_session_goes_on() {
    let house = House::new();
    let gateway = house.gateway();
    let mut host = house.host(&[]);
    let id = session(&mut host);
    house.asked(&mut host, "touch ran");
    let gate = house.gates().remove(0);
    let unanswered = host.ask(json!({ "type": "bash", "command": "sleep 60" }));
    assert_eq!(session(&mut host), id, "what was asked later was answered");
    gateway.kill();
    let end = host.wait_end();
    assert_eq!((end.code, end.junk.len()), (Some(1), 0), "{end:?}");
    let refused = &end.frames[end.frames.len() - 2];
    assert_eq!((&refused["id"], &refused["success"]), (&json!(unanswered.id), &json!(false)), "{refused}");
    assert!(refused["error"].as_str().unwrap().contains("has gone"), "{refused}");
    let told = end.frames.last().unwrap();
    assert_eq!((&told["method"], &told["notifyType"]), (&json!("notify"), &json!("error")), "{told}");
    assert!(end.stderr.contains("has gone. The session is whole"), "{}", end.stderr);

    let _gateway = house.gateway();
    assert_eq!(house.gates()[0]["id"], gate["id"]);
    let waits = || house.people(&["sessions", "list", "--json"])[0]["waits_for_host"].clone();
    assert_eq!(waits(), true);
    house.place.provider.script([say("done")]);
    let mut host = house.host(&["--continue"]);
    assert_eq!(session(&mut host), id);
    let dialog = host.dialog(0);
    assert_eq!(waits(), false);
    assert_eq!(house.place.get("ran"), None);
    let from = host.mark();
    host.reply(&dialog, json!({ "value": "Allow once" }));
    host.settled(from);
    assert_eq!(host.said().last().unwrap(), "done");
    assert!(house.place.get("ran").is_some());
    host.close_cleanly();
}

#[test]
fn an_answer_that_comes_before_the_host_is_back_waits_for_its_rules() {
    let house = House::new();
    let gateway = house.gateway();
    let mut host = house.host(&[]);
    house.asked(&mut host, "touch ran");
    gateway.kill();
    host.wait_end();
    let _gateway = house.gateway();
    let gate = house.gates().remove(0);
    assert_eq!(gate["waits_for_host"], true, "{gate}");
    house.allow(&gate);
    assert_eq!((house.gates(), house.place.get("ran")), (Vec::new(), None));
    house.place.provider.script([say("done")]);
    let mut host = house.host(&["--continue"]);
    // It goes on as soon as its rules are there, which may be before the host hears anything.
    soon("the end of the run", || (host.said().last().unwrap() == "done").then_some(()));
    assert!(house.place.get("ran").is_some());
    // What came about while the session was opened is in its file too.
    let file = host.file();
    host.close_cleanly();
    check_chain(&lines_with(&file, "done"));
}

#[test]
fn what_a_host_leaves_goes_on_without_it() {
    let house = House::new();
    let _gateway = house.gateway();
    let mut host = house.host(&[]);
    house.asked(&mut host, "touch ran");
    let file = host.file();
    host.close_cleanly();
    let gate = house.gates().remove(0);
    house.allow(&gate);
    lines_with(&file, "done");
    assert!(house.place.get("ran").is_some());
    let mut host = house.host(&["--continue"]);
    assert_eq!(host.said().last().unwrap(), "done");
    host.close_cleanly();
}

#[test]
fn a_host_that_comes_back_in_the_middle_of_an_answer_hears_all_of_it() {
    let house = House::new();
    let _gateway = house.gateway();
    let mut host = house.host(&[]);
    let latch = Latch::default();
    house.place.provider.script([Reply::new(vec![say_part("half "), Part::Until(latch.clone()), say_part("whole")])]);
    let from = host.prompt("go");
    host.wait(from, "the first half", |frame| frame["type"] == "message_update");
    host.close_cleanly();
    let mut host = house.host(&["--continue"]);
    latch.open();
    let frames = host.settled(0);
    let ends = only(&frames, "message_end");
    assert_eq!(text(&ends.last().unwrap()["message"]), "half whole");
    assert_eq!(host.said(), ["go", "half whole"]);
    host.close_cleanly();
}

#[test]
fn a_session_whose_home_cannot_be_reached_does_not_open_elsewhere() {
    let house = House::new();
    let mut gateway = house.gateway();
    let mut host = house.host(&[]);
    house.place.provider.script([say("first")]);
    host.turn("go");
    let id = session(&mut host);
    host.close_cleanly();
    // Its home is found without being named.
    let mut host = house.place.start(&["--resume", &id]);
    assert_eq!(host.said(), ["go", "first"]);
    host.close_cleanly();
    assert_eq!(gateway.stop().code, Some(0));

    let told = house.refused(&["--resume", &id]);
    let data = house.data.display().to_string();
    assert!(told.contains(&format!("session {id} lives in the gateway with the data directory {data}")), "{told}");
    let told = house.refused(&[&house.attach(), "--resume", &id]);
    assert!(told.contains(&format!("--attach: no gateway runs with the data directory {data}")), "{told}");
    let mut fork = house.place.start(&["--fork", &id]);
    assert_eq!(fork.said(), ["go", "first"]);
    assert_ne!(session(&mut fork), id);
    fork.close_cleanly();
}

#[test]
fn a_session_has_one_host() {
    let house = House::new();
    let _gateway = house.gateway();
    let mut host = house.host(&[]);
    house.place.provider.script([say("first")]);
    host.turn("go");
    let id = session(&mut host);
    let told = house.refused(&[&house.attach(), "--resume", &id]);
    assert!(told.contains(&format!("session {id} is open in another host, process {}", host.id())), "{told}");
    house.place.provider.script([say("second")]);
    host.turn("on");
    host.close_cleanly();
    let mut host = house.host(&["--resume", &id]);
    assert_eq!(host.said(), ["go", "first", "on", "second"]);
    host.close_cleanly();
}

#[test]
fn what_an_attached_host_says_is_said_by_nobody_else() {
    let house = House::new();
    let gateway = house.gateway();
    let http = Http::new(&gateway.address);
    let mut host = house.host(&[]);
    let id = session(&mut host);
    house.asked(&mut host, "touch ran");
    let named = host.state()["sessionName"].clone();
    for (path, body) in [
        ("/api/chat/start", json!({ "session_id": id, "message": "mine now" })),
        ("/api/chat/steer", json!({ "session_id": id, "text": "mine now" })),
        ("/api/session/rename", json!({ "session_id": id, "title": "mine now" })),
    ] {
        let reply = http.post(path, &body);
        assert_eq!(
            (reply.status, &reply.json()["error"]),
            (403, &json!("This session cannot be spoken in from here")),
            "{path}"
        );
    }
    let told = http.get(&format!("/api/session?session_id={id}")).json();
    let listed = http.get("/api/sessions").json();
    assert_eq!((&told["session"]["read_only"], &listed["sessions"][0]["read_only"]), (&json!(true), &json!(true)));
    assert_eq!(host.state()["sessionName"], named);
    let stream = told["session"]["active_stream_id"].as_str().unwrap();
    let stopped = http.get(&format!("/api/chat/cancel?stream_id={stream}")).json();
    assert_eq!(stopped["cancelled"], true, "a person may always stop what works: {stopped}");
    host.settled(0);
    assert_eq!(house.place.get("ran"), None);
    host.close_cleanly();
}

#[test]
fn a_host_that_may_attach_does_so_while_a_gateway_runs() {
    let house = House::new();
    let config = |when: &str| {
        let text = format!("countersign: {{ attach: {when}, data: {} }}\n", house.data.display());
        fs::write(house.place.agent.join("config.yml"), text).unwrap();
    };
    config("auto");
    let turn = || {
        house.place.provider.script([say("done")]);
        let mut host = house.place.start(&[]);
        host.turn("go");
        host.close_cleanly();
        (files(&house.place.agent.join("countersign"), "db").len(), house.homes().len())
    };
    assert_eq!(turn(), (1, 0), "without a gateway it has a log of its own");
    let gateway = house.gateway();
    assert_eq!(turn(), (1, 1), "with one it lives there");
    gateway.kill();
    config("always");
    let told = house.refused(&[]);
    assert!(told.contains("no gateway runs with the data directory"), "{told}");
    config("sometimes");
    let told = house.refused(&[]);
    assert!(told.contains("countersign.attach: expected auto, always or never"), "{told}");
}

#[test]
fn a_session_moves_with_its_conversation_and_from_rest_only() {
    let house = House::new();
    let _gateway = house.gateway();
    let mut host = house.place.start(&[]);
    house.place.provider.script([say("first")]);
    host.turn("go");
    let id = session(&mut host);
    house.asked(&mut host, "touch ran");
    host.close_cleanly();
    let told = house.refused(&[&house.attach(), "--resume", &id]);
    assert!(told.contains("waits for an answer in its own log and cannot move"), "{told}");

    let mut host = house.place.start(&["--resume", &id]);
    house.place.provider.script([say("done")]);
    let dialog = host.dialog(0);
    host.reply(&dialog, json!({ "value": "Deny" }));
    host.settled(0);
    host.close_cleanly();
    let mut host = house.host(&["--resume", &id]);
    assert_eq!(session(&mut host), id);
    assert_eq!(host.said().last().unwrap(), "done");
    house.place.provider.script([say("there")]);
    host.turn("and here?");
    host.close_cleanly();
    fs::remove_file(house.homes().remove(0)).unwrap();
    let own = house.place.agent.join(format!("countersign/{id}.db"));
    let trail = house.place.command().args(["audit", "tail", "--log"]).arg(&own).output().unwrap();
    let trail = String::from_utf8(trail.stdout).unwrap();
    assert!(trail.contains(&format!("goes on in {}", house.data.display())), "{trail}");
    // Its own log knows, too.
    let mut host = house.place.start(&["--resume", &id]);
    assert_eq!(host.said().last().unwrap(), "there");
    host.close_cleanly();
}

#[test]
fn rules_and_environment_are_those_of_the_hosts_process() {
    let house = House::new();
    let _gateway = house.gateway();
    house.place.rules("");
    fs::create_dir(house.place.work.join(".countersign")).unwrap();
    house.place.put(".countersign/permissions.yaml", "rules:\n  - { pattern: \"bash(touch*)\", action: deny }\n");
    let flags = ["--model", "fake/fake-1", &house.attach()];
    let mut command = Host::command_of(&house.place, &flags);
    command.env("ANTHROPIC_API_KEY", "sk-hidden").env("OWN", "kept");
    let mut host = Host::spawn(command);
    let calls = vec![bash("k", "touch ran"), bash("l", "echo $OWN; env; pwd")];
    house.place.provider.script([Reply::new(calls), say("done")]);
    let frames = host.turn("go");
    let ends = only(&frames, "tool_execution_end");
    let [denied, told] = [0, 1].map(|at| text(&ends[at]["result"]));
    assert!(denied.contains("Denied by policy") && house.place.get("ran").is_none(), "{denied}");
    let work = house.place.work.display().to_string();
    assert!(told.starts_with("kept\n") && told.trim_end().ends_with(&work) && !told.contains("sk-hidden"), "{told}");
    let gate = house.data.join("countersign.db").display().to_string();
    house.place.provider.script([Reply::new(vec![call("m", "read", &json!({ "path": gate }))]), say("done")]);
    let frames = host.turn("and the gateway's own files?");
    let end = only(&frames, "tool_execution_end").remove(0);
    assert_eq!(end["isError"], true, "{end}");
    host.close_cleanly();
}

#[test]
fn commands_of_an_agent_do_not_reach_the_gateway() {
    let house = House::new();
    let _gateway = house.gateway();
    house.place.rules("");
    let mut host = house.host(&[]);
    let binary = env!("CARGO_BIN_EXE_countersign");
    let data = house.data.display();
    let command = format!("(setsid -w {binary} gates list --data {data} 2>&1; echo $?) > said; cat said");
    house.place.provider.script([Reply::new(vec![bash("k", &command)]), say("done")]);
    let frames = host.turn("go");
    let end = only(&frames, "tool_execution_end").remove(0);
    let said = text(&end["result"]);
    assert!(said.contains("This comes from a command of an agent, which may not decide"), "{said}");
    host.close_cleanly();
}

#[test]
fn what_is_allowed_for_good_anywhere_is_so_for_the_agent_directory() {
    let house = House::new();
    let gateway = house.gateway();
    let mut host = house.host(&[]);
    house.asked(&mut host, "touch ran");
    let gate = house.gates().remove(0);
    house.people(&["gates", "allow", gate["id"].as_str().unwrap(), "--scope", "always", "--json"]);
    host.settled(0);
    host.close_cleanly();
    let kept = house.place.agent.join("grants.jsonl");
    soon("the grant in its file", || fs::read_to_string(&kept).ok().filter(|text| text.contains("always")));
    gateway.kill();
    // The next session has a log of its own, and asks no more.
    house.place.provider.script([Reply::new(vec![bash("k", "touch ran")]), say("done")]);
    let mut host = house.place.start(&[]);
    let frames = host.turn("go");
    assert_eq!(only(&frames, "extension_ui_request"), Vec::<Value>::new());
    host.close_cleanly();
}

#[test]
fn a_host_that_only_looks_leaves_nothing_behind() {
    let house = House::new();
    let _gateway = house.gateway();
    let mut host = house.host(&[]);
    host.state();
    host.close_cleanly();
    soon("the end of what it left", || house.homes().is_empty().then_some(()));
    assert!(house.refused(&[&house.attach(), "--no-session"]).contains("do not go together"));
}
