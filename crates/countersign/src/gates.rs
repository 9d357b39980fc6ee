//! `gates` and `grants`: pending approvals, and standing approvals.

mod watch;

use std::{
    io::{IsTerminal as _, Write as _},
    path::Path,
    process::ExitCode,
    time::Duration,
};

use anyhow::{Context as _, bail};
use countersign_core::{engine::Engine, gate::ApprovalScope};
use countersign_gateway::control::Request;
use countersign_store::{AnyLog, Log as _, Partition, StoredContent};
use countersign_view::{
    LineMode, decisions, escape, escape_json,
    gate_row::{self, GateRow},
    label, shell_quote,
};
use serde_json::{Value, json};

use crate::{
    audit::{self, OutputFormat, block_on},
    control_client::ControlClient,
    data_dir::DataDir,
    error_text::chain_text,
    inspect::inspect_log,
    no_gateway::no_gateway_text,
    style::{ColourMode, TextStyle},
};

/// Place of grants that no gateway knows.
const OF_HOSTS: &str =
    "standing approvals of omp and gjc sessions are in grants.jsonl of ~/.omp/agent and ~/.gjc/agent";

/// Action on gates.
pub(crate) enum GatesAction {
    List,
    Show { id: String },
    Allow { id: String, scope: ApprovalScope, rule: Option<String>, lasts: Option<Duration> },
    Deny { id: String, reason: Option<String> },
    Answer { id: String, answer: Vec<String> },
    Watch,
}

/// Action on grants.
pub(crate) enum GrantsAction {
    List,
    Denials,
    Revoke { id: String },
}

pub(crate) fn run_gates_action(place: &DataDir, what: GatesAction, form: OutputFormat) -> anyhow::Result<ExitCode> {
    let local = ControlClient::connect(&place.folder);
    match (what, local) {
        (GatesAction::List, Some(mut local)) => print_gates(&parse_rows(local.send_request(&Request::Gates)?)?, form),
        (GatesAction::List, None) => print_gates(&gate_row::pending_rows(&recorded_engine(place)?), form),
        (GatesAction::Show { id }, Some(mut local)) => {
            print_gate(place, &serde_json::from_value(local.send_request(&Request::Gate { id })?)?, form)
        }
        (GatesAction::Show { id }, None) => print_gate(
            place,
            &decisions::find_pending(&recorded_engine(place)?, &id).map_err(anyhow::Error::msg)?,
            form,
        ),
        (GatesAction::Allow { id, scope, rule, lasts }, Some(mut local)) => {
            let lasts = lasts.map(|lasts| lasts.as_secs());
            let value = local.send_request(&Request::Allow { id, scope, rule, lasts })?;
            match (value.get("have"), value.get("need")) {
                (Some(have), Some(need)) => print_result(value.clone(), &format!("{have} of {need} approvals"), form),
                _ => print_result(value, "allowed", form),
            }
        }
        (GatesAction::Deny { id, reason }, Some(mut local)) => {
            print_result(local.send_request(&Request::Deny { id, reason })?, "denied", form)
        }
        (GatesAction::Answer { id, answer }, Some(mut local)) => {
            print_result(local.send_request(&Request::Answer { id, answers: answer })?, "answered", form)
        }
        (GatesAction::Watch, Some(local)) if form == OutputFormat::Text && is_interactive() => {
            watch::watch_interactively(&place.folder, local.without_read_timeout()?)
        }
        (GatesAction::Watch, Some(local)) => print_changes(&mut local.without_read_timeout()?, form),
        (
            GatesAction::Allow { .. } | GatesAction::Deny { .. } | GatesAction::Answer { .. } | GatesAction::Watch,
            None,
        ) => not_running(place),
    }
}

pub(crate) fn run_grants_action(place: &DataDir, what: GrantsAction, form: OutputFormat) -> anyhow::Result<ExitCode> {
    let local = ControlClient::connect(&place.folder);
    match (what, local) {
        (GrantsAction::List, Some(mut local)) => print_grants(&local.send_request(&Request::Grants)?, form),
        (GrantsAction::List, None) => {
            let recorded =
                recorded_engine(place).map_err(|error| anyhow::anyhow!("{}; {OF_HOSTS}", chain_text(&error)))?;
            print_grants(&decisions::grants_json(recorded.state().policy().grants()), form)
        }
        (GrantsAction::Denials, Some(mut local)) => print_denials(&local.send_request(&Request::Denials)?, form),
        (GrantsAction::Denials, None) => print_denials(&recorded_denials(place)?, form),
        (GrantsAction::Revoke { id }, Some(mut local)) => {
            print_result(local.send_request(&Request::Revoke { id })?, "revoked", form)
        }
        (GrantsAction::Revoke { .. }, None) => not_running(place),
    }
}

