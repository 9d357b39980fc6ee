//! Texts of a server without the values of secrets.

use std::borrow::Cow;

use countersign_runtime::tools::{GatewaySecrets, secrets::Redactor};

/// Secrets that texts of one server may repeat.
pub(crate) struct SecretTexts {
    /// Values of its own definition.
    redactor: Redactor,
    /// Secrets that arguments of calls may hold.
    secrets: GatewaySecrets,
}

impl SecretTexts {
    pub(crate) const fn new(redactor: Redactor, secrets: GatewaySecrets) -> Self {
        Self { redactor, secrets }
    }

    /// Returns `text` without secrets.
    pub(crate) fn redact<'a>(&self, text: &'a str) -> Cow<'a, str> {
        match self.secrets.redactor().redact_text(text) {
            Cow::Borrowed(text) => self.redactor.redact_text(text),
            Cow::Owned(text) => Cow::Owned(self.redactor.redact_text(&text).into_owned()),
        }
    }
}
