//! The tools of services: their definitions, and the form of a request for the engine and for policy.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use countersign_config::{self as config, ServiceConfig, UndeclaredArguments};
use countersign_core::{
    call::{AgentRequest, RequestExecutor},
    digest::{Digest, canonical_json},
    id::{PrincipalId, SessionId},
    policy::{
        EffectReach, PolicySubject,
        arguments::{self, DeclaredArgument},
        signature,
    },
    tool::{RepeatMode, ShellInput, ToolEffect},
};
use countersign_runtime::services::{self, ServiceCall};
use countersign_view::{Protocol, principals};
use serde_json::{Map, Value};

/// Check of arguments for the request of a tool; its error is the reason.
pub type ArgumentCheck = Arc<dyn Fn(&Map<String, Value>) -> Result<(), String> + Send + Sync>;

/// Arguments that a tool takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArgumentTexts {
    /// Texts without characters that have a meaning in signatures, as those are made from them.
    Plain,
    /// Any texts: no signature is made from arguments, and approvers are shown all of them.
    Any,
}

/// A tool that agents may ask for.
#[derive(Clone)]
pub struct ServiceTool {
    /// For people.
    pub description: String,
    /// The service that does it.
    pub service: Arc<str>,
    /// The template of its signature.
    pub signature: Option<String>,
    /// Its arguments in the order of the file.
    pub args: Vec<DeclaredArgument>,
    /// Texts that arguments may have.
    pub texts: ArgumentTexts,
    /// Handling of undeclared arguments.
    pub undeclared: UndeclaredArguments,
    /// Called before policy, so that no approval is given for a request that can never be sent.
    pub fits: ArgumentCheck,
    /// True if twice has the effect of once.
    pub idempotent: bool,
    /// True if it only reads.
    pub reads: bool,
}

/// Tools by name.
pub type ServiceTools = BTreeMap<String, ServiceTool>;

/// Returns the tools of these services, by name.
pub fn from_services(services: &[ServiceConfig]) -> ServiceTools {
    let tools = services.iter().flat_map(|service| service.tools.iter().map(move |tool| (service, tool)));
    let tool_entry = |(service, tool): (&ServiceConfig, &config::ToolConfig)| {
        let call = call_of(tool);
        let fits: ArgumentCheck =
            Arc::new(move |arguments| call.check_arguments(arguments).map_err(|refused| refused.to_string()));
        let service_tool = ServiceTool {
            fits,
            description: tool.description.clone(),
            service: service.name.as_str().into(),
            signature: Some(tool.signature.clone()).filter(|signature| !signature.is_empty()),
            args: tool.args.clone(),
            texts: ArgumentTexts::Plain,
            undeclared: tool.undeclared_args,
            idempotent: tool.idempotent,
            reads: matches!(tool.request.method.as_str(), "GET" | "HEAD"),
        };
        (tool.name.clone(), service_tool)
    };
    tools.map(tool_entry).collect()
}

/// Returns the request that a call of a tool sends to its service.
pub fn call_of(tool: &config::ToolConfig) -> ServiceCall {
    ServiceCall {
        method: tool.request.method.clone(),
        path: tool.request.path.clone(),
        body_exclude: tool.request.body_exclude.clone(),
        query: tool.request.query.clone(),
        wrap: tool.wrap.clone(),
        idempotent: tool.idempotent,
        limits: Some(services::ServiceLimits {
            timeout: tool.timeout,
            response: usize::try_from(tool.max_response).unwrap_or(usize::MAX),
        }),
    }
}

/// A tool that an agent asks for.
pub struct AgentToolRequest<'a> {
    /// The agent's session.
    pub session: &'a SessionId,
    /// Principal of the agent for policy.
    pub principal: &'a PrincipalId,
    /// The id of its request on the wire.
    pub id: &'a str,
    /// The tool.
    pub tool: String,
    /// Its arguments.
    pub args: Map<String, Value>,
    /// The key under which a request counts once.
    pub key: Option<String>,
}

