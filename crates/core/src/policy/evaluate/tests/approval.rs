//! Verdicts of the approval mode, together with the other layers.

use serde_json::json;

use super::{
    NOW, PathContext, PolicyFixture, PolicyLayers, bash, evaluate, grant, grant_set, path_context, subject, word,
};
use crate::{
    id::PrincipalId,
    policy::{ApprovalMode, EffectReach, GrantCoverage, PolicySubject},
    tool::ToolEffect,
};

fn judged(world: &PolicyFixture, mode: ApprovalMode, subject: &PolicySubject) -> &'static str {
    judged_in(world, &PathContext { approval: mode, ..path_context() }, subject)
}

fn judged_in(world: &PolicyFixture, context: &PathContext, subject: &PolicySubject) -> &'static str {
    let layers = PolicyLayers {
        compiled: &world.compiled,
        constraints: &world.constraints,
        contract: None,
        grants: &world.grants,
        default_policy: world.posture,
        path_context: context,
    };
    word(&evaluate(&layers, subject, NOW))
}

#[test]
fn a_mode_asks_each_time_whatever_allows_and_denials_stay() {
    let read =
        PolicySubject { effect: ToolEffect::Reads, reach: EffectReach::Files, ..subject("read", json!({"path": "a"})) };
    let write = PolicySubject { reach: EffectReach::Files, ..subject("write", json!({"path": "a"})) };
    let deploy = subject("deploy", json!({}));
    let of_host = PolicySubject { principal: PrincipalId::new("host"), ..bash("echo hi") };
    for (rules, subject, yolo, asks) in [
        (&[][..], &bash("echo hi"), "allow", "floor"),
        (&[], &bash("ls"), "allow", "floor"),
        (&[], &write, "allow", "floor"),
        (&[], &deploy, "allow", "floor"),
        (&[], &read, "allow", "allow"),
        (&[], &of_host, "allow", "allow"),
        (&["allow *"], &bash("echo hi"), "allow", "floor"),
        (&["allow write(*)"], &write, "allow", "floor"),
        (&["default allow *"], &deploy, "allow", "floor"),
        (&["deny bash(echo *)"], &bash("echo hi"), "deny", "deny"),
        (&["ask read(*)"], &read, "ask", "ask"),
        (&["default deny *"], &write, "deny", "deny"),
    ] {
        let world = PolicyFixture::new(rules);
        for (mode, want) in [(ApprovalMode::Yolo, yolo), (ApprovalMode::Write, asks), (ApprovalMode::AlwaysAsk, asks)] {
            assert_eq!(judged(&world, mode, subject), want, "{} under {rules:?} in {mode:?}", subject.signature);
        }
    }
}

#[test]
fn a_tool_that_always_asks_is_allowed_by_nothing_and_denied_by_rules() {
    let call = subject("mcp_server", json!({"server": "files"}));
    let asked = PathContext { always_asked: vec![("mcp_server".to_owned(), "starts it".to_owned())], ..path_context() };
    for (rules, want) in [
        (&[][..], "floor"),
        (&["allow *"], "floor"),
        (&["allow mcp_server(*)"], "floor"),
        (&["deny mcp_server(*)"], "deny"),
    ] {
        let grants = grant_set([grant(1, GrantCoverage::Exact(call.digest()))]);
        let world = PolicyFixture { grants, ..PolicyFixture::new(rules) };
        assert_eq!(judged_in(&world, &asked, &call), want, "{rules:?}");
    }
}

#[test]
fn a_standing_approval_does_not_cover_calls_in_an_approval_mode() {
    let call = bash("echo hi");
    let grants = grant_set([grant(1, GrantCoverage::Exact(call.digest()))]);
    let world = PolicyFixture { grants, ..PolicyFixture::new(&["ask bash(*)"]) };
    assert_eq!(judged(&world, ApprovalMode::Yolo, &call), "allow");
    assert_eq!(judged(&world, ApprovalMode::Write, &call), "floor");
}

#[test]
fn every_mode_has_a_name_of_its_own() {
    for mode in ApprovalMode::ALL {
        assert_eq!(ApprovalMode::from_name(mode.name()), Some(mode));
    }
    assert!(ApprovalMode::AlwaysAsk > ApprovalMode::Write && ApprovalMode::Write > ApprovalMode::Yolo);
    assert_eq!(ApprovalMode::from_name(""), None);
}
