//! Watch over one connection: requests that are open, messages that may pass, and the reason of its end.
//!
//! It must not know how messages are carried.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use rmcp::model::{
    ClientJsonRpcMessage, ClientRequest, JsonRpcMessage, NumberOrString, ProgressToken, ServerJsonRpcMessage,
    ServerNotification,
};
use tokio::{sync::watch, time::Instant};
use tokio_util::sync::CancellationToken;

use crate::{
    message_redaction::redact_message, open_call::OpenCall, options::McpLimits, secret_texts::SecretTexts,
    text::printable_excerpt,
};

/// Span in which the messages of a server are counted.
const WINDOW: Duration = Duration::from_secs(1);

/// Progress of a tool call.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolProgress {
    /// Progress so far, in the server's own unit.
    pub progress: f64,
    /// Its value at the end, if the server knows.
    pub total: Option<f64>,
    /// Text of the server, escaped and cut.
    pub message: Option<String>,
}

/// Sink of the progress of a call.
#[derive(Clone, Default)]
pub struct ProgressSink(Option<Arc<dyn Fn(ToolProgress) + Send + Sync>>);

impl ProgressSink {
    /// Hands every progress to `listener`, which must not block.
    pub fn new(listener: impl Fn(ToolProgress) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(listener)))
    }
}

impl fmt::Debug for ProgressSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ProgressSink").field(&self.0.is_some()).finish()
    }
}

/// State of an open request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RequestPhase {
    /// No byte of it has left.
    Queued,
    /// It left, or may have.
    Begun,
    /// It must not leave any more.
    Withdrawn,
}

/// Decision about a message of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Admission {
    /// The client gets it.
    Pass,
    /// It is skipped.
    Skip,
}

/// Watch over one connection.
pub(crate) struct ConnectionMonitor {
    limits: McpLimits,
    secrets: Arc<SecretTexts>,
    state: Mutex<MonitorState>,
    closed: CancellationToken,
    tools_changed: AtomicBool,
    is_retired: AtomicBool,
    /// Tool calls that the server works on, the oldest first.
    calls: watch::Sender<Vec<Arc<OpenCall>>>,
}

#[derive(Default)]
struct MonitorState {
    open: BTreeMap<i64, RequestPhase>,
    /// Requests whose answers cannot be read.
    unreadable: BTreeSet<i64>,
    /// The highest id of a request so far.
    highest: Option<i64>,
    progress: BTreeMap<i64, ProgressSink>,
    window: Option<(Instant, u32)>,
    noise: u32,
    /// Something odd that the server did, for the text of an error.
    note: Option<String>,
    /// Last line of its error output.
    error_line: Option<String>,
    reason: Option<String>,
    closed_at: Option<Instant>,
}

impl ConnectionMonitor {
    /// Creates the watch over a new connection. `secrets` are hidden in all texts of the server, which may repeat what it got.
    pub(crate) fn new(limits: McpLimits, secrets: SecretTexts) -> Self {
        Self {
            limits,
            secrets: Arc::new(secrets),
            state: Mutex::default(),
            closed: CancellationToken::new(),
            tools_changed: AtomicBool::new(false),
            is_retired: AtomicBool::new(false),
            calls: watch::Sender::default(),
        }
    }

    pub(crate) const fn limits(&self) -> &McpLimits {
        &self.limits
    }

    /// Returns `text` of the server for people: without secrets, on one line and cut.
    pub(crate) fn show_text(&self, text: &str) -> String {
        printable_excerpt(&self.redact(text))
    }

