use countersign_core::policy::{Rule, RuleAction};

use super::{added_lines, list_entry, rule_line, rule_text, with_rule, without_rule};

const ITEM: &str = "{ pattern: \"b\", action: ask }";

#[test]
fn a_rule_is_one_line_whatever_its_texts_hold() {
    let mut rule = Rule::new("say(\"a\\b\"*\n\u{202e}\u{85}\u{7f}é\u{e0061})", RuleAction::Allow);
    rule.principal = Some("kitchen".to_owned());
    rule.description = Some("it's: {fine} # yes".to_owned());
    let written = rule_line(&rule);
    assert_eq!(
        written,
        r#"{ pattern: "say(\"a\\b\"*\n\u202e\u0085\u007fé\U000e0061)", principal: "kitchen", action: allow, description: "it's: {fine} # yes" }"#
    );
    let read = super::parse_tree(&written).unwrap();
    assert_eq!(read["pattern"], rule.pattern.unwrap());
    assert_eq!(read["description"], "it's: {fine} # yes");
}

#[test]
fn a_rule_goes_behind_the_last_one_and_nothing_else_changes() {
    for (case, before, after) in [
        ("new file", "", "rules:\n  - ITEM\n"),
        ("comments only", "# mine\n", "# mine\nrules:\n  - ITEM\n"),
        (
            "no rules",
            "defaults:\n- { pattern: a, action: ask }",
            "defaults:\n- { pattern: a, action: ask }\nrules:\n  - ITEM\n",
        ),
        ("no value", "rules: # none yet\ntests: []\n", "rules: # none yet\n  - ITEM\ntests: []\n"),
        (
            "block",
            "rules:\n    # one\n    - pattern: a   # why\n      action: deny\n\n# about tests\ntests: []\n",
            "rules:\n    # one\n    - pattern: a   # why\n      action: deny\n    - ITEM\n\n# about tests\ntests: []\n",
        ),
        (
            "at the column of its key, without an end of line",
            "rules:\n- { pattern: a, action: deny }",
            "rules:\n- { pattern: a, action: deny }\n- ITEM\n",
        ),
        (
            "carriage returns",
            "rules:\r\n  - { pattern: a, action: deny }\r\ntests: []\r\n",
            "rules:\r\n  - { pattern: a, action: deny }\r\n  - ITEM\r\ntests: []\r\n",
        ),
        ("brackets, none", "rules: [] # none\n", "rules: [ ITEM ] # none\n"),
        (
            "brackets",
            "rules: [ { pattern: 'a]', action: deny } ]\n",
            "rules: [ { pattern: 'a]', action: deny }, ITEM ]\n",
        ),
        (
            "brackets over lines",
            "rules: [\n  { pattern: \"a\\\"]\", action: deny }, # ]\n]\ntests: []\n",
            "rules: [\n  { pattern: \"a\\\"]\", action: deny }, ITEM # ]\n]\ntests: []\n",
        ),
    ] {
        assert_eq!(with_rule(before, ITEM), Ok(after.replace("ITEM", ITEM)), "{case}");
    }
}

#[test]
fn what_cannot_be_edited_safely_is_refused() {
    for before in
        ["{ rules: [] }\n", "rules: { a: 1 }\n", "rules: x\n", "- a\n", "rules: [\n", "rules: []\n...\n---\na: 1\n"]
    {
        assert!(with_rule(before, ITEM).is_err(), "{before}");
    }
    assert!(with_rule("  rules: []\n", ITEM).is_err(), "an indented mapping has no second key at another column");
}

#[test]
fn a_rule_is_taken_out_with_its_lines_alone() {
    let text = "rules:\n  # one\n  - pattern: a\n    # inside\n    action: deny\n\n  # two\n  - { pattern: b, action: ask }\ntests: []\n";
    let (out, cut) = without_rule(text, 3, None).unwrap();
    assert_eq!(out, "rules:\n  # one\n\n  # two\n  - { pattern: b, action: ask }\ntests: []\n");
    assert_eq!(cut, "  - pattern: a\n    # inside\n    action: deny");
    let (out, _) = without_rule(&out, 5, None).unwrap();
    assert_eq!(out, "rules:\n  # one\n\n  # two\ntests: []\n");
    assert_eq!(with_rule(&out, ITEM).unwrap(), format!("rules:\n  - {ITEM}\n  # one\n\n  # two\ntests: []\n"));
    for (text, at) in [
        (text, 1),
        (text, 4),
        (text, 0),
        (text, 99),
        ("rules: [ { pattern: a, action: ask } ]\n", 1),
        ("rules:\n  -\n    pattern: a\n    action: ask\n", 3),
        ("defaults: [ { pattern: a, action: ask } ]\n", 1),
    ] {
        assert!(without_rule(text, at, None).is_err(), "{text} {at}");
    }
}

