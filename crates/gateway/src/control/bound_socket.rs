//! Socket in a data directory that is locked: who may connect, and its end.
//!
//! It must not know the requests.

use std::{
    fs::File,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader},
    net::{UnixListener, UnixStream},
    sync::Semaphore,
    time::timeout,
};

use super::{ControlReply, DataDirLock, socket::write_reply};

/// Longest request that is read before a refusal, in bytes.
const LONGEST: u64 = 1 << 20;
/// Time in which a refused command must send its request.
const PATIENCE: Duration = Duration::from_secs(1);
/// Most refused requests that are read at a time.
const REFUSALS: usize = 64;

/// Socket in a data directory. Its name is removed when it is dropped.
#[derive(Debug)]
pub(crate) struct BoundSocket {
    path: PathBuf,
    /// Lock file, held for as long as the socket is ours.
    _owned: File,
    check: PeerCheck,
}

/// Users of this machine who may connect.
#[derive(Clone, Debug)]
pub(crate) struct PeerCheck {
    own: u32,
    others: Arc<[u32]>,
    refusals: Arc<Semaphore>,
}

impl BoundSocket {
    /// Binds the socket for the gateway's own user, root, and the `others` of this machine, by number.
    ///
    /// # Errors
    /// An error of the system.
    pub(crate) fn bind(owned: DataDirLock, others: Vec<u32>) -> std::io::Result<(Self, UnixListener)> {
        let (path, owned) = owned.into_parts();
        match std::fs::remove_file(&path) {
            Ok(()) => {}
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        let listener = UnixListener::bind(&path)?;
        // Each peer is checked by its user; the mode only keeps the others from connecting at all.
        let mode = if others.is_empty() { 0o600 } else { 0o666 };
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode))?;
        // Its owner is our user; the system may report another one for our own process.
        let own = std::fs::metadata(&path)?.uid();
        let check = PeerCheck { own, others: others.into(), refusals: Arc::new(Semaphore::new(REFUSALS)) };
        Ok((Self { path, _owned: owned, check }, listener))
    }

    /// Returns the check of its peers.
    pub(crate) fn peer_check(&self) -> PeerCheck {
        self.check.clone()
    }
}

impl Drop for BoundSocket {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

impl PeerCheck {
    /// Returns the user of a connection if it may be served, and whether it is the gateway's own user or root. Others are refused with the
    /// reason, in the background.
    pub(crate) fn admit(&self, stream: UnixStream) -> Option<(UnixStream, u32, bool)> {
        // The folder may be open to more users than the socket's own mode allows.
        let user = stream.peer_cred().ok()?.uid();
        if may_enter(user, self.own, &self.others) {
            return Some((stream, user, may_enter(user, self.own, &[])));
        }
        // It keeps no place of others, and of many such connections most get no answer.
        if let Ok(refusal) = Arc::clone(&self.refusals).try_acquire_owned() {
            tokio::spawn(async move {
                let _refusal = refusal;
                drop(timeout(PATIENCE, refuse_request(stream, &unlisted_text(user))).await);
            });
        }
        None
    }

    /// Refuses a connection with a reason, after its request was read. A peer with many such connections is answered unread.
    pub(crate) async fn refuse(&self, stream: UnixStream, text: &str) {
        let refusing = async {
            let Ok(_refusal) = self.refusals.try_acquire() else {
                return write_reply(&mut stream.into_split().1, &ControlReply::Error(text.to_owned())).await;
            };
            refuse_request(stream, text).await
        };
        drop(timeout(PATIENCE, refusing).await);
    }
}

/// Reports whether a user of this machine may list and answer gates.
fn may_enter(user: u32, own: u32, others: &[u32]) -> bool {
    user == own || user == 0 || others.contains(&user)
}

/// Returns the answer to a user of this machine who is not listed.
fn unlisted_text(user: u32) -> String {
    format!(
        "the user {user} of this machine may not use this gateway: add {user} to `local` of a person under `people` in its configuration"
    )
}

/// Refuses the first request of a connection.
async fn refuse_request(stream: UnixStream, text: &str) -> std::io::Result<()> {
    let (reading, mut writing) = stream.into_split();
    // It is read, or the end of the connection would overtake the answer.
    BufReader::new(reading).take(LONGEST).read_line(&mut String::new()).await?;
    write_reply(&mut writing, &ControlReply::Error(text.to_owned())).await
}

#[cfg(test)]
mod tests {
    use tokio::{
        io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader},
        net::UnixStream,
    };

    use super::{may_enter, refuse_request, unlisted_text};

    #[tokio::test]
    async fn a_user_who_is_not_listed_learns_where_to_be_listed() {
        let (client, gateway) = UnixStream::pair().unwrap();
        let refusing = tokio::spawn(async move { refuse_request(gateway, &unlisted_text(1001)).await });
        let (reading, mut writing) = client.into_split();
        writing.write_all(b"{\"ask\":\"gates\"}\n").await.unwrap();
        let mut line = String::new();
        BufReader::new(reading).read_line(&mut line).await.unwrap();
        refusing.await.unwrap().unwrap();
        for part in ["\"error\"", "1001", "`local`", "`people`"] {
            assert!(line.contains(part), "{line}");
        }
    }

    #[test]
    fn only_the_gateways_user_root_and_people_with_an_account_here_come_in() {
        for (user, others, want) in
            [(1000, &[][..], true), (0, &[], true), (1001, &[], false), (1001, &[1001], true), (1002, &[1001], false)]
        {
            assert_eq!(may_enter(user, 1000, others), want, "{user} beside {others:?}");
        }
    }
}
