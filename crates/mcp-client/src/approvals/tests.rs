use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    os::unix::fs::{PermissionsExt as _, symlink},
};

use countersign_runtime::tools::GatewaySecrets;
use serde_json::{Value, json};

use super::{
    ApprovalChange, ApprovalError, ApprovalNote, ApprovalOrigin, ApprovalTimes, ApprovedServers, ServerApproval,
    ToolApproval,
};
use crate::{
    definition::{ServerDefinition, ServerTransport},
    listing::{ServerListing, ServerTool},
};
use countersign_core::{id::PrincipalId, policy::ServerChange, time::Millis};

const AT: Millis = Millis(7);

fn definition(args: &[&str]) -> ServerDefinition {
    let transport = ServerTransport::Stdio {
        command: "server".to_owned(),
        args: args.iter().map(|&arg| arg.to_owned()).collect(),
        env: [("TOKEN".to_owned(), "s3cret-value".into())].into(),
        cwd: None,
    };
    ServerDefinition::new("files", transport)
}

fn listing(tools: &[(&str, &str)]) -> ServerListing {
    let entry = |(name, description): &(&str, &str)| json!({"name": name, "description": description, "inputSchema": {"type": "object", "properties": {"path": {"type": "string"}}}});
    ServerListing::from_entries("files", &tools.iter().map(entry).collect::<Vec<Value>>())
}

fn states(approval: &ServerApproval) -> Vec<(&str, ToolApproval)> {
    approval.tools.iter().map(|(tool, state)| (tool.name.as_str(), state.clone())).collect()
}

fn usable(approval: &ServerApproval) -> Vec<&str> {
    approval.usable_tools().map(|tool| tool.name.as_str()).collect()
}

#[test]
fn a_server_is_compared_with_its_approval_across_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let before = listing(&[("read", "Reads."), ("list", "Lists."), ("old", "Old.")]);
    let mut approvals = ApprovedServers::open(folder.path()).unwrap();
    let first = approvals.compare(&definition(&[]), &before);
    assert!(first.is_new && !first.definition_changed && usable(&first).is_empty());
    approvals.approve(approvals.mark("files"), &definition(&[]), &before.tools, &ApprovalOrigin::Gate, AT).unwrap();

    let approvals = ApprovedServers::open(folder.path()).unwrap();
    let now = listing(&[("read", "Reads."), ("list", "Lists everything."), ("write", "Writes.")]);
    let compared = approvals.compare(&definition(&[]), &now);
    let differences = vec!["description: was \"Lists.\", is \"Lists everything.\"".to_owned()];
    assert_eq!(
        states(&compared),
        [
            ("read", ToolApproval::Approved),
            ("list", ToolApproval::Changed { differences }),
            ("write", ToolApproval::New),
            ("old", ToolApproval::Gone),
        ]
    );
    assert_eq!(usable(&compared), ["read"]);
    let approved: Vec<ServerTool> = approvals.approved_tools(&definition(&[]));
    assert_eq!(approved.iter().map(|tool| tool.name.as_str()).collect::<Vec<_>>(), ["list", "old", "read"]);

    let moved = approvals.compare(&definition(&["/"]), &now);
    assert!(!moved.is_new && moved.definition_changed && usable(&moved).is_empty());
    assert_eq!(approvals.approved_tools(&definition(&["/"])), []);
}

#[test]
fn differences_of_schemas_are_named_by_their_place() {
    let folder = tempfile::tempdir().unwrap();
    let mut approvals = ApprovedServers::open(folder.path()).unwrap();
    let tool = |schema: Value| ServerListing::from_entries("files", &[json!({"name": "read", "inputSchema": schema})]);
    let before = tool(json!({"type": "object", "properties": {"path": {"type": "string"}}}));
    approvals.approve(approvals.mark("files"), &definition(&[]), &before.tools, &ApprovalOrigin::Gate, AT).unwrap();
    let now = tool(json!({"type": "object", "properties": {"path": {"type": "number"}, "to": {}}, "required": ["to"]}));
    let compared = approvals.compare(&definition(&[]), &now);
    let want = [
        "schema/properties/path/type: was \"string\", is \"number\"",
        "schema/properties/to: added {}",
        "schema/required: added [\"to\"]",
    ];
    let differences = want.map(str::to_owned).to_vec();
    assert_eq!(states(&compared), [("read", ToolApproval::Changed { differences })]);
}

