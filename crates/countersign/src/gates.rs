//! `gates` and `grants`: what waits for people, and what they have allowed for more than once.

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
use countersign_store::{Log as _, Partition, StoredContent};
use countersign_view::{
    LineMode, decisions, escape,
    gate_row::{self, GateRow},
    label, shell_quote,
};
use serde_json::{Value, json};

use crate::{
    audit::{self, Form, block_on},
    inspect::inspect,
    local::Local,
    paint::{Paint, Tone},
    place::Place,
};

/// Where grants lie that no gateway knows.
const OF_HOSTS: &str =
    "what was allowed in sessions of hosts lies in ~/.omp/agent/grants.jsonl, of gjc in ~/.gjc/agent";

/// What is done with gates.
pub(crate) enum Gates {
    List,
    Show { id: String },
    Allow { id: String, scope: ApprovalScope, rule: Option<String>, lasts: Option<Duration> },
    Deny { id: String, reason: Option<String> },
    Answer { id: String, said: Vec<String> },
    Watch,
}

/// What is done with grants.
pub(crate) enum Grants {
    List,
    Denials,
    Revoke { id: String },
}

pub(crate) fn gates(place: &Place, what: Gates, form: Form) -> anyhow::Result<ExitCode> {
    let local = Local::connect(&place.folder);
    match (what, local) {
        (Gates::List, Some(mut local)) => print(&rows(local.ask(&Request::Gates)?)?, form),
        (Gates::List, None) => print(&gate_row::pending_rows(&recorded(&place.log)?), form),
        (Gates::Show { id }, Some(mut local)) => {
            show(place, &serde_json::from_value(local.ask(&Request::Gate { id })?)?, form)
        }
        (Gates::Show { id }, None) => {
            show(place, &decisions::find_pending(&recorded(&place.log)?, &id).map_err(anyhow::Error::msg)?, form)
        }
        (Gates::Allow { id, scope, rule, lasts }, Some(mut local)) => {
            let lasts = lasts.map(|lasts| lasts.as_secs());
            let value = local.ask(&Request::Allow { id, scope, rule, lasts })?;
            match (value.get("have"), value.get("need")) {
                (Some(have), Some(need)) => told(value.clone(), &format!("{have} of {need} allow it"), form),
                _ => told(value, "allowed", form),
            }
        }
        (Gates::Deny { id, reason }, Some(mut local)) => {
            told(local.ask(&Request::Deny { id, reason })?, "denied", form)
        }
        (Gates::Answer { id, said }, Some(mut local)) => {
            told(local.ask(&Request::Answer { id, answers: said })?, "answered", form)
        }
        (Gates::Watch, Some(local)) if form == Form::Text && is_interactive() => {
            watch::watch(&place.folder, local.following()?)
        }
        (Gates::Watch, Some(local)) => watch(&mut local.following()?, form),
        (Gates::Allow { .. } | Gates::Deny { .. } | Gates::Answer { .. } | Gates::Watch, None) => {
            not_running(&place.folder)
        }
    }
}

pub(crate) fn grants(place: &Place, what: Grants, form: Form) -> anyhow::Result<ExitCode> {
    let local = Local::connect(&place.folder);
    match (what, local) {
        (Grants::List, Some(mut local)) => print_grants(&local.ask(&Request::Grants)?, form),
        (Grants::List, None) => {
            let recorded = recorded(&place.log).map_err(|error| anyhow::anyhow!("{error:#}; {OF_HOSTS}"))?;
            print_grants(&decisions::grants_json(recorded.state().policy().grants()), form)
        }
        (Grants::Denials, Some(mut local)) => print_denials(&local.ask(&Request::Denials)?, form),
        (Grants::Denials, None) => print_denials(&recorded_denials(&place.log)?, form),
        (Grants::Revoke { id }, Some(mut local)) => told(local.ask(&Request::Revoke { id })?, "revoked", form),
        (Grants::Revoke { .. }, None) => not_running(&place.folder),
    }
}

/// Whether a person sits at both ends.
fn is_interactive() -> bool {
    std::io::stdin().is_terminal() && std::io::stdout().is_terminal()
}

fn not_running(folder: &Path) -> anyhow::Result<ExitCode> {
    if Local::is_closed_to_us(folder) {
        bail!("the gateway of {} does not let this user in: name it under `local` in `people`", folder.display());
    }
    bail!(
        "no gateway runs with the data directory {}: start `countersign serve`, or name it with --config or --data",
        folder.display()
    )
}

