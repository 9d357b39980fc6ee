//! `connect`: who comes, what must be true of it, and the `hello-ok` that it is answered.

use serde::{Deserialize, Serialize};

use super::channel::LONGEST_ID;
use super::fields::Fields;
use super::method::TABLE;
use super::runtime::RuntimeInfo;
use super::tool::{self, Definition};
use super::{Fault, PROTOCOL, code};
use crate::json::{Json, Wire};

/// What a peer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Somebody who chats and looks after things.
    Client,
    /// A machine that offers tools.
    Node,
    /// A chat network.
    Channel,
}

impl Mode {
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
pub struct Connect {
    /// Its id, by which a newer connection replaces it.
    pub id: String,
    /// The version of its program.
    pub version: Option<String>,
    /// Its operating system.
    pub platform: Option<String>,
    /// Whether a client wants to hear what is said while it is said (ours).
    pub deltas: bool,
    /// What it is.
    pub peer: Peer,
}

/// What a peer is, with what goes with it.
#[derive(Clone, Debug, PartialEq)]
pub enum Peer {
    /// Somebody who chats and looks after things.
    Client,
    /// A machine that offers tools.
    Node {
        /// The tools, each once.
        tools: Vec<Definition>,
        /// What the machine is like. Absent if it did not say.
        runtime: Option<RuntimeInfo>,
        /// Where it notes what becomes of calls, so that it can be asked again about those of an earlier connection (ours).
        /// Absent if it does not.
        journal: Option<Journal>,
    },
    /// A chat network.
    Channel {
        /// Which one.
        channel: String,
        /// Which account of it.
        account: String,
    },
}

/// The journal of a node's calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Journal {
    /// One that cannot be told from another.
    Nameless,
    /// The one of this number.
    Of(u64),
}

impl Connect {
    /// In which mode it comes.
    pub const fn mode(&self) -> Mode {
        match self.peer {
            Peer::Client => Mode::Client,
            Peer::Node { .. } => Mode::Node,
            Peer::Channel { .. } => Mode::Channel,
        }
    }

    /// Why an older connection of the same peer is closed.
    pub fn replaced(mode: Mode) -> String {
        format!("Replaced by newer {} connection", mode.name())
    }

    /// Looks at the parameters of a `connect`. `is_trusted` says of the token, or of there being none, whether it will do.
    ///
    /// # Errors
    /// In this order: 102 for another version, 401 without trust (the connection is closed then, and after no other
    /// error), 103 for what cannot be.
    pub fn read(params: Option<&Json>, is_trusted: impl FnOnce(Option<&str>) -> bool) -> Result<Self, Fault> {
        let mut fields = Fields::of(params).map_err(handshake)?;
        if fields.number("minProtocol").ok().flatten() != Some(PROTOCOL as f64) {
            return Err(Fault::new(code::PROTOCOL, "Unsupported protocol version"));
        }
        let auth = fields.inner("auth").ok().flatten();
        let token = auth.and_then(|mut auth| auth.text("token").ok().flatten());
        if !is_trusted(token.as_deref()) {
            return Err(Fault::unauthorized());
        }
        let invalid_mode = || Fault::new(code::HANDSHAKE, "Invalid client mode");
        let mut client = fields.inner("client").map_err(handshake)?.ok_or_else(invalid_mode)?;
        let modes = [("client", Mode::Client), ("node", Mode::Node), ("channel", Mode::Channel)];
        let mode = client.word("mode", &modes).ok().flatten().ok_or_else(invalid_mode)?;
        let id = client.required("id", "client.id required").map_err(handshake)?;
        if id.len() > LONGEST_ID {
            return Err(Fault::new(code::HANDSHAKE, format!("Invalid client: id has at most {LONGEST_ID} bytes")));
        }
        let peer = match mode {
            Mode::Client => Peer::Client,
            Mode::Node => node(&id, &mut fields)?,
            Mode::Channel => channel(&id, &mut client)?,
        };
        let version = client.text("version").ok().flatten();
        let platform = client.text("platform").ok().flatten();
        let deltas = mode == Mode::Client && fields.flag("deltas").map_err(handshake)?.unwrap_or(false);
        Ok(Self { id, version, platform, deltas, peer })
    }
}

fn handshake(fault: Fault) -> Fault {
    Fault { code: code::HANDSHAKE, ..fault }
}

