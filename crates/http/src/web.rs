//! What pages, phones and programs share over HTTP: who may call what, who they are, and how replies and streams look.
//!
//! It must not know what any door says.

pub mod access;
pub mod auth;
pub mod body;
pub mod cookie;
mod guard;
mod login;
mod revoked;
mod routes;
pub mod sse;
mod watched;

pub use access::Scope;
pub use access::{ONCE_ONLY, Who};
pub use auth::{Auth, Caller, Via};
pub use body::{Body, Refused as BadBody, is_over_limit};
pub use guard::METRICS;
pub use login::routes as login_routes;
pub use routes::{Routes, with_fallbacks};