/// Returns the request of an agent for `tool` as the engine takes it; without a tool there is no definition of that name.
///
/// # Errors
/// The reason why it is refused before policy.
pub fn build_request(tool: Option<&ServiceTool>, tool_request: AgentToolRequest<'_>) -> Result<AgentRequest, String> {
    let AgentToolRequest { session, principal, id, tool: name, args, key } = tool_request;
    let declared = tool.map(|tool| &*tool.args).unwrap_or_default();
    if tool.is_none_or(|tool| tool.texts == ArgumentTexts::Plain) {
        arguments::validate_arguments(declared, &args).map_err(|refused| refused.to_string())?;
    }
    if let Some(tool) = tool {
        (tool.fits)(&args)?;
    }
    let template = tool.and_then(|tool| tool.signature.as_deref());
    let signatures = match tool {
        Some(_) => signature::declared_signatures(&name, template, &arguments::signature_arguments(declared, &args)),
        None => signature::undeclared_signatures(&name, &args),
    };
    let signatures = signatures.map_err(|error| error.to_string())?;
    // Free text that a template names is left empty there, so that people have to be shown the text as well.
    let named = template.map(signature::template_names).unwrap_or_default().into_iter();
    let named = named.filter(|name| !arguments::is_free_text(declared, name)).map(str::to_owned).collect();
    // For an undefined tool the question does not arise: all its values are in the signature.
    let undeclared: Vec<String> = match tool.map(|tool| tool.undeclared) {
        None | Some(UndeclaredArguments::Allow) => Vec::new(),
        Some(UndeclaredArguments::Ask | UndeclaredArguments::Refuse) => {
            arguments::undeclared_names(declared, template, &args).into_iter().map(str::to_owned).collect()
        }
    };
    if let (Some(UndeclaredArguments::Refuse), Some(key)) = (tool.map(|tool| tool.undeclared), undeclared.first()) {
        return Err(format!("Undeclared argument: {key}"));
    }
    let is_read = tool.is_some_and(|tool| tool.reads);
    Ok(AgentRequest {
        session: session.clone(),
        principal: principal.clone(),
        door: Protocol::AgentGate.name().into(),
        wire: id.into(),
        key,
        service: tool.map(|tool| Arc::clone(&tool.service)),
        executor: RequestExecutor::Service,
        paths: Vec::new(),
        cwd: String::new(),
        leads_to: None,
        tool: name.into(),
        arguments: args,
        signatures,
        named,
        undeclared,
        for_principals: Vec::new(),
        effect: if is_read { ToolEffect::Reads } else { ToolEffect::Changes },
        repeat: if tool.is_some_and(|tool| tool.idempotent) { RepeatMode::Idempotent } else { RepeatMode::Once },
    })
}

/// Returns the subject for policy of a request, for a trial.
///
/// # Errors
/// The reason why the request is refused before policy.
pub fn policy_subject(
    tools: &ServiceTools,
    agent: &str,
    name: String,
    args: Map<String, Value>,
) -> Result<PolicySubject, String> {
    let (session, principal) = (SessionId::new(format!("agent:{agent}")), principals::of_agent(agent));
    let tool_request =
        AgentToolRequest { session: &session, principal: &principal, id: "1", tool: name, args, key: None };
    let engine_request = build_request(tools.get(&tool_request.tool), tool_request)?;
    let mut signatures = engine_request.signatures.into_iter();
    let arguments = Value::Object(engine_request.arguments);
    let arguments_digest = Digest::hash_bytes(canonical_json(&arguments).as_bytes());
    let Value::Object(arguments) = arguments else { return Err("arguments are an object".to_owned()) };
    Ok(PolicySubject {
        principal,
        door: Some(engine_request.door.to_string()),
        target: engine_request.service.as_deref().map(str::to_owned),
        session,
        shell: ShellInput::of_own(&engine_request.tool),
        tool: engine_request.tool.to_string(),
        signature: signatures.next().unwrap_or_default(),
        further_signatures: signatures.collect(),
        named: engine_request.named,
        undeclared: engine_request.undeclared,
        arguments_digest,
        arguments,
        effect: engine_request.effect,
        classes: BTreeSet::new(),
        reach: EffectReach::Beyond,
        cwd: String::new(),
        session_folder: None,
        is_later: false,
        leads_to: None,
        paths: Vec::new(),
    })
}
