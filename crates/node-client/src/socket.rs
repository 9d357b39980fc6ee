//! A connection to the gateway: frames in, frames out, and the shaking of hands.
//!
//! It must not know calls.

use std::{fmt, time::Duration};

use countersign_protocol::gsv::{
    GsvError, GsvInboundFrame, LARGEST_FRAME, Method, close, code, frame, greeting::HEADER, read_frame,
};
use futures_util::{SinkExt as _, StreamExt as _};
use tokio::{net::TcpStream, time::timeout};
use tokio_tungstenite::{
    MaybeTlsStream, WebSocketStream, connect_async_tls_with_config,
    tungstenite::{
        Error, Message,
        client::IntoClientRequest as _,
        protocol::{CloseFrame, WebSocketConfig, frame::coding::CloseCode},
    },
};

use super::{address::GatewayAddress, handshake::NodeHandshake, local_auth};
use crate::connect_error;

/// Maximum time to reach the gateway.
const REACH: Duration = Duration::from_secs(30);
/// Maximum time for the gateway's answer to the handshake.
const HANDSHAKE: Duration = Duration::from_secs(15);
/// Maximum time for which the gateway may take nothing that is sent.
const STUCK: Duration = Duration::from_secs(40);
/// Maximum wait for the end of a connection.
const FAREWELL: Duration = Duration::from_secs(1);

/// A connection that the gateway knows for a node's.
pub(crate) struct NodeSocket(WebSocketStream<MaybeTlsStream<TcpStream>>);

/// Why there is no connection.
#[derive(Debug)]
pub(crate) enum NodeConnectError {
    /// The gateway is not reachable, or not now. It may be tried again.
    Away(String),
    /// The gateway does not take this node, and will not as long as nothing is changed.
    Rejected(GsvError),
}

impl fmt::Display for NodeConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Away(why) => f.write_str(why),
            Self::Rejected(fault) if fault.code == code::UNAUTHORIZED => {
                f.write_str("the gateway rejected the token: use `clients.token` of its configuration, or `auth.token` of its settings")
            }
            Self::Rejected(fault) => write!(f, "the gateway rejected this node: {}", fault.message),
        }
    }
}

/// Cause of the end of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ConnectionLost {
    /// The gateway closed it, with this code and reason.
    Closed(u16, String),
    /// It broke.
    Broke(String),
}

impl fmt::Display for ConnectionLost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed(close::RESTART, _) => f.write_str("the gateway is stopping or restarting"),
            Self::Closed(code, reason) => write!(f, "the gateway closed the connection: {code} {reason}"),
            Self::Broke(why) => write!(f, "the connection broke: {why}"),
        }
    }
}

/// Received message.
pub(crate) enum SocketMessage {
    /// A frame.
    Frame(GsvInboundFrame),
    /// A sign of life.
    Sign,
}

/// Connects as a node.
pub(crate) async fn connect_node(
    address: &GatewayAddress,
    hello: &NodeHandshake,
    token: Option<&str>,
) -> Result<NodeSocket, NodeConnectError> {
    let GatewayAddress { url, connector } = address;
    let config = WebSocketConfig::default()
        .read_buffer_size(4096)
        .write_buffer_size(4096)
        .max_message_size(Some(LARGEST_FRAME))
        .max_frame_size(Some(LARGEST_FRAME));
    let away = |why: &dyn fmt::Display| NodeConnectError::Away(format!("{url}: {why}"));
    let mut request = url.as_str().into_client_request().map_err(|error| away(&error))?;
    if let Some(word) = local_auth::fetch_auth_word(address.port()).await
        && let Ok(word) = word.parse()
    {
        request.headers_mut().insert(HEADER, word);
    }
    let reaching = connect_async_tls_with_config(request, Some(config), true, Some(connector.clone()));
    let reached = timeout(REACH, reaching).await.map_err(|_| away(&"no answer"))?;
    let (stream, _) = reached.map_err(|error| match error {
        Error::Http(answer) => away(&format!("answered {}: no gateway accepts nodes there", answer.status())),
        Error::Io(error) => away(&connect_error::explain_failure(&error)),
        error => away(&connect_error::explain_failure(&error)),
    })?;
    let mut socket = NodeSocket(stream);
    let params = hello.connect_params(token);
    let hello_frame = frame::encode_request("hello", Method::Connect, Some(&params));
    let answered = timeout(HANDSHAKE, socket.perform_handshake(hello_frame)).await;
    // Other endpoints close on clients that do not speak their protocol.
    let hint = if url.ends_with("/ws") { "" } else { " (gateways accept nodes at /ws)" };
    answered.map_err(|_| away(&"no answer to the handshake"))?.map_err(|refused| match refused {
        NodeConnectError::Away(why) => away(&format!("{why}{hint}")),
        NodeConnectError::Rejected(_) => refused,
    })?;
    Ok(socket)
}

