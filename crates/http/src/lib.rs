//! HTTP of a gateway: the port, who may speak at all, logins and tokens, limits, and replies.
//!
//! It must not know an adapter: routes and the answer to WebSockets are passed in.

mod bearer_token;
pub mod limits;
pub mod listen;
pub mod log_throttle;
pub mod open_connections;
pub mod origin;
pub mod read_failures;
pub mod readiness;
pub mod reply;
pub mod tokens;
pub mod web;
