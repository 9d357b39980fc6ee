//! Open calls of a host: the frame that requested each, and its answer.
//!
//! It decides nothing: [`countersign_runtime::PeerExchange`] determines the outcome of a call, and the engine records it. Source:
//! docs/protocol/gjc.md, Host tools and Host URIs.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use countersign_core::{
    call::CallDetails,
    id::{CallId, Lsn, SessionId},
    message::{ImageBlock, MessageBlock},
    policy::Class,
};
use countersign_protocol::{
    gjc::{
        host_tool::{self, HostToolAnswer, HostToolFrame},
        host_uri::{self, ContentType, HostUriFrame, HostUriResult, UriOperation},
    },
    omp::message::{OmpContentBlock, ToolOutput},
};
use countersign_runtime::{
    CommandSource, PeerCall, PeerExchange, PeerLink, PeerOrder, PeerRegistry, PeerTexts,
    tools::{CallOutput, read},
};
use serde_json::{Value, json};

use crate::{
    host_capabilities::{HostCapabilities, tools_of, unknown_scheme, uris_of},
    image,
};

/// Number of stopped calls that are remembered, so that later answers of the host are recorded.
const STOPPED: usize = 256;

/// Frame for a host.
pub(crate) enum HostCallFrame {
    Tool(HostToolFrame),
    Uri(HostUriFrame),
}

/// Kind of a request to a host.
enum HostCallKind {
    Tool,
    Uri { operation: UriOperation, url: String, is_immutable: bool },
}

struct OpenHostCall {
    exchange: PeerExchange,
    kind: HostCallKind,
}

/// A call that is not sent yet.
struct HeldCall {
    /// Position that the host must have reached before.
    position: u64,
    place: CallPlace,
    call: Box<PeerCall>,
}

/// Place of a call in its message.
#[derive(Clone, Debug, Default)]
pub(crate) struct CallPlace {
    /// Position of the call's record, which orders the calls.
    pub(crate) lsn: Lsn,
    /// Calls of the message that come before and were started, but may not have arrived here: each is carried out by a task of its own.
    pub(crate) awaited: BTreeSet<CallId>,
}

/// Capabilities that a client offered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct HostOffers {
    tools: bool,
    uris: bool,
}

/// Open calls of one host.
#[derive(Default)]
pub(crate) struct HostCallTable {
    /// The session whose calls come over the lines.
    session: Option<SessionId>,
    /// True if no client is connected. Nothing is sent then: it would reach no client, and might have.
    is_away: bool,
    /// Offers of the current client: a client that lends nothing does not know the requests.
    offers: HostOffers,
    tools: Option<PeerLink>,
    uris: Option<PeerLink>,
    /// Calls that are not sent yet, in the order of their messages.
    held: VecDeque<HeldCall>,
    open: BTreeMap<String, OpenHostCall>,
    ids: BTreeMap<CallId, String>,
    /// Oldest first.
    stopped: VecDeque<(String, OpenHostCall)>,
}

async fn next_order(link: &mut Option<PeerLink>) -> Option<PeerOrder> {
    match link {
        Some(link) => link.next().await,
        None => None,
    }
}

impl HostCallTable {
    /// Opens links for the capabilities that the host lends to `session`. Calls that wait for it begin.
    pub(crate) async fn open_links(&mut self, peers: &PeerRegistry, session: &SessionId, results: &CommandSource) {
        if self.session.as_ref() != Some(session) {
            self.tools = None;
            self.uris = None;
            self.held.clear();
            self.session = Some(session.clone());
        }
        if self.is_away {
            return;
        }
        if self.offers.tools && self.tools.is_none() {
            self.tools = Some(peers.open(tools_of(session), results.clone()).await);
        }
        if self.offers.uris && self.uris.is_none() {
            self.uris = Some(peers.open(uris_of(session), results.clone()).await);
        }
    }

    /// Notes that the current client lends tools, or takes them back: it knows of them.
    pub(super) const fn offer_tools(&mut self) {
        self.offers.tools = true;
    }

    /// Notes the same of URIs.
    pub(super) const fn offer_uris(&mut self) {
        self.offers.uris = true;
    }

    /// Expects a client later: clients come and go.
    pub(crate) const fn expect_host(&mut self) {
        self.is_away = true;
    }

    /// Waits for the next order; forever while there is no link.
    ///
    /// *Cancellation*: a future that is dropped loses no order.
    pub(crate) async fn next(&mut self) -> PeerOrder {
        tokio::select! {
            Some(order) = next_order(&mut self.tools) => order,
            Some(order) = next_order(&mut self.uris) => order,
            else => std::future::pending().await,
        }
    }

    /// Holds a call until the host has reached `position`, behind the calls that come before it in its message.
    pub(crate) fn hold_call(&mut self, position: u64, mut place: CallPlace, call: Box<PeerCall>) {
        self.stop_awaiting(call.call);
        let has_arrived = |id: &CallId| self.ids.contains_key(id) || self.held.iter().any(|held| held.call.call == *id);
        place.awaited.retain(|id| !has_arrived(id));
        let at = self.held.partition_point(|held| held.place.lsn <= place.lsn);
        self.held.insert(at, HeldCall { position, place, call });
    }

