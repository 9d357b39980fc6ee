//! The calls that a host has in hand: which frame asked for which, and what came back.
//!
//! It decides nothing: what becomes of a call is said by [`countersign_runtime::Exchange`] and recorded by the engine. Source:
//! docs/protocol/gjc.md, Host tools and Host URIs.

use std::collections::{BTreeMap, VecDeque};

use countersign_core::{
    call::CallDetails,
    id::{CallId, SessionId},
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
    host_capabilities::{HostCapabilities, tools_of, unknown, uris_of},
    image,
};

/// How many calls that nobody waits for any more are remembered, so that what the host still says of them is recorded.
const STOPPED: usize = 256;

/// What a host is told.
pub(crate) enum Told {
    Tool(HostToolFrame),
    Uri(HostUriFrame),
}

/// What a host was asked for.
enum Asked {
    Tool,
    Uri { operation: UriOperation, url: String, is_immutable: bool },
}

struct Open {
    exchange: PeerExchange,
    asked: Asked,
}

/// What a client said of itself that it does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Lends {
    tools: bool,
    uris: bool,
}

/// What one host has in hand.
#[derive(Default)]
pub(crate) struct HostCallTable {
    /// The session whose calls come over the lines.
    session: Option<SessionId>,
    /// Whether nobody is there. Nothing is sent then: it would reach nobody, and might have.
    is_away: bool,
    /// What whoever is there lends: a client that lends nothing does not know what it would be asked.
    lends: Lends,
    tools: Option<PeerLink>,
    uris: Option<PeerLink>,
    open: BTreeMap<String, Open>,
    ids: BTreeMap<CallId, String>,
    /// Oldest first.
    stopped: VecDeque<(String, Open)>,
}

async fn next(link: &mut Option<PeerLink>) -> Option<PeerOrder> {
    match link {
        Some(link) => link.next().await,
        None => None,
    }
}

impl HostCallTable {
    /// Has lines for whatever the host lends to `session`. Calls that wait for it begin.
    pub(crate) async fn serve(&mut self, peers: &PeerRegistry, session: &SessionId, results: &CommandSource) {
        if self.session.as_ref() != Some(session) {
            self.tools = None;
            self.uris = None;
            self.session = Some(session.clone());
        }
        if self.is_away {
            return;
        }
        if self.lends.tools && self.tools.is_none() {
            self.tools = Some(peers.open(tools_of(session), results.clone()).await);
        }
        if self.lends.uris && self.uris.is_none() {
            self.uris = Some(peers.open(uris_of(session), results.clone()).await);
        }
    }

    /// Whoever is there lends tools, or takes them back: it knows of them.
    pub(super) const fn lends_tools(&mut self) {
        self.lends.tools = true;
    }

    /// The same of URIs.
    pub(super) const fn lends_uris(&mut self) {
        self.lends.uris = true;
    }

    /// Nobody is there yet: clients come and go.
    pub(crate) const fn expect(&mut self) {
        self.is_away = true;
    }

    /// Waits for the next order; for good while there is no line.
    ///
    /// *Cancellation*: a future that is dropped loses no order.
    pub(crate) async fn next(&mut self) -> PeerOrder {
        tokio::select! {
            Some(order) = next(&mut self.tools) => order,
            Some(order) = next(&mut self.uris) => order,
            else => std::future::pending().await,
        }
    }

    /// Lets go of everything: the host has gone, and what it has in hand ends as that says.
    pub(crate) async fn left(&mut self) {
        let gone = std::mem::take(self);
        self.is_away = true;
        // Its calls end as they are dropped, and nothing more is started for it.
        for link in [gone.tools, gone.uris].into_iter().flatten() {
            link.close().await;
        }
    }

    /// Another client is there in the place of whoever was. What was lent while nobody was there is lent by it.
    pub(super) async fn arrived(&mut self) {
        if !self.is_away {
            self.left().await;
        }
        self.is_away = false;
    }

    /// Takes an order. The frame that is to be written at once, if there is one.
    pub(crate) fn take(&mut self, order: PeerOrder, lent: &HostCapabilities) -> Option<Told> {
        match order {
            PeerOrder::Do(errand) if errand.content.class == Some(Class::HostToolInvoke) => self.call(*errand, lent),
            PeerOrder::Do(errand) => self.request(*errand, lent),
            PeerOrder::Ask(errand) => {
                errand.refuse("A host cannot say what became of a call that it had on an earlier connection.");
                None
            }
            PeerOrder::Stop(call) => self.stop(call),
        }
    }

