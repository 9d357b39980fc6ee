use std::{
    os::unix::fs::symlink,
    sync::{Arc, Mutex},
    time::Duration,
};

use countersign_core::policy::CompiledRules;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::{ExecutionChange, ExecutionEvent, ExecutionListener, NodeToolOptions, NodeToolRunner};
use crate::{
    CommandEnvironment,
    exec::{ExecLauncher, tests::AS_CHILD},
};

struct NodeToolFixture {
    folder: tempfile::TempDir,
    tools: Arc<NodeToolRunner>,
    events: Mutex<mpsc::UnboundedReceiver<ExecutionEvent>>,
}

/// Creates a workspace next to a secret.
fn case() -> NodeToolFixture {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().canonicalize().unwrap();
    for name in ["work/sub", "work/own", "outside"] {
        std::fs::create_dir_all(root.join(name)).unwrap();
    }
    std::fs::write(root.join("outside/secret"), "secret\n").unwrap();
    std::fs::write(root.join("work/own/key"), "secret\n").unwrap();
    symlink(root.join("outside"), root.join("work/out")).unwrap();
    symlink(root.join("outside/secret"), root.join("work/leak")).unwrap();
    let (tell, events) = mpsc::unbounded_channel();
    let site = NodeToolOptions {
        workspace: root.join("work"),
        own: vec![root.join("work/own")],
        environment: CommandEnvironment::clean_with([]),
        launcher: ExecLauncher {
            program: std::env::current_exe().unwrap(),
            leading_args: AS_CHILD.map(Into::into).to_vec(),
        },
        rules: CompiledRules::default(),
    };
    let tell = ExecutionListener::new(move |occurrence| drop(tell.send(occurrence)));
    NodeToolFixture { tools: Arc::new(NodeToolRunner::new(site, tell).unwrap()), folder, events: Mutex::new(events) }
}

impl NodeToolFixture {
    async fn call(&self, tool: &str, arguments: Value) -> Result<Value, String> {
        let Value::Object(arguments) = arguments else { panic!("arguments are an object") };
        self.tools.call("call-1", tool, arguments, CancellationToken::new()).await
    }

    async fn ok(&self, tool: &str, arguments: Value) -> Value {
        self.call(tool, arguments).await.unwrap()
    }

    async fn next_event(&self) -> ExecutionEvent {
        std::future::poll_fn(|cx| self.events.lock().unwrap().poll_recv(cx)).await.unwrap()
    }

    fn at(&self, name: &str) -> String {
        self.folder.path().canonicalize().unwrap().join("work").join(name).display().to_string()
    }

    fn write(&self, name: &str, content: &str) {
        std::fs::write(self.at(name), content).unwrap();
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.at(name)).unwrap()
    }
}

#[tokio::test]
async fn a_file_is_written_read_and_edited() {
    let case = case();
    assert_eq!(
        case.ok("Write", json!({"path": "new/a.txt", "content": "one\ntwö\nthree\n"})).await,
        json!({"path": case.at("new/a.txt"), "bytes": 15})
    );
    assert_eq!(
        case.ok("Read", json!({"path": "new/a.txt"})).await,
        json!({"path": case.at("new/a.txt"), "content": "     1\tone\n     2\ttwö\n     3\tthree", "lines": 3})
    );
    assert_eq!(
        case.ok("Read", json!({"path": case.at("new/a.txt"), "offset": 1, "limit": 1})).await,
        json!({"path": case.at("new/a.txt"), "content": "     2\ttwö", "lines": 1})
    );
    for (arguments, want) in [
        (json!({"path": "new/a.txt", "oldString": "four", "newString": "4"}), "oldString not found in 'new/a.txt'"),
        (json!({"path": "new/a.txt", "oldString": "e", "newString": "E"}), "oldString found 3 times in 'new/a.txt'"),
        (json!({"path": "new/a.txt", "oldString": "", "newString": "E"}), "oldString is empty"),
        (json!({"path": "none", "oldString": "a", "newString": "b"}), "Failed to read 'none': none does not exist"),
    ] {
        let error = case.call("Edit", arguments.clone()).await.unwrap_err();
        assert!(error.starts_with(want), "{arguments}: {error}");
    }
    let edit = json!({"path": "new/a.txt", "oldString": "e", "newString": "E", "replaceAll": true});
    assert_eq!(case.ok("Edit", edit).await, json!({"path": case.at("new/a.txt"), "replacements": 3}));
    assert_eq!(case.read("new/a.txt"), "onE\ntwö\nthrEE\n");
}

