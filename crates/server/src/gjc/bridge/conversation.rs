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
use countersign_protocol::{
    Json,
    gjc::{
        Envelope, Id,
        bridge::{About, REPLAY_WINDOW, Reset, Told, answered, with},
        event::FrameType,
    },
    lines::Line,
};
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot, watch};

use super::{
    control::{Busy, Control},
    keys::Keys,
    waiting::{NotWaiting, Prompt, Waiting, Work},
};
use crate::gjc::{voice::frame_id, window::Window};

/// How many answered commands are remembered, for what a door says of one later.
const REMEMBERED: usize = 256;

/// The door has ended: nothing is asked of it any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ended;

/// A session behind the bridge.
pub(super) struct Conversation {
    lines: mpsc::Sender<Line>,
    /// The session that is current.
    current: watch::Receiver<String>,
    /// Every session that was.
    known: Mutex<Vec<String>>,
    pub(super) window: Arc<Window>,
    asked: Mutex<Asked>,
    pub(super) waiting: Mutex<Waiting>,
    control: Mutex<Control>,
    pub(super) keys: Keys,
}

/// The commands that the door has from clients, each under an id of ours: two clients may use the same one.
#[derive(Default)]
struct Asked {
    last: u64,
    open: BTreeMap<String, (Option<Id>, oneshot::Sender<Json>)>,
    /// Those that are answered, with the id of the client.
    answered: VecDeque<(String, Option<Id>)>,
}

impl Conversation {
    /// Of a door that takes `lines`, and has the session `current`.
    pub(super) fn new(lines: mpsc::Sender<Line>, current: watch::Receiver<String>) -> Arc<Self> {
        let known = vec![current.borrow().clone()];
        Arc::new(Self {
            lines,
            current,
            known: Mutex::new(known),
            window: Window::new(REPLAY_WINDOW, 0),
            asked: Mutex::default(),
            waiting: Mutex::default(),
            control: Mutex::default(),
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
        while let Some(frame) = frames.recv().await {
            match std::str::from_utf8(&frame).ok().and_then(Told::read) {
                Some(told) => self.told(told),
                None => tracing::error!("a frame of the door is none that the bridge knows"),
            }
        }
        self.window.end();
        // Whoever waits for an answer of the door hears that there is none.
        self.asked.lock().open.clear();
    }

    fn told(&self, told: Told) {
        let Told { kind, payload, session, about, seq: _ } = told;
        let session = session.unwrap_or_else(|| self.session());
        self.is_of(&session);
        let (payload, correlation) = match about {
            About::Nothing => (payload, None),
            About::Command(id) => {
                let Some(response) = payload else { return };
                return self.responded(&session, &id, &response);
            }
            About::Dialog(id) => {
                self.waiting.lock().asked(id.clone(), Prompt::Dialog(id.clone()));
                (payload, Some(id))
            }
            About::Permission { call, dialog } => {
                self.waiting.lock().asked(call.clone(), Prompt::Permission(dialog));
                (payload, Some(call))
            }
            About::DialogEnds(id) => {
                self.waiting.lock().taken_away(&id);
                (payload, None)
            }
            About::Gate(id) => (payload, Some(id)),
            About::ToolCall(id) => {
                self.waiting.lock().begun(Work::Tool, id);
                (payload, None)
            }
            About::ToolCallEnds(id) => {
                self.waiting.lock().done(Work::Tool, &id);
                (payload, None)
            }
            About::UriRequest(id) => {
                self.waiting.lock().begun(Work::Uri, id);
                (payload, None)
            }
            About::UriRequestEnds(id) => {
                self.waiting.lock().done(Work::Uri, &id);
                (payload, None)
            }
        };
        if let Some(payload) = payload {
            self.publish(kind, session, payload, correlation);
        }
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

    fn responded(&self, session: &str, id: &str, response: &Json) {
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
        let response = answered(response, id.as_ref());
        self.publish(FrameType::Response, session.to_owned(), response.clone(), None);
        if let Some(waits) = waits {
            // Whoever asked may have gone; what was asked is done.
            let _ = waits.send(response);
        }
    }

    fn publish(&self, kind: FrameType, session: String, payload: Json, correlation: Option<String>) {
        self.window.push(|seq| {
            let envelope = Envelope::new(kind, session, seq, frame_id(), payload);
            event(&match correlation {
                Some(id) => envelope.correlated(id),
                None => envelope,
            })
        });
    }

    /// What a client is sent that missed frames, before those that are kept.
    pub(super) fn reset(&self, first: u64) -> Bytes {
        let reset = Reset::new(first);
        let (id, seq) = reset.frame();
        event(&Envelope::new(FrameType::Reset, self.session(), seq, id, reset))
    }

    /// Has the door do a command, the text of an object. It goes on where whoever asked has gone.
    ///
    /// # Errors
    /// [`Ended`].
    pub(super) async fn ask(&self, command: &str, id: Option<Id>) -> Result<Json, Ended> {
        let (waits, answer) = oneshot::channel();
        let own = {
            let mut asked = self.asked.lock();
            asked.last += 1;
            let own = format!("b{}", asked.last);
            asked.open.insert(own.clone(), (id, waits));
            own
        };
        if let Err(ended) = self.say(with(command, &[("id", &own)])).await {
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
        self.lines.send(Line::Text(line)).await.map_err(|_| Ended)
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
        let is_released = shown.is_some_and(|shown| self.control.lock().release(shown, Instant::now()));
        is_released.then(|| self.waiting.lock().take_all())
    }

    /// Counts a stream of events until what is returned is dropped.
    pub(super) fn listen(self: &Arc<Self>) -> Listening {
        self.control.lock().stream_begins();
        Listening(Arc::clone(self))
    }
}

/// A stream of events that is open.
pub(super) struct Listening(Arc<Conversation>);

impl Drop for Listening {
    fn drop(&mut self) {
        self.0.control.lock().stream_ends(Instant::now());
    }
}

/// A frame as a stream carries it.
fn event<P: countersign_protocol::Wire>(envelope: &Envelope<P>) -> Bytes {
    let mut bytes = BytesMut::with_capacity(512);
    bytes.put_slice(b"data: ");
    bytes.put(countersign_protocol::encode(envelope));
    bytes.put_u8(b'\n');
    bytes.freeze()
}
