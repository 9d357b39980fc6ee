//! How runs of a door's sessions ask people, as settings and the dialect say.

use countersign_agent_dir as agent_dir;
use countersign_core::session::QuestionSettings;

use super::dialect_options::DialectOptions;

/// How runs of a session ask people.
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
