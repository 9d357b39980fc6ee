//! `cluster`.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use countersign_gateway::REALM;

use super::target::{GlobalArgs, TargetArgs};
use crate::cluster::{drain_node, move_realm, print_status};

#[derive(Args)]
pub(super) struct ClusterArgs {
    #[command(subcommand)]
    what: ClusterCommand,
    #[command(flatten)]
    at: TargetArgs,
}

#[derive(Subcommand)]
enum ClusterCommand {
    /// List the nodes, and which of them serves the realm
    Status,
    /// Tell a node to give its realms up, and wait until other nodes serve them
    ///
    /// The node relays to them until it ends. It takes realms again after a restart.
    Drain {
        /// Name of the node
        #[arg(value_name = "NODE")]
        node: String,
    },
    /// Give a realm to a node, and wait until the node serves it
    Move {
        /// Name of the node
        #[arg(value_name = "NODE")]
        node: String,
        /// Realm
        #[arg(long, value_name = "REALM", default_value = REALM)]
        realm: String,
    },
}

pub(super) fn run(args: ClusterArgs, before: GlobalArgs) -> anyhow::Result<ExitCode> {
    let at = args.at.merge_globals(before);
    let (place, form) = (at.data_dir()?, at.output_format());
    match args.what {
        ClusterCommand::Status => print_status(&place, form),
        ClusterCommand::Drain { node } => drain_node(&place, &node, form),
        ClusterCommand::Move { node, realm } => move_realm(&place, &realm, &node, form),
    }
}