#[tokio::test]
async fn no_path_leads_out_of_the_workspace_or_to_the_files_of_the_node() {
    let case = case();
    for path in ["../outside/secret", "out/secret", "leak", "/etc/passwd", "own/key", "sub/../../outside/secret"] {
        for (tool, arguments) in [
            ("Read", json!({"path": path})),
            ("Write", json!({"path": path, "content": "x"})),
            ("Edit", json!({"path": path, "oldString": "secret", "newString": "x"})),
            ("Grep", json!({"pattern": "secret", "path": path})),
            ("Glob", json!({"pattern": "*", "path": path})),
            ("Bash", json!({"command": "pwd", "workdir": path})),
        ] {
            let error = case.call(tool, arguments).await.unwrap_err();
            let is_told =
                ["outside of the allowed folder", "is reserved", "the keys and rules", "belongs to the gateway"];
            assert!(is_told.iter().any(|text| error.contains(text)), "{tool} {path}: {error}");
        }
    }
    for pattern in ["../*", "/etc/*", "sub/../../*"] {
        let error = case.call("Glob", json!({"pattern": pattern})).await.unwrap_err();
        assert!(error.contains("leads outside of"), "{pattern}: {error}");
    }
    let links = case.ok("Glob", json!({"pattern": "**/*"})).await["matches"].to_string();
    assert!(links.contains("/leak") && !links.contains("out/") && !links.contains("key"), "{links}");
    assert_eq!(case.ok("Grep", json!({"pattern": "secret"})).await, json!({"matches": [], "count": 0}));
    assert_eq!(std::fs::read_to_string(case.folder.path().join("outside/secret")).unwrap(), "secret\n");
}

#[tokio::test]
async fn files_are_found_the_newest_first_and_lines_in_the_order_of_paths() {
    let case = case();
    for (age, name) in ["sub/b.rs", "a.rs", "c.md"].iter().enumerate() {
        case.write(name, "fn one() {}\nlet two = 2;\n");
        let time = std::time::SystemTime::UNIX_EPOCH + Duration::from_secs(1000 - age as u64);
        std::fs::File::open(case.at(name)).unwrap().set_modified(time).unwrap();
    }
    let found = case.ok("Glob", json!({"pattern": "**/*.rs"})).await;
    assert_eq!(
        found,
        json!({"pattern": "**/*.rs", "basePath": case.at("").trim_end_matches('/'), "matches": [case.at("sub/b.rs"), case.at("a.rs")], "count": 2})
    );
    assert_eq!(
        case.ok("Glob", json!({"pattern": "*.rs", "path": "sub"})).await["matches"],
        json!([case.at("sub/b.rs")])
    );
    assert_eq!(
        case.ok("Grep", json!({"pattern": "fn \\w+", "include": "*.rs"})).await,
        json!({"matches": [
            {"path": case.at("a.rs"), "line": 1, "content": "fn one() {}"},
            {"path": case.at("sub/b.rs"), "line": 1, "content": "fn one() {}"},
        ], "count": 2})
    );
    case.write("long", &format!("{}\n", "x".repeat(300)).repeat(101));
    let found = case.ok("Grep", json!({"pattern": "x", "path": "long"})).await;
    assert_eq!((&found["count"], &found["truncated"]), (&json!(100), &json!(true)));
    assert_eq!(found["matches"][0]["content"], "x".repeat(200));
    let error = case.call("Grep", json!({"pattern": "("})).await.unwrap_err();
    assert!(error.starts_with("Invalid regex pattern: "), "{error}");
}

#[tokio::test]
async fn a_long_file_is_shown_in_part_and_says_so() {
    let case = case();
    case.write("long", &"0123456789\n".repeat(30_000));
    let read = case.ok("Read", json!({"path": "long"})).await;
    assert_eq!((&read["truncated"], &read["totalLines"]), (&json!(true), &json!(30_000)));
    assert_eq!(read["lines"], 18_181);
    std::fs::write(case.at("binary"), b"a\0b").unwrap();
    let error = case.call("Read", json!({"path": "binary"})).await.unwrap_err();
    assert_eq!(error, "Failed to read 'binary': it is not text but binary data (3 B)");
}

