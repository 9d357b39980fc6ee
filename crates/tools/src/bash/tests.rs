use std::{
    ffi::OsString,
    fs,
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::json;

use super::{BashOutcome, BashTool, CommandEnd, LineWindow, execute_command, follow_job};
use crate::{
    outcome::CallFailure,
    shell::{ShellError, ShellEvent, ShellJob},
    tool::{
        UpdateSink,
        testing::{ToolFixture, failure, text},
    },
};

async fn output_of(case: &ToolFixture, command: &str) -> String {
    text(&case.run(&BashTool::default(), json!({"command": command})).await).to_owned()
}

/// Reports whether a process exists and is not just a zombie.
fn lives(pid: &str) -> bool {
    fs::read_to_string(format!("/proc/{}/stat", pid.trim())).is_ok_and(|stat| !stat.contains(") Z "))
}

/// Waits for something that another process does.
fn wait_until(what: &str, done: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(120);
    while !done() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::yield_now();
    }
}

#[tokio::test]
async fn folder_variables_and_functions_survive_between_commands() {
    let case = ToolFixture::new();
    assert_eq!(output_of(&case, "mkdir sub; cd sub; x='a  b'; f() { echo \"f $1\"; }").await, "(no output)");
    assert_eq!(
        output_of(&case, "pwd; echo \"$x\"; f 1").await,
        format!("{}\na  b\nf 1\n", case.cx.cwd.join("sub").display())
    );
}

#[tokio::test]
async fn a_command_is_taken_as_it_is_written() {
    let case = ToolFixture::new();
    for (command, want) in [
        ("echo out; echo err >&2; echo out", "out\nerr\nout\n"),
        ("echo 'it'\\''s' \"$((1 + 1))\" # comment", "it's 2\n"),
        ("cat <<E\na $HOME_IS_NOT_SET b\nE", "a  b\n"),
        ("if true\nthen\n  echo multi\nfi\n", "multi\n"),
        ("cat; echo the input is empty", "the input is empty\n"),
        ("printf 'no line end'", "no line end"),
        ("echo ä €", "ä €\n"),
        ("printf 'a\\377b'", "a\u{FFFD}b"),
        ("false; true", "(no output)"),
        ("echo $TERM $PAGER $CI $GIT_TERMINAL_PROMPT", "dumb cat 1 0\n"),
        ("exec 3>&1; echo three >&3", "three\n"),
    ] {
        assert_eq!(output_of(&case, command).await, want, "{command}");
    }
}

#[tokio::test]
async fn a_command_gets_signals() {
    let case = ToolFixture::new();
    assert_eq!(output_of(&case, "grep SigBlk /proc/self/status").await, "SigBlk:\t0000000000000000\n");
    let ended = output_of(&case, "sleep 1000 & kill $!; wait $!; echo $?").await;
    assert!(ended.ends_with("143\n"), "{ended}");
}

#[tokio::test]
async fn a_code_other_than_zero_is_an_error_result_that_names_it() {
    let case = ToolFixture::new();
    for (command, want) in [
        ("echo a; false", "a\n\nCommand exited with code 1"),
        ("(exit 42)", "(no output)\n\nCommand exited with code 42"),
        (
            "sh -c 'kill -9 $$'",
            "Command exited with code 137: it was killed with SIGKILL, for example because memory ran out",
        ),
    ] {
        let got = case.run(&BashTool::default(), json!({"command": command})).await;
        assert!(text(&got).ends_with(want), "{command}: {got:?}");
        assert!(got.unwrap().is_error, "{command}");
    }
    let got = case.run(&BashTool::default(), json!({"command": "if"})).await;
    assert!(text(&got).contains("syntax error"), "{got:?}");
    assert_eq!(output_of(&case, "echo goes on").await, "goes on\n");
}

