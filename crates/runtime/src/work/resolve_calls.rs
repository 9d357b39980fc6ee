//! Calls of an answer of a model: looked up, checked, and pinned on disk, before they are judged.

use countersign_core::{
    call::Executor,
    id::SessionId,
    run::ResolvedCall,
    tool::{CallConcurrency, RepeatMode, ToolEffect},
};
use countersign_models::MessagePart;
use countersign_tools::{CallFailure, CallRoute, ToolRegistry, leads_to, strip_intent};
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use super::RunEnvironment;

/// Text for a call whose pinning was stopped.
const NOT_LOOKED_AT: &str = "Not run: it was stopped before what it would run from disk was looked at.";

/// Location in which the calls of a session begin.
pub(super) struct CallLocation<'a> {
    pub(super) session: &'a SessionId,
    pub(super) cwd: &'a str,
    /// Working folder of the session's shell.
    pub(super) folder: &'a str,
}

impl CallLocation<'_> {
    /// Looks at the files that calls would run from disk. A disk may never answer: a stop of the run stops the look as well, and a
    /// call whose files were not looked at is not run.
    pub(super) async fn pin_calls(
        &self,
        host: &dyn RunEnvironment,
        registry: &ToolRegistry,
        calls: &mut [ResolvedCall],
        cancel: &CancellationToken,
    ) {
        // A run that is being stopped runs none of it either way.
        let is_stopping = cancel.is_cancelled();
        let here = |call: &&mut ResolvedCall| call.executor == Executor::Builtin && call.problem.is_none();
        let mut cx = None;
        for call in calls.iter_mut().filter(here) {
            let Some(tool) = registry.get(&call.tool) else { continue };
            let cx = cx.get_or_insert_with(|| {
                let mut cx = host.tool_context(self.session, self.cwd);
                cx.pinned = Some(self.folder.into());
                cx
            });
            let looked = async {
                let pins = tool.pin_files(&call.arguments, cx).await?;
                Ok::<_, CallFailure>((pins, leads_to(&call.arguments, cx).await))
            };
            tokio::select! {
                looked = looked => match looked {
                    Ok((pins, leads_to)) => {
                        call.pins = pins.map(Box::new);
                        call.leads_to = leads_to.map(Into::into);
                    }
                    Err(refused) => call.problem = Some(refused.to_string().into()),
                },
                () = cancel.cancelled(), if !is_stopping => call.problem = Some(NOT_LOOKED_AT.into()),
            }
        }
    }
}

/// Reads raw arguments. Nothing at all counts as no arguments.
pub(super) fn parse_arguments(raw: &str) -> Result<Map<String, Value>, String> {
    if raw.trim().is_empty() {
        return Ok(Map::new());
    }
    match serde_json::from_str(raw) {
        Ok(Value::Object(arguments)) => Ok(arguments),
        Ok(_) => Err("the arguments are no JSON object".to_owned()),
        Err(error) => Err(format!("the arguments are no JSON: {error}")),
    }
}

/// Looks a call up and checks its arguments.
pub(super) fn resolve_call(
    call: &MessagePart,
    registry: &ToolRegistry,
    no_tool: impl Fn(&str) -> String,
) -> Option<ResolvedCall> {
    let MessagePart::ToolCall { id, name, arguments, .. } = call else { return None };
    let tool = registry.get(name);
    let spec = tool.map(|tool| tool.spec());
    let (arguments, problem) = match parse_arguments(arguments) {
        Ok(arguments) => (arguments, None),
        Err(problem) => (Map::new(), Some(format!("Invalid arguments for tool {name}: {problem}"))),
    };
    let (mut arguments, intent) = strip_intent(arguments);
    let mut route = CallRoute::Here;
    let problem = match tool {
        None => Some(no_tool(name)),
        Some(tool) => problem.or_else(|| {
            let checked = tool.check_arguments(&Value::Object(arguments.clone())).and_then(|valid| {
                arguments = valid;
                tool.route_call(&mut arguments)
            });
            checked.map(|checked| route = checked).err().map(|problem| problem.to_string())
        }),
    };
    let (executor, class, shell) = match &route {
        CallRoute::Here => (Executor::Builtin, None, None),
        CallRoute::Person => (Executor::Person, None, None),
        CallRoute::Peer(away) => (Executor::Peer(away.peer.clone()), Some(away.class), Some(away.shell.clone())),
    };
    let is_away = class.is_some();
    Some(ResolvedCall {
        tool_call_id: id.as_str().into(),
        tool: name.as_str().into(),
        signature: spec.map_or_else(|| name.clone(), |spec| spec.signature_of(&arguments)),
        named: spec.map_or_else(Vec::new, |spec| spec.signature.iter().map(|name| (*name).to_owned()).collect()),
        arguments,
        intent: intent.map(Into::into),
        concurrency: spec.map_or(CallConcurrency::Shared, |spec| spec.concurrency),
        // A call that left for a peer is not sent again.
        repeat: spec.filter(|_| !is_away).map_or(RepeatMode::Once, |spec| spec.repeat),
        effect: spec.map_or(ToolEffect::Changes, |spec| spec.effect),
        executor,
        class,
        shell,
        problem: problem.map(Into::into),
        pins: None,
        leads_to: None,
    })
}
