//! What pages, phones and programs share over HTTP: who may call what, who they are, and how replies and streams look.
//!
//! It must not know what any door says.

pub mod access;
pub(crate) mod auth;
pub(crate) mod body;
pub(crate) mod cookie;
mod guard;
mod login;
pub(crate) mod origin;
pub(crate) mod reply;
mod revoked;
mod routes;
pub(crate) mod sse;
mod watched;

pub use access::Scope;
pub(crate) use access::{ONCE_ONLY, Who};
pub(crate) use auth::{Auth, Caller, Via};
pub(crate) use body::{Body, Refused as BadBody, is_over_limit};
pub(crate) use guard::CROSS_ORIGIN;
pub(crate) use login::routes as login_routes;
pub(crate) use reply::{Problem, dress};
pub(crate) use routes::{Routes, with_fallbacks};
