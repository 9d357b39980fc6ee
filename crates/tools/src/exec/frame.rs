//! The frames between gateway and exec child: a kind, a length, a payload.
//!
//! It must not do I/O.

use countersign_core::call::Pins;
use serde::{Deserialize, Serialize};

use crate::sandbox::SandboxBounds;

/// The most that one payload may have.
const LIMIT: usize = 64 << 20;
/// Kind and length.
const HEAD: usize = 5;

/// Order of the gateway.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum ChildOrder {
    /// Be held by this from now on, or by nothing; always the first.
    Begin(Option<SandboxBounds>),
    /// Be held by this and run one program in place of a shell; the first and only order.
    Program(Option<SandboxBounds>, ProgramCommand),
    /// Run this; sent only when nothing runs.
    Run(ShellCommand),
    /// Give this to what runs as input, if it was to have any.
    Input(Vec<u8>),
    /// End what runs, with everything that was ever started.
    Stop,
}

/// A program with its arguments.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ProgramCommand {
    /// Its path, or its name on the search path.
    pub(crate) program: String,
    /// Its arguments.
    pub(crate) args: Vec<String>,
}

/// A command for the shell.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ShellCommand {
    /// Shell text, without NUL.
    pub(crate) command: String,
    /// The folder for this command alone.
    pub(crate) cwd: Option<String>,
    /// Variables for this command alone.
    pub(crate) env: Vec<(String, String)>,
    /// True if it is given input; otherwise it has none.
    #[serde(default)]
    pub(crate) input: bool,
    /// Approved state: if anything differs from it by now, nothing is run.
    #[serde(default)]
    pub(crate) pins: Option<Box<Pins>>,
}

/// Report of the exec child.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ChildReport {
    /// The command that runs wrote this.
    Output(Vec<u8>),
    /// So many more bytes of its input are where it can read them.
    Taken(u64),
    /// The command ended, and all its output was reported.
    Ended(CommandExit),
    /// The command was not run.
    Failed(String),
    /// The command was not run, because something differs from the approved state. The shell is as it was.
    Changed(String),
    /// The child is in a network of its own, whose listener comes with this; or it has none at all, for this reason.
    Network(Option<String>),
}

/// End of a command.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CommandExit {
    /// Its code, or the shell's where the shell ended with it; 128 and the signal if a signal ended the shell.
    pub(crate) code: i32,
    /// The folder that the shell is in, or was in.
    pub(crate) cwd: Option<String>,
    /// Search path of the shell, if it is known.
    #[serde(default)]
    pub(crate) path: Option<String>,
    /// False if the shell is gone: the next command gets a new one.
    pub(crate) alive: bool,
}

/// A stream that holds no frame.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a frame of the exec child")]
pub(crate) struct FrameError;

impl ChildOrder {
    pub(crate) fn encode(&self) -> Vec<u8> {
        match self {
            Self::Begin(bounds) => encode_frame(b'B', &serde_json::to_vec(bounds).unwrap_or_default()),
            Self::Program(bounds, program) => {
                encode_frame(b'P', &serde_json::to_vec(&(bounds, program)).unwrap_or_default())
            }
            Self::Run(run) => encode_frame(b'R', &serde_json::to_vec(run).unwrap_or_default()),
            Self::Input(bytes) => encode_frame(b'I', bytes),
            Self::Stop => encode_frame(b'S', b""),
        }
    }

    /// Takes one frame off the front of `bytes` and returns its length. `None` if it is incomplete.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Option<(Self, usize)>, FrameError> {
        let Some((kind, payload)) = split_frame(bytes)? else { return Ok(None) };
        let order = match kind {
            b'B' => Self::Begin(serde_json::from_slice(payload).map_err(|_| FrameError)?),
            b'P' => {
                let (bounds, program) = serde_json::from_slice(payload).map_err(|_| FrameError)?;
                Self::Program(bounds, program)
            }
            b'R' => Self::Run(serde_json::from_slice(payload).map_err(|_| FrameError)?),
            b'I' => Self::Input(payload.to_vec()),
            b'S' => Self::Stop,
            _ => return Err(FrameError),
        };
        Ok(Some((order, HEAD + payload.len())))
    }
}

