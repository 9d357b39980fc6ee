//! What a request comes to. The groups of methods answer with it, and so does the dispatch to them.

use countersign_protocol::{
    RawJson,
    gsv::{GsvError, Method, code},
};

/// What a request comes to.
pub(super) type MethodResult = Result<RawJson, GsvError>;

/// What is answered for a method that this gateway does not have yet.
pub(super) fn unsupported_method(method: Method) -> GsvError {
    GsvError::new(code::FAILED, format!("{} is not supported by this gateway yet", method.name()))
}
