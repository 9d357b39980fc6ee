use std::{path::Path, sync::Arc, time::Duration};

use countersign_core::{
    call::{CallDetails, RequestContent},
    engine::{ActiveRules, Command, ResumeMode},
    gate::{self, Gate, GateReply, IdentityMap},
    id::{PrincipalId, SessionId},
    policy::{CompiledRules, DefaultPolicy, PathContext},
    session::{self, ModelRef},
    time::Millis,
    tool::ToolSpec,
};
use countersign_runtime::{
    Clock, InboxLane, OwnerHandle, OwnerOptions, ResolvedModel, RunEnvironment, ServiceOutcome,
    store::MemoryLog,
    system_entropy,
    tools::{self, ToolRegistry},
};
use futures_util::future::{BoxFuture, ready};
use serde_json::{Map, Value, json};
use tempfile::TempDir;
use tokio::sync::Notify;

use super::{
    ApprovalKey, ApprovalRequester, SERVER_TOOL, TOOLS_TOOL, carry_out, request_approvals, request_changes,
    request_server, server_arguments, tools_arguments as arguments_of_tools,
};
use crate::{
    approvals::{ApprovalOrigin, ApprovedServers},
    definition::{ServerDefinition, ServerTransport},
    scripted_server::{ScriptedServer, tool},
    server_tools::{ApproveError, ServerTools},
};

/// The server `box` with approvals in a folder of its own.
struct Fixture {
    server: ScriptedServer,
    tools: ServerTools,
    folder: TempDir,
}

impl Fixture {
    fn new(listed: Value) -> Self {
        let server = ScriptedServer::older(listed, |_| Vec::new());
        let folder = tempfile::tempdir().unwrap();
        let tools = ServerTools::new(server.servers(), folder.path().to_owned(), Clock::system());
        Self { server, tools, folder }
    }

    fn definition(&self) -> &ServerDefinition {
        self.tools.definition("box").unwrap()
    }

    fn approvals(&self) -> ApprovedServers {
        ApprovedServers::open(self.folder.path()).unwrap()
    }

    /// Approves `box` under another definition, without a tool.
    fn approve_another_definition(&self) {
        let address = ServerTransport::Http { url: "https://a.example/".into(), headers: [].into(), auth: None };
        let (mut approvals, other) = (self.approvals(), ServerDefinition::new("box", address));
        let at = Clock::system().now();
        assert!(approvals.approve(approvals.mark("box"), &other, &[], &ApprovalOrigin::Gate, at).unwrap());
    }

    /// Approves `box` as it is defined and listed.
    async fn approve(&self) {
        let (listing, approval) = self.tools.compare("box").await.unwrap();
        self.tools.approve("box", &listing, &approval, &ApprovalOrigin::Gate).await.unwrap();
    }

    fn revoke(&self) {
        assert!(self.tools.revoke("box", &PrincipalId::new("ana")).unwrap());
    }

    fn is_approved(&self) -> bool {
        self.approvals().is_approved(self.definition())
    }

    async fn carry_out(&self, tool: &str, arguments: Map<String, Value>) -> ServiceOutcome {
        carry_out(&requester(), &self.tools, &request(tool, arguments)).await.unwrap()
    }
}

fn requester() -> ApprovalRequester {
    ApprovalRequester {
        session: SessionId::new("gateway:mcp"),
        opening: None,
        principal: PrincipalId::new("gateway"),
        door: "mcp".into(),
        service: "gateway:mcp".into(),
    }
}

fn request(tool: &str, arguments: Map<String, Value>) -> CallDetails {
    CallDetails {
        tool: tool.into(),
        tool_call_id: "1".into(),
        arguments,
        intent: None,
        signature: format!("{tool}(box)"),
        named: Vec::new(),
        class: None,
        shell: None,
        problem: None,
        request: Some(Box::new(RequestContent {
            principal: PrincipalId::new("gateway"),
            door: None,
            session: SessionId::new("gateway:mcp#1"),
            service: Some("gateway:mcp".into()),
            for_principals: Vec::new(),
            further_signatures: Vec::new(),
            undeclared: Vec::new(),
            paths: Vec::new(),
            cwd: String::new(),
        })),
        pins: None,
        leads_to: None,
    }
}

fn not_begun(text: &str) -> ServiceOutcome {
    ServiceOutcome::NotBegun(text.to_owned())
}

