//! What a tool request asks of the engine, and what it is refused for before policy is asked.

use countersign_view::principals;
use std::{collections::BTreeSet, sync::Arc};

use countersign_core::{
    call::Request,
    digest::{Digest, canonical},
    id::{PrincipalId, SessionId},
    policy::{Reach, Subject, arguments, signature},
    tool::{Effect, Repeat, Shell},
};
use countersign_protocol::agent_gate::{Fault, code};
use countersign_runtime::tools::Secrets;
use serde_json::{Map, Value, json};

use super::{DOOR, Tools};
use countersign_config::Undeclared;

/// What `list_tools` says.
pub(super) fn list(order: &[String], tools: &Tools) -> String {
    let tools: Vec<Value> = order
        .iter()
        .filter_map(|name| Some((name, tools.get(name)?)))
        .map(|(name, tool)| {
            let args: Map<String, Value> = tool
                .args
                .iter()
                .map(|arg| {
                    let mut told = Map::from_iter([("required".to_owned(), Value::from(arg.required))]);
                    if let Some(validate) = &arg.validate {
                        told.insert("validate".to_owned(), Value::from(validate.source()));
                    }
                    (arg.name.clone(), Value::Object(told))
                })
                .collect();
            json!({ "name": name, "description": tool.description, "service": &*tool.service, "args": args })
        })
        .collect();
    json!({ "tools": tools }).to_string()
}

/// The request that a frame makes.
pub(super) fn request(
    tools: &Tools,
    agent: (&SessionId, &PrincipalId),
    id: &str,
    name: String,
    args: Map<String, Value>,
    key: Option<String>,
) -> Result<Request, Fault> {
    let invalid = |message: String| Fault::new(code::INVALID, message);
    let tool = tools.get(&name);
    let declared = tool.map(|tool| &*tool.args).unwrap_or_default();
    arguments::validate(declared, &args).map_err(|refused| invalid(refused.to_string()))?;
    if let Some(tool) = tool {
        (tool.fits)(&args).map_err(invalid)?;
    }
    let template = tool.and_then(|tool| tool.signature.as_deref());
    let signatures = match tool {
        Some(_) => signature::declared(&name, template, &arguments::judged(declared, &args)),
        None => signature::undeclared(&name, &args),
    };
    let signatures = signatures.map_err(|error| invalid(error.to_string()))?;
    // What a template says of free text is left empty there, so that people have to be shown the text beside it.
    let named = template.map(signature::names).unwrap_or_default().into_iter();
    let named = named.filter(|name| !arguments::is_free_text(declared, name)).map(str::to_owned).collect();
    // For a tool that nobody defined the question does not arise: all its values are in the signature.
    let undeclared: Vec<String> = match tool.map(|tool| tool.undeclared) {
        None | Some(Undeclared::Allow) => Vec::new(),
        Some(Undeclared::Ask | Undeclared::Refuse) => {
            arguments::undeclared(declared, template, &args).into_iter().map(str::to_owned).collect()
        }
    };
    if let (Some(Undeclared::Refuse), Some(key)) = (tool.map(|tool| tool.undeclared), undeclared.first()) {
        return Err(invalid(format!("Undeclared argument: {key}")));
    }
    let is_read = tool.is_some_and(|tool| tool.reads);
    Ok(Request {
        session: agent.0.clone(),
        principal: agent.1.clone(),
        door: DOOR.into(),
        wire: id.into(),
        key,
        service: tool.map(|tool| Arc::clone(&tool.service)),
        tool: name.into(),
        arguments: args,
        signatures,
        named,
        undeclared,
        effect: if is_read { Effect::Reads } else { Effect::Changes },
        repeat: if tool.is_some_and(|tool| tool.idempotent) { Repeat::Idempotent } else { Repeat::Once },
    })
}

/// The request, if the secrets that it names are to be had.
pub(super) fn check(secrets: &Secrets, request: Request) -> Result<Request, Fault> {
    if request.service.is_some() {
        let filled = secrets.fill_arguments(&request.arguments);
        filled.map_err(|problem| Fault::new(code::INVALID, problem))?;
    }
    Ok(request)
}

/// What policy is asked about a request, for somebody who wants to know what would become of it.
///
/// # Errors
/// Why the request is refused before policy is asked.
pub(crate) fn subject(tools: &Tools, agent: &str, name: String, args: Map<String, Value>) -> Result<Subject, String> {
    let (session, principal) = (SessionId::new(format!("agent:{agent}")), principals::of_agent(agent));
    let asked = request(tools, (&session, &principal), "1", name, args, None).map_err(|fault| fault.message)?;
    let mut signatures = asked.signatures.into_iter();
    let arguments = Value::Object(asked.arguments);
    let arguments_digest = Digest::of(canonical(&arguments).as_bytes());
    let Value::Object(arguments) = arguments else { return Err("arguments are an object".to_owned()) };
    Ok(Subject {
        principal,
        door: Some(asked.door.to_string()),
        target: asked.service.as_deref().map(str::to_owned),
        session,
        shell: Shell::of_own(&asked.tool),
        tool: asked.tool.to_string(),
        signature: signatures.next().unwrap_or_default(),
        further_signatures: signatures.collect(),
        named: asked.named,
        undeclared: asked.undeclared,
        arguments_digest,
        arguments,
        effect: asked.effect,
        classes: BTreeSet::new(),
        reach: Reach::Beyond,
        cwd: String::new(),
        session_folder: None,
        is_later: false,
        leads_to: None,
        paths: Vec::new(),
    })
}
