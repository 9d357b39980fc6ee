use std::{
    fs,
    path::{Path, PathBuf},
};

use serde_json::{Value, json};

use super::{KernelSupport, NetworkAccess, OnMissingKernel, Sandbox, SandboxMode, SandboxSettings};
use crate::{
    SessionShell,
    bash::BashTool,
    exec::{ExecLauncher, tests::AS_CHILD},
    tool::{
        AgentTool as _,
        testing::{ToolFixture, failure, text},
    },
    write::WriteTool,
};

/// A workspace, and next to it the gateway's own files, temporary ones and others.
struct SandboxFixture {
    case: ToolFixture,
    beside: tempfile::TempDir,
}

impl SandboxFixture {
    fn new(settings: SandboxSettings, kernel: Option<KernelSupport>) -> Self {
        let beside = tempfile::tempdir().unwrap();
        for folder in ["own", "temporary", "outside", "more"] {
            fs::create_dir(beside.path().join(folder)).unwrap();
        }
        fs::write(beside.path().join("own/rules"), "deny").unwrap();
        fs::write(beside.path().join("own/key"), "secret").unwrap();
        let at = |name: &str| beside.path().join(name);
        let settings = SandboxSettings {
            write: settings.write.iter().map(|path| beside.path().join(path)).collect(),
            temporary: Some(vec![at("temporary")]),
            read: settings.read.map(|read| read.iter().map(|path| beside.path().join(path)).collect()),
            ..settings
        };
        let sandbox = Sandbox::new(settings, vec![at("own")], vec![at("own/key")]);
        let sandbox = kernel.map_or_else(|| sandbox.clone(), |kernel| sandbox.on_kernel(kernel));
        let mut case = ToolFixture::new();
        let launcher =
            ExecLauncher { program: std::env::current_exe().unwrap(), leading_args: AS_CHILD.map(Into::into).to_vec() };
        case.cx.shells = SessionShell::with_sandbox(launcher, sandbox);
        Self { case, beside }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.beside.path().join(name)
    }

    async fn run(&self, arguments: Value) -> String {
        text(&self.case.run(&BashTool::default().in_sandbox(self.case.cx.shells.sandbox()), arguments).await).to_owned()
    }

    async fn says(&self, command: &str) -> String {
        self.run(json!({"command": format!("at={}; {command}", self.beside.path().display())})).await
    }
}

/// Reports whether this kernel can confine commands. If it cannot, the tests show that this is reported.
async fn holds() -> bool {
    let Some(lacks) = KernelSupport::running_kernel().missing_support() else { return true };
    let world = SandboxFixture::new(SandboxSettings { mode: SandboxMode::Guard, ..SandboxSettings::default() }, None);
    let result = world.case.run(&BashTool::default(), json!({"command": "true"})).await;
    assert!(failure(&result).contains(&lacks));
    false
}

fn workspace() -> SandboxSettings {
    SandboxSettings { mode: SandboxMode::Workspace, ..SandboxSettings::default() }
}

const PROBES: &[(&str, &str)] = &[
    ("the workspace", "echo a >new && mkdir -p d/e && mv new d/e/ && rm -r d"),
    ("temporary", "echo a >$at/temporary/new && rm $at/temporary/new"),
    ("outside", "echo a >$at/outside/new"),
    ("a folder outside", "mkdir $at/outside/d"),
    ("named", "echo a >$at/more/new"),
    ("the rules", "echo allow >>$at/own/rules"),
    ("cutting the rules", "truncate -s 0 $at/own/rules"),
    ("removing the rules", "rm -f $at/own/rules"),
    ("moving them away", "mv $at/own $at/away"),
    ("a second name for them", "ln $at/own/rules second"),
    ("a link to them", "ln -sf $at/own link && echo allow >>link/rules"),
    ("a key", "cat $at/own/key"),
    ("reading the rules", "cat $at/own/rules"),
    ("a pipe", "echo a | cat | grep -q a && cat <(echo a) && echo a >/dev/null"),
    ("another's memory", "exec 3<>/proc/$PPID/../1/mem"),
    ("another's environment", "cat /proc/1/environ"),
    ("the gateway's environment", "cat /proc/$(sed -n 's/PPid:[^0-9]*//p' /proc/$PPID/status)/environ"),
    ("where another has its memory", "cat /proc/1/maps"),
    ("a right that reads memory", "grep -q '^CapEff:.*000000000[0-9a-f]\\{5\\}$' /proc/self/status && exit 1; true"),
    ("the gateway by a signal", "kill -0 $(sed -n 's/PPid:[^0-9]*//p' /proc/$PPID/status)"),
];

