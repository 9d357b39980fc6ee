use std::{path::Path, sync::LazyLock};

use countersign_config::yaml::{YamlField, YamlNode};
use countersign_runtime::models::entry::{InputModality, ModelApi, ModelEntry, ThinkingLevel, TokenPrice};

use super::{ChooseError, ModelChoice, ModelPreference, ModelRoster};
use crate::{
    AgentDir, AgentProduct, ModelsFile, ProcessEnvironment, ProviderKeys, Restrictions, models_file::ModelsFile as File,
};

static BUILTIN: LazyLock<Vec<ModelEntry>> = LazyLock::new(|| {
    [
        ("anthropic", "claude-sonnet-4-5-20250929"),
        ("anthropic", "claude-sonnet-4-5"),
        ("anthropic", "claude-haiku-4-5"),
        ("openai", "gpt-5"),
        ("openrouter", "anthropic/claude-sonnet-4.5"),
        ("openrouter", "qwen/qwen3:free"),
    ]
    .map(|(provider, id)| ModelEntry {
        id: id.to_owned(),
        name: id.to_owned(),
        api: ModelApi::OpenaiCompletions,
        provider: provider.to_owned(),
        base_url: "http://builtin".to_owned(),
        reasoning: false,
        input: vec![InputModality::Text],
        cost: TokenPrice::default(),
        context_window: 1000,
        max_tokens: 100,
        thinking: None,
        headers: [].into(),
        tells_usage: true,
    })
    .into()
});

fn builtin() -> &'static [ModelEntry] {
    &BUILTIN
}

fn never() -> &'static [ModelEntry] {
    panic!("the built-in catalogue is not needed")
}

const FILE: &str = "providers:
  local: { baseUrl: 'http://local', auth: none, api: openai-completions, models: [ { id: small-1 }, { id: 'qwen:7b' } ] }
  openai: { baseUrl: 'http://proxy', apiKey: sk, modelOverrides: { gpt-5: { maxTokens: 7 } } }
  silent: { baseUrl: 'http://silent', apiKey: '', api: openai-completions, models: [ { id: mute } ] }
";

fn file(text: &str) -> ModelsFile {
    let node = YamlNode::parse(text).unwrap();
    File::from_root(&YamlField::root(Path::new("models.yml"), node.as_ref()))
}

fn roster(variables: &[(&str, &str)]) -> ModelRoster {
    ModelRoster::new(file(FILE), ProviderKeys::new(variables.iter().copied().collect()), builtin)
}

fn name(choice: &ModelChoice) -> String {
    let level = choice.level.map(|level| format!(":{}", level.as_str())).unwrap_or_default();
    format!("{}/{}{level}", choice.entry.provider, choice.entry.id)
}

#[test]
fn only_models_with_a_key_or_without_need_of_one_are_available() {
    let roster = roster(&[]);
    let ids: Vec<_> = roster.available_models().iter().map(|entry| entry.id.clone()).collect();
    assert_eq!(ids, ["small-1", "qwen:7b", "gpt-5"]);
    let gpt = roster.exact_model("openai", "gpt-5").unwrap();
    assert_eq!((gpt.base_url.as_str(), gpt.max_tokens), ("http://proxy", 7));
}

#[test]
fn an_own_model_takes_the_place_of_a_builtin_one() {
    let text =
        "providers: { openai: { baseUrl: 'http://own', apiKey: k, api: openai-responses, models: [ { id: gpt-5 } ] } }";
    let roster = ModelRoster::new(file(text), ProviderKeys::default(), builtin);
    let available: Vec<_> = roster.available_models().iter().map(|entry| entry.base_url.clone()).collect();
    assert_eq!(available, ["http://own"]);
    assert_eq!(roster.find_model(None, "gpt-5").unwrap().entry.api, ModelApi::OpenaiResponses);
}

