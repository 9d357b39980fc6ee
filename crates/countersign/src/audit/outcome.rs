//! Outcomes as the command line takes and shows them.

use clap::{ValueEnum, builder::PossibleValue};
use countersign_view::record::Outcome;

use crate::paint::Tone;

/// An outcome that is named on the command line.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Named(pub(crate) Outcome);

impl ValueEnum for Named {
    fn value_variants<'a>() -> &'a [Self] {
        const ALL: [Named; Outcome::ALL.len()] = {
            let mut all = [Named(Outcome::Allowed); Outcome::ALL.len()];
            let mut at = 0;
            while at < all.len() {
                all[at] = Named(Outcome::ALL[at].0);
                at += 1;
            }
            all
        };
        &ALL
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        let (outcome, help) = Outcome::ALL.into_iter().find(|(outcome, _)| *outcome == self.0)?;
        Some(PossibleValue::new(outcome.word()).help(help))
    }
}

/// How it is set off on a terminal.
pub(crate) const fn tone(outcome: Outcome) -> Option<Tone> {
    match outcome {
        Outcome::Allowed | Outcome::Granted | Outcome::Done => Some(Tone::Good),
        Outcome::Denied | Outcome::Expired | Outcome::Error | Outcome::Failed | Outcome::Limited | Outcome::Unknown => {
            Some(Tone::Bad)
        }
        Outcome::Asked => Some(Tone::Asking),
        Outcome::Withdrawn | Outcome::Answered | Outcome::Declined | Outcome::Skipped | Outcome::Cancelled => None,
    }
}
