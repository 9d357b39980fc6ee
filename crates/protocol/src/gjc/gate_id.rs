//! Names gates, and answers to them, by pure functions of what they are about.
//!
//! It must not know where counters and answers are kept. Source: docs/protocol/gjc.md, Workflow gates.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::schema::canonical_hash;
use super::workflow::WorkflowStage;

/// Returns the id of the `number`th gate that `run` opened in `stage`, counted from 1.
pub fn gate_id(run: &str, stage: WorkflowStage, number: u32) -> String {
    let letters: Vec<char> = run.chars().filter(char::is_ascii_alphanumeric).collect();
    let short: String = letters[letters.len().saturating_sub(8)..].iter().collect();
    let short = if short.is_empty() { "run" } else { &short };
    format!("wg_{short}_{}_{number:06}", stage.name())
}

/// Returns the hash of gate and answer together, which distinguishes two answers to one gate.
pub fn body_hash(gate_id: &str, answer: &Value) -> String {
    canonical_hash(&json!({ "gate_id": gate_id, "answer": answer }))
}

/// Number of gates that a run opened in each stage.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct StageCounters(BTreeMap<WorkflowStage, u32>);

impl StageCounters {
    /// Notes that the gates of `stage` up to `number` are taken.
    pub fn raise_to(&mut self, stage: WorkflowStage, number: u32) {
        let count = self.0.entry(stage).or_default();
        *count = number.max(*count);
    }

    /// Returns the number of the next gate of `stage`, which is taken then.
    pub fn next_number(&mut self, stage: WorkflowStage) -> u32 {
        let count = self.0.entry(stage).or_default();
        *count += 1;
        *count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_names_run_stage_and_number() {
        for (run, stage, number, want) in [
            ("0199aa48-45", WorkflowStage::Ralplan, 1, "wg_99aa4845_ralplan_000001"),
            ("4845", WorkflowStage::Ralplan, 1, "wg_4845_ralplan_000001"),
            (
                "0193b8a0-7c4e-7000-8000-0123456789ab",
                WorkflowStage::DeepInterview,
                42,
                "wg_456789ab_deep-interview_000042",
            ),
            ("---", WorkflowStage::Ultragoal, 1_000_000, "wg_run_ultragoal_1000000"),
            ("é", WorkflowStage::Ultragoal, 7, "wg_run_ultragoal_000007"),
        ] {
            assert_eq!(gate_id(run, stage, number), want, "{run}");
        }
    }

    #[test]
    fn stages_are_counted_apart_and_the_counts_survive() {
        let mut counters = StageCounters::default();
        let taken = [WorkflowStage::Ralplan, WorkflowStage::Ralplan, WorkflowStage::DeepInterview]
            .map(|stage| counters.next_number(stage));
        assert_eq!(taken, [1, 2, 1]);
        let text = serde_json::to_string(&counters).unwrap();
        assert_eq!(text, r#"{"deep-interview":1,"ralplan":2}"#);
        let mut again: StageCounters = serde_json::from_str(&text).unwrap();
        assert_eq!(again.next_number(WorkflowStage::Ralplan), 3);
        again.raise_to(WorkflowStage::Ralplan, 7);
        again.raise_to(WorkflowStage::Ralplan, 5);
        assert_eq!(again.next_number(WorkflowStage::Ralplan), 8);
    }

    #[test]
    fn a_body_is_its_gate_and_its_answer() {
        let hash = body_hash("wg_99aa4845_ralplan_000001", &json!("approve"));
        assert_eq!(hash, "efd9039ea53c1df1792ce5050fcd609b9c5ab42a64d3201f622235500446ef9a");
        assert_ne!(hash, body_hash("wg_99aa4845_ralplan_000002", &json!("approve")));
        assert_ne!(hash, body_hash("wg_99aa4845_ralplan_000001", &json!("reject")));
    }
}
