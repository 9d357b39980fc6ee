use std::os::unix::fs::symlink;

use countersign_core::message::{ImageBlock, MessageBlock};
use serde_json::json;

use super::ReadTool;
use crate::tool::{
    EditFormat,
    testing::{ToolFixture, failure, text},
};

fn numbered(lines: usize) -> String {
    (1..=lines).map(|line| format!("line {line}\n")).collect()
}

#[tokio::test]
async fn a_part_of_a_text_says_how_to_read_on() {
    let case = ToolFixture::new();
    case.write("long", numbered(1000));
    case.write("short", "a\r\nb");
    case.write("bom", "\u{FEFF}x\n");
    case.write("empty", "");
    case.write("latin", b"caf\xE9\n");
    for (arguments, first, last) in [
        (json!({"path": "long"}), "line 1\n", "line 300\n\n[Showing lines 1-300 of 1000. Use offset=301 to continue]"),
        (json!({"path": "long", "offset": 999}), "line 999\n", "line 1000\n"),
        (
            json!({"path": "long", "offset": 5, "limit": 2}),
            "line 5\n",
            "line 6\n\n[Showing lines 5-6 of 1000. Use offset=7 to continue]",
        ),
        (json!({"path": "long", "limit": 1000}), "line 1\n", "line 1000\n"),
        (json!({"path": "long", "limit": 2, "raw": true}), "line 1\n", "line 2\n"),
        (json!({"path": "short"}), "a\nb\n", "a\nb\n"),
        (json!({"path": "short", "raw": true}), "a\nb", "a\nb"),
        (json!({"path": "bom"}), "x\n", "x\n"),
        (json!({"path": "empty"}), "(empty file)", "(empty file)"),
        (json!({"path": "latin"}), "caf\u{FFFD}\n", "caf\u{FFFD}\n"),
    ] {
        let got = case.run(&ReadTool::default(), arguments.clone()).await;
        assert!(text(&got).starts_with(first) && text(&got).ends_with(last), "{arguments}: {got:?}");
    }
}

#[tokio::test]
async fn no_more_than_50_kib_and_3000_lines_are_shown() {
    let case = ToolFixture::new();
    case.write("many", "x\n".repeat(5000));
    case.write("wide", format!("{}\n", "w".repeat(1023)).repeat(100));
    case.write("endless", "ä".repeat(40_000));
    for (path, end) in [
        ("many", "[Showing lines 1-3000 of 5000. Use offset=3001 to continue]"),
        ("wide", "[Showing lines 1-50 of 100. Use offset=51 to continue]"),
        ("endless", "[Line 1 is longer than 50.0 KiB: its beginning is shown; use bash for the rest]"),
    ] {
        let got = case.run(&ReadTool::default(), json!({"path": path, "limit": 9999})).await;
        assert!(text(&got).ends_with(end), "{path}");
        assert!(text(&got).len() < 51_200 + 100, "{path}");
        assert!(got.unwrap().details.unwrap().get("truncation").is_some(), "{path}");
    }
}

#[tokio::test]
async fn lines_are_marked_as_the_settings_say() {
    let mut case = ToolFixture::new();
    case.write("a", "one\ntwo\n");
    case.cx.line_numbers = true;
    assert_eq!(text(&case.run(&ReadTool::default(), json!({"path": "a"})).await), "     1\tone\n     2\ttwo\n");
    assert_eq!(text(&case.run(&ReadTool::default(), json!({"path": "a", "raw": true})).await), "one\ntwo\n");
    case.cx.edit_mode = EditFormat::Hashline;
    let got = case.run(&ReadTool::default(), json!({"path": "a"})).await;
    let first = text(&got).lines().next().unwrap().to_owned();
    assert!(first.starts_with("1#") && first.ends_with(":one"), "{first}");
}

#[tokio::test]
async fn an_image_is_shown_and_a_folder_listed() {
    let case = ToolFixture::new();
    case.write("sub/dot.png", b"\x89PNG\r\n\x1a\n\0");
    let got = case.run(&ReadTool::default(), json!({"path": "sub/dot.png"})).await.unwrap();
    let image = ImageBlock { data: "iVBORw0KGgoA".to_owned(), mime_type: "image/png".to_owned() };
    assert_eq!(
        got.content,
        [MessageBlock::from_text("Read image file sub/dot.png [image/png, 9 B]"), MessageBlock::Image(image)]
    );
    let got = case.run(&ReadTool::default(), json!({"path": "sub"})).await;
    assert_eq!(text(&got), "dot.png (9 B)");
    let resolved = case.cx.cwd.join("sub");
    assert_eq!(got.unwrap().details, Some(json!({"isDirectory": true, "resolvedPath": resolved})));
}

#[tokio::test]
async fn what_cannot_be_read_is_explained() {
    let case = ToolFixture::new();
    case.write("data", b"a\0b");
    case.write("a", "1\n2\n");
    case.write("own/rules", "r");
    symlink("/etc/passwd", case.path("leak")).unwrap();
    nix::unistd::mkfifo(&case.path("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    for (arguments, want) in [
        (json!({"path": "none"}), "none does not exist"),
        (json!({"path": "data"}), "data is not text but binary data (3 B); use a command that understands it"),
        (json!({"path": "a", "offset": 3}), "a has no line 3: the last line is 2"),
        (json!({"path": "pipe"}), "pipe is a device, pipe or socket, which cannot be read"),
        (json!({"path": "leak"}), "leak is outside of the allowed folder"),
        (json!({"path": "own/rules"}), "own/rules is reserved"),
        (json!({"path": ""}), "the path is empty"),
    ] {
        let got = case.run(&ReadTool::default(), arguments.clone()).await;
        assert!(failure(&got).starts_with(want), "{arguments}: {got:?}");
    }
}
