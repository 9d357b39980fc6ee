//! What people send about prompts: one handler over the kind of what is sent.

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

/// One kind of what is sent: how it is read, and what it does.
pub(super) trait PromptForm: Sized + Send {
    /// Reads it.
    ///
    /// # Errors
    /// The reply to a body that is wrong, or to what this caller may not.
    fn from_body(body: &BodyFields, caller: &HttpCaller) -> Result<Self, FormError>;

    /// Does it, and gives the reply.
    fn apply_form(
        self,
        prompts: &Arc<SessionPrompts>,
        caller: &HttpCaller,
        body: &BodyFields,
    ) -> impl Future<Output = Result<Response, HttpProblem>> + Send;
}

/// Why nothing was done.
pub(super) enum FormError {
    /// The body is wrong, or is not for this caller.
    Rejected(RequestRejection),
    /// The same, told beside what was sent.
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

/// Reads what is sent and does it.
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
