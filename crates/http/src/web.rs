//! Shared parts of HTTP for pages, phones and programs: access to routes, identity of callers, format of replies and streams.
//!
//! It must not know the content of any adapter.

pub mod access;
pub mod auth;
mod authorized_stream;
pub mod body;
pub mod cookie;
mod guard;
mod login;
mod revoked;
mod routes;
pub mod sse;

pub use access::TokenScope;
pub use access::{ONCE_ONLY, RouteAccess};
pub use auth::{AuthMethod, HttpCaller, WebAuth};
pub use body::{BodyFields, BodyRejection as BadBody, is_over_limit};
pub use guard::METRICS;
pub use login::routes as login_routes;
pub use routes::{GuardedRoutes, with_fallbacks};
