//! One editor: reads its lines, and carries out its requests in their order.

use std::{path::Path, sync::Arc};

use countersign_acp_protocol::{
    self as acp, AgentCapabilities, ClientFeatures, ContentBlock, ErrorCode, IncomingMessage, InitializeParams,
    InitializeReply, ListSessionsParams, McpServerParam, NewSessionReply, OpenSessionParams, PromptCapabilities,
    PromptParams, RequestId, SessionParams, SetConfigOptionParams, SetModeParams, methods, parse_message,
};
use countersign_conversations::chats::{ChatError, NewConversation};
use countersign_core::{
    id::{PrincipalId, SessionId},
    policy::ApprovalMode,
    session::{DenialReach, SessionSetting},
};
use countersign_protocol::lines::{DecodedLine, LineDecoder};
use countersign_runtime::models::{InputModality, ThinkingLevel};
use countersign_view::Protocol;
use serde::Serialize;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite};

use crate::{
    adapter::{AcpAdapter, ConnectionGuard, ConnectionOptions},
    client_requests::ClientRequests,
    config_options::{self, MODE, MODEL, THINKING, USUAL, image_input, parse_mode, session_modes},
    connection_context::ConnectionContext,
    feed_command::FeedCommand,
    open_sessions::{MOST_OPEN, OpenSessions},
    output::{Output, RequestFailure},
    project_folder::is_too_wide,
    prompt_blocks::message_blocks,
    session_feed::{COMPACT, SessionFeed, chat_failure},
    session_list::list_sessions,
    session_snapshot::{SessionChoices, read_choices},
};

/// Number of bytes that are read at once.
const CHUNK: usize = 64 * 1024;

/// Connection of one editor.
pub(crate) struct Connection {
    context: Arc<ConnectionContext>,
    is_initialized: bool,
    sessions: OpenSessions,
}

impl AcpAdapter {
    /// Serves one editor of a person to its end.
    ///
    /// *Cancellation*: runs continue and gates stay open.
    pub async fn serve_stream<R, W>(
        self: &Arc<Self>,
        reader: R,
        writer: W,
        options: ConnectionOptions,
        person: &PrincipalId,
    ) where
        R: AsyncRead + Send + Unpin,
        W: AsyncWrite + Send + Unpin + 'static,
    {
        let _open = ConnectionGuard::new(self);
        let (output, written) = Output::open(writer);
        let connection = Connection::new(Arc::clone(self), options, person.clone(), output);
        connection.serve(reader).await;
        // The last lines are written once every sender has gone.
        let _ = written.await;
    }
}

type Outcome<T> = Result<T, RequestFailure>;

impl Connection {
    pub(crate) fn new(
        adapter: Arc<AcpAdapter>,
        options: ConnectionOptions,
        person: PrincipalId,
        output: Output,
    ) -> Self {
        let (features, requests) = (ClientFeatures::default(), ClientRequests::default());
        let context = ConnectionContext { adapter, options, person, features, requests, output };
        Self { context: Arc::new(context), is_initialized: false, sessions: OpenSessions::default() }
    }

    /// Serves the editor until it has gone, or the gateway closes.
    pub(crate) async fn serve(mut self, mut reader: impl AsyncRead + Unpin) {
        let (mut decoder, mut chunk) = (LineDecoder::default(), vec![0; CHUNK]);
        let (end, output) = (self.context.adapter.end.clone(), self.context.output.clone());
        loop {
            let read = tokio::select! {
                read = reader.read(&mut chunk) => read,
                () = end.cancelled() => break,
                () = output.closed() => break,
            };
            let Ok(length @ 1..) = read else { break };
            decoder.push(&chunk[..length]);
            while let Some(line) = decoder.next_line() {
                self.handle_line(line).await;
            }
        }
    }

