//! Models and thinking levels as the adapter speaks of them.

use countersign_protocol::{
    JsNumber,
    omp::state::{ModelCost, ModelInput, ModelThinking, ModelThinkingMode as WireMode, OmpModel},
};
pub(crate) use countersign_runtime::model_ref;
use countersign_runtime::models::{InputModality, ModelEntry, ThinkingLevel, ThinkingParameter};
use serde_json::{Value, json};

/// The role of the model that a session works with.
pub(crate) const DEFAULT_ROLE: &str = "default";

/// Returns the model of an answer as a change of the session's own model, which counts if no entry of the session names one: sessions of
/// older versions have no such entry. Source: omp 18.2.3, `session-context.ts`.
pub(crate) fn note_of_answer(answer: &str) -> Option<String> {
    let answer: Value = serde_json::from_str(answer).ok()?;
    let text = |key: &str| answer.get(key).and_then(Value::as_str).filter(|text| !text.is_empty());
    let model = format!("{}/{}", text("provider")?, text("model")?);
    Some(json!({ "model": model, "role": DEFAULT_ROLE }).to_string())
}

/// Returns a model as a host sees it. Headers stay here: they may be keys.
pub(crate) fn to_wire(entry: &ModelEntry) -> OmpModel {
    OmpModel {
        id: entry.id.clone(),
        name: entry.name.clone(),
        api: entry.api.as_str().to_owned(),
        provider: entry.provider.clone(),
        base_url: entry.base_url.clone(),
        reasoning: entry.reasoning,
        input: entry
            .input
            .iter()
            .map(|modality| match modality {
                InputModality::Text => ModelInput::Text,
                InputModality::Image => ModelInput::Image,
            })
            .collect(),
        cost: ModelCost {
            input: JsNumber(entry.cost.input),
            output: JsNumber(entry.cost.output),
            cache_read: JsNumber(entry.cost.cache_read),
            cache_write: JsNumber(entry.cost.cache_write),
        },
        context_window: entry.context_window,
        max_tokens: entry.max_tokens,
        thinking: entry.thinking.map(|thinking| ModelThinking {
            mode: match thinking.mode {
                ThinkingParameter::Effort => WireMode::Effort,
                ThinkingParameter::Budget => WireMode::Budget,
                ThinkingParameter::GoogleLevel => WireMode::GoogleLevel,
                ThinkingParameter::AnthropicAdaptive => WireMode::AnthropicAdaptive,
                ThinkingParameter::AnthropicBudgetEffort => WireMode::AnthropicBudgetEffort,
            },
            min_level: thinking.min_level.as_str().to_owned(),
            max_level: thinking.max_level.as_str().to_owned(),
        }),
        ..OmpModel::default()
    }
}

/// Returns the level that a model gets for `requested`: within its limits, none if it cannot think or the word is no level.
pub(crate) fn clamp_level(entry: &ModelEntry, requested: Option<&str>) -> Option<ThinkingLevel> {
    let level = requested.and_then(ThinkingLevel::parse).filter(|_| entry.reasoning)?;
    let (least, most) = level_limits(entry);
    Some(if level == ThinkingLevel::Off { level } else { level.min(most).max(least) })
}

/// Returns the levels that a model goes through, off first.
pub(crate) fn supported_levels(entry: &ModelEntry) -> Vec<ThinkingLevel> {
    let all =
        [ThinkingLevel::Minimal, ThinkingLevel::Low, ThinkingLevel::Medium, ThinkingLevel::High, ThinkingLevel::Xhigh];
    let (least, most) = level_limits(entry);
    std::iter::once(ThinkingLevel::Off).chain(all.into_iter().filter(|level| (least..=most).contains(level))).collect()
}

/// Returns the least and the most that a model thinks, where it does.
fn level_limits(entry: &ModelEntry) -> (ThinkingLevel, ThinkingLevel) {
    entry
        .thinking
        .map_or((ThinkingLevel::Minimal, ThinkingLevel::High), |thinking| (thinking.min_level, thinking.max_level))
}

#[cfg(test)]
mod tests {
    use countersign_runtime::models::{ModelEntry, ThinkingLevel, ThinkingParameter, ThinkingSupport, demo};

    use super::{clamp_level, supported_levels};

    #[test]
    fn a_level_that_is_set_is_one_of_those_that_are_gone_through() {
        let thinking =
            |min_level, max_level| Some(ThinkingSupport { mode: ThinkingParameter::Effort, min_level, max_level });
        for limits in [
            None,
            thinking(ThinkingLevel::Low, ThinkingLevel::Medium),
            thinking(ThinkingLevel::Minimal, ThinkingLevel::Xhigh),
        ] {
            let entry = ModelEntry { reasoning: true, thinking: limits, ..demo::model_entry() };
            let levels = supported_levels(&entry);
            for word in ["off", "minimal", "low", "medium", "high", "xhigh"] {
                assert!(levels.contains(&clamp_level(&entry, Some(word)).unwrap()), "{word} with {limits:?}");
            }
        }
    }
}
