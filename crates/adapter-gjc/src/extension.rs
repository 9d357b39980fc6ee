//! This dialect as the door knows it: its options, and its hooks.
//!
//! It must not do what hooks are for: each hands over to the module that does.

use std::time::Duration;

use bytes::Bytes;
use countersign_adapter_omp::{
    ActiveDialect, ConfiguredDialect, DialectExtension, DialectOptions, OmpAdapter, OutgoingFrame, SessionIdForm,
    SessionListing, commands::handle_own, flags::AdapterFlags, session_file::UnansweredPolicy,
};
use countersign_agent_dir::{AgentProduct, ProcessEnvironment};
use countersign_core::{
    engine::RecordedFact,
    gate::{ApprovalScope, Gate, GateReply},
    session::AnswerFormat,
};
use countersign_protocol::{
    gjc::{
        self, GjcCommand, GjcInboundFrame, bridge::PermissionRequest, registry::SessionTransport,
        state::AcceptedCapabilities, ui::TITLE_VARIABLES,
    },
    lines::DecodedLine,
    omp::{OmpEvent, OmpRequestId, OmpResponse, UiAnswer},
};
use countersign_view::GateRequest;
use futures_util::{FutureExt as _, future::BoxFuture};

use super::{
    Presence, RECORD_FOLDERS, commands,
    dialect_state::{DialectState, GateDisplay, HostOptions, Surface, state, state_mut},
    gate_form::Options,
    permission, stages, unattended,
    voice::{Reasons, Voice, arrange},
    workflow::{self, NOBODY},
};

/// How long commands that have come are done after the end of input.
const DRAIN: Duration = Duration::from_secs(5);

/// Chooses the dialect of a host: this one for hosts of gjc, omp's own for those of omp.
pub fn extension(flags: &AdapterFlags, environment: &ProcessEnvironment) -> ConfiguredDialect {
    match flags.product {
        AgentProduct::Omp => ConfiguredDialect {
            options: DialectOptions::default(),
            dialect: ActiveDialect::new(&ContractedDialect, ()),
        },
        AgentProduct::Gjc => {
            let (host, surface) = (host(flags, environment), surface(flags));
            let (workflow, voice) = (GateDisplay::new(host), Voice::default().with(host.reasons));
            let state = DialectState { workflow, voice, surface, ..DialectState::default() };
            ConfiguredDialect {
                options: options(flags, environment, surface),
                dialect: ActiveDialect::new(&GjcDialect, state),
            }
        }
    }
}

fn surface(flags: &AdapterFlags) -> Surface {
    match (flags.mode.as_deref(), &flags.listen) {
        (Some("bridge"), _) => Surface::Bridge,
        (_, Some(_)) => Surface::Socket,
        (_, None) => Surface::Host,
    }
}

fn options(flags: &AdapterFlags, environment: &ProcessEnvironment, surface: Surface) -> DialectOptions {
    DialectOptions {
        session_ids: SessionIdForm::Uuid,
        // The original writes it when it ends.
        unanswered: UnansweredPolicy::Written,
        follower: Some(workflow::follow),
        record_folders: &RECORD_FOLDERS,
        // What clients of the bridge expect to be asked.
        asking_tools: if surface == Surface::Bridge { &["bash"] } else { &[] },
        workflow_tools: true,
        hosts_keep_tasks: true,
        nobody: (!flags.shows_dialogs()).then_some(NOBODY),
        answers: AnswerFormat::Selected,
        titles: TITLE_VARIABLES.iter().any(|name| environment.get(name).is_some_and(is_on)),
        reminders: true,
        changing_clients: surface != Surface::Host,
        lasting_numbers: surface == Surface::Socket,
        lossy_lines: true,
        reads_at_once: true,
        unwritten_reported: true,
        drain: DRAIN,
    }
}

/// What a host says of itself by its flags and its environment.
fn host(flags: &AdapterFlags, environment: &ProcessEnvironment) -> HostOptions {
    let leaves_out = |name: &str| environment.get(name).is_some_and(|value| value.trim() == "none");
    HostOptions {
        dialogs: flags.shows_dialogs(),
        options: if leaves_out("GJC_RPC_GATE_OPTIONS") { Options::None } else { Options::Objects },
        reasons: if leaves_out("GJC_RPC_STOP_REASONS") { Reasons::None } else { Reasons::Named },
        stage: flags.stage,
    }
}

/// What counts as yes in a variable.
fn is_on(value: &str) -> bool {
    ["1", "true", "yes", "on"].contains(&value.trim().to_ascii_lowercase().as_str())
}

fn is_on_bridge(door: &OmpAdapter) -> bool {
    state(door).is_some_and(|gjc| gjc.surface == Surface::Bridge)
}

/// Hooks of this dialect.
struct GjcDialect;

impl DialectExtension for GjcDialect {
    fn decode(&self, line: &DecodedLine) -> Result<GjcInboundFrame, OmpResponse> {
        match gjc::receive_line(line) {
            // Of the socket alone.
            Ok(GjcInboundFrame::Resume { .. }) => {
                Err(OmpResponse::unknown_command_with_id(None, Some("resume".to_owned())))
            }
            Ok(incoming) => Ok(incoming),
            Err(malformed) => Err(malformed.to_response()),
        }
    }

    fn encode(&self, door: &mut OmpAdapter, frame: OutgoingFrame<'_>) -> Option<Bytes> {
        let gjc: &mut DialectState = door.dialect.state_mut()?;
        if let Some(seat) = &door.seat {
            gjc.voice.is_of(&seat.id);
        }
        if let OutgoingFrame::Response(response) = frame
            && !gjc.unattended.passes(response)
        {
            return None;
        }
        gjc.voice.line(frame)
    }

    fn arrange_events(&self, events: &mut [OmpEvent]) {
        arrange(events);
    }

