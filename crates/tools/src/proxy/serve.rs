//! One connection to the proxy: what it asks for, whether that is listed, and the bytes of both sides.
//!
//! It must not know who else is connected.

use std::{io, net::SocketAddr, time::Duration};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, copy, copy_bidirectional},
    net::{TcpStream, lookup_host},
    time::timeout,
};

use super::{
    Served, addresses,
    head::{self, Asked, Body, LONGEST},
};
use crate::{
    asking::Answered,
    sandbox::{
        Host,
        hosts::{Place, Target},
    },
};

/// How long a command may take to say what it wants.
const HEAD: Duration = Duration::from_secs(60);
/// How long a name, and then a connection, is waited for.
const REACH: Duration = Duration::from_secs(60);
/// How long a client that was refused may go on sending, so that it reads why, and how much of that is read.
const FAREWELL: (Duration, u64) = (Duration::from_secs(2), 1 << 20);

/// Why nothing is passed on.
enum Refusal {
    /// What was asked for cannot be understood.
    Malformed(&'static str),
    /// It may not be reached, as things are.
    Closed(String),
    /// It may not be reached, as somebody said who was asked.
    Denied(String),
    /// It could not be reached.
    Away(String),
}

/// Serves one client to its end.
pub(super) async fn serve(mut client: TcpStream, hosts: &[Host], served: &Served) {
    let (asked, rest) = match timeout(HEAD, hear(&mut client)).await {
        Ok(Ok(Some(heard))) => heard,
        Ok(Ok(None) | Err(Refusal::Away(_))) | Err(_) => return,
        Ok(Err(refusal)) => return refuse(client, &refusal).await,
    };
    let (Asked::Tunnel(target) | Asked::Page { target, .. }) = &asked;
    let upstream = match reach(target, hosts, served).await {
        Ok(upstream) => upstream,
        Err(refusal) => {
            match &refusal {
                Refusal::Closed(why) => served.note(why, true),
                Refusal::Denied(why) => served.note(why, false),
                Refusal::Malformed(_) | Refusal::Away(_) => {}
            }
            return refuse(client, &refusal).await;
        }
    };
    tracing::info!(call = %served.call, "a command reached {target}");
    // Either side may break off at any time, which the other one sees.
    let _ = match asked {
        Asked::Tunnel(_) => tunnel(client, upstream, &rest).await,
        Asked::Page { head, body, .. } => page(client, upstream, &head, body, rest).await,
    };
}

/// What a client asks for, and what it sent behind that; `None` if it asked for nothing.
async fn hear(client: &mut TcpStream) -> Result<Option<(Asked, Vec<u8>)>, Refusal> {
    let mut heard = Vec::new();
    loop {
        let count = client.read_buf(&mut heard).await.map_err(|error| Refusal::Away(error.to_string()))?;
        if count == 0 {
            return Ok(None);
        }
        if let Some((asked, length)) = head::read(&heard).map_err(Refusal::Malformed)? {
            return Ok(Some((asked, heard.split_off(length))));
        }
        if heard.len() > LONGEST {
            return Err(Refusal::Malformed("the head is too long"));
        }
    }
}

async fn reach(target: &Target, hosts: &[Host], served: &Served) -> Result<TcpStream, Refusal> {
    if !hosts.iter().any(|host| host.lets(target)) {
        // Not even its name is looked up before somebody has said so.
        match served.asks.host(&target.to_string()).await {
            Some(Answered::Yes) => {}
            Some(Answered::No(why)) => {
                return Err(Refusal::Denied(format!("{target} is not in sandbox.network.hosts, and {why}")));
            }
            None => return Err(Refusal::Closed(format!("{target} is not in sandbox.network.hosts"))),
        }
    }
    let away = |why: &dyn std::fmt::Display| Refusal::Away(format!("{target} cannot be reached: {why}"));
    let addresses: Vec<SocketAddr> = match &target.place {
        Place::Address(address) => vec![SocketAddr::new(*address, target.port)],
        Place::Name(name) => {
            let found = timeout(REACH, lookup_host((name.as_str(), target.port))).await;
            let found = found.map_err(|_| away(&"its name was not found in time"))?;
            found.map_err(|_| away(&"its name is not known"))?.collect()
        }
    };
    let is_open = |address: &SocketAddr| match target.place {
        Place::Address(_) => true,
        Place::Name(_) => addresses::is_public(address.ip()) && !addresses::is_ours(address.ip()),
    };
    let open: Vec<SocketAddr> = addresses.into_iter().filter(is_open).collect();
    if open.is_empty() {
        return Err(Refusal::Closed(format!(
            "{target} stands for an address of this machine or of a private network, which is reached only where the address itself is listed"
        )));
    }
    // To the addresses that were looked at: the name is not asked for again.
    match timeout(REACH, TcpStream::connect(open.as_slice())).await {
        Ok(connected) => connected.map_err(|error| away(&error)),
        Err(_) => Err(away(&"it did not answer in time")),
    }
}

async fn tunnel(mut client: TcpStream, mut upstream: TcpStream, rest: &[u8]) -> io::Result<()> {
    client.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await?;
    upstream.write_all(rest).await?;
    copy_bidirectional(&mut client, &mut upstream).await.map(drop)
}

/// One request and its answer: the host was told to close behind it.
async fn page(
    mut client: TcpStream,
    mut upstream: TcpStream,
    head: &[u8],
    body: Body,
    rest: Vec<u8>,
) -> io::Result<()> {
    let (from_client, mut to_client) = client.split();
    let (mut from_host, mut to_host) = upstream.split();
    let asking = async {
        to_host.write_all(head).await?;
        let mut sent = rest.chain(from_client);
        match body {
            Body::Length(length) => {
                copy(&mut (&mut sent).take(length), &mut to_host).await?;
                // A second request has to come over another connection. It is read and dropped: left unread it would have the
                // kernel drop the answer to the first.
                copy(&mut sent.take(FAREWELL.1), &mut tokio::io::sink()).await?;
            }
            Body::Chunked => drop(copy(&mut sent, &mut to_host).await?),
        }
        std::future::pending::<io::Result<()>>().await
    };
    let answering = async {
        copy(&mut from_host, &mut to_client).await?;
        to_client.shutdown().await
    };
    tokio::select! {
        answered = answering => answered,
        asked = asking => asked,
    }
}

async fn refuse(mut client: TcpStream, refusal: &Refusal) {
    let (status, text) = match refusal {
        Refusal::Malformed(why) => ("400 Bad Request", (*why).to_owned()),
        Refusal::Closed(why) => ("403 Forbidden", format!("{why}. {ASK}")),
        Refusal::Denied(why) => ("403 Forbidden", why.clone()),
        Refusal::Away(why) => ("502 Bad Gateway", why.clone()),
    };
    let length = text.len() + 1;
    let answer = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{text}\n"
    );
    let (patience, most) = FAREWELL;
    let farewell = async {
        client.write_all(answer.as_bytes()).await?;
        client.shutdown().await?;
        copy(&mut client.take(most), &mut tokio::io::sink()).await
    };
    let _ = timeout(patience, farewell).await;
}

/// How a command comes by a host.
pub(crate) const ASK: &str = "Ask for exactly that host: call again with needs, such as {\"hosts\": [\"example.org:443\"]}. A person decides, for that call alone.";
