//! `tokens`.

use std::{process::ExitCode, time::Duration};

use clap::{Subcommand, ValueEnum, builder::PossibleValue};
use countersign_http::tokens::TokenScope;

use super::target::TargetArgs;
use crate::tokens::{self, TokensAction};

#[derive(Subcommand)]
pub(super) enum TokensCommand {
    /// Which there are, what each may do, and until when
    List,
    /// Make one and print it, once
    ///
    /// A gateway that runs knows it at once. What is kept is its digest; what a program does with it stands in the record as
    /// done by token:NAME.
    Add {
        /// Its name: letters, digits, dots, - and _
        name: String,
        /// What it may do, such as read,answer
        #[arg(long = "scope", value_name = "SCOPE", value_enum, value_delimiter = ',', required = true)]
        scopes: Vec<ScopeArg>,
        /// How long it is good, such as 12h or 30d; without it until it is removed
        #[arg(long = "for", value_name = "TIME", value_parser = super::span)]
        lasts: Option<Duration>,
    },
    /// Take one back: a gateway that runs lets it in no longer after a second
    Remove {
        /// Its name
        name: String,
    },
}

/// A scope that is named on the command line.
#[derive(Clone, Copy, Debug)]
pub(super) struct ScopeArg(TokenScope);

impl ValueEnum for ScopeArg {
    fn value_variants<'a>() -> &'a [Self] {
        &[
            Self(TokenScope::Read),
            Self(TokenScope::Answer),
            Self(TokenScope::Chat),
            Self(TokenScope::Admin),
            Self(TokenScope::Metrics),
        ]
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        let help = match self.0 {
            TokenScope::Read => "See gates, sessions, events and the record",
            TokenScope::Answer => "Answer gates and questions, once each",
            TokenScope::Chat => "Open sessions and speak in them",
            TokenScope::Admin => "Allow for longer than once; change rules, grants and agents",
            TokenScope::Metrics => "Read the figures at /metrics, and nothing else",
        };
        Some(PossibleValue::new(self.0.as_str()).help(help))
    }
}

pub(super) fn run(what: TokensCommand, at: &TargetArgs) -> anyhow::Result<ExitCode> {
    let what = match what {
        TokensCommand::List => TokensAction::List,
        TokensCommand::Add { name, scopes, lasts } => {
            TokensAction::Add { name, scopes: scopes.into_iter().map(|named| named.0).collect(), lasts }
        }
        TokensCommand::Remove { name } => TokensAction::Remove { name },
    };
    tokens::run(&at.data_dir()?.folder, &what, at.output_format())
}