/// Reports whether a user is at both ends.
fn is_interactive() -> bool {
    std::io::stdin().is_terminal() && std::io::stdout().is_terminal()
}

/// Fails where the gateway's socket is not for this user.
fn ensure_accessible(folder: &Path) -> anyhow::Result<()> {
    if ControlClient::is_closed_to_us(folder) {
        bail!(
            "cannot access the gateway's socket in {}: permission denied; run as the user of the gateway, or add this user \
             under `local` in `people`",
            folder.display()
        );
    }
    Ok(())
}

fn not_running(place: &DataDir) -> anyhow::Result<ExitCode> {
    ensure_accessible(&place.folder)?;
    bail!(no_gateway_text(place))
}

/// Opens the record of a gateway that does not run.
fn open_recorded(place: &DataDir) -> anyhow::Result<AnyLog> {
    ensure_accessible(&place.folder)?;
    if !place.folder.exists() {
        bail!(no_gateway_text(place));
    }
    audit::open_located(&place.record())
        .with_context(|| format!("{}, and its record cannot be read", place.no_gateway()))
}

/// Returns the engine state from the record of a gateway that does not run.
fn recorded_engine(place: &DataDir) -> anyhow::Result<Engine> {
    block_on(async { inspect_log(&open_recorded(place)?).await })
}

/// Returns the denials that bind by the record of a gateway that does not run.
fn recorded_denials(place: &DataDir) -> anyhow::Result<Value> {
    block_on(async {
        let log = open_recorded(place)?;
        let engine = inspect_log(&log).await?;
        let (state, constraints) = (engine.state(), engine.state().policy().constraints());
        let gates = constraints.iter().filter_map(|one| state.gate(one.gate?));
        let (ids, lsns): (Vec<_>, Vec<_>) = gates.map(|gate| (gate.id(), gate.content_lsn())).unzip();
        let contents = log.read_contents(Partition::ZERO, &lsns).await?;
        let text = |content| match content {
            Some(StoredContent::Text(text)) => decisions::covered_text(&text),
            _ => None,
        };
        let covers = ids.into_iter().zip(contents).filter_map(|(id, content)| Some((id, text(content)?))).collect();
        Ok(decisions::denials_json(constraints, &covers))
    })
}

fn parse_rows(value: Value) -> anyhow::Result<Vec<GateRow>> {
    Ok(serde_json::from_value(value)?)
}