impl NodeSocket {
    async fn perform_handshake(&mut self, hello_frame: String) -> Result<(), NodeConnectError> {
        let gone = |gone: ConnectionLost| NodeConnectError::Away(gone.to_string());
        self.send(hello_frame).await.map_err(gone)?;
        loop {
            match self.next_message().await.map_err(gone)? {
                SocketMessage::Frame(GsvInboundFrame::Response { outcome: Ok(_), .. }) => return Ok(()),
                // It may be that it cannot say now; all else stays so.
                SocketMessage::Frame(GsvInboundFrame::Response { outcome: Err(fault), .. }) => {
                    return Err(match fault.code {
                        code::UNAUTHORIZED | code::PROTOCOL | code::HANDSHAKE | code::FORBIDDEN | code::INVALID => {
                            NodeConnectError::Rejected(fault)
                        }
                        _ => NodeConnectError::Away(fault.message),
                    });
                }
                SocketMessage::Frame(_) | SocketMessage::Sign => {}
            }
        }
    }

    /// Sends a frame.
    pub(crate) async fn send(&mut self, frame: String) -> Result<(), ConnectionLost> {
        self.write_message(Message::text(frame)).await
    }

    /// Asks for a sign of life.
    pub(crate) async fn ping(&mut self) -> Result<(), ConnectionLost> {
        self.write_message(Message::Ping(Vec::new().into())).await
    }

    async fn write_message(&mut self, message: Message) -> Result<(), ConnectionLost> {
        match timeout(STUCK, self.0.send(message)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(ConnectionLost::Broke(error.to_string())),
            Err(_) => Err(ConnectionLost::Broke("the gateway does not read".to_owned())),
        }
    }

    /// Waits for what comes next.
    ///
    /// *Cancellation*: nothing is lost.
    pub(crate) async fn next_message(&mut self) -> Result<SocketMessage, ConnectionLost> {
        match self.0.next().await {
            Some(Ok(Message::Text(text))) => Ok(SocketMessage::Frame(read_frame(&text))),
            Some(Ok(Message::Close(frame))) => Err(match frame {
                Some(frame) => ConnectionLost::Closed(frame.code.into(), frame.reason.to_string()),
                None => ConnectionLost::Closed(1005, String::new()),
            }),
            Some(Ok(Message::Binary(_) | Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => {
                Ok(SocketMessage::Sign)
            }
            Some(Err(error)) => Err(ConnectionLost::Broke(error.to_string())),
            None => Err(ConnectionLost::Broke("it was closed".to_owned())),
        }
    }

    /// Closes the line because the node ends.
    pub(crate) async fn close_gracefully(&mut self) {
        let frame = CloseFrame { code: CloseCode::Normal, reason: "the node ends".into() };
        let leaving = async {
            if self.0.close(Some(frame)).await.is_ok() {
                while let Some(Ok(_)) = self.0.next().await {}
            }
        };
        // A gateway that has gone need not be informed.
        let _ = timeout(FAREWELL, leaving).await;
    }
}