impl ChildReport {
    pub(crate) fn encode(&self) -> Vec<u8> {
        match self {
            Self::Output(bytes) => encode_frame(b'O', bytes),
            Self::Taken(count) => encode_frame(b'T', &count.to_le_bytes()),
            Self::Ended(ended) => encode_frame(b'E', &serde_json::to_vec(ended).unwrap_or_default()),
            Self::Failed(text) => encode_frame(b'F', text.as_bytes()),
            Self::Changed(text) => encode_frame(b'C', text.as_bytes()),
            Self::Network(None) => encode_frame(b'N', b""),
            Self::Network(Some(lacks)) => encode_frame(b'L', lacks.as_bytes()),
        }
    }

    /// Takes one frame off the front of `bytes` and returns its length. `None` if it is incomplete.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Option<(Self, usize)>, FrameError> {
        let Some((kind, payload)) = split_frame(bytes)? else { return Ok(None) };
        let report = match kind {
            b'O' => Self::Output(payload.to_vec()),
            b'T' => Self::Taken(u64::from_le_bytes(payload.try_into().map_err(|_| FrameError)?)),
            b'E' => Self::Ended(serde_json::from_slice(payload).map_err(|_| FrameError)?),
            b'F' => Self::Failed(String::from_utf8_lossy(payload).into_owned()),
            b'C' => Self::Changed(String::from_utf8_lossy(payload).into_owned()),
            b'N' => Self::Network(None),
            b'L' => Self::Network(Some(String::from_utf8_lossy(payload).into_owned())),
            _ => return Err(FrameError),
        };
        Ok(Some((report, HEAD + payload.len())))
    }
}

fn encode_frame(kind: u8, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap_or(u32::MAX);
    let mut made = Vec::with_capacity(HEAD + payload.len());
    made.push(kind);
    made.extend_from_slice(&length.to_le_bytes());
    made.extend_from_slice(payload);
    made
}

fn split_frame(bytes: &[u8]) -> Result<Option<(u8, &[u8])>, FrameError> {
    let Some((&[kind, a, b, c, d], rest)) = bytes.split_first_chunk::<HEAD>() else { return Ok(None) };
    let length = u32::from_le_bytes([a, b, c, d]) as usize;
    if length > LIMIT {
        return Err(FrameError);
    }
    Ok(rest.get(..length).map(|payload| (kind, payload)))
}

#[cfg(test)]
mod tests {
    use super::{ChildOrder, ChildReport, CommandExit, FrameError, ProgramCommand, ShellCommand};

    #[test]
    fn a_frame_reads_back_and_a_part_of_it_waits() {
        for report in [
            ChildReport::Output(vec![0, 255, 10]),
            ChildReport::Taken(1 << 40),
            ChildReport::Ended(CommandExit {
                code: 3,
                cwd: Some("/a b".to_owned()),
                path: Some("/bin".to_owned()),
                alive: true,
            }),
            ChildReport::Changed("a".to_owned()),
            ChildReport::Failed("no".to_owned()),
            ChildReport::Network(None),
            ChildReport::Network(Some("no".to_owned())),
        ] {
            let bytes = report.encode();
            assert_eq!(ChildReport::decode(&bytes[..bytes.len() - 1]), Ok(None));
            assert_eq!(ChildReport::decode(&bytes), Ok(Some((report, bytes.len()))));
        }
        for order in [
            ChildOrder::Begin(None),
            ChildOrder::Program(None, ProgramCommand { program: "server".to_owned(), args: vec!["-v".to_owned()] }),
            ChildOrder::Run(ShellCommand { command: "echo".to_owned(), input: true, ..ShellCommand::default() }),
            ChildOrder::Input(b"a\0b".to_vec()),
        ] {
            let bytes = order.encode();
            assert_eq!(ChildOrder::decode(&bytes), Ok(Some((order, bytes.len()))));
        }
        assert_eq!(ChildOrder::decode(&ChildOrder::Stop.encode()), Ok(Some((ChildOrder::Stop, 5))));
    }

    #[test]
    fn what_is_not_a_frame_is_an_error() {
        assert_eq!(ChildReport::decode(b"running 1 test"), Err(FrameError));
        assert_eq!(ChildOrder::decode(&[b'?', 0, 0, 0, 0]), Err(FrameError));
    }
}
