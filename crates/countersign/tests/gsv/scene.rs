//! A gateway whose runs ask a scripted model, for clients, nodes and channels.

use crate::{gateway::Gateway, peer::Peer, place::Place, provider::Provider};

/// What peers show.
pub(crate) const TOKEN: &str = "tok-clients-31bd";
/// The rules of most tests: what changes something is asked about, the rest is not.
pub(crate) const RULES: &str = "
defaults:
  - { pattern: 'bash(*', action: ask }
  - { pattern: 'write(*', action: ask }
  - { pattern: '*', action: allow }
";

pub(crate) struct Scene {
    pub(crate) place: Place,
    pub(crate) provider: Provider,
}

impl Scene {
    pub(crate) fn new() -> Self {
        Self::with(&format!("clients: {{ token: {TOKEN} }}\n"))
    }

    /// With these rules.
    pub(crate) fn ruled(rules: &str) -> Self {
        Self::build(&format!("clients: {{ token: {TOKEN} }}\n"), rules)
    }

    /// With these lines in the configuration, beside those of the model.
    pub(crate) fn with(more: &str) -> Self {
        Self::build(more, RULES)
    }

    fn build(more: &str, rules: &str) -> Self {
        let provider = Provider::start();
        let models = format!(
            "agents_dir: agents\nmodel: {{ provider: local, id: small-1 }}\nproviders:\n  local:\n    api: openai-completions\n    base_url: {}/v1\n    api_key: key\n    models: [ {{ id: small-1, context_window: 100000, max_tokens: 4096 }}, {{ id: small-2, input: [text, image], context_window: 100000, max_tokens: 4096 }} ]\n",
            provider.url
        );
        Self { place: Place::with(&format!("{models}{more}"), rules), provider }
    }

    pub(crate) fn start(&self) -> Gateway {
        Gateway::start(&self.place)
    }

    /// A gateway and a client that is connected.
    pub(crate) fn client(&self) -> (Gateway, Peer) {
        let gateway = self.start();
        let client = Peer::client(&gateway, "tester");
        (gateway, client)
    }
}
