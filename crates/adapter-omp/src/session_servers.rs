//! MCP servers of the sessions of one process: those of the user's files, and those of the project's.
//!
//! It must not decide about an approval or a call. A server whose definition no person approved is never started: the author of a
//! repository may have written it. Source: docs/protocol/omp.md, MCP servers.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
};

use countersign_agent_dir::{AgentDir, McpServers as ServerFiles};
use countersign_config::{McpServerConfig, McpServerOrigin};
use countersign_core::{
    call::CallDetails,
    digest::Digest,
    id::{PrincipalId, SessionId},
};
use countersign_mcp_client::{
    self as mcp_client, ApprovalRequester, ApprovalTimes, ApprovedNow, McpOptions, McpServers, OfferedTool,
    QuestionPlace, QuestionPlaces, QuestionRequests, STARTED_BY, ServerDefinition, ServerTools, ServerTransport,
    ToolRenewal, ValueBinding, reading_tools,
};
use countersign_runtime::{
    Clock, CommandSource, OwnerError, ServiceOutcome,
    tools::{AgentTool, GatewaySecrets, Sandbox, exec::ExecLauncher},
};
use countersign_view::principals;
use futures_util::future::{self, BoxFuture};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::mpsc;

use super::outdated_approvals::{self, SessionLog};

/// Service and principal of the requests to approve a server. No tool of a server has it.
const REQUESTER: &str = "omp:mcp";
/// Folder of the approvals, below that of the logs.
const APPROVALS: &str = "mcp";
/// Most notices that wait for the host.
const MOST_NOTICES: usize = 64;

/// Servers that are not running yet, and those that are. None of them is needed for a session to begin.
pub(crate) struct SessionServers {
    /// The user's, then the project's, each with their own approvals: a project must not replace an approval of the user.
    scopes: Vec<ServerTools>,
    door: Arc<str>,
    /// Reasons that an allowed approval was not carried out, for the host.
    notices: mpsc::Sender<String>,
    receiver: Mutex<Option<mpsc::Receiver<String>>>,
    /// Way from the servers to the people of the open session.
    questions: Arc<QuestionRequests>,
    /// Log of the session in which the servers ask.
    log: Mutex<Option<SessionLog>>,
    /// File of the grants that outlive sessions.
    grants: PathBuf,
    secrets: GatewaySecrets,
}

/// What servers need of the process that starts them.
pub(crate) struct ServerContext<'a> {
    pub(crate) folder: &'a AgentDir,
    /// The working folder.
    pub(crate) cwd: &'a Path,
    pub(crate) launcher: &'a ExecLauncher,
    /// Confines the servers.
    pub(crate) sandbox: Sandbox,
    /// Secrets that the user's own files may name.
    pub(crate) secrets: GatewaySecrets,
    /// Clock of the times of approvals.
    pub(crate) clock: &'a Clock,
    /// Data directory of the gateway that starts them, or of this adapter.
    pub(crate) started_by: PathBuf,
    /// Name of the adapter, as rules name it.
    pub(crate) door: &'a str,
}

impl SessionServers {
    /// Takes the enabled servers of the files. Starts none. One that cannot be used is left out, with a notice.
    pub(crate) fn new(files: &ServerFiles, context: &ServerContext<'_>, notice: &impl Fn(&str)) -> Self {
        let mut scopes = Vec::new();
        let questions = Arc::new(QuestionRequests::default());
        for origin in [McpServerOrigin::User, McpServerOrigin::Project] {
            let enabled = files.servers.iter().filter(|server| server.enabled && server.origin == origin);
            let definitions = enabled.map(|server| definition_of(server, context.cwd));
            let (usable, bad): (Vec<_>, Vec<_>) = definitions.partition(|definition| definition.check().is_ok());
            bad.iter().filter_map(|definition| definition.check().err()).for_each(|error| notice(&error.to_string()));
            if usable.is_empty() {
                continue;
            }
            let scope = scope_name(origin, context.cwd);
            match McpServers::new(usable, server_options(origin, &scope, context, &questions)) {
                Ok(servers) => {
                    let approvals = context.folder.root().join("countersign").join(APPROVALS).join(&scope);
                    scopes.push(ServerTools::new(servers, approvals, context.clock.clone()));
                }
                Err(error) => notice(&error.to_string()),
            }
        }
        let (notices, receiver) = mpsc::channel(MOST_NOTICES);
        Self {
            scopes,
            door: context.door.into(),
            notices,
            receiver: Mutex::new(Some(receiver)),
            questions,
            log: Mutex::new(None),
            grants: context.folder.grants_path(),
            secrets: context.secrets.clone(),
        }
    }

