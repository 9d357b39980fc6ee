//! Authentication of nodes on this machine: an abstract socket, over which the kernel names the connecting process.
//!
//! No other process of its user can inspect a node, so its connection to the port cannot be distinguished from that of a command.
//! It asks here first, and shows the one-time token that it gets on that connection. This module must not know nodes.

use std::{
    collections::VecDeque,
    io,
    os::{
        linux::net::SocketAddrExt as _,
        unix::net::{SocketAddr, UnixListener as Blocking},
    },
    sync::Arc,
    time::Duration,
};

use countersign_http::listen::peer::LocalPeer;
use countersign_protocol::gsv::greeting;
use parking_lot::Mutex;
use tokio::{
    io::AsyncWriteExt as _,
    net::{UnixListener, UnixStream},
    time::{Instant, sleep, timeout},
};
use tokio_util::task::AbortOnDropHandle;
use uuid::Uuid;

/// Lifetime of a one-time token.
const GOOD: Duration = Duration::from_secs(60);
/// Most valid tokens at the same time; the oldest is dropped first.
const MOST: usize = 64;
/// Longest time in which a node may read it.
const PATIENCE: Duration = Duration::from_secs(2);
/// Wait after a failure to accept.
const RECOVERY: Duration = Duration::from_millis(100);

/// Tokens that were issued and not used yet, the oldest first.
type IssuedWords = Arc<Mutex<VecDeque<(String, Instant)>>>;

/// Issuer of one-time tokens for nodes, until its last clone is dropped. The realms of a port share one.
#[derive(Clone, Debug)]
pub struct LocalNodeAuth {
    words: IssuedWords,
    _serving: Option<Arc<AbortOnDropHandle<()>>>,
}

impl LocalNodeAuth {
    /// Listens next to the gateway's own port. If it cannot, nodes of its user on this machine are refused.
    pub fn listen_beside(port: u16) -> Self {
        let words = IssuedWords::default();
        let serving = bind_listener(port).map(|listener| tokio::spawn(accept_nodes(listener, Arc::clone(&words))));
        let log_error = |error| tracing::warn!(%error, "nodes on this machine cannot authenticate");
        let serving = serving.map_err(log_error).ok().map(|serving| Arc::new(AbortOnDropHandle::new(serving)));
        Self { words, _serving: serving }
    }

    /// Reports whether this token was issued to a node. It can be used once.
    pub(super) fn redeem_word(&self, word: &str) -> bool {
        let mut words = self.words.lock();
        words.retain(|(_, given)| given.elapsed() < GOOD);
        let at = words.iter().position(|(given, _)| given == word);
        at.is_some_and(|at| words.remove(at).is_some())
    }
}

fn bind_listener(port: u16) -> io::Result<UnixListener> {
    let listener = Blocking::bind_addr(&SocketAddr::from_abstract_name(greeting::socket_name(port))?)?;
    listener.set_nonblocking(true)?;
    UnixListener::from_std(listener)
}

async fn accept_nodes(listener: UnixListener, words: IssuedWords) {
    loop {
        match listener.accept().await {
            // One after the other: a token fits into the buffer of a socket, and a peer that has gone needs none.
            Ok((stream, _)) => drop(timeout(PATIENCE, issue_word(stream, &words)).await),
            Err(error) => {
                tracing::debug!(%error, "failed to accept a node that requests a token");
                sleep(RECOVERY).await;
            }
        }
    }
}

/// Issues a token to a node, and to no other process.
async fn issue_word(mut stream: UnixStream, words: &IssuedWords) -> io::Result<()> {
    if !LocalPeer::from_stream(&stream)?.comes_from_a_door().await {
        return Ok(());
    }
    let word = Uuid::new_v4().simple().to_string();
    {
        let mut words = words.lock();
        words.push_back((word.clone(), Instant::now()));
        let surplus = words.len().saturating_sub(MOST);
        words.drain(..surplus);
    }
    stream.write_all(word.as_bytes()).await?;
    stream.shutdown().await
}
