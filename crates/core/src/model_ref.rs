//! Models as runs, contracts and sessions name them.

use serde::{Deserialize, Serialize};

/// A model as a run needs to know it. The catalogue has the rest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelRef {
    /// The provider's name in the settings.
    pub provider: String,
    /// The model's id at the provider.
    pub id: String,
    /// Tokens that fit into one request, its answer included.
    pub context_window: u64,
    /// Tokens that it can write at most.
    pub max_tokens: u64,
    /// Its price; absent if unknown, which counts as nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub price: Option<ModelPrice>,
}

/// Price of a model's tokens, in micro-dollars a million of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelPrice {
    /// Price of input: the dearest kind.
    pub input: u64,
    /// Price of output.
    pub output: u64,
}

impl ModelRef {
    /// Returns whether both name the same model of the same provider, with any details.
    pub fn is_same(&self, other: &Self) -> bool {
        (&self.provider, &self.id) == (&other.provider, &other.id)
    }

    /// Returns the maximum cost of a request of so many tokens, in micro-dollars.
    pub fn cost_micros(&self, input: u64, output: u64) -> u64 {
        let ModelPrice { input: read, output: written } = self.price.unwrap_or_default();
        let total = u128::from(input) * u128::from(read) + u128::from(output) * u128::from(written);
        u64::try_from(total.div_ceil(1_000_000)).unwrap_or(u64::MAX)
    }
}
