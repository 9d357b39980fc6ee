//! Settings of the questions of runs of an adapter's sessions, from the user's settings and the dialect.

use countersign_agent_dir as agent_dir;
use countersign_core::session::QuestionSettings;

use super::dialect_options::DialectOptions;

/// Returns the settings of the questions of runs of a session.
pub(super) fn question_settings(settings: &agent_dir::AgentSettings, dialect: &DialectOptions) -> QuestionSettings {
    let gates = &settings.ours.gates;
    QuestionSettings {
        nobody: dialect.nobody.map(str::to_owned),
        answer_format: dialect.answers,
        question: gates.question,
        plan: gates.approval,
        execution: gates.execution,
    }
}
