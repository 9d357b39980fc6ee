//! Result of a request, for the groups of methods and the dispatch to them.

use countersign_protocol::{
    RawJson,
    gsv::{GsvError, Method, code},
};

/// Result of a request.
pub(super) type MethodResult = Result<RawJson, GsvError>;

/// Returns the error for a method that this gateway does not have.
pub(super) fn unsupported_method(method: Method) -> GsvError {
    GsvError::new(code::FAILED, format!("{} is not supported by this gateway yet", method.name()))
}
