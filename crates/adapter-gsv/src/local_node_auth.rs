//! Where nodes of this machine show who they are: an abstract socket, over which the kernel says which process connects.
//!
//! A node lets nobody of its user look into it, so that its connection to the port cannot be told from that of a command. It asks here
//! first, and shows the word that it gets on that connection. It must not know nodes.

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
    task::JoinHandle,
    time::{Instant, sleep, timeout},
};
use uuid::Uuid;

/// How long a word is good.
const GOOD: Duration = Duration::from_secs(60);
/// How many are good at the same time; the oldest goes first.
const MOST: usize = 64;
/// How long whoever asks may take to read it.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long nothing is taken behind a failure.
const RECOVERY: Duration = Duration::from_millis(100);

/// Words that were given and not shown yet, the oldest first.
type IssuedWords = Arc<Mutex<VecDeque<(String, Instant)>>>;

/// Gives nodes words until it is dropped.
pub(super) struct LocalNodeAuth {
    words: IssuedWords,
    serving: Option<JoinHandle<()>>,
}

impl LocalNodeAuth {
    /// Listens beside the gateway's own port. Where it cannot, nodes of its user on this machine are not let in.
    pub(super) fn listen_beside(port: u16) -> Self {
        let words = IssuedWords::default();
        let serving = bind_listener(port).map(|listener| tokio::spawn(accept_nodes(listener, Arc::clone(&words))));
        let log_error = |error| tracing::warn!(%error, "nodes on this machine cannot show who they are");
        Self { words, serving: serving.map_err(log_error).ok() }
    }

    /// Whether a node was given this word. It is good once.
    pub(super) fn redeem_word(&self, word: &str) -> bool {
        let mut words = self.words.lock();
        words.retain(|(_, given)| given.elapsed() < GOOD);
        let at = words.iter().position(|(given, _)| given == word);
        at.is_some_and(|at| words.remove(at).is_some())
    }
}

impl Drop for LocalNodeAuth {
    fn drop(&mut self) {
        if let Some(serving) = &self.serving {
            serving.abort();
        }
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
            // One after the other: a word fits into what a socket holds, and whoever has gone needs none.
            Ok((stream, _)) => drop(timeout(PATIENCE, issue_word(stream, &words)).await),
            Err(error) => {
                tracing::debug!(%error, "who asks for a word cannot be heard");
                sleep(RECOVERY).await;
            }
        }
    }
}

/// Gives a word to a node, and nothing to anybody else.
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
