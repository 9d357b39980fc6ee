//! Rules on paths, and calls that name the file in another spelling.

use serde_json::json;

use super::{PolicyFixture, word};
use crate::{
    policy::{
        EffectReach, PolicySubject,
        testing::{bash, subject},
    },
    tool::ToolEffect,
};

/// Returns a call of a file tool, in the home folder's `project`.
fn file(tool: &str, path: &str) -> PolicySubject {
    let effect = if matches!(tool, "read" | "ls") { ToolEffect::Reads } else { ToolEffect::Changes };
    PolicySubject {
        effect,
        reach: EffectReach::Files,
        paths: vec![path.to_owned()],
        ..subject(tool, json!({ "path": path }))
    }
}

fn verdict(rules: &[&str], call: &PolicySubject) -> &'static str {
    word(&PolicyFixture::new(rules).judge(call))
}

#[test]
fn an_allow_covers_the_file_that_is_reached() {
    for (rule, tool, path, want) in [
        ("write(src/*)", "write", "src/a", "allow"),
        ("write(src/*)", "write", "src/../../esc", "ask"),
        ("write(src/*)", "write", "src/x/../a", "allow"),
        ("write(src/*)", "write", "src//a", "allow"),
        ("write(src/*)", "write", "src/./a", "allow"),
        ("write(src/*)", "write", "src/x/../../../etc/passwd", "ask"),
        ("edit(src/*)", "edit", "src/../a", "ask"),
        ("ls(src*)", "ls", "src/../..", "ask"),
        ("ls(src/)", "ls", "src/", "allow"),
        ("read(src/*)", "read", "src/x/../../../etc/passwd", "ask"),
        ("write(./src/*)", "write", "./src/a", "allow"),
        ("write(./src/*)", "write", "./src/../a", "ask"),
        ("write(/home/ana/project/*)", "write", "/home/ana/project/../x", "ask"),
        ("write(/home/ana/project/*)", "write", "/home/ana/project/src/../a", "allow"),
        ("write(~/project/*)", "write", "~/project/../x", "ask"),
        ("write(~/project/*)", "write", "~/project/a", "allow"),
        ("write(../*)", "write", "../x", "allow"),
        ("write(../*)", "write", "../../x", "ask"),
        ("write(*)", "write", "../../x", "allow"),
        ("*", "write", "src/../../x", "allow"),
        ("save(src/*)", "save", "src/../../esc", "ask"),
    ] {
        let call = match tool {
            "save" => subject(tool, json!({ "path": path })),
            _ => file(tool, path),
        };
        assert_eq!(verdict(&[&format!("allow {rule}")], &call), want, "{rule} {path}");
    }
}

#[test]
fn a_denial_holds_for_the_file_however_it_is_spelled() {
    for (rule, tool, path) in [
        ("write(src/*)", "write", "./src/a"),
        ("write(src/*)", "write", "x/../src/a"),
        ("write(src/*)", "write", "/home/ana/project/src/a"),
        ("write(src/*)", "write", "~/project/src/a"),
        ("write(./src/*)", "write", "src/a"),
        ("write(/home/ana/project/src/*)", "write", "src/a"),
        ("write(~/project/src/*)", "write", "src/a"),
        ("edit(src/*)", "edit", "./src/a"),
        ("read(*.pem)", "read", "k.pem/"),
        ("read(/etc/*)", "read", "//etc/hostname"),
        ("read(/etc/*)", "read", "/tmp/../etc/hostname"),
        ("read(/etc/*)", "read", "~/../../etc/hostname"),
        ("read(/etc/*)", "read", "../../../etc/hostname"),
        ("save(src/*)", "save", "./src/a"),
    ] {
        let call = match tool {
            "save" => subject(tool, json!({ "path": path })),
            _ => file(tool, path),
        };
        assert_eq!(verdict(&[&format!("deny {rule}"), "allow *"], &call), "deny", "{rule} {path}");
        assert_eq!(verdict(&[&format!("ask {rule}")], &call), "ask", "{rule} {path}");
        assert_eq!(verdict(&["deny write(other/*)", "allow *"], &call), "allow", "{rule} {path}");
    }
}

#[test]
fn a_rule_on_an_argument_holds_for_the_file_as_well() {
    let rules = |action: &str| {
        let rule = json!({"tool": "write", "args": {"path": "src/*"}, "action": action});
        let allow = json!({"pattern": "*", "action": if action == "deny" { "allow" } else { "ask" }});
        let rules = serde_json::from_value(json!({"rules": [rule, allow]})).unwrap();
        let compiled =
            crate::policy::compile_rules(vec![super::source(crate::policy::RuleLayer::Main, rules)]).unwrap();
        PolicyFixture { compiled, ..PolicyFixture::new(&[]) }
    };
    for (path, denied, allowed) in [
        ("src/a", "deny", "allow"),
        ("./src/a", "deny", "ask"),
        ("src/../../a", "deny", "ask"),
        ("src/x/../a", "deny", "allow"),
    ] {
        assert_eq!(word(&rules("deny").judge(&file("write", path))), denied, "{path}");
        assert_eq!(word(&rules("allow").judge(&file("write", path))), allowed, "{path}");
    }
}

