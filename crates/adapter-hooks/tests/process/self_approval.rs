//! A guarded agent answers no gate: neither at the command line nor over the port. A person at another terminal does.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    process::{Command, Stdio},
};

use countersign_testkit::process::{GatewayServer, binary_path};
use serde_json::{Value, json};

use crate::hook_process::{claude_command, fixture};

/// Agent that runs a hook as programs do, and then commands that would answer the gate which it reads.
const AGENT: &str = r#"
import json, subprocess, sys, urllib.error, urllib.request
binary, data, address, call = sys.argv[1:]
hook = subprocess.Popen(["sh", "-c", f"'{binary}' hook claude --data '{data}' || exit 2"],
                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
hook.stdin.write(call)
hook.stdin.close()
gate = sys.stdin.readline().strip()
answers = []
for words in (["gates", "allow", gate], ["gates", "list"], ["grants", "list"]):
    ended = subprocess.run(["sh", "-c", '"$@"', "sh", binary, *words, "--data", data], capture_output=True, text=True)
    answers.append([ended.returncode, ended.stderr])
try:
    request = urllib.request.Request(f"http://{address}/api/v1/gates/{gate}/allow", b"", method="POST")
    answers.append([urllib.request.urlopen(request).status, ""])
except urllib.error.HTTPError as error:
    answers.append([error.code, error.read().decode()])
print(json.dumps(answers), flush=True)
print(hook.stdout.read(), flush=True)
"#;

#[test]
fn an_agent_that_asks_through_its_hook_answers_no_gate() {
    let place = fixture();
    let gateway = GatewayServer::start(&place);
    let mut command = Command::new("python3");
    command.args(["-c", AGENT]).arg(binary_path()).arg(place.data_dir()).arg(&gateway.address);
    command.arg(claude_command("make").to_string()).env("HOME", &place.folder).env_remove("XDG_STATE_HOME");
    let mut agent = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let gate = place.wait_gate();
    writeln!(agent.stdin.take().unwrap(), "{gate}").unwrap();
    let mut output = BufReader::new(agent.stdout.take().unwrap());
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    let answers: Vec<(i32, String)> = serde_json::from_str(&line).unwrap();
    for (code, text) in &answers[..3] {
        assert!(*code == 1 && text.contains("it may not decide"), "{answers:?}");
    }
    assert!(answers[3].0 == 403 && answers[3].1.contains("may not"), "{answers:?}");
    assert_eq!(place.pending_gates().len(), 1);
    place.allow_gate(&gate);
    let mut rest = String::new();
    output.read_to_string(&mut rest).unwrap();
    let decided: Value = serde_json::from_str(&rest).unwrap();
    assert_eq!(decided["hookSpecificOutput"]["permissionDecision"], json!("allow"));
    agent.wait().unwrap();
    place.verify_log();
}
