//! Asks a gateway on this machine for the word that shows it who connects.
//!
//! It must not connect to the port.

use std::{
    io::{self, Read as _},
    os::{
        linux::net::SocketAddrExt as _,
        unix::net::{SocketAddr, UnixStream},
    },
    time::Duration,
};

use countersign_protocol::gsv::greeting;

/// Maximum time for the answer of a gateway.
const PATIENCE: Duration = Duration::from_secs(3);
/// More than any word, in bytes.
const LONGEST: u64 = 128;

/// Returns the secret word, if a gateway at this port is on this machine and gives one.
pub(super) async fn fetch_auth_word(port: u16) -> Option<String> {
    let result = tokio::task::spawn_blocking(move || read_auth_word(port)).await.ok()?;
    result.ok().filter(|word| !word.is_empty())
}

fn read_auth_word(port: u16) -> io::Result<String> {
    let stream = UnixStream::connect_addr(&SocketAddr::from_abstract_name(greeting::socket_name(port))?)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut word = String::new();
    stream.take(LONGEST).read_to_string(&mut word)?;
    Ok(word)
}
