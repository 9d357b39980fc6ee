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
    control::{Busy, Control, Stream},
    keys::Keys,
    line::{self, Present},
    waiting::{NotWaiting, Prompt, Waiting, Work},
};
use crate::{voice::frame_id, window::Window};

/// How many answered commands are remembered, for what a door says of one later.
const REMEMBERED: usize = 256;

/// The door has ended: nothing is asked of it any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ended;

/// A session behind the bridge.
pub(super) struct Conversation {
    lines: mpsc::Sender<ClientInput>,
    /// The session that is current.
    current: watch::Receiver<String>,
    /// Every session that was.
    known: Mutex<Vec<String>>,
    pub(super) window: Arc<Window>,
    asked: Mutex<Asked>,
    pub(super) waiting: Mutex<Waiting>,
    control: Mutex<Control>,
    /// Who does the work of the host.
    present: watch::Sender<Present>,
    frames_of_work: Mutex<line::Work>,
    pub(super) keys: Keys,
}

/// The commands that the door has from clients, each under an id of ours: two clients may use the same one.
#[derive(Default)]
struct Asked {
    last: u64,
    open: BTreeMap<String, (Option<OmpRequestId>, oneshot::Sender<RawJson>)>,
    /// Those that are answered, with the id of the client.
    answered: VecDeque<(String, Option<OmpRequestId>)>,
}

impl Conversation {
    /// Of a door that takes `lines`, and has the session `current`.
    pub(super) fn new(lines: mpsc::Sender<ClientInput>, current: watch::Receiver<String>) -> Arc<Self> {
        let known = vec![current.borrow().clone()];
        Arc::new(Self {
            lines,
            current,
            known: Mutex::new(known),
            window: Window::new(REPLAY_WINDOW, 0),
            asked: Mutex::default(),
            waiting: Mutex::default(),
            control: Mutex::default(),
            present: watch::Sender::default(),
            frames_of_work: Mutex::default(),
            keys: Keys::default(),
        })
    }

    /// The session that is current.
    pub(super) fn session(&self) -> String {
        self.current.borrow().clone()
    }

    /// Whether this is, or was, its session: what a client began under one id goes on under it.
    pub(super) fn is_called(&self, session: &str) -> bool {
        *self.current.borrow() == session || self.known.lock().iter().any(|known| known == session)
    }

    /// Hears what the door says until it has ended.
    pub(super) async fn hear(&self, mut frames: mpsc::Receiver<Bytes>) {
        // Whom the door speaks to.
        let mut client = 0;
        while let Some(frame) = frames.recv().await {
            match std::str::from_utf8(&frame).ok().and_then(AdapterFrame::from_line) {
                Some(AdapterFrame { about: FrameSubject::Client(number), .. }) => {
                    client = number;
                    self.waiting.lock().nobody_works();
                }
                Some(told) => self.told(told, client),
                None => tracing::error!("a frame of the door is none that the bridge knows"),
            }
        }
        self.window.end();
        // Whoever waits for an answer of the door hears that there is none.
        self.asked.lock().open.clear();
    }

    fn told(&self, told: AdapterFrame, client: u64) {
        let AdapterFrame { kind, payload, session, about, seq: _ } = told;
        let session = session.unwrap_or_else(|| self.session());
        self.is_of(&session);
        let (payload, correlation) = match about {
            FrameSubject::Nothing | FrameSubject::Client(_) => (payload, None),
            FrameSubject::Command(id) => {
                let Some(response) = payload else { return };
                return self.responded(&session, &id, &response);
            }
            FrameSubject::Dialog(id) => {
                self.waiting.lock().asked(id.clone(), Prompt::Dialog(id.clone()));
                (payload, Some(id))
            }
            FrameSubject::Permission { call, dialog } => {
                let id = self.waiting.lock().asked_for(call, dialog);
                (payload, Some(id))
            }
            FrameSubject::DialogEnds(id) => {
                self.waiting.lock().taken_away(&id);
                (payload, None)
            }
            FrameSubject::Gate(id) => (payload, Some(id)),
            FrameSubject::ToolCall(id) => return self.works(Work::Tool, id, client, session, payload),
            FrameSubject::ToolCallEnds(id) => {
                self.waiting.lock().done(Work::Tool, &id);
                (payload, None)
            }
            FrameSubject::UriRequest(id) => return self.works(Work::Uri, id, client, session, payload),
            FrameSubject::UriRequestEnds(id) => {
                self.waiting.lock().done(Work::Uri, &id);
                (payload, None)
            }
        };
        if let Some(payload) = payload {
            self.publish(kind, session, payload, correlation);
        }
    }

    /// The host is asked to do something: the client that the door speaks to, and nobody who comes after it.
    fn works(&self, work: Work, id: String, client: u64, session: String, payload: Option<RawJson>) {
        let present = *self.present.borrow();
        // The door will hear that it has gone, and ends what it had.
        if let Some(payload) = payload.filter(|_| present.is_here && present.number == client) {
            self.waiting.lock().begun(work, id);
            self.window.push(|seq| {
                self.frames_of_work.lock().note(seq);
                event(&GjcEnvelope::new(kind_of(work), session, seq, frame_id(), payload))
            });
        }
    }

    /// Whether a frame has somebody do something.
    pub(super) fn is_work(&self, number: u64) -> bool {
        self.frames_of_work.lock().has(number)
    }

    /// Another session may be open now; what the one before asked is asked no more.
    fn is_of(&self, session: &str) {
        let mut known = self.known.lock();
        if known.last().is_none_or(|last| last != session) {
            known.retain(|known| known != session);
            known.push(session.to_owned());
            drop(known);
            self.waiting.lock().take_all();
        }
    }