#[tokio::test]
async fn a_command_is_a_result_whatever_its_code() {
    let case = case();
    let done = case.ok("Bash", json!({"command": "echo out; echo err >&2; pwd; cat; exit 3", "workdir": "sub"})).await;
    assert_eq!(
        (&done["status"], &done["exitCode"], &done["signal"], &done["timedOut"], &done["truncated"]),
        (&json!("failed"), &json!(3), &Value::Null, &json!(false), &json!(false))
    );
    assert_eq!(done["output"], format!("out\nerr\n{}\n", case.at("sub")));
    assert_eq!((&done["tail"], &done["workdir"]), (&done["output"], &json!(case.at("sub"))));
    let took = done["endedAt"].as_u64().unwrap() - done["startedAt"].as_u64().unwrap();
    assert_eq!(done["durationMs"], took);
    assert_eq!(case.ok("Bash", json!({"command": "true"})).await["status"], "completed");
    let late = case.ok("Bash", json!({"command": "sleep 600", "timeout": 50})).await;
    assert_eq!(
        (&late["status"], &late["exitCode"], &late["signal"], &late["timedOut"]),
        (&json!("failed"), &Value::Null, &json!("SIG15"), &json!(true))
    );
    // A command that was waited for is not listed.
    let listed = case.ok("Process", json!({"action": "list"})).await;
    assert_eq!(listed, json!({"status": "completed", "sessions": [], "text": "No running or recent sessions."}));
}

#[tokio::test]
async fn what_a_command_leaves_running_ends_with_it() {
    let case = case();
    let done = case.ok("Bash", json!({"command": "(sleep 600; touch never) & echo $!"})).await;
    let pid = done["output"].as_str().unwrap().trim().to_owned();
    // It may not have been reaped yet.
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    assert!(stat.is_empty() || stat.contains(") Z "), "{stat}");
}

#[tokio::test]
async fn a_background_command_is_reported_and_supervised() {
    let case = case();
    let command = "echo ready; while read -r line; do echo got $line; [ \"$line\" = end ] && exit 7; done";
    let begun = case.ok("Bash", json!({"command": command, "background": true})).await;
    let id = begun["sessionId"].as_str().unwrap().to_owned();
    assert_eq!((&begun["status"], &begun["workdir"]), (&json!("running"), &json!(case.at("").trim_end_matches('/'))));
    assert!(begun["pid"].is_u64() && begun["startedAt"].is_u64());
    let started = case.next_event().await;
    assert_eq!((started.became, &started.session, started.call.as_str()), (ExecutionChange::Started, &id, "call-1"));
    let about = |action: &str| json!({"action": action, "sessionId": id});
    let listed = case.ok("Process", json!({"action": "list"})).await;
    assert_eq!(
        (&listed["sessions"][0]["sessionId"], &listed["sessions"][0]["status"]),
        (&json!(id), &json!("running"))
    );
    let mut submit = about("submit");
    submit["data"] = "first".into();
    assert_eq!(
        case.ok("Process", submit.clone()).await,
        json!({"status": "running", "sessionId": id, "bytesWritten": 6})
    );
    submit["data"] = "end".into();
    case.ok("Process", submit.clone()).await;
    let ended = case.next_event().await;
    assert_eq!((ended.became, ended.exit_code, ended.signal), (ExecutionChange::Failed, Some(7), None));
    assert_eq!((ended.tail.as_str(), ended.id), ("ready\ngot first\ngot end\n", format!("{id}-ended")));
    let polled = case.ok("Process", about("poll")).await;
    assert_eq!(
        polled,
        json!({"status": "failed", "sessionId": id, "exitCode": 7, "signal": null, "timedOut": false, "tail": ended.tail, "running": false})
    );
    let mut log = about("log");
    log["offset"] = 1.into();
    log["limit"] = 1.into();
    let log = case.ok("Process", log).await;
    assert_eq!((&log["log"], &log["totalLines"], &log["totalChars"]), (&json!("got first"), &json!(3), &json!(24)));
    for action in ["write", "kill"] {
        let result = case.ok("Process", about(action)).await;
        assert_eq!(result, json!({"status": "failed", "error": format!("Session {id} has ended already")}));
    }
    let result = case.ok("Process", json!({"action": "poll", "sessionId": "none"})).await;
    assert_eq!(result, json!({"status": "failed", "error": "No session found for none"}));
}

