//! Forms about prompts: one handler, generic over the kind of form.

use std::sync::Arc;

use axum::{
    Extension,
    extract::State,
    http::{StatusCode, Uri},
    response::{IntoResponse, Response},
};
use countersign_http::{
    reply::{self, HttpProblem},
    web::{BadBody, BodyFields, HttpCaller},
};
use serde_json::Value;

use super::{super::fields::RequestRejection, SessionPrompts};

/// Kind of form: its parser, and its effect.
pub(super) trait PromptForm: Sized + Send {
    /// Parses it.
    ///
    /// # Errors
    /// The reply to an invalid body, or to a caller without the permission.
    fn from_body(body: &BodyFields, caller: &HttpCaller) -> Result<Self, FormError>;

    /// Applies it, and returns the reply.
    fn apply_form(
        self,
        prompts: &Arc<SessionPrompts>,
        caller: &HttpCaller,
        body: &BodyFields,
    ) -> impl Future<Output = Result<Response, HttpProblem>> + Send;
}

/// Reason why nothing was done.
pub(super) enum FormError {
    /// The body is invalid, or this caller has no permission.
    Rejected(RequestRejection),
    /// The same, with a body of its own.
    WithBody(StatusCode, Value),
}

impl From<RequestRejection> for FormError {
    fn from(rejection: RequestRejection) -> Self {
        Self::Rejected(rejection)
    }
}

impl IntoResponse for FormError {
    fn into_response(self) -> Response {
        match self {
            Self::Rejected(rejection) => rejection.into_response(),
            Self::WithBody(status, body) => reply::json(status, &body),
        }
    }
}

/// Parses a form and applies it.
pub(super) async fn handle_form<F: PromptForm>(
    State(prompts): State<Arc<SessionPrompts>>,
    Extension(caller): Extension<HttpCaller>,
    uri: Uri,
    body: Result<BodyFields, BadBody>,
) -> Result<Response, BadBody> {
    let body = body?;
    let form = match F::from_body(&body, &caller) {
        Ok(form) => form,
        Err(error) => return Ok(error.into_response()),
    };
    Ok(form.apply_form(&prompts, &caller, &body).await.unwrap_or_else(|problem| problem.response_for(uri.path())))
}