    /// Returns the receiver of reasons that an allowed approval was not carried out. Only its first caller gets them.
    pub(crate) fn take_notices(&self) -> mpsc::Receiver<String> {
        self.receiver.lock().take().unwrap_or_else(|| mpsc::channel(1).1)
    }

    /// Reports whether there are servers at all.
    pub(crate) const fn is_empty(&self) -> bool {
        self.scopes.is_empty()
    }

    /// Returns the tools that are approved now, and the times since which they are approved so. Approvals that cannot be read approve
    /// nothing.
    pub(crate) fn approved_tools(&self) -> (Vec<Arc<dyn AgentTool>>, ApprovalTimes) {
        let (mut tools, mut servers, mut times) = (Vec::new(), BTreeMap::new(), ApprovalTimes::default());
        for scope in &self.scopes {
            let approved = scope.approved_now().unwrap_or_else(|error| {
                tracing::error!("{error}; no tool of these MCP servers is offered");
                ApprovedNow::default()
            });
            tools.extend(approved.tools.into_iter().map(|tool| tool as Arc<dyn AgentTool>));
            servers.extend(approved.servers);
            times.servers.extend(approved.times.servers);
            times.tools.extend(approved.times.tools);
        }
        let reading = reading_tools(&servers).into_iter();
        tools.extend(reading.map(|tool: Arc<dyn OfferedTool>| tool as Arc<dyn AgentTool>));
        (tools, times)
    }

    /// Returns the tools that are approved now, once what was approved for an earlier form of them has ended in `session` and in the
    /// open session.
    ///
    /// # Errors
    /// [`OwnerError`] if that is not recorded: the tools must not be offered.
    pub(crate) async fn renew_tools(&self, session: &SessionId) -> Result<Vec<Arc<dyn AgentTool>>, OwnerError> {
        let log = self.log.lock().clone().ok_or(OwnerError::Closed)?;
        let (tools, times) = self.approved_tools();
        let (times, path) = (Arc::new(times), self.grants.clone());
        let of_file = Arc::clone(&times);
        let removed = tokio::task::spawn_blocking(move || outdated_approvals::remove_from_file(&path, &of_file)).await;
        if let Err(error) = removed {
            tracing::error!(%error, "grants for earlier forms of MCP tools were not removed from the grants file");
        }
        log.end_outdated(&times).await?;
        if log.session != *session {
            log.with_session(session).end_outdated(&times).await?;
        }
        Ok(tools)
    }

    /// Requests the approval of servers and of changed tools in a session, until the session ends. If another process approved changed
    /// tools, `renew` offers them.
    pub(crate) async fn request_approvals(
        self: Arc<Self>,
        requests: CommandSource,
        session: SessionId,
        renew: Box<ToolRenewal>,
    ) {
        let requester = self.requester(session);
        for scope in &self.scopes {
            match mcp_client::request_approvals(&requests, &requester, scope).await {
                Ok(()) => {}
                Err(OwnerError::Closed) => return,
                Err(error) => tracing::error!(%error, "the approval of MCP servers cannot be requested"),
            }
        }
        let changes =
            self.scopes.iter().map(|scope| mcp_client::request_changes(&requests, &requester, scope, &*renew));
        future::join_all(changes).await;
    }

    /// Leads the questions of the servers to a session. Those that are open there are of an earlier process, unless it is the same
    /// session as before.
    pub(crate) async fn ask_in(&self, log: SessionLog) {
        let (handle, session) = (log.handle.clone(), log.session.clone());
        let place = HostSession { session: session.clone(), door: Arc::clone(&self.door) };
        let before = self.log.lock().replace(log);
        if before.is_none_or(|before| before.session != session) {
            let meant = session.clone();
            let withdrawn = mcp_client::withdraw_left_questions(&handle, move |session| *session == meant).await;
            if let Err(error) = withdrawn {
                tracing::error!(%error, "questions of MCP servers that an earlier process left cannot be withdrawn");
            }
        }
        self.questions.open(&handle, self.secrets.clone(), Arc::new(place));
    }

