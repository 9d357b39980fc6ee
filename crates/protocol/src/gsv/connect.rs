//! `connect`: who comes, what must be true of it, and the `hello-ok` that it is answered.

use serde::{Deserialize, Serialize};

use super::channel::LONGEST_ID;
use super::fields::ParamFields;
use super::method::TABLE;
use super::runtime::RuntimeInfo;
use super::tool::{self, ToolDefinition};
use super::{GsvError, PROTOCOL, code};
use crate::json::{RawJson, wire_values};

/// Role of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PeerMode {
    /// A person's client that chats and administers.
    Client,
    /// A machine that offers tools.
    Node,
    /// A chat network.
    Channel,
}

impl PeerMode {
    /// Returns the word of the wire.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Node => "node",
            Self::Channel => "channel",
        }
    }
}

/// A peer that may connect.
#[derive(Clone, Debug, PartialEq)]
pub struct ConnectingPeer {
    /// Its id, by which a newer connection replaces it.
    pub id: String,
    /// The version of its program.
    pub version: Option<String>,
    /// Its operating system.
    pub platform: Option<String>,
    /// True if a client wants the text of messages while it is produced (ours).
    pub deltas: bool,
    /// Details of the peer.
    pub peer: PeerDetails,
}

/// Role of a peer, with its details.
#[derive(Clone, Debug, PartialEq)]
pub enum PeerDetails {
    /// A person's client that chats and administers.
    Client,
    /// A machine that offers tools.
    Node {
        /// The tools, each once.
        tools: Vec<ToolDefinition>,
        /// The machine's description. Absent if the node did not send one.
        runtime: Option<RuntimeInfo>,
        /// Journal in which it notes the outcome of calls, so that it can be asked again about those of an earlier connection
        /// (ours). Absent if it keeps none.
        journal: Option<NodeJournal>,
    },
    /// A chat network.
    Channel {
        /// Name of the chat network.
        channel: String,
        /// Account in that network.
        account: String,
    },
}

/// The journal of a node's calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeJournal {
    /// A journal without an id, which cannot be distinguished from another.
    Nameless,
    /// The one of this number.
    Of(u64),
}

impl ConnectingPeer {
    /// Returns the mode in which it connects.
    pub const fn mode(&self) -> PeerMode {
        match self.peer {
            PeerDetails::Client => PeerMode::Client,
            PeerDetails::Node { .. } => PeerMode::Node,
            PeerDetails::Channel { .. } => PeerMode::Channel,
        }
    }

    /// Returns the reason for closing an older connection of the same peer.
    pub fn replaced_reason(mode: PeerMode) -> String {
        format!("Replaced by newer {} connection", mode.name())
    }

    /// Checks the parameters of a `connect`. `is_trusted` decides whether the token, or a missing token, suffices.
    ///
    /// # Errors
    /// In this order: 102 for another version, 401 without trust (the connection is closed then, and after no other error), 103
    /// for impossible parameters.
    pub fn from_params(
        params: Option<&RawJson>,
        is_trusted: impl FnOnce(Option<&str>) -> bool,
    ) -> Result<Self, GsvError> {
        let mut fields = ParamFields::from_params(params).map_err(handshake_error)?;
        if fields.take_number("minProtocol").ok().flatten() != Some(PROTOCOL as f64) {
            return Err(GsvError::new(code::PROTOCOL, "Unsupported protocol version"));
        }
        let auth = fields.take_fields("auth").ok().flatten();
        let token = auth.and_then(|mut auth| auth.take_text("token").ok().flatten());
        if !is_trusted(token.as_deref()) {
            return Err(GsvError::unauthorized());
        }
        let invalid_mode = || GsvError::new(code::HANDSHAKE, "Invalid client mode");
        let mut client = fields.take_fields("client").map_err(handshake_error)?.ok_or_else(invalid_mode)?;
        let modes = [("client", PeerMode::Client), ("node", PeerMode::Node), ("channel", PeerMode::Channel)];
        let mode = client.take_choice("mode", &modes).ok().flatten().ok_or_else(invalid_mode)?;
        let id = client.require_text("id", "client.id required").map_err(handshake_error)?;
        if id.len() > LONGEST_ID {
            return Err(GsvError::new(code::HANDSHAKE, format!("Invalid client: id has at most {LONGEST_ID} bytes")));
        }
        let peer = match mode {
            PeerMode::Client => PeerDetails::Client,
            PeerMode::Node => read_node(&id, &mut fields)?,
            PeerMode::Channel => read_channel(&id, &mut client)?,
        };
        let version = client.take_text("version").ok().flatten();
        let platform = client.take_text("platform").ok().flatten();
        let deltas = mode == PeerMode::Client && fields.take_flag("deltas").map_err(handshake_error)?.unwrap_or(false);
        Ok(Self { id, version, platform, deltas, peer })
    }
}

fn handshake_error(fault: GsvError) -> GsvError {
    GsvError { code: code::HANDSHAKE, ..fault }
}