/// What the record of a gateway that does not run says.
fn recorded(log: &Path) -> anyhow::Result<Engine> {
    block_on(async {
        let log = audit::open(log).context("no gateway runs, and its record cannot be read")?;
        inspect(&log).await
    })
}

/// The denials that bind by the record of a gateway that does not run.
fn recorded_denials(log: &Path) -> anyhow::Result<Value> {
    block_on(async {
        let log = audit::open(log).context("no gateway runs, and its record cannot be read")?;
        let engine = inspect(&log).await?;
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

fn rows(value: Value) -> anyhow::Result<Vec<GateRow>> {
    Ok(serde_json::from_value(value)?)
}

fn print(rows: &[GateRow], form: Form) -> anyhow::Result<ExitCode> {
    let mut out = std::io::stdout().lock();
    if form == Form::Json {
        writeln!(out, "{}", serde_json::to_string_pretty(rows)?)?;
        return Ok(ExitCode::SUCCESS);
    }
    let paint = Paint::stdout();
    if rows.is_empty() {
        writeln!(out, "Nothing waits.")?;
    }
    for row in rows {
        writeln!(out, "{}", line(row, paint))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// How many characters of an argument stand in a line.
const LONGEST: usize = 200;

/// What the subject of a gate does not show of its arguments, in one line; long ones with their beginning.
fn beside(row: &GateRow) -> String {
    let told = |name: &String| {
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
    let told: Vec<String> = row.beside.iter().filter_map(told).collect();
    if told.is_empty() { String::new() } else { format!("  with {}", told.join(", ")) }
}

/// A gate in one line. The end of its id is enough to name it.
fn line(row: &GateRow, paint: Paint) -> String {
    let short = &row.id[row.id.len().saturating_sub(8)..];
    let who = row.session.as_deref().unwrap_or(&row.door);
    let until = row.deadline.as_deref().map_or_else(String::new, |until| format!(", until {until}"));
    format!(
        "{}  {}{}  {}",
        paint.tone(Tone::Asking, short),
        paint.tone(Tone::Strong, escape(&row.subject, LineMode::One)),
        beside(row),
        paint.tone(Tone::Faint, format!("{}{until}", escape(who, LineMode::One))),
    )
}

fn show(place: &Place, row: &GateRow, form: Form) -> anyhow::Result<ExitCode> {
    let mut out = std::io::stdout().lock();
    if form == Form::Json {
        writeln!(out, "{}", serde_json::to_string_pretty(row)?)?;
        return Ok(ExitCode::SUCCESS);
    }
    let paint = Paint::stdout();
    let one = |text: &str| escape(text, LineMode::One).into_owned();
    writeln!(out, "{}", paint.tone(Tone::Strong, one(&row.subject)))?;
    writeln!(out, "  id        {}", row.id)?;
    writeln!(out, "  kind      {} at the door {}", row.kind, row.door)?;
    writeln!(out, "  asked by  {}", asker(row))?;
    if let Some(folder) = &row.folder {
        writeln!(out, "  in folder {}", one(folder))?;
    }
    if let Some(intent) = &row.intent {
        writeln!(out, "  it says   {}", one(intent))?;
    }
    writeln!(
        out,
        "  asked at  {}{}",
        row.opened_at,
        row.deadline.as_ref().map_or_else(String::new, |at| format!(", until {at}"))
    )?;
    if row.waits_for_host {
        writeln!(
            out,
            "  waits     for its session's host, which brings the rules: what follows from an answer comes then"
        )?;
    }
    if !row.reason.is_empty() {
        writeln!(out, "  asked     {}", one(&row.reason))?;
    }
    if let Some(approvals) = &row.approvals {
        writeln!(out, "  allowed   by {}", one(&approvals.to_string()))?;
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
    if ["question", "plan", "execution"].contains(&row.kind.as_str()) {
        for (number, choice) in (1..).zip(&row.choices) {
            writeln!(out, "  {number}. {}", one(choice))?;
        }
        let several = if row.several { "; several may be" } else { "" };
        writeln!(
            out,
            "\nAnswer it with `countersign gates answer {id} ANSWER --data {}`.",
            shell_quote(place.folder.display())
        )?;
        writeln!(out, "ANSWER is one of the choices, or your own words{several}.")?;
        return Ok(ExitCode::SUCCESS);
    }
    writeln!(out, "\nAllow it with `countersign gates allow {id} --data {}`.", shell_quote(place.folder.display()))?;
    for rule in &row.proposals {
        // An agent wrote part of it, and somebody may paste it into a shell. What cannot be shown as it is would be another rule.
        if one(rule) == *rule {
            let quoted = rule.replace('\'', r"'\''");
            writeln!(out, "Whatever matches \"{rule}\", from now on: add `--scope always --rule '{quoted}'`.")?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Who waits, by name and number.
pub(crate) fn asker(row: &GateRow) -> String {
    let who = escape(row.session.as_deref().unwrap_or(&row.door), LineMode::One);
    match &row.named {
        Some(name) => format!("{} ({who})", escape(name, LineMode::One)),
        None => who.into_owned(),
    }
}

fn text_of(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn told(value: Value, what: &str, form: Form) -> anyhow::Result<ExitCode> {
    let mut out = std::io::stdout().lock();
    match form {
        Form::Json => writeln!(out, "{value}")?,
        Form::Text => {
            let id = value.get("id").or_else(|| value.get("revoked")).and_then(Value::as_str).unwrap_or_default();
            writeln!(out, "{what}: {id}")?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints what waits whenever that changes, until the gateway or the reader goes.
fn watch(local: &mut Local, form: Form) -> anyhow::Result<ExitCode> {
    local.send(&Request::Watch)?;
    let paint = Paint::stdout();
    let mut before: Vec<GateRow> = Vec::new();
    while let Some(value) = local.next()? {
        let mut out = std::io::stdout().lock();
        if form == Form::Json {
            writeln!(out, "{value}")?;
            continue;
        }
        let now = rows(value)?;
        for row in now.iter().filter(|row| !before.contains(row)) {
            writeln!(out, "{} {}", paint.tone(Tone::Asking, "waits"), line(row, paint))?;
        }
        // A vote or a later deadline changes a row, and it waits all the same.
        for row in before.iter().filter(|row| now.iter().all(|other| other.id != row.id)) {
            writeln!(out, "{} {}", paint.tone(Tone::Good, "over "), line(row, paint))?;
        }
        before = now;
    }
    Ok(ExitCode::SUCCESS)
}

fn print_denials(value: &Value, form: Form) -> anyhow::Result<ExitCode> {
    print_rows(value, form, "No denial binds.", "covers", |text, row| {
        let said = row["reason"].as_str().map_or_else(String::new, |said| format!(": {}", escape(said, LineMode::One)));
        let session = row["session"]
            .as_str()
            .map_or_else(String::new, |session| format!(" in session {}", escape(session, LineMode::One)));
        format!("for {}{session}, until {}, by {}{said}", text("to"), text("until"), text("by"))
    })
}

fn print_grants(value: &Value, form: Form) -> anyhow::Result<ExitCode> {
    print_rows(value, form, "Nothing is granted.", "covers", |text, row| {
        let until = row["until"].as_str().map_or_else(String::new, |until| format!(" until {until}"));
        let open = if row["door"] == json!("open") { ", through a door without a credential" } else { "" };
        format!("{}{until} for {}, by {}{open}", text("scope"), text("to"), text("by"))
    })
}

/// Prints rows: the id, what the row is about, and the rest in the words of `rest`, which gets the row's texts by name.
fn print_rows(
    value: &Value,
    form: Form,
    nothing: &str,
    about: &str,
    rest: impl Fn(&dyn Fn(&str) -> String, &Value) -> String,
) -> anyhow::Result<ExitCode> {
    let mut out = std::io::stdout().lock();
    if form == Form::Json {
        writeln!(out, "{}", serde_json::to_string_pretty(value)?)?;
        return Ok(ExitCode::SUCCESS);
    }
    let rows = value.as_array().map(Vec::as_slice).unwrap_or_default();
    if rows.is_empty() {
        writeln!(out, "{nothing}")?;
    }
    let paint = Paint::stdout();
    for row in rows {
        let text = |name: &str| escape(row[name].as_str().unwrap_or("-"), LineMode::One).into_owned();
        let (id, about) = (text("id"), paint.tone(Tone::Strong, text(about)));
        writeln!(out, "{id}  {about}  {}", paint.tone(Tone::Faint, rest(&text, row)))?;
    }
    Ok(ExitCode::SUCCESS)
}
