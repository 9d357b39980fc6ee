use std::{fs, os::unix::fs::PermissionsExt as _};

use super::{AgentChange, AgentsError, ListedAgent, TokenSource, change_agents, edited_agents, list_agents, new_token};

const ADD: AgentChange<'_> = AgentChange::Add { id: "new", token: "${NEW_TOKEN}" };

#[test]
fn an_agent_is_added_in_the_form_of_the_others() {
    for (case, before, after) in [
        ("empty", "", "agents:\n  - { id: new, token: \"${NEW_TOKEN}\" }\n"),
        (
            "none yet",
            "# top\na: 1 # one\n\n# end\n",
            "# top\na: 1 # one\nagents:\n  - { id: new, token: \"${NEW_TOKEN}\" }\n\n# end\n",
        ),
        ("an empty list", "agents: []\nb: 1\n", "agents:\n  - { id: new, token: \"${NEW_TOKEN}\" }\nb: 1\n"),
        ("nothing", "agents:\nb: 1\n", "agents:\n  - { id: new, token: \"${NEW_TOKEN}\" }\nb: 1\n"),
        (
            "in lines",
            "agents:  # all\n    # the first\n    - id: a\n      token: x # old\n    # the second\n    - id: b\n      token: y\n\n# of c\nc: 1\n",
            "agents:  # all\n    # the first\n    - id: a\n      token: x # old\n    # the second\n    - id: b\n      token: y\n    - id: new\n      token: \"${NEW_TOKEN}\"\n\n# of c\nc: 1\n",
        ),
        (
            "in braces",
            "agents:\n- { id: a, token: ${A} } # a\nc: 1\n",
            "agents:\n- { id: a, token: ${A} } # a\n- { id: new, token: \"${NEW_TOKEN}\" }\nc: 1\n",
        ),
        (
            "in brackets",
            "agents: [ { id: a, token: ${A} } ] # all\nc: 1\n",
            "agents:\n  # all\n  - { id: a, token: \"${A}\" }\n  - { id: new, token: \"${NEW_TOKEN}\" }\nc: 1\n",
        ),
        (
            "in brackets over lines",
            "agents: [\n  # one\n  { id: a, token: x }, # first\n]\n",
            "agents:\n  # one\n  # first\n  - { id: a, token: x }\n  - { id: new, token: \"${NEW_TOKEN}\" }\n",
        ),
        ("foreign line ends", "a: 1\r\n", "a: 1\r\nagents:\r\n  - { id: new, token: \"${NEW_TOKEN}\" }\r\n"),
    ] {
        assert_eq!(edited_agents(before, ADD), Ok(after.to_owned()), "{case}");
    }
}

#[test]
fn another_token_changes_that_token_alone() {
    let lines = "agent: { token: t } # first\nagents:\n  # of a\n  - id: a # a\n    token: x # of a\n  - token: \"y\"\n    id: b\n  - { id: c, token: z }  # of c\nd: 1\n";
    for (id, old, new) in [
        ("a", "    token: x # of a", "    token: k-1  # of a"),
        ("b", "  - token: \"y\"", "  - token: k-1"),
        ("c", "  - { id: c, token: z }  # of c", "  - { id: c, token: k-1 }  # of c"),
        ("default", "agent: { token: t } # first", "agent:  # first\n  token: k-1"),
    ] {
        let want = lines.replace(old, new);
        assert_ne!(want, lines, "{id}");
        assert_eq!(edited_agents(lines, AgentChange::Rotate { id, token: "k-1" }), Ok(want), "{id}");
    }
}

#[test]
fn a_removed_agent_takes_nothing_else_along() {
    let lines = "agent: # first\n  token: t\nagents: # all\n  # of a\n  - id: a\n    token: x\n  # of b\n  - { id: b, token: y }\n\n# of d\nd: 1\n";
    for (id, gone) in [("a", "  - id: a\n    token: x\n"), ("b", "  - { id: b, token: y }\n")] {
        assert_eq!(edited_agents(lines, AgentChange::Remove { id }), Ok(lines.replace(gone, "")), "{id}");
    }
    let want = lines.replace("agent: # first\n  token: t\n", "# first\n");
    assert_eq!(edited_agents(lines, AgentChange::Remove { id: "default" }), Ok(want));
    let only = "agents: # all\n  - { id: a, token: x }\nb: 1\n";
    assert_eq!(edited_agents(only, AgentChange::Remove { id: "a" }), Ok("# all\nb: 1\n".to_owned()));
    let folded = "agents:\n  - id: a\n    token: >-\n      x\n  - id: b\n    token: y\n";
    assert_eq!(
        edited_agents(folded, AgentChange::Remove { id: "a" }),
        Ok("agents:\n  - id: b\n    token: y\n".to_owned())
    );
}

