//! Capabilities that a host lends the agent of a session: tools of its own, and URIs of its schemes. Tools of MCP servers, which come
//! while a session is open, are added to them.
//!
//! The tools of a run follow it: a tool that a host takes back is gone from the next request to the model. Lent tools stay while
//! the host is away; calls of them wait. It must not know which calls are open.

mod host_tool;
mod uri_tool;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use countersign_core::id::{PeerId, SessionId};
use countersign_protocol::gjc::{
    host_tool::{self as wire, HostTool, ToolsError},
    host_uri::HostScheme,
};
use countersign_runtime::{
    PeerRegistry,
    tools::{AgentTool, ToolRegistry},
};
use parking_lot::Mutex;

pub(super) use uri_tool::unknown_scheme;

use host_tool::HostProvidedTool;
use uri_tool::UriAwareTool;

use countersign_agent_dir::restrictions::is_named;

/// Capabilities that the hosts of one process lend. They outlive sessions, as the process does.
pub(crate) struct HostCapabilities {
    own: Arc<ToolRegistry>,
    /// Names and patterns of tools that no run has, those of hosts included.
    excluded: BTreeSet<String>,
    peers: PeerRegistry,
    state: Mutex<CapabilityState>,
}

#[derive(Default)]
struct CapabilityState {
    /// Tools in the order in which they were given, each with whether the model sees it.
    tools: Vec<(Arc<HostTool>, bool)>,
    schemes: Arc<SchemeMap>,
    /// Tools of MCP servers.
    server_tools: Vec<Arc<dyn AgentTool>>,
    /// Tools of the last session that requested them.
    made: Option<(SessionId, Arc<ToolRegistry>)>,
}

/// The schemes of a host by name.
pub(crate) type SchemeMap = BTreeMap<String, HostScheme>;

/// Returns the peer that does the calls of host tools in a session.
pub(super) fn tools_of(session: &SessionId) -> PeerId {
    PeerId::new(format!("host-tools:{session}"))
}

/// Returns the peer that reads and writes at the URIs of a session's host.
pub(super) fn uris_of(session: &SessionId) -> PeerId {
    PeerId::new(format!("host-uris:{session}"))
}

impl HostCapabilities {
    /// Creates it without capabilities, apart from the tools that are the agent's own.
    pub(crate) fn new(own: Arc<ToolRegistry>) -> Self {
        Self { own, excluded: BTreeSet::new(), peers: PeerRegistry::default(), state: Mutex::default() }
    }

    /// Excludes the tools of hosts that `excluded` names, in lower case.
    pub(crate) fn excluding_tools(self, excluded: BTreeSet<String>) -> Self {
        Self { excluded, ..self }
    }

    /// Returns the links over which hosts get work.
    pub(crate) fn peer_registry(&self) -> &PeerRegistry {
        &self.peers
    }

    /// Returns the tools of a session: the agent's own, then the host's, then those of servers. The first of one name counts.
    pub(crate) fn tool_registry(&self, session: &SessionId) -> Arc<ToolRegistry> {
        let mut state = self.state.lock();
        if let Some((_, made)) = state.made.as_ref().filter(|(of, _)| of == session) {
            return Arc::clone(made);
        }
        let made = Arc::new(self.build_registry(&state, session));
        state.made = Some((session.clone(), Arc::clone(&made)));
        made
    }

    fn build_registry(&self, state: &CapabilityState, session: &SessionId) -> ToolRegistry {
        let (tools, uris) = (tools_of(session), uris_of(session));
        let own = self.own.tools().map(|tool| UriAwareTool::wrap_tool(tool, &state.schemes, &uris));
        let is_excluded = |name: &str| self.excluded.iter().any(|pattern| is_named(pattern, name));
        let active = state.tools.iter().filter(|(tool, is_active)| *is_active && !is_excluded(&tool.name));
        let of_host =
            active.map(|(tool, _)| Arc::new(HostProvidedTool::new(tool, tools.clone())) as Arc<dyn AgentTool>);
        let of_servers = state.server_tools.iter().filter(|tool| {
            let name = &tool.spec().name;
            self.own.get(name).is_none() && state.tools.iter().all(|(of_host, _)| of_host.name != *name)
        });
        ToolRegistry::from_tools(own.chain(of_host).chain(of_servers.cloned()).collect())
    }

