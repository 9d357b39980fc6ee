//! Texts of a server without the values of secrets.

use std::borrow::Cow;

use countersign_runtime::tools::{GatewaySecrets, secrets::Redactor};
use serde_json::Value;

/// Secrets that texts of one server may repeat.
pub(crate) struct SecretTexts {
    /// Values of its own definition, which are hidden in texts of errors.
    redactor: Redactor,
    /// Credentials of its definition and its token, which are hidden in every message.
    credentials: Option<Redactor>,
    /// Secrets that its definition and arguments of calls may hold.
    secrets: GatewaySecrets,
}

impl SecretTexts {
    pub(crate) const fn new(redactor: Redactor, secrets: GatewaySecrets) -> Self {
        Self { redactor, credentials: None, secrets }
    }

    /// Hides `credentials` in every message.
    pub(crate) fn with_credentials(self, credentials: Redactor) -> Self {
        Self { credentials: Some(credentials), ..self }
    }

    /// Returns `text` without secrets and without values of the definition.
    pub(crate) fn redact<'a>(&self, text: &'a str) -> Cow<'a, str> {
        match self.secrets.redactor().redact_text(text) {
            Cow::Borrowed(text) => self.redactor.redact_text(text),
            Cow::Owned(text) => Cow::Owned(self.redactor.redact_text(&text).into_owned()),
        }
    }

    /// Returns true if there is nothing to hide in messages.
    pub(crate) const fn has_no_secrets(&self) -> bool {
        !self.secrets.is_kept() && self.credentials.is_none()
    }

    /// Hides secrets in a part of a message. Values of the definition that may be no credentials, such as a folder, stay.
    pub(crate) fn redact_value(&self, value: &mut Value) {
        self.secrets.redactor().redact_value(value);
        if let Some(credentials) = &self.credentials {
            credentials.redact_value(value);
        }
    }
}
