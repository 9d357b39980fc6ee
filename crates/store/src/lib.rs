//! Keeps the log: the append-only, hash-chained record of all decisions of an agent gateway.
//!
//! It must not know what a record means: facts are opaque JSON text to it, and no decision is made here.
//!
//! [`Log`] is the contract, [`SqliteLog`], [`PostgresLog`] and [`MemoryLog`] keep it, and [`suite`] is what each of them has to pass.
//! Appends are pipelined and fenced by the [`Epoch`] of their owner.
//! [`chain`] says byte by byte how records are chained, so that anyone can check a log without this crate.

#![warn(missing_docs)]

pub mod chain;
pub mod suite;

mod any;
mod append;
mod database_error;
mod disk;
mod error;
mod log;
mod memory;
mod pages;
mod postgres;
mod record;
mod sqlite;
mod transfer;
mod verify;
mod view;

pub use any::AnyLog;
pub use append::PendingAppend;
pub use database_error::DatabaseError;
pub use disk::free_space;
pub use error::{AppendError, ErrorCause, LogOpenError, LogReadError, LogWriteError};
pub use log::Log;
pub use memory::{DiskState, LogFault, MemoryLog, UncertainOutcome};
pub use pages::PageReader;
pub use postgres::{
    ClusterRows, ClusterTables, KnownHead, LeaseClaim, LeaseRow, NodeIdentity, NodeRow, PostgresLog, PostgresOptions,
};
pub use record::{
    Batch, Epoch, FACTS_LIMIT, FactsPage, LogHead, LogRecord, Partition, ReadScope, RecordFacts, Snapshot,
    StoredContent, StoredRecord,
};
pub use sqlite::{BALLAST_SIZE, LogOptions, SqliteLog, copy_log};
pub use transfer::{RawContent, RawLog, RawRecord, TransferError, TransferReport, copy_records};
pub use verify::{Corruption, VerifyReport};
pub use view::{LogView, ViewRows};
