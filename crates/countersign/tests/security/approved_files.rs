//! The approved content is what runs: a change on disk between the decision and the run is noticed, and nothing runs.

use std::{
    fs,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::{Path, PathBuf},
};

use countersign_testkit::process::{
    GatewayFixture,
    provider::{ProviderReply, bash_part, call_part, text_reply},
};
use serde_json::{Value, json};

use crate::fixture::stdio_host;

/// A host whose agent asks about every command, in a folder of its own.
struct ApprovedFilesFixture {
    scene: GatewayFixture,
    agent: PathBuf,
}

impl ApprovedFilesFixture {
    fn new() -> Self {
        let scene = GatewayFixture::for_peers();
        let agent = stdio_host::agent_dir(
            &scene,
            "rules:\n  - { pattern: 'bash(*)', action: ask }\n  - { pattern: 'write(*)', action: allow }\n",
        );
        let desk = Self { scene, agent };
        fs::create_dir(desk.at("")).unwrap();
        desk.script("x.sh", "echo one >> ran");
        desk
    }

    fn at(&self, name: &str) -> PathBuf {
        self.scene.folder.join("work").join(name)
    }

    /// Writes a program that leaves a mark.
    fn script(&self, name: &str, line: &str) {
        fs::write(self.at(name), format!("#!/bin/sh\n{line}\n")).unwrap();
        fs::set_permissions(self.at(name), fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn start(&self, more: &[&str]) -> stdio_host::StdioHost {
        stdio_host::StdioHost::start_in(&self.scene, &self.agent, &self.at(""), more)
    }

    /// Returns the commands that ran so far.
    fn ran(&self) -> String {
        fs::read_to_string(self.at("ran")).unwrap_or_default()
    }

    /// Starts a host that waits for an answer about `command`.
    fn start_call(&self, command: &str) -> (stdio_host::StdioHost, Value) {
        let mut host = self.start(&[]);
        self.scene.provider.script_replies([ProviderReply::new(vec![bash_part("c1", command)]), text_reply("done")]);
        host.send_frame(&json!({ "id": "p", "type": "prompt", "message": "go" }));
        let dialog = dialog(&mut host);
        (host, dialog)
    }

    /// Returns the same, once the model has got it.
    fn wait_result(&self, id: &str) -> String {
        let request = self.scene.provider.wait_request_when(1, |request| request.call_result(id).is_some());
        request.call_result(id).unwrap_or_default()
    }

    /// Returns the result of `id` as the model read it.
    fn result(&self, id: &str) -> String {
        self.scene.provider.last_request().call_result(id).unwrap_or_default()
    }
}

fn dialog(host: &mut stdio_host::StdioHost) -> Value {
    host.wait_frame("a dialog", |frame| frame["type"] == "extension_ui_request" && frame["method"] != "notify")
}

fn allow(host: &mut stdio_host::StdioHost, dialog: &Value) {
    host.send_frame(&json!({ "type": "extension_ui_response", "id": dialog["id"], "value": "Allow once" }));
}

fn end(host: &mut stdio_host::StdioHost) {
    host.wait_frame("the end", |frame| frame["type"] == "agent_end");
}

fn shown(dialog: &Value) -> String {
    ["title", "message"].iter().filter_map(|name| dialog[*name].as_str()).collect()
}

fn rename(from: &Path, to: &Path) {
    fs::rename(from, to).unwrap();
}

#[test]
fn what_changed_since_it_was_approved_does_not_run() {
    type ChangeFn = fn(&ApprovedFilesFixture);
    let changes: [(&str, &str, ChangeFn, &str); 8] = [
        ("rewritten", "sh x.sh", |desk| desk.script("x.sh", "echo two >> ran"), "x.sh is not what was approved"),
        (
            "replaced by another",
            "./x.sh",
            |desk| {
                desk.script("y.sh", "echo two >> ran");
                rename(&desk.at("y.sh"), &desk.at("x.sh"));
            },
            "x.sh is not what was approved",
        ),
        (
            "a link that turned",
            "bash -euo pipefail link.sh",
            |desk| {
                desk.script("y.sh", "echo two >> ran");
                fs::remove_file(desk.at("link.sh")).unwrap();
                symlink("y.sh", desk.at("link.sh")).unwrap();
            },
            "link.sh leads to",
        ),
        (
            "fed by a pipe",
            "cat x.sh | sh",
            |desk| desk.script("x.sh", "echo two >> ran"),
            "x.sh is not what was approved",
        ),
        (
            "fed by a redirection",
            "sh -s < x.sh",
            |desk| desk.script("x.sh", "echo two >> ran"),
            "x.sh is not what was approved",
        ),
        (
            "a name that is shadowed",
            "PATH=$PWD/bin:/usr/bin:/bin true-tool",
            |desk| {
                desk.script("bin/true-tool", "echo two >> ran");
            },
            "true-tool is not what was approved",
        ),
        (
            "a folder that it enters",
            "cd sub && sh s.sh",
            |desk| {
                rename(&desk.at("sub"), &desk.at("old"));
                fs::create_dir(desk.at("sub")).unwrap();
                fs::copy(desk.at("old/s.sh"), desk.at("sub/s.sh")).unwrap();
            },
            "sub is not what was approved",
        ),
        (
            "there by now",
            "sh later.sh",
            |desk| desk.script("later.sh", "echo two >> ran"),
            "it was not there at the decision",
        ),
    ];
    for (case, command, change, want) in changes {
        let desk = ApprovedFilesFixture::new();
        symlink("x.sh", desk.at("link.sh")).unwrap();
        fs::create_dir(desk.at("bin")).unwrap();
        fs::create_dir(desk.at("sub")).unwrap();
        desk.script("sub/s.sh", "echo one >> ../ran");
        let (mut host, dialog) = desk.start_call(command);
        change(&desk);
        allow(&mut host, &dialog);
        end(&mut host);
        let result = desk.result("c1");
        assert!(result.contains(want) && result.contains("call again"), "{case}: {result}");
        assert_eq!(desk.ran(), "", "{case}");
        host.close_and_read();
    }
}

#[test]
fn what_stayed_as_it_was_runs() {
    let digest = |text: &str| countersign_core::digest::Digest::hash_bytes(text.as_bytes()).to_string();
    let text = "#!/bin/sh\necho one >> ran\n";
    for command in ["sh x.sh", "./x.sh", "cat x.sh | sh", "sh < x.sh", "env A=1 timeout 60 ./x.sh", ". ./x.sh"] {
        let desk = ApprovedFilesFixture::new();
        let (mut host, dialog) = desk.start_call(command);
        let card = shown(&dialog);
        let want = format!("x.sh, sha256 {}…, {} bytes", &digest(text)[..12], text.len());
        assert!(card.contains(&want), "{command}: {card}");
        allow(&mut host, &dialog);
        end(&mut host);
        assert_eq!(desk.ran(), "one\n", "{command}: {}", desk.result("c1"));
        host.close_and_read();
    }
}

#[test]
fn a_working_folder_is_the_one_that_was_approved() {
    let desk = ApprovedFilesFixture::new();
    fs::create_dir(desk.at("sub")).unwrap();
    let start_call = |desk: &ApprovedFilesFixture| {
        let mut host = desk.start(&[]);
        let in_sub = call_part("c1", "bash", &json!({ "command": "echo ran >> mark", "cwd": "sub" }));
        desk.scene.provider.script_replies([ProviderReply::new(vec![in_sub]), text_reply("done")]);
        host.send_frame(&json!({ "id": "p", "type": "prompt", "message": "go" }));
        let dialog = dialog(&mut host);
        (host, dialog)
    };
    let (mut host, dialog) = start_call(&desk);
    rename(&desk.at("sub"), &desk.at("old"));
    fs::create_dir(desk.at("sub")).unwrap();
    allow(&mut host, &dialog);
    end(&mut host);
    assert!(desk.result("c1").contains("another folder has its name"), "{}", desk.result("c1"));
    assert!(!desk.at("sub/mark").exists() && !desk.at("old/mark").exists());
    host.close_and_read();
    let (mut host, dialog) = start_call(&desk);
    allow(&mut host, &dialog);
    end(&mut host);
    assert_eq!(fs::read_to_string(desk.at("sub/mark")).unwrap(), "ran\n");
    host.close_and_read();
}

#[test]
fn a_file_written_by_the_same_message_needs_another_approval() {
    let desk = ApprovedFilesFixture::new();
    let mut host = desk.start(&[]);
    let write = call_part("w1", "write", &json!({ "path": "x.sh", "content": "echo new >> ran\n" }));
    let again = ProviderReply::new(vec![bash_part("c2", "sh x.sh")]);
    desk.scene.provider.script_replies([
        ProviderReply::new(vec![write, bash_part("c1", "sh x.sh")]),
        again,
        text_reply("done"),
    ]);
    host.send_frame(&json!({ "id": "p", "type": "prompt", "message": "go" }));
    let first = dialog(&mut host);
    allow(&mut host, &first);
    let second = dialog(&mut host);
    assert_eq!(desk.ran(), "");
    allow(&mut host, &second);
    end(&mut host);
    assert!(desk.result("c1").contains("x.sh is not what was approved"), "{}", desk.result("c1"));
    assert_eq!(desk.ran(), "new\n");
    host.close_and_read();
}

#[test]
fn what_was_approved_binds_another_process() {
    for (case, change, want) in [("unchanged", false, "one\n"), ("changed", true, "")] {
        let desk = ApprovedFilesFixture::new();
        let (host, _) = desk.start_call("sh x.sh");
        // Dropping it kills it.
        drop(host);
        if change {
            desk.script("x.sh", "echo two >> ran");
        }
        let mut host = desk.start(&["--continue"]);
        let again = dialog(&mut host);
        allow(&mut host, &again);
        end(&mut host);
        assert_eq!(desk.ran(), want, "{case}: {}", desk.result("c1"));
        host.close_and_read();
    }
}

#[test]
fn what_was_decided_and_not_begun_binds_another_process() {
    for (case, change, want) in [("unchanged", false, "one\n"), ("changed", true, "")] {
        let desk = ApprovedFilesFixture::new();
        nix::unistd::mkfifo(&desk.at("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        let mut host = desk.start(&[]);
        // The second waits for its turn after the first, which waits for a write to the pipe.
        let both = vec![bash_part("c1", "cat pipe"), bash_part("c2", "sh x.sh")];
        desk.scene.provider.script_replies([ProviderReply::new(both), text_reply("done")]);
        host.send_frame(&json!({ "id": "p", "type": "prompt", "message": "go" }));
        for _ in 0..2 {
            let dialog_frame = dialog(&mut host);
            allow(&mut host, &dialog_frame);
        }
        // A request after an answer is read when that is recorded.
        host.send_frame(&json!({ "id": "s", "type": "get_state" }));
        host.wait_frame("the state", |frame| frame["type"] == "response" && frame["id"] == "s");
        drop(host);
        assert_eq!(desk.ran(), "", "{case}");
        if change {
            desk.script("x.sh", "echo two >> ran");
        }
        let host = desk.start(&["--continue"]);
        // It may be over before there is a receiver; the model gets the result after it, whatever the host saw.
        let result = desk.wait_result("c2");
        assert_eq!(desk.ran(), want, "{case}: {result}");
        assert_eq!(result.contains("x.sh is not what was approved"), change, "{case}: {result}");
        host.close_and_read();
    }
}

/// Everyday commands, one after the other in one shell. Programs that this machine lacks are as absent as they were.
const EVERY_DAY: [&str; 62] = [
    "git status",
    "git log --oneline | head -5",
    "git diff --stat || true",
    "cargo build --quiet --manifest-path nowhere/Cargo.toml",
    "CARGO_TERM_COLOR=never cargo --version",
    "npm test",
    "node --version && node -e '1'",
    "make -j2",
    "make -f Makefile all > make.log 2>&1; tail -n 3 make.log",
    "ls -la | head",
    "ls *.sh | sort | uniq -c",
    "cat x.sh",
    "grep -rn echo . | wc -l",
    "find . -name '*.sh' -exec wc -l {} +",
    "find . -name '*.sh' | xargs -n 1 wc -c",
    "python3 script.py > out.txt",
    "python3 -u script.py a b",
    "python3 -c 'print(1)'",
    "python3 - <<'E'\nprint(2)\nE",
    "./gradlew build",
    "./x.sh",
    "sh ./x.sh | tee log",
    "bash -euo pipefail x.sh",
    "bash -lc 'sh x.sh'",
    "bash -c './x.sh && ./x.sh'",
    "env A=1 ./x.sh",
    "env -S './x.sh a'",
    "nice -n 5 ./x.sh",
    "timeout 60 ./x.sh",
    "nohup ./x.sh > nohup.log 2>&1 &",
    "time ./x.sh",
    "! ./absent.sh",
    "if ./x.sh; then ls; fi",
    "(./x.sh); { ./x.sh; }",
    "f() { ./x.sh; }; f",
    "echo $(./x.sh)",
    "coproc ./x.sh; wait",
    "cat x.sh | sh",
    "sh < x.sh",
    "sh -s < x.sh",
    "sh <(cat x.sh)",
    "eval './x.sh'",
    ". ./env.sh && echo $SET",
    "sh $SET.sh",
    "for i in 1 2 3; do ./x.sh; done",
    "for f in *.sh; do sh -n \"$f\"; done",
    "case a in a) ./x.sh;; esac",
    "sh itself.sh",
    "./itself.sh",
    "sh grows.sh; sh grows.sh",
    "cp x.sh y.sh && sh y.sh",
    "sh y.sh",
    "echo 'echo made' > made.sh; sh made.sh",
    "mkdir -p deep/er && cd deep/er && ls",
    "pwd && ls && ../../x.sh",
    "cd ../../sub && ./s.sh",
    "./s.sh",
    "cd - && ./absent",
    "cd \"$OLDPWD\"; pwd",
    "export PATH=\"$PWD/bin:$PATH\"",
    "mine a",
    "PATH=.:$PATH s.sh",
];

#[test]
fn everyday_commands_run_while_other_work_continues() {
    let desk = ApprovedFilesFixture::new();
    fs::create_dir_all(desk.at("sub/bin")).unwrap();
    for (name, line) in [
        ("sub/s.sh", "echo in sub"),
        ("sub/bin/mine", "echo mine"),
        ("env.sh", "SET=x"),
        ("itself.sh", "echo '# more' >> itself.sh"),
        ("grows.sh", "echo more >> grown"),
        ("gradlew", "echo gradle"),
    ] {
        desk.script(name, line);
    }
    fs::write(desk.at("script.py"), "print('out')\n").unwrap();
    fs::write(desk.at("Makefile"), "all:\n\ttrue\n").unwrap();
    let mut host = desk.start(&[]);
    let calls =
        EVERY_DAY.iter().enumerate().map(|(at, line)| ProviderReply::new(vec![bash_part(&format!("c{at}"), line)]));
    desk.scene.provider.script_replies(calls.chain([text_reply("done")]));
    host.send_frame(&json!({ "id": "p", "type": "prompt", "message": "go" }));
    for at in 0..EVERY_DAY.len() {
        let dialog_frame = dialog(&mut host);
        // Meanwhile others make files, write to their logs, and read existing files.
        fs::write(desk.at(&format!("beside{at}")), "unrelated").unwrap();
        fs::write(desk.at("sub/beside"), at.to_string()).unwrap();
        fs::write(desk.at("log"), "more\n".repeat(at)).unwrap();
        for name in ["x.sh", "sub/s.sh", "script.py"] {
            fs::read(desk.at(name)).unwrap();
        }
        allow(&mut host, &dialog_frame);
    }
    end(&mut host);
    for (at, line) in EVERY_DAY.iter().enumerate() {
        let result = desk.result(&format!("c{at}"));
        assert!(!result.contains("approved") && !result.contains("ot run"), "{line}: {result}");
    }
    assert!(desk.result("c60").contains("mine") && desk.result("c61").contains("in sub"), "{}", desk.result("c61"));
    host.close_and_read();
}

#[test]
fn a_folder_may_be_named_in_every_way() {
    let desk = ApprovedFilesFixture::new();
    fs::create_dir_all(desk.at("sub/deep")).unwrap();
    symlink("sub", desk.at("link")).unwrap();
    let folders = ["sub", "./sub", "sub/", "sub/../sub", "sub//deep/..", "link", "link/deep", ".", ""];
    let absolute = desk.at("sub").display().to_string();
    let mut host = desk.start(&[]);
    let named: Vec<&str> = folders.into_iter().chain([absolute.as_str()]).filter(|folder| !folder.is_empty()).collect();
    let calls = named.iter().enumerate().map(|(at, folder)| {
        ProviderReply::new(vec![call_part(
            &format!("c{at}"),
            "bash",
            &json!({ "command": "pwd -P; ls", "cwd": folder }),
        )])
    });
    desk.scene.provider.script_replies(calls.chain([text_reply("done")]));
    host.send_frame(&json!({ "id": "p", "type": "prompt", "message": "go" }));
    for _ in &named {
        let dialog_frame = dialog(&mut host);
        allow(&mut host, &dialog_frame);
    }
    end(&mut host);
    for (at, folder) in named.iter().enumerate() {
        let result = desk.result(&format!("c{at}"));
        assert!(result.starts_with('/'), "{folder}: {result}");
    }
    host.close_and_read();
}