#[tokio::test]
async fn an_answer_about_tools_starts_no_server_whose_definition_is_not_approved() {
    let fixture = Fixture::new(json!([tool("open")]));
    fixture.approve_another_definition();
    let digest = |definition: &str| {
        json!({ "server": "box", "new": {}, "definition": definition, "digest": "0" }).as_object().unwrap().clone()
    };
    let outcome = fixture.carry_out(TOOLS_TOOL, digest(&fixture.definition().digest().to_string())).await;
    assert_eq!(outcome, not_begun("MCP server box is not approved: it does not start before that"));
    let outcome = fixture.carry_out(TOOLS_TOOL, digest("other")).await;
    assert_eq!(outcome, not_begun("the configuration has no MCP server box with this definition any more"));
    let compared = fixture.tools.compare_approved("box").await;
    assert!(matches!(compared, Err(ApproveError::NotApproved(_))));
    assert_eq!(fixture.server.starts(), 0);
}

#[tokio::test]
async fn an_answer_from_before_a_revocation_approves_nothing() {
    let fixture = Fixture::new(json!([tool("open")]));
    let arguments = server_arguments(fixture.definition(), 0);
    let outcome = fixture.carry_out(SERVER_TOOL, arguments.clone()).await;
    assert!(matches!(outcome, ServiceOutcome::Done(_)) && fixture.is_approved());
    // A request whose end was not recorded is carried out again after a restart.
    let again = fixture.carry_out(SERVER_TOOL, arguments.clone()).await;
    assert_eq!(again, outcome_without_changes(&fixture).await);
    fixture.revoke();
    fixture.tools.servers().close().await;
    let outcome = fixture.carry_out(SERVER_TOOL, arguments).await;
    assert_eq!(outcome, not_begun("the approval of MCP server box was changed meanwhile"));
    assert!(!fixture.is_approved() && fixture.server.starts() == 1);
    let outcome = fixture.carry_out(SERVER_TOOL, server_arguments(fixture.definition(), 1)).await;
    assert!(matches!(outcome, ServiceOutcome::Done(_)) && fixture.is_approved());
}

/// Returns the outcome of a request for what is approved already.
async fn outcome_without_changes(fixture: &Fixture) -> ServiceOutcome {
    let (listing, approval) = fixture.tools.compare_approved("box").await.unwrap();
    ServiceOutcome::Done(super::approval_report(&listing, &approval).to_string())
}

#[tokio::test]
async fn an_approval_that_was_revoked_meanwhile_neither_comes_back_nor_starts_the_server() {
    let fixture = Fixture::new(json!([tool("open")]));
    fixture.approve().await;
    let (listing, approval) = fixture.tools.compare_approved("box").await.unwrap();
    fixture.revoke();
    fixture.tools.servers().close().await;
    let approved = fixture.tools.approve("box", &listing, &approval, &ApprovalOrigin::Gate).await;
    assert!(matches!(approved, Err(ApproveError::Superseded(_))), "{approved:?}");
    assert!(!fixture.is_approved() && fixture.server.starts() == 1);
}

#[tokio::test]
async fn a_request_shows_all_of_what_is_new_or_changed() {
    let (same, old, new) = ("x".repeat(400), "old".repeat(30), "new".repeat(30));
    let describe =
        |end: &str| json!({ "name": "open", "description": format!("{same}{end}"), "inputSchema": {"type": "object"} });
    let many: Map<String, Value> = (0..30).map(|number| (format!("p{number}"), json!({ "type": "string" }))).collect();
    let wide = json!({ "name": "wide", "inputSchema": {"type": "object", "properties": many} });
    let hinted = json!({
        "name": "shut", "description": "Shuts.", "annotations": {"destructiveHint": true},
        "inputSchema": {"type": "object", "required": ["door"]},
    });
    let before =
        Fixture::new(json!([describe(&old), { "name": "wide", "inputSchema": {"type": "object", "properties": {}} }]));
    before.approve().await;
    let server = ScriptedServer::older(json!([describe(&new), wide, hinted]), |_| Vec::new());
    let now = ServerTools::new(server.servers(), before.folder.path().to_owned(), Clock::system());
    let (listing, approval) = now.compare_approved("box").await.unwrap();
    let shown = arguments_of_tools(before.definition(), &listing, &approval);
    let want = format!("description: was \"{same}{old}\", is \"{same}{new}\"");
    assert_eq!(shown["changed"]["open"], json!([want]));
    let wide = shown["changed"]["wide"].as_array().unwrap();
    assert_eq!(wide.len(), 30, "{wide:?}");
    let want = json!({
        "description": "Shuts.", "annotations": {"destructiveHint": true},
        "schema": {"type": "object", "required": ["door"]},
    });
    assert_eq!(shown["new"], json!({ "shut": want }));
    assert_eq!(shown["definition"], before.definition().digest().to_string());
}

