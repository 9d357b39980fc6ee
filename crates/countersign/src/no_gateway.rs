//! Text for a gateway that does not run, with the next step. All commands that need one have the same.

use crate::{data_dir::DataDir, user_service::start_command};

/// Returns the text for a gateway that does not run with this data directory: its source, and the command that starts a gateway.
pub(crate) fn no_gateway_text(place: &DataDir) -> String {
    let start = start_command(place);
    format!("{}: start one with `{start}`, or select another with --config or --data", place.no_gateway())
}