#[test]
fn a_server_is_revoked_once() {
    let folder = tempfile::tempdir().unwrap();
    let tools = listing(&[("read", "Reads."), ("list", "Lists.")]);
    let mut approvals = ApprovedServers::open(folder.path()).unwrap();
    approvals.approve(approvals.mark("files"), &definition(&[]), &tools.tools[..1], &ApprovalOrigin::Gate, AT).unwrap();
    assert_eq!(usable(&approvals.compare(&definition(&[]), &tools)), ["read"]);
    assert!(approvals.revoke("files", &PrincipalId::new("ana"), AT).unwrap());
    assert!(!approvals.revoke("files", &PrincipalId::new("ana"), AT).unwrap());
    assert_eq!(ApprovedServers::open(folder.path()).unwrap().server_names().count(), 0);
}

#[test]
fn no_secret_is_in_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let mut approvals = ApprovedServers::open(folder.path()).unwrap();
    approvals
        .approve(
            approvals.mark("files"),
            &definition(&[]),
            &listing(&[("read", "Reads.")]).tools,
            &ApprovalOrigin::Gate,
            AT,
        )
        .unwrap();
    let path = folder.path().join("mcp-approvals.json");
    assert!(!fs::read_to_string(&path).unwrap().contains("s3cret-value"));
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn a_file_that_cannot_be_read_whole_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("mcp-approvals.json");
    for (case, text) in [
        ("empty", ""),
        ("cut", "{\"version\": 1, \"servers\": {"),
        ("version", "{\"version\": 2, \"servers\": {}}"),
        ("unknown member", "{\"version\": 1, \"servers\": {}, \"all\": true}"),
        ("no servers", "{\"version\": 1}"),
        ("digest", "{\"version\": 1, \"servers\": {\"a\": {\"definition\": \"x\", \"tools\": {}}}}"),
    ] {
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        assert!(matches!(ApprovedServers::open(folder.path()), Err(ApprovalError::Invalid { .. })), "{case}");
    }
    fs::write(&path, "{\"version\": 1, \"servers\": {}}").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o620)).unwrap();
    assert!(matches!(ApprovedServers::open(folder.path()), Err(ApprovalError::Open { mode: 0o620, .. })));
    fs::remove_file(&path).unwrap();
    symlink("nowhere", &path).unwrap();
    assert!(matches!(ApprovedServers::open(folder.path()), Err(ApprovalError::Unreadable { .. })));
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    assert!(ApprovedServers::open(folder.path()).is_err());
}

#[test]
fn a_revoked_server_is_remembered_until_its_standing_approvals_are_gone() {
    let folder = tempfile::tempdir().unwrap();
    let open = || ApprovedServers::open(folder.path()).unwrap();
    assert!(!open().revoke("files", &PrincipalId::new("ana"), AT).unwrap() && open().revoked().is_empty());
    open()
        .approve(
            open().mark("files"),
            &definition(&[]),
            &listing(&[("read", "Reads.")]).tools,
            &ApprovalOrigin::Gate,
            AT,
        )
        .unwrap();
    assert!(open().revoke("files", &PrincipalId::new("ana"), AT).unwrap());
    // An approval that comes in between does not hide it.
    open()
        .approve(
            open().mark("files"),
            &definition(&[]),
            &listing(&[("read", "Reads.")]).tools,
            &ApprovalOrigin::Gate,
            AT,
        )
        .unwrap();
    let revoked = open().revoked().clone();
    assert_eq!(revoked, ["files".to_owned()].into());
    open().forget_revoked(&revoked).unwrap();
    assert!(open().revoked().is_empty() && open().is_approved(&definition(&[])));
}

