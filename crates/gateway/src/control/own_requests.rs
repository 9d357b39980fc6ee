//! Requests at the control socket that are about the process of a node: it answers them itself, whichever node serves the realm.
//!
//! It must not know how other requests reach their realm.

use std::{io, os::fd::AsRawFd as _, time::Duration};

use countersign_config::logging::LogLevels;
use nix::sys::socket::{MsgFlags, recv};
use serde_json::json;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, Interest},
    net::UnixStream,
};

use super::{ControlReply, Request};

/// Longest request of this kind, in bytes. Most others are longer, or have another name.
const LONGEST: usize = 4096;
/// Pause while a line has not arrived as a whole. Commands send it at once.
const PAUSE: Duration = Duration::from_millis(10);

/// Request for the level of the log of this process.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct LevelRequest {
    /// The new level, if it is to be changed.
    level: Option<String>,
    /// Bytes of its line.
    length: usize,
}

/// Returns the next request if it is about the log of this process. No byte is consumed, so that any other can be relayed.
///
/// # Errors
/// [`io::ErrorKind::UnexpectedEof`] after the last request, or an error of the system.
pub(super) async fn peek_level_request(stream: &UnixStream) -> io::Result<Option<LevelRequest>> {
    let mut buffer = vec![0; LONGEST];
    loop {
        stream.readable().await?;
        let peeked = stream.try_io(Interest::READABLE, || {
            recv(stream.as_raw_fd(), &mut buffer, MsgFlags::MSG_PEEK).map_err(io::Error::from)
        });
        let length = match peeked {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(length) => length,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
            Err(error) => return Err(error),
        };
        let seen = buffer.get(..length).unwrap_or_default();
        if let Some(end) = seen.iter().position(|byte| *byte == b'\n') {
            let line = seen.get(..end).unwrap_or_default();
            return Ok(match serde_json::from_slice(line) {
                Ok(Request::LogLevel { level }) => Some(LevelRequest { level, length: end + 1 }),
                Ok(_) | Err(_) => None,
            });
        }
        if length >= LONGEST {
            return Ok(None);
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Answers a request that was peeked at, with the level of this process. `refusal` is the reason if the caller may not have it.
///
/// # Errors
/// The peer has gone.
pub(super) async fn answer_level_request(
    stream: &mut UnixStream,
    request: LevelRequest,
    levels: &LogLevels,
    refusal: Option<&str>,
) -> io::Result<()> {
    stream.read_exact(&mut vec![0; request.length]).await?;
    let reply = match refusal {
        Some(why) => ControlReply::Error(why.to_owned()),
        None => level_reply(levels, request.level.as_deref()),
    };
    let mut line = serde_json::to_string(&reply).map_err(io::Error::other)?;
    line.push('\n');
    stream.write_all(line.as_bytes()).await
}

/// Changes the level if one is requested, and returns the reply.
pub(super) fn level_reply(levels: &LogLevels, level: Option<&str>) -> ControlReply {
    match levels.change_levels(level) {
        Ok(level) => ControlReply::Ok(json!({ "level": level })),
        Err(why) => ControlReply::Error(why),
    }
}

#[cfg(test)]
mod tests {
    use countersign_config::logging::LogLevels;
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::UnixStream,
    };

    use super::{answer_level_request, peek_level_request};
    use crate::control::Request;

    fn line(request: &Request) -> String {
        serde_json::to_string(request).unwrap() + "\n"
    }

    #[tokio::test]
    async fn a_level_is_that_of_the_process_that_was_asked_and_other_requests_are_left_to_be_relayed() {
        let (mut client, mut node) = UnixStream::pair().unwrap();
        let gates = line(&Request::Gates);
        let level_line = line(&Request::LogLevel { level: Some("info".to_owned()) });
        client.write_all(format!("{level_line}{gates}").as_bytes()).await.unwrap();
        let levels = LogLevels::new(|level| Ok(level.unwrap_or("warn").to_owned()));

        let request = peek_level_request(&node).await.unwrap().unwrap();
        answer_level_request(&mut node, request, &levels, None).await.unwrap();
        let mut reply = vec![0; 256];
        let length = client.read(&mut reply).await.unwrap();
        reply.truncate(length);
        let reply = String::from_utf8(reply).unwrap();
        assert!(reply.contains("\"level\":\"info\""), "{reply}");

        assert_eq!(peek_level_request(&node).await.unwrap(), None);
        let mut relayed = vec![0; gates.len()];
        node.read_exact(&mut relayed).await.unwrap();
        assert_eq!(relayed, gates.as_bytes());
        drop(client);
        assert!(peek_level_request(&node).await.is_err());
    }
}