    async fn handle_line(&mut self, line: DecodedLine) {
        let invalid = |text: String| (None, RequestFailure::new(ErrorCode::InvalidRequest, text));
        let (id, failure) = match line {
            DecodedLine::Text(text) => match parse_message(&text) {
                Ok(IncomingMessage::Request { id, method, params }) => {
                    return self.handle_request(id, &method, &params).await;
                }
                Ok(IncomingMessage::Notification { method, params }) => {
                    return self.handle_notification(&method, &params).await;
                }
                Ok(IncomingMessage::Response { id, result }) => {
                    if let Some(id) = id.as_u64() {
                        self.context.requests.resolve(id, result).await;
                    }
                    return;
                }
                Err(fault) => (fault.id, RequestFailure::new(fault.code, fault.text)),
            },
            DecodedLine::TooLong { limit } => invalid(format!("Invalid request: longer than {limit} bytes")),
            DecodedLine::NotUtf8 => invalid("Invalid request: the line is not UTF-8".to_owned()),
        };
        self.context.output.send_fault(id.as_ref(), &failure).await;
    }

    async fn handle_request(&mut self, id: RequestId, method: &str, params: &Value) {
        if !self.is_initialized && method != methods::INITIALIZE && methods::OF_AGENT.contains(&method) {
            let text = format!("Invalid request: {method}: expected initialize first");
            return self.reply(&id, Err::<(), _>(RequestFailure::new(ErrorCode::InvalidRequest, text))).await;
        }
        match method {
            methods::INITIALIZE => {
                let reply = self.initialize(params);
                self.reply(&id, reply).await;
            }
            methods::AUTHENTICATE => {
                let given = params.get("methodId").and_then(Value::as_str).unwrap_or_default();
                let refused = RequestFailure::parameter("methodId", given, "no login is needed, so none is offered");
                self.reply(&id, Err::<(), _>(refused)).await;
            }
            methods::NEW => self.new_session(&id, params).await,
            methods::LOAD => self.open_existing(&id, params, Replay::Messages).await,
            methods::RESUME => self.open_existing(&id, params, Replay::Nothing).await,
            methods::LIST => {
                let reply = match ListSessionsParams::read(params) {
                    Ok(params) => list_sessions(&self.context.adapter.handle, &params).await,
                    Err(fault) => Err(fault.into()),
                };
                self.reply(&id, reply).await;
            }
            methods::CLOSE => {
                let reply = self.close_session(params).await;
                self.reply(&id, reply).await;
            }
            methods::PROMPT => {
                if let Err(failure) = self.send_prompt(&id, params).await {
                    self.reply(&id, Err::<(), _>(failure)).await;
                }
            }
            methods::SET_MODE => {
                let reply = self.set_mode(params).await;
                self.reply(&id, reply).await;
            }
            methods::SET_CONFIG_OPTION => {
                let reply = self.set_config_option(params).await;
                self.reply(&id, reply).await;
            }
            _ => {
                let known = methods::OF_AGENT.join(", ");
                let text = format!("Method not found: {method:?}: expected one of {known}");
                self.reply(&id, Err::<(), _>(RequestFailure::new(ErrorCode::MethodNotFound, text))).await;
            }
        }
    }

    /// Notifications get no reply, so those that are unknown or make no sense are dropped.
    async fn handle_notification(&mut self, method: &str, params: &Value) {
        match method {
            methods::CANCEL => {
                if let Ok(SessionParams { session }) = SessionParams::read(params) {
                    self.sessions.send(&SessionId::new(session), FeedCommand::Cancel).await;
                }
            }
            methods::CANCEL_REQUEST => {
                if let Some(request) = params.get("requestId").and_then(RequestId::from_value) {
                    self.sessions.cancel_request(&request).await;
                }
            }
            _ => {}
        }
    }

    async fn reply(&self, id: &RequestId, reply: Outcome<impl Serialize>) {
        self.context.output.send_reply(id, reply.as_ref()).await;
    }

