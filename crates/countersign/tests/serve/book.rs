//! The book: every page is in it, every link leads somewhere, and what a start tells a reader to do works.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use crate::{place::Place, service::Manner};

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").canonicalize().unwrap()
}

fn pages(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let found = entries.flat_map(|path| if path.is_dir() { pages(&path) } else { vec![path] });
    found.filter(|path| path.extension().is_some_and(|end| end == "md")).collect()
}

/// Where the links of a page lead that name a file.
fn links(text: &str) -> Vec<&str> {
    let targets = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let files = targets.filter(|target| !target.contains("://") && !target.starts_with('#') && !target.contains(' '));
    files.filter_map(|target| target.split('#').next()).filter(|target| target.contains('.')).collect()
}

#[test]
fn every_page_is_in_the_book_and_every_link_leads_somewhere() {
    let docs = docs();
    let summary = fs::read_to_string(docs.join("SUMMARY.md")).unwrap();
    let listed = links(&summary);
    for page in pages(&docs) {
        let name = page.strip_prefix(&docs).unwrap().to_str().unwrap().to_owned();
        assert!(name == "SUMMARY.md" || listed.contains(&name.as_str()), "{name} is in no chapter");
        for link in links(&fs::read_to_string(&page).unwrap()) {
            assert!(page.parent().unwrap().join(link).exists(), "{name} links to {link}");
        }
    }
}

/// The blocks of a page: what stands behind the fence, and the text.
fn blocks(page: &str) -> Vec<(String, String)> {
    let mut blocks = Vec::new();
    let mut open: Option<(String, String)> = None;
    for line in page.lines() {
        match (&mut open, line.strip_prefix("```")) {
            (None, Some(head)) => open = Some((head.to_owned(), String::new())),
            (Some(_), Some(_)) => blocks.extend(open.take()),
            (Some((_, text)), None) => *text += &format!("{line}\n"),
            (None, None) => {}
        }
    }
    blocks
}

/// What a reader sees with their own eyes, a script has to wait for.
const SERVES: &str = "countersign serve --config config.yaml > ready & GATEWAY=$!; trap 'kill $GATEWAY' EXIT
until grep -q 'countersign ready' ready; do kill -0 $GATEWAY; done\n";
const WAITS: &str = "until countersign gates list --config config.yaml --json | grep -q gate_; do :; done\n";

#[test]
fn home_assistant_is_guarded_as_the_page_says() {
    let place = Place::new();
    place.service.does("/api/", Manner::Answer(200, "application/json", "{}".to_owned()));
    let page = fs::read_to_string(docs().join("start/home-assistant.md")).unwrap();
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut script = "set -e\n".to_owned();
    for (head, text) in blocks(&page) {
        match head.split_once(' ') {
            Some(("yaml", "config.yaml")) => {
                let text = text.replace("http://homeassistant.local:8123", &place.service.url);
                place.write("config.yaml", &format!("gateway: {{ port: {port} }}\n{text}"));
            }
            Some(("yaml", name)) => drop(place.write(name, &text)),
            _ => {
                assert_eq!(head, "sh", "a block that nothing is done with");
                let text = text.replace("127.0.0.1:8443", &format!("127.0.0.1:{port}"));
                script += &match text.as_str() {
                    "countersign serve --config config.yaml &\n" => SERVES.to_owned(),
                    text if text.ends_with(" &\n") => {
                        format!("{} > told & AGENT=$!\n{WAITS}", text.trim_end_matches(" &\n"))
                    }
                    text => text.to_owned(),
                };
            }
        }
    }
    script += "wait $AGENT\n";
    let binaries = Path::new(env!("CARGO_BIN_EXE_countersign")).parent().unwrap();
    let mut command = Command::new("bash");
    let path = format!("{}:{}", binaries.display(), std::env::var("PATH").unwrap());
    command.args(["-c", &script]).current_dir(&place.folder).env("PATH", path).env("HOME", &place.folder);
    let output = command.output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{script}\n{out}\n{err}");
    assert!(out.contains("refused") && out.contains("No agent opens a door"), "{out}\n{err}");
    assert_eq!(place.service.count("/api/services/light/turn_on"), 1, "{out}\n{err}");
    assert_eq!(place.service.count("/api/services/lock/unlock"), 0);
    assert!(fs::read_to_string(place.folder.join("told")).unwrap().contains("turn_on"), "{out}\n{err}");
}
