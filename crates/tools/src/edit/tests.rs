use std::{
    fs,
    os::unix::fs::{PermissionsExt as _, symlink},
};

use serde_json::json;

use super::{EditTool, hashline::line_anchor};
use crate::tool::{
    EditFormat,
    testing::{ToolFixture, failure, text},
};

#[tokio::test]
async fn exact_text_is_replaced_and_nothing_is_interpreted() {
    for (before, old, new, all, after) in [
        ("one two", "two", "$1 ${0} \\n $$", false, "one $1 ${0} \\n $$"),
        ("a.c abc", "a.c", "x", false, "x abc"),
        ("a\r\nb\r\n", "a\nb", "x\ny", false, "x\r\ny\r\n"),
        ("\u{FEFF}a\n", "a", "b", false, "\u{FEFF}b\n"),
        ("x x x", "x", "y", true, "y y y"),
        ("aaaa", "aa", "b", true, "bb"),
        ("tail", "tail", "", false, ""),
    ] {
        let case = ToolFixture::new();
        case.write("f", before);
        let arguments = json!({"path": "f", "old_text": old, "new_text": new, "all": all});
        let got = case.run(&EditTool::default(), arguments).await;
        assert_eq!(text(&got), "Edited f", "{before:?}");
        assert_eq!(case.read("f"), after, "{before:?}");
    }
}

#[tokio::test]
async fn an_edit_that_does_not_fit_is_explained_and_changes_nothing() {
    let case = ToolFixture::new();
    let before = "fn main() {\n    print(1);\n    print(2);\n}\n";
    for (old, new, want) in [
        (
            "    print(3);\n",
            "x",
            "old_text was not found in f: it must match exactly, white space too.\nThe nearest lines:\n    2:     print(1);",
        ),
        (
            "fn main() {\n  print(1);",
            "x",
            "old_text was not found in f: it must match exactly, white space too.\nThe nearest lines (they differ in white space only):\n    1: fn main() {\n    2:     print(1);",
        ),
        (
            "zzzz",
            "x",
            "old_text was not found in f: it must match exactly, white space too. No line is similar; read the file again.",
        ),
        (
            "print(",
            "x",
            "old_text occurs 2 times in f, on lines 2, 3: add lines around it to make it unique, or set all",
        ),
        ("main", "main", "old_text and new_text are the same: nothing to change"),
        ("", "x", "old_text is empty: it must be text of the file; use write to replace a whole file"),
    ] {
        case.write("f", before);
        let got = case.run(&EditTool::default(), json!({"path": "f", "old_text": old, "new_text": new})).await;
        assert_eq!(failure(&got), want);
        assert_eq!(case.read("f"), before);
    }
}

#[tokio::test]
async fn files_that_cannot_be_edited_are_refused() {
    let case = ToolFixture::new();
    case.write("bytes", b"\xFFa");
    case.write("own/rules", "a");
    symlink("/etc/hosts", case.path("leak")).unwrap();
    for (path, want) in [
        ("none", "none does not exist; use write to make it"),
        ("bytes", "bytes is not UTF-8 text and would be damaged by an edit; use a command instead"),
        (".", ". is not a regular file"),
        ("leak", "leak is outside of the allowed folder"),
        ("own/rules", "own/rules is reserved"),
    ] {
        let got = case.run(&EditTool::default(), json!({"path": path, "old_text": "a", "new_text": "b"})).await;
        assert!(failure(&got).starts_with(want), "{path}: {got:?}");
    }
}

#[tokio::test]
async fn the_result_shows_what_changed_and_the_mode_is_kept() {
    let case = ToolFixture::new();
    case.write("f.sh", "one\r\ntwo\r\nthree\r\n");
    fs::set_permissions(case.path("f.sh"), fs::Permissions::from_mode(0o755)).unwrap();
    let got = case.run(&EditTool::default(), json!({"path": "f.sh", "old_text": "two", "new_text": "2"})).await;
    let details = json!({"diff": " 1 one\n-2 two\n+2 2\n 3 three", "firstChangedLine": 2});
    assert_eq!(got.unwrap().details, Some(details));
    assert_eq!(fs::metadata(case.path("f.sh")).unwrap().permissions().mode() & 0o777, 0o755);
}

#[tokio::test]
async fn lines_are_changed_by_their_anchors() {
    let (one, two, three) = (line_anchor(1, "one"), line_anchor(2, "two"), line_anchor(3, "three"));
    for (before, edits, after) in [
        (
            "one\ntwo\nthree\n",
            json!([{"loc": {"range": {"pos": two, "end": two}}, "content": ["2", "zwei"]}]),
            "one\n2\nzwei\nthree\n",
        ),
        ("one\ntwo\nthree\n", json!([{"loc": {"range": {"pos": one, "end": two}}, "content": null}]), "three\n"),
        (
            "one\ntwo\nthree\n",
            json!([{"loc": {"append": three}, "content": "end"}, {"loc": {"prepend": one}, "content": ["start"]}]),
            "start\none\ntwo\nthree\nend\n",
        ),
        (
            "one\r\ntwo\r\n",
            json!([{"loc": "append", "content": ["x"]}, {"loc": "prepend", "content": ["y"]}]),
            "y\r\none\r\ntwo\r\nx\r\n",
        ),
        ("one\ntwo", json!([{"loc": "append", "content": "x"}]), "one\ntwo\nx"),
        ("one\ntwo", json!([{"loc": {"range": {"pos": two, "end": two}}, "content": "x\n"}]), "one\nx"),
    ] {
        let case = ToolFixture::new();
        case.write("f", before);
        let got = case.run(&EditTool::new(EditFormat::Hashline), json!({"path": "f", "edits": edits})).await;
        assert_eq!(text(&got), "Edited f", "{before:?}");
        assert_eq!(case.read("f"), after, "{before:?}");
    }
}