#[test]
fn a_link_is_judged_by_where_it_leads() {
    let call = |path: &str, to: &str| PolicySubject { leads_to: Some(to.to_owned()), ..file("write", path) };
    for (rules, path, to, want) in [
        (&["deny write(src/*)", "allow *"][..], "link/a", "/home/ana/project/src/a", "deny"),
        (&["deny write(/etc/*)", "allow *"], "link", "/etc/x", "deny"),
        (&["allow write(link/*)"], "link/a", "/srv/x", "ask"),
        (&["allow write(link/*)", "allow write(/srv/x)"], "link/a", "/srv/x", "allow"),
        (&["allow write(src/*)"], "src/l/a", "/home/ana/project/src/m/a", "allow"),
        (&["allow write(*)"], "link", "/home/ana/project/.git/config", "ask"),
    ] {
        assert_eq!(verdict(rules, &call(path, to)), want, "{rules:?} {path} {to}");
    }
}

#[test]
fn a_grant_for_a_folder_does_not_reach_out_of_it() {
    use crate::policy::{
        GrantCoverage,
        testing::{grant, grant_set},
    };
    for (path, want) in [("src/a", "allow"), ("src/../../esc", "ask")] {
        let grants = grant_set([grant(1, GrantCoverage::Pattern("write(src/*)".to_owned()))]);
        let world = PolicyFixture { grants, ..PolicyFixture::new(&["ask *"]) };
        assert_eq!(word(&world.judge(&file("write", path))), want, "{path}");
    }
}

#[test]
fn the_words_of_a_line_are_judged_by_the_files_that_they_name() {
    for (rules, line, want) in [
        (&["allow bash(rm src/*)"][..], "rm src/a", "allow"),
        (&["allow bash(rm src/*)"], "rm src/../a", "ask"),
        (&["allow bash(rm src/*)"], "rm src/x/../a", "allow"),
        (&["allow bash(cat src/*)"], "cat src/x/../../../etc/passwd", "ask"),
        (&["allow bash(cat ./src/*)"], "cat ./src/a", "allow"),
        (&["allow bash(cat *)"], "cat src/../a", "allow"),
        (&["allow bash(cat src/*)"], "cat src/$X/../../a", "ask"),
        (&["allow bash(cd src*)"], "cd src/..", "ask"),
        (&["deny bash(cat src/*)", "allow *"], "cat ./src/a", "deny"),
        (&["deny bash(cat src/*)", "allow *"], "cat x/../src/a", "deny"),
        (&["deny bash(cat src/*)", "allow *"], "cat -n /home/ana/project/src/a", "allow"),
        (&["deny bash(cat * src/*)", "allow *"], "cat -n /home/ana/project/src/a", "deny"),
        (&["deny bash(cat src/*)", "allow *"], "cat ~/project/src/a", "deny"),
        (&["deny bash(cat src/*)", "allow *"], "cd src && cat a", "deny"),
        (&["deny bash(cat /home/ana/project/src/*)", "allow *"], "cat src/a", "deny"),
        (&["deny bash(cat /home/ana/project/key)", "allow *"], "cat key", "deny"),
        (&["deny bash(cat /etc/*)", "allow *"], "cat //etc/hostname", "deny"),
        (&["deny bash(cat src/*)", "allow *"], "cat ./src/*", "deny"),
        (&["deny bash(cat src/*)", "allow *"], "cat other/a", "allow"),
    ] {
        assert_eq!(verdict(rules, &bash(line)), want, "{rules:?} {line}");
    }
}

#[test]
fn a_step_up_behind_a_name_may_lead_out_through_a_link() {
    let rules = &["allow bash(cd *)", "allow bash(git *)"];
    for (line, want) in [
        ("git status", "allow"),
        ("git -C . status", "allow"),
        ("git -C sub/.. status", "ask"),
        ("git -C ./sub/../ status", "ask"),
        ("cd -P sub/.. && git status", "ask"),
        ("cd -LP sub/.. && git status", "ask"),
        ("cd sub/.. && git status", "allow"),
        ("cd sub && git -C .. status", "ask"),
        ("cd sub && cd -P .. && git status", "ask"),
        ("git fetch sub/..", "ask"),
    ] {
        assert_eq!(verdict(rules, &bash(line)), want, "{line}");
    }
}
