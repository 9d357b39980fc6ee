//! A session of the bridge: requests of clients go to its adapter as lines, frames of the adapter become frames in envelopes
//! with one count for all.
//!
//! It must not know HTTP, nor what a command does: the adapter is the same as on stdio.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::Instant,
};

use bytes::{BufMut as _, Bytes, BytesMut};
use countersign_adapter_omp::ClientInput;
use countersign_protocol::{
    RawJson,
    gjc::{
        GjcEnvelope, OmpRequestId,
        bridge::{AdapterFrame, FrameSubject, REPLAY_WINDOW, ResetPayload, with_members, with_response_id},
        event::FrameType,
    },
    lines::DecodedLine,
};
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot, watch};

use super::{
    control::{ControllerBusy, OpenEventStream, SessionControl},
    host_presence::{self, HostPresence},
    idempotency::IdempotencyCache,
    open_prompts::{ClientPrompt, HostWork, NotWaiting, OpenPrompts},
};
use crate::{envelope_writer::frame_id, frame_window::FrameWindow};

/// Number of answered commands that are remembered, for later frames about them.
const REMEMBERED: usize = 256;

/// Error: the adapter has ended and takes no more commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AdapterEnded;

/// A session of the bridge.
pub(super) struct BridgeConversation {
    lines: mpsc::Sender<ClientInput>,
    /// The session that is current.
    current: watch::Receiver<String>,
    /// Every session that was.
    known: Mutex<Vec<String>>,
    pub(super) window: Arc<FrameWindow>,
    commands: Mutex<CommandTable>,
    pub(super) open_prompts: Mutex<OpenPrompts>,
    control: Mutex<SessionControl>,
    /// The client that does the work of the host.
    presence: watch::Sender<HostPresence>,
    work_frames: Mutex<host_presence::WorkFrames>,
    pub(super) idempotency: IdempotencyCache,
}

/// The commands that the adapter has from clients, each under an id of ours: two clients may use the same one.
#[derive(Default)]
struct CommandTable {
    last: u64,
    open: BTreeMap<String, (Option<OmpRequestId>, oneshot::Sender<RawJson>)>,
    /// Those that are answered, with the id of the client.
    answered: VecDeque<(String, Option<OmpRequestId>)>,
}

impl BridgeConversation {
    /// Creates the conversation of an adapter that takes `lines`, and has the session `current`.
    pub(super) fn new(lines: mpsc::Sender<ClientInput>, current: watch::Receiver<String>) -> Arc<Self> {
        let known = vec![current.borrow().clone()];
        Arc::new(Self {
            lines,
            current,
            known: Mutex::new(known),
            window: FrameWindow::new(REPLAY_WINDOW, 0),
            commands: Mutex::default(),
            open_prompts: Mutex::default(),
            control: Mutex::default(),
            presence: watch::Sender::default(),
            work_frames: Mutex::default(),
            idempotency: IdempotencyCache::default(),
        })
    }

    /// Returns the session that is current.
    pub(super) fn session_id(&self) -> String {
        self.current.borrow().clone()
    }

    /// Reports whether this is, or was, its session: what a client began under one id continues under it.
    pub(super) fn is_called(&self, session: &str) -> bool {
        *self.current.borrow() == session || self.known.lock().iter().any(|known| known == session)
    }

    /// Reads the adapter's frames until it has ended.
    pub(super) async fn read_frames(&self, mut frames: mpsc::Receiver<Bytes>) {
        // Number of the client that the adapter addresses.
        let mut client = 0;
        while let Some(frame) = frames.recv().await {
            match std::str::from_utf8(&frame).ok().and_then(AdapterFrame::from_line) {
                Some(AdapterFrame { about: FrameSubject::Client(number), .. }) => {
                    client = number;
                    self.open_prompts.lock().clear_work();
                }
                Some(adapter_frame) => self.handle_frame(adapter_frame, client),
                None => tracing::error!("unknown frame from the adapter of a bridge session"),
            }
        }
        self.window.end();
        // Requests that wait for an answer of the adapter end without one.
        self.commands.lock().open.clear();
    }