fn read_node(id: &str, fields: &mut ParamFields) -> Result<PeerDetails, GsvError> {
    let no_tools = || GsvError::new(code::HANDSHAKE, "Node mode requires tools");
    tool::check_node(id).map_err(|error| GsvError::new(code::HANDSHAKE, format!("Invalid client: {error}")))?;
    let tools =
        fields.take_list("tools").map_err(handshake_error)?.filter(|tools| !tools.is_empty()).ok_or_else(no_tools)?;
    let tools = tool::read_definitions(tools).map_err(handshake_error)?;
    if let Some(twice) = tool::duplicate_name(&tools) {
        return Err(invalid_runtime(format!("{twice} is offered twice")));
    }
    let keeps = fields.take_flag("journal").map_err(handshake_error)?.unwrap_or(false);
    let journal = read_journal(keeps, fields.take_text("journalId").map_err(handshake_error)?)?;
    let runtime = match fields.take_fields("nodeRuntime") {
        Ok(None) => None,
        Ok(Some(runtime)) => Some(RuntimeInfo::from_fields(runtime, &tools).map_err(invalid_runtime)?),
        Err(fault) => return Err(invalid_runtime(fault.message)),
    };
    Ok(PeerDetails::Node { tools, runtime, journal })
}

fn read_journal(keeps: bool, id: Option<String>) -> Result<Option<NodeJournal>, GsvError> {
    let Some(id) = id.filter(|_| keeps) else { return Ok(keeps.then_some(NodeJournal::Nameless)) };
    let is_whole = id.len() == 16 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
    let id = u64::from_str_radix(&id, 16).ok().filter(|_| is_whole);
    let id = id.ok_or_else(|| GsvError::new(code::HANDSHAKE, "Invalid journalId: it has 16 hexadecimal digits"))?;
    Ok(Some(NodeJournal::Of(id)))
}

fn invalid_runtime(reason: String) -> GsvError {
    GsvError::new(code::HANDSHAKE, format!("Invalid nodeRuntime: {reason}"))
}

/// Channels that a gateway carries itself: no peer connects as one of them.
pub const BUILT_IN: [&str; 2] = ["telegram", "webhook"];

fn read_channel(id: &str, client: &mut ParamFields) -> Result<PeerDetails, GsvError> {
    let channel = client.require_text("channel", "Channel mode requires channel field").map_err(handshake_error)?;
    let account = client.take_text("accountId").map_err(handshake_error)?.filter(|account| !account.is_empty());
    let account = account.unwrap_or_else(|| id.to_owned());
    let refused = |why: String| GsvError::new(code::HANDSHAKE, format!("Invalid client: {why}"));
    // A name that looks the same must not be taken for it.
    if let Some(own) = BUILT_IN.iter().find(|own| own.eq_ignore_ascii_case(channel.trim())) {
        return Err(refused(format!("{own} is a channel of the gateway's own")));
    }
    if channel.len() > LONGEST_ID || account.len() > LONGEST_ID {
        return Err(refused(format!("channel and accountId have at most {LONGEST_ID} bytes")));
    }
    Ok(PeerDetails::Channel { channel, account })
}

/// Parameters that a peer sends to connect, as our own node does.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ConnectParams<'a> {
    /// The oldest version that it speaks.
    pub min_protocol: u64,
    /// The newest.
    pub max_protocol: u64,
    /// The connecting client.
    pub client: ConnectClient<'a>,
    /// A node's tools.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tools: Option<&'a [ToolDefinition]>,
    /// Description of a node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_runtime: Option<&'a RuntimeInfo>,
    /// True if a node keeps a journal of its calls, so that it can be asked again about them (ours).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub journal: Option<bool>,
    /// Id of the journal, so that the node is not asked about calls that are noted in another: 16 hexadecimal digits (ours).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub journal_id: Option<&'a str>,
    /// Its token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auth: Option<ConnectAuth<'a>>,
}

/// Sender of a `connect`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ConnectClient<'a> {
    /// Its id.
    pub id: &'a str,
    /// The version of its program.
    pub version: &'a str,
    /// Its operating system.
    pub platform: &'a str,
    /// Role of the client.
    pub mode: PeerMode,
}

/// A token as it is sent.
#[derive(Clone, PartialEq, Eq, Serialize)]
pub struct ConnectAuth<'a> {
    /// The token.
    pub token: &'a str,
}

impl std::fmt::Debug for ConnectAuth<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ConnectAuth")
    }
}

/// The answer to a `connect`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HelloOk<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    protocol: u64,
    server: HelloServer<'a>,
    features: HelloFeatures,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct HelloServer<'a> {
    version: &'a str,
    connection_id: &'a str,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct HelloFeatures {
    methods: Vec<&'static str>,
    events: Vec<&'static str>,
}

/// Every event that there is for all.
pub const EVENTS: [&str; 6] = ["chat", "tool.invoke", "node.probe", "logs.get", "channel.outbound", "channel.typing"];

/// The event that asks a node with a journal what became of a call (ours).
pub const RESUME: &str = "tool.resume";

impl<'a> HelloOk<'a> {
    /// Creates the greeting with every method and every event.
    pub fn new(version: &'a str, connection_id: &'a str) -> Self {
        let features = HelloFeatures { methods: TABLE.iter().map(|row| row.name).collect(), events: EVENTS.to_vec() };
        Self { kind: "hello-ok", protocol: PROTOCOL, server: HelloServer { version, connection_id }, features }
    }

    /// Adds `tool.resume` for a node that keeps a journal.
    #[must_use]
    pub fn with_resume(mut self) -> Self {
        self.features.events.push(RESUME);
        self
    }
}

wire_values! { ConnectParams<'_>, HelloOk<'_> }
