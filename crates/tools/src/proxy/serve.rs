//! One connection to the proxy: what it asks for, whether that is listed, and the bytes of both sides.
//!
//! It must not know who else is connected.

use std::{io, net::SocketAddr, time::Duration};

use futures_util::FutureExt as _;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, Interest, copy, copy_bidirectional},
    net::{TcpStream, lookup_host},
    time::{sleep, timeout},
};

use super::{
    ConnectionSlot, ServedCall, WAITING, addresses,
    head::{self, BodyFraming, LONGEST, ProxyRequest},
};
use crate::{
    live_questions::HostAccessAnswer,
    sandbox::{
        HostPattern,
        hosts::{HostAddress, HostTarget},
    },
};

/// Time limit of a command for its request head.
const HEAD: Duration = Duration::from_secs(60);
/// Time limit of a name lookup, and then of a connection.
const REACH: Duration = Duration::from_secs(60);
/// Longest time that a refused client may continue to send, so that it reads the reason, and most bytes read of that.
const FAREWELL: (Duration, u64) = (Duration::from_secs(2), 1 << 20);
/// Interval of the checks whether a client with unread data is still there.
const GLANCE: Duration = Duration::from_millis(250);

/// Reason that nothing is passed on.
enum ProxyRefusal {
    /// The request cannot be understood.
    Malformed(&'static str),
    /// The host may not be reached, as things are.
    Closed(String),
    /// The host may not be reached, and a request for it does not help: a person refused it, or it is in the gateway's private
    /// network.
    Denied(String),
    /// The host could not be reached.
    Away(String),
}

/// Serves one client to its end.
pub(super) async fn serve_client(
    mut client: TcpStream,
    hosts: &[HostPattern],
    served: &ServedCall,
    seat: &mut ConnectionSlot,
) {
    let (request, rest) = match timeout(HEAD, read_request(&mut client)).await {
        Ok(Ok(Some(received))) => received,
        Ok(Ok(None) | Err(ProxyRefusal::Away(_))) | Err(_) => return,
        Ok(Err(refusal)) => return send_refusal(client, &refusal, served).await,
    };
    let (ProxyRequest::Tunnel(target) | ProxyRequest::Page { target, .. }) = &request;
    let upstream = match connect_upstream(target, hosts, served, seat, &client).await {
        Ok(upstream) => upstream,
        Err(refusal) => {
            match &refusal {
                ProxyRefusal::Closed(why) => served.note_refused(target.to_string(), why, true),
                ProxyRefusal::Denied(why) => served.note_refused(target.to_string(), why, false),
                ProxyRefusal::Malformed(_) | ProxyRefusal::Away(_) => {}
            }
            return send_refusal(client, &refusal, served).await;
        }
    };
    tracing::info!(call = %served.call, "a command reached {target}");
    // Either side may break off at any time, which the other one sees.
    let _ = match request {
        ProxyRequest::Tunnel(_) => run_tunnel(client, upstream, &rest).await,
        ProxyRequest::Page { head, body, .. } => forward_page(client, upstream, &head, body, rest).await,
    };
}

/// Reads the request of a client, and the bytes sent after it; `None` if it sent none.
async fn read_request(client: &mut TcpStream) -> Result<Option<(ProxyRequest, Vec<u8>)>, ProxyRefusal> {
    let mut received = Vec::new();
    loop {
        let count = client.read_buf(&mut received).await.map_err(|error| ProxyRefusal::Away(error.to_string()))?;
        if count == 0 {
            return Ok(None);
        }
        if let Some((request, length)) = head::parse_head(&received).map_err(ProxyRefusal::Malformed)? {
            return Ok(Some((request, received.split_off(length))));
        }
        if received.len() > LONGEST {
            return Err(ProxyRefusal::Malformed("the request head is too long"));
        }
    }
}

async fn connect_upstream(
    target: &HostTarget,
    hosts: &[HostPattern],
    served: &ServedCall,
    seat: &mut ConnectionSlot,
    client: &TcpStream,
) -> Result<TcpStream, ProxyRefusal> {
    if !hosts.iter().any(|host| host.allows_target(target)) {
        // Not even the name is looked up before a person has approved it.
        ask_people(target, served, seat, client).await?;
    }
    let away = |why: &dyn std::fmt::Display| ProxyRefusal::Away(format!("{target} cannot be reached: {why}"));
    let addresses: Vec<SocketAddr> = match &target.place {
        HostAddress::Address(address) => vec![SocketAddr::new(*address, target.port)],
        HostAddress::Name(name) => {
            let found = timeout(REACH, lookup_host((name.as_str(), target.port))).await;
            let found = found.map_err(|_| away(&"its name was not resolved in time"))?;
            found.map_err(|_| away(&"its name cannot be resolved"))?.collect()
        }
    };
    let is_open = |address: &SocketAddr| match target.place {
        HostAddress::Address(_) => true,
        HostAddress::Name(_) => addresses::is_public(address.ip()) && !addresses::is_ours(address.ip()),
    };
    let open: Vec<SocketAddr> = addresses.into_iter().filter(is_open).collect();
    if open.is_empty() {
        // A request for the name would have people decide without effect.
        return Err(ProxyRefusal::Denied(format!(
            "{target} resolves to an address of this machine or of a private network, which is allowed only if the address itself is listed, or is in needs.hosts instead of the name"
        )));
    }
    // To the examined addresses: the name is not resolved again.
    match timeout(REACH, TcpStream::connect(open.as_slice())).await {
        Ok(connected) => connected.map_err(|error| away(&error)),
        Err(_) => Err(away(&"it did not answer in time")),
    }
}

/// Lets people decide whether an unlisted host may be reached.
async fn ask_people(
    target: &HostTarget,
    served: &ServedCall,
    seat: &mut ConnectionSlot,
    client: &TcpStream,
) -> Result<(), ProxyRefusal> {
    let (host, not_listed) = (target.to_string(), format!("{target} is not in sandbox.network.hosts"));
    if !served.asks.can_ask() {
        return Err(ProxyRefusal::Closed(not_listed));
    }
    let given_up = format!("{not_listed}, and the command gave up before a person had answered");
    let question = async {
        served.note_unanswered(host.clone(), given_up.clone());
        served.asks.ask_host(&host, hung_up(client)).await
    };
    let Some(answered) = seat.leave_until(question).await else {
        let many = format!("{not_listed}, and {WAITING} connections of this command are waiting for an answer already");
        return Err(ProxyRefusal::Away(many));
    };
    match answered {
        Some(HostAccessAnswer::No(why)) => Err(ProxyRefusal::Denied(format!("{not_listed}, and {why}"))),
        // A request that a program has given up, and may have sent again, is not done without it.
        Some(HostAccessAnswer::Yes) if hung_up(client).now_or_never().is_none() => {
            served.forget_refused(&host);
            Ok(())
        }
        Some(HostAccessAnswer::Yes) | None => Err(ProxyRefusal::Away(given_up)),
    }
}

/// Waits until a client closes its side, which shows that it goes.
async fn hung_up(client: &TcpStream) {
    loop {
        match client.ready(Interest::READABLE).await {
            Ok(ready) if !ready.is_read_closed() => sleep(GLANCE).await,
            Ok(_) | Err(_) => return,
        }
    }
}

async fn run_tunnel(mut client: TcpStream, mut upstream: TcpStream, rest: &[u8]) -> io::Result<()> {
    client.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await?;
    upstream.write_all(rest).await?;
    copy_bidirectional(&mut client, &mut upstream).await.map(drop)
}

/// Forwards one request and its answer: the host is instructed to close after it.
async fn forward_page(
    mut client: TcpStream,
    mut upstream: TcpStream,
    head: &[u8],
    body: BodyFraming,
    rest: Vec<u8>,
) -> io::Result<()> {
    let (from_client, mut to_client) = client.split();
    let (mut from_host, mut to_host) = upstream.split();
    let asking = async {
        to_host.write_all(head).await?;
        let mut sent = rest.chain(from_client);
        match body {
            BodyFraming::Length(length) => {
                copy(&mut (&mut sent).take(length), &mut to_host).await?;
                // A second request has to come over another connection. It is read and dropped: left unread it would have the
                // kernel drop the answer to the first.
                copy(&mut sent.take(FAREWELL.1), &mut tokio::io::sink()).await?;
            }
            BodyFraming::Chunked => drop(copy(&mut sent, &mut to_host).await?),
        }
        std::future::pending::<io::Result<()>>().await
    };
    let answering = async {
        copy(&mut from_host, &mut to_client).await?;
        to_client.shutdown().await
    };
    tokio::select! {
        answered = answering => answered,
        outcome = asking => outcome,
    }
}

async fn send_refusal(mut client: TcpStream, refusal: &ProxyRefusal, served: &ServedCall) {
    let (status, text) = match refusal {
        ProxyRefusal::Malformed(why) => ("400 Bad Request", (*why).to_owned()),
        // A command that a person runs by hand is no call, which could declare needs.
        ProxyRefusal::Closed(why) if served.call.is_empty() => ("403 Forbidden", why.clone()),
        ProxyRefusal::Closed(why) => ("403 Forbidden", format!("{why}. {ASK}")),
        ProxyRefusal::Denied(why) => ("403 Forbidden", why.clone()),
        ProxyRefusal::Away(why) => ("502 Bad Gateway", why.clone()),
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

/// Instruction on how a command gets access to a host.
pub(crate) const ASK: &str = "Ask for exactly that host: call again with needs, such as {\"hosts\": [\"example.org:443\"]}. A person decides, for that call alone.";