    /// Takes a set of tools of servers in the place of the one before. The next request to the model has them.
    pub(crate) fn set_server_tools(&self, tools: Vec<Arc<dyn AgentTool>>) {
        let mut state = self.state.lock();
        state.server_tools = tools;
        state.made = None;
    }

    /// Takes a set of tools in the place of the one before. One that stays is shown or hidden as it was.
    ///
    /// # Errors
    /// [`ToolsError::Conflict`]; nothing changes then.
    pub(super) fn set_tools(&self, tools: Vec<HostTool>) -> Result<Vec<String>, ToolsError> {
        let mut state = self.state.lock();
        let is_of_server = |name: &str| state.server_tools.iter().any(|tool| tool.spec().name == name);
        wire::check_conflicts(&tools, |name| self.own.get(name).is_some() || is_of_server(name))?;
        let names = tools.iter().map(|tool| tool.name.clone()).collect();
        let shown = |tool: &HostTool| {
            let before = state.tools.iter().find(|(before, _)| before.name == tool.name);
            before.map_or(!tool.hidden, |(_, is_active)| *is_active)
        };
        let tools = tools.into_iter().map(|tool| (shown(&tool), tool)).collect::<Vec<_>>();
        state.tools = tools.into_iter().map(|(is_active, tool)| (Arc::new(tool), is_active)).collect();
        state.made = None;
        Ok(names)
    }

    /// Takes a set of schemes in the place of the one before.
    pub(super) fn set_schemes(&self, schemes: Vec<HostScheme>) {
        let mut state = self.state.lock();
        state.schemes = Arc::new(schemes.into_iter().map(|scheme| (scheme.scheme.clone(), scheme)).collect());
        state.made = None;
    }

    /// Reports whether the host has a tool of this name, hidden or not.
    pub(super) fn has_tool(&self, name: &str) -> bool {
        self.state.lock().tools.iter().any(|(tool, _)| tool.name == name)
    }

    /// Reports whether the host has tools, and whether it has schemes.
    pub(super) fn has_tools_and_schemes(&self) -> (bool, bool) {
        let state = self.state.lock();
        (!state.tools.is_empty(), !state.schemes.is_empty())
    }

