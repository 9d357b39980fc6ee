//! Keeps the log: the append-only, hash-chained record of everything that an agent gateway decided.
//!
//! It must not know what a record means: facts are opaque JSON text to it, and no decision is made here.
//!
//! [`Log`] is the contract, [`SqliteLog`] and [`MemoryLog`] keep it, and [`suite`] is what each of them has to pass.
//! Appends are pipelined and fenced by the [`Epoch`] of their owner.
//! [`chain`] says byte by byte how records are chained, so that anyone can check a log without this crate.

#![warn(missing_docs)]

pub mod chain;
pub mod suite;

mod any;
mod append;
mod disk;
mod error;
mod log;
mod memory;
mod pages;
mod record;
mod sqlite;
mod verify;
mod view;

pub use any::AnyLog;
pub use append::PendingAppend;
pub use disk::free_space;
pub use error::{AppendError, Cause, OpenError, ReadError, WriteError};
pub use log::Log;
pub use memory::{Disk, Fault, MemoryLog, Outcome};
pub use pages::Pages;
pub use record::{Batch, Content, Epoch, FACTS_LIMIT, Head, Partition, Record, Scope, Snapshot, Stored};
pub use sqlite::{BALLAST_SIZE, Options, SqliteLog, copy};
pub use verify::{Flaw, Report};
pub use view::{Rows, View};