    fn broken_off(&self, id: Option<OmpRequestId>, command: &'static str, problem: String) -> OmpResponse {
        OmpResponse::failure(id, command, problem)
    }

    fn on_open<'a>(&self, door: &'a mut OmpAdapter) -> BoxFuture<'a, ()> {
        unattended::take_up(door).boxed()
    }

    fn on_close(&self, door: &mut OmpAdapter) {
        unattended::leave(door);
    }

    fn on_command<'a>(
        &self,
        door: &'a mut OmpAdapter,
        id: Option<OmpRequestId>,
        command: GjcCommand,
    ) -> BoxFuture<'a, ()> {
        commands::handle(door, id, command).boxed()
    }

    fn on_unknown<'a>(
        &self,
        door: &'a mut OmpAdapter,
        id: Option<OmpRequestId>,
        name: Option<String>,
    ) -> BoxFuture<'a, ()> {
        commands::unknown(door, id, name).boxed()
    }

    fn on_fact(&self, door: &mut OmpAdapter, recorded: &RecordedFact) {
        unattended::heard(door, recorded);
    }

    fn on_gate_shown(&self, door: &mut OmpAdapter, gate: &Gate, request: &GateRequest) -> bool {
        workflow::show(door, gate, request)
    }

    fn permission_request(
        &self,
        door: &OmpAdapter,
        call: &str,
        request: &GateRequest,
        offered: &[ApprovalScope],
    ) -> Option<PermissionRequest> {
        permission::request(call, request, offered).filter(|_| is_on_bridge(door))
    }

    fn permission_answer(
        &self,
        door: &OmpAdapter,
        answer: &UiAnswer,
        request: &GateRequest,
        offered: &[ApprovalScope],
    ) -> Option<GateReply> {
        permission::said(answer, request, offered).filter(|_| is_on_bridge(door))
    }

    fn on_prompt(&self, door: &OmpAdapter, text: String) -> String {
        let opening = state(door).and_then(|gjc| gjc.workflow.opening_stage());
        match opening.filter(|_| !text.starts_with('/')) {
            // The first message of a stage is what a person would have written: a file may take the place of the texts.
            Some(stage) => format!("/skill:{} {text}", stage.name()),
            None => text,
        }
    }

    fn expand_prompt(&self, text: String) -> String {
        stages::expand(&text).unwrap_or(text)
    }

    fn on_client(&self, door: &mut OmpAdapter) {
        if let Some(gjc) = state_mut(door).filter(|gjc| gjc.surface == Surface::Socket) {
            // What the one before asked for is not what this one can read.
            gjc.voice.adopt(&AcceptedCapabilities::for_requested(Vec::new()));
        }
    }

    fn on_tools_changed<'a>(&self, door: &'a mut OmpAdapter) -> BoxFuture<'a, ()> {
        unattended::tools_changed(door).boxed()
    }

    fn event_sequence(&self, door: &OmpAdapter) -> u64 {
        state(door).map_or(0, |gjc| gjc.voice.last())
    }

    fn continue_sequence(&self, door: &mut OmpAdapter, number: u64) {
        if let Some(gjc) = state_mut(door) {
            gjc.voice.count_behind(number);
        }
    }

    fn list_session(&self, listing: SessionListing) -> Option<Box<dyn Send>> {
        // Hosts look there for what runs; it runs in this process.
        Some(Box::new(Presence::of(listing, SessionTransport::Stdio, None)))
    }
}

/// Hooks of omp's own protocol where a session may be under a contract: one of a gateway that a host of this dialect had before.
struct ContractedDialect;

impl DialectExtension for ContractedDialect {
    fn on_command<'a>(
        &self,
        door: &'a mut OmpAdapter,
        id: Option<OmpRequestId>,
        command: GjcCommand,
    ) -> BoxFuture<'a, ()> {
        handle_own(door, id, command).boxed()
    }

    fn on_open<'a>(&self, door: &'a mut OmpAdapter) -> BoxFuture<'a, ()> {
        unattended::take_up(door).boxed()
    }

    fn admit_command<'a>(
        &self,
        door: &'a mut OmpAdapter,
        id: Option<&'a OmpRequestId>,
        command: &'a GjcCommand,
    ) -> BoxFuture<'a, bool> {
        unattended::admit(door, id, command).boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::{AdapterFlags, AgentProduct, ProcessEnvironment, extension};

    #[test]
    fn what_a_host_reads_its_session_by_follows_from_its_flags() {
        let environment: ProcessEnvironment = [("HOME", "/nowhere")].into_iter().collect();
        let of = |product, mode: Option<&str>, socket: Option<&str>| {
            let flags = AdapterFlags {
                product,
                mode: mode.map(str::to_owned),
                listen: socket.map(Into::into),
                ..AdapterFlags::default()
            };
            let options = extension(&flags, &environment).options;
            let clients = (options.changing_clients, options.lasting_numbers);
            (options.record_folders, options.asking_tools, clients, options.nobody.is_some())
        };
        let (none, records) = (&[][..], &[".gjc/audit", ".gjc/state/workflow-gates"][..]);
        for (mode, socket, want) in [
            (None, None, (records, none, (false, false), true)),
            (Some("rpc"), None, (records, none, (false, false), true)),
            (Some("rpc-ui"), None, (records, none, (false, false), false)),
            (Some("rpc"), Some("/run/s"), (records, none, (true, true), true)),
            (Some("bridge"), None, (records, &["bash"], (true, false), false)),
        ] {
            assert_eq!(of(AgentProduct::Gjc, mode, socket), want, "{mode:?} {socket:?}");
            assert_eq!(of(AgentProduct::Omp, mode, None), (none, none, (false, false), false), "{mode:?}");
        }
    }
}