    fn call(&mut self, errand: PeerCall, lent: &HostCapabilities) -> Option<Told> {
        let tool = errand.content.tool.to_string();
        if !lent.has_tool(&tool) {
            errand.refuse(format!("Tool {tool} not found: the host took it back"));
            return None;
        }
        let frame = HostToolFrame::HostToolCall {
            id: fresh(),
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
        self.opened(id.clone(), errand.mark_sent(words)?, Asked::Tool);
        Some(Told::Tool(frame))
    }

    fn request(&mut self, errand: PeerCall, lent: &HostCapabilities) -> Option<Told> {
        let class = errand.content.class.unwrap_or(Class::HostUriWrite);
        let operation = if class == Class::HostUriRead { UriOperation::Read } else { UriOperation::Write };
        let text = |member: &str| errand.content.arguments.get(member).and_then(Value::as_str).map(str::to_owned);
        let url = text("path").unwrap_or_default();
        let scheme = host_uri::normalize_url(&url).map(|(scheme, _)| scheme).unwrap_or_default();
        let Some(known) = lent.scheme(&scheme) else {
            errand.refuse(unknown(class, &url, &scheme));
            return None;
        };
        if operation == UriOperation::Write && !known.writable {
            errand.refuse(host_uri::not_writable(&scheme));
            return None;
        }
        let content = text("content").filter(|_| operation == UriOperation::Write);
        let id = fresh();
        let words = PeerTexts {
            stopped: host_uri::aborted_text(operation, &url),
            gone: host_uri::DISCONNECTED.to_owned(),
            silent: format!("Host URI {} for {url} was not answered in time.", operation.name()),
        };
        let asked = Asked::Uri { operation, url: url.clone(), is_immutable: known.immutable };
        self.opened(id.clone(), errand.mark_sent(words)?, asked);
        Some(Told::Uri(HostUriFrame::HostUriRequest { id, operation, url, content }))
    }

    fn opened(&mut self, id: String, exchange: PeerExchange, asked: Asked) {
        self.ids.insert(exchange.call(), id.clone());
        self.open.insert(id, Open { exchange, asked });
    }

    fn stop(&mut self, call: CallId) -> Option<Told> {
        let target_id = self.ids.remove(&call)?;
        let open = self.open.remove(&target_id)?;
        let told = match open.asked {
            Asked::Tool => Told::Tool(HostToolFrame::HostToolCancel { id: fresh(), target_id: target_id.clone() }),
            Asked::Uri { .. } => Told::Uri(HostUriFrame::HostUriCancel { id: fresh(), target_id: target_id.clone() }),
        };
        if self.stopped.len() == STOPPED {
            self.stopped.pop_front();
        }
        self.stopped.push_back((target_id, open));
        Some(told)
    }

    /// Takes what a host says of a call of its tool. Whether it was asked for that: what it says of others is passed over.
    pub(crate) async fn tool_answered(&mut self, id: &str, answer: HostToolAnswer) -> bool {
        let is_tool = |open: &Open| matches!(open.asked, Asked::Tool);
        let output = match answer {
            HostToolAnswer::Update(output) => {
                let open = self.open.get(id).filter(|open| is_tool(open));
                if let Some(open) = open {
                    open.exchange.send_update(of_wire(output));
                }
                return open.is_some();
            }
            HostToolAnswer::Done(output) => of_wire(output),
            HostToolAnswer::Failed(text) => failed(text),
        };
        let Some(open) = self.ended(id, is_tool) else { return false };
        open.exchange.end_with(output).await;
        true
    }

    /// Takes what a host says of a request at one of its URIs. Whether it was asked for that.
    pub(crate) async fn uri_answered(&mut self, id: &str, result: HostUriResult) -> bool {
        let Some(open) = self.ended(id, |open| matches!(open.asked, Asked::Uri { .. })) else { return false };
        let Asked::Uri { operation, url, is_immutable } = open.asked else { return false };
        let output = match (result.failure_text(operation, &url), operation) {
            (Some(text), _) => failed(text),
            (None, UriOperation::Read) => was_read(result, &url, is_immutable, open.exchange.content()),
            (None, UriOperation::Write) => was_written(&url, open.exchange.content()),
        };
        open.exchange.end_with(output).await;
        true
    }

    fn ended(&mut self, id: &str, is_it: impl Fn(&Open) -> bool) -> Option<Open> {
        if self.open.get(id).is_some_and(&is_it) {
            let open = self.open.remove(id)?;
            self.ids.remove(&open.exchange.call());
            return Some(open);
        }
        let at = self.stopped.iter().position(|(stopped, open)| stopped == id && is_it(open))?;
        self.stopped.remove(at).map(|(_, open)| open)
    }
}

/// A name for a frame.
fn fresh() -> String {
    let mut bits = [0; 8];
    getrandom::fill(&mut bits).expect("the system has randomness: the session's id came from there");
    host_tool::frame_id(u64::from_be_bytes(bits))
}

fn failed(text: String) -> CallOutput {
    CallOutput { is_error: true, ..CallOutput::from_text(text).with_details(json!({})) }
}

/// What a host gave back, as the model is told it. A block of a kind that models do not know is its JSON.
fn of_wire(output: ToolOutput) -> CallOutput {
    let block = |block: OmpContentBlock| match block {
        OmpContentBlock::Text(text) => MessageBlock::from_text(text.text),
        OmpContentBlock::Image(image) => match image::check(&image) {
            Ok(()) if image::decoded(&image.data) <= image::LARGEST => {
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
        Err(failure) => return failed(failure.to_string()),
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
