//! A gate with what it asks and what is around it, for every surface that shows it.
//!
//! It must not know any wire. Together with [`GateRequest`] it is the only reader of what a gate keeps to be shown.

use std::fmt;

use countersign_core::{
    call, digest::canonical_json, engine::Engine, folder_of, gate::Gate, id::PrincipalId, policy::GrantCoverage,
    session::Session,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{GateRequest, Protocol};

/// A gate, taken out of the engine.
///
/// # Example
///
/// ```
/// # use countersign_core::{
/// #     call::{self, AgentRequest}, engine::{self, ActiveRules, DecisionContext, Engine}, gate::IdentityMap,
/// #     id::{IdGenerator, PrincipalId, SessionId}, policy::{CompiledRules, DefaultPolicy, PathContext}, session,
/// #     time::Millis, tool::{RepeatMode, ToolEffect},
/// # };
/// use countersign_view::GateSummary;
///
/// # let mut engine = Engine::new(ActiveRules {
/// #     compiled: CompiledRules::default(),
/// #     default_policy: DefaultPolicy::Gateway,
/// #     path_context: PathContext::default(),
/// #     people: IdentityMap::default(),
/// # });
/// # let mut context = DecisionContext { now: Millis(1_000), fresh: IdGenerator::new([7; 16]) };
/// # let session = SessionId::new("agent:pi");
/// # let settings = Box::new(session::Settings { max_pending: 10, ..session::Settings::default() });
/// # let (name, door) = (Some("Pi".to_owned()), Some("agent-gate".to_owned()));
/// # let open = session::Command::Open { cwd: String::new(), name, parent: None, door, settings };
/// # engine.handle_command(engine::Command::Session(session.clone(), open), &mut context)?;
/// # let request = AgentRequest {
/// #     session,
/// #     principal: PrincipalId::new("agent:pi"),
/// #     door: "agent-gate".into(),
/// #     wire: "1".into(),
/// #     key: None,
/// #     tool: "open_door".into(),
/// #     arguments: serde_json::Map::new(),
/// #     signatures: vec!["open_door(front)".to_owned()],
/// #     named: Vec::new(),
/// #     undeclared: Vec::new(),
/// #     service: Some("house".into()),
/// #     executor: call::RequestExecutor::Service,
/// #     paths: Vec::new(),
/// #     cwd: String::new(),
/// #     leads_to: None,
/// #     for_principals: Vec::new(),
/// #     effect: ToolEffect::Changes,
/// #     repeat: RepeatMode::Once,
/// # };
/// # let request = engine::Command::Call(call::Command::Request(Box::new(request)));
/// // No rule covers the request of an agent, so it opens a gate.
/// engine.handle_command(request, &mut context)?;
///
/// let gate = engine.state().pending_gates().next().ok_or("no gate is pending")?;
/// let summary = GateSummary::at_hand(&engine, gate).ok_or("the engine holds the content of pending gates")?;
/// assert_eq!((summary.door.as_str(), summary.session_name.as_deref()), ("agent-gate", Some("Pi")));
/// assert_eq!(summary.request.call().map(|call| call.signature), Some("open_door(front)"));
/// assert_eq!(summary.approvals(), None, "one approver is enough");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct GateSummary {
    /// The gate as it stood then.
    pub gate: Gate,
    /// Question of the gate.
    pub request: GateRequest,
    /// The name of the adapter that it came through.
    pub door: String,
    /// Name of its session.
    pub session_name: Option<String>,
    /// The principal that makes its call, if it is not the session itself, for example a subagent.
    pub requester: Option<PrincipalId>,
    /// True if rules of its session's host decide about it, and not those of the gateway.
    pub is_hosted: bool,
    /// The folder of this machine in which what it decides would run.
    pub folder: Option<String>,
}

impl GateSummary {
    /// Creates the summary of a gate that asks `request`.
    pub fn new(engine: &Engine, gate: &Gate, request: GateRequest) -> Self {
        let session = gate.session().and_then(|id| engine.state().session(id));
        // Records of earlier versions do not name the door.
        let door = session.and_then(Session::door).unwrap_or_else(|| Protocol::presumed_for(gate).name()).to_owned();
        Self {
            door,
            session_name: session.and_then(Session::name).map(str::to_owned),
            requester: requester_of(engine, gate),
            is_hosted: session.is_some_and(|session| session.hosted_state().is_some()),
            folder: gate_folder(engine, gate, &request),
            gate: gate.clone(),
            request,
        }
    }

