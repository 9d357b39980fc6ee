//! `tokens`.

use std::{process::ExitCode, time::Duration};

use clap::{Subcommand, ValueEnum, builder::PossibleValue};
use countersign_http::tokens::TokenScope;

use super::target::TargetArgs;
use crate::tokens::{self, TokensAction};

#[derive(Subcommand)]
pub(super) enum TokensCommand {
    /// List tokens with their scopes and expiry
    List,
    /// Add a token, and print it once
    ///
    /// A running gateway accepts it at once. Only its digest is stored. The record lists actions of its program under
    /// token:NAME.
    Add {
        /// Name of the token: letters, digits, dots, - and _
        name: String,
        /// Permissions of the token, for example read,answer
        #[arg(long = "scope", value_name = "SCOPE", value_enum, value_delimiter = ',', required = true)]
        scopes: Vec<ScopeArg>,
        /// Lifetime of the token, for example 12h or 30d [default: until it is removed]
        #[arg(long = "for", value_name = "TIME", value_parser = super::span)]
        lasts: Option<Duration>,
    },
    /// Remove a token; a running gateway rejects it within one second
    Remove {
        /// Name of the token
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
            Self(TokenScope::Call),
        ]
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        let help = match self.0 {
            TokenScope::Read => "Read gates, sessions, events and the record",
            TokenScope::Answer => "Answer gates and questions, once each",
            TokenScope::Chat => "Open sessions and send messages in them",
            TokenScope::Admin => "Give and revoke standing approvals; change rules and agents",
            TokenScope::Metrics => "Read /metrics, and nothing else",
            TokenScope::Call => "Call tools, over MCP",
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