    fn handle_frame(&self, frame: AdapterFrame, client: u64) {
        let AdapterFrame { kind, payload, session, about, seq: _ } = frame;
        let session = session.unwrap_or_else(|| self.session_id());
        self.note_session(&session);
        let (payload, correlation) = match about {
            FrameSubject::Nothing | FrameSubject::Client(_) => (payload, None),
            FrameSubject::Command(id) => {
                let Some(response) = payload else { return };
                return self.handle_response(&session, &id, &response);
            }
            FrameSubject::Dialog(id) => {
                self.open_prompts.lock().add_prompt(id.clone(), ClientPrompt::Dialog(id.clone()));
                (payload, Some(id))
            }
            FrameSubject::Permission { call, dialog } => {
                let id = self.open_prompts.lock().add_permission(call, dialog);
                (payload, Some(id))
            }
            FrameSubject::DialogEnds(id) => {
                self.open_prompts.lock().remove_dialog(&id);
                (payload, None)
            }
            FrameSubject::Gate(id) => (payload, Some(id)),
            FrameSubject::ToolCall(id) => return self.publish_work(HostWork::Tool, id, client, session, payload),
            FrameSubject::ToolCallEnds(id) => {
                self.open_prompts.lock().end_work(HostWork::Tool, &id);
                (payload, None)
            }
            FrameSubject::UriRequest(id) => return self.publish_work(HostWork::Uri, id, client, session, payload),
            FrameSubject::UriRequestEnds(id) => {
                self.open_prompts.lock().end_work(HostWork::Uri, &id);
                (payload, None)
            }
        };
        if let Some(payload) = payload {
            self.publish_frame(kind, session, payload, correlation);
        }
    }

    /// Publishes work for the host: for the client that the adapter addresses, and for no later one.
    fn publish_work(&self, work: HostWork, id: String, client: u64, session: String, payload: Option<RawJson>) {
        let presence = *self.presence.borrow();
        // The adapter will learn that the client has gone, and ends what it had.
        if let Some(payload) = payload.filter(|_| presence.is_here && presence.number == client) {
            self.open_prompts.lock().begin_work(work, id);
            self.window.push(|seq| {
                self.work_frames.lock().insert_frame(seq);
                sse_event(&GjcEnvelope::new(kind_of(work), session, seq, frame_id(), payload))
            });
        }
    }

    /// Reports whether a frame causes work.
    pub(super) fn is_work(&self, number: u64) -> bool {
        self.work_frames.lock().is_work(number)
    }

    /// Handles a change of the session; the open prompts of the previous one are dropped.
    fn note_session(&self, session: &str) {
        let mut known = self.known.lock();
        if known.last().is_none_or(|last| last != session) {
            known.retain(|known| known != session);
            known.push(session.to_owned());
            drop(known);
            self.open_prompts.lock().take_prompts();
        }
    }

    fn handle_response(&self, session: &str, id: &str, response: &RawJson) {
        let mut commands = self.commands.lock();
        let (id, waits) = match commands.open.remove(id) {
            Some((client, waits)) => {
                commands.answered.push_back((id.to_owned(), client.clone()));
                if commands.answered.len() > REMEMBERED {
                    commands.answered.pop_front();
                }
                (client, Some(waits))
            }
            // The adapter sent something about it before.
            None => {
                let known = commands.answered.iter().find(|(known, _)| known == id);
                (known.and_then(|(_, client)| client.clone()), None)
            }
        };
        drop(commands);
        let response = with_response_id(response, id.as_ref());
        self.publish_frame(FrameType::Response, session.to_owned(), response.clone(), None);
        if let Some(waits) = waits {
            // The requesting client may have gone; the command is done.
            let _ = waits.send(response);
        }
    }

    fn publish_frame(&self, kind: FrameType, session: String, payload: RawJson, correlation: Option<String>) {
        self.window.push(|seq| {
            let envelope = GjcEnvelope::new(kind, session, seq, frame_id(), payload);
            sse_event(&match correlation {
                Some(id) => envelope.with_correlation_id(id),
                None => envelope,
            })
        });
    }

    /// Returns the frame for a client that missed frames, before those that are kept.
    pub(super) fn reset_frame(&self, first: u64) -> Bytes {
        let reset = ResetPayload::new(first);
        let (id, seq) = reset.frame_id_and_seq();
        sse_event(&GjcEnvelope::new(FrameType::Reset, self.session_id(), seq, id, reset))
    }