    fn initialize(&mut self, params: &Value) -> Outcome<InitializeReply> {
        let params = InitializeParams::read(params)?;
        tracing::debug!(client = params.client, version = params.version, "an editor connected");
        // Open sessions have the features of the first one.
        let Some(context) = Arc::get_mut(&mut self.context) else {
            let why = "Invalid request: initialize: expected before the first session".to_owned();
            return Err(RequestFailure::new(ErrorCode::InvalidRequest, why));
        };
        context.features = params.features;
        self.is_initialized = true;
        let models = self.context.adapter.chats.models();
        let sees_images = models.entries().any(|entry| entry.input.contains(&InputModality::Image));
        Ok(InitializeReply {
            protocol_version: acp::VERSION,
            agent_capabilities: AgentCapabilities {
                load_session: true,
                prompt_capabilities: PromptCapabilities { image: sees_images, audio: false, embedded_context: true },
                mcp_capabilities: json!({ "http": false, "sse": false }),
                session_capabilities: json!({ "list": {}, "resume": {}, "close": {} }),
            },
            agent_info: json!({
                "name": "countersign", "title": "Countersign", "version": env!("CARGO_PKG_VERSION"),
            }),
            auth_methods: Vec::new(),
        })
    }

    async fn new_session(&mut self, id: &RequestId, params: &Value) {
        match self.open_new(params).await {
            Ok((session, feed, snapshot)) => {
                let reply = self.session_reply(Some(&session), &snapshot.settings);
                self.reply(id, Ok(reply)).await;
                self.sessions.insert(session, feed, snapshot);
            }
            Err(failure) => self.reply(id, Err::<(), _>(failure)).await,
        }
    }

    async fn open_new(
        &self,
        params: &Value,
    ) -> Outcome<(SessionId, SessionFeed, crate::session_snapshot::SessionSnapshot)> {
        let params = OpenSessionParams::read_new(params)?;
        self.check_opening(&params)?;
        let ConnectionContext { adapter, options, .. } = &*self.context;
        let model = match (&options.model, &options.provider) {
            (Some(model), provider) => Some((provider.clone(), model.clone())),
            (None, Some(provider)) => {
                let mut entries = adapter.chats.models().entries();
                let first = entries.find(|entry| entry.provider == *provider).ok_or_else(|| {
                    RequestFailure::new(ErrorCode::Internal, format!("--provider {provider:?}: it has no model here"))
                })?;
                Some((Some(provider.clone()), first.id.clone()))
            }
            (None, None) => None,
        };
        let wish = NewConversation {
            folder: Some(params.cwd.clone().into()),
            approval: options.approval,
            denials: DenialReach::Session,
            model,
            ..NewConversation::default()
        };
        let session = match adapter.chats.open_session(Protocol::Acp.name(), wish).await {
            Ok(session) => session,
            Err(ChatError::Invalid(why)) if why.starts_with(&params.cwd) => {
                return Err(RequestFailure::parameter("cwd", &params.cwd, &format!("expected a folder, but {why}")));
            }
            Err(error) => return Err(chat_failure(&error)),
        };
        let (feed, snapshot) = SessionFeed::open(&self.context, &session).await.ok_or_else(closing)?;
        Ok((session, feed, snapshot))
    }

    /// Checks what an editor wants of a session.
    fn check_opening(&self, params: &OpenSessionParams) -> Outcome<()> {
        if !self.sessions.has_room() {
            let text = format!("{MOST_OPEN} sessions are open: close one with session/close");
            return Err(RequestFailure::new(ErrorCode::InvalidRequest, text));
        }
        if is_too_wide(Path::new(&params.cwd), std::env::home_dir().as_deref()) {
            let expected = "expected the folder of a project, not / or the home folder";
            return Err(RequestFailure::parameter("cwd", &params.cwd, expected));
        }
        let Some(McpServerParam { name, target }) = params.mcp_servers.first() else { return Ok(()) };
        if self.context.options.ignores_servers {
            return Ok(());
        }
        let expected = format!(
            "expected no MCP servers, but {name} is a command or an address of the editor ({target}): add it to mcp.servers of \
             the configuration, where a person approves it, or start `countersign acp --ignore-mcp-servers`"
        );
        Err(RequestFailure::parameter("mcpServers[0]", name, &expected))
    }