#[tokio::test]
async fn a_command_that_takes_long_goes_on_in_the_background() {
    let case = case();
    let begun = case.ok("Bash", json!({"command": "sleep 600", "yieldMs": 1})).await;
    assert_eq!(begun["status"], "running");
    assert_eq!(case.next_event().await.became, ExecutionChange::Started);
    let killed = case.ok("Process", json!({"action": "kill", "sessionId": begun["sessionId"]})).await;
    assert_eq!(killed["status"], "running");
    let ended = case.next_event().await;
    assert_eq!(
        (ended.became, ended.exit_code, ended.signal.as_deref()),
        (ExecutionChange::Failed, None, Some("SIG15"))
    );
    let quick = case.ok("Bash", json!({"command": "echo quick", "yieldMs": 60_000})).await;
    assert_eq!((&quick["status"], &quick["output"]), (&json!("completed"), &json!("quick\n")));
}

#[tokio::test]
async fn a_command_that_does_not_read_is_given_no_more_than_waits() {
    let case = case();
    let begun = case.ok("Bash", json!({"command": "sleep 600", "background": true})).await;
    let write = json!({"action": "write", "sessionId": begun["sessionId"], "data": "x".repeat(32 << 10)});
    let mut taken = 0;
    let refused = loop {
        let result = case.ok("Process", write.clone()).await;
        if result["status"] == "failed" {
            break result["error"].as_str().unwrap().to_owned();
        }
        taken += 32 << 10;
        assert!(taken <= 1 << 20, "it takes all");
    };
    assert!(refused.contains("the command does not read its input"), "{refused}");
    let long = json!({"action": "write", "sessionId": begun["sessionId"], "data": "x".repeat((32 << 10) + 1)});
    assert!(case.ok("Process", long).await["error"].as_str().unwrap().contains("at once"));
    case.tools.end_commands().await;
}

#[tokio::test]
async fn commands_at_once_are_bounded_and_all_end_with_the_node() {
    let case = case();
    let sleep = json!({"command": "sleep 600", "background": true});
    for _ in 0..64 {
        case.ok("Bash", sleep.clone()).await;
    }
    let error = case.call("Bash", sleep.clone()).await.unwrap_err();
    assert!(error.starts_with("not run: 64 commands are running already"), "{error}");
    case.tools.end_commands().await;
    let mut ended = 0;
    for _ in 0..128 {
        ended += usize::from(case.next_event().await.became == ExecutionChange::Failed);
    }
    assert_eq!(ended, 64);
    assert_eq!(case.call("Bash", sleep).await, Err("not run: the node is shutting down".to_owned()));
}

#[tokio::test]
async fn what_cannot_be_called_is_explained() {
    let case = case();
    for (tool, arguments, want) in [
        ("Nope", json!({}), "Tool not found: Nope"),
        ("Bash", json!({}), "Invalid arguments: "),
        ("Bash", json!({"command": " "}), "Invalid arguments: command must not be empty"),
        ("Bash", json!({"command": "ls", "workdir": "none"}), "Invalid arguments: workdir: none is not a folder"),
        (
            "Bash",
            json!({"command": "rm -rf /"}),
            "Refused by the node, which cannot ask for approval: bash needs approval because it",
        ),
        ("Process", json!({"action": "poll"}), "sessionId is required for this action"),
        ("Read", json!({"path": 3}), "Invalid arguments: path must be a string, not 3"),
        ("Read", json!({"path": "none"}), "Failed to read 'none': "),
        ("Write", json!({"path": "sub", "content": ""}), "Failed to write 'sub': it is a folder"),
    ] {
        let error = case.call(tool, arguments.clone()).await.unwrap_err();
        assert!(error.starts_with(want), "{tool} {arguments}: {error}");
    }
}

#[tokio::test]
async fn a_login_shell_says_where_programs_are() {
    let launcher =
        ExecLauncher { program: std::env::current_exe().unwrap(), leading_args: AS_CHILD.map(Into::into).to_vec() };
    let home = tempfile::tempdir().unwrap();
    std::fs::write(home.path().join(".profile"), "echo hello; PATH=/from/profile:$PATH\n").unwrap();
    let environment = CommandEnvironment::clean_from(
        [
            ("HOME".into(), home.path().into()),
            ("SHELL".into(), "/bin/sh".into()),
            ("PATH".into(), "/usr/bin:/bin".into()),
        ],
        [],
    );
    let path = super::login_path(&launcher, &environment, home.path()).await.unwrap();
    assert!(path.starts_with("/from/profile:"), "{path}");
}
