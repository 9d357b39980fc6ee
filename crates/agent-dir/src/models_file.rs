//! The user's providers and models: `models.yml`, or `models.json` where there is no `models.yml`.
//!
//! It must not know the built-in catalogue or any key. A faulty entry is reported and left out; the rest counts. Source:
//! docs/protocol/omp.md, Configuration.

use std::{collections::BTreeMap, fmt};

use countersign_config::yaml::{WrongType, YamlField, YamlNode};
use countersign_runtime::models::entry::{
    InputModality, ModelApi, ModelEntry, ThinkingLevel, ThinkingParameter, ThinkingSupport, TokenPrice,
};

use super::AgentDir;

/// Everything of the file that can be used.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ModelsFile {
    /// By name.
    pub providers: BTreeMap<String, ModelProvider>,
    /// Entries that were left out and the reason, one line each. Never holds a value of the file.
    pub problems: Vec<String>,
}

/// One provider. Without models it changes the built-in ones of the same name.
#[derive(Clone, Default, PartialEq)]
pub struct ModelProvider {
    /// `baseUrl`.
    pub base_url: Option<String>,
    /// `apiKey`: the name of a variable, else the key itself.
    pub api_key: Option<String>,
    /// `auth`.
    pub auth: ProviderAuth,
    /// True for `authHeader`: the key also travels as `Authorization: Bearer`.
    pub auth_header: bool,
    /// `headers` of every request.
    pub headers: BTreeMap<String, String>,
    /// `models`, whole.
    pub models: Vec<ModelEntry>,
    /// `compat.supportsUsageInStreaming`.
    pub tells_usage: Option<bool>,
    /// `modelOverrides` by model id.
    pub overrides: BTreeMap<String, ModelOverride>,
}

impl fmt::Debug for ModelProvider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ModelProvider")
            .field("base_url", &self.base_url)
            .field("models", &self.models)
            .finish_non_exhaustive()
    }
}

/// Need of a provider for a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ProviderAuth {
    /// A key is needed.
    #[default]
    ApiKey,
    /// No key is needed.
    None,
}

/// Changes of a model. An absent value leaves it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ModelOverride {
    name: Option<String>,
    reasoning: Option<bool>,
    thinking: Option<ThinkingSupport>,
    input: Option<Vec<InputModality>>,
    cost: [Option<f64>; 4],
    context_window: Option<u64>,
    max_tokens: Option<u64>,
    headers: BTreeMap<String, String>,
    tells_usage: Option<bool>,
}

impl ModelOverride {
    /// Changes `entry`.
    pub fn apply_to(&self, entry: &mut ModelEntry) {
        if let Some(name) = &self.name {
            entry.name.clone_from(name);
        }
        entry.reasoning = self.reasoning.unwrap_or(entry.reasoning);
        entry.thinking = self.thinking.or(entry.thinking);
        if let Some(input) = &self.input {
            entry.input.clone_from(input);
        }
        let [input, output, cache_read, cache_write] = self.cost;
        let old = entry.cost;
        entry.cost = TokenPrice {
            input: input.unwrap_or(old.input),
            output: output.unwrap_or(old.output),
            cache_read: cache_read.unwrap_or(old.cache_read),
            cache_write: cache_write.unwrap_or(old.cache_write),
        };
        entry.context_window = self.context_window.unwrap_or(entry.context_window);
        entry.max_tokens = self.max_tokens.unwrap_or(entry.max_tokens);
        entry.headers.extend(self.headers.clone());
        entry.tells_usage = self.tells_usage.unwrap_or(entry.tells_usage);
    }
}

impl ModelsFile {
    /// Reads the file of `folder`; without one the result is empty. Never fails: all faults are in `problems`.
    pub fn load(folder: &AgentDir) -> Self {
        for path in folder.models_paths() {
            match YamlNode::read_file(&path) {
                Ok(None) => {}
                Ok(Some(node)) => return Self::from_root(&YamlField::root(&path, Some(&node))),
                Err(error) => return Self { problems: vec![error.to_string()], ..Self::default() },
            }
        }
        Self::default()
    }

    pub(super) fn from_root(root: &YamlField<'_>) -> Self {
        let mut file = Self::default();
        // A slip in the one key that counts would else leave out everything without a word.
        if let Ok(members) = root.members()
            && !members.iter().any(|(key, _)| *key == "providers")
        {
            for (key, place) in members {
                let (file_name, line) = (place.file().display(), place.line());
                file.problems
                    .push(format!("{file_name}:{line}: {key}: unknown key; the models are under \"providers\""));
            }
        }
        match root.at("providers").and_then(|providers| providers.members()) {
            Ok(providers) => {
                for (name, place) in providers {
                    match read_provider(name, &place, &mut file.problems) {
                        Ok(provider) => drop(file.providers.insert(name.to_owned(), provider)),
                        Err(error) => file.problems.push(error.to_string()),
                    }
                }
            }
            Err(error) => file.problems.push(error.to_string()),
        }
        file
    }
}