    async fn open_existing(&mut self, id: &RequestId, params: &Value, replay: Replay) {
        match self.load(params, replay).await {
            Ok((session, feed, snapshot)) => {
                let reply = self.session_reply(None, &snapshot.settings);
                self.reply(id, Ok(reply)).await;
                self.sessions.insert(session, feed, snapshot);
            }
            Err(failure) => self.reply(id, Err::<(), _>(failure)).await,
        }
    }

    async fn load(
        &mut self,
        params: &Value,
        replay: Replay,
    ) -> Outcome<(SessionId, SessionFeed, crate::session_snapshot::SessionSnapshot)> {
        let params = OpenSessionParams::read_existing(params)?;
        let given = params.session.clone().unwrap_or_default();
        let session = SessionId::new(given.as_str());
        // It makes room for itself.
        let was_open = self.sessions.contains(&session);
        if !was_open || !params.mcp_servers.is_empty() {
            self.check_opening(&params)?;
        }
        let (chats, floor) = (&self.context.adapter.chats, self.context.options.approval);
        let unknown = || RequestFailure::new(ErrorCode::NotFound, format!("sessionId: {given:?}: no such session"));
        match chats.thinking_level(&session).await {
            Ok(_) => {}
            Err(ChatError::Unknown) => return Err(unknown()),
            Err(error) => return Err(chat_failure(&error)),
        }
        let choices = read_choices(&self.context.adapter.handle, &session).await.ok_or_else(unknown)?;
        if choices.approval < floor {
            let raised = chats.change_setting(&session, SessionSetting::Approval(floor)).await;
            raised.map_err(|error| chat_failure(&error))?;
        }
        let (mut feed, snapshot) = SessionFeed::open(&self.context, &session).await.ok_or_else(unknown)?;
        if real_path(Path::new(&params.cwd)) != Path::new(&snapshot.cwd) {
            let expected = format!("expected {:?}, the folder of this session", snapshot.cwd);
            return Err(RequestFailure::parameter("cwd", &params.cwd, &expected));
        }
        self.sessions.remove(&session).await;
        match replay {
            Replay::Messages => feed.replay(&snapshot).await?,
            Replay::Nothing => {}
        }
        Ok((session, feed, snapshot))
    }

    fn session_reply(&self, session: Option<&SessionId>, choices: &SessionChoices) -> NewSessionReply {
        let ConnectionContext { adapter, options, .. } = &*self.context;
        NewSessionReply {
            session_id: session.map(|session| session.as_str().to_owned()),
            modes: session_modes(choices, options.approval),
            config_options: config_options::config_options(choices, options.approval, adapter.chats.models()),
        }
    }

    /// Returns a session that is open here.
    fn open_session(&self, given: &str) -> Outcome<SessionId> {
        let session = SessionId::new(given);
        if self.sessions.contains(&session) {
            return Ok(session);
        }
        let expected = "expected a session that session/new, session/load or session/resume opened";
        Err(RequestFailure::parameter("sessionId", given, expected))
    }

    async fn close_session(&mut self, params: &Value) -> Outcome<Value> {
        let session = self.open_session(&SessionParams::read(params)?.session)?;
        self.context.adapter.chats.stop_session(&session).await.map_err(|error| chat_failure(&error))?;
        self.sessions.remove(&session).await;
        Ok(json!({}))
    }

