//! The blocks of a prompt, as the model gets them.

use countersign_acp_protocol::{ContentBlock, EmbeddedContents};
use countersign_core::message::{ImageBlock, MessageBlock};

use crate::output::RequestFailure;

/// Most bytes of a prompt, texts and images together.
const LARGEST: usize = 20 << 20;
/// Most bytes of its texts.
const LONGEST_TEXT: usize = 1 << 20;

/// Reports whether the model of a session can see images.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ImageInput {
    Taken,
    NotTaken,
}

/// Returns a prompt as blocks of a message.
///
/// # Errors
/// The block that is not accepted.
pub(crate) fn message_blocks(
    prompt: Vec<ContentBlock>,
    images: ImageInput,
) -> Result<Vec<MessageBlock>, RequestFailure> {
    let mut blocks = Vec::with_capacity(prompt.len());
    for (at, block) in prompt.into_iter().enumerate() {
        blocks.push(message_block(at, block, images)?);
    }
    let text: usize = blocks.iter().filter_map(MessageBlock::as_text).map(str::len).sum();
    let image = |block: &MessageBlock| if let MessageBlock::Image(image) = block { image.data.len() } else { 0 };
    let whole = text + blocks.iter().map(image).sum::<usize>();
    let is_blank = blocks.iter().all(|block| block.as_text().is_some_and(|text| text.trim().is_empty()));
    if is_blank {
        return Err(RequestFailure::parameter("prompt", "", "expected a text that is not blank"));
    }
    if text > LONGEST_TEXT {
        let expected = format!("expected at most {LONGEST_TEXT} bytes of text");
        return Err(RequestFailure::parameter("prompt", &format!("{text} bytes"), &expected));
    }
    if whole > LARGEST {
        let expected = format!("expected at most {LARGEST} bytes");
        return Err(RequestFailure::parameter("prompt", &format!("{whole} bytes"), &expected));
    }
    Ok(blocks)
}

fn message_block(at: usize, block: ContentBlock, images: ImageInput) -> Result<MessageBlock, RequestFailure> {
    let refused =
        |kind: &str, expected: &str| Err(RequestFailure::parameter(&format!("prompt[{at}].type"), kind, expected));
    match block {
        ContentBlock::Text { text } => Ok(MessageBlock::from_text(text)),
        ContentBlock::Image { data, mime_type } => match images {
            ImageInput::Taken if mime_type.starts_with("image/") => {
                Ok(MessageBlock::Image(ImageBlock { data, mime_type }))
            }
            ImageInput::Taken => {
                let field = format!("prompt[{at}].mimeType");
                Err(RequestFailure::parameter(&field, &mime_type, "expected a type that begins with image/"))
            }
            ImageInput::NotTaken => refused("image", "the model of this session sees no images: choose another model"),
        },
        ContentBlock::Audio { .. } => refused("audio", "expected text, image, resource_link or resource"),
        ContentBlock::ResourceLink { name, uri } => {
            Ok(MessageBlock::from_text(format!("[{name}]({})", file_path(&uri).unwrap_or(&uri))))
        }
        ContentBlock::Resource { resource: EmbeddedContents::Text { uri, text } } => {
            let place = file_path(&uri).unwrap_or(&uri);
            Ok(MessageBlock::from_text(format!("<resource uri=\"{place}\">\n{text}\n</resource>")))
        }
        ContentBlock::Resource { resource: EmbeddedContents::Blob { blob, mime_type: Some(mime_type), .. } }
            if mime_type.starts_with("image/") && images == ImageInput::Taken =>
        {
            Ok(MessageBlock::Image(ImageBlock { data: blob, mime_type }))
        }
        ContentBlock::Resource { resource: EmbeddedContents::Blob { .. } } => {
            refused("resource", "expected a resource with a text: name a binary file with a resource_link")
        }
    }
}

/// Returns the path in the address of a file on this machine.
fn file_path(uri: &str) -> Option<&str> {
    uri.strip_prefix("file://").filter(|path| path.starts_with('/') && !path.contains('%'))
}

#[cfg(test)]
mod tests {
    use countersign_acp_protocol::{ContentBlock, EmbeddedContents};
    use countersign_core::message::{ImageBlock, MessageBlock};

    use super::{ImageInput, message_blocks};

    fn image() -> ContentBlock {
        ContentBlock::Image { data: "AA==".to_owned(), mime_type: "image/png".to_owned() }
    }

    fn blob(mime_type: Option<&str>) -> ContentBlock {
        let (uri, blob) = ("file:///w/a".to_owned(), "AA==".to_owned());
        let mime_type = mime_type.map(str::to_owned);
        ContentBlock::Resource { resource: EmbeddedContents::Blob { uri, blob, mime_type } }
    }

    #[test]
    fn links_and_resources_become_text_that_names_their_files() {
        let link = |uri: &str| ContentBlock::ResourceLink { name: "a.rs".to_owned(), uri: uri.to_owned() };
        let resource = EmbeddedContents::Text { uri: "file:///w/b.rs".to_owned(), text: "fn b() {}".to_owned() };
        let prompt = vec![
            ContentBlock::from_text("look"),
            link("file:///w/a.rs"),
            link("https://example.org/x"),
            ContentBlock::Resource { resource },
        ];
        let want = [
            "look",
            "[a.rs](/w/a.rs)",
            "[a.rs](https://example.org/x)",
            "<resource uri=\"/w/b.rs\">\nfn b() {}\n</resource>",
        ];
        let blocks = message_blocks(prompt, ImageInput::NotTaken).unwrap();
        assert_eq!(blocks, want.map(MessageBlock::from_text));
    }

    #[test]
    fn images_go_to_models_that_see_them() {
        let seen = MessageBlock::Image(ImageBlock { data: "AA==".to_owned(), mime_type: "image/png".to_owned() });
        for block in [image(), blob(Some("image/png"))] {
            assert_eq!(message_blocks(vec![block], ImageInput::Taken), Ok(vec![seen.clone()]));
        }
    }

    #[test]
    fn a_block_that_is_not_taken_is_named() {
        let audio = ContentBlock::Audio { data: String::new(), mime_type: "audio/wav".to_owned() };
        let other = ContentBlock::Image { data: String::new(), mime_type: "text/html".to_owned() };
        for (block, images, want) in [
            (
                image(),
                ImageInput::NotTaken,
                r#"prompt[0].type: "image": the model of this session sees no images: choose another model"#,
            ),
            (other, ImageInput::Taken, r#"prompt[0].mimeType: "text/html": expected a type that begins with image/"#),
            (audio, ImageInput::Taken, r#"prompt[0].type: "audio": expected text, image, resource_link or resource"#),
            (
                blob(None),
                ImageInput::Taken,
                r#"prompt[0].type: "resource": expected a resource with a text: name a binary file with a resource_link"#,
            ),
            (ContentBlock::from_text(" \n"), ImageInput::Taken, r#"prompt: "": expected a text that is not blank"#),
            (
                ContentBlock::from_text("x".repeat((1 << 20) + 1)),
                ImageInput::Taken,
                r#"prompt: "1048577 bytes": expected at most 1048576 bytes of text"#,
            ),
        ] {
            let refused = message_blocks(vec![block], images).unwrap_err();
            assert_eq!(refused.text, format!("Invalid params: {want}"));
        }
    }
}
