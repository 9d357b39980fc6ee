//! The adapter of a session that lives in a gateway: what its host's process hands over, and the adapter that is opened on it there.

mod connection;

use std::{path::PathBuf, sync::Arc};

use bytes::Bytes;
use countersign_agent_dir::{self as agent_dir, AgentDir, AgentProduct, ProcessEnvironment, settings::AttachMode};
use countersign_protocol::{
    RawJson, encode_line,
    omp::{OmpRequestId, OmpResponse, UiMethod, UiRequest, ui::NotifyType},
};
use countersign_runtime::{models::ProviderClient, tools::exec::ExecLauncher};
use serde_json::Value;

use super::{
    adapter::{FrameSender, dialect::ExtensionFactory},
    dialogs,
    flags::{self, AdapterFlags},
    rules,
    session_store::AttachTarget,
    start::{self, AttachRequest, LaunchEnvironment, OpenAdapter, ProcessContext},
    start_error::StartError,
    working_dir,
};
use crate::attach::{AttachParams, AttachServer};

pub use connection::{AttachReply, serve_attached};

/// Place in which a session is to live, as flags and settings say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttachPlan {
    /// Selects whether a gateway takes it in.
    pub when: AttachMode,
    /// The data directory of that gateway, where one is named.
    pub data: Option<PathBuf>,
}

/// Says where the session is to live that a host asks for.
///
/// # Errors
/// [`StartError`] for settings that cannot be read.
pub fn attach_plan(flags: &AdapterFlags, process: &LaunchEnvironment) -> Result<AttachPlan, StartError> {
    let (environment, cwd) = environment_and_cwd(flags, process)?;
    let folder =
        AgentDir::resolve(flags.product, &environment, &cwd, std::path::Path::exists).map_err(StartError::new)?;
    let overlays = flags.config_overlays(&environment);
    let ours = agent_dir::AgentSettings::load_with(&folder, &cwd, &overlays).map_err(StartError::new)?.ours;
    let data = flags.attach_to.as_ref().map(|data| process.cwd.join(data)).or(ours.data);
    let when = match (flags.attach, ours.attach, flags.no_session) {
        (true, _, true) => {
            return Err(StartError::new("--no-session cannot be used with --attach: an attached session is recorded"));
        }
        (true, _, false) => AttachMode::Always,
        (false, _, true) => AttachMode::Never,
        (false, when, false) => when,
    };
    Ok(AttachPlan { when, data })
}

/// Returns the state that the process of a host hands over to a gateway. `moves` says whether a session that has a log of its own comes
/// along.
///
/// # Errors
/// [`StartError`] for rules that cannot be read.
pub fn attach_params(
    flags: &AdapterFlags,
    arguments: Vec<String>,
    process: LaunchEnvironment,
    moves: bool,
) -> Result<AttachParams, StartError> {
    let (environment, cwd) = environment_and_cwd(flags, &process)?;
    let folder =
        AgentDir::resolve(flags.product, &environment, &cwd, std::path::Path::exists).map_err(StartError::new)?;
    let rules = rules::read_rule_files(&folder, &cwd, flags.permissions.as_deref()).map_err(StartError::new)?;
    let LaunchEnvironment { cwd, temporary, variables } = process;
    let door = flags.product.name().to_owned();
    Ok(AttachParams { door, arguments, cwd, temporary, variables, rules, process: std::process::id(), moves })
}

fn environment_and_cwd(
    flags: &AdapterFlags,
    process: &LaunchEnvironment,
) -> Result<(ProcessEnvironment, PathBuf), StartError> {
    let environment = text_environment(process);
    let cwd = working_dir::working_folder(flags, &environment, process.cwd.clone(), &process.temporary);
    Ok((environment, cwd.map_err(StartError::new)?))
}

/// Returns the variables that are text.
fn text_environment(process: &LaunchEnvironment) -> ProcessEnvironment {
    let texts = process.variables.iter().filter_map(|(name, value)| Some((name.to_str()?, value.to_str()?)));
    texts.collect()
}

/// Returns the notice, one line, that tells a host that its session's gateway has gone.
pub fn error_notice(problem: String) -> Option<Bytes> {
    let method = UiMethod::Notify { message: problem, notify_type: Some(NotifyType::Error) };
    Some(encode_line(&UiRequest { id: dialogs::fresh_id()?, method }))
}

/// Returns the answer, one line, to a request that the gateway took with it.
pub fn failure_response(id: &Value, command: &str, problem: &str) -> Option<Bytes> {
    let id = OmpRequestId::from(RawJson::from(id.clone()));
    Some(encode_line(&OmpResponse::failure(Some(id), command.to_owned(), problem)))
}

/// Opens the adapter of a session that a host brought.
///
/// # Errors
/// [`StartError`], with nothing begun.
async fn open_attached(
    server: Arc<AttachServer>,
    extend: ExtensionFactory,
    params: AttachParams,
    output: FrameSender,
    notice: &(impl Fn(&str) + Sync),
) -> Result<OpenAdapter, StartError> {
    let AttachParams { door, arguments, cwd, temporary, variables, rules, process, moves } = params;
    let product = AgentProduct::from_name(&door).ok_or_else(|| StartError::new(format!("unknown adapter {door:?}")))?;
    let flags = flags::parse_for(product, arguments).map_err(StartError::new)?;
    let process_of_host = LaunchEnvironment { cwd, temporary, variables };
    let surroundings = ProcessContext {
        environment: text_environment(&process_of_host),
        launcher: ExecLauncher::new(&server.program),
        clock: server.clock.clone(),
        models: Arc::new(ProviderClient::default()),
        process: process_of_host,
    };
    let request = AttachRequest { attach_target: AttachTarget { server, process, moves }, rules };
    start::open_in(flags, surroundings, extend, Some(request), output, notice).await
}