#[tokio::test]
async fn a_shell_that_ends_is_replaced_in_its_folder_with_a_notice() {
    let case = ToolFixture::new();
    fs::create_dir(case.path("sub")).unwrap();
    let got = case.run(&BashTool::default(), json!({"command": "x=1; cd sub; echo bye; exit 3"})).await;
    let place = case.cx.cwd.join("sub");
    let want = format!(
        "bye\n\n[The shell ended with this command: the next one starts in a new shell in {}, without the variables and functions of this one]\n\nCommand exited with code 3",
        place.display()
    );
    assert_eq!(text(&got), want);
    let want = format!(
        "{} -\n\n[This ran in a new shell, because the shell of the previous command ended: earlier variables and functions are lost]",
        place.display()
    );
    assert_eq!(output_of(&case, "echo \"$PWD\" ${x:--}").await, want);
    assert_eq!(output_of(&case, "echo again").await, "again\n");
}

#[tokio::test]
async fn options_hold_for_one_command() {
    let case = ToolFixture::new();
    fs::create_dir(case.path("sub")).unwrap();
    output_of(&case, "A=kept; export B=outer").await;
    for (arguments, want) in [
        (
            json!({"command": "pwd; echo $A $B $C", "cwd": "sub", "env": {"B": "it's", "C": "$x"}}),
            format!("{}\nkept it's $x\n", case.cx.cwd.join("sub").display()),
        ),
        (json!({"command": "pwd; echo $A $B ${C-unset}"}), format!("{}\nkept outer unset\n", case.cx.cwd.display())),
        (json!({"command": "seq 5", "head": 2}), "1\n2\n\n[Showing the first 2 of 5 lines (4 B of 10 B)]".to_owned()),
        (json!({"command": "seq 5", "tail": 1}), "5\n\n[Showing the last 1 of 5 lines (2 B of 10 B)]".to_owned()),
        (
            json!({"command": "echo", "pty": true}),
            "(no output)\n\n[pty was ignored: the command had no terminal]".to_owned(),
        ),
    ] {
        let got = case.run(&BashTool::default(), arguments.clone()).await;
        assert_eq!(text(&got), want, "{arguments}");
    }
    let got = case.run(&BashTool::default(), json!({"command": "false", "env": {"C": "1"}})).await;
    assert!(text(&got).ends_with("code 1"), "{got:?}");
}

#[tokio::test]
async fn what_would_run_other_code_is_refused() {
    let case = ToolFixture::new();
    case.write("file", "");
    for (arguments, want) in [
        (
            json!({"command": "x", "env": {"LD_PRELOAD": "x"}}),
            "env: LD_PRELOAD may not be set here; set it in the command itself",
        ),
        (json!({"command": "x", "env": {"PATH": "x"}}), "env: PATH may not be set here; set it in the command itself"),
        (
            json!({"command": "x", "env": {"GIT_SSH_COMMAND": "x"}}),
            "env: GIT_SSH_COMMAND may not be set here; set it in the command itself",
        ),
        (
            json!({"command": "x", "env": {"BAT_PAGER": "x"}}),
            "env: BAT_PAGER may not be set here; set it in the command itself",
        ),
        (json!({"command": "x", "env": {"A;rm": "x"}}), "env: \"A;rm\" is not a variable's name"),
        (json!({"command": "x", "cwd": "/etc"}), "/etc is outside of the allowed folder"),
        (json!({"command": "x", "cwd": "file"}), "cwd: file is not a folder"),
        (json!({"command": "a\0b"}), "cannot start a shell: the command holds a NUL character"),
        (json!({"command": "x", "timeout": 0}), "Invalid arguments for bash:\n- timeout must be at least 1, not 0"),
    ] {
        let got = case.run(&BashTool::default(), arguments.clone()).await;
        assert!(failure(&got).starts_with(want), "{arguments}: {got:?}");
    }
}