    async fn send_prompt(&self, id: &RequestId, params: &Value) -> Outcome<()> {
        let params = PromptParams::read(params)?;
        let session = self.open_session(&params.session)?;
        let command = match slash_command(&params.prompt) {
            Some(topic) => FeedCommand::Compact { id: id.clone(), topic },
            None => {
                let choices = self.choices(&session).await?;
                let images = image_input(&choices, self.context.adapter.chats.models());
                FeedCommand::Prompt { id: id.clone(), blocks: message_blocks(params.prompt, images)? }
            }
        };
        if self.sessions.send(&session, command).await { Ok(()) } else { Err(closing()) }
    }

    async fn choices(&self, session: &SessionId) -> Outcome<SessionChoices> {
        read_choices(&self.context.adapter.handle, session).await.ok_or_else(closing)
    }

    async fn set_mode(&self, params: &Value) -> Outcome<Value> {
        let SetModeParams { session, mode } = SetModeParams::read(params)?;
        let session = self.open_session(&session)?;
        self.change_mode(&session, "modeId", &mode).await?;
        Ok(json!({}))
    }

    async fn change_mode(&self, session: &SessionId, field: &str, id: &str) -> Outcome<()> {
        let floor = self.context.options.approval;
        let mode: ApprovalMode =
            parse_mode(id, floor).map_err(|expected| RequestFailure::parameter(field, id, &expected))?;
        if self.choices(session).await?.approval == mode {
            return Ok(());
        }
        self.change(session, SessionSetting::Approval(mode)).await
    }

    async fn change(&self, session: &SessionId, setting: SessionSetting) -> Outcome<()> {
        let changed = self.context.adapter.chats.change_setting(session, setting).await;
        changed.map_err(|error| chat_failure(&error))
    }

    async fn set_config_option(&self, params: &Value) -> Outcome<Value> {
        let SetConfigOptionParams { session, option, value } = SetConfigOptionParams::read(params)?;
        let session = self.open_session(&session)?;
        let chats = &self.context.adapter.chats;
        match option.as_str() {
            MODE => self.change_mode(&session, "value", &value).await?,
            MODEL => {
                let (provider, id) = value.split_once('/').map_or((None, &*value), |(one, rest)| (Some(one), rest));
                let model = chats.find_model(provider, id).map_err(|error| {
                    RequestFailure::parameter("value", &value, &format!("expected a model of the option ({error})"))
                })?;
                chats.use_model(&session, model).await.map_err(|error| chat_failure(&error))?;
            }
            THINKING => {
                let level = match value.as_str() {
                    USUAL => None,
                    _ => Some(ThinkingLevel::parse(&value).ok_or_else(|| {
                        let accepted = ThinkingLevel::ALL.map(ThinkingLevel::as_str).join(", ");
                        RequestFailure::parameter("value", &value, &format!("expected one of {USUAL}, {accepted}"))
                    })?),
                };
                let level = level.map(|level| level.as_str().to_owned());
                self.change(&session, SessionSetting::Thinking(level)).await?;
            }
            _ => {
                let expected = format!("expected one of {MODE}, {MODEL}, {THINKING}");
                return Err(RequestFailure::parameter("configId", &option, &expected));
            }
        }
        let choices = self.choices(&session).await?;
        let floor = self.context.options.approval;
        let config_options = config_options::config_options(&choices, floor, chats.models());
        Ok(json!({ "configOptions": config_options }))
    }
}

/// Part of a session that its opening sends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Replay {
    Messages,
    Nothing,
}

fn closing() -> RequestFailure {
    RequestFailure::new(ErrorCode::Internal, "the gateway is closing")
}

fn real_path(path: &Path) -> std::path::PathBuf {
    std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())
}

/// Returns the words after the command that summarises, if a prompt is that command.
fn slash_command(prompt: &[ContentBlock]) -> Option<Option<String>> {
    let [ContentBlock::Text { text }] = prompt else { return None };
    let rest = text.trim().strip_prefix('/')?.strip_prefix(COMPACT)?;
    let words = rest.trim();
    (rest.is_empty() || rest.starts_with(char::is_whitespace)).then(|| (!words.is_empty()).then(|| words.to_owned()))
}