    /// Creates the summary of a gate whose content is at hand.
    pub fn at_hand(engine: &Engine, gate: &Gate) -> Option<Self> {
        GateRequest::at_hand(engine, gate.id()).map(|request| Self::new(engine, gate, request))
    }

    /// Returns who has to allow, where that is more than any one person.
    pub fn approvals(&self) -> Option<Approvals> {
        Approvals::from_gate(&self.gate)
    }
}

/// Returns the principal of the gate's call, if it is not the gate's session.
fn requester_of(engine: &Engine, gate: &Gate) -> Option<PrincipalId> {
    let call = engine.admitted().call_content(gate.call()?)?;
    let principal = &call.request.as_ref()?.principal;
    let is_session = gate.session().is_some_and(|session| session.as_str() == principal.as_str());
    (!is_session).then(|| principal.clone())
}

/// Required approvals, and those given so far.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Approvals {
    /// Number of required approvals.
    pub need: u32,
    /// Approvers who have allowed: people, or identities that belong to no person.
    pub have: Vec<String>,
    /// People who may allow; absent means any approver.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Vec<String>")]
    pub from: Option<Vec<String>>,
    /// Step of the escalation, from 1.
    pub step: u32,
    /// Number of steps.
    pub steps: usize,
}

impl Approvals {
    /// Returns the approvals of a gate whose rule names them.
    pub fn from_gate(gate: &Gate) -> Option<Self> {
        let step = gate.current_step()?;
        let (at, steps) = gate.step_of();
        let votes = gate.votes().iter();
        Some(Self {
            need: step.approvals,
            have: votes.map(|vote| vote.person.clone().unwrap_or_else(|| vote.by.to_string())).collect(),
            from: step.from.as_ref().map(|from| from.iter().cloned().collect()),
            step: at,
            steps,
        })
    }
}

/// In one line, for people.
impl fmt::Display for Approvals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}", self.have.len(), self.need)?;
        if !self.have.is_empty() {
            write!(f, " ({})", self.have.join(", "))?;
        }
        if let Some(from) = &self.from {
            write!(f, ", from {}", from.join(", "))?;
        }
        if self.steps > 1 { write!(f, "; step {} of {}", self.step, self.steps) } else { Ok(()) }
    }
}

/// Returns the arguments that a signature does not show, by name and in order: a person has to see them next to it. Without
/// `call` the arguments in the signature are unknown.
pub fn unshown_arguments<'a>(
    (tool, signature): (&str, &str),
    arguments: &'a Map<String, Value>,
    call: Option<&call::CallDetails>,
) -> Vec<&'a str> {
    // An argument that equals a part of the tool's own name is not shown by it.
    let shown = signature.strip_prefix(tool).unwrap_or(signature);
    let undeclared = call.and_then(|call| call.request.as_ref()).map(|request| &request.undeclared);
    let is_shown = |name: &str, value: &Value| {
        let is_named = call.is_some_and(|call| call.named.is_empty() || call.named.iter().any(|named| named == name));
        let is_undeclared = undeclared.is_some_and(|undeclared| undeclared.iter().any(|one| one == name));
        let text = plain_text(value);
        is_named && !is_undeclared && !text.is_empty() && shown.contains(&text)
    };
    let mut names: Vec<&str> =
        arguments.iter().filter(|(name, value)| !is_shown(name, value)).map(|(name, _)| &**name).collect();
    names.sort_unstable();
    names
}

/// Returns a value as it is shown, and as it is in a signature if it is a text.
pub fn plain_text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => canonical_json(value),
    }
}

/// Returns the folder in which the call of a gate would run, if that is on this machine.
fn gate_folder(engine: &Engine, gate: &Gate, request: &GateRequest) -> Option<String> {
    if let Some(pins) = request.call().and_then(|call| call.pins) {
        return Some(pins.folder.path.clone());
    }
    let session = engine.state().session(gate.session()?)?;
    let call = engine.admitted().call_content(gate.call()?).filter(|call| call.request.is_none())?;
    // The call of a node begins in a folder there, which is not known here.
    let peer = engine.state().call(gate.call()?)?.peer();
    let is_here = peer.and_then(crate::protocol::node_of).is_none();
    Some(folder_of(session, call)).filter(|folder| is_here && !folder.is_empty())
}

/// Returns the rules that may be allowed for longer in place of a gate, in an order that stays.
pub fn proposal_patterns(engine: &Engine, gate: &Gate) -> Vec<String> {
    let patterns = engine.grant_proposals(gate).into_iter().filter_map(|proposal| match proposal.covers {
        GrantCoverage::Pattern(pattern) => Some(pattern),
        GrantCoverage::Exact(_) => None,
    });
    patterns.collect()
}