    /// Lets no call wait for `call` any more: it has arrived, or it ended without that.
    pub(crate) fn stop_awaiting(&mut self, call: CallId) {
        for held in &mut self.held {
            held.place.awaited.remove(&call);
        }
    }

    /// Takes the first call that is held, if the host has reached its position and the calls before it are here.
    pub(crate) fn take_due_call(&mut self, position: u64) -> Option<Box<PeerCall>> {
        let is_due = |held: &mut HeldCall| held.position <= position && held.place.awaited.is_empty();
        self.held.pop_front_if(is_due).map(|held| held.call)
    }

    /// Lets go of everything: the host has gone, and what it has in hand ends as that says.
    pub(crate) async fn host_left(&mut self) {
        let gone = std::mem::take(self);
        self.is_away = true;
        // Its calls end as they are dropped, and nothing more is started for it.
        for link in [gone.tools, gone.uris].into_iter().flatten() {
            link.close().await;
        }
    }

    /// Handles a new client in place of the previous one. It takes over what was lent while there was no client.
    pub(super) async fn host_arrived(&mut self) {
        if !self.is_away {
            self.host_left().await;
        }
        self.is_away = false;
    }

    /// Takes an order. The frame that is to be written at once, if there is one.
    pub(crate) fn take_order(&mut self, order: PeerOrder, capabilities: &HostCapabilities) -> Option<HostCallFrame> {
        match order {
            PeerOrder::Do(errand) if errand.content.class == Some(Class::HostToolInvoke) => {
                self.call_tool(*errand, capabilities)
            }
            PeerOrder::Do(errand) => self.request_uri(*errand, capabilities),
            PeerOrder::Ask(errand) => {
                errand.refuse("A host cannot say what became of a call that it had on an earlier connection.");
                None
            }
            PeerOrder::Stop(call) => self.stop_call(call),
        }
    }

    fn call_tool(&mut self, errand: PeerCall, capabilities: &HostCapabilities) -> Option<HostCallFrame> {
        let tool = errand.content.tool.to_string();
        if !capabilities.has_tool(&tool) {
            errand.refuse(format!("Tool {tool} not found: the host took it back"));
            return None;
        }
        let frame = HostToolFrame::HostToolCall {
            id: fresh_id(),
            tool_call_id: errand.content.tool_call_id.to_string(),
            tool_name: tool.clone(),
            arguments: Value::Object(errand.content.arguments.clone()).into(),
        };
        let HostToolFrame::HostToolCall { id, .. } = &frame else { return None };
        let words = PeerTexts {
            stopped: host_tool::aborted_text(&tool),
            gone: host_tool::DISCONNECTED.to_owned(),
            silent: format!("Host tool \"{tool}\" did not answer in time. It may or may not have taken effect."),
        };
        self.insert_call(id.clone(), errand.mark_sent(words)?, HostCallKind::Tool);
        Some(HostCallFrame::Tool(frame))
    }

    fn request_uri(&mut self, errand: PeerCall, capabilities: &HostCapabilities) -> Option<HostCallFrame> {
        let class = errand.content.class.unwrap_or(Class::HostUriWrite);
        let operation = if class == Class::HostUriRead { UriOperation::Read } else { UriOperation::Write };
        let text = |member: &str| errand.content.arguments.get(member).and_then(Value::as_str).map(str::to_owned);
        let url = text("path").unwrap_or_default();
        let scheme = host_uri::normalize_url(&url).map(|(scheme, _)| scheme).unwrap_or_default();
        let Some(known) = capabilities.find_scheme(&scheme) else {
            errand.refuse(unknown_scheme(class, &url, &scheme));
            return None;
        };
        if operation == UriOperation::Write && !known.writable {
            errand.refuse(host_uri::not_writable(&scheme));
            return None;
        }
        let content = text("content").filter(|_| operation == UriOperation::Write);
        let id = fresh_id();
        let words = PeerTexts {
            stopped: host_uri::aborted_text(operation, &url),
            gone: host_uri::DISCONNECTED.to_owned(),
            silent: format!("Host URI {} for {url} was not answered in time.", operation.name()),
        };
        let kind = HostCallKind::Uri { operation, url: url.clone(), is_immutable: known.immutable };
        self.insert_call(id.clone(), errand.mark_sent(words)?, kind);
        Some(HostCallFrame::Uri(HostUriFrame::HostUriRequest { id, operation, url, content }))
    }

    fn insert_call(&mut self, id: String, exchange: PeerExchange, kind: HostCallKind) {
        self.ids.insert(exchange.call(), id.clone());
        self.open.insert(id, OpenHostCall { exchange, kind });
    }

    fn stop_call(&mut self, call: CallId) -> Option<HostCallFrame> {
        let target_id = self.ids.remove(&call)?;
        let open = self.open.remove(&target_id)?;
        let frame = match open.kind {
            HostCallKind::Tool => {
                HostCallFrame::Tool(HostToolFrame::HostToolCancel { id: fresh_id(), target_id: target_id.clone() })
            }
            HostCallKind::Uri { .. } => {
                HostCallFrame::Uri(HostUriFrame::HostUriCancel { id: fresh_id(), target_id: target_id.clone() })
            }
        };
        if self.stopped.len() == STOPPED {
            self.stopped.pop_front();
        }
        self.stopped.push_back((target_id, open));
        Some(frame)
    }

