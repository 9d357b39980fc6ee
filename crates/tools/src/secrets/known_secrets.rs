//! Values to look for: all present ones, and former ones.

use std::cmp::Reverse;

use secrecy::{ExposeSecret as _, SecretString};

use super::{
    Redactor, SHORTEST,
    forms::{SecretForm, secret_forms},
};

/// Most bytes of values, all together, that were changed or removed and are still looked for. Their forms take about eight times
/// as much; without a limit, a token that another program renews would take more and more memory.
pub(super) const PAST: usize = 1 << 20;

/// The values that are looked for.
#[derive(Default)]
pub(super) struct KnownSecrets {
    values: Vec<KnownValue>,
    /// Counts the looks at everything that there is.
    looks: u64,
}

struct KnownValue {
    value: SecretString,
    forms: Vec<SecretForm>,
    /// At which look it was there last.
    look: u64,
}

/// Change of the redactor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RedactorChange {
    /// None.
    None,
    /// Other values are looked for.
    Values,
}

impl KnownSecrets {
    /// Looks for `value` from here on. Its forms are made once, when it is new.
    pub(super) fn note_value(&mut self, name: &str, value: &SecretString) -> RedactorChange {
        let text = value.expose_secret();
        if text.len() < SHORTEST {
            return RedactorChange::None;
        }
        if let Some(known) = self.values.iter_mut().find(|known| known.value.expose_secret() == text) {
            known.look = self.looks;
            return RedactorChange::None;
        }
        let forms = secret_forms(text, &format!("[secret {name}]"));
        self.values.push(KnownValue { value: value.clone(), forms, look: self.looks });
        RedactorChange::Values
    }

    /// Takes `all` for what there is now, and forgets what was gone first where there is more than [`PAST`] that is not.
    pub(super) fn refresh_values<'a>(
        &mut self,
        all: impl IntoIterator<Item = (&'a str, &'a SecretString)>,
    ) -> RedactorChange {
        self.looks += 1;
        let mut change = RedactorChange::None;
        for (name, value) in all {
            if self.note_value(name, value) == RedactorChange::Values {
                change = RedactorChange::Values;
            }
        }
        let (now, before, mut left) = (self.looks, self.values.len(), PAST);
        self.values.sort_by_key(|known| Reverse(known.look));
        self.values.retain(|known| {
            if known.look == now {
                return true;
            }
            let rest = left.checked_sub(known.value.expose_secret().len());
            left = rest.unwrap_or_default();
            rest.is_some()
        });
        if self.values.len() < before { RedactorChange::Values } else { change }
    }

    /// Builds a redactor of all of them.
    pub(super) fn build_redactor(&self) -> Redactor {
        Redactor::from_forms(self.values.iter().flat_map(|known| known.forms.iter().cloned()).collect())
    }
}