#[tokio::test]
async fn each_mode_gives_what_it_says_and_the_gateways_own_to_nobody() {
    if !holds().await {
        return;
    }
    let guard = SandboxSettings { mode: SandboxMode::Guard, ..SandboxSettings::default() };
    let more = SandboxSettings { write: vec!["more".into(), "own/deep".into()], ..workspace() };
    let always = ["the workspace", "temporary", "reading the rules", "a pipe"];
    for (case, settings, open) in [
        ("workspace", workspace(), vec![]),
        ("workspace and more", more, vec!["named"]),
        ("guard", guard, vec!["outside", "a folder outside", "named"]),
    ] {
        let world = SandboxFixture::new(settings, None);
        for (probe, command) in PROBES {
            let output = world.says(&format!("( {command} ) 2>&1 && echo it-was-done")).await;
            let want = always.contains(probe) || open.contains(probe);
            // Scopes of signals came later than the rest.
            if *probe == "the gateway by a signal" && KernelSupport::running_kernel().landlock < 6 {
                continue;
            }
            assert_eq!(output.contains("it-was-done"), want, "{case}, {probe}: {output}");
        }
        assert_eq!(fs::read_to_string(world.at("own/rules")).unwrap(), "deny", "{case}");
    }
}

#[tokio::test]
async fn only_what_is_named_is_read_where_reading_is_held() {
    if !holds().await {
        return;
    }
    let world = SandboxFixture::new(SandboxSettings { read: Some(vec!["more".into()]), ..workspace() }, None);
    fs::write(world.at("more/a"), "may").unwrap();
    fs::write(world.at("outside/a"), "may-not").unwrap();
    assert_eq!(world.says("cat $at/more/a").await, "may");
    for command in ["cat $at/outside/a", "ls $at/outside", "cat $at/own/rules"] {
        let output = world.says(command).await;
        assert!(
            output.contains("Permission denied") && output.contains("[This ran in a sandbox"),
            "{command}: {output}"
        );
    }
}

#[tokio::test]
async fn without_network_there_are_no_sockets_but_of_this_machine() {
    if !holds().await {
        return;
    }
    let program = "import socket\nfor family in (socket.AF_UNIX, socket.AF_INET, socket.AF_INET6, socket.AF_NETLINK):\n  try:\n    socket.socket(family, socket.SOCK_DGRAM).close()\n    print(family.name, 'yes')\n  except OSError as error:\n    print(family.name, error.errno)\n";
    let bash = "exec 3<>/dev/udp/127.0.0.1/9 && echo connected";
    for (network, want, is_connected) in [
        (NetworkAccess::Off, "AF_UNIX yes\nAF_INET 13\nAF_INET6 13\nAF_NETLINK 13\n", false),
        (NetworkAccess::On, "AF_INET yes", true),
    ] {
        let world = SandboxFixture::new(SandboxSettings { network, ..workspace() }, None);
        let output = world.says(&format!("( {bash} ) 2>&1")).await;
        assert_eq!(output.contains("connected"), is_connected, "{output}");
        if world.says("command -v python3").await.contains("python3\n") {
            world.case.write("sockets.py", program);
            let output = world.says("python3 sockets.py").await;
            assert!(output.contains(want), "{output}");
        }
        let granted = world.run(json!({"command": format!("( {bash} ) 2>&1"), "needs": {"network": true}})).await;
        assert!(granted.contains("connected"), "{granted}");
    }
}

#[tokio::test]
async fn calls_that_lead_out_are_refused() {
    if !holds().await {
        return;
    }
    let world = SandboxFixture::new(SandboxSettings { mode: SandboxMode::Guard, ..SandboxSettings::default() }, None);
    for command in [
        "unshare -U true",
        "unshare -m true",
        "mount -t tmpfs none .",
        "nsenter -t 1 -m true",
        "chroot / true",
        "prlimit --pid $PPID --nofile=99:99",
        "renice -n 19 -p $PPID",
        "renice -n 19 -u $UID",
        "ionice -c 3 -p $PPID",
        "chrt --idle --pid 0 $PPID",
    ] {
        let output = world.says(command).await;
        assert!(output.contains("Command exited with code"), "{command}: {output}");
    }
    // Changes to itself are allowed.
    assert_eq!(
        world.says("ulimit -n 99 && ulimit -n && nice -n 1 chrt --idle 0 ionice -c 3 echo done").await,
        "99\ndone\n"
    );
    assert_eq!(world.says("grep NoNewPrivs /proc/self/status | tr -d '\\t'").await, "NoNewPrivs:1\n");
    assert_eq!(world.says("grep 'Seccomp:' /proc/self/status | tr -d '\\t'").await, "Seccomp:2\n");
}

