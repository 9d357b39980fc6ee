//! What pages, phones and programs share over HTTP: who may call what, who they are, and how replies and streams look.
//!
//! It must not know what any door says.

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
