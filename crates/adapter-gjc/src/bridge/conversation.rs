//! A session behind the bridge: what clients ask goes to its door as lines, what the door says becomes frames in envelopes
//! with one count for all.
//!
//! It must not know HTTP, nor what a command does: the door is the same as on stdio.

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

/// How many answered commands are remembered, for what a door says of one later.
const REMEMBERED: usize = 256;

/// The door has ended: nothing is asked of it any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AdapterEnded;

/// A session behind the bridge.
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
    /// Who does the work of the host.
    presence: watch::Sender<HostPresence>,
    work_frames: Mutex<host_presence::WorkFrames>,
    pub(super) idempotency: IdempotencyCache,
}

/// The commands that the door has from clients, each under an id of ours: two clients may use the same one.
#[derive(Default)]
struct CommandTable {
    last: u64,
    open: BTreeMap<String, (Option<OmpRequestId>, oneshot::Sender<RawJson>)>,
    /// Those that are answered, with the id of the client.
    answered: VecDeque<(String, Option<OmpRequestId>)>,
}

impl BridgeConversation {
    /// Of a door that takes `lines`, and has the session `current`.
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

    /// The session that is current.
    pub(super) fn session_id(&self) -> String {
        self.current.borrow().clone()
    }

    /// Whether this is, or was, its session: what a client began under one id goes on under it.
    pub(super) fn is_called(&self, session: &str) -> bool {
        *self.current.borrow() == session || self.known.lock().iter().any(|known| known == session)
    }

    /// Hears what the door says until it has ended.
    pub(super) async fn read_frames(&self, mut frames: mpsc::Receiver<Bytes>) {
        // Whom the door speaks to.
        let mut client = 0;
        while let Some(frame) = frames.recv().await {
            match std::str::from_utf8(&frame).ok().and_then(AdapterFrame::from_line) {
                Some(AdapterFrame { about: FrameSubject::Client(number), .. }) => {
                    client = number;
                    self.open_prompts.lock().clear_work();
                }
                Some(adapter_frame) => self.handle_frame(adapter_frame, client),
                None => tracing::error!("a frame of the door is none that the bridge knows"),
            }
        }
        self.window.end();
        // Whoever waits for an answer of the door hears that there is none.
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

    /// The host is asked to do something: the client that the door speaks to, and nobody who comes after it.
    fn publish_work(&self, work: HostWork, id: String, client: u64, session: String, payload: Option<RawJson>) {
        let presence = *self.presence.borrow();
        // The door will hear that it has gone, and ends what it had.
        if let Some(payload) = payload.filter(|_| presence.is_here && presence.number == client) {
            self.open_prompts.lock().begin_work(work, id);
            self.window.push(|seq| {
                self.work_frames.lock().insert_frame(seq);
                sse_event(&GjcEnvelope::new(kind_of(work), session, seq, frame_id(), payload))
            });
        }
    }

    /// Whether a frame has somebody do something.
    pub(super) fn is_work(&self, number: u64) -> bool {
        self.work_frames.lock().is_work(number)
    }

    /// Another session may be open now; what the one before asked is asked no more.
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
            // It said something of it before.
            None => {
                let known = commands.answered.iter().find(|(known, _)| known == id);
                (known.and_then(|(_, client)| client.clone()), None)
            }
        };
        drop(commands);
        let response = with_response_id(response, id.as_ref());
        self.publish_frame(FrameType::Response, session.to_owned(), response.clone(), None);
        if let Some(waits) = waits {
            // Whoever asked may have gone; what was asked is done.
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

    /// What a client is sent that missed frames, before those that are kept.
    pub(super) fn reset_frame(&self, first: u64) -> Bytes {
        let reset = ResetPayload::new(first);
        let (id, seq) = reset.frame_id_and_seq();
        sse_event(&GjcEnvelope::new(FrameType::Reset, self.session_id(), seq, id, reset))
    }

    /// Has the door do a command, the text of an object. It goes on where whoever asked has gone.
    ///
    /// # Errors
    /// [`Ended`].
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

    /// Hands a line to the door.
    ///
    /// # Errors
    /// [`Ended`].
    pub(super) async fn send_line(&self, line: String) -> Result<(), AdapterEnded> {
        if self.window.is_over() {
            return Err(AdapterEnded);
        }
        self.lines.send(ClientInput::Line(DecodedLine::Text(line))).await.map_err(|_| AdapterEnded)
    }

    /// Takes what is asked under `id`.
    ///
    /// # Errors
    /// [`NotWaiting`].
    pub(super) fn take_prompt(&self, id: &str) -> Result<ClientPrompt, NotWaiting> {
        self.open_prompts.lock().take_prompt(id)
    }

    /// Gives control.
    ///
    /// # Errors
    /// [`Busy`].
    pub(super) fn claim_control(&self, shown: Option<&str>, fresh: String) -> Result<String, ControllerBusy> {
        self.control.lock().claim_control(shown, fresh, Instant::now())
    }

    /// Whether control is held by who shows this.
    pub(super) fn is_controller(&self, shown: Option<&str>) -> bool {
        shown.is_some_and(|shown| self.control.lock().holds_control(shown, Instant::now()))
    }

    /// Takes control from who shows this, and gives what was asked to be cancelled; none if it is not held by them.
    pub(super) fn release_control(&self, shown: Option<&str>) -> Option<Vec<ClientPrompt>> {
        let is_released = shown.is_some_and(|shown| {
            let mut control = self.control.lock();
            let is_released = control.release_control(shown, Instant::now());
            self.presence.send_replace(control.host_presence());
            is_released
        });
        is_released.then(|| self.open_prompts.lock().take_prompts())
    }

    /// Counts a stream of events of who shows this until what is returned is dropped. `is_back` if it goes on where another one
    /// ended.
    pub(super) fn subscribe_events(self: &Arc<Self>, shown: Option<&str>, is_back: bool) -> EventSubscription {
        let mut control = self.control.lock();
        let stream = control.stream_begins(shown, is_back, Instant::now());
        self.presence.send_replace(control.host_presence());
        EventSubscription { conversation: Arc::clone(self), stream }
    }

    /// Tells the door who does the work of the host, until it has ended.
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

/// A frame as a stream carries it.
fn sse_event<P: countersign_protocol::WireValue>(envelope: &GjcEnvelope<P>) -> Bytes {
    let mut bytes = BytesMut::with_capacity(512);
    bytes.put_slice(b"data: ");
    bytes.put(countersign_protocol::encode_line(envelope));
    bytes.put_u8(b'\n');
    bytes.freeze()
}
