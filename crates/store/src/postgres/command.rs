//! Commands for the writer, and how appends are taken together.
//!
//! It must not know the database.

use countersign_core::id::Lsn;
use tokio::sync::{mpsc, oneshot};

use super::group::AppendRequest;
use crate::{
    error::{ErrorCause, LogWriteError},
    record::{Epoch, LogHead, Snapshot},
    transfer::RawRecord,
};

/// Appends that share one transaction, at most.
const GROUP: usize = 256;

/// Bytes of facts and content after which no further append is taken into a transaction.
const GROUP_BYTES: usize = 1024 * 1024;

/// Something to be written. Its sender may be gone; it is written all the same.
pub(super) enum WriterCommand {
    Append(AppendRequest),
    TakeOver { reply: oneshot::Sender<Result<Epoch, LogWriteError>> },
    Redact { lsns: Vec<Lsn>, reply: oneshot::Sender<Result<usize, LogWriteError>> },
    SaveSnapshot { snapshot: Snapshot, reply: oneshot::Sender<Result<(), LogWriteError>> },
    Probe { reply: oneshot::Sender<Result<(), LogWriteError>> },
    Import { expected: LogHead, records: Vec<RawRecord>, reply: oneshot::Sender<Result<(), LogWriteError>> },
    Settle { reply: oneshot::Sender<Result<(), ErrorCause>> },
}

/// Takes the commands queued after `first` as long as they are appends and a transaction has room; returns the first command
/// that is none.
pub(super) fn gather_group(
    first: AppendRequest,
    inbox: &mut mpsc::Receiver<WriterCommand>,
) -> (Vec<AppendRequest>, Option<WriterCommand>) {
    let mut bytes = first.batch.byte_size();
    let mut group = vec![first];
    while group.len() < GROUP && bytes < GROUP_BYTES {
        match inbox.try_recv() {
            Ok(WriterCommand::Append(append)) => {
                bytes += append.batch.byte_size();
                group.push(append);
            }
            Ok(other) => return (group, Some(other)),
            Err(_) => break,
        }
    }
    (group, None)
}
