//! `tokens`: programs that may use a gateway over HTTP.
//!
//! A token is printed once, when it is made, and never again.

use std::{io::Write as _, path::Path, process::ExitCode, time::Duration};

use countersign_core::time::Millis;
use countersign_http::tokens::{self, ApiToken, TokenScope, TokensError};
use countersign_runtime::Clock;
use countersign_view::{LineMode, escape, shell_quote, time::format_iso};
use serde_json::{Value, json};

use crate::{
    audit::OutputFormat,
    privileges,
    style::{ColourMode, TextStyle},
};

/// Action on tokens.
pub(crate) enum TokensAction {
    List,
    Add { name: String, scopes: Vec<TokenScope>, lasts: Option<Duration> },
    Remove { name: String },
}

pub(crate) fn run(folder: &Path, what: &TokensAction, form: OutputFormat) -> anyhow::Result<ExitCode> {
    let now = Clock::system().now();
    if !matches!(what, TokensAction::List) {
        privileges::become_owner_of(folder)?;
    }
    match what {
        TokensAction::List => print_tokens(&tokens::list_tokens(folder).map_err(explain_error)?, now, folder, form)?,
        TokensAction::Add { name, scopes, lasts } => {
            let text = tokens::add_token(folder, name, scopes, *lasts, now).map_err(explain_error)?;
            let made = tokens::list_tokens(folder)?.into_iter().find(|token| token.name == *name);
            print_added(made.as_ref(), &text, now, form)?;
        }
        TokensAction::Remove { name } => {
            let known =
                tokens::list_tokens(folder).map_err(explain_error)?.into_iter().find(|token| token.name == *name);
            tokens::remove_token(folder, name)?;
            let mut out = std::io::stdout().lock();
            match form {
                OutputFormat::Json => writeln!(out, "{}", json!({ "removed": name }))?,
                OutputFormat::Text => {
                    writeln!(out, "removed {}", ColourMode::for_stdout().apply_style(TextStyle::Strong, name))?;
                    if known.is_some_and(|token| token.scopes.contains(&TokenScope::Admin)) {
                        writeln!(
                            out,
                            "Standing approvals by token:{name} stay in force: see `countersign grants list`."
                        )?;
                    }
                }
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Adds advice to the error of a damaged file of tokens.
fn explain_error(error: TokensError) -> anyhow::Error {
    if matches!(error, TokensError::Form { .. }) {
        return anyhow::anyhow!(
            "{error}; restore the file, or delete it and add new tokens: all tokens are rejected until then"
        );
    }
    error.into()
}

fn token_row(token: &ApiToken, now: Millis) -> Value {
    json!({
        "name": token.name,
        "scopes": token.scopes,
        "created": format_iso(token.created),
        "expires": token.expires.map(format_iso),
        "good": token.is_good(now),
    })
}

fn print_tokens(listed: &[ApiToken], now: Millis, folder: &Path, form: OutputFormat) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    if form == OutputFormat::Json {
        let rows: Vec<Value> = listed.iter().map(|token| token_row(token, now)).collect();
        return writeln!(out, "{:#}", Value::Array(rows));
    }
    let paint = ColourMode::for_stdout();
    if listed.is_empty() {
        let folder = shell_quote(folder.display());
        writeln!(out, "No tokens. Add one with `countersign tokens add NAME --scope read --data {folder}`.")?;
    }
    let width = listed.iter().map(|token| token.name.chars().count()).max().unwrap_or_default();
    for token in listed {
        let name = format!("{:<width$}", escape(&token.name, LineMode::One));
        let until = match token.expires {
            Some(expires) if token.is_good(now) => format!(", until {}", format_iso(expires)),
            Some(expires) => format!(", expired at {}", format_iso(expires)),
            None => String::new(),
        };
        let summary = format!("{}, created {}{until}", scope_names(token), format_iso(token.created));
        writeln!(
            out,
            "{}  {}",
            paint.apply_style(TextStyle::Strong, name),
            paint.apply_style(TextStyle::Faint, summary)
        )?;
    }
    Ok(())
}

fn scope_names(token: &ApiToken) -> String {
    token.scopes.iter().map(|scope| scope.as_str()).collect::<Vec<_>>().join(", ")
}

fn print_added(made: Option<&ApiToken>, text: &str, now: Millis, form: OutputFormat) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    let mut body = made.map_or_else(|| json!({}), |token| token_row(token, now));
    if form == OutputFormat::Json {
        body["token"] = json!(text);
        return writeln!(out, "{body}");
    }
    // The token alone is on stdout, so that a script can take it.
    let mut beside = std::io::stderr().lock();
    if let Some(token) = made {
        writeln!(beside, "added {}: {}", token.name, scope_names(token))?;
    }
    writeln!(out, "{text}")?;
    writeln!(beside, "The token is shown only once. Programs send it as `Authorization: Bearer …`.")
}