    /// Carries out the approval of a server, which starts it. `None` if the call is another one.
    pub(crate) async fn carry_out(&self, content: &CallDetails) -> Option<ServiceOutcome> {
        let requester = self.requester(requesting_session(content)?);
        let server = content.arguments.get("server").and_then(Value::as_str).unwrap_or_default();
        let scope =
            self.scopes.iter().find(|scope| scope.definition(server).is_some()).or_else(|| self.scopes.first())?;
        let outcome = mcp_client::carry_out(&requester, scope, content).await?;
        if let ServiceOutcome::Failed(problem) | ServiceOutcome::NotBegun(problem) = &outcome {
            // If there are more than a host reads, the log has the others.
            let _ = self.notices.try_send(problem.clone());
        }
        Some(outcome)
    }

    /// Ends all servers.
    pub(crate) async fn close(&self) {
        future::join_all(self.scopes.iter().map(|scope| scope.servers().close())).await;
    }

    fn requester(&self, session: SessionId) -> ApprovalRequester {
        ApprovalRequester {
            session,
            opening: None,
            principal: PrincipalId::new(REQUESTER),
            door: Arc::clone(&self.door),
            service: REQUESTER.into(),
        }
    }
}

/// Returns the session in which a call was requested. Sessions of requests are numbered by the generations of their programs.
pub(crate) fn requesting_session(content: &CallDetails) -> Option<SessionId> {
    let session = content.request.as_ref()?.session.as_str();
    Some(SessionId::new(session.rsplit_once('#').map_or(session, |(session, _)| session)))
}

/// Open session of a host, in which all its servers ask.
#[derive(Clone, Debug)]
struct HostSession {
    session: SessionId,
    door: Arc<str>,
}

impl QuestionPlaces for HostSession {
    fn open<'a>(&'a self, _: &'a CommandSource, server: &'a str) -> BoxFuture<'a, Result<QuestionPlace, OwnerError>> {
        let (session, door) = (self.session.clone(), Arc::clone(&self.door));
        Box::pin(future::ready(Ok(QuestionPlace { session, principal: principals::of_mcp_server(server), door })))
    }
}

/// Returns the definition that a person approves. That of a project is bound to the folder of the project and to all its values: the
/// same words start another program elsewhere.
fn definition_of(server: &McpServerConfig, cwd: &Path) -> ServerDefinition {
    let mut definition = ServerDefinition::from(server);
    if server.origin.is_trusted() {
        return definition;
    }
    definition.values = ValueBinding::Bound;
    match &mut definition.transport {
        ServerTransport::Stdio { cwd: folder, .. } => {
            folder.get_or_insert_with(|| cwd.to_owned());
        }
        ServerTransport::Http { .. } => {}
    }
    definition
}

/// Returns the name of the folders of servers of this origin: each project has its own.
fn scope_name(origin: McpServerOrigin, cwd: &Path) -> String {
    if origin.is_trusted() {
        return "user".to_owned();
    }
    let digest = Digest::hash_bytes(cwd.as_os_str().as_encoded_bytes()).to_string();
    format!("project-{}", &digest[..16])
}