#[tokio::test]
async fn an_anchor_that_does_not_fit_is_refused_with_the_lines_as_they_are() {
    let (one, two) = (line_anchor(1, "one"), line_anchor(2, "two"));
    let case = ToolFixture::new();
    case.write("f", "one\nnew\n");
    let stale = format!(
        "{two} does not match: the line has changed since it was read. The lines are now:\n{one}:one\n{}:new",
        line_anchor(2, "new")
    );
    let range = |pos: &str, end: &str| json!([{"loc": {"range": {"pos": pos, "end": end}}, "content": null}]);
    for (edits, want) in [
        (range(&two, &two), stale.as_str()),
        (range("9#ZZ", "9#ZZ"), "9#ZZ names a line that does not exist: the last line is 2"),
        (range("line 2", &one), "\"line 2\" is not an anchor: it is a line number, # and two letters, such as 12#XY"),
        (
            range(&line_anchor(2, "new"), &one),
            &format!("the range {} to {one} ends before it begins", line_anchor(2, "new")),
        ),
        (json!([range(&one, &one)[0], range(&one, &one)[0]]), "two edits change the same lines: put them into one"),
        (json!([]), "edits is empty: nothing to change"),
    ] {
        let got = case.run(&EditTool::new(EditFormat::Hashline), json!({"path": "f", "edits": edits})).await;
        assert_eq!(failure(&got), want);
        assert_eq!(case.read("f"), "one\nnew\n");
    }
}

#[tokio::test]
async fn a_patch_is_applied_by_what_its_hunks_hold() {
    for (before, diff, after) in [
        ("a\nb\nc\n", "@@\n a\n-b\n+B\n c\n", "a\nB\nc\n"),
        ("a\r\nb\r\n", "@@ -1,2 +1,2 @@\n a\n-b\n+B", "a\r\nB\r\n"),
        ("f1\nx\nf2\nx\n", "@@ f2\n-x\n+y\n", "f1\nx\nf2\ny\n"),
        ("a\nb\n", "@@\n-a\n+A\n@@\n-b\n+B\n", "A\nB\n"),
        ("a\n", "--- f\n+++ f\n@@\n+z\n", "a\nz\n"),
        ("a\nb", "@@\n a\n-b\n+c\n", "a\nc"),
        ("a  \nb\n", "@@\n a\n-b\n+c\n", "a\nc\n"),
    ] {
        let case = ToolFixture::new();
        case.write("f", before);
        let got = case.run(&EditTool::new(EditFormat::Patch), json!({"path": "f", "diff": diff})).await;
        assert_eq!(text(&got), "Edited f", "{diff:?}");
        assert_eq!(case.read("f"), after, "{diff:?}");
    }
}

#[tokio::test]
async fn a_patch_whose_place_is_in_doubt_is_refused() {
    let case = ToolFixture::new();
    case.write("f", "x\ny\nx\n");
    for (arguments, want) in [
        (json!({"diff": "@@\n-x\n+z\n"}), "hunk 1 does not match f: it matches at lines 1, 3; add lines around it"),
        (json!({"diff": "@@\n-q\n+z\n"}), "hunk 1 does not match f: its lines were not found."),
        (json!({"diff": "@@ none\n-x\n+z\n"}), "hunk 1 does not match f: no line \"none\" after line 0"),
        (json!({"diff": "@@\n?x\n"}), "line 2 of the diff begins with neither space, - nor +: ?x"),
        (json!({"diff": ""}), "diff has no hunk: nothing to change"),
        (json!({"op": "create", "diff": "x"}), "f exists already; use op update"),
    ] {
        let mut arguments = arguments;
        arguments["path"] = "f".into();
        let got = case.run(&EditTool::new(EditFormat::Patch), arguments).await;
        assert_eq!(failure(&got), want);
        assert_eq!(case.read("f"), "x\ny\nx\n");
    }
}

#[tokio::test]
async fn a_patch_can_make_rename_and_delete_a_file() {
    let case = ToolFixture::new();
    let patch = EditTool::new(EditFormat::Patch);
    case.run(&patch, json!({"path": "a/f", "op": "create", "diff": "+1\n+2\n"})).await.unwrap();
    assert_eq!(case.read("a/f"), "1\n2\n");
    let got = case.run(&patch, json!({"path": "a/f", "diff": "@@\n-1\n+one\n", "rename": "b/g"})).await;
    assert_eq!(text(&got), "Edited a/f and moved it to b/g");
    assert_eq!(case.read("b/g"), "one\n2\n");
    assert!(!case.path("a/f").exists());
    case.write("h", "");
    let got = case.run(&patch, json!({"path": "b/g", "rename": "h", "diff": "@@\n-2\n+3\n"})).await;
    assert_eq!(failure(&got), "h exists already: nothing was changed");
    let got = case.run(&patch, json!({"path": "b/g", "op": "delete"})).await;
    assert_eq!(text(&got), "Deleted b/g");
    assert!(!case.path("b/g").exists());
}
