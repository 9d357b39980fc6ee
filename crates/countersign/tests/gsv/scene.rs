//! A gateway whose runs ask a scripted model, for clients, nodes and channels.

use serde_json::json;

use crate::{
    gateway::Gateway,
    peer::Peer,
    place::Place,
    provider::{Part, Provider, call},
};

/// What peers show.
pub(crate) const TOKEN: &str = "tok-clients-31bd";
/// The rules of most tests: what changes something is asked about, the rest is not.
pub(crate) const RULES: &str = "
defaults:
  - { pattern: 'gsv__EditFile(marks)', action: ask }
  - { pattern: 'gsv__WriteFile(*.txt)', action: ask }
  - { pattern: '*', action: allow }
";

/// A call that asks, and writes a file.
pub(crate) fn write(id: &str, path: &str) -> Part {
    call(id, "gsv__WriteFile", &json!({ "path": path, "content": "by the agent\n" }))
}

/// A call that asks, and leaves a mark each time that it is done.
pub(crate) fn mark(id: &str) -> Part {
    call(id, "gsv__EditFile", &json!({ "path": "marks", "oldString": "marks:", "newString": "marks: once" }))
}

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

    /// Where [`mark`] leaves its marks; none are there yet.
    pub(crate) fn to_mark(&self) {
        let folder = self.place.folder.join("agents/main");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("marks"), "marks:\n").unwrap();
    }

    /// What calls of [`mark`] left.
    pub(crate) fn marks(&self) -> String {
        std::fs::read_to_string(self.place.folder.join("agents/main/marks")).unwrap()
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