fn server_options(
    origin: McpServerOrigin,
    scope: &str,
    context: &ServerContext<'_>,
    questions: &Arc<QuestionRequests>,
) -> McpOptions {
    let started_by = (STARTED_BY.to_owned(), context.started_by.to_string_lossy().into_owned());
    McpOptions {
        sandbox: context.sandbox.clone(),
        // A project must not send a secret of the user to a server of its choice.
        secrets: if origin.is_trusted() { context.secrets.clone() } else { GatewaySecrets::default() },
        variables: BTreeMap::from([started_by]),
        asker: Some(Arc::clone(questions) as _),
        ..McpOptions::new(context.launcher.clone(), context.folder.server_homes().join(scope))
    }
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        path::{Path, PathBuf},
        sync::Arc,
    };

    use countersign_agent_dir::{
        AgentDir, AgentProduct, McpServers as ServerFiles, ProcessEnvironment, ProjectServers,
    };
    use countersign_mcp_client::ServerTransport;
    use countersign_runtime::{
        Clock,
        tools::{GatewaySecrets, Sandbox, exec::ExecLauncher},
    };
    use serde_json::{Value, json};

    use super::{ServerContext, SessionServers, definition_of, scope_name};

    struct Fixture {
        _root: tempfile::TempDir,
        folder: AgentDir,
        cwd: PathBuf,
    }

    impl Fixture {
        fn new(user: &Value, project: &Value) -> Self {
            let root = tempfile::tempdir().unwrap();
            let (agent, cwd) = (root.path().join("agent"), root.path().join("work"));
            fs::create_dir(&agent).unwrap();
            fs::create_dir(&cwd).unwrap();
            fs::write(agent.join("mcp.json"), json!({ "mcpServers": user }).to_string()).unwrap();
            fs::write(cwd.join(".mcp.json"), json!({ "mcpServers": project }).to_string()).unwrap();
            let variables = [("PI_CODING_AGENT_DIR", agent.to_str().unwrap())];
            let environment: ProcessEnvironment = variables.into_iter().collect();
            let folder = AgentDir::resolve(AgentProduct::Omp, &environment, &cwd, Path::exists).unwrap();
            Self { _root: root, folder, cwd }
        }

        fn files(&self) -> ServerFiles {
            ServerFiles::load(&self.folder, &self.cwd, &ProcessEnvironment::default(), ProjectServers::Read)
        }

        fn servers(&self) -> Arc<SessionServers> {
            let context = ServerContext {
                folder: &self.folder,
                cwd: &self.cwd,
                launcher: &ExecLauncher::new(Path::new("/bin/false")),
                sandbox: Sandbox::default(),
                secrets: GatewaySecrets::default(),
                clock: &Clock::system(),
                started_by: self.folder.root().join("countersign"),
                door: "omp",
            };
            Arc::new(SessionServers::new(&self.files(), &context, &|line: &str| assert!(line.is_empty(), "{line}")))
        }
    }

    #[test]
    fn a_server_of_a_project_is_bound_to_its_folder_and_values() {
        let server = |token: &str| json!({ "command": "node", "args": ["server.js"], "env": { "MODE": token } });
        let fixture = Fixture::new(&json!({}), &json!({ "files": server("one") }));
        let of = |fixture: &Fixture, cwd: &Path| definition_of(&fixture.files().servers[0], cwd);
        let here = of(&fixture, &fixture.cwd);
        let ServerTransport::Stdio { cwd, .. } = &here.transport else { panic!("{here:?}") };
        assert_eq!(cwd.as_deref(), Some(&*fixture.cwd));
        assert_ne!(here.digest(), of(&fixture, Path::new("/elsewhere")).digest());
        let changed = Fixture::new(&json!({}), &json!({ "files": server("two") }));
        assert_ne!(here.digest(), of(&changed, &fixture.cwd).digest());
        assert_ne!(scope_name(fixture.files().servers[0].origin, &fixture.cwd), "user");
    }

    #[test]
    fn a_server_of_the_user_is_approved_for_all_projects() {
        let fixture = Fixture::new(&json!({ "files": { "command": "node", "env": { "TOKEN": "hush" } } }), &json!({}));
        let of = |cwd: &str| definition_of(&fixture.files().servers[0], Path::new(cwd)).digest();
        assert_eq!(of("/one"), of("/other"));
        assert_eq!(scope_name(fixture.files().servers[0].origin, Path::new("/one")), "user");
    }

    #[test]
    fn nothing_is_offered_without_an_approval_and_switched_off_servers_are_none() {
        let server = json!({ "command": "node" });
        let off = json!({ "command": "node", "enabled": false });
        let fixture = Fixture::new(&json!({ "a": server, "b": off }), &json!({ "c": server, "d": off }));
        let servers = fixture.servers();
        assert!(servers.approved_tools().0.is_empty());
        let names = servers.scopes.iter().flat_map(|scope| scope.servers().definitions());
        assert_eq!(names.map(|definition| definition.name.as_str()).collect::<Vec<_>>(), ["a", "c"]);
        assert!(Fixture::new(&json!({ "b": off }), &json!({})).servers().is_empty());
    }
}
