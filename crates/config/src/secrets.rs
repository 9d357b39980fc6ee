//! `secrets`: those that agents may use by name, as far as the configuration gives them.
//!
//! It must not decide who may use one: rules do.

use std::collections::BTreeMap;

use countersign_core::secret::is_name;
use countersign_runtime::tools::secrets::{LONGEST, SHORTEST};
use secrecy::{ExposeSecret as _, SecretString};

use super::config_field::ConfigField;

/// Reads `secrets`: a value for each name, best one that a variable of the environment has.
pub(super) fn read_secrets(place: &ConfigField<'_>) -> BTreeMap<String, SecretString> {
    let mut secrets = BTreeMap::new();
    for (name, place) in place.members().unwrap_or_default() {
        if !is_name(name) {
            place.report_refusal(
                "invalid secret name: expected a letter or _, then at most 63 letters, digits, _, - and dots",
            );
            continue;
        }
        let Some(value) = place.needed_secret() else { continue };
        let length = value.expose_secret().len();
        if !(SHORTEST..=LONGEST).contains(&length) || value.expose_secret().contains('\0') {
            place.report_refusal(format!("a secret must have {SHORTEST} to {LONGEST} bytes and no NUL character"));
            continue;
        }
        secrets.insert(name.to_owned(), value);
    }
    secrets
}