    fn responded(&self, session: &str, id: &str, response: &RawJson) {
        let mut asked = self.asked.lock();
        let (id, waits) = match asked.open.remove(id) {
            Some((client, waits)) => {
                asked.answered.push_back((id.to_owned(), client.clone()));
                if asked.answered.len() > REMEMBERED {
                    asked.answered.pop_front();
                }
                (client, Some(waits))
            }
            // It said something of it before.
            None => {
                let known = asked.answered.iter().find(|(known, _)| known == id);
                (known.and_then(|(_, client)| client.clone()), None)
            }
        };
        drop(asked);
        let response = with_response_id(response, id.as_ref());
        self.publish(FrameType::Response, session.to_owned(), response.clone(), None);
        if let Some(waits) = waits {
            // Whoever asked may have gone; what was asked is done.
            let _ = waits.send(response);
        }
    }

    fn publish(&self, kind: FrameType, session: String, payload: RawJson, correlation: Option<String>) {
        self.window.push(|seq| {
            let envelope = GjcEnvelope::new(kind, session, seq, frame_id(), payload);
            event(&match correlation {
                Some(id) => envelope.with_correlation_id(id),
                None => envelope,
            })
        });
    }

    /// What a client is sent that missed frames, before those that are kept.
    pub(super) fn reset(&self, first: u64) -> Bytes {
        let reset = ResetPayload::new(first);
        let (id, seq) = reset.frame_id_and_seq();
        event(&GjcEnvelope::new(FrameType::Reset, self.session(), seq, id, reset))
    }

    /// Has the door do a command, the text of an object. It goes on where whoever asked has gone.
    ///
    /// # Errors
    /// [`Ended`].
    pub(super) async fn ask(&self, command: &str, id: Option<OmpRequestId>) -> Result<RawJson, Ended> {
        let (waits, answer) = oneshot::channel();
        let own = {
            let mut asked = self.asked.lock();
            asked.last += 1;
            let own = format!("b{}", asked.last);
            asked.open.insert(own.clone(), (id, waits));
            own
        };
        if let Err(ended) = self.say(with_members(command, &[("id", &own)])).await {
            self.asked.lock().open.remove(&own);
            return Err(ended);
        }
        answer.await.map_err(|_| Ended)
    }

    /// Hands a line to the door.
    ///
    /// # Errors
    /// [`Ended`].
    pub(super) async fn say(&self, line: String) -> Result<(), Ended> {
        if self.window.is_over() {
            return Err(Ended);
        }
        self.lines.send(ClientInput::Line(DecodedLine::Text(line))).await.map_err(|_| Ended)
    }

    /// Takes what is asked under `id`.
    ///
    /// # Errors
    /// [`NotWaiting`].
    pub(super) fn take(&self, id: &str) -> Result<Prompt, NotWaiting> {
        self.waiting.lock().take(id)
    }

    /// Gives control.
    ///
    /// # Errors
    /// [`Busy`].
    pub(super) fn claim(&self, shown: Option<&str>, fresh: String) -> Result<String, Busy> {
        self.control.lock().claim(shown, fresh, Instant::now())
    }

    /// Whether control is held by who shows this.
    pub(super) fn is_controller(&self, shown: Option<&str>) -> bool {
        shown.is_some_and(|shown| self.control.lock().holds(shown, Instant::now()))
    }

    /// Takes control from who shows this, and gives what was asked to be cancelled; none if it is not held by them.
    pub(super) fn release(&self, shown: Option<&str>) -> Option<Vec<Prompt>> {
        let is_released = shown.is_some_and(|shown| {
            let mut control = self.control.lock();
            let is_released = control.release(shown, Instant::now());
            self.present.send_replace(control.present());
            is_released
        });
        is_released.then(|| self.waiting.lock().take_all())
    }

    /// Counts a stream of events of who shows this until what is returned is dropped. `is_back` if it goes on where another one
    /// ended.
    pub(super) fn listen(self: &Arc<Self>, shown: Option<&str>, is_back: bool) -> Listening {
        let mut control = self.control.lock();
        let stream = control.stream_begins(shown, is_back, Instant::now());
        self.present.send_replace(control.present());
        Listening { conversation: Arc::clone(self), stream }
    }

    /// Tells the door who does the work of the host, until it has ended.
    pub(super) async fn tell_who_is_here(&self) {
        tokio::select! {
            () = line::tell(self.present.subscribe(), self.lines.clone()) => {}
            () = self.window.ended() => {}
        }
    }
}

const fn kind_of(work: Work) -> FrameType {
    match work {
        Work::Tool => FrameType::HostToolCall,
        Work::Uri => FrameType::HostUriRequest,
    }
}

/// A stream of events that is open.
pub(super) struct Listening {
    conversation: Arc<Conversation>,
    stream: Stream,
}

impl Drop for Listening {
    fn drop(&mut self) {
        let Self { conversation, stream } = self;
        let mut control = conversation.control.lock();
        control.stream_ends(*stream, Instant::now());
        conversation.present.send_replace(control.present());
    }
}

/// A frame as a stream carries it.
fn event<P: countersign_protocol::WireValue>(envelope: &GjcEnvelope<P>) -> Bytes {
    let mut bytes = BytesMut::with_capacity(512);
    bytes.put_slice(b"data: ");
    bytes.put(countersign_protocol::encode_line(envelope));
    bytes.put_u8(b'\n');
    bytes.freeze()
}
