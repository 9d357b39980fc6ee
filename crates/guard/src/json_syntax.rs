//! JSON as the programs read it.

use jsonc_parser::{ParseOptions, cst::CstRootNode};
use serde_json::Value;

/// Syntax of a settings file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JsonSyntax {
    /// JSON.
    Plain,
    /// JSON with comments, and with commas after the last element.
    Comments,
}

impl JsonSyntax {
    const fn options(self) -> ParseOptions {
        let is_extended = matches!(self, Self::Comments);
        ParseOptions {
            allow_comments: is_extended,
            allow_trailing_commas: is_extended,
            allow_loose_object_property_names: false,
            allow_missing_commas: false,
            allow_single_quoted_strings: false,
            allow_hexadecimal_numbers: false,
            allow_unary_plus_numbers: false,
            allow_bare_decimal_point_numbers: false,
            allow_non_finite_numbers: false,
            allow_extended_string_escapes: false,
        }
    }

    /// Reads a value. An empty text is an empty object.
    ///
    /// # Errors
    /// The place and the problem.
    pub(crate) fn parse_value(self, text: &str) -> Result<Value, String> {
        match (text.trim(), self) {
            ("", _) => Ok(Value::Object(serde_json::Map::new())),
            (_, Self::Plain) => serde_json::from_str(text).map_err(|error| error.to_string()),
            (_, Self::Comments) => {
                let root = CstRootNode::parse(text, &self.options()).map_err(|error| error.to_string())?;
                root.value().and_then(|value| value.to_serde_value()).ok_or_else(|| "no value".to_owned())
            }
        }
    }

    /// Reads a text so that it can be edited. An empty text stays empty.
    ///
    /// # Errors
    /// The place and the problem.
    pub(crate) fn parse_tree(self, text: &str) -> Result<CstRootNode, String> {
        // The library reads more than programs do.
        self.parse_value(text)?;
        CstRootNode::parse(text, &self.options()).map_err(|error| error.to_string())
    }
}