    /// Returns a scheme of the host.
    pub(super) fn find_scheme(&self, name: &str) -> Option<HostScheme> {
        self.state.lock().schemes.get(name).cloned()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use countersign_core::{
        id::SessionId,
        policy::Class,
        tool::{ShellInput, ShellMachine},
    };
    use countersign_protocol::{
        RawJson,
        gjc::{host_tool, host_uri},
    };
    use countersign_runtime::tools::{CallRoute, PeerRoute, ToolRegistry};
    use serde_json::{Value, json};

    use super::{HostCapabilities, tools_of, uris_of};

    fn new_capabilities() -> HostCapabilities {
        HostCapabilities::new(Arc::new(ToolRegistry::standard()))
    }

    fn session() -> SessionId {
        SessionId::new("s")
    }

    fn tools(capabilities: &HostCapabilities, definitions: &[Value]) -> Result<Vec<String>, String> {
        let definitions: Vec<RawJson> = definitions.iter().cloned().map(RawJson::from).collect();
        let tools = host_tool::read_tools(&definitions).map_err(|error| error.to_string())?;
        capabilities.set_tools(tools).map_err(|error| error.to_string())
    }

    fn schemes(capabilities: &HostCapabilities, definitions: &[Value]) {
        let definitions: Vec<RawJson> = definitions.iter().cloned().map(RawJson::from).collect();
        capabilities.set_schemes(host_uri::read_schemes(&definitions).unwrap());
    }

    fn of_host(capabilities: &HostCapabilities) -> Vec<String> {
        let registry = capabilities.tool_registry(&session());
        registry.tool_specs().skip(9).map(|spec| spec.name.clone()).collect()
    }

    fn tool(name: &str, hidden: bool) -> Value {
        json!({"name": name, "description": "d", "parameters": {"required": ["id"]}, "hidden": hidden})
    }

    #[test]
    fn a_set_of_tools_takes_the_place_of_the_one_before() {
        let capabilities = new_capabilities();
        assert_eq!(
            tools(&capabilities, &[tool("b", false), tool("a", false)]),
            Ok(vec!["b".to_owned(), "a".to_owned()])
        );
        assert_eq!(of_host(&capabilities), ["b", "a"]);
        let conflict = Err("RPC host tool \"read\" conflicts with an existing tool".to_owned());
        assert_eq!(tools(&capabilities, &[tool("c", false), tool("read", false)]), conflict);
        assert_eq!(of_host(&capabilities), ["b", "a"]);
        assert_eq!(tools(&capabilities, &[tool("c", false)]), Ok(vec!["c".to_owned()]));
        assert_eq!(of_host(&capabilities), ["c"]);
    }

    #[test]
    fn a_hidden_tool_is_there_and_not_shown_and_one_that_stays_is_as_it_was() {
        let capabilities = new_capabilities();
        tools(&capabilities, &[tool("shown", false), tool("hidden", true)]).unwrap();
        assert_eq!((of_host(&capabilities), capabilities.has_tool("hidden")), (vec!["shown".to_owned()], true));
        tools(&capabilities, &[tool("shown", true), tool("hidden", false), tool("new", false)]).unwrap();
        assert_eq!(of_host(&capabilities), ["shown", "new"]);
    }

    #[test]
    fn a_tool_of_the_host_whose_name_is_excluded_is_not_shown() {
        let capabilities = new_capabilities().excluding_tools(["deploy", "x_*"].map(str::to_owned).into());
        let names = ["Deploy", "x_1", "deploys"];
        tools(&capabilities, &names.map(|name| tool(name, false))).unwrap();
        assert_eq!(of_host(&capabilities), ["deploys"]);
    }

    #[test]
    fn a_host_tool_that_is_a_shell_says_which_argument_is_a_line() {
        let capabilities = new_capabilities();
        let schema = json!({"type": "object", "properties": {"command": {"type": "string"}}});
        let set = ["run_shell", "run"].map(|name| json!({"name": name, "description": "Runs.", "parameters": schema}));
        tools(&capabilities, &set).unwrap();
        let registry = capabilities.tool_registry(&session());
        let machine = ShellMachine::This;
        for (name, want) in [
            ("run_shell", ShellInput::Line { argument: "command".into(), machine }),
            ("run", ShellInput::Perhaps { machine }),
        ] {
            let mut arguments = json!({"command": "ls"}).as_object().cloned().unwrap();
            let Ok(CallRoute::Peer(away)) = registry.get(name).unwrap().route_call(&mut arguments) else { panic!() };
            assert_eq!(away.shell, want, "{name}");
        }
    }

    #[test]
    fn a_call_of_a_host_tool_goes_to_the_host_and_fits_its_schema() {
        let capabilities = new_capabilities();
        tools(&capabilities, &[tool("look_up", false)]).unwrap();
        let registry = capabilities.tool_registry(&session());
        let tool = registry.get("look_up").unwrap();
        assert_eq!(
            tool.check_arguments(&json!({})).unwrap_err().to_string(),
            "Invalid arguments for look_up:\n- id is required"
        );
        let mut arguments = tool.check_arguments(&json!({"id": 1, "path": "/etc"})).unwrap();
        let away = PeerRoute { peer: tools_of(&session()), class: Class::HostToolInvoke, shell: ShellInput::Nothing };
        assert_eq!(tool.route_call(&mut arguments), Ok(CallRoute::Peer(away)));
        assert_eq!(tool.spec().signature_of(&arguments), "look_up(1, /etc)");
        assert_eq!(tool.spec().schema["type"], "object");
    }

    /// Returns the target of a call of one of the agent's own tools, with the path as it is decided.
    fn goes(capabilities: &HostCapabilities, tool: &str, path: &str) -> Result<(CallRoute, String), String> {
        let registry = capabilities.tool_registry(&session());
        let mut arguments = json!({ "path": path }).as_object().cloned().unwrap();
        let route = registry.get(tool).unwrap().route_call(&mut arguments).map_err(|failure| failure.to_string())?;
        Ok((route, arguments["path"].as_str().unwrap().to_owned()))
    }

    #[test]
    fn what_is_read_and_written_at_a_uri_goes_to_the_host_and_never_to_the_disk() {
        let capabilities = new_capabilities();
        schemes(&capabilities, &[json!({"scheme": "db", "writable": true}), json!({"scheme": "ro"})]);
        let at = |class, path: &str| {
            Ok((
                CallRoute::Peer(PeerRoute { peer: uris_of(&session()), class, shell: ShellInput::Nothing }),
                path.to_owned(),
            ))
        };
        let refused = |text: &str| Err(text.to_owned());
        for (tool, path, want) in [
            ("read", "DB://Users/1", at(Class::HostUriRead, "db://Users/1")),
            ("write", "db://a", at(Class::HostUriWrite, "db://a")),
            ("read", "ro://a", at(Class::HostUriRead, "ro://a")),
            ("write", "RO://a", refused("Host URI scheme is not writable: ro")),
            ("read", "gone://a", refused("gone://a was not read: the host has no URIs of the scheme gone")),
            ("write", "gone://a", refused("gone://a was not written: the host has no URIs of the scheme gone")),
            ("edit", "db://a", refused("db://a cannot be edited in place: read it and write the whole")),
            ("ls", "db://a", refused("db://a is a URI of the host: ls works on files of this machine")),
            ("grep", "db://a", refused("db://a is a URI of the host: grep works on files of this machine")),
            ("find", "x://a", refused("x://a is a URI of the host: find works on files of this machine")),
            ("read", "./db://a", Ok((CallRoute::Here, "./db://a".to_owned()))),
            ("write", "db:a", Ok((CallRoute::Here, "db:a".to_owned()))),
        ] {
            assert_eq!(goes(&capabilities, tool, path), want, "{tool} {path}");
        }
        schemes(&capabilities, &[]);
        assert!(goes(&capabilities, "read", "db://a").is_err());
    }

    #[test]
    fn an_edit_moves_no_file_to_a_uri() {
        let registry = new_capabilities().tool_registry(&session());
        for member in ["rename", "move"] {
            let mut arguments = json!({"path": "f", member: "db://a"}).as_object().cloned().unwrap();
            assert!(registry.get("edit").unwrap().route_call(&mut arguments).is_err(), "{member}");
        }
    }

    #[test]
    fn the_model_reads_the_schemes() {
        let capabilities = new_capabilities();
        schemes(
            &capabilities,
            &[json!({"scheme": "db", "description": "The users", "writable": true}), json!({"scheme": "ro"})],
        );
        let registry = capabilities.tool_registry(&session());
        let description = |tool: &str| registry.get(tool).unwrap().spec().description.clone();
        assert!(description("read").ends_with(" The host has URIs that can be read: db:// (The users), ro://."));
        assert!(description("write").ends_with(" The host has URIs that can be written: db:// (The users)."));
        assert!(!description("edit").contains("db://"));
    }
}