#[test]
fn changes_by_persons_wait_for_the_record_and_those_of_gates_do_not() {
    let folder = tempfile::tempdir().unwrap();
    let tools = listing(&[("read", "Reads.")]).tools;
    let ana = PrincipalId::new("local:1000");
    let mut approvals = ApprovedServers::open(folder.path()).unwrap();
    approvals.approve(approvals.mark("files"), &definition(&[]), &tools, &ApprovalOrigin::Gate, AT).unwrap();
    assert_eq!(approvals.approval_note(&definition(&[])), Some(&ApprovalNote { at: AT, by: None }));
    assert!(approvals.unrecorded().is_empty());
    approvals
        .approve(approvals.mark("files"), &definition(&[]), &tools, &ApprovalOrigin::Person(ana.clone()), Millis(8))
        .unwrap();
    assert!(
        approvals.revoke("files", &ana, Millis(9)).unwrap() && !approvals.revoke("files", &ana, Millis(10)).unwrap()
    );

    let mut approvals = ApprovedServers::open(folder.path()).unwrap();
    let change = |change, at| ApprovalChange { server: "files".to_owned(), change, by: ana.clone(), at: Millis(at) };
    let (approved, revoked) = (change(ServerChange::Approved, 8), change(ServerChange::Revoked, 9));
    assert_eq!(approvals.unrecorded(), [approved.clone(), revoked.clone()]);
    assert_eq!(approvals.approval_note(&definition(&[])), None);
    approvals.mark_recorded(std::slice::from_ref(&approved)).unwrap();
    approvals.mark_recorded(&[approved]).unwrap();
    assert_eq!(ApprovedServers::open(folder.path()).unwrap().unrecorded(), [revoked]);
}

#[test]
fn a_file_without_authors_is_still_read() {
    let folder = tempfile::tempdir().unwrap();
    let mut approvals = ApprovedServers::open(folder.path()).unwrap();
    approvals
        .approve(
            approvals.mark("files"),
            &definition(&[]),
            &listing(&[("read", "Reads.")]).tools,
            &ApprovalOrigin::Gate,
            AT,
        )
        .unwrap();
    let path = folder.path().join("mcp-approvals.json");
    let mut file: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    file["servers"]["files"].as_object_mut().unwrap().remove("approved").unwrap();
    fs::write(&path, file.to_string()).unwrap();
    let approvals = ApprovedServers::open(folder.path()).unwrap();
    assert!(approvals.is_approved(&definition(&[])) && approvals.approval_note(&definition(&[])).is_none());
}

#[test]
fn an_approval_counts_only_for_the_state_that_the_approver_saw() {
    let folder = tempfile::tempdir().unwrap();
    let tools = listing(&[("read", "Reads.")]).tools;
    let open = || ApprovedServers::open(folder.path()).unwrap();
    let approve = |seen| open().approve(seen, &definition(&[]), &tools, &ApprovalOrigin::Gate, AT).unwrap();
    let absent = open().mark("files");
    assert!(approve(absent) && !approve(absent), "it was approved meanwhile");
    let approved = open().mark("files");
    assert!(open().revoke("files", &PrincipalId::new("ana"), AT).unwrap());
    assert!(!approve(absent) && !approve(approved), "it was revoked meanwhile");
    assert!(!open().is_approved(&definition(&[])) && approve(open().mark("files")));
    assert_eq!((open().revocations("files"), open().revocations("other")), (1, 0));
}

#[test]
fn standing_approvals_do_not_pass_to_another_definition() {
    let folder = tempfile::tempdir().unwrap();
    let tools = listing(&[("read", "Reads.")]).tools;
    let mut approvals = ApprovedServers::open(folder.path()).unwrap();
    for (arguments, want) in [(&[][..], false), (&[], false), (&["/"], true)] {
        let seen = approvals.mark("files");
        assert!(approvals.approve(seen, &definition(arguments), &tools, &ApprovalOrigin::Gate, AT).unwrap());
        assert_eq!(approvals.revoked().contains("files"), want, "{arguments:?}");
    }
}

