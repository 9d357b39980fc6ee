//! Each start, followed to its end.

use std::{fs, net::TcpListener, path::Path};

use super::guide::GuideFixture;
use countersign_testkit::process::{GatewayOptions, binary_path, service::ServiceBehavior};

/// Until something waits for a person.
const WAITS: &str = "until countersign gates list --config config.yaml --json | grep -q gate_; do :; done\n";

fn unchanged(_: &GuideFixture, body: &str) -> String {
    body.to_owned()
}

#[test]
fn home_assistant_is_guarded_as_the_page_says() {
    let guide = GuideFixture::of("start/home-assistant.md");
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let stood_in = |_: &GuideFixture, body: &str| {
        let body = body.replace("homeassistant.local:8123", "127.0.0.1:8123").replace("8123", &port.to_string());
        match body.strip_suffix(" &\n") {
            Some(asks) if asks.starts_with("countersign request") => format!("{asks} > told & AGENT=$!\n{WAITS}"),
            // A process that the reader stops at the end, and output that comes before the reader types the next line.
            Some(house) if house.starts_with("python3 house.py") => format!(
                "{house} > house & HOUSE=$!\nend() {{ kill $GATEWAY $HOUSE; }}\ntrap end EXIT\n\
                 until (: < /dev/tcp/127.0.0.1/{port}) 2> /dev/null; do kill -0 $HOUSE; done\n"
            ),
            _ => body.replace("countersign audit tail", "wait $AGENT\ncountersign audit tail"),
        }
    };
    let (guide, followed) = guide.follow(&stood_in, "");
    let read = |name: &str| fs::read_to_string(guide.place.folder.join(name)).unwrap();
    let (house, transcript) = (read("house"), format!("{}\n{}", followed.out, followed.err));
    assert!(followed.out.contains("refused") && followed.out.contains("No agent opens a door"), "{transcript}");
    assert!(followed.out.contains(r#""state":"off""#) || followed.out.contains(r#""state": "off""#), "{transcript}");
    let acts: Vec<&str> = house.lines().filter(|line| line.starts_with("house: ")).collect();
    assert_eq!(acts, [r#"house: /api/services/light/turn_on {"entity_id":"light.bedroom"}"#], "{transcript}");
    assert!(read("told").contains("light.bedroom"), "{transcript}");
}

#[test]
fn an_agent_is_embedded_as_the_page_says() {
    let (guide, followed) = GuideFixture::of("start/embed.md").follow(&unchanged, "1\n");
    let (out, folder) = (&followed.out, &guide.place.folder);
    assert_eq!(out.matches("which?").count(), 1, "{out}");
    assert!(out.contains("command: rm -rf ../published") && out.contains("  1. Allow once"), "{out}");
    assert!(out.contains("allowed once by host") && out.contains("chain     intact"), "{out}");
    assert!(fs::read_to_string(folder.join("published/greet.sh")).unwrap().contains("$name!"));
}

/// Tests that harm beyond the working folder requires another kind of approval, except in temporary folders.
#[test]
fn an_agent_is_embedded_as_the_page_says_where_folders_are_there_to_stay() {
    let place = GatewayOptions::new().with_parent(Path::new("/dev/shm")).with_rules("").create();
    let (guide, followed) = GuideFixture::within("start/embed.md", place).follow(&unchanged, "what\n1\n");
    let (out, folder) = (&followed.out, &guide.place.folder);
    assert_eq!(out.matches("which?").count(), 2, "{out}");
    assert!(out.contains("command: rm -rf ../published") && out.contains("  1. Yes\n  2. No"), "{out}");
    assert!(out.contains("chain     intact"), "{out}");
    assert!(fs::read_to_string(folder.join("published/greet.sh")).unwrap().contains("$name!"));
}

#[test]
fn an_mcp_server_is_put_behind_rules_as_the_page_says() {
    let guide = GuideFixture::of("start/mcp.md");
    let server = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/process/mcp_servers/files_server.py");
    let ours = |_: &GuideFixture, body: &str| {
        let body = body.replace("command: npx", "command: python3").replace(
            r#"args: ["-y", "@modelcontextprotocol/server-filesystem", "."]"#,
            &format!("args: [{:?}]", server.display().to_string()),
        );
        let body = body.replace("mcp-servers approve files", "mcp-servers approve files --yes");
        match body.strip_suffix(" &\n") {
            Some(asks) if asks.starts_with("countersign request") => {
                format!("{asks} > told & AGENT=$!\n{}", WAITS.replace(" --config config.yaml", ""))
            }
            _ => body,
        }
    };
    let (guide, followed) = guide.follow(&ours, "");
    let read = |name: &str| fs::read_to_string(guide.place.folder.join(name)).unwrap();
    let transcript = format!("{}\n{}", followed.out, followed.err);
    assert!(followed.out.contains("mcp__files__write_file") && followed.out.contains("milk, bread"), "{transcript}");
    assert_eq!(read("share/calls"), "read_text_file\nwrite_file\n", "{transcript}");
    assert_eq!(read("share/list.txt"), "milk, bread, tea\n", "{transcript}");
    assert!(read("told").contains("written"), "{transcript}");
}

#[test]
fn a_phone_approves_as_the_page_says() {
    let guide = GuideFixture::of("start/phone.md");
    let bot = |method: &str, result: &str| {
        let answer = format!("{{\"ok\":true,\"result\":{result}}}");
        guide
            .place
            .service
            .set_behavior(&format!("/bot42:tok/{method}"), ServiceBehavior::Answer(200, "application/json", answer));
    };
    bot("getMe", r#"{"id":42,"is_bot":true,"first_name":"Guard","username":"guard_bot"}"#);
    bot("getChat", r#"{"id":123456789,"type":"private"}"#);
    let stood_in = |guide: &GuideFixture, body: &str| {
        let api = format!("api_url: \"{}\", chat_id", guide.place.service.url);
        body.replace("chat_id", &api).replace(
            "countersign doctor --config telegram.yaml",
            "TG_TOKEN=42:tok countersign doctor --config telegram.yaml --data elsewhere > bot || true",
        )
    };
    let (guide, followed) = guide.follow(&stood_in, "");
    let (out, folder) = (&followed.out, &guide.place.folder);
    assert!(
        out.contains("\"command\":\"edit\\npath: greet.sh") && out.contains("denied by web: bash(sh test.sh)"),
        "{out}"
    );
    assert!(fs::read_to_string(folder.join("data/agents/main/greet.sh")).unwrap().contains("$name!"), "{out}");
    let bot = fs::read_to_string(folder.join("bot")).unwrap();
    assert!(bot.lines().any(|line| line.starts_with("ok") && line.contains("messenger")), "{bot}");
}

#[test]
fn a_gateway_has_a_node_as_the_page_says() {
    let guide = GuideFixture::of("start/nodes.md");
    let chat = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/gsv_chat.py");
    fs::copy(chat, guide.place.folder.join("gsv_chat.py")).unwrap();
    // The approver has read the card.
    let answered = |_: &GuideFixture, body: &str| {
        let shown = "(until grep -q uname said; do :; done; echo yes)";
        body.replace("python3 gsv_chat.py", &format!(": > said; {shown} | python3 gsv_chat.py"))
            .replace("\"What is on the kitchen?\"\n", "\"What is on the kitchen?\" > said\ncat said\n")
    };
    let (_, followed) = guide.follow(&answered, "");
    let transcript = format!("{}\n{}", followed.out, followed.err);
    assert!(followed.out.contains("tools of nodes: kitchen__Bash"), "{transcript}");
    assert!(followed.out.contains("kitchen says: Linux") && followed.out.contains("note.txt"), "{transcript}");
    assert!(followed.out.contains("chain     intact"), "{transcript}");
}

#[test]
fn the_walk_among_the_examples_comes_to_its_end() {
    let is_there = std::process::Command::new("python3").arg("--version").output();
    if !is_there.is_ok_and(|output| output.status.success()) {
        return;
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/gate_walk.py");
    let walk = std::process::Command::new("python3").arg(script).arg(binary_path()).output();
    let walk = walk.unwrap();
    let stdout = String::from_utf8_lossy(&walk.stdout);
    assert!(walk.status.success(), "{stdout}\n{}", String::from_utf8_lossy(&walk.stderr));
}
