//! Requests of one summary or note from a model, their retries and their cost.
//!
//! It must not know the messages that a text is about, nor the use of the text.

use std::{sync::Arc, time::Duration};

use countersign_core::{ledger::BudgetAmount, session::RetryPolicy};
use countersign_models::{
    self as models, FailureKind, FinishReason, MessagePart, ModelEvent, ModelFailure, ModelRequest, ThinkingLevel,
};
use futures_util::StreamExt;

use crate::{
    metrics::RuntimeMetrics,
    work::{
        ResolvedModel,
        spent::{spent_by_answer, spent_by_failure},
        wait::{self, Stopwatch},
    },
};

/// The most that a summary may say, in tokens.
const LONGEST: u64 = 8192;

/// Failure of a model to give a usable summary.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub(super) struct SummaryError {
    pub(super) message: String,
    /// True if the same request may be answered another time.
    pub(super) may_pass: bool,
    /// True if it was longer than the model takes.
    pub(super) is_too_long: bool,
}

impl From<SummaryError> for String {
    fn from(unsaid: SummaryError) -> Self {
        unsaid.message
    }
}

pub(super) async fn request_with_retries(
    chosen: &ResolvedModel,
    (system, request): (&str, &str),
    retry: RetryPolicy,
    silence: Duration,
    time: Option<Stopwatch>,
    spent: &mut SpendTracker<'_>,
) -> Result<String, SummaryError> {
    let mut attempt = 0;
    loop {
        let failure = match request_once(chosen, system, request, silence, spent).await {
            Ok(text) if text.is_empty() => {
                let message = "the model gave no summary".to_owned();
                return Err(SummaryError { message, may_pass: false, is_too_long: false });
            }
            Ok(text) => return Ok(text),
            Err(failure) => failure,
        };
        let may_pass = failure.kind.is_retryable();
        let requested_delay = failure.retry_delay().unwrap_or_default();
        if !retry.enabled || !may_pass || attempt >= retry.max || requested_delay > retry.longest {
            let is_too_long = failure.kind == FailureKind::Overflow;
            let message = match time {
                Some(time) => wait::failure_message(&failure, time.now(), retry.longest),
                None => failure.message,
            };
            return Err(SummaryError { message, may_pass, is_too_long });
        }
        let delay = retry.base.saturating_mul(2_u32.saturating_pow(attempt)).min(retry.longest);
        attempt += 1;
        tokio::time::sleep(delay.max(requested_delay)).await;
    }
}

/// Cost of the requests so far; none once one of them had an unknown cost.
pub(super) struct SpendTracker<'a> {
    pub(super) amount: Option<BudgetAmount>,
    pub(super) meters: &'a RuntimeMetrics,
}

impl SpendTracker<'_> {
    fn add_amount(&mut self, taken: Option<BudgetAmount>) {
        self.amount = self.amount.zip(taken).map(|(before, taken)| before.plus(taken));
    }
}

async fn request_once(
    chosen: &ResolvedModel,
    system: &str,
    request: &str,
    silence: Duration,
    spent: &mut SpendTracker<'_>,
) -> Result<String, ModelFailure> {
    let level = chosen.entry.reasoning.then_some(ThinkingLevel::Low);
    let mut stream = chosen.model.stream(ModelRequest {
        entry: Arc::clone(&chosen.entry),
        key: chosen.key.clone(),
        system: Some(system.to_owned()),
        messages: vec![models::RequestMessage::User(vec![MessagePart::text(request)])],
        tools: Vec::new(),
        max_tokens: Some(LONGEST),
        level,
        session: None,
        silence,
    });
    let mut text = String::new();
    let mut used = models::ModelUsage::default();
    let mut is_begun = false;
    while let Some(event) = stream.next().await {
        let event = event.inspect_err(|failure| spent.add_amount(spent_by_failure(failure, is_begun)))?;
        is_begun |= !matches!(event, ModelEvent::Idle { .. });
        if let ModelEvent::Stop(_) = event {
            spent.add_amount(spent_by_answer(&chosen.entry, &used));
            spent.meters.add_tokens([used.input, used.output, used.cache_read, used.cache_write]);
        }
        match event {
            ModelEvent::PartEnd { part: MessagePart::Text { text: part, .. }, .. } => text.push_str(&part),
            ModelEvent::Stop(FinishReason::Length) => {
                return Err(ModelFailure::new(
                    FailureKind::Refused,
                    "the summary was cut off at the most that an answer may have",
                ));
            }
            ModelEvent::Stop(_) => return Ok(text.trim().to_owned()),
            ModelEvent::Start { .. }
            | ModelEvent::PartStart { .. }
            | ModelEvent::Delta { .. }
            | ModelEvent::PartEnd { .. }
            | ModelEvent::Idle { .. } => {}
            ModelEvent::Usage(usage) => used = usage,
            ModelEvent::Payload(_) => {}
        }
    }
    spent.add_amount(None);
    Err(ModelFailure::new(FailureKind::Broken, "stream ended before its end (terminated)"))
}