#[tokio::test]
async fn terminals_are_opened_where_they_are_named() {
    if !holds().await {
        return;
    }
    let opens = "command -v python3 >/dev/null || { echo none; exit; }; python3 -c 'import os; print(os.path.exists(os.ttyname(os.openpty()[1])))'";
    let output = SandboxFixture::new(workspace(), None).says(opens).await;
    assert!(output.contains("Permission denied") || output == "none\n", "{output}");
    let named = SandboxSettings { write: vec!["/dev/pts".into()], ..workspace() };
    let output = SandboxFixture::new(named, None).says(opens).await;
    assert!(output == "True\n" || output == "none\n", "{output}");
}

/// The files that no command may read lie on them.
#[tokio::test]
async fn disks_are_closed_unless_they_are_named() {
    let disks = || std::fs::read_dir("/dev").into_iter().flatten().flatten();
    let is_disk = |entry: &std::fs::DirEntry| {
        use std::os::unix::fs::FileTypeExt as _;
        entry.file_type().is_ok_and(|kind| kind.is_block_device()) && std::fs::File::open(entry.path()).is_ok()
    };
    let Some(disk) = disks().find(is_disk).map(|entry| entry.path()) else { return };
    if !holds().await {
        return;
    }
    let reads = format!("dd if={} of=/dev/null count=1 2>&1 | tail -1", disk.display());
    for settings in [workspace(), SandboxSettings { mode: SandboxMode::Guard, ..SandboxSettings::default() }] {
        let output = SandboxFixture::new(settings, None).says(&reads).await;
        assert!(output.contains("Permission denied") || output.contains("Operation not permitted"), "{output}");
    }
    let named = SandboxSettings { write: vec![disk.display().to_string().into()], ..workspace() };
    let output = SandboxFixture::new(named, None).says(&reads).await;
    assert!(output.contains("bytes") || output.contains("copied"), "{output}");
}

#[tokio::test]
async fn programs_that_people_use_work_in_it() {
    if !holds().await {
        return;
    }
    let world = SandboxFixture::new(SandboxSettings { network: NetworkAccess::Off, ..workspace() }, None);
    for (program, command) in [
        (
            "git",
            "git init -q r && cd r && echo a >a && git add a && git -c user.name=a -c user.email=a@b commit -qm a && git log --oneline && cd ..",
        ),
        ("gcc", "echo 'int main(void) { return 0; }' >a.c && TMPDIR=$at/temporary gcc a.c -o a && ./a"),
        (
            "python3",
            "python3 -c 'import subprocess, threading, tempfile; t = threading.Thread(target=print); t.start(); t.join(); subprocess.run([\"true\"], check=True)'",
        ),
        (
            "node",
            "node -e 'const f = require(\"fs\"); f.writeFileSync(\"n\", \"a\"); require(\"child_process\").execSync(\"true\"); f.promises.readFile(\"n\").then(() => console.log(\"read\"))'",
        ),
        ("make", "printf 'all:\\n\\ttrue\\n' >Makefile && make"),
        ("tar", "echo a >t && tar czf t.tgz t && rm t && tar xzf t.tgz && cat t"),
        ("perl", "perl -e 'open(F, q(>), q(p)) or die; system(q(true)) == 0 or die'"),
    ] {
        let output = world
            .says(&format!(
                "if command -v {program} >/dev/null; then {command} && echo it-works; else echo it-works; fi 2>&1"
            ))
            .await;
        assert!(output.contains("it-works"), "{program}: {output}");
    }
}

