//! Content of a server as blocks of a message: bounded, images kept, everything else as text.
//!
//! It must not know calls.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use countersign_core::message::{ImageBlock, MessageBlock};
use rmcp::model::{ContentBlock, Resource, ResourceContents};

use crate::options::McpLimits;

/// Kinds of images that models take.
const IMAGES: [&str; 4] = ["image/png", "image/jpeg", "image/gif", "image/webp"];

/// Blocks of one result, up to the limits.
#[derive(Clone)]
pub(crate) struct ContentBuilder {
    blocks: Vec<MessageBlock>,
    text_left: usize,
    images_left: usize,
    /// Bytes of text that were cut.
    cut: usize,
    images_out: usize,
}

impl ContentBuilder {
    pub(crate) const fn new(limits: &McpLimits) -> Self {
        Self { blocks: Vec::new(), text_left: limits.text, images_left: limits.images, cut: 0, images_out: 0 }
    }

    pub(crate) fn push_block(&mut self, block: ContentBlock) {
        match block {
            ContentBlock::Text(text) => self.push_text(&text.text),
            ContentBlock::Image(image) => self.push_image(image.data, image.mime_type),
            ContentBlock::Audio(audio) => {
                self.push_text(&format!(
                    "[audio {}, {} bytes of base64, not shown]",
                    audio.mime_type,
                    audio.data.len()
                ));
            }
            ContentBlock::Resource(resource) => self.push_resource(resource.resource),
            ContentBlock::ResourceLink(link) => self.push_text(&link_text(&link)),
            _ => self.push_text("[content of an unknown kind, not shown]"),
        }
    }

    pub(crate) fn push_resource(&mut self, contents: ResourceContents) {
        match contents {
            ResourceContents::TextResourceContents { uri, text, .. } => {
                self.push_text(&format!("[resource {uri}]\n{text}"));
            }
            ResourceContents::BlobResourceContents { uri, mime_type, blob, .. } => {
                let mime_type = mime_type.unwrap_or_else(|| "application/octet-stream".to_owned());
                if IMAGES.contains(&mime_type.as_str()) {
                    self.push_text(&format!("[resource {uri}]"));
                    self.push_image(blob, mime_type);
                } else {
                    let length = blob.len();
                    self.push_text(&format!("[resource {uri}: {mime_type}, {length} bytes of base64, not shown]"));
                }
            }
            _ => self.push_text("[a resource of an unknown kind, not shown]"),
        }
    }

    /// Adds a block that was read from the server.
    pub(crate) fn push_read(&mut self, block: MessageBlock) {
        match block {
            MessageBlock::Image(ImageBlock { data, mime_type }) => self.push_image(data, mime_type),
            other => self.push_text(other.as_text().unwrap_or_default()),
        }
    }

    /// Adds text as far as there is space.
    pub(crate) fn push_text(&mut self, text: &str) {
        let kept = &text[..text.floor_char_boundary(self.text_left)];
        self.cut += text.len() - kept.len();
        // Nothing follows a cut: it would look like the text after it.
        self.text_left = if kept.len() < text.len() { 0 } else { self.text_left - kept.len() };
        if !kept.is_empty() {
            self.blocks.push(MessageBlock::from_text(kept));
        }
    }

    fn push_image(&mut self, data: String, mime_type: String) {
        if !IMAGES.contains(&mime_type.as_str()) {
            return self.push_text(&format!("[image {mime_type}, {} bytes of base64, not shown]", data.len()));
        }
        if data.len() > self.images_left {
            self.images_out += 1;
            return;
        }
        if STANDARD.decode(&data).is_err() {
            return self.push_text("[an image that is not valid base64, not shown]");
        }
        self.images_left -= data.len();
        self.blocks.push(MessageBlock::Image(ImageBlock { data, mime_type }));
    }

    /// Returns the blocks, with a note of what is missing.
    pub(crate) fn finish(mut self) -> Vec<MessageBlock> {
        if self.cut > 0 {
            self.blocks.push(MessageBlock::from_text(format!("[cut: {} more bytes of text]", self.cut)));
        }
        if self.images_out > 0 {
            self.blocks.push(MessageBlock::from_text(format!("[left out: {} images, too large]", self.images_out)));
        }
        self.blocks
    }
}

fn link_text(link: &Resource) -> String {
    let mut text = format!("[link to resource {}: {}", link.name, link.uri);
    if let Some(mime_type) = &link.mime_type {
        text.push_str(&format!(", {mime_type}"));
    }
    if let Some(description) = &link.description {
        text.push_str(&format!(", {description}"));
    }
    text.push(']');
    text
}

#[cfg(test)]
mod tests {
    use countersign_core::message::MessageBlock;
    use rmcp::model::ContentBlock;
    use serde_json::{Value, json};

    use super::ContentBuilder;
    use crate::options::McpLimits;

    fn convert(blocks: Value) -> Vec<MessageBlock> {
        let limits = McpLimits { text: 40, images: 8, ..McpLimits::default() };
        let mut content = ContentBuilder::new(&limits);
        for block in serde_json::from_value::<Vec<ContentBlock>>(blocks).unwrap() {
            content.push_block(block);
        }
        content.finish()
    }

    fn texts(blocks: Value) -> Vec<String> {
        convert(blocks).iter().map(|block| block.as_text().unwrap_or("image").to_owned()).collect()
    }

    #[test]
    fn content_becomes_text_and_images() {
        let image = |data: &str, mime: &str| json!([{"type": "image", "data": data, "mimeType": mime}]);
        for (given, want) in [
            (json!([{"type": "text", "text": "a"}]), vec!["a"]),
            (image("aGFs", "image/png"), vec!["image"]),
            (
                image("aGFs", "image/tiff"),
                vec!["[image image/tiff, 4 bytes of base64, no", "[cut: 8 more bytes of text]"],
            ),
            (
                image("a b", "image/png"),
                vec!["[an image that is not valid base64, not ", "[cut: 6 more bytes of text]"],
            ),
            (image("aGFsbG8gd2VsdA==", "image/png"), vec!["[left out: 1 images, too large]"]),
            (
                json!([{"type": "resource", "resource": {"uri": "file:///a", "text": "hello"}}]),
                vec!["[resource file:///a]\nhello"],
            ),
            (
                json!([{"type": "resource_link", "uri": "file:///a", "name": "a"}]),
                vec!["[link to resource a: file:///a]"],
            ),
        ] {
            assert_eq!(texts(given.clone()), want, "{given}");
        }
    }

    #[test]
    fn text_beyond_the_limit_is_cut_once() {
        let long = json!([{"type": "text", "text": "x".repeat(38)}, {"type": "text", "text": "äöü"}, {"type": "text", "text": "end"}]);
        assert_eq!(texts(long), ["x".repeat(38), "ä".to_owned(), "[cut: 7 more bytes of text]".to_owned()]);
    }
}
