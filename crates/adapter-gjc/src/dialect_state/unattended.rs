//! State of unattended runs in an adapter.

use std::collections::VecDeque;

use countersign_core::{ledger::BudgetBreach, unattended::BreachPoint};
use countersign_protocol::{
    gjc::unattended::DeclarationAccepted,
    omp::{OmpRequestId, OmpResponse},
};

use crate::audit::AuditFile;

/// State of unattended runs in an adapter.
#[derive(Default)]
pub(crate) struct UnattendedState {
    /// The audit file, where the session has a contract; or why there is none.
    pub(crate) audit: Option<Result<AuditFile, String>>,
    /// The command that waits for the approval of its declaration.
    pub(crate) pending_declaration: Option<(Option<OmpRequestId>, DeclarationAccepted)>,
    /// The prompt whose run works.
    pub(crate) prompted: Option<PromptCommand>,
    /// The prompts that were let through and have no response yet.
    pub(crate) coming: VecDeque<PromptCommand>,
    /// A prompt whose failure was sent before its acceptance.
    pub(crate) failed: Option<PromptCommand>,
    /// The breach with a pending approval.
    pub(crate) breach: Option<(BudgetBreach, BreachPoint)>,
}

/// A command that begins a run: its id and its name.
type PromptCommand = (Option<OmpRequestId>, &'static str);

impl UnattendedState {
    /// Reports whether a response is sent: the acceptance of a prompt that failed is not.
    pub(crate) fn should_send(&mut self, response: &OmpResponse) -> bool {
        let answers = |prompt: &PromptCommand| response.success_of(prompt.0.as_ref(), prompt.1);
        if self.failed.as_ref().and_then(answers) == Some(true) {
            self.failed = None;
            return false;
        }
        if let Some((at, is_taken_on)) =
            self.coming.iter().map(answers).enumerate().find_map(|(at, it)| Some((at, it?)))
        {
            let answered = self.coming.remove(at);
            // One that joins a run does not begin one.
            self.prompted = self.prompted.take().or_else(|| answered.filter(|_| is_taken_on));
        }
        true
    }
}
