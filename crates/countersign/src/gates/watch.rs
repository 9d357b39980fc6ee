//! `gates watch` on a terminal: pending approvals, as they come and go, answered with a key.
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
    screen::{GateScreen, KeyAction},
    terminal::RawTerminal,
};
use crate::control_client::ControlClient;

/// Event for the screen.
enum WatchEvent {
    Rows(Vec<GateRow>),
    Pressed(u8),
    /// The gateway, or the terminal, is gone, with the error for the user.
    Gone(&'static str),
}

/// Shows what waits and takes answers, until the person or the gateway ends it.
pub(crate) fn watch_interactively(folder: &Path, rows: ControlClient) -> anyhow::Result<ExitCode> {
    let mut answers = ControlClient::connect(folder).context("cannot connect to the gateway")?;
    let (sender, happened) = channel();
    follow_rows(rows, sender.clone())?;
    thread::spawn(move || {
        for byte in std::io::stdin().lock().bytes() {
            let Ok(byte) = byte else { break };
            if sender.send(WatchEvent::Pressed(byte)).is_err() {
                return;
            }
        }
        let _ = sender.send(WatchEvent::Gone("the terminal closed the input"));
    });
    let terminal = RawTerminal::enter_raw()?;
    let mut screen = GateScreen::default();
    let begun = Instant::now();
    draw_screen(&terminal, &mut screen)?;
    while let Ok(first) = happened.recv() {
        // Events that came together are drawn once.
        for event in std::iter::once(first).chain(happened.try_iter()) {
            let now = begun.elapsed();
            match event {
                WatchEvent::Rows(rows) => screen.show_rows(rows, now),
                WatchEvent::Pressed(byte) => match screen.press_key(byte, now) {
                    KeyAction::Nothing => {}
                    KeyAction::Ask(request) => screen.show_notice(send_answer(&mut answers, &request)),
                    KeyAction::End => return Ok(ExitCode::SUCCESS),
                },
                WatchEvent::Gone(why) => {
                    drop(terminal);
                    anyhow::bail!(why);
                }
            }
        }
        draw_screen(&terminal, &mut screen)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn follow_rows(mut rows: ControlClient, sender: Sender<WatchEvent>) -> anyhow::Result<()> {
    rows.send(&Request::Watch)?;
    thread::spawn(move || {
        while let Ok(Some(value)) = rows.next_value() {
            let Ok(rows) = serde_json::from_value(value) else { break };
            if sender.send(WatchEvent::Rows(rows)).is_err() {
                return;
            }
        }
        let _ = sender.send(WatchEvent::Gone("the gateway closed the connection"));
    });
    Ok(())
}

/// Sends an answer and returns the gateway's reply, in a line.
fn send_answer(answers: &mut ControlClient, request: &Request) -> String {
    let response = answers.send_request(request);
    let done = if matches!(request, Request::Deny { .. }) { "denied" } else { "allowed" };
    match response {
        Ok(value) => match (value.get("have").and_then(Value::as_u64), value.get("need").and_then(Value::as_u64)) {
            (Some(have), Some(need)) => format!("{have} of {need} approvals"),
            _ => done.to_owned(),
        },
        Err(error) => format!("{error:#}"),
    }
}

fn draw_screen(terminal: &RawTerminal, screen: &mut GateScreen) -> std::io::Result<()> {
    let (columns, lines) = terminal.size();
    let picture = screen.draw(columns, lines);
    let mut out = std::io::stdout().lock();
    out.write_all(picture.as_bytes())?;
    out.flush()
}