#[test]
fn what_cannot_be_changed_safely_is_left_alone() {
    for text in [
        "[1]\n",
        "agents: &x [ { id: a, token: b } ]\nother: *x\n",
        "agents: [\n",
        "agents:\n  - id: a\n    token: >-\n      x\n",
        "{ agents: [ { id: a, token: b } ] }\n",
    ] {
        assert!(edited_agents(text, AgentChange::Rotate { id: "a", token: "k" }).is_err(), "{text}");
    }
}

#[test]
fn a_file_that_gets_a_token_to_hold_is_its_owners_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("config.yaml");
    let mode = || fs::metadata(&path).unwrap().permissions().mode() & 0o777;
    assert!(!change_agents(&path, AgentChange::Add { id: "a", token: "${A}" }).unwrap());
    assert_eq!(mode(), 0o600, "a new file");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    assert!(!change_agents(&path, AgentChange::Add { id: "b", token: "${B}" }).unwrap());
    assert_eq!(mode(), 0o644, "a variable is no secret");
    let token = new_token().unwrap();
    assert!(change_agents(&path, AgentChange::Rotate { id: "b", token: &token }).unwrap());
    assert_eq!(mode(), 0o600, "a token is one");
    let listed = |id: &str, token| ListedAgent { id: id.to_owned(), token };
    assert_eq!(
        list_agents(&path).unwrap(),
        [listed("a", TokenSource::Variable("A".to_owned())), listed("b", TokenSource::File)]
    );
}

#[test]
fn a_file_that_root_gave_to_a_group_stays_that_groups_to_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("config.yaml");
    fs::write(&path, "").unwrap();
    // Only root can give it away.
    if std::os::unix::fs::chown(&path, Some(0), Some(4712)).is_err() {
        return;
    }
    let mode = || fs::metadata(&path).unwrap().permissions().mode() & 0o777;
    for (number, (before, want, is_tightened)) in
        [(0o640, 0o640, false), (0o644, 0o640, true), (0o660, 0o640, true), (0o604, 0o600, true)]
            .into_iter()
            .enumerate()
    {
        fs::set_permissions(&path, fs::Permissions::from_mode(before)).unwrap();
        let add = AgentChange::Add { id: &format!("a{number}"), token: "secret" };
        assert_eq!(change_agents(&path, add).unwrap(), is_tightened, "{before:o}");
        assert_eq!(mode(), want, "{before:o}");
    }
}

#[test]
fn an_agent_that_is_there_or_not_there_and_a_name_that_is_none_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("config.yaml");
    assert!(matches!(change_agents(&path, AgentChange::Remove { id: "a" }), Err(AgentsError::Io { .. })));
    fs::write(&path, "agents: [ { id: a, token: x } ]\n").unwrap();
    let add = |id| change_agents(&path, AgentChange::Add { id, token: "${A}" });
    assert!(matches!(add("a"), Err(AgentsError::Known(_))));
    for id in ["", "a b", "-a", "a:b", "ä"] {
        assert!(matches!(add(id), Err(AgentsError::Name(_))), "{id:?}");
    }
    for change in [AgentChange::Remove { id: "b" }, AgentChange::Rotate { id: "default", token: "x" }] {
        assert!(matches!(change_agents(&path, change), Err(AgentsError::Unknown(_))), "{change:?}");
    }
    assert_eq!(fs::read_to_string(&path).unwrap(), "agents: [ { id: a, token: x } ]\n");
}

#[test]
fn a_file_that_cannot_be_replaced_keeps_its_mode() {
    let folder = tempfile::tempdir().unwrap();
    // A name as long as names get leaves none for the new file.
    let path = folder.path().join("c".repeat(255));
    fs::write(&path, "a: 1\n").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    assert!(change_agents(&path, AgentChange::Add { id: "new", token: "secret" }).is_err());
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);
    assert_eq!(fs::read_to_string(&path).unwrap(), "a: 1\n");
}
