//! Blocks of content, in both directions.

use serde::Serialize;

use super::param_reader::{ParamFault, ParamField};

/// A block of content. Annotations and `_meta` are ignored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub enum ContentBlock {
    /// Text.
    Text {
        /// The text.
        text: String,
    },
    /// An image.
    Image {
        /// Base64.
        data: String,
        /// Such as `image/png`.
        mime_type: String,
    },
    /// Sound.
    Audio {
        /// Base64.
        data: String,
        /// Such as `audio/wav`.
        mime_type: String,
    },
    /// A file or page that the agent may open itself.
    ResourceLink {
        /// Its name.
        name: String,
        /// Its address.
        uri: String,
    },
    /// A file or page with its content.
    Resource {
        /// The content.
        resource: EmbeddedContents,
    },
}

/// Content of an embedded resource.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged, rename_all_fields = "camelCase")]
pub enum EmbeddedContents {
    /// Text.
    Text {
        /// Its address.
        uri: String,
        /// The text.
        text: String,
    },
    /// Bytes.
    Blob {
        /// Its address.
        uri: String,
        /// Base64.
        blob: String,
        /// Its type, if it is given.
        #[serde(skip_serializing_if = "Option::is_none")]
        mime_type: Option<String>,
    },
}

impl ContentBlock {
    /// Returns a block of text.
    pub fn from_text(text: impl Into<String>) -> Self {
        Self::Text { text: text.into() }
    }

    /// Reads a block.
    pub(super) fn read(field: &ParamField<'_>) -> Result<Self, ParamFault> {
        field.object()?;
        let text = |name: &str| field.at(name).text().map(str::to_owned);
        let kind = field.at("type");
        match kind.text()? {
            "text" => Ok(Self::Text { text: text("text")? }),
            "image" => Ok(Self::Image { data: text("data")?, mime_type: text("mimeType")? }),
            "audio" => Ok(Self::Audio { data: text("data")?, mime_type: text("mimeType")? }),
            "resource_link" => Ok(Self::ResourceLink { name: text("name")?, uri: text("uri")? }),
            "resource" => {
                let resource = field.at("resource");
                resource.object()?;
                let uri = resource.at("uri").text()?.to_owned();
                let blob = resource.at("blob");
                let resource = if blob.is_absent() {
                    EmbeddedContents::Text { uri, text: resource.at("text").text()?.to_owned() }
                } else {
                    let mime_type = resource.at("mimeType").optional_text()?.map(str::to_owned);
                    EmbeddedContents::Blob { uri, blob: blob.text()?.to_owned(), mime_type }
                };
                Ok(Self::Resource { resource })
            }
            _ => Err(kind.expected("text, image, audio, resource_link or resource")),
        }
    }
}