    /// Takes a host's answer to a call of its tool. Returns whether there was such a request: other answers are passed over.
    pub(crate) async fn tool_answered(&mut self, id: &str, answer: HostToolAnswer) -> bool {
        let is_tool = |open: &OpenHostCall| matches!(open.kind, HostCallKind::Tool);
        let output = match answer {
            HostToolAnswer::Update(output) => {
                let open = self.open.get(id).filter(|open| is_tool(open));
                if let Some(open) = open {
                    open.exchange.send_update(from_wire(output));
                }
                return open.is_some();
            }
            HostToolAnswer::Done(output) => from_wire(output),
            HostToolAnswer::Failed(text) => failed_output(text),
        };
        let Some(open) = self.remove_call(id, is_tool) else { return false };
        open.exchange.end_with(output).await;
        true
    }

    /// Takes a host's answer to a request at one of its URIs. Returns whether there was such a request.
    pub(crate) async fn uri_answered(&mut self, id: &str, result: HostUriResult) -> bool {
        let Some(open) = self.remove_call(id, |open| matches!(open.kind, HostCallKind::Uri { .. })) else {
            return false;
        };
        let HostCallKind::Uri { operation, url, is_immutable } = open.kind else { return false };
        let output = match (result.failure_text(operation, &url), operation) {
            (Some(text), _) => failed_output(text),
            (None, UriOperation::Read) => was_read(result, &url, is_immutable, open.exchange.content()),
            (None, UriOperation::Write) => was_written(&url, open.exchange.content()),
        };
        open.exchange.end_with(output).await;
        true
    }

    fn remove_call(&mut self, id: &str, is_it: impl Fn(&OpenHostCall) -> bool) -> Option<OpenHostCall> {
        if self.open.get(id).is_some_and(&is_it) {
            let open = self.open.remove(id)?;
            self.ids.remove(&open.exchange.call());
            return Some(open);
        }
        let at = self.stopped.iter().position(|(stopped, open)| stopped == id && is_it(open))?;
        self.stopped.remove(at).map(|(_, open)| open)
    }
}

/// Returns a name for a frame.
fn fresh_id() -> String {
    let mut bits = [0; 8];
    getrandom::fill(&mut bits).expect("the system has randomness: the session's id came from there");
    host_tool::frame_id(u64::from_be_bytes(bits))
}

fn failed_output(text: String) -> CallOutput {
    CallOutput { is_error: true, ..CallOutput::from_text(text).with_details(json!({})) }
}

/// Converts the output of a host for the model. A block of a kind that models do not know is its JSON.
fn from_wire(output: ToolOutput) -> CallOutput {
    let block = |block: OmpContentBlock| match block {
        OmpContentBlock::Text(text) => MessageBlock::from_text(text.text),
        OmpContentBlock::Image(image) => match image::check_image(&image) {
            Ok(()) if image::decoded_len(&image.data) <= image::LARGEST => {
                MessageBlock::Image(ImageBlock { data: image.data, mime_type: image.mime_type })
            }
            Ok(()) => MessageBlock::from_text(format!(
                "[An image that cannot be shown: it has more than {} bytes]",
                image::LARGEST
            )),
            Err(problem) => MessageBlock::from_text(format!("[An image that cannot be shown: {problem}]")),
        },
        OmpContentBlock::Other(json) => MessageBlock::from_text(json.as_text()),
    };
    CallOutput {
        content: output.content.into_iter().map(block).collect(),
        details: output.details.and_then(|details| details.decode_as().ok()),
        is_error: false,
    }
}

fn was_read(result: HostUriResult, url: &str, is_immutable: bool, content: &CallDetails) -> CallOutput {
    let text = result.content.unwrap_or_default();
    let mut output = match read::part_of(&text, content.arguments.clone(), url) {
        Ok(output) => output,
        Err(failure) => return failed_output(failure.to_string()),
    };
    let kind = match result.content_type.unwrap_or_default() {
        ContentType::Plain => "text/plain",
        ContentType::Markdown => "text/markdown",
        ContentType::Json => "application/json",
    };
    let notes = result.notes.unwrap_or_default();
    if let Some(Value::Object(details)) = &mut output.details {
        details.insert("contentType".to_owned(), kind.into());
        details.insert("immutable".to_owned(), result.immutable.unwrap_or(is_immutable).into());
        if !notes.is_empty() {
            details.insert("notes".to_owned(), notes.clone().into());
        }
    }
    output.content.extend(notes.into_iter().map(|note| MessageBlock::from_text(format!("[Note: {note}]"))));
    output
}

fn was_written(url: &str, content: &CallDetails) -> CallOutput {
    let bytes = content.arguments.get("content").and_then(Value::as_str).map_or(0, str::len);
    CallOutput::from_text(format!("Wrote {bytes} bytes to {url}")).with_details(json!({ "resolvedPath": url }))
}
