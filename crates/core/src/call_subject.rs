//! The subject of a call for policy, made of its content and of the place where it was proposed.

use crate::{
    call,
    decision::DecisionView,
    digest::{Digest, canonical_json},
    gate::{self, Gate},
    id::{PrincipalId, SessionId},
    policy::{self, PolicySubject},
    principal::agent_principal,
    session::Session,
    tool::{ShellInput, ShellMachine, ToolEffect},
};

/// Place where a call was proposed, as far as policy needs it.
#[derive(Clone, Copy, Debug)]
pub struct CallOrigin<'a> {
    /// The session.
    pub session: &'a SessionId,
    /// The adapter through which the session was opened.
    pub door: Option<&'a str>,
    /// The folder that its tools work in.
    pub cwd: &'a str,
    /// The folder that its shell is in.
    pub folder: &'a str,
    /// True if a command ran in that shell before.
    pub is_shell_used: bool,
}

impl<'a> CallOrigin<'a> {
    fn for_session(session: &'a Session) -> Self {
        Self {
            session: session.id(),
            door: session.door(),
            cwd: session.cwd(),
            folder: session.folder(),
            is_shell_used: session.is_shell_used,
        }
    }
}

/// Returns the policy subject of a past call that was proposed there with this content.
pub fn subject_at(place: CallOrigin<'_>, content: &call::CallDetails, effect: ToolEffect) -> PolicySubject {
    subject_of(place, content, effect, agent_principal())
}

/// Returns the policy subject of a call with this content.
pub(crate) fn subject_of_call(
    session: &Session,
    content: &call::CallDetails,
    effect: ToolEffect,
    principal: PrincipalId,
) -> PolicySubject {
    subject_of(CallOrigin::for_session(session), content, effect, principal)
}

fn subject_of(
    place: CallOrigin<'_>,
    content: &call::CallDetails,
    effect: ToolEffect,
    principal: PrincipalId,
) -> PolicySubject {
    let arguments = serde_json::Value::Object(content.arguments.clone());
    let arguments_digest = Digest::hash_bytes(canonical_json(&arguments).as_bytes());
    let shell = shell_of(content);
    if let Some(request) = &content.request {
        // Files and commands of a program on this machine, under the names that our own tools have.
        let is_shared = matches!(&*content.tool, "bash" | "read" | "write" | "edit");
        let is_of_files = is_shared && !request.cwd.is_empty();
        return PolicySubject {
            principal: request.principal.clone(),
            door: request.door.as_deref().map(str::to_owned),
            target: request.service.as_deref().map(str::to_owned),
            session: request.session.clone(),
            tool: content.tool.to_string(),
            signature: content.signature.clone(),
            further_signatures: request.further_signatures.clone(),
            named: content.named.clone(),
            undeclared: request.undeclared.clone(),
            arguments_digest,
            arguments: content.arguments.clone(),
            effect,
            classes: std::collections::BTreeSet::new(),
            reach: if is_of_files { policy::EffectReach::Files } else { policy::EffectReach::Beyond },
            cwd: request.cwd.clone(),
            session_folder: Some(place.cwd).filter(|cwd| !cwd.is_empty()).map(str::to_owned),
            is_later: false,
            leads_to: content.leads_to.as_deref().map(str::to_owned).filter(|_| is_of_files),
            paths: request.paths.clone(),
            shell,
        };
    }
    // Calls of a host use its own names: a path there is not a path of this machine.
    let is_here = content.class.is_none();
    let paths = content.arguments.get("path").and_then(serde_json::Value::as_str).filter(|_| is_here);
    PolicySubject {
        principal,
        door: place.door.map(str::to_owned),
        target: is_here.then(|| server_of_tool(&content.tool)).flatten(),
        session: place.session.clone(),
        tool: content.tool.to_string(),
        signature: content.signature.clone(),
        further_signatures: Vec::new(),
        named: content.named.clone(),
        undeclared: Vec::new(),
        arguments_digest,
        arguments: content.arguments.clone(),
        effect,
        classes: content.class.into_iter().collect(),
        reach: if is_here { policy::EffectReach::Files } else { policy::EffectReach::Beyond },
        cwd: folder_at(place, content),
        session_folder: Some(place.cwd.to_owned()),
        is_later: is_here && place.is_shell_used,
        leads_to: content.leads_to.as_deref().map(str::to_owned).filter(|_| is_here),
        paths: paths.map(str::to_owned).into_iter().collect(),
        shell,
    }
}

/// Returns the service of a tool of an MCP server, `mcp__SERVER__TOOL`, which gets secrets by name as any service does.
fn server_of_tool(tool: &str) -> Option<String> {
    let (server, _) = tool.strip_prefix("mcp__")?.split_once("__")?;
    Some(format!("mcp:{server}"))
}

/// Returns the part of a call that a shell reads, as it was recorded with the call.
fn shell_of(content: &call::CallDetails) -> ShellInput {
    content.shell.clone().unwrap_or_else(|| ShellInput::of_own(&content.tool))
}

/// Returns the folder of a call by name alone: the current folder of the shell, or the folder that the call names.
pub fn folder_of(session: &Session, content: &call::CallDetails) -> String {
    folder_at(CallOrigin::for_session(session), content)
}

fn folder_at(place: CallOrigin<'_>, content: &call::CallDetails) -> String {
    let ShellInput::Line { machine: ShellMachine::This, .. } = shell_of(content) else { return place.cwd.to_owned() };
    // The own shell is in its last folder, a host's in the folder of its tools.
    let folder = if content.class.is_none() { place.folder } else { place.cwd };
    let named = content.arguments.get("cwd").and_then(serde_json::Value::as_str).filter(|named| !named.is_empty());
    let Some(named) = named else { return folder.to_owned() };
    let mut parts: Vec<&str> = Vec::new();
    let base = if named.starts_with('/') { "" } else { folder };
    for part in base.split('/').chain(named.split('/')) {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    format!("/{}", parts.join("/"))
}

/// Returns the policy subject of the call that a gate decides.
pub(crate) fn subject_of_gate(view: DecisionView<'_>, gate: &Gate) -> Option<PolicySubject> {
    if gate.kind() != gate::Kind::Approval {
        return None;
    }
    let call = view.state.call(gate.call()?)?;
    let session = view.state.session(call.session())?;
    let content = view.admitted.call_content(call.id())?;
    Some(subject_of_call(session, content, call.effect, agent_principal()))
}