#[tokio::test]
async fn a_time_out_ends_everything_and_the_next_command_gets_a_new_shell_in_the_folder() {
    let case = ToolFixture::new();
    fs::create_dir(case.path("sub")).unwrap();
    output_of(&case, "cd sub; x=1").await;
    // The second one ignores the polite signal, the third has left the group.
    let command = "sleep 1000 & echo $!; (trap '' TERM; echo $BASHPID; sleep 1000) & setsid sleep 1000 & echo $!; wait";
    let job = ShellJob { command: command.to_owned(), ..ShellJob::default() };
    let done = follow_job(job, Duration::from_secs(3), LineWindow::default(), &case.cx).await.unwrap();
    assert_eq!(done.end, CommandEnd::TimedOut);
    assert_eq!(done.shown.text.lines().count(), 3);
    assert_eq!(done.shown.text.lines().filter(|pid| lives(pid)).count(), 0);
    let result = done.into_result(Duration::from_secs(2)).unwrap();
    assert!(result.is_error);
    assert!(result.content[0].as_text().unwrap().ends_with("Command timed out after 2 seconds"));
    let next = output_of(&case, "pwd; echo ${x:-lost}").await;
    let want = format!(
        "{}\nlost\n\n[This ran in a new shell, because the previous command was stopped",
        case.cx.cwd.join("sub").display()
    );
    assert!(next.starts_with(&want), "{next}");
}

#[tokio::test]
async fn a_cancelled_command_says_what_was_there_so_far() {
    let mut case = ToolFixture::new();
    let cancel = case.cx.cancel.clone();
    case.cx.updates = UpdateSink::new(move |_| cancel.cancel());
    let got = case.run(&BashTool::default(), json!({"command": "echo $$; sleep 1000"})).await;
    let Err(CallFailure::Cancelled(text)) = got else { panic!("{got:?}") };
    assert!(text.ends_with("Command aborted"), "{text}");
    assert!(!lives(text.lines().next().unwrap()));
}

#[tokio::test]
async fn a_call_that_waits_for_the_shell_can_be_cancelled() {
    let case = ToolFixture::new();
    let (begun, began) = tokio::sync::oneshot::channel();
    let begun = std::sync::Mutex::new(Some(begun));
    let mut first = case.cx.clone();
    first.updates = UpdateSink::new(move |_| {
        if let Some(begun) = begun.lock().unwrap().take() {
            begun.send(()).unwrap();
        }
    });
    let running = tokio::spawn(async move { execute_command("echo; sleep 1000", &first).await });
    began.await.unwrap();
    let mut second = case.cx.clone();
    second.cancel = second.cancel.child_token();
    second.cancel.cancel();
    let outcome = execute_command("echo never", &second).await.unwrap();
    assert_eq!(outcome, BashOutcome { cancelled: true, ..BashOutcome::default() });
    case.cx.cancel.cancel();
    assert!(running.await.unwrap().unwrap().cancelled);
}

#[tokio::test]
async fn commands_of_a_session_run_one_after_the_other() {
    let case = ToolFixture::new();
    case.write("n", "0");
    let add = || output_of(&case, "n=$(cat n); echo $((n + 1)) >n; cat n");
    let mut got: [String; 4] = tokio::join!(add(), add(), add(), add()).into();
    got.sort();
    assert_eq!(got, ["1\n", "2\n", "3\n", "4\n"]);
}

#[tokio::test]
async fn lines_and_bytes_are_counted_as_hosts_do() {
    let case = ToolFixture::new();
    for (command, output, lines) in [("echo done", "done\n", 2), ("true", "", 0), ("printf x", "x", 1)] {
        let want = BashOutcome {
            exit_code: Some(0),
            output: output.to_owned(),
            total_lines: lines,
            total_bytes: output.len() as u64,
            output_lines: lines,
            output_bytes: output.len(),
            ..BashOutcome::default()
        };
        assert_eq!(execute_command(command, &case.cx).await.unwrap(), want, "{command}");
    }
}

#[tokio::test]
async fn of_a_huge_output_the_end_is_shown_and_the_whole_is_kept() {
    let mut case = ToolFixture::new();
    case.cx.artifacts = Some(case.path("artifacts"));
    let outcome = execute_command("seq 100000", &case.cx).await.unwrap();
    let whole: String = (1..=100_000).map(|line| format!("{line}\n")).collect();
    assert!(outcome.truncated && whole.ends_with(&outcome.output));
    assert_eq!((outcome.total_lines, outcome.total_bytes), (100_001, whole.len() as u64));
    assert_eq!(outcome.output_bytes, 51_200);
    assert_eq!(fs::read_to_string(outcome.artifact.unwrap()).unwrap(), whole);

    let got = case.run(&BashTool::default(), json!({"command": "seq 100000"})).await;
    assert!(text(&got).contains("Full output: "));
    let details = got.unwrap().details.unwrap();
    assert_eq!(details["meta"]["truncation"]["direction"], "tail");
    assert_eq!(details["meta"]["truncation"]["shownRange"]["end"], 100_000);
}

