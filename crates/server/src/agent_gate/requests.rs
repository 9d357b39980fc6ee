//! What a tool request asks of the engine, and what it is refused for before policy is asked.

use std::sync::Arc;

use countersign_core::{
    call::Request,
    policy::signature,
    tool::{Effect, Repeat},
};
use countersign_protocol::agent_gate::{Fault, code};
use serde_json::{Map, Value, json};

use super::{Door, Known, Tool, Undeclared};

/// What `list_tools` says.
pub(super) fn list(tools: &[(String, Tool)]) -> String {
    let tools: Vec<Value> = tools
        .iter()
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
    door: &Door,
    agent: &Known,
    id: &str,
    name: String,
    args: Map<String, Value>,
    key: Option<String>,
) -> Result<Request, Fault> {
    let invalid = |message: String| Fault::new(code::INVALID, message);
    if let Some(argument) = signature::forbidden(&args) {
        return Err(invalid(format!("Argument '{argument}' contains forbidden characters")));
    }
    let tool = door.tools.get(&name);
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
        session: agent.session.clone(),
        principal: agent.principal.clone(),
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
