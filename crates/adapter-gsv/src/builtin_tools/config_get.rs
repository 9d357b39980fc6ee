//! `gsv__ConfigGet`: a setting, without its secrets.

use countersign_core::tool::ToolEffect;
use countersign_protocol::{
    RawJson,
    gsv::settings::{SettingPath, get_masked},
};
use countersign_runtime::tools::CallFailure;
use serde::Deserialize;
use serde_json::json;

use super::{BuiltinCall, BuiltinResult, BuiltinTool, accept_unchanged};

pub(super) const TOOL: BuiltinTool = BuiltinTool {
    name: "ConfigGet",
    description: "Reads a setting of the gateway by its path, such as session.dmScope, or all of them. Secrets are shown as ***.",
    schema: || {
        json!({"type": "object", "properties": {
            "path": {"type": "string", "description": "Names joined by points (default: all settings)"},
        }})
    },
    signature: &["path"],
    effect: ToolEffect::Reads,
    form: accept_unchanged,
    run: |call| Box::pin(run(call)),
};

#[derive(Deserialize)]
struct ConfigGetArguments {
    path: Option<String>,
}

async fn run(mut call: BuiltinCall) -> BuiltinResult {
    let ConfigGetArguments { path } = call.read_arguments()?;
    let path = path.filter(|path| !path.trim().is_empty()).map(|path| SettingPath::from_text(&path)).transpose();
    let path = path.map_err(|fault| CallFailure::Invalid(fault.message))?;
    Ok(RawJson::from_wire(&get_masked(&call.door.settings.tree(), path.as_ref())).as_text().to_owned())
}
