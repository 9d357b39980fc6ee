//! `tokens`: which programs may use a gateway over HTTP.
//!
//! A token is printed once, when it is made, and never again.

use std::{io::Write as _, path::Path, process::ExitCode, time::Duration};

use countersign_core::time::Millis;
use countersign_http::tokens::{self, ApiToken, TokenScope};
use countersign_runtime::Clock;
use countersign_view::{LineMode, escape, shell_quote, time::format_iso};
use serde_json::{Value, json};

use crate::{
    audit::Form,
    owner,
    paint::{Paint, Tone},
};

/// What is done with tokens.
pub(crate) enum What {
    List,
    Add { name: String, scopes: Vec<TokenScope>, lasts: Option<Duration> },
    Remove { name: String },
}

pub(crate) fn run(folder: &Path, what: &What, form: Form) -> anyhow::Result<ExitCode> {
    let now = Clock::system().now();
    if !matches!(what, What::List) {
        owner::become_of(folder)?;
    }
    match what {
        What::List => list(&tokens::list_tokens(folder)?, now, folder, form)?,
        What::Add { name, scopes, lasts } => {
            let text = tokens::add_token(folder, name, scopes, *lasts, now)?;
            let made = tokens::list_tokens(folder)?.into_iter().find(|token| token.name == *name);
            added(made.as_ref(), &text, now, form)?;
        }
        What::Remove { name } => {
            let known = tokens::list_tokens(folder)?.into_iter().find(|token| token.name == *name);
            tokens::remove_token(folder, name)?;
            let mut out = std::io::stdout().lock();
            match form {
                Form::Json => writeln!(out, "{}", json!({ "removed": name }))?,
                Form::Text => {
                    writeln!(out, "removed {}", Paint::stdout().tone(Tone::Strong, name))?;
                    if known.is_some_and(|token| token.scopes.contains(&TokenScope::Admin)) {
                        writeln!(
                            out,
                            "What it allowed for more than once goes on: `countersign grants list` says by token:{name}."
                        )?;
                    }
                }
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn row(token: &ApiToken, now: Millis) -> Value {
    json!({
        "name": token.name,
        "scopes": token.scopes,
        "created": format_iso(token.created),
        "expires": token.expires.map(format_iso),
        "good": token.is_good(now),
    })
}

fn list(listed: &[ApiToken], now: Millis, folder: &Path, form: Form) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    if form == Form::Json {
        let rows: Vec<Value> = listed.iter().map(|token| row(token, now)).collect();
        return writeln!(out, "{:#}", Value::Array(rows));
    }
    let paint = Paint::stdout();
    if listed.is_empty() {
        let folder = shell_quote(folder.display());
        writeln!(out, "No tokens. Make one with `countersign tokens add NAME --scope read --data {folder}`.")?;
    }
    let width = listed.iter().map(|token| token.name.chars().count()).max().unwrap_or_default();
    for token in listed {
        let name = format!("{:<width$}", escape(&token.name, LineMode::One));
        let until = match token.expires {
            Some(expires) if token.is_good(now) => format!(", until {}", format_iso(expires)),
            Some(expires) => format!(", out of date since {}", format_iso(expires)),
            None => String::new(),
        };
        let told = format!("{}, made {}{until}", scopes(token), format_iso(token.created));
        writeln!(out, "{}  {}", paint.tone(Tone::Strong, name), paint.tone(Tone::Faint, told))?;
    }
    Ok(())
}

fn scopes(token: &ApiToken) -> String {
    token.scopes.iter().map(|scope| scope.as_str()).collect::<Vec<_>>().join(", ")
}

fn added(made: Option<&ApiToken>, text: &str, now: Millis, form: Form) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    let mut told = made.map_or_else(|| json!({}), |token| row(token, now));
    if form == Form::Json {
        told["token"] = json!(text);
        return writeln!(out, "{told}");
    }
    // The token alone is on stdout, so that a script can take it.
    let mut beside = std::io::stderr().lock();
    if let Some(token) = made {
        writeln!(beside, "added {}: {}", token.name, scopes(token))?;
    }
    writeln!(out, "{text}")?;
    writeln!(beside, "It is shown this once. A program sends it as `Authorization: Bearer …`.")
}
