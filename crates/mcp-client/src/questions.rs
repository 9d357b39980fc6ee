//! Questions of servers to people: their content, and the answers.
//!
//! It must not know who answers, and on which surface.

use std::fmt;

use countersign_core::id::PrincipalId;
use futures_util::future::BoxFuture;
use tokio_util::sync::CancellationToken;

/// A question of a server to a person. All texts are escaped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerQuestion {
    /// Name of the server.
    pub server: String,
    /// Tools of the server that are called while it asks, as the server knows them.
    pub tools: Vec<String>,
    /// Principals that requested those calls. None of them may answer.
    pub callers: Vec<PrincipalId>,
    /// Full text, which names the server.
    pub text: String,
    /// Labels of the choices, each different; may be empty.
    pub choices: Vec<String>,
    /// Index of the choice that the server has as its default.
    pub recommended: Option<usize>,
    /// True if several choices count.
    pub is_multi: bool,
    /// True if only its choices answer it.
    pub is_closed: bool,
}

/// Answer to a question of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QuestionAnswer {
    /// Labels of choices, or free text.
    Answered(Vec<String>),
    /// A person declined to answer.
    Declined,
    /// No person answered.
    Unanswered {
        /// Why.
        reason: String,
    },
}

/// Way from servers to the people who answer their questions.
pub trait QuestionAsker: fmt::Debug + Send + Sync {
    /// Returns true if questions can be asked. Servers learn it when they are connected.
    fn is_ready(&self) -> bool;

    /// Asks a question and waits for its answer, its deadline or `cancel`, after which the question is withdrawn.
    fn ask(&self, question: ServerQuestion, cancel: CancellationToken) -> BoxFuture<'_, QuestionAnswer>;
}