fn read_provider(name: &str, place: &YamlField<'_>, problems: &mut Vec<String>) -> Result<ModelProvider, WrongType> {
    let text = |key| Ok::<_, WrongType>(place.at(key)?.text()?.map(str::to_owned));
    let mut provider = ModelProvider {
        base_url: text("baseUrl")?.map(|url| url.trim_end_matches('/').to_owned()),
        api_key: text("apiKey")?,
        auth: match place.at("auth")?.text()? {
            None | Some("apiKey") => ProviderAuth::ApiKey,
            Some("none") => ProviderAuth::None,
            // Sign-in with a browser is not there: without another key such a provider is not usable.
            Some("oauth") => ProviderAuth::ApiKey,
            Some(_) => return Err(place.at("auth")?.type_error("apiKey or none")),
        },
        auth_header: place.at("authHeader")?.flag()?.unwrap_or(false),
        headers: read_headers(&place.at("headers")?)?,
        tells_usage: tells_usage(place)?,
        ..ModelProvider::default()
    };
    for (id, changed) in place.at("modelOverrides")?.members()? {
        match read_override(&changed) {
            Ok(changes) => drop(provider.overrides.insert(id.to_owned(), changes)),
            Err(error) => problems.push(error.to_string()),
        }
    }
    let models = place.at("models")?.items()?.unwrap_or_default();
    // Of each model it is looked at with the model.
    if models.is_empty() {
        let api = place.at("api")?;
        if !api.is_absent()
            && let Err(error) = known_api(&api)
        {
            problems.push(error.to_string());
        }
    }
    for model in models {
        match read_entry(name, &provider, place, &model) {
            Ok(entry) => provider.models.push(entry),
            Err(error) => problems.push(error.to_string()),
        }
    }
    Ok(provider)
}

fn known_api(api: &YamlField<'_>) -> Result<ModelApi, WrongType> {
    api.text()?.and_then(|api| api.parse::<ModelApi>().ok()).ok_or_else(|| {
        api.type_error("anthropic-messages, openai-completions, openai-responses or google-generative-ai")
    })
}

fn read_entry(
    name: &str,
    provider: &ModelProvider,
    settings: &YamlField<'_>,
    model: &YamlField<'_>,
) -> Result<ModelEntry, WrongType> {
    let id = model.at("id")?;
    let id = id.text()?.filter(|id| !id.is_empty()).ok_or_else(|| id.type_error("the id of the model"))?;
    let own = model.at("api")?;
    let api = if own.is_absent() { settings.at("api")? } else { own };
    let api = known_api(&api)?;
    let url = settings.at("baseUrl")?;
    let base_url = match model.at("baseUrl")?.text()? {
        Some(own) => own.trim_end_matches('/').to_owned(),
        None => provider.base_url.clone().ok_or_else(|| url.type_error("the address of the provider"))?,
    };
    if provider.auth == ProviderAuth::ApiKey && provider.api_key.is_none() {
        return Err(settings.at("apiKey")?.type_error("a key, the name of a variable that holds it, or auth: none"));
    }
    let mut entry = ModelEntry {
        id: id.to_owned(),
        name: id.to_owned(),
        api,
        provider: name.to_owned(),
        base_url,
        reasoning: false,
        input: vec![InputModality::Text],
        cost: TokenPrice::default(),
        context_window: 128_000,
        max_tokens: 16_384,
        thinking: None,
        headers: provider.headers.clone(),
        tells_usage: provider.tells_usage.unwrap_or(true),
    };
    read_override(model)?.apply_to(&mut entry);
    if let Some(changes) = provider.overrides.get(id) {
        changes.apply_to(&mut entry);
    }
    if entry.reasoning {
        entry.thinking = entry.thinking.or_else(|| Some(usual_thinking(api)));
    }
    Ok(entry)
}

/// Returns the default thinking of a model that reasons without an entry about it: at any level, in the way of its wire.
const fn usual_thinking(api: ModelApi) -> ThinkingSupport {
    let mode = match api {
        ModelApi::OpenaiCompletions | ModelApi::OpenaiResponses | ModelApi::Demo => ThinkingParameter::Effort,
        ModelApi::AnthropicMessages | ModelApi::GoogleGenerativeAi => ThinkingParameter::Budget,
    };
    ThinkingSupport { mode, min_level: ThinkingLevel::Minimal, max_level: ThinkingLevel::Xhigh }
}

