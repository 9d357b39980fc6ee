//! Routes of the table, each with its guard.

use std::sync::Arc;

use axum::{
    Router,
    handler::Handler,
    http::StatusCode,
    middleware::from_fn_with_state,
    routing::{MethodFilter, on},
};

use super::{access, auth::WebAuth, guard};

/// Adds answers to requests that no route of `router` takes: `nothing` for a path, 405 for a method. Below `/api/` a caller who has to
/// log in, and did not, gets 401 for both: clients learn from it that they have to log in.
pub fn with_fallbacks<H, T>(router: Router, auth: &Arc<WebAuth>, nothing: H) -> Router
where
    H: Handler<T, ()>,
    T: 'static,
{
    let known = || from_fn_with_state(Arc::clone(auth), guard::check_unrouted);
    let not_allowed = async || StatusCode::METHOD_NOT_ALLOWED;
    router.fallback(nothing.layer(known())).method_not_allowed_fallback(not_allowed.layer(known()))
}

/// A router of which every route has a row in the [table](access::TABLE).
pub struct GuardedRoutes<S> {
    router: Router<S>,
    auth: Arc<WebAuth>,
}

impl<S: Clone + Send + Sync + 'static> GuardedRoutes<S> {
    /// Makes a set without routes.
    pub fn new(auth: &Arc<WebAuth>) -> Self {
        Self { router: Router::new(), auth: Arc::clone(auth) }
    }

    /// Adds a route.
    ///
    /// # Panics
    /// If the table has no row for it: a gateway with a route without access rules does not start.
    #[must_use]
    pub fn add_route<H, T>(mut self, method: &str, path: &str, handler: H) -> Self
    where
        H: Handler<T, S>,
        T: 'static,
    {
        let (who, effect) = access::find_entry(method, path).unwrap_or_else(|| panic!("{method} {path} has no row"));
        let filter = match method {
            "GET" => MethodFilter::GET,
            "POST" => MethodFilter::POST,
            "PUT" => MethodFilter::PUT,
            "PATCH" => MethodFilter::PATCH,
            "DELETE" => MethodFilter::DELETE,
            other => panic!("{other} is no method of ours"),
        };
        let guarded = guard::RouteGuard { auth: Arc::clone(&self.auth), who, effect };
        self.router =
            self.router.route(path, on(filter, handler).layer(from_fn_with_state(guarded, guard::check_access)));
        self
    }

    /// Returns the router.
    pub fn with_state(self, state: S) -> Router {
        self.router.with_state(state)
    }
}
