//! Entry point of the fuzz target.

use super::{
    ElicitationAnswer, IncomingMessage, InitializeParams, ListSessionsParams, OpenSessionParams, PermissionAnswer,
    PromptParams, SessionParams, SetConfigOptionParams, SetModeParams, encode_error, encode_result, methods,
    parse_message,
};

/// Reads bytes as a line, and its parameters by its method.
pub fn fuzz(bytes: &[u8]) {
    let Ok(line) = std::str::from_utf8(bytes) else { return };
    match parse_message(line) {
        Ok(IncomingMessage::Request { id, method, params }) => {
            let read = match method.as_str() {
                methods::INITIALIZE => InitializeParams::read(&params).map(drop),
                methods::NEW => OpenSessionParams::read_new(&params).map(drop),
                methods::LOAD | methods::RESUME => OpenSessionParams::read_existing(&params).map(drop),
                methods::LIST => ListSessionsParams::read(&params).map(drop),
                methods::PROMPT => PromptParams::read(&params).map(drop),
                methods::SET_MODE => SetModeParams::read(&params).map(drop),
                methods::SET_CONFIG_OPTION => SetConfigOptionParams::read(&params).map(drop),
                _ => SessionParams::read(&params).map(drop),
            };
            let reply = match read {
                Ok(()) => encode_result(&id, &params),
                Err(fault) => encode_error(Some(&id), super::ErrorCode::InvalidParams, &fault.to_string()),
            };
            assert_eq!(reply.iter().filter(|byte| **byte == b'\n').count(), 1, "a frame is one line");
        }
        Ok(IncomingMessage::Response { result: Ok(result), .. }) => {
            let _ = PermissionAnswer::read(&result);
            let _ = ElicitationAnswer::read(&result);
        }
        Ok(IncomingMessage::Notification { .. } | IncomingMessage::Response { .. }) | Err(_) => {}
    }
}