fn read_override(place: &YamlField<'_>) -> Result<ModelOverride, WrongType> {
    let cost = place.at("cost")?;
    let price = |key| cost.at(key)?.non_negative();
    let window = place.at("contextWindow")?;
    let limit = place.at("maxTokens")?;
    let above_zero = |place: &YamlField<'_>| match place.whole_number()? {
        Some(0) => Err(place.type_error("a number above zero")),
        other => Ok(other),
    };
    Ok(ModelOverride {
        name: place.at("name")?.text()?.map(str::to_owned),
        reasoning: place.at("reasoning")?.flag()?,
        thinking: read_thinking(&place.at("thinking")?)?,
        input: read_modalities(&place.at("input")?)?,
        cost: [price("input")?, price("output")?, price("cacheRead")?, price("cacheWrite")?],
        context_window: above_zero(&window)?,
        max_tokens: above_zero(&limit)?,
        headers: read_headers(&place.at("headers")?)?,
        tells_usage: tells_usage(place)?,
    })
}

/// Reads the setting in `compat` for whether an answer's end reports its usage.
fn tells_usage(place: &YamlField<'_>) -> Result<Option<bool>, WrongType> {
    place.at("compat")?.at("supportsUsageInStreaming")?.flag()
}

fn read_headers(place: &YamlField<'_>) -> Result<BTreeMap<String, String>, WrongType> {
    let mut headers = BTreeMap::new();
    for (name, value) in place.members()? {
        if let Some(value) = value.text()? {
            headers.insert(name.to_owned(), value.to_owned());
        }
    }
    Ok(headers)
}

fn read_modalities(place: &YamlField<'_>) -> Result<Option<Vec<InputModality>>, WrongType> {
    let Some(items) = place.items()? else { return Ok(None) };
    let modality = |item: &YamlField<'_>| match item.text()? {
        Some("text") => Ok(InputModality::Text),
        Some("image") => Ok(InputModality::Image),
        Some(_) | None => Err(item.type_error("text or image")),
    };
    items.iter().map(modality).collect::<Result<Vec<_>, _>>().map(Some)
}

