//! The door of a session that lives in a gateway: what its host's process hands over, and the door that is opened on it there.

mod line;

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
    dialogs,
    door::{Output, dialect::ExtensionFactory},
    flags::{self, Flags},
    rules,
    shelf::Abroad,
    start::{self, Arrival, OpenDoor, Process, Surroundings},
    start_error::StartError,
    working,
};
use crate::attach::{Hall, Handover};

pub use line::{Opening, serve_attached};

/// Where a session is to live, as flags and settings say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Whether a gateway takes it in.
    pub when: AttachMode,
    /// The data directory of that gateway, where one is named.
    pub data: Option<PathBuf>,
}

/// Says where the session is to live that a host asks for.
///
/// # Errors
/// [`StartError`] for settings that cannot be read.
pub fn plan(flags: &Flags, process: &Process) -> Result<Plan, StartError> {
    let (environment, cwd) = around(flags, process)?;
    let folder =
        AgentDir::resolve(flags.product, &environment, &cwd, std::path::Path::exists).map_err(StartError::new)?;
    let overlays = flags.overlays(&environment);
    let ours = agent_dir::AgentSettings::load_with(&folder, &cwd, &overlays).map_err(StartError::new)?.ours;
    let data = flags.attach_to.as_ref().map(|data| process.cwd.join(data)).or(ours.data);
    let when = match (flags.attach, ours.attach, flags.no_session) {
        (true, _, true) => {
            return Err(StartError::new("--no-session keeps nothing and --attach everything: they do not go together"));
        }
        (true, _, false) => AttachMode::Always,
        (false, _, true) => AttachMode::Never,
        (false, when, false) => when,
    };
    Ok(Plan { when, data })
}

/// What the process of a host hands over to a gateway. `moves` says whether a session that has a log of its own comes along.
///
/// # Errors
/// [`StartError`] for rules that cannot be read.
pub fn handover(flags: &Flags, arguments: Vec<String>, process: Process, moves: bool) -> Result<Handover, StartError> {
    let (environment, cwd) = around(flags, &process)?;
    let folder =
        AgentDir::resolve(flags.product, &environment, &cwd, std::path::Path::exists).map_err(StartError::new)?;
    let rules = rules::files(&folder, &cwd, flags.permissions.as_deref()).map_err(StartError::new)?;
    let Process { cwd, temporary, variables } = process;
    let door = flags.product.name().to_owned();
    Ok(Handover { door, arguments, cwd, temporary, variables, rules, process: std::process::id(), moves })
}

fn around(flags: &Flags, process: &Process) -> Result<(ProcessEnvironment, PathBuf), StartError> {
    let environment = environment(process);
    let cwd = working::folder(flags, &environment, process.cwd.clone(), &process.temporary);
    Ok((environment, cwd.map_err(StartError::new)?))
}

/// The variables that are text.
fn environment(process: &Process) -> ProcessEnvironment {
    let texts = process.variables.iter().filter_map(|(name, value)| Some((name.to_str()?, value.to_str()?)));
    texts.collect()
}

/// What a host reads as a notice that its session's gateway has gone, one line.
pub fn told(problem: String) -> Option<Bytes> {
    let method = UiMethod::Notify { message: problem, notify_type: Some(NotifyType::Error) };
    Some(encode_line(&UiRequest { id: dialogs::fresh_id()?, method }))
}

/// What a host reads as the answer to a request that the gateway took with it, one line.
pub fn unanswered(id: &Value, command: &str, problem: &str) -> Option<Bytes> {
    let id = OmpRequestId::from(RawJson::from(id.clone()));
    Some(encode_line(&OmpResponse::failure(Some(id), command.to_owned(), problem)))
}

/// Opens the door of a session that a host brought.
///
/// # Errors
/// [`StartError`], with nothing begun.
async fn open_attached(
    hall: Arc<Hall>,
    extend: ExtensionFactory,
    handover: Handover,
    output: Output,
    notice: &(impl Fn(&str) + Sync),
) -> Result<OpenDoor, StartError> {
    let Handover { door, arguments, cwd, temporary, variables, rules, process, moves } = handover;
    let product =
        AgentProduct::from_name(&door).ok_or_else(|| StartError::new(format!("there is no door {door:?} here")))?;
    let flags = flags::parse_for(product, arguments).map_err(StartError::new)?;
    let process_of_host = Process { cwd, temporary, variables };
    let surroundings = Surroundings {
        environment: environment(&process_of_host),
        launcher: ExecLauncher::new(&hall.program),
        clock: hall.clock.clone(),
        models: Arc::new(ProviderClient::default()),
        process: process_of_host,
    };
    let arrival = Arrival { abroad: Abroad { hall, process, moves }, rules };
    start::open_in(flags, surroundings, extend, Some(arrival), output, notice).await
}
