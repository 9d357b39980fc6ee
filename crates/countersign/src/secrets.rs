//! `secret`: what agents may use by name, and never see.
//!
//! A value comes in over standard input or from a file, never over the command line, where every process of the machine
//! could read it, and is never printed.

use std::{
    io::{IsTerminal as _, Read as _, Write as _},
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::Context as _;
use countersign_tools::{
    regular,
    secrets::{self as store, FOLDER, LONGEST, SecretEntry},
};
use countersign_view::{LineMode, escape};
use secrecy::SecretString;
use serde_json::{Value, json};

use crate::{
    audit::OutputFormat,
    privileges,
    style::{ColourMode, TextStyle},
};

/// Action on secrets.
pub(crate) enum SecretsAction {
    List,
    Set { name: String, from: Option<PathBuf> },
    Remove { name: String },
}

pub(crate) fn run(data: &Path, what: &SecretsAction, form: OutputFormat) -> anyhow::Result<ExitCode> {
    let folder = data.join(FOLDER);
    let (word, name) = match what {
        SecretsAction::List => {
            print_secrets(&store::list_secrets(&folder)?, &folder, form)?;
            return Ok(ExitCode::SUCCESS);
        }
        SecretsAction::Set { name, from } => {
            // Before a user types one in vain.
            anyhow::ensure!(countersign_core::secret::is_name(name), store::StoreError::Name(name.clone()));
            let value = read_secret(name, from.as_deref())?;
            privileges::become_owner_of(data)?;
            (if store::set_secret(&folder, name, &value)? { "replaced" } else { "set" }, name)
        }
        SecretsAction::Remove { name } => {
            privileges::become_owner_of(data)?;
            store::remove_secret(&folder, name)?;
            ("removed", name)
        }
    };
    let mut out = std::io::stdout().lock();
    match form {
        OutputFormat::Json => writeln!(out, "{}", json!({ word: name }))?,
        OutputFormat::Text => {
            writeln!(out, "{word} {}", ColourMode::for_stdout().apply_style(TextStyle::Strong, name))?
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Reads the value from its source.
fn read_secret(name: &str, from: Option<&Path>) -> anyhow::Result<SecretString> {
    // One byte more than fits, so that what is too long is refused and not cut.
    let most = LONGEST as u64 + 2;
    if let Some(path) = from {
        let text = regular::read_text(path, most).with_context(|| format!("{} cannot be read", path.display()))?;
        return Ok(text.into());
    }
    let stdin = std::io::stdin();
    if stdin.is_terminal() {
        return read_hidden(name);
    }
    let mut text = String::new();
    stdin.lock().take(most).read_to_string(&mut text).context("standard input is not valid UTF-8 text")?;
    anyhow::ensure!(!text.is_empty(), "standard input is empty");
    Ok(text.into())
}

/// Asks a person, whose terminal shows nothing of it.
fn read_hidden(name: &str) -> anyhow::Result<SecretString> {
    use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};
    let stdin = std::io::stdin();
    let before = tcgetattr(&stdin).context("cannot read the settings of the terminal")?;
    let mut quiet = before.clone();
    quiet.local_modes.remove(LocalModes::ECHO);
    quiet.local_modes.insert(LocalModes::ECHONL);
    tcsetattr(&stdin, OptionalActions::Flush, &quiet).context("cannot hide the input on the terminal")?;
    write!(std::io::stderr(), "{name}: ")?;
    let mut line = String::new();
    let read = stdin.read_line(&mut line);
    tcsetattr(&stdin, OptionalActions::Now, &before).context("cannot restore the terminal: run `stty echo`")?;
    read?;
    Ok(line.into())
}

fn print_secrets(kept: &[SecretEntry], folder: &Path, form: OutputFormat) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    if form == OutputFormat::Json {
        let row =
            |kept: &SecretEntry| json!({ "name": kept.name, "problem": kept.lack.as_ref().map(ToString::to_string) });
        return writeln!(out, "{:#}", kept.iter().map(row).collect::<Value>());
    }
    let paint = ColourMode::for_stdout();
    if kept.is_empty() {
        writeln!(out, "No secrets in {}. Set one with `countersign secret set NAME < FILE`.", folder.display())?;
    }
    for SecretEntry { name, lack } in kept {
        write!(out, "{}", paint.apply_style(TextStyle::Strong, name))?;
        match lack {
            Some(lack) => {
                writeln!(out, "  {}", paint.apply_style(TextStyle::Bad, escape(&lack.to_string(), LineMode::One)))?
            }
            None => writeln!(out)?,
        }
    }
    Ok(())
}
