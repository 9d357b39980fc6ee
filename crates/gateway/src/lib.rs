//! A gateway as `serve` runs it: a process that serves one realm, which is one record and every door that is configured.

pub mod adapter;
pub mod checkup;
pub mod control;
mod ground;
mod hints;
mod house;
mod metrics;
mod port;
mod realm;
mod retention;
mod serve;
mod serve_error;
mod traces;
mod websockets;

pub use ground::{Ground, OpenRecord};
pub use port::PortAddress;
pub use realm::{Notice, PreparedRealm, Realm, RealmOptions};
pub use serve::serve;
pub use serve_error::ServeError;
pub use traces::Collector;
