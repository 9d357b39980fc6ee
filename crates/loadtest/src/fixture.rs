//! Peers of a measured gateway or host, and its start: shared by `bench`, `load` and `kill`.

pub(crate) mod bot_api_stub;
pub(crate) mod gateway;
pub(crate) mod hook_process;
pub(crate) mod host;
pub(crate) mod http;
pub(crate) mod mcp_server;
pub(crate) mod provider;
pub(crate) mod scratch;
pub(crate) mod socket;
pub(crate) mod web;
