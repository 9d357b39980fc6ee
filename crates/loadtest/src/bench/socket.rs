//! WebSockets on loopback: an agent of a gateway, and the server that sends everything back.

use std::{
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    time::Duration,
};

use anyhow::{Context as _, bail};
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::{self, Message, WebSocket};

/// What the agent of every measurement shows.
pub(crate) const TOKEN: &str = "token-of-the-bench";

/// How long nothing may come that is waited for.
const PATIENCE: Duration = Duration::from_secs(60);

/// A connection that sends and reads text.
pub(crate) struct Socket(WebSocket<TcpStream>);

impl Socket {
    pub(crate) fn connect(address: &str) -> anyhow::Result<Self> {
        Self::connect_to(address, "")
    }

    /// Connects to a door behind a path.
    pub(crate) fn connect_to(address: &str, path: &str) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let (socket, _) = tungstenite::client(format!("ws://{address}{path}"), stream).context("no WebSocket")?;
        Ok(Self(socket))
    }

    /// The next one who connects to us.
    pub(crate) fn accept(listener: &TcpListener) -> anyhow::Result<Self> {
        let (stream, _) = listener.accept()?;
        stream.set_nodelay(true)?;
        Ok(Self(tungstenite::accept(stream).context("no WebSocket")?))
    }

    /// Connects as the agent.
    pub(crate) fn join(address: &str) -> anyhow::Result<Self> {
        let mut socket = Self::connect(address)?;
        let auth = json!({ "jsonrpc": "2.0", "method": "auth", "params": { "token": TOKEN }, "id": "auth-1" });
        socket.send(auth.to_string())?;
        let reply = socket.read()?;
        if !reply.contains("authenticated") {
            bail!("the agent was not let in: {reply}");
        }
        Ok(socket)
    }

    pub(crate) fn send(&mut self, text: String) -> anyhow::Result<()> {
        Ok(self.0.send(Message::text(text))?)
    }

    /// The next text. Pings are answered on the way.
    pub(crate) fn read(&mut self) -> anyhow::Result<String> {
        loop {
            match self.0.read()? {
                Message::Text(text) => return Ok(text.to_string()),
                // The pong is written with the next read or send; it must not wait for either.
                Message::Ping(_) => self.0.flush()?,
                Message::Close(frame) => bail!("the connection was closed: {frame:?}"),
                Message::Binary(_) | Message::Pong(_) | Message::Frame(_) => {}
            }
        }
    }

    /// Reads a reply, which has to say that the request was executed.
    pub(crate) fn executed(&mut self) -> anyhow::Result<()> {
        let reply = self.read()?;
        if !reply.contains(r#""status":"executed""#) {
            bail!("instead of a result: {reply}");
        }
        Ok(())
    }
}

/// A request of the agent.
pub(crate) fn request(id: u64, tool: &str, args: &Value) -> String {
    let params = json!({ "tool": tool, "args": args });
    json!({ "jsonrpc": "2.0", "method": "tool_request", "params": params, "id": id }).to_string()
}

/// Sends back whatever comes, on a port of its own, until the process ends.
pub(crate) fn echo() -> anyhow::Result<SocketAddr> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let address = listener.local_addr()?;
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            // A client that hangs up is its own business.
            let _ = stream.set_nodelay(true);
            std::thread::spawn(move || {
                let mut socket = tungstenite::accept(stream).ok()?;
                loop {
                    match socket.read().ok()? {
                        message @ Message::Text(_) => socket.send(message).ok()?,
                        Message::Close(_) => return Some(()),
                        Message::Binary(_) | Message::Ping(_) | Message::Pong(_) | Message::Frame(_) => {}
                    }
                }
            });
        }
    });
    Ok(address)
}