#[tokio::test]
async fn a_background_process_goes_on_until_the_shell_is_closed() {
    let case = ToolFixture::new();
    let pids = output_of(
        &case,
        "sleep 1000 & echo $!; (setsid sh -c 'echo $$ >far; exec sleep 1000' &); until [ -s far ]; do :; done; cat far",
    )
    .await;
    assert_eq!(pids.lines().filter(|pid| lives(pid)).count(), 2, "{pids}");
    // It survives the end of the shell that started it, too.
    case.run(&BashTool::default(), json!({"command": "exit 1"})).await.unwrap();
    assert_eq!(pids.lines().filter(|pid| lives(pid)).count(), 2, "{pids}");
    case.cx.shells.close().await;
    assert_eq!(pids.lines().filter(|pid| lives(pid)).count(), 0, "{pids}");
    assert!(output_of(&case, "echo new").await.starts_with("new\n"));
}

#[tokio::test]
async fn what_a_background_process_writes_later_is_not_mixed_in() {
    let case = ToolFixture::new();
    let command = "mkfifo go; (read x <go; echo late; echo x >done) & echo started";
    assert_eq!(output_of(&case, command).await, "started\n");
    let next = output_of(&case, "echo >go; until [ -e done ]; do :; done; echo mine").await;
    assert_eq!(next, "mine\n");
}

#[tokio::test]
async fn a_command_cannot_forge_its_end() {
    let case = ToolFixture::new();
    let command =
        "for fd in /proc/$PPID/fd/*; do [ -p $fd ] && (echo 'abc 0' >$fd) 2>/dev/null; done; echo real; (exit 7)";
    let got = case.run(&BashTool::default(), json!({"command": command})).await;
    assert!(text(&got).ends_with("Command exited with code 7"), "{got:?}");
}

#[tokio::test]
async fn a_dropped_call_leaves_nothing_behind() {
    let mut case = ToolFixture::new();
    let (begun, mut began) = tokio::sync::mpsc::unbounded_channel();
    case.cx.updates = UpdateSink::new(move |output| drop(begun.send(output.content[0].as_text().unwrap().to_owned())));
    let pid = tokio::select! {
        _ = execute_command("echo $$; sleep 1000", &case.cx) => panic!("it ended"),
        pid = began.recv() => pid.unwrap(),
    };
    wait_until("the command ends", || !lives(&pid));
    case.cx.updates = UpdateSink::default();
    assert!(output_of(&case, "echo new").await.starts_with("new\n"));
}

#[tokio::test]
async fn what_an_exec_child_leaves_that_is_killed_is_killed_too() {
    let case = ToolFixture::new();
    for is_idle in [false, true] {
        let wait = if is_idle { "" } else { "; wait" };
        let job = ShellJob { command: format!("sleep 1000 & echo $PPID $!{wait}"), ..ShellJob::default() };
        let mut running = case.cx.shells.run(job, &case.cx.cwd, &case.cx.environment).await.unwrap();
        let ShellEvent::Output(bytes) = running.next().await.unwrap() else { panic!("it ended") };
        let line = String::from_utf8(bytes).unwrap();
        let (child, started) = line.trim().split_once(' ').unwrap();
        if is_idle {
            assert_eq!(running.next().await.unwrap(), ShellEvent::Exited(0));
        }
        kill(Pid::from_raw(child.parse().unwrap()), Signal::SIGKILL).unwrap();
        wait_until("the exec child ends", || !lives(child));
        if is_idle {
            drop(running);
            case.cx.shells.close().await;
        } else {
            assert!(matches!(running.next().await, Err(ShellError::Broken(_))));
        }
        assert!(!lives(started), "idle: {is_idle}");
    }
}