    /// Returns `text` without secrets.
    pub(crate) fn redact<'a>(&self, text: &'a str) -> Cow<'a, str> {
        self.secrets.redact(text)
    }

    /// Notes that the server works on a call, until the guard is dropped.
    pub(crate) fn watch_call(self: &Arc<Self>, call: &Arc<OpenCall>) -> CallGuard {
        call.begin(&self.secrets);
        self.calls.send_modify(|calls| calls.push(Arc::clone(call)));
        CallGuard { monitor: Arc::clone(self), call: Arc::clone(call) }
    }

    /// Returns the calls that the server works on.
    pub(crate) fn open_calls(&self) -> Vec<Arc<OpenCall>> {
        self.calls.borrow().clone()
    }

    /// Waits until the server works on no call.
    pub(crate) async fn wait_idle(&self) {
        // Its sender is here.
        let _ = self.calls.subscribe().wait_for(Vec::is_empty).await;
    }

    /// Ends the connection. The first reason counts.
    pub(crate) fn close(&self, reason: impl Into<String>) {
        let mut state = self.lock();
        state.reason.get_or_insert_with(|| reason.into());
        state.closed_at.get_or_insert_with(Instant::now);
        drop(state);
        self.closed.cancel();
    }

    /// Waits for the end of the connection.
    pub(crate) async fn wait_closed(&self) {
        self.closed.cancelled().await;
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.is_cancelled()
    }

    /// Notes that the server takes no further requests over the connection: its session or its token does not count any more.
    /// Requests that are open get their answers.
    pub(crate) fn retire(&self) {
        self.is_retired.store(true, Ordering::SeqCst);
    }

    pub(crate) fn is_retired(&self) -> bool {
        self.is_retired.load(Ordering::SeqCst)
    }

    /// Returns the moment of the end.
    pub(crate) fn closed_at(&self) -> Option<Instant> {
        self.lock().closed_at
    }

    /// Returns the reason of the end, with what the server wrote last.
    pub(crate) fn close_reason(&self) -> String {
        let state = self.lock();
        let reason = state.reason.clone().unwrap_or_else(|| "the connection was closed".to_owned());
        with_details(reason, [&state.note, &state.error_line])
    }

    /// Returns `why` with the odd things that the server did.
    pub(crate) fn explain(&self, why: String) -> String {
        with_details(why, [&self.lock().note, &None])
    }

    /// Notes that the list of tools changed.
    pub(crate) fn mark_tools_changed(&self) {
        self.tools_changed.store(true, Ordering::SeqCst);
    }

    /// Returns true if the list of tools changed since the last time that this was called.
    pub(crate) fn take_tools_changed(&self) -> bool {
        self.tools_changed.swap(false, Ordering::SeqCst)
    }

    /// Notes the last line of the server's error output.
    pub(crate) fn note_error_line(&self, line: &str) {
        let line = self.show_text(line);
        self.lock().error_line = Some(line);
    }

    /// Notes a request that is about to be sent, and returns its id.
    pub(crate) fn note_request(&self, message: &ClientJsonRpcMessage) -> Option<i64> {
        let JsonRpcMessage::Request(request) = message else { return None };
        let id = number_of(&request.id)?;
        let mut state = self.lock();
        if matches!(request.request, ClientRequest::InitializeRequest(_)) {
            // It follows a discovery that was given up: a late answer to that one must not count as this one's.
            state.open.clear();
        }
        state.open.entry(id).or_insert(RequestPhase::Queued);
        state.highest = state.highest.max(Some(id));
        Some(id)
    }

    /// Notes that a part of the request may leave from now on. False if it must not, because it was given up.
    pub(crate) fn begin_request(&self, id: i64) -> bool {
        let mut state = self.lock();
        if matches!(state.open.get(&id), Some(RequestPhase::Withdrawn)) {
            state.open.remove(&id);
            return false;
        }
        state.open.insert(id, RequestPhase::Begun);
        true
    }

    /// Gives a request up: what has not left stays here, an answer does not count. True if it may have left.
    pub(crate) fn withdraw(&self, id: i64) -> bool {
        let mut state = self.lock();
        state.unreadable.remove(&id);
        match state.open.get(&id) {
            Some(RequestPhase::Begun) => {
                state.open.remove(&id);
                true
            }
            Some(RequestPhase::Queued | RequestPhase::Withdrawn) => {
                state.open.insert(id, RequestPhase::Withdrawn);
                false
            }
            // One that is not above all others was answered.
            None if state.highest.is_some_and(|highest| id <= highest) => true,
            None => {
                state.open.insert(id, RequestPhase::Withdrawn);
                false
            }
        }
    }

    /// Notes that the answer to an open request cannot be read.
    pub(crate) fn note_unreadable(&self, id: i64) {
        self.lock().unreadable.insert(id);
    }

    /// Returns true once if the answer to a request could not be read.
    pub(crate) fn take_unreadable(&self, id: &NumberOrString) -> bool {
        number_of(id).is_some_and(|id| self.lock().unreadable.remove(&id))
    }

    /// Hands the progress with this token to `sink` until the guard is dropped.
    pub(crate) fn watch_progress(self: &Arc<Self>, token: &ProgressToken, sink: ProgressSink) -> ProgressGuard {
        let token = number_of(&token.0).filter(|_| sink.0.is_some());
        if let Some(token) = token {
            self.lock().progress.insert(token, sink);
        }
        ProgressGuard { monitor: Arc::clone(self), token }
    }

    /// Returns the open request to which a message with this id would be the answer.
    pub(crate) fn open_request(&self, id: &NumberOrString) -> Option<i64> {
        number_of(id).filter(|id| self.lock().open.contains_key(id))
    }

    /// Returns a message of the server without secrets, if the client gets it. It may end the connection.
    pub(crate) fn admit_message(&self, message: ServerJsonRpcMessage) -> Option<ServerJsonRpcMessage> {
        let message = redact_message(&self.secrets, message)?;
        (self.judge_message(&message) == Admission::Pass).then_some(message)
    }

    fn judge_message(&self, message: &ServerJsonRpcMessage) -> Admission {
        match message {
            JsonRpcMessage::Response(response) => self.admit_answer(Some(&response.id)),
            JsonRpcMessage::Error(error) => {
                if error.id.is_none() {
                    self.note(format!("it reported an error without an id: {}", self.show_text(&error.error.message)));
                    return Admission::Skip;
                }
                self.admit_answer(error.id.as_ref())
            }
            JsonRpcMessage::Request(_) if self.is_flood() => Admission::Skip,
            JsonRpcMessage::Request(_) => Admission::Pass,
            JsonRpcMessage::Notification(_) if self.is_flood() => Admission::Skip,
            JsonRpcMessage::Notification(notification) => self.admit_notification(&notification.notification),
        }
    }

    fn admit_answer(&self, id: Option<&NumberOrString>) -> Admission {
        let mut state = self.lock();
        let number = id.and_then(number_of);
        match number {
            Some(id) if state.open.remove(&id).is_some() => Admission::Pass,
            // Late: its request was given up.
            Some(id) if id >= 0 && state.highest.is_some_and(|highest| id <= highest) => Admission::Skip,
            Some(_) | None => {
                drop(state);
                let shown = id.map_or_else(|| "none".to_owned(), |id| self.show_text(&id.to_string()));
                self.close(format!("it answered a request that was never sent (id {shown})"));
                Admission::Skip
            }
        }
    }

    fn admit_notification(&self, notification: &ServerNotification) -> Admission {
        match notification {
            ServerNotification::ProgressNotification(progress) => {
                let sink = number_of(&progress.params.progress_token.0)
                    .and_then(|token| self.lock().progress.get(&token).cloned());
                if let Some(listener) = sink.and_then(|sink| sink.0) {
                    listener(ToolProgress {
                        progress: progress.params.progress,
                        total: progress.params.total,
                        message: progress.params.message.as_deref().map(|message| self.show_text(message)),
                    });
                }
                Admission::Skip
            }
            ServerNotification::ToolListChangedNotification(_) => {
                self.mark_tools_changed();
                // A subscription waits for its own.
                Admission::Pass
            }
            ServerNotification::CancelledNotification(_)
            | ServerNotification::SubscriptionsAcknowledgedNotification(_) => Admission::Pass,
            // Notices about resources, prompts and tasks, log lines, and kinds of later versions are not used here.
            _ => Admission::Skip,
        }
    }

    /// Counts a message that is no answer. True if there are too many, which ends the connection.
    fn is_flood(&self) -> bool {
        let now = Instant::now();
        let mut state = self.lock();
        let (since, count) = match state.window {
            Some((since, count)) if now.duration_since(since) < WINDOW => (since, count + 1),
            Some(_) | None => (now, 1),
        };
        state.window = Some((since, count));
        drop(state);
        let most = self.limits.messages_per_second;
        if count > most {
            self.close(format!("it sent more than {most} messages in a second"));
        }
        count > most
    }

    /// Counts a line of output that is no message. Too many end the connection.
    pub(crate) fn note_noise(&self, line: &str) {
        let shown = self.show_text(line);
        let noise = {
            let mut state = self.lock();
            state.noise = state.noise.saturating_add(1);
            state.noise
        };
        let most = self.limits.noise_lines;
        if noise > most {
            self.close(format!(
                "it wrote more than {most} lines to its output that are no messages, such as {shown:?}"
            ));
        } else {
            self.note(format!("it wrote a line that is no message: {shown:?}"));
        }
    }

    fn note(&self, note: String) {
        self.lock().note = Some(note);
    }

    fn lock(&self) -> MutexGuard<'_, MonitorState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Registration of a sink for the progress of one call.
pub(crate) struct ProgressGuard {
    monitor: Arc<ConnectionMonitor>,
    token: Option<i64>,
}

impl Drop for ProgressGuard {
    fn drop(&mut self) {
        if let Some(token) = self.token {
            self.monitor.lock().progress.remove(&token);
        }
    }
}

/// Note of a call that the server works on.
pub(crate) struct CallGuard {
    monitor: Arc<ConnectionMonitor>,
    call: Arc<OpenCall>,
}

impl Drop for CallGuard {
    fn drop(&mut self) {
        self.monitor.calls.send_modify(|calls| calls.retain(|call| !Arc::ptr_eq(call, &self.call)));
    }
}

fn with_details(mut text: String, details: [&Option<String>; 2]) -> String {
    for detail in details.into_iter().flatten() {
        text.push_str("; ");
        text.push_str(detail);
    }
    text
}

/// Returns an id or a token of ours: a number, which some servers send back as a text.
fn number_of(id: &NumberOrString) -> Option<i64> {
    match id {
        NumberOrString::Number(number) => Some(*number),
        NumberOrString::String(text) => text.parse().ok(),
    }
}

#[cfg(test)]
mod tests;