#[test]
fn the_catalogue_is_not_read_where_own_models_decide() {
    let text =
        "providers: { local: { baseUrl: 'http://l', auth: none, api: openai-completions, models: [ { id: a } ] } }";
    let roster = ModelRoster::new(file(text), ProviderKeys::default(), never);
    assert_eq!(name(&roster.find_model(Some("local"), "a").unwrap()), "local/a");
    assert_eq!(name(&roster.find_model(None, "local/a:low").unwrap()), "local/a:low");
    assert_eq!(
        name(&roster.initial_model(ModelPreference { saved: Some("local/a"), ..ModelPreference::default() }).unwrap()),
        "local/a"
    );
    assert_eq!(name(&roster.initial_model(ModelPreference::default()).unwrap()), "local/a");
}

#[test]
fn a_model_is_found_by_what_people_write() {
    let roster = roster(&[("ANTHROPIC_API_KEY", "k")]);
    for (provider, query, want) in [
        (None, "local/small-1", Ok("local/small-1")),
        (Some("local"), "small-1", Ok("local/small-1")),
        (Some("LOCAL"), "small-1", Ok("local/small-1")),
        (None, "small-1:high", Ok("local/small-1:high")),
        (None, "qwen:7b", Ok("local/qwen:7b")),
        (None, "qwen:7b:off", Ok("local/qwen:7b:off")),
        (None, "openrouter/qwen/qwen3:free", Ok("openrouter/qwen/qwen3:free")),
        (None, "qwen/qwen3:free:low", Ok("openrouter/qwen/qwen3:free:low")),
        (None, "sonnet", Ok("anthropic/claude-sonnet-4-5")),
        (None, "Sonnet:medium", Ok("anthropic/claude-sonnet-4-5:medium")),
        (None, "claude-sonnet-4-5-20250929", Ok("anthropic/claude-sonnet-4-5-20250929")),
        (Some("openrouter"), "sonnet", Ok("openrouter/anthropic/claude-sonnet-4.5")),
        (None, "openrouter/sonnet", Ok("openrouter/anthropic/claude-sonnet-4.5")),
        (None, "mute", Ok("silent/mute")),
        (None, "nothing", Err("nothing")),
        (Some("local"), "sonnet", Err("local/sonnet")),
    ] {
        let got = roster.find_model(provider, query);
        assert_eq!(
            got.as_ref().map(name),
            want.map(str::to_owned).map_err(|text| &*Box::leak(Box::new(ChooseError::Unknown(text.to_owned())))),
            "{query}"
        );
    }
}

#[test]
fn patterns_give_each_model_once_in_their_order() {
    let roster = roster(&[("ANTHROPIC_API_KEY", "k")]);
    let (choices, unmatched) =
        roster.scoped_models(&["anthropic/*:low", "local/small-1", "haiku", "openrouter/*", "silent/*"]);
    assert_eq!(
        choices.iter().map(name).collect::<Vec<_>>(),
        [
            "anthropic/claude-sonnet-4-5-20250929:low",
            "anthropic/claude-sonnet-4-5:low",
            "anthropic/claude-haiku-4-5:low",
            "local/small-1",
        ]
    );
    assert_eq!(unmatched, ["openrouter/*", "silent/*"]);
}