#[tokio::test]
async fn a_command_that_a_dead_shell_did_not_read_was_not_begun() {
    let case = ToolFixture::new();
    let output = output_of(&case, "echo $PPID $$").await;
    let (child, shell) = output.trim().split_once(' ').unwrap();
    let pid = |text: &str| Pid::from_raw(text.parse().unwrap());
    // Held, the exec child cannot notice that the shell is gone before it has the command.
    kill(pid(child), Signal::SIGSTOP).unwrap();
    wait_until("the exec child is held", || {
        fs::read_to_string(format!("/proc/{child}/stat")).is_ok_and(|stat| stat.contains(") T "))
    });
    kill(pid(shell), Signal::SIGKILL).unwrap();
    wait_until("the shell ends", || !lives(shell));
    let job = ShellJob { command: "echo ran > ran".to_owned(), ..ShellJob::default() };
    let mut running = case.cx.shells.run(job, &case.cx.cwd, &case.cx.environment).await.unwrap();
    kill(pid(child), Signal::SIGCONT).unwrap();
    assert!(matches!(running.next().await, Err(ShellError::Start(_))));
    drop(running);
    assert!(!case.cx.cwd.join("ran").exists());
    assert!(self::output_of(&case, "echo again").await.contains("again"));
}

#[tokio::test]
async fn a_program_that_is_not_there_is_explained() {
    let mut case = ToolFixture::new();
    let launcher = crate::exec::ExecLauncher { program: "/no/such/program".into(), leading_args: Vec::new() };
    case.cx.shells = crate::SessionShell::new(launcher);
    let got = case.run(&BashTool::default(), json!({"command": "true"})).await;
    assert_eq!(failure(&got), "cannot start a shell: No such file or directory (os error 2)");
}

#[tokio::test]
async fn a_command_whose_end_nobody_saw_is_in_doubt_and_the_next_one_runs() {
    let case = ToolFixture::new();
    // The parent of the shell would report its end.
    let got = case.run(&BashTool::default(), json!({"command": "echo done >effect; kill -9 $PPID"})).await;
    assert!(matches!(got, Err(CallFailure::InDoubt(_))), "{got:?}");
    assert_eq!(case.read("effect"), "done\n");
    assert!(output_of(&case, "echo new").await.starts_with("new\n"));
}

#[tokio::test]
async fn causes_of_failed_starts_are_distinguished() {
    let mut case = ToolFixture::new();
    for arguments in [json!({"command": "a\0b"}), json!({"command": "x", "cwd": "absent"})] {
        let got = case.run(&BashTool::default(), arguments.clone()).await;
        assert!(matches!(got, Err(CallFailure::NotBegun(_))), "{arguments}: {got:?}");
    }
    case.cx.pinned = Some(case.path("elsewhere"));
    let got = case.run(&BashTool::default(), json!({"command": "true"})).await;
    assert!(matches!(got, Err(CallFailure::NotBegun(_))), "{got:?}");
}

#[tokio::test]
async fn a_command_without_a_time_out_has_that_of_the_settings() {
    let mut case = ToolFixture::new();
    case.cx.bash_timeout = Duration::from_millis(100);
    assert!(execute_command("sleep 1000", &case.cx).await.unwrap().timed_out);
    let got = case.run(&BashTool::default(), json!({"command": "sleep 1000"})).await;
    assert!(text(&got).contains("Command timed out after 0.1 seconds"), "{got:?}");
    case.cx.bash_timeout = Duration::from_secs(120);
    assert!(!execute_command("true", &case.cx).await.unwrap().timed_out);
}

#[tokio::test]
async fn no_command_of_the_agent_takes_longer_than_the_longest() {
    let mut case = ToolFixture::new();
    case.cx.bash_longest = Duration::from_millis(100);
    for arguments in [json!({"command": "sleep 1000"}), json!({"command": "sleep 1000", "timeout": 60})] {
        let got = case.run(&BashTool::default(), arguments).await;
        assert!(text(&got).contains("Command timed out after 0.1 seconds"), "{got:?}");
    }
}

