use countersign_core::policy::{Action, Rule};

use super::{added, line, with, without};

const ITEM: &str = "{ pattern: \"b\", action: ask }";

#[test]
fn a_rule_is_one_line_whatever_its_texts_hold() {
    let mut rule = Rule::new("say(\"a\\b\"*\n\u{202e}\u{85}\u{7f}é\u{e0061})", Action::Allow);
    rule.principal = Some("kitchen".to_owned());
    rule.description = Some("it's: {fine} # yes".to_owned());
    let written = line(&rule);
    assert_eq!(
        written,
        r#"{ pattern: "say(\"a\\b\"*\n\u202e\u0085\u007fé\U000e0061)", principal: "kitchen", action: allow, description: "it's: {fine} # yes" }"#
    );
    let read = super::parsed(&written).unwrap();
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
        assert_eq!(with(before, ITEM), Ok(after.replace("ITEM", ITEM)), "{case}");
    }
}

#[test]
fn what_cannot_be_edited_safely_is_refused() {
    for before in
        ["{ rules: [] }\n", "rules: { a: 1 }\n", "rules: x\n", "- a\n", "rules: [\n", "rules: []\n...\n---\na: 1\n"]
    {
        assert!(with(before, ITEM).is_err(), "{before}");
    }
    assert!(with("  rules: []\n", ITEM).is_err(), "an indented mapping has no second key at another column");
}

#[test]
fn a_rule_is_taken_out_with_its_lines_alone() {
    let text = "rules:\n  # one\n  - pattern: a\n    # inside\n    action: deny\n\n  # two\n  - { pattern: b, action: ask }\ntests: []\n";
    let (out, cut) = without(text, 3, None).unwrap();
    assert_eq!(out, "rules:\n  # one\n\n  # two\n  - { pattern: b, action: ask }\ntests: []\n");
    assert_eq!(cut, "  - pattern: a\n    # inside\n    action: deny");
    let (out, _) = without(&out, 5, None).unwrap();
    assert_eq!(out, "rules:\n  # one\n\n  # two\ntests: []\n");
    assert_eq!(with(&out, ITEM).unwrap(), format!("rules:\n  - {ITEM}\n  # one\n\n  # two\ntests: []\n"));
    for (text, at) in [
        (text, 1),
        (text, 4),
        (text, 0),
        (text, 99),
        ("rules: [ { pattern: a, action: ask } ]\n", 1),
        ("rules:\n  -\n    pattern: a\n    action: ask\n", 3),
        ("defaults:\n  - { pattern: a, action: ask }\n", 2),
    ] {
        assert!(without(text, at, None).is_err(), "{text} {at}");
    }
}

#[test]
fn a_rule_is_changed_where_it_stands() {
    let text = "rules:\n  # one\n  - pattern: a\n    action: deny\n  - { pattern: c, action: ask }\n";
    let (out, cut) = without(text, 3, Some(ITEM)).unwrap();
    assert_eq!(out, format!("rules:\n  # one\n  - {ITEM}\n  - {{ pattern: c, action: ask }}\n"));
    assert_eq!(cut, "  - pattern: a\n    action: deny");
}

#[test]
fn what_was_put_in_is_found_among_the_lines() {
    assert_eq!(added("a\nb\n", "a\nx\nb\n"), 1..2);
    assert_eq!(added("a\na\n", "a\na\na\n"), 2..3);
    assert_eq!(added("", "rules:\n  - x\n"), 0..2);
    assert_eq!(added("rules: [ a ]\n", "rules: [ a, b ]\n"), 0..1);
}
