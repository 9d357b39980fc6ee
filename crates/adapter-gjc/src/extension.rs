//! This dialect as the adapter knows it: its options, and its hooks.
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
    RECORD_FOLDERS, SessionPresence, commands,
    dialect_state::{ClientSurface, DialectState, GateDisplay, HostOptions, gjc_state, gjc_state_mut},
    envelope_writer::{EnvelopeWriter, StopReasons, order_run_end},
    gate_form::GateOptions,
    permission, stages, unattended,
    workflow::{self, NOBODY},
};

/// Time for commands that arrived before the end of input to complete.
const DRAIN: Duration = Duration::from_secs(5);

/// Chooses the dialect of a host: this one for hosts of gjc, omp's own for those of omp.
///
/// # Errors
/// The variable for old clients that has an unknown value, with the accepted one.
pub fn configured_dialect(flags: &AdapterFlags, environment: &ProcessEnvironment) -> Result<ConfiguredDialect, String> {
    Ok(match flags.product {
        AgentProduct::Omp => ConfiguredDialect {
            options: DialectOptions::default(),
            dialect: ActiveDialect::new(&ContractedDialect, ()),
        },
        AgentProduct::Gjc => {
            let (host, surface) = (host_options(flags, environment)?, client_surface(flags));
            let (workflow, writer) = (GateDisplay::new(host), EnvelopeWriter::default().with_reasons(host.reasons));
            let state = DialectState { workflow, writer, surface, ..DialectState::default() };
            ConfiguredDialect {
                options: dialect_options(flags, environment, surface),
                dialect: ActiveDialect::new(&GjcDialect, state),
            }
        }
    })
}

fn client_surface(flags: &AdapterFlags) -> ClientSurface {
    match (flags.mode.as_deref(), &flags.listen) {
        (Some("bridge"), _) => ClientSurface::Bridge,
        (_, Some(_)) => ClientSurface::Socket,
        (_, None) => ClientSurface::Host,
    }
}

fn dialect_options(flags: &AdapterFlags, environment: &ProcessEnvironment, surface: ClientSurface) -> DialectOptions {
    DialectOptions {
        session_ids: SessionIdForm::Uuid,
        // The original writes it when it ends.
        unanswered: UnansweredPolicy::Written,
        follower: Some(workflow::follow_gates),
        record_folders: &RECORD_FOLDERS,
        // Clients of the bridge expect a request for approval for these.
        asking_tools: if surface == ClientSurface::Bridge { &["bash"] } else { &[] },
        workflow_tools: true,
        hosts_keep_tasks: true,
        nobody: (!flags.shows_dialogs()).then_some(NOBODY),
        answers: AnswerFormat::Selected,
        titles: TITLE_VARIABLES.iter().any(|name| environment.get(name).is_some_and(is_on)),
        reminders: true,
        changing_clients: surface != ClientSurface::Host,
        lasting_numbers: surface == ClientSurface::Socket,
        lossy_lines: true,
        reads_at_once: true,
        unwritten_reported: true,
        drain: DRAIN,
    }
}

/// Reads the host's options from its flags and its environment.
fn host_options(flags: &AdapterFlags, environment: &ProcessEnvironment) -> Result<HostOptions, String> {
    let leaves_out = |name: &str| match environment.value(name).map(str::trim) {
        None => Ok(false),
        Some("none") => Ok(true),
        Some(other) => Err(format!("{name} is {other:?}: expected none, or no such variable")),
    };
    Ok(HostOptions {
        dialogs: flags.shows_dialogs(),
        options: if leaves_out("GJC_RPC_GATE_OPTIONS")? { GateOptions::None } else { GateOptions::Objects },
        reasons: if leaves_out("GJC_RPC_STOP_REASONS")? { StopReasons::None } else { StopReasons::Named },
        stage: flags.stage,
    })
}

/// Reports whether the value of a variable means yes.
fn is_on(value: &str) -> bool {
    ["1", "true", "yes", "on"].contains(&value.trim().to_ascii_lowercase().as_str())
}

