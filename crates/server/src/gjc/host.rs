//! What a host lends the agent: its tools, and what it has behind URIs of its own.

use countersign_protocol::omp::{Id, Response};

use crate::omp::Door;

/// Takes over the tools of the host.
pub(super) fn set_tools(door: &mut Door, id: Option<Id>) {
    door.write(&Response::failure(id, "set_host_tools", "host tools are not served yet"));
}

/// Takes over the URI schemes of the host.
pub(super) fn set_uri_schemes(door: &mut Door, id: Option<Id>) {
    door.write(&Response::failure(id, "set_host_uri_schemes", "host URIs are not served yet"));
}