#[test]
fn a_rule_is_changed_where_it_stands() {
    let text = "rules:\n  # one\n  - pattern: a\n    action: deny\n  - { pattern: c, action: ask }\n";
    let (out, cut) = without_rule(text, 3, Some(ITEM)).unwrap();
    assert_eq!(out, format!("rules:\n  # one\n  - {ITEM}\n  - {{ pattern: c, action: ask }}\n"));
    assert_eq!(cut, "  - pattern: a\n    action: deny");
}

#[test]
fn what_was_put_in_is_found_among_the_lines() {
    assert_eq!(added_lines("a\nb\n", "a\nx\nb\n"), 1..2);
    assert_eq!(added_lines("a\na\n", "a\na\na\n"), 2..3);
    assert_eq!(added_lines("", "rules:\n  - x\n"), 0..2);
    assert_eq!(added_lines("rules: [ a ]\n", "rules: [ a, b ]\n"), 0..1);
}

#[test]
fn a_rule_is_shown_as_it_stands_and_put_back_in_its_place() {
    let text = "rules:\r\n    -   tool: pay   # careful\r\n        args:\r\n          to: \"ana\"\r\n\r\n          # at most\r\n          sum: { max: 5 }\r\n        action: ask\r\n    - { pattern: b, action: ask } # two\r\ndefaults:\r\n- pattern: '*'\r\n  action: deny\r\n";
    let shown = "tool: pay   # careful\nargs:\n  to: \"ana\"\n\n  # at most\n  sum: { max: 5 }\naction: ask";
    assert_eq!(rule_text(text, 2).as_deref(), Ok(shown));
    assert_eq!(rule_text(text, 9).as_deref(), Ok("{ pattern: b, action: ask } # two"));
    assert_eq!(rule_text(text, 11).as_deref(), Ok("pattern: '*'\naction: deny"));
    let (out, _) = without_rule(text, 2, Some(&shown.replace("max: 5", "max: 6"))).unwrap();
    assert_eq!(rule_text(&out, 2).unwrap(), shown.replace("max: 5", "max: 6"));
    assert!(out.contains("    - tool: pay   # careful\r\n      args:\r\n        to: \"ana\"\r\n\r\n"), "{out}");
    assert!(out.ends_with("- pattern: '*'\r\n  action: deny\r\n"), "{out}");
    let (out, cut) = without_rule(text, 11, Some("{ pattern: '*', action: ask }")).unwrap();
    assert!(out.ends_with("defaults:\r\n- { pattern: '*', action: ask }\r\n"), "{out}");
    assert_eq!(cut, "- pattern: '*'\r\n  action: deny");
    assert!(without_rule(text, 11, None).unwrap().0.ends_with("# two\r\ndefaults:\r\n"));
    for at in [1, 3, 10, 12, 99] {
        assert!(rule_text(text, at).is_err(), "{at}");
    }
}

#[test]
fn what_is_written_over_lines_goes_in_whole_or_not_at_all() {
    let item = "tool: pay\nargs:\n  to: |\n    a\n\n    b\naction: ask";
    let want = "rules:\n  - tool: pay\n    args:\n      to: |\n        a\n\n        b\n    action: ask\n";
    assert_eq!(with_rule("", item).as_deref(), Ok(want));
    assert_eq!(rule_text(want, 2).as_deref(), Ok(item));
    assert!(with_rule("rules: []\n", item).unwrap_err().contains("on one line"));
    for item in
        ["", "# nothing", "pay", "- pattern: a\n  action: ask", "a: [", "a: 1\n---\nb: 2", "pattern: a\n  action: b"]
    {
        assert!(with_rule("", item).is_err(), "{item}");
        assert!(without_rule("rules:\n  - { pattern: a, action: ask }\n", 2, Some(item)).is_err(), "{item}");
    }
    // Neither what closes a bracket nor what begins another list gets out of its place.
    for item in [
        "pattern: a }, { pattern: b",
        "{ pattern: a, action: ask }\n- { pattern: b, action: allow }",
        "a: 1\ndefaults: [ 1 ]",
    ] {
        let before = "rules:\n  - { pattern: c, action: ask }\ndefaults: []\n";
        if let Ok(after) = with_rule(before, item) {
            assert_eq!(super::parse_tree(&after).unwrap()["defaults"], serde_json::json!([]), "{after}");
            assert_eq!(super::parse_tree(&after).unwrap()["rules"].as_array().unwrap().len(), 2, "{after}");
        }
    }
}

#[test]
fn an_entry_keeps_its_lines_below_its_dash() {
    assert_eq!(list_entry("a: 1", 2, "\n"), "  - a: 1\n");
    assert_eq!(list_entry("a: 1\n\nb:\n  c: 2", 0, "\r\n"), "- a: 1\r\n\r\n  b:\r\n    c: 2\r\n");
}