#[tokio::test]
async fn what_one_call_was_granted_holds_for_that_call_alone() {
    if !holds().await {
        return;
    }
    let world = SandboxFixture::new(workspace(), None);
    let outside = world.at("outside");
    assert_eq!(world.says("mkdir sub && cd sub && x=kept").await, "(no output)");
    let output = world
        .run(json!({"command": format!("echo a >{0}/new; sleep 600 >/dev/null & pwd; cd /; x=lost", outside.display()), "needs": {"write": [outside]}}))
        .await;
    assert_eq!(output, format!("{}\n", world.case.cx.cwd.join("sub").display()));
    assert!(outside.join("new").exists());
    assert_eq!(
        world.says("echo $x; basename $PWD; rm $at/outside/new 2>/dev/null || echo no").await,
        "kept\nsub\nno\n"
    );
    let relative = world.run(json!({"command": "echo b >../made", "needs": {"write": [".."]}})).await;
    assert_eq!(relative, "(no output)");
    for own in ["own", "own/rules", "own/new"] {
        let result = world
            .case
            .run(
                &BashTool::default().in_sandbox(world.case.cx.shells.sandbox()),
                json!({"command": "true", "needs": {"write": [world.at(own)]}}),
            )
            .await;
        assert!(failure(&result).contains("belongs to the gateway"), "{own}");
    }
    // A missing file is made for a command that was allowed to write it, and nothing next to it.
    let new = world.at("outside/made-now");
    let command =
        json!({"command": format!("echo c >>{0}; echo d >{0}-too", new.display()), "needs": {"write": [new]}});
    assert!(world.run(command).await.contains("Permission denied"));
    assert_eq!(fs::read_to_string(&new).unwrap(), "c\n");
    assert!(!world.at("outside/made-now-too").exists());
    let nowhere = json!({"command": "true", "needs": {"write": [world.at("nowhere/new")]}});
    let result = world.case.run(&BashTool::default().in_sandbox(world.case.cx.shells.sandbox()), nowhere).await;
    assert!(failure(&result).contains("does not exist and cannot be created"), "{}", failure(&result));
    // Nor if a folder is meant, nor next to one that cannot be made.
    let folder = format!("{}/", world.at("outside/folder").display());
    for paths in [vec![folder], vec!["first".to_owned(), world.at("nowhere/second").display().to_string()]] {
        let call = json!({"command": "true", "needs": {"write": paths}});
        let result = world.case.run(&BashTool::default().in_sandbox(world.case.cx.shells.sandbox()), call).await;
        assert!(failure(&result).contains("cannot be created"), "{}", failure(&result));
    }
    assert!(!world.at("outside/folder").exists() && !world.case.cx.cwd.join("first").exists());
    // All around it is not it.
    let around = world.run(json!({"command": format!("echo allow >{}", world.at("own/rules").display()), "needs": {"write": [world.beside.path()]}})).await;
    assert!(around.contains("Permission denied"), "{around}");
}

#[tokio::test]
async fn what_leads_elsewhere_is_not_given_by_the_name_that_a_person_saw() {
    let world = SandboxFixture::new(workspace(), None);
    let (bash, cx) = (BashTool::default().in_sandbox(world.case.cx.shells.sandbox()), &world.case.cx);
    let (outside, home) = (world.at("outside"), PathBuf::from(cx.environment.get("HOME").unwrap()));
    fs::write(outside.join("there"), "").unwrap();
    fs::create_dir(cx.cwd.join("plain")).unwrap();
    for (link, to) in [("build", Path::new("/")), ("link", &outside), ("file", &outside.join("there"))] {
        std::os::unix::fs::symlink(to, cx.cwd.join(link)).unwrap();
    }
    for (path, real) in [
        ("build", PathBuf::from("/")),
        ("./plain/../build", PathBuf::from("/")),
        ("link/there", outside.join("there")),
        ("link/new", outside.join("new")),
        ("file", outside.join("there")),
    ] {
        let call = json!({"command": "true", "needs": {"write": [path]}});
        let error = bash.pin_files(call.as_object().unwrap(), cx).await.unwrap_err().to_string();
        assert!(error.contains(&format!("leads through a symlink to {}", real.display())), "{path}: {error}");
        // Also if it became a link after a person saw it.
        let run = world.case.run(&bash, call).await;
        assert!(
            failure(&run).contains("leads through a symlink")
                || KernelSupport::running_kernel().missing_support().is_some(),
            "{path}"
        );
    }
    // A folder of the agent's own, from which the command would run, and that it put a link in the place of.
    let call = json!({"command": "true", "cwd": "plain", "needs": {"write": ["there"]}});
    assert!(bash.pin_files(call.as_object().unwrap(), cx).await.is_ok());
    std::os::unix::fs::symlink("plain", cx.cwd.join("other")).unwrap();
    let call = json!({"command": "true", "cwd": "other", "needs": {"write": ["there"]}});
    assert!(
        bash.pin_files(call.as_object().unwrap(), cx)
            .await
            .unwrap_err()
            .to_string()
            .contains("leads through a symlink to")
    );
    let run = world.case.run(&bash, call).await;
    assert!(failure(&run).contains("leads through a symlink to"), "{run:?}");
    let mut moved = cx.clone();
    moved.pinned = Some(cx.cwd.join("link"));
    let call = json!({"command": "true", "needs": {"write": ["there"]}});
    let error = bash.pin_files(call.as_object().unwrap(), &moved).await.unwrap_err().to_string();
    assert!(error.contains("leads through a symlink to"), "{error}");
    for path in [cx.cwd.join("plain"), PathBuf::from("plain/../new"), PathBuf::from("~"), outside, home] {
        let call = json!({"command": "true", "needs": {"write": [path]}});
        assert!(bash.pin_files(call.as_object().unwrap(), cx).await.is_ok(), "{path:?}");
    }
}

