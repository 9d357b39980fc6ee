//! omp's own protocol: the dialect of a host that extends nothing.

use countersign_protocol::{gjc::GjcCommand, omp::OmpRequestId};
use futures_util::{FutureExt as _, future::BoxFuture};

use super::{
    commands,
    dialect_options::DialectOptions,
    door::{
        Door,
        dialect::{Dialect, DialectExtension, Extension},
    },
};

impl Default for Extension {
    fn default() -> Self {
        Self { options: DialectOptions::default(), dialect: Dialect::new(&OwnDialect, ()) }
    }
}

struct OwnDialect;

impl DialectExtension for OwnDialect {
    fn on_command<'a>(&self, door: &'a mut Door, id: Option<OmpRequestId>, command: GjcCommand) -> BoxFuture<'a, ()> {
        commands::handle_own(door, id, command).boxed()
    }
}