fn read_thinking(place: &YamlField<'_>) -> Result<Option<ThinkingSupport>, WrongType> {
    if place.is_absent() {
        return Ok(None);
    }
    let mode = place.at("mode")?;
    let mode = match mode.text()? {
        Some("effort") => ThinkingParameter::Effort,
        Some("budget") => ThinkingParameter::Budget,
        Some("google-level") => ThinkingParameter::GoogleLevel,
        Some("anthropic-adaptive") => ThinkingParameter::AnthropicAdaptive,
        Some("anthropic-budget-effort") => ThinkingParameter::AnthropicBudgetEffort,
        Some(_) | None => {
            return Err(mode.type_error("effort, budget, google-level, anthropic-adaptive or anthropic-budget-effort"));
        }
    };
    let level = |key, usual| -> Result<ThinkingLevel, WrongType> {
        let place = place.at(key)?;
        match place.text()? {
            None => Ok(usual),
            Some(name) => {
                ThinkingLevel::parse(name).ok_or_else(|| place.type_error("minimal, low, medium, high or xhigh"))
            }
        }
    };
    Ok(Some(ThinkingSupport {
        mode,
        min_level: level("minLevel", ThinkingLevel::Minimal)?,
        max_level: level("maxLevel", ThinkingLevel::High)?,
    }))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use countersign_runtime::models::entry::{
        InputModality, ModelApi, ModelEntry, ThinkingLevel, ThinkingParameter, ThinkingSupport, TokenPrice,
    };

    use super::{ModelsFile, ProviderAuth};
    use countersign_config::yaml::{YamlField, YamlNode};

    fn parse(text: &str) -> ModelsFile {
        let node = YamlNode::parse(text).unwrap();
        ModelsFile::from_root(&YamlField::root(Path::new("models.yml"), node.as_ref()))
    }

    #[test]
    fn the_example_of_the_specification_is_read_whole() {
        let file = parse(
            "# models.yml
providers:
  local:
    baseUrl: http://127.0.0.1:11434/v1/    # the request goes to {baseUrl}/chat/completions
    apiKey: LOCAL_KEY
    api: openai-completions
    models:
      - { id: small-1, name: Small One, reasoning: true, input: [text, image], cost: { input: 1, output: 2, cacheRead: 0.1, cacheWrite: 0.2 }, contextWindow: 128000, maxTokens: 8192 }
  claude:
    baseUrl: http://127.0.0.1:9000
    auth: none
    api: openai-completions
    headers: { X-One: a }
    compat: { supportsUsageInStreaming: false, supportsStore: false }
    modelOverrides: { claude-1: { maxTokens: 5, headers: { X-Two: b } } }
    models: [ { id: claude-1, api: anthropic-messages, maxTokens: 64000 } ]
",
        );
        assert_eq!(file.problems, Vec::<String>::new());
        let small = ModelEntry {
            id: "small-1".to_owned(),
            name: "Small One".to_owned(),
            api: ModelApi::OpenaiCompletions,
            provider: "local".to_owned(),
            base_url: "http://127.0.0.1:11434/v1".to_owned(),
            reasoning: true,
            input: vec![InputModality::Text, InputModality::Image],
            cost: TokenPrice { input: 1.0, output: 2.0, cache_read: 0.1, cache_write: 0.2 },
            context_window: 128_000,
            max_tokens: 8192,
            // It reasons, and its entry says no more.
            thinking: Some(ThinkingSupport {
                mode: ThinkingParameter::Effort,
                min_level: ThinkingLevel::Minimal,
                max_level: ThinkingLevel::Xhigh,
            }),
            headers: [].into(),
            tells_usage: true,
        };
        assert_eq!(file.providers["local"].models, std::slice::from_ref(&small));
        assert_eq!(file.providers["local"].api_key.as_deref(), Some("LOCAL_KEY"));
        let claude = ModelEntry {
            id: "claude-1".to_owned(),
            name: "claude-1".to_owned(),
            api: ModelApi::AnthropicMessages,
            provider: "claude".to_owned(),
            base_url: "http://127.0.0.1:9000".to_owned(),
            reasoning: false,
            input: vec![InputModality::Text],
            cost: TokenPrice::default(),
            max_tokens: 5,
            thinking: None,
            tells_usage: false,
            headers: [("X-One", "a"), ("X-Two", "b")].map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
            ..small
        };
        assert_eq!(file.providers["claude"].models, [claude]);
        assert_eq!(file.providers["claude"].auth, ProviderAuth::None);
    }

    #[test]
    fn a_file_without_providers_says_what_it_has_in_their_place() {
        for (text, want) in [
            (
                "# mine\nprovider:\n  a: { auth: none }\n",
                "models.yml:2: provider: unknown key; the models are under \"providers\"",
            ),
            ("just text", "models.yml:1: expected a mapping, found other text"),
        ] {
            assert_eq!(parse(text).problems, [want]);
        }
        assert_eq!(parse("configVersion: 1\nproviders: {}\n").problems, Vec::<String>::new());
    }

    #[test]
    fn what_is_wrong_is_named_and_the_rest_counts() {
        let file = parse(
            "providers:
  a: { baseUrl: 'http://a', apiKey: secret-key, api: openai-codex-responses, models: [ { id: x }, { id: y, api: openai-responses } ] }
  b: { apiKey: k, api: openai-responses, models: [ { id: x } ] }
  c: { baseUrl: 'http://c', api: openai-responses, models: [ { id: x } ] }
  d: { baseUrl: 7 }
  e: { baseUrl: 'http://e', auth: none, api: openai-responses, models: [ { name: x }, { id: x, input: [smell] }, { id: z, contextWindow: 0 }, { id: ok } ] }
  f: { auth: none, api: openai }
",
        );
        let usable: Vec<_> = file
            .providers
            .values()
            .flat_map(|provider| &provider.models)
            .map(|entry| (entry.provider.as_str(), entry.id.as_str()))
            .collect();
        assert_eq!(usable, [("a", "y"), ("e", "ok")]);
        assert_eq!(
            file.problems,
            [
                "models.yml:2: providers.a.api: expected anthropic-messages, openai-completions, openai-responses or google-generative-ai, found other text",
                "models.yml:3: providers.b.baseUrl: expected the address of the provider, found nothing",
                "models.yml:4: providers.c.apiKey: expected a key, the name of a variable that holds it, or auth: none, found nothing",
                "models.yml:5: providers.d.baseUrl: expected text (quote it if it looks like something else), found a number",
                "models.yml:6: providers.e.models.0.id: expected the id of the model, found nothing",
                "models.yml:6: providers.e.models.1.input.0: expected text or image, found other text",
                "models.yml:6: providers.e.models.2.contextWindow: expected a number above zero, found a number",
                "models.yml:7: providers.f.api: expected anthropic-messages, openai-completions, openai-responses or google-generative-ai, found other text",
            ]
        );
    }
}