fn print_gates(rows: &[GateRow], form: OutputFormat) -> anyhow::Result<ExitCode> {
    let mut out = std::io::stdout().lock();
    if form == OutputFormat::Json {
        writeln!(out, "{}", escape_json(&serde_json::to_string_pretty(rows)?))?;
        return Ok(ExitCode::SUCCESS);
    }
    let paint = ColourMode::for_stdout();
    if rows.is_empty() {
        writeln!(out, "No pending approvals.")?;
    }
    for row in rows {
        writeln!(out, "{}", row_line(row, paint))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Maximum number of characters of an argument in a line.
const LONGEST: usize = 200;

/// Returns the arguments that the subject of a gate does not show, in one line; long ones with their beginning.
fn accompanying_text(row: &GateRow) -> String {
    let argument_text = |name: &String| {
        let shown = escape(&text_of(row.arguments.get(name)?), LineMode::One).into_owned();
        let count = shown.chars().count();
        let shown = match count > LONGEST {
            true => {
                format!("{}… ({count} characters: see `gates show`)", shown.chars().take(LONGEST).collect::<String>())
            }
            false => shown,
        };
        Some(format!("{}: {shown}", label(name)))
    };
    let texts: Vec<String> = row.beside.iter().filter_map(argument_text).collect();
    if texts.is_empty() { String::new() } else { format!("  with {}", texts.join(", ")) }
}

/// Reports whether a gate is answered in words.
fn takes_words(row: &GateRow) -> bool {
    ["question", "plan", "execution"].contains(&row.kind.as_str())
}

/// Returns the first line of what a gate is about, and the further ones. Only a question has several.
fn heading(row: &GateRow) -> (String, String) {
    match row.subject.split_once('\n').filter(|_| takes_words(row)) {
        Some((first, further)) => {
            (escape(first, LineMode::One).into_owned(), escape(further, LineMode::Many).into_owned())
        }
        None => (escape(&row.subject, LineMode::One).into_owned(), String::new()),
    }
}

/// Returns a gate in one line. The end of its id is enough to name it.
fn row_line(row: &GateRow, paint: ColourMode) -> String {
    let short = &row.id[row.id.len().saturating_sub(8)..];
    let (first, further) = heading(row);
    let shown = if further.is_empty() { first } else { format!("{first} …") };
    let who = requester_id(row);
    let until = row.deadline.as_deref().map_or_else(String::new, |until| format!(", until {until}"));
    format!(
        "{}  {}{}  {}",
        paint.apply_style(TextStyle::Asking, short),
        paint.apply_style(TextStyle::Strong, shown),
        accompanying_text(row),
        paint.apply_style(TextStyle::Faint, format!("{who}{until}")),
    )
}

fn print_gate(place: &DataDir, row: &GateRow, form: OutputFormat) -> anyhow::Result<ExitCode> {
    let mut out = std::io::stdout().lock();
    if form == OutputFormat::Json {
        writeln!(out, "{}", escape_json(&serde_json::to_string_pretty(row)?))?;
        return Ok(ExitCode::SUCCESS);
    }
    let paint = ColourMode::for_stdout();
    let one = |text: &str| escape(text, LineMode::One).into_owned();
    let (first, further) = heading(row);
    writeln!(out, "{}", paint.apply_style(TextStyle::Strong, first))?;
    further.lines().try_for_each(|line| writeln!(out, "  | {line}"))?;
    writeln!(out, "  id        {}", row.id)?;
    writeln!(out, "  kind      {}, adapter {}", row.kind, row.door)?;
    writeln!(out, "  asked by  {}", requester_text(row))?;
    if let Some(folder) = &row.folder {
        writeln!(out, "  in folder {}", one(folder))?;
    }
    if let Some(intent) = &row.intent {
        writeln!(out, "  purpose   {}", one(intent))?;
    }
    writeln!(
        out,
        "  asked at  {}{}",
        row.opened_at,
        row.deadline.as_ref().map_or_else(String::new, |at| format!(", until {at}"))
    )?;
    if row.waits_for_host {
        writeln!(out, "  paused    until the host of its session loads the rules: an answer takes effect then")?;
    }
    if !row.reason.is_empty() {
        writeln!(out, "  reason    {}", one(&row.reason))?;
    }
    if let Some(approvals) = &row.approvals {
        writeln!(out, "  approvals {}", one(&approvals.to_string()))?;
    }
    for (name, value) in &row.arguments {
        let shown = escape(&text_of(value), LineMode::Many).into_owned();
        match shown.contains('\n') {
            false => writeln!(out, "  {}: {shown}", label(name))?,
            true => {
                writeln!(out, "  {}:", label(name))?;
                shown.split('\n').try_for_each(|line| writeln!(out, "    | {line}"))?;
            }
        }
    }
    for line in &row.runs {
        writeln!(out, "  runs      {}", one(line))?;
    }
    let id = &row.id[row.id.len().saturating_sub(8)..];
    if takes_words(row) {
        for (number, choice) in (1..).zip(&row.choices) {
            writeln!(out, "  {number}. {}", one(choice))?;
        }
        let several = if row.several { "; you can give several" } else { "" };
        writeln!(
            out,
            "\nAnswer it with `countersign gates answer {id} ANSWER --data {}`.",
            shell_quote(place.folder.display())
        )?;
        let free = if row.closed { "" } else { ", or free text" };
        writeln!(out, "ANSWER is one of the choices{free}{several}.")?;
        return Ok(ExitCode::SUCCESS);
    }
    writeln!(out, "\nAllow it with `countersign gates allow {id} --data {}`.", shell_quote(place.folder.display()))?;
    for rule in &row.proposals {
        // An agent wrote part of it, and a user may paste it into a shell. A text that cannot be shown as it is would be another rule.
        if one(rule) == *rule {
            let quoted = rule.replace('\'', r"'\''");
            writeln!(
                out,
                "To allow all calls that match \"{rule}\" from now on, add `--scope always --rule '{quoted}'`."
            )?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the name and the id of the requester.
pub(crate) fn requester_text(row: &GateRow) -> String {
    let session = match (&row.named, &row.session) {
        (Some(name), Some(session)) if !is_of_agent(session) => {
            format!("session \"{}\" ({})", escape(name, LineMode::One), escape(session, LineMode::One))
        }
        (Some(name), _) => format!("{} ({})", escape(name, LineMode::One), requester_id(row)),
        (None, _) => requester_id(row),
    };
    match &row.requester {
        Some(agent) => format!("{} in {session}", escape(agent, LineMode::One)),
        None => session,
    }
}

/// Returns the id of the requester: an agent, a session, or else the adapter.
pub(crate) fn requester_id(row: &GateRow) -> String {
    match &row.session {
        Some(session) if is_of_agent(session) => escape(session, LineMode::One).into_owned(),
        Some(session) => format!("session {}", escape(session, LineMode::One)),
        None => escape(&row.door, LineMode::One).into_owned(),
    }
}

/// Reports whether the id of a session names its agent.
fn is_of_agent(session: &str) -> bool {
    session.starts_with("agent:")
}

fn text_of(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn print_result(value: Value, what: &str, form: OutputFormat) -> anyhow::Result<ExitCode> {
    let mut out = std::io::stdout().lock();
    match form {
        OutputFormat::Json => writeln!(out, "{value}")?,
        OutputFormat::Text => {
            let id = value.get("id").or_else(|| value.get("revoked")).and_then(Value::as_str).unwrap_or_default();
            writeln!(out, "{what}: {id}")?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints what waits whenever that changes, until the gateway or the reader goes.
fn print_changes(local: &mut ControlClient, form: OutputFormat) -> anyhow::Result<ExitCode> {
    local.send(&Request::Watch)?;
    let paint = ColourMode::for_stdout();
    let mut before: Vec<GateRow> = Vec::new();
    while let Some(value) = local.next_value()? {
        let mut out = std::io::stdout().lock();
        if form == OutputFormat::Json {
            writeln!(out, "{value}")?;
            continue;
        }
        let now = parse_rows(value)?;
        for row in now.iter().filter(|row| !before.contains(row)) {
            writeln!(out, "{} {}", paint.apply_style(TextStyle::Asking, "pending"), row_line(row, paint))?;
        }
        // A vote or a later deadline changes a row, and it waits all the same.
        for row in before.iter().filter(|row| now.iter().all(|other| other.id != row.id)) {
            writeln!(out, "{} {}", paint.apply_style(TextStyle::Good, "ended  "), row_line(row, paint))?;
        }
        before = now;
    }
    Ok(ExitCode::SUCCESS)
}

fn print_denials(value: &Value, form: OutputFormat) -> anyhow::Result<ExitCode> {
    print_rows(value, form, "No active denials.", "covers", |text, row| {
        let reason =
            row["reason"].as_str().map_or_else(String::new, |reason| format!(": {}", escape(reason, LineMode::One)));
        let session = row["session"]
            .as_str()
            .map_or_else(String::new, |session| format!(" in session {}", escape(session, LineMode::One)));
        format!("for {}{session}, until {}, by {}{reason}", principal_text(text("to")), text("until"), text("by"))
    })
}

fn print_grants(value: &Value, form: OutputFormat) -> anyhow::Result<ExitCode> {
    print_rows(value, form, "No standing approvals.", "covers", |text, row| {
        let until = row["until"].as_str().map_or_else(String::new, |until| format!(" until {until}"));
        let open = if row["door"] == json!("open") { ", through an adapter without a credential" } else { "" };
        format!("{}{until} for {}, by {}{open}", text("scope"), principal_text(text("to")), text("by"))
    })
}

/// Returns a principal as users read it.
fn principal_text(principal: String) -> String {
    if principal == "agent" { "runs of the gateway".to_owned() } else { principal }
}

/// Prints rows: the id, what the row is about, and the rest in the words of `rest`, which gets the row's texts by name.
fn print_rows(
    value: &Value,
    form: OutputFormat,
    nothing: &str,
    about: &str,
    rest: impl Fn(&dyn Fn(&str) -> String, &Value) -> String,
) -> anyhow::Result<ExitCode> {
    let mut out = std::io::stdout().lock();
    if form == OutputFormat::Json {
        writeln!(out, "{}", escape_json(&serde_json::to_string_pretty(value)?))?;
        return Ok(ExitCode::SUCCESS);
    }
    let rows = value.as_array().map(Vec::as_slice).unwrap_or_default();
    if rows.is_empty() {
        writeln!(out, "{nothing}")?;
    }
    let paint = ColourMode::for_stdout();
    for row in rows {
        let text = |name: &str| escape(row[name].as_str().unwrap_or("-"), LineMode::One).into_owned();
        let (id, about) = (text("id"), paint.apply_style(TextStyle::Strong, text(about)));
        writeln!(out, "{id}  {about}  {}", paint.apply_style(TextStyle::Faint, rest(&text, row)))?;
    }
    Ok(ExitCode::SUCCESS)
}