fn is_on_bridge(adapter: &OmpAdapter) -> bool {
    gjc_state(adapter).is_some_and(|gjc| gjc.surface == ClientSurface::Bridge)
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

    fn encode(&self, adapter: &mut OmpAdapter, frame: OutgoingFrame<'_>) -> Option<Bytes> {
        let gjc: &mut DialectState = adapter.dialect.state_mut()?;
        if let Some(current) = &adapter.seat {
            gjc.writer.set_session(&current.id);
        }
        if let OutgoingFrame::Response(response) = frame
            && !gjc.unattended.should_send(response)
        {
            return None;
        }
        gjc.writer.encode_frame(frame)
    }

    fn arrange_events(&self, events: &mut Vec<OmpEvent>) {
        order_run_end(events);
    }

    fn broken_off(&self, id: Option<OmpRequestId>, command: &'static str, problem: String) -> OmpResponse {
        OmpResponse::failure(id, command, problem)
    }

    fn on_open<'a>(&self, adapter: &'a mut OmpAdapter) -> BoxFuture<'a, ()> {
        unattended::take_up(adapter).boxed()
    }

    fn on_close(&self, adapter: &mut OmpAdapter) {
        unattended::leave_session(adapter);
    }

    fn on_command<'a>(
        &self,
        adapter: &'a mut OmpAdapter,
        id: Option<OmpRequestId>,
        command: GjcCommand,
    ) -> BoxFuture<'a, ()> {
        commands::handle_command(adapter, id, command).boxed()
    }

    fn on_unknown<'a>(
        &self,
        adapter: &'a mut OmpAdapter,
        id: Option<OmpRequestId>,
        name: Option<String>,
    ) -> BoxFuture<'a, ()> {
        commands::reject_unknown(adapter, id, name).boxed()
    }

    fn on_fact(&self, adapter: &mut OmpAdapter, recorded: &RecordedFact) {
        unattended::handle_fact(adapter, recorded);
    }

    fn on_gate_shown(&self, adapter: &mut OmpAdapter, gate: &Gate, request: &GateRequest) -> bool {
        workflow::show_gate(adapter, gate, request)
    }

    fn permission_request(
        &self,
        adapter: &OmpAdapter,
        call: &str,
        request: &GateRequest,
        offered: &[ApprovalScope],
    ) -> Option<PermissionRequest> {
        permission::permission_request(call, request, offered).filter(|_| is_on_bridge(adapter))
    }

    fn permission_answer(
        &self,
        adapter: &OmpAdapter,
        answer: &UiAnswer,
        request: &GateRequest,
        offered: &[ApprovalScope],
    ) -> Option<GateReply> {
        permission::read_answer(answer, request, offered).filter(|_| is_on_bridge(adapter))
    }

    fn on_prompt(&self, adapter: &OmpAdapter, text: String) -> String {
        let opening = gjc_state(adapter).and_then(|gjc| gjc.workflow.opening_stage());
        match opening.filter(|_| !text.starts_with('/')) {
            // The first message of a stage is what a person would have written: a file may take the place of the texts.
            Some(stage) => format!("/skill:{} {text}", stage.name()),
            None => text,
        }
    }

    fn expand_prompt(&self, text: String) -> String {
        stages::expand_skill(&text).unwrap_or(text)
    }

    fn on_client(&self, adapter: &mut OmpAdapter) {
        if let Some(gjc) = gjc_state_mut(adapter).filter(|gjc| gjc.surface == ClientSurface::Socket) {
            // The capabilities that the previous client requested do not apply to this one.
            gjc.writer.set_capabilities(&AcceptedCapabilities::for_requested(Vec::new()));
        }
    }

    fn on_tools_changed<'a>(&self, adapter: &'a mut OmpAdapter) -> BoxFuture<'a, ()> {
        unattended::tools_changed(adapter).boxed()
    }

    fn event_sequence(&self, adapter: &OmpAdapter) -> u64 {
        gjc_state(adapter).map_or(0, |gjc| gjc.writer.last_seq())
    }

    fn continue_sequence(&self, adapter: &mut OmpAdapter, number: u64) {
        if let Some(gjc) = gjc_state_mut(adapter) {
            gjc.writer.continue_after(number);
        }
    }

    fn list_session(&self, listing: SessionListing) -> Option<Box<dyn Send>> {
        // Hosts look there for what runs; it runs in this process.
        Some(Box::new(SessionPresence::for_listing(listing, SessionTransport::Stdio, None)))
    }
}

/// Hooks of omp's own protocol where a session may be under a contract: one of a gateway that a host of this dialect had before.
struct ContractedDialect;

impl DialectExtension for ContractedDialect {
    fn on_command<'a>(
        &self,
        adapter: &'a mut OmpAdapter,
        id: Option<OmpRequestId>,
        command: GjcCommand,
    ) -> BoxFuture<'a, ()> {
        handle_own(adapter, id, command).boxed()
    }

    fn on_open<'a>(&self, adapter: &'a mut OmpAdapter) -> BoxFuture<'a, ()> {
        unattended::take_up(adapter).boxed()
    }

    fn admit_command<'a>(
        &self,
        adapter: &'a mut OmpAdapter,
        id: Option<&'a OmpRequestId>,
        command: &'a GjcCommand,
    ) -> BoxFuture<'a, bool> {
        unattended::admit_command(adapter, id, command).boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::{
        AdapterFlags, AgentProduct, GateOptions, ProcessEnvironment, StopReasons, configured_dialect, host_options,
    };

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
            let options = configured_dialect(&flags, &environment).unwrap().options;
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

    #[test]
    fn a_variable_for_old_clients_has_one_value() {
        let flags = AdapterFlags { product: AgentProduct::Gjc, ..AdapterFlags::default() };
        let of = |name: &str, value: &str| {
            let environment: ProcessEnvironment = [("HOME", "/nowhere"), (name, value)].into_iter().collect();
            host_options(&flags, &environment)
        };
        assert_eq!(of("GJC_RPC_GATE_OPTIONS", "none").unwrap().options, GateOptions::None);
        assert_eq!(of("GJC_RPC_STOP_REASONS", " none ").unwrap().reasons, StopReasons::None);
        for name in ["GJC_RPC_GATE_OPTIONS", "GJC_RPC_STOP_REASONS"] {
            for value in ["", "strings", "NONE"] {
                let expected = format!("{name} is {value:?}: expected none, or no such variable");
                assert_eq!(of(name, value).err(), Some(expected));
            }
        }
    }
}
