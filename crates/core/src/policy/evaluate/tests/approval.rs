//! What the approval mode asks about, beside everything else that decides.

use serde_json::json;

use super::{Layers, NOW, Surroundings, World, bash, evaluate, grant, granted, subject, surroundings, word};
use crate::{
    id::PrincipalId,
    policy::{ApprovalMode, Covers, Reach, Subject},
    tool::Effect,
};

fn judged(world: &World, mode: ApprovalMode, subject: &Subject) -> &'static str {
    let layers = Layers {
        compiled: &world.compiled,
        constraints: &world.constraints,
        contract: None,
        grants: &world.grants,
        posture: world.posture,
        surroundings: &Surroundings { approval: mode, ..surroundings() },
    };
    word(&evaluate(&layers, subject, NOW))
}

#[test]
fn a_mode_asks_each_time_whatever_allows_and_denials_stay() {
    let read = Subject { effect: Effect::Reads, reach: Reach::Files, ..subject("read", json!({"path": "a"})) };
    let write = Subject { reach: Reach::Files, ..subject("write", json!({"path": "a"})) };
    let deploy = subject("deploy", json!({}));
    let of_host = Subject { principal: PrincipalId::new("host"), ..bash("echo hi") };
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
        let world = World::new(rules);
        for (mode, want) in [(ApprovalMode::Yolo, yolo), (ApprovalMode::Write, asks), (ApprovalMode::AlwaysAsk, asks)] {
            assert_eq!(judged(&world, mode, subject), want, "{} under {rules:?} in {mode:?}", subject.signature);
        }
    }
}

#[test]
fn what_was_granted_for_good_is_asked_in_a_mode() {
    let call = bash("echo hi");
    let grants = granted([grant(1, Covers::Exact(call.digest()))]);
    let world = World { grants, ..World::new(&["ask bash(*)"]) };
    assert_eq!(judged(&world, ApprovalMode::Yolo, &call), "allow");
    assert_eq!(judged(&world, ApprovalMode::Write, &call), "floor");
}

#[test]
fn every_mode_has_a_name_of_its_own() {
    for mode in ApprovalMode::ALL {
        assert_eq!(ApprovalMode::named(mode.name()), Some(mode));
    }
    assert!(ApprovalMode::AlwaysAsk > ApprovalMode::Write && ApprovalMode::Write > ApprovalMode::Yolo);
    assert_eq!(ApprovalMode::named(""), None);
}