    /// Sends a command, the text of an object, to the adapter. It continues even if the requesting client has gone.
    ///
    /// # Errors
    /// [`AdapterEnded`].
    pub(super) async fn send_command(&self, command: &str, id: Option<OmpRequestId>) -> Result<RawJson, AdapterEnded> {
        let (waits, answer) = oneshot::channel();
        let own = {
            let mut commands = self.commands.lock();
            commands.last += 1;
            let own = format!("b{}", commands.last);
            commands.open.insert(own.clone(), (id, waits));
            own
        };
        if let Err(ended) = self.send_line(with_members(command, &[("id", &own)])).await {
            self.commands.lock().open.remove(&own);
            return Err(ended);
        }
        answer.await.map_err(|_| AdapterEnded)
    }

    /// Hands a line to the adapter.
    ///
    /// # Errors
    /// [`AdapterEnded`].
    pub(super) async fn send_line(&self, line: String) -> Result<(), AdapterEnded> {
        if self.window.is_over() {
            return Err(AdapterEnded);
        }
        self.lines.send(ClientInput::Line(DecodedLine::Text(line))).await.map_err(|_| AdapterEnded)
    }

    /// Takes the prompt `id`.
    ///
    /// # Errors
    /// [`NotWaiting`].
    pub(super) fn take_prompt(&self, id: &str) -> Result<ClientPrompt, NotWaiting> {
        self.open_prompts.lock().take_prompt(id)
    }

    /// Gives control to the client that shows the token, or `fresh` if control is free.
    ///
    /// # Errors
    /// [`ControllerBusy`].
    pub(super) fn claim_control(&self, shown: Option<&str>, fresh: String) -> Result<String, ControllerBusy> {
        self.control.lock().claim_control(shown, fresh, Instant::now())
    }

    /// Reports whether the holder of this token has control.
    pub(super) fn is_controller(&self, shown: Option<&str>) -> bool {
        shown.is_some_and(|shown| self.control.lock().holds_control(shown, Instant::now()))
    }

    /// Releases control if the token is the holder's, and returns the prompts to cancel; None if it is not.
    pub(super) fn release_control(&self, shown: Option<&str>) -> Option<Vec<ClientPrompt>> {
        let is_released = shown.is_some_and(|shown| {
            let mut control = self.control.lock();
            let is_released = control.release_control(shown, Instant::now());
            self.presence.send_replace(control.host_presence());
            is_released
        });
        is_released.then(|| self.open_prompts.lock().take_prompts())
    }

    /// Counts a stream of events of who shows this until what is returned is dropped. `is_back` if it continues where another one
    /// ended.
    pub(super) fn subscribe_events(self: &Arc<Self>, shown: Option<&str>, is_back: bool) -> EventSubscription {
        let mut control = self.control.lock();
        let stream = control.stream_begins(shown, is_back, Instant::now());
        self.presence.send_replace(control.host_presence());
        EventSubscription { conversation: Arc::clone(self), stream }
    }

    /// Tells the adapter who does the work of the host, until it has ended.
    pub(super) async fn report_presence(&self) {
        tokio::select! {
            () = host_presence::report_presence(self.presence.subscribe(), self.lines.clone()) => {}
            () = self.window.wait_until_over() => {}
        }
    }
}

const fn kind_of(work: HostWork) -> FrameType {
    match work {
        HostWork::Tool => FrameType::HostToolCall,
        HostWork::Uri => FrameType::HostUriRequest,
    }
}

/// A stream of events that is open.
pub(super) struct EventSubscription {
    conversation: Arc<BridgeConversation>,
    stream: OpenEventStream,
}

impl Drop for EventSubscription {
    fn drop(&mut self) {
        let Self { conversation, stream } = self;
        let mut control = conversation.control.lock();
        control.stream_ends(*stream, Instant::now());
        conversation.presence.send_replace(control.host_presence());
    }
}

/// Returns a frame as a stream carries it.
fn sse_event<P: countersign_protocol::WireValue>(envelope: &GjcEnvelope<P>) -> Bytes {
    let mut bytes = BytesMut::with_capacity(512);
    bytes.put_slice(b"data: ");
    bytes.put(countersign_protocol::encode_line(envelope));
    bytes.put_u8(b'\n');
    bytes.freeze()
}
