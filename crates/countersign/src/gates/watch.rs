//! `gates watch` on a terminal: what waits, as it comes and goes, answered with a key.
//!
//! It must not decide what an answer means: it sends what the person pressed, and shows what the gateway says.

mod screen;
mod terminal;

use std::{
    io::{Read as _, Write as _},
    path::Path,
    process::ExitCode,
    sync::mpsc::{Sender, channel},
    thread,
    time::Instant,
};

use anyhow::Context as _;
use countersign_gateway::control::Request;
use countersign_view::GateRow;
use serde_json::Value;

use self::{
    screen::{Next, Screen},
    terminal::Terminal,
};
use crate::local::Local;

/// What the screen has to follow.
enum Happened {
    Rows(Vec<GateRow>),
    Pressed(u8),
    /// The gateway, or the terminal, is gone.
    Gone,
}

/// Shows what waits and takes answers, until the person or the gateway ends it.
pub(crate) fn watch(folder: &Path, rows: Local) -> anyhow::Result<ExitCode> {
    let mut answers = Local::connect(folder).context("the gateway has gone")?;
    let (sender, happened) = channel();
    follow(rows, sender.clone())?;
    thread::spawn(move || {
        for byte in std::io::stdin().lock().bytes() {
            let Ok(byte) = byte else { break };
            if sender.send(Happened::Pressed(byte)).is_err() {
                return;
            }
        }
        let _ = sender.send(Happened::Gone);
    });
    let terminal = Terminal::enter()?;
    let mut screen = Screen::default();
    let begun = Instant::now();
    draw(&terminal, &mut screen)?;
    while let Ok(first) = happened.recv() {
        // What came together is drawn once.
        for event in std::iter::once(first).chain(happened.try_iter()) {
            let now = begun.elapsed();
            match event {
                Happened::Rows(rows) => screen.show(rows, now),
                Happened::Pressed(byte) => match screen.press(byte, now) {
                    Next::Nothing => {}
                    Next::Ask(request) => screen.tell(said(&mut answers, &request)),
                    Next::End => return Ok(ExitCode::SUCCESS),
                },
                Happened::Gone => {
                    drop(terminal);
                    anyhow::bail!("the gateway has gone");
                }
            }
        }
        draw(&terminal, &mut screen)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn follow(mut rows: Local, sender: Sender<Happened>) -> anyhow::Result<()> {
    rows.send(&Request::Watch)?;
    thread::spawn(move || {
        while let Ok(Some(value)) = rows.next() {
            let Ok(rows) = serde_json::from_value(value) else { break };
            if sender.send(Happened::Rows(rows)).is_err() {
                return;
            }
        }
        let _ = sender.send(Happened::Gone);
    });
    Ok(())
}

/// What the gateway says to an answer, in a line.
fn said(answers: &mut Local, request: &Request) -> String {
    let told = answers.ask(request);
    let done = if matches!(request, Request::Deny { .. }) { "denied" } else { "allowed" };
    match told {
        Ok(value) => match (value.get("have").and_then(Value::as_u64), value.get("need").and_then(Value::as_u64)) {
            (Some(have), Some(need)) => format!("{have} of {need} allow it"),
            _ => done.to_owned(),
        },
        Err(error) => format!("{error:#}"),
    }
}

fn draw(terminal: &Terminal, screen: &mut Screen) -> std::io::Result<()> {
    let (columns, lines) = terminal.size();
    let picture = screen.draw(columns, lines);
    let mut out = std::io::stdout().lock();
    out.write_all(picture.as_bytes())?;
    out.flush()
}
