//! Models and thinking levels as the door speaks of them.

use countersign_protocol::{
    JsNumber,
    omp::state::{ModelCost, ModelInput, ModelThinking, ModelThinkingMode as WireMode, OmpModel},
};
pub(crate) use countersign_runtime::model_ref;
use countersign_runtime::models::{Entry, Level, Modality, ThinkingMode};

/// A model as a host sees it. Headers stay here: they may be keys.
pub(crate) fn wire(entry: &Entry) -> OmpModel {
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
                Modality::Text => ModelInput::Text,
                Modality::Image => ModelInput::Image,
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
                ThinkingMode::Effort => WireMode::Effort,
                ThinkingMode::Budget => WireMode::Budget,
                ThinkingMode::GoogleLevel => WireMode::GoogleLevel,
                ThinkingMode::AnthropicAdaptive => WireMode::AnthropicAdaptive,
                ThinkingMode::AnthropicBudgetEffort => WireMode::AnthropicBudgetEffort,
            },
            min_level: thinking.min_level.as_str().to_owned(),
            max_level: thinking.max_level.as_str().to_owned(),
        }),
        ..OmpModel::default()
    }
}

/// The level that a model gets for `wanted`: within its limits, none where it cannot think or the word is no level.
pub(crate) fn level(entry: &Entry, wanted: Option<&str>) -> Option<Level> {
    let level = wanted.and_then(Level::parse).filter(|_| entry.reasoning)?;
    let (least, most) = limits(entry);
    Some(if level == Level::Off { level } else { level.min(most).max(least) })
}

/// The levels that a model goes through, off first.
pub(crate) fn levels(entry: &Entry) -> Vec<Level> {
    let all = [Level::Minimal, Level::Low, Level::Medium, Level::High, Level::Xhigh];
    let (least, most) = limits(entry);
    std::iter::once(Level::Off).chain(all.into_iter().filter(|level| (least..=most).contains(level))).collect()
}

/// The least and the most that a model thinks, where it does.
fn limits(entry: &Entry) -> (Level, Level) {
    entry.thinking.map_or((Level::Minimal, Level::High), |thinking| (thinking.min_level, thinking.max_level))
}

#[cfg(test)]
mod tests {
    use countersign_runtime::models::{Entry, Level, Thinking, ThinkingMode, demo};

    use super::{level, levels};

    #[test]
    fn a_level_that_is_set_is_one_of_those_that_are_gone_through() {
        let thinking = |min_level, max_level| Some(Thinking { mode: ThinkingMode::Effort, min_level, max_level });
        for limits in [None, thinking(Level::Low, Level::Medium), thinking(Level::Minimal, Level::Xhigh)] {
            let entry = Entry { reasoning: true, thinking: limits, ..demo::entry() };
            let levels = levels(&entry);
            for word in ["off", "minimal", "low", "medium", "high", "xhigh"] {
                assert!(levels.contains(&level(&entry, Some(word)).unwrap()), "{word} with {limits:?}");
            }
        }
    }
}
