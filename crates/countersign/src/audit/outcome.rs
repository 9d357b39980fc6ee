//! Outcomes as the command line takes and shows them.

use clap::{ValueEnum, builder::PossibleValue};
use countersign_view::record::RecordOutcome;

use crate::style::TextStyle;

/// An outcome that is named on the command line.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OutcomeArg(pub(crate) RecordOutcome);

impl ValueEnum for OutcomeArg {
    fn value_variants<'a>() -> &'a [Self] {
        const ALL: [OutcomeArg; RecordOutcome::ALL.len()] = {
            let mut all = [OutcomeArg(RecordOutcome::Allowed); RecordOutcome::ALL.len()];
            let mut at = 0;
            while at < all.len() {
                all[at] = OutcomeArg(RecordOutcome::ALL[at].0);
                at += 1;
            }
            all
        };
        &ALL
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        let (outcome, help) = RecordOutcome::ALL.into_iter().find(|(outcome, _)| *outcome == self.0)?;
        Some(PossibleValue::new(outcome.as_str()).help(help))
    }
}

/// Returns its style on a terminal.
pub(crate) const fn outcome_style(outcome: RecordOutcome) -> Option<TextStyle> {
    match outcome {
        RecordOutcome::Allowed | RecordOutcome::Granted | RecordOutcome::Done => Some(TextStyle::Good),
        RecordOutcome::Denied
        | RecordOutcome::Expired
        | RecordOutcome::Error
        | RecordOutcome::Failed
        | RecordOutcome::Limited
        | RecordOutcome::Unknown => Some(TextStyle::Bad),
        RecordOutcome::Gated => Some(TextStyle::Asking),
        RecordOutcome::Withdrawn
        | RecordOutcome::Answered
        | RecordOutcome::Declined
        | RecordOutcome::Skipped
        | RecordOutcome::Cancelled => None,
    }
}
