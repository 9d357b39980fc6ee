//! omp's own protocol: the dialect of a host that extends nothing.

use countersign_protocol::{gjc::GjcCommand, omp::OmpRequestId};
use futures_util::{FutureExt as _, future::BoxFuture};

use super::{
    adapter::{
        OmpAdapter,
        dialect::{ActiveDialect, ConfiguredDialect, DialectExtension},
    },
    commands,
    dialect_options::DialectOptions,
};

impl Default for ConfiguredDialect {
    fn default() -> Self {
        Self { options: DialectOptions::default(), dialect: ActiveDialect::new(&OwnDialect, ()) }
    }
}

struct OwnDialect;

impl DialectExtension for OwnDialect {
    fn on_command<'a>(
        &self,
        door: &'a mut OmpAdapter,
        id: Option<OmpRequestId>,
        command: GjcCommand,
    ) -> BoxFuture<'a, ()> {
        commands::handle_own(door, id, command).boxed()
    }
}