#[test]
fn standing_approvals_do_not_pass_to_a_changed_tool() {
    let folder = tempfile::tempdir().unwrap();
    let open = || ApprovedServers::open(folder.path()).unwrap();
    let approve = |tools: &[(&str, &str)]| {
        let (seen, tools) = (open().mark("files"), listing(tools).tools);
        assert!(open().approve(seen, &definition(&[]), &tools, &ApprovalOrigin::Gate, AT).unwrap());
    };
    let changed = |names: &[&str]| {
        let names: BTreeSet<String> = names.iter().map(|name| (*name).to_owned()).collect();
        if names.is_empty() { BTreeMap::new() } else { BTreeMap::from([("files".to_owned(), names)]) }
    };
    approve(&[("read", "Reads."), ("list", "Lists."), ("write", "Writes.")]);
    assert_eq!(*open().changed_tools(), changed(&[]));
    approve(&[("read", "DELETES"), ("list", "Lists."), ("new", "New.")]);
    assert_eq!(*open().changed_tools(), changed(&["read", "write"]));
    // A further approval of the same tools, or of the earlier form, does not hide it.
    approve(&[("read", "Reads."), ("list", "Lists."), ("new", "New.")]);
    assert_eq!(*open().changed_tools(), changed(&["read", "write"]));
    open().forget_changed_tools(&changed(&["read"])).unwrap();
    assert_eq!(*open().changed_tools(), changed(&["write"]));
    open().forget_changed_tools(&changed(&["write"])).unwrap();
    assert!(open().changed_tools().is_empty() && open().revoked().is_empty());
}

#[test]
fn a_tool_keeps_the_time_since_which_it_is_approved_until_it_changes() {
    let folder = tempfile::tempdir().unwrap();
    let open = || ApprovedServers::open(folder.path()).unwrap();
    let times = |arguments: &[&str], tools: &[(&str, &str)], at| {
        let (seen, tools) = (open().mark("files"), listing(tools).tools);
        let definition = definition(arguments);
        assert!(open().approve(seen, &definition, &tools, &ApprovalOrigin::Gate, Millis(at)).unwrap());
        let mut times = ApprovalTimes::default();
        open().add_times(&definition, &mut times);
        times
    };
    let want = |server, tools: &[(&str, u64)]| ApprovalTimes {
        servers: [("files".to_owned(), Millis(server))].into(),
        tools: tools.iter().map(|(tool, since)| (format!("mcp__files__{tool}"), Millis(*since))).collect(),
    };
    let before = [("read", "Reads."), ("list", "Lists."), ("old", "Old.")];
    assert_eq!(times(&[], &before, 10), want(10, &[("read", 10), ("list", 10), ("old", 10)]));
    let changed = [("read", "DELETES"), ("list", "Lists."), ("new", "New.")];
    assert_eq!(times(&[], &changed, 20), want(10, &[("read", 20), ("list", 10), ("new", 20)]));
    // A tool that was gone is approved again.
    assert_eq!(times(&[], &before, 30), want(10, &[("read", 30), ("list", 10), ("old", 30)]));
    assert_eq!(times(&["/"], &before, 40), want(40, &[("read", 40), ("list", 40), ("old", 40)]));
    let mut other = ApprovalTimes::default();
    open().add_times(&definition(&[]), &mut other);
    assert_eq!(other, ApprovalTimes::default());
}

#[test]
fn secrets_in_a_stored_tool_are_not_shown() {
    const SECRET: &str = "plainS3cretValue77";
    let folder = tempfile::tempdir().unwrap();
    let given = BTreeMap::from([("PLAIN".to_owned(), SECRET.into())]);
    let secrets = GatewaySecrets::from_folder(folder.path().join("secrets"), given);
    let open = || ApprovedServers::open(folder.path()).unwrap().with_secrets(secrets.clone());
    let stored = listing(&[("read", SECRET), ("list", SECRET)]).tools;
    assert!(open().approve(open().mark("files"), &definition(&[]), &stored, &ApprovalOrigin::Gate, AT).unwrap());
    let compared = open().compare(&definition(&[]), &listing(&[("read", "Reads.")]));
    let shown = format!("{:?} {:?}", open().approved_tools(&definition(&[])), compared.tools);
    assert!(!shown.contains(SECRET) && shown.contains("[secret PLAIN]"), "{shown}");
}

#[test]
fn no_file_is_written_that_cannot_be_read_again() {
    let folder = tempfile::tempdir().unwrap();
    let mut tools = listing(&[("read", "Reads.")]).tools;
    tools[0].description = "x".repeat(65 << 20);
    let mut approvals = ApprovedServers::open(folder.path()).unwrap();
    let refused = approvals.approve(approvals.mark("files"), &definition(&[]), &tools, &ApprovalOrigin::Gate, AT);
    assert!(refused.unwrap_err().to_string().contains("larger than 64 MiB"));
    assert_eq!(ApprovedServers::open(folder.path()).unwrap().file, approvals.file);
}
