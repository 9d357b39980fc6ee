//! Images that may become part of a page.
//!
//! It must not know the page.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use countersign_core::message::ImageBlock;

/// Kinds that a browser only draws. SVG is none of them: it is a document with its own scripts.
const DRAWN: [&str; 7] =
    ["image/png", "image/jpeg", "image/gif", "image/webp", "image/avif", "image/bmp", "image/x-icon"];

/// The image as an address that holds it. `None` if it is of another kind or its data is no base64: nothing of what
/// came from outside is put there as it came.
pub(super) fn data_uri(image: &ImageBlock) -> Option<String> {
    let kind = DRAWN.iter().find(|kind| image.mime_type.eq_ignore_ascii_case(kind))?;
    let bytes = STANDARD.decode(image.data.trim()).ok().filter(|bytes| !bytes.is_empty())?;
    Some(format!("data:{kind};base64,{}", STANDARD.encode(bytes)))
}

#[cfg(test)]
mod tests {
    use countersign_core::message::ImageBlock;

    use super::data_uri;

    #[test]
    fn only_base64_of_a_drawn_kind_is_embedded() {
        for (kind, data, want) in [
            ("image/png", "aGk=", Some("data:image/png;base64,aGk=")),
            ("IMAGE/PNG", " aGk= ", Some("data:image/png;base64,aGk=")),
            ("image/svg+xml", "aGk=", None),
            ("text/html", "aGk=", None),
            ("image/png\" onload=\"x", "aGk=", None),
            ("image/png", "aGk=\" onload=\"x", None),
            ("image/png", "", None),
            ("image/png", "blob:sha256:00", None),
        ] {
            let image = ImageBlock { data: data.to_owned(), mime_type: kind.to_owned() };
            assert_eq!(data_uri(&image).as_deref(), want, "{kind} {data}");
        }
    }
}