/// Environment without a model.
struct NoModel;

impl RunEnvironment for NoModel {
    fn resolve_model(&self, _: &ModelRef) -> Result<ResolvedModel, String> {
        Err("there is no model".to_owned())
    }

    fn tool_registry(&self, _: &SessionId) -> Arc<ToolRegistry> {
        Arc::new(ToolRegistry::standard())
    }

    fn system_prompt(&self, _: &SessionId, _: &str, _: &[&ToolSpec]) -> String {
        String::new()
    }

    fn tool_context(&self, _: &SessionId, cwd: &str) -> tools::ToolContext {
        let launcher = tools::exec::ExecLauncher::new(Path::new("/bin/false"));
        let environment = tools::CommandEnvironment::clean_with([]);
        let (roots, shell) = (tools::AllowedRoots::whole_filesystem([]), tools::SessionShell::new(launcher));
        tools::ToolContext::new(cwd.into(), roots, environment, shell)
    }
}

async fn open_log() -> OwnerHandle {
    let rules = ActiveRules {
        compiled: CompiledRules::default(),
        default_policy: DefaultPolicy::Gateway,
        path_context: PathContext::default(),
        people: IdentityMap::default(),
    };
    let options = OwnerOptions {
        rules,
        resume: ResumeMode::Go,
        clock: Clock::starting_at(Millis(1_000)),
        entropy: system_entropy(),
        environment: Arc::new(NoModel),
        merge: Duration::ZERO,
        idle: None,
    };
    OwnerHandle::open(MemoryLog::new().into(), options).await.unwrap()
}

#[tokio::test]
async fn a_refused_tool_that_another_process_approved_is_offered_again_and_not_requested() {
    let (fixture, handle) = (Fixture::new(json!([tool("open")])), open_log().await);
    let (source, requester) = (handle.source(InboxLane::Request), requester());
    fixture.approve().await;
    fixture.tools.report_changed("box");
    let renewed = Arc::new(Notify::new());
    let noted = Arc::clone(&renewed);
    let renew = move || {
        noted.notify_one();
        Box::pin(ready(())) as BoxFuture<'static, ()>
    };
    tokio::select! {
        () = request_changes(&source, &requester, &fixture.tools, &renew) => panic!("the record is open"),
        () = renewed.notified() => {}
    }
    let pending = source.read_state(|engine| engine.state().pending_gates().count());
    assert_eq!(pending.await.unwrap().0, 0);
    handle.close().await;
}

#[tokio::test]
async fn a_denied_server_is_known_as_denied_until_its_definition_changes() {
    let (fixture, handle) = (Fixture::new(json!([tool("open")])), open_log().await);
    let source = handle.source(InboxLane::Request);
    let opening =
        session::Command::Open { cwd: String::new(), name: None, parent: None, door: None, settings: Box::default() };
    let requester = ApprovalRequester { opening: Some(opening), ..requester() };
    let is_denied = async |arguments: Map<String, Value>| {
        let (key, session) = (ApprovalKey::new("box", &arguments), requester.session.clone());
        source.read_state(move |engine| key.is_denied(engine, &session)).await.unwrap().0
    };
    let shown = server_arguments(fixture.definition(), 0);
    assert!(!is_denied(shown.clone()).await, "it was not requested");
    request_approvals(&source, &requester, &fixture.tools).await.unwrap();
    assert!(!is_denied(shown.clone()).await, "its gate is pending");
    let pending = source.read_state(|engine| engine.state().pending_gates().map(Gate::id).collect::<Vec<_>>());
    let gate = pending.await.unwrap().0[0];
    let answer = GateReply::Deny { reason: None };
    let denial = gate::Command::Answer { gate, answer, by: PrincipalId::new("ana"), key: None };
    source.send_command(Command::Gate(denial)).await.unwrap();
    assert!(is_denied(shown.clone()).await);
    assert!(!is_denied(server_arguments(fixture.definition(), 1)).await, "it was revoked since");
    // The denial is also that of a repeated request.
    request_server(&source, &requester, fixture.definition(), 0).await.unwrap();
    assert!(is_denied(shown).await);
    handle.close().await;
}