#[tokio::test]
async fn a_command_with_a_tool_of_its_own_is_blocked_without_a_gate() {
    let mut case = ToolFixture::new();
    case.cx.interceptor =
        crate::CommandInterceptor::new(crate::InterceptRule::standard_rules(), |tool| tool == "write");
    let arguments = json!({"command": "echo hi > made"});
    let blocked = CallFailure::Invalid(
        "Blocked: use the write tool to write a file.\n\nOriginal command: echo hi > made".to_owned(),
    );
    let looked = crate::AgentTool::pin_files(&BashTool::default(), arguments.as_object().unwrap(), &case.cx).await;
    assert_eq!(looked.map(|_| ()), Err(blocked.clone()));
    assert_eq!(case.run(&BashTool::default(), arguments).await, Err(blocked));
    assert!(!case.path("made").exists());
    let got = execute_command("echo mine > made", &case.cx).await;
    assert!(got.is_ok() && case.path("made").exists(), "a person's own command: {got:?}");
}

/// Folder in which the next test works, started by itself as the gateway that it kills.
const FOLDER: &str = "COUNTERSIGN_TEST_GATEWAY";

async fn be_the_gateway(folder: OsString) {
    let mut case = ToolFixture::new();
    case.cx.roots = crate::AllowedRoots::whole_filesystem([]);
    case.cx.cwd = folder.into();
    let command = "sleep 1000 & echo $! >one; (setsid sh -c 'trap \"\" TERM HUP; echo $$ >two; sleep 1000; sleep 1000' &); echo $$ >three; echo $PPID >four; sleep 1000";
    drop(execute_command(command, &case.cx).await);
}

#[tokio::test]
async fn nothing_outlives_a_gateway_that_is_killed() {
    if let Some(folder) = std::env::var_os(FOLDER) {
        return be_the_gateway(folder).await;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut gateway = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "bash::tests::nothing_outlives_a_gateway_that_is_killed"])
        .env(FOLDER, folder.path())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let names = ["one", "two", "three", "four"];
    let pid = |name: &str| fs::read_to_string(Path::new(folder.path()).join(name)).unwrap_or_default();
    wait_until("the command begins", || names.iter().all(|name| pid(name).ends_with('\n')));
    let pids = names.map(pid);
    assert!(pids.iter().all(|pid| lives(pid)));
    gateway.kill().unwrap();
    gateway.wait().unwrap();
    for pid in pids {
        wait_until("everything ends", || !lives(&pid));
    }
}

/// Takes longer for an answer than commands may.
struct DelayedApprover;

impl crate::live_questions::HostApprover for DelayedApprover {
    fn approve_host(
        &self,
        _: std::sync::Arc<str>,
    ) -> futures_util::future::BoxFuture<'_, crate::live_questions::HostAccessAnswer> {
        Box::pin(async {
            tokio::time::sleep(std::time::Duration::from_secs(6)).await;
            crate::live_questions::HostAccessAnswer::Yes
        })
    }
}

#[tokio::test]
async fn what_people_take_for_an_answer_is_not_the_commands_time() {
    let mut case = ToolFixture::new();
    case.cx.bash_timeout = std::time::Duration::from_secs(5);
    case.cx.asks = crate::live_questions::CallQuestions::new(DelayedApprover);
    let (asks, answered) = (case.cx.asks.clone(), case.cx.cwd.join("answered"));
    let asking = async {
        asks.ask_host("a.org:443", std::future::pending()).await;
        std::fs::write(&answered, "").unwrap();
    };
    let bash = BashTool::default();
    let command = "until [ -e answered ]; do sleep 0.01; done; echo over";
    let (ran, ()) = tokio::join!(case.run(&bash, json!({ "command": command })), asking);
    assert_eq!(text(&ran), "over\n");
    // Without one it is over as soon as its own time is.
    case.cx.asks = crate::live_questions::CallQuestions::default();
    case.cx.bash_timeout = std::time::Duration::from_millis(10);
    let ran = case.run(&BashTool::default(), json!({ "command": "sleep 1000" })).await;
    assert!(text(&ran).contains("timed out after 0.01 seconds"));
}