fn node(id: &str, fields: &mut Fields) -> Result<Peer, Fault> {
    let no_tools = || Fault::new(code::HANDSHAKE, "Node mode requires tools");
    tool::check_node(id).map_err(|error| Fault::new(code::HANDSHAKE, format!("Invalid client: {error}")))?;
    let tools = fields.list("tools").map_err(handshake)?.filter(|tools| !tools.is_empty()).ok_or_else(no_tools)?;
    let tools = tool::definitions(tools).map_err(handshake)?;
    if let Some(twice) = tool::twice(&tools) {
        return Err(invalid_runtime(format!("{twice} is offered twice")));
    }
    let keeps = fields.flag("journal").map_err(handshake)?.unwrap_or(false);
    let journal = journal(keeps, fields.text("journalId").map_err(handshake)?)?;
    let runtime = match fields.inner("nodeRuntime") {
        Ok(None) => None,
        Ok(Some(runtime)) => Some(RuntimeInfo::read(runtime, &tools).map_err(invalid_runtime)?),
        Err(fault) => return Err(invalid_runtime(fault.message)),
    };
    Ok(Peer::Node { tools, runtime, journal })
}

fn journal(keeps: bool, id: Option<String>) -> Result<Option<Journal>, Fault> {
    let Some(id) = id.filter(|_| keeps) else { return Ok(keeps.then_some(Journal::Nameless)) };
    let is_whole = id.len() == 16 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
    let id = u64::from_str_radix(&id, 16).ok().filter(|_| is_whole);
    let id = id.ok_or_else(|| Fault::new(code::HANDSHAKE, "Invalid journalId: it has 16 hexadecimal digits"))?;
    Ok(Some(Journal::Of(id)))
}

fn invalid_runtime(reason: String) -> Fault {
    Fault::new(code::HANDSHAKE, format!("Invalid nodeRuntime: {reason}"))
}

/// Channels that a gateway carries itself: nobody connects as one of them.
pub const BUILT_IN: [&str; 2] = ["telegram", "webhook"];

fn channel(id: &str, client: &mut Fields) -> Result<Peer, Fault> {
    let channel = client.required("channel", "Channel mode requires channel field").map_err(handshake)?;
    let account = client.text("accountId").map_err(handshake)?.filter(|account| !account.is_empty());
    let account = account.unwrap_or_else(|| id.to_owned());
    let refused = |why: String| Fault::new(code::HANDSHAKE, format!("Invalid client: {why}"));
    // Nobody is to take one that looks the same for it.
    if let Some(own) = BUILT_IN.iter().find(|own| own.eq_ignore_ascii_case(channel.trim())) {
        return Err(refused(format!("{own} is a channel of the gateway's own")));
    }
    if channel.len() > LONGEST_ID || account.len() > LONGEST_ID {
        return Err(refused(format!("channel and accountId have at most {LONGEST_ID} bytes")));
    }
    Ok(Peer::Channel { channel, account })
}

/// What a peer sends to connect, as our own node does.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ConnectParams<'a> {
    /// The oldest version that it speaks.
    pub min_protocol: u64,
    /// The newest.
    pub max_protocol: u64,
    /// Who it is.
    pub client: Client<'a>,
    /// A node's tools.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tools: Option<&'a [Definition]>,
    /// What a node is like.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_runtime: Option<&'a RuntimeInfo>,
    /// Whether a node keeps a journal of its calls, so that it can be asked again about them (ours).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub journal: Option<bool>,
    /// Which one, so that it is not asked about calls that are noted in another: 16 hexadecimal digits (ours).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub journal_id: Option<&'a str>,
    /// Its token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auth: Option<Token<'a>>,
}

impl Wire for ConnectParams<'_> {}

/// Who sends a `connect`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Client<'a> {
    /// Its id.
    pub id: &'a str,
    /// The version of its program.
    pub version: &'a str,
    /// Its operating system.
    pub platform: &'a str,
    /// What it is.
    pub mode: Mode,
}

/// A token as it is sent.
#[derive(Clone, PartialEq, Eq, Serialize)]
pub struct Token<'a> {
    /// The token.
    pub token: &'a str,
}

impl std::fmt::Debug for Token<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token")
    }
}

/// The answer to a `connect`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HelloOk<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    protocol: u64,
    server: Server<'a>,
    features: Features,
}

impl Wire for HelloOk<'_> {}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Server<'a> {
    version: &'a str,
    connection_id: &'a str,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct Features {
    methods: Vec<&'static str>,
    events: Vec<&'static str>,
}

/// Every event that there is for all.
pub const EVENTS: [&str; 6] = ["chat", "tool.invoke", "node.probe", "logs.get", "channel.outbound", "channel.typing"];

/// The event that asks a node with a journal what became of a call (ours).
pub const RESUME: &str = "tool.resume";

impl<'a> HelloOk<'a> {
    /// With every method and every event.
    pub fn new(version: &'a str, connection_id: &'a str) -> Self {
        let features = Features { methods: TABLE.iter().map(|row| row.name).collect(), events: EVENTS.to_vec() };
        Self { kind: "hello-ok", protocol: PROTOCOL, server: Server { version, connection_id }, features }
    }

    /// The same for a node that keeps a journal: it is sent `tool.resume`, and is told so.
    #[must_use]
    pub fn with_resume(mut self) -> Self {
        self.features.events.push(RESUME);
        self
    }
}