#[test]
fn the_first_model_is_the_strongest_wish() {
    let roster = roster(&[("ANTHROPIC_API_KEY", "k")]);
    let scoped = [roster.find_model(None, "haiku:low").unwrap()];
    for (case, wish, want) in [
        (
            "command line",
            ModelPreference {
                provider: Some("local"),
                model: Some("small-1"),
                scoped: &scoped,
                saved: Some("openai/gpt-5"),
            },
            "local/small-1",
        ),
        (
            "provider alone",
            ModelPreference { provider: Some("anthropic"), ..ModelPreference::default() },
            "anthropic/claude-sonnet-4-5",
        ),
        (
            "scoped",
            ModelPreference { scoped: &scoped, saved: Some("openai/gpt-5"), ..ModelPreference::default() },
            "anthropic/claude-haiku-4-5:low",
        ),
        ("saved", ModelPreference { saved: Some("openai/gpt-5"), ..ModelPreference::default() }, "openai/gpt-5"),
        (
            "saved without a key",
            ModelPreference { saved: Some("silent/mute"), ..ModelPreference::default() },
            "anthropic/claude-sonnet-4-5",
        ),
        ("nothing", ModelPreference::default(), "anthropic/claude-sonnet-4-5"),
    ] {
        assert_eq!(roster.initial_model(wish).as_ref().map(name), Ok(want.to_owned()), "{case}");
    }
    let empty = ModelRoster::new(ModelsFile::default(), ProviderKeys::default(), builtin);
    assert_eq!(empty.initial_model(ModelPreference::default()), Err(ChooseError::None));
    let environment: ProcessEnvironment = [("HOME", "/home/ana")].into_iter().collect();
    let folder = AgentDir::resolve(AgentProduct::Omp, &environment, Path::new("/work"), |_| false).unwrap();
    assert!(ChooseError::None.text_for(&folder).contains("add a provider to /home/ana/.omp/agent/models.yml"));
    assert_eq!(
        roster.initial_model(ModelPreference { model: Some("no such"), ..ModelPreference::default() }),
        Err(ChooseError::Unknown("no such".to_owned()))
    );
    assert_eq!(ThinkingLevel::parse("low"), scoped[0].level);
}

#[test]
fn each_built_in_provider_has_a_usual_model() {
    let all: Vec<&ModelEntry> = countersign_runtime::models::catalogue::builtin_models().iter().collect();
    let usual: std::collections::BTreeMap<&str, &str> = all
        .iter()
        .filter_map(|entry| super::preferred_model(&all, &entry.provider))
        .map(|entry| (entry.provider.as_str(), entry.id.as_str()))
        .collect();
    let listed: std::collections::BTreeSet<&str> = all.iter().map(|entry| entry.provider.as_str()).collect();
    assert_eq!(usual.keys().copied().collect::<Vec<_>>(), listed.into_iter().collect::<Vec<_>>());
    assert_eq!(usual["openai"], "gpt-5.2");
    assert_eq!(usual["xai"], "grok-4");
}

#[test]
fn missing_models_are_reported_as_written() {
    let nameless = ModelPreference { provider: Some("nope"), ..ModelPreference::default() };
    assert_eq!(
        roster(&[]).initial_model(nameless).unwrap_err().to_string(),
        "Model not found: there is no provider \"nope\" with models"
    );
    let none = ModelRoster::new(file("providers: {}"), ProviderKeys::new(ProcessEnvironment::default()), builtin);
    let message = none.initial_model(ModelPreference::default()).unwrap_err().to_string();
    for word in ["ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY", "models.yml", "--provider demo"] {
        assert!(message.contains(word), "{message}");
    }
}

#[test]
fn models_of_a_provider_that_is_switched_off_cannot_be_had() {
    let node = YamlNode::parse("disabledProviders: [LOCAL]").unwrap();
    let mut restrictions = Restrictions::default();
    restrictions.apply_file(&YamlField::root(Path::new("config.yml"), node.as_ref())).unwrap();
    let roster = roster(&[]).with_restrictions(restrictions);
    assert!(roster.available_models().iter().all(|entry| entry.provider != "local"));
    assert!(roster.exact_model("local", "small-1").is_none() && roster.exact_model("openai", "gpt-5").is_some());
    assert_eq!(roster.scoped_models(&["small-1"]), (Vec::new(), vec!["small-1"]));
    let wish = |provider, model| {
        roster.initial_model(ModelPreference { provider, model, ..ModelPreference::default() }).map(|_| ())
    };
    for (provider, model) in [(Some("local"), None), (None, Some("local/small-1")), (Some("local"), Some("small-1"))] {
        assert_eq!(wish(provider, model), Err(ChooseError::Disabled("local".to_owned())));
    }
    assert!(wish(None, Some("small-1")).is_err());
    assert_eq!(wish(Some("openai"), None), Ok(()));
}