#[tokio::test]
async fn a_command_that_the_sandbox_made_fail_says_how_to_ask() {
    if !holds().await {
        return;
    }
    let world = SandboxFixture::new(workspace(), None);
    let output = world.says("echo a >$at/outside/new").await;
    assert!(output.contains("it may write only in") && output.contains("call again with needs"), "{output}");
    let other = world.says("echo unrelated; false").await;
    assert_eq!(other, "unrelated\n\nCommand exited with code 1");
}

#[tokio::test]
async fn impossible_needs_are_refused_without_a_gate() {
    let world = SandboxFixture::new(workspace(), None);
    let bash = BashTool::default().in_sandbox(world.case.cx.shells.sandbox());
    let unset = json!({"command": "x", "env": {"BASH_ENV": "{{secret:KEY}}"}});
    let error = format!("{:?}", bash.check_arguments(&unset).unwrap_err());
    assert!(
        error.contains("BASH_ENV may not be set here") || KernelSupport::running_kernel().missing_support().is_some(),
        "{error}"
    );
    let (own, cx) = (world.at("own/rules"), &world.case.cx);
    // From the working folder, and through any link.
    let up: PathBuf = cx.cwd.components().skip(1).map(|_| "..").collect();
    let beside = up.join(own.strip_prefix("/").unwrap());
    std::os::unix::fs::symlink(own.parent().unwrap(), cx.cwd.join("link")).unwrap();
    for path in [own.clone(), beside, PathBuf::from("link/rules"), PathBuf::from("link/new")] {
        let arguments = json!({"command": "x", "needs": {"write": [path]}});
        let error = format!("{:?}", bash.pin_files(arguments.as_object().unwrap(), cx).await.unwrap_err());
        assert!(error.contains("belongs to the gateway"), "{path:?}: {error}");
    }
    let world = SandboxFixture::new(workspace(), Some(KernelSupport::NONE));
    let bash = BashTool::default().in_sandbox(world.case.cx.shells.sandbox());
    assert!(
        format!("{:?}", bash.check_arguments(&json!({"command": "x"})).unwrap_err()).contains("no command is run here")
    );
}

#[tokio::test]
async fn where_the_kernel_cannot_hold_them_the_settings_decide() {
    for (kernel, on_missing, mode, runs) in [
        (KernelSupport::NONE, OnMissingKernel::Refuse, SandboxMode::Workspace, false),
        (KernelSupport { landlock: 1, seccomp: true }, OnMissingKernel::Refuse, SandboxMode::Guard, false),
        (KernelSupport { landlock: 6, seccomp: false }, OnMissingKernel::Refuse, SandboxMode::Guard, false),
        (KernelSupport::NONE, OnMissingKernel::Warn, SandboxMode::Workspace, true),
        (KernelSupport::NONE, OnMissingKernel::Refuse, SandboxMode::Off, true),
    ] {
        let world =
            SandboxFixture::new(SandboxSettings { mode, on_missing, ..SandboxSettings::default() }, Some(kernel));
        let result = world.case.run(&BashTool::default(), json!({"command": "echo ran"})).await;
        if runs {
            assert!(text(&result).starts_with("ran\n"), "{kernel:?} {on_missing:?}");
        } else {
            let error = failure(&result);
            assert!(error.contains("no command is run here") && error.contains("kernel"), "{error}");
        }
    }
}

#[tokio::test]
async fn files_are_written_where_commands_may_write() {
    let world = SandboxFixture::new(workspace(), None);
    let mut case = world.case;
    case.cx.roots = crate::AllowedRoots::whole_filesystem([]);
    for (path, want) in [
        (Path::new("a").to_owned(), true),
        (world.beside.path().join("temporary/a"), true),
        (world.beside.path().join("outside/a"), false),
    ] {
        let result = case.run(&WriteTool::default(), json!({"path": path, "content": "a"})).await;
        assert_eq!(result.is_ok(), want, "{}: {result:?}", path.display());
        assert!(want || failure(&result).contains("sandbox"), "{result:?}");
    }
}
