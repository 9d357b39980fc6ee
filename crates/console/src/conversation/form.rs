//! Forms on the page of a conversation.

use std::sync::Arc;

use axum::{
    Extension, RequestExt as _,
    extract::{FromRequest, Path, Request},
    response::{IntoResponse as _, Response},
};
use countersign_core::id::SessionId;
use countersign_http::web::{BodyFields, HttpCaller};

use crate::{ConsoleState, PageContext};

/// Form that was sent: its conversation, its user, and its fields.
pub(crate) struct ConversationForm {
    pub(crate) ctx: PageContext,
    pub(crate) id: SessionId,
    pub(crate) body: BodyFields,
}

impl FromRequest<Arc<ConsoleState>> for ConversationForm {
    type Rejection = Response;

    async fn from_request(mut request: Request, console: &Arc<ConsoleState>) -> Result<Self, Response> {
        let Extension(caller) =
            request.extract_parts::<Extension<HttpCaller>>().await.map_err(|error| error.into_response())?;
        let Path(id) = request.extract_parts::<Path<String>>().await.map_err(|error| error.into_response())?;
        let body = BodyFields::from_request(request, console).await.map_err(|error| error.into_response())?;
        let ctx = console.page_context(caller).await.map_err(|error| error.into_response())?;
        Ok(Self { ctx, id: SessionId::new(id), body })
    }
}
