//! What a tool request asks of the engine, and what it is refused for before policy is asked.

use std::{collections::BTreeSet, sync::Arc};

use countersign_core::{
    call::Request,
    digest::{Digest, canonical},
    id::{PrincipalId, SessionId},
    policy::{Reach, Subject, signature},
    tool::{Effect, Repeat},
};
use countersign_protocol::agent_gate::{Fault, code};
use serde_json::{Map, Value, json};

use super::{Tool, Tools, Undeclared};

/// What `list_tools` says.
pub(super) fn list(order: &[String], tools: &Tools) -> String {
    let tools: Vec<Value> = order
        .iter()
        .filter_map(|name| Some((name, tools.get(name)?)))
        .map(|(name, tool)| {
            let args: Map<String, Value> = tool
                .args
                .iter()
                .map(|(name, arg)| {
                    let mut told = Map::from_iter([("required".to_owned(), Value::from(arg.required))]);
                    if let Some((_, expression)) = &arg.validate {
                        told.insert("validate".to_owned(), Value::from(&**expression));
                    }
                    (name.clone(), Value::Object(told))
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
    if let Some(argument) = signature::forbidden(&args) {
        return Err(invalid(format!("Argument '{argument}' contains forbidden characters")));
    }
    let tool = tools.get(&name);
    let signatures = match tool {
        Some(tool) => {
            validate(tool, &args)?;
            (tool.fits)(&args).map_err(invalid)?;
            signature::declared(&name, tool.signature.as_deref(), &args)
        }
        None => signature::undeclared(&name, &args),
    };
    let signatures = signatures.map_err(|error| invalid(error.to_string()))?;
    let template = tool.and_then(|tool| tool.signature.as_deref());
    let named: Vec<String> =
        template.map(signature::names).unwrap_or_default().into_iter().map(str::to_owned).collect();
    let undeclared = match tool {
        None => Vec::new(),
        Some(tool) => {
            let is_declared =
                |key: &String| named.contains(key) || tool.args.iter().any(|(declared, _)| declared == key);
            let undeclared: Vec<String> = args.keys().filter(|key| !is_declared(key)).cloned().collect();
            match (tool.undeclared, undeclared.first()) {
                (Undeclared::Refuse, Some(key)) => return Err(invalid(format!("Undeclared argument: {key}"))),
                (Undeclared::Allow, _) => Vec::new(),
                (Undeclared::Ask | Undeclared::Refuse, _) => undeclared,
            }
        }
    };
    let is_read = tool.is_some_and(|tool| tool.reads);
    Ok(Request {
        session: agent.0.clone(),
        principal: agent.1.clone(),
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

/// What policy is asked about a request, for somebody who wants to know what would become of it.
///
/// # Errors
/// Why the request is refused before policy is asked.
pub(crate) fn subject(tools: &Tools, name: String, args: Map<String, Value>) -> Result<Subject, String> {
    let (session, principal) = (SessionId::new("agent:trial"), PrincipalId::new("agent:trial"));
    let asked = request(tools, (&session, &principal), "1", name, args, None).map_err(|fault| fault.message)?;
    let mut signatures = asked.signatures.into_iter();
    let arguments = Value::Object(asked.arguments);
    let arguments_digest = Digest::of(canonical(&arguments).as_bytes());
    let Value::Object(arguments) = arguments else { return Err("arguments are an object".to_owned()) };
    Ok(Subject {
        principal,
        session,
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
        paths: Vec::new(),
    })
}

fn validate(tool: &Tool, args: &Map<String, Value>) -> Result<(), Fault> {
    for (name, argument) in &tool.args {
        let Some(value) = args.get(name) else {
            if argument.required {
                return Err(Fault::new(code::INVALID, format!("Missing required argument: {name}")));
            }
            continue;
        };
        if let Some((matches, _)) = &argument.validate
            && let Some(text) = first_that_fails(value, &**matches)
        {
            return Err(Fault::new(code::INVALID, format!("Invalid value for {name}: '{text}'")));
        }
    }
    Ok(())
}

/// The first text in a value, at any depth, that does not match.
fn first_that_fails<'a>(value: &'a Value, matches: &dyn Fn(&str) -> bool) -> Option<&'a str> {
    match value {
        Value::String(text) => (!matches(text)).then_some(text),
        Value::Array(items) => items.iter().find_map(|item| first_that_fails(item, matches)),
        Value::Object(map) => map.values().find_map(|item| first_that_fails(item, matches)),
        Value::Null | Value::Bool(_) | Value::Number(_) => None,
    }
}
