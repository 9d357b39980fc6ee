//! Images that come from outside: one that a provider refuses would have it refuse the whole conversation.

use countersign_protocol::omp::message::ImageContent;
use countersign_view::{LineMode, escape};

/// Maximum size of one image, in bytes of the decoded image.
pub const LARGEST: usize = 20 << 20;

/// Checks that an image is valid, as far as that shows without decoding it.
///
/// # Errors
/// The fault, with the name of the member.
pub fn check_image(image: &ImageContent) -> Result<(), String> {
    if image.data.is_empty() {
        return Err("data is empty".to_owned());
    }
    if image.data.starts_with("data:") {
        return Err("data is a data URL; only the base64 behind its comma belongs there".to_owned());
    }
    // As providers take it: padded or not, without line ends.
    let base64 = image.data.trim_end_matches('=');
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/');
    if base64.is_empty()
        || base64.len() % 4 == 1
        || image.data.len() - base64.len() > 2
        || !base64.bytes().all(is_letter)
    {
        return Err("data is not base64".to_owned());
    }
    let is_type = |rest: &str| {
        !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.'))
    };
    if !image.mime_type.strip_prefix("image/").is_some_and(is_type) {
        let given = escape(&image.mime_type, LineMode::One);
        return Err(format!("mimeType is \"{given}\", which is no type of image"));
    }
    Ok(())
}

/// Returns the number of bytes that base64 encodes.
pub fn decoded_len(base64: &str) -> usize {
    base64.trim_end_matches('=').len() * 3 / 4
}
