//! What stands on the screen, and what a key means there.
//!
//! A gate can only be allowed once all of it was on the screen, and never by a key that was meant for another one: the
//! choice follows the gate, and a gate that has just come under it takes no answer for a moment.

use std::{fmt::Write as _, time::Duration};

use countersign_core::gate::Scope;
use countersign_server::{
    control::{Request, Row},
    view::{Lines, escape},
};

use crate::paint::{Paint, Tone, cut};

/// How long a gate that came under the choice by itself takes no answer.
const PAUSE: Duration = Duration::from_millis(700);
/// The longest reason that is taken.
const LONGEST: usize = 500;
const KEYS: &str = "up/down choose   a allow   s for the session   A always   d deny   r deny with a reason   q leave";

/// What follows from a key.
#[derive(Debug, PartialEq)]
pub(super) enum Next {
    Nothing,
    Ask(Request),
    End,
}

/// Everything on the screen.
#[derive(Default)]
pub(super) struct Screen {
    rows: Vec<Row>,
    chosen: Option<String>,
    /// Until when it takes no answer.
    paused: Duration,
    /// The first line of its details that is shown, and whether the last one was.
    top: usize,
    is_read: bool,
    /// How many lines of details fit.
    room: usize,
    notice: String,
    /// A reason that is being written.
    reason: Option<String>,
    /// Bytes of a key that has more than one.
    pending: Vec<u8>,
}

impl Screen {
    /// Takes what waits now.
    pub(super) fn show(&mut self, rows: Vec<Row>, now: Duration) {
        self.rows = rows;
        let is_there = self.chosen.as_ref().is_some_and(|chosen| self.rows.iter().any(|row| row.id == *chosen));
        if !is_there {
            if let Some(chosen) = self.chosen.take()
                && self.reason.take().is_some()
            {
                self.notice = format!("{} is over; the reason was not sent", short(&chosen));
            }
            self.choose(0);
            self.paused = now + PAUSE;
        }
    }

    /// Takes what the gateway said to an answer.
    pub(super) fn tell(&mut self, said: String) {
        self.notice = escape(&said, Lines::One).into_owned();
    }

    /// Takes one byte from the keyboard.
    pub(super) fn press(&mut self, byte: u8, now: Duration) -> Next {
        if self.reason.is_some() {
            return self.write(byte);
        }
        self.pending.push(byte);
        let key = std::mem::take(&mut self.pending);
        match &key[..] {
            // A sequence of an arrow or a page key that is not whole yet.
            b"\x1b" | b"\x1b[" | b"\x1bO" | b"\x1b[5" | b"\x1b[6" => self.pending = key,
            b"q" | b"\x03" | b"\x04" | b"\x1bq" | b"\x1b\x1b" => return Next::End,
            b"\x1b[A" | b"\x1bOA" | b"k" => self.step(false),
            b"\x1b[B" | b"\x1bOB" | b"j" => self.step(true),
            b" " | b"\x1b[6~" => self.top += self.room.max(1),
            b"b" | b"\x1b[5~" => self.top = self.top.saturating_sub(self.room.max(1)),
            b"a" => return self.allow(Scope::Once, now),
            b"s" => return self.allow(Scope::Session, now),
            b"A" => return self.allow(Scope::Always, now),
            b"d" => return self.answer(now, |id| Request::Deny { id, reason: None }),
            b"r" if self.may_answer(now) => self.reason = Some(String::new()),
            _ => {}
        }
        Next::Nothing
    }

    /// A byte of a reason.
    fn write(&mut self, byte: u8) -> Next {
        match byte {
            b'\r' | b'\n' => {
                let reason = self.reason.take().filter(|reason| !reason.trim().is_empty());
                return match self.chosen.clone() {
                    Some(id) => Next::Ask(Request::Deny { id, reason }),
                    None => Next::Nothing,
                };
            }
            0x1b | 0x03 => {
                self.reason = None;
                self.pending.clear();
            }
            0x08 | 0x7f => {
                if let Some(reason) = &mut self.reason {
                    reason.pop();
                }
            }
            byte => {
                self.pending.push(byte);
                // Letters of more than one byte come byte by byte.
                match std::str::from_utf8(&self.pending) {
                    Ok(text) => {
                        if let Some(reason) = self.reason.as_mut().filter(|reason| reason.len() < LONGEST) {
                            reason.extend(text.chars().filter(|letter| !letter.is_control()));
                        }
                        self.pending.clear();
                    }
                    Err(error) if error.error_len().is_some() => self.pending.clear(),
                    Err(_) => {}
                }
            }
        }
        Next::Nothing
    }

    fn allow(&mut self, scope: Scope, now: Duration) -> Next {
        if self.chosen.is_some() && !self.is_read {
            self.notice = "not all of it was shown: press space until its end".to_owned();
            return Next::Nothing;
        }
        self.answer(now, |id| Request::Allow { id, scope, rule: None, lasts: None })
    }

    fn answer(&mut self, now: Duration, request: impl FnOnce(String) -> Request) -> Next {
        if !self.may_answer(now) {
            return Next::Nothing;
        }
        self.chosen.clone().map_or(Next::Nothing, |id| Next::Ask(request(id)))
    }

    fn may_answer(&mut self, now: Duration) -> bool {
        if self.chosen.is_some() && now < self.paused {
            self.notice = "this one has just come: look at it, and press again".to_owned();
            return false;
        }
        self.notice.clear();
        self.chosen.is_some()
    }

    fn step(&mut self, is_down: bool) {
        let at = self.rows.iter().position(|row| Some(&row.id) == self.chosen.as_ref()).unwrap_or(0);
        let to = if is_down { (at + 1).min(self.rows.len().saturating_sub(1)) } else { at.saturating_sub(1) };
        if to != at {
            self.choose(to);
            self.paused = Duration::ZERO;
            self.notice.clear();
        }
    }

    fn choose(&mut self, at: usize) {
        self.chosen = self.rows.get(at).map(|row| row.id.clone());
        self.top = 0;
        self.is_read = false;
    }

    /// The whole picture for a terminal of this size.
    pub(super) fn draw(&mut self, columns: usize, lines: usize) -> String {
        let paint = Paint::stdout();
        let at = self.rows.iter().position(|row| Some(&row.id) == self.chosen.as_ref());
        // A third for the list, around the choice; the rest for what is chosen.
        let shown = (lines / 3).max(1);
        let from = at.unwrap_or(0).saturating_sub(shown.saturating_sub(1));
        let mut text = Vec::new();
        let waits = match self.rows.len() {
            0 => "Nothing waits.".to_owned(),
            1 => "1 waits".to_owned(),
            count => format!("{count} wait"),
        };
        text.push(paint.tone(Tone::Strong, waits));
        for (number, row) in self.rows.iter().enumerate().skip(from).take(shown) {
            let who = row.session.as_deref().unwrap_or(&row.door);
            let line = format!("{}  {}  {}", short(&row.id), one(&row.subject), one(who));
            let is_chosen = Some(number) == at;
            let line = cut(&format!("{} {line}", if is_chosen { ">" } else { " " }), columns);
            text.push(paint.tone(if is_chosen { Tone::Asking } else { Tone::Faint }, line));
        }
        text.push(String::new());
        self.room = lines.saturating_sub(text.len() + 3).max(1);
        if let Some(row) = at.and_then(|at| self.rows.get(at)) {
            let details = details(row, columns);
            self.top = self.top.min(details.len().saturating_sub(self.room));
            let end = (self.top + self.room).min(details.len());
            self.is_read |= end == details.len();
            text.extend_from_slice(&details[self.top..end]);
            let left = details.len() - end;
            text.push(if left > 0 { format!("… {left} more lines: space") } else { String::new() });
        }
        text.resize(lines.saturating_sub(2).max(text.len()), String::new());
        match &self.reason {
            Some(reason) => {
                let tail: String = {
                    let skip = reason.chars().count().saturating_sub(columns.saturating_sub(10));
                    reason.chars().skip(skip).collect()
                };
                text.push(format!("reason: {tail}_"));
                text.push(paint.tone(Tone::Faint, "enter denies   escape does not"));
            }
            None => {
                text.push(paint.tone(Tone::Asking, cut(&self.notice, columns)));
                text.push(paint.tone(Tone::Faint, cut(KEYS, columns)));
            }
        }
        text.truncate(lines.max(1));
        // Line by line over what stands there, so that nothing flickers.
        let mut picture = String::from("\u{1b}[H");
        for (number, line) in text.iter().enumerate() {
            let _ = write!(picture, "{}{line}\u{1b}[K", if number > 0 { "\r\n" } else { "" });
        }
        picture.push_str("\u{1b}[J");
        picture
    }
}

/// The end of an id, which is enough to name it.
fn short(id: &str) -> &str {
    &id[id.len().saturating_sub(8)..]
}

fn one(text: &str) -> String {
    escape(text, Lines::One).into_owned()
}

/// All that a person has to know, in lines that fit.
fn details(row: &Row, columns: usize) -> Vec<String> {
    let mut text = vec![one(&row.subject)];
    for (name, value) in &row.arguments {
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let shown = escape(&value, Lines::Many);
        if shown.contains('\n') {
            text.push(format!("{}:", one(name)));
            text.extend(shown.split('\n').map(|line| format!("  | {line}")));
        } else {
            text.push(format!("{}: {shown}", one(name)));
        }
    }
    if !row.reason.is_empty() {
        text.push(format!("because {}", one(&row.reason)));
    }
    if let Some(approvals) = &row.approvals {
        text.push(format!("allowed by {}", one(&approvals.to_string())));
    }
    text.push(format!("asked by {}", one(row.session.as_deref().unwrap_or(&row.door))));
    if let Some(deadline) = &row.deadline {
        text.push(format!("until {deadline}"));
    }
    let width = columns.max(1);
    text.iter().flat_map(|line| wrap(line, width)).collect()
}

fn wrap(line: &str, width: usize) -> Vec<String> {
    let letters: Vec<char> = line.chars().collect();
    if letters.is_empty() {
        return vec![String::new()];
    }
    letters.chunks(width).map(|chunk| chunk.iter().collect()).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use countersign_core::gate::Scope;
    use countersign_server::control::{Request, Row};
    use serde_json::json;

    use super::{Next, PAUSE, Screen};

    const LATER: Duration = Duration::from_secs(60);

    fn row(id: &str, command: &str) -> Row {
        serde_json::from_value(json!({
            "id": format!("gate_{id:0>32}"), "kind": "approval", "door": "agent-gate", "session": "agent:pi", "title": "t",
            "subject": "t(x)", "arguments": { "command": command }, "reason": "rule", "opened_at": "", "deadline": null,
        }))
        .unwrap()
    }

    fn screen(rows: &[Row]) -> Screen {
        let mut screen = Screen::default();
        screen.show(rows.to_vec(), Duration::ZERO);
        screen.draw(80, 24);
        screen
    }

    fn allow(id: &str) -> Next {
        let id = format!("gate_{id:0>32}");
        Next::Ask(Request::Allow { id, scope: Scope::Once, rule: None, lasts: None })
    }

    fn keys(screen: &mut Screen, keys: &str) -> Next {
        keys.bytes().map(|byte| screen.press(byte, LATER)).last().unwrap()
    }

    #[test]
    fn a_key_answers_what_is_chosen() {
        let rows = [row("a", "ls"), row("b", "pwd")];
        for (pressed, want) in
            [("a", allow("a")), ("ja", allow("b")), ("\u{1b}[B\u{1b}[Aa", allow("a")), ("q", Next::End)]
        {
            let mut screen = screen(&rows);
            let mut next = Next::Nothing;
            for byte in pressed.bytes() {
                next = screen.press(byte, LATER);
                screen.draw(80, 24);
            }
            assert_eq!(next, want, "{pressed:?}");
        }
    }

    #[test]
    fn a_gate_that_took_the_place_of_another_is_not_answered_in_its_stead() {
        let mut screen = screen(&[row("a", "ls"), row("b", "pwd")]);
        screen.show(vec![row("b", "pwd")], LATER);
        screen.draw(80, 24);
        assert_eq!(screen.press(b'a', LATER), Next::Nothing);
        assert_eq!(screen.press(b'a', LATER + PAUSE), allow("b"));
        // One that comes above moves nothing.
        screen.show(vec![row("c", "id"), row("b", "pwd")], LATER + PAUSE);
        screen.draw(80, 24);
        assert_eq!(screen.press(b'a', LATER + PAUSE), allow("b"));
    }

    #[test]
    fn what_was_not_shown_whole_is_not_allowed_but_can_be_denied() {
        let mut screen = screen(&[row("a", &"x".repeat(5_000))]);
        assert_eq!(screen.press(b'a', LATER), Next::Nothing);
        assert!(matches!(screen.press(b'd', LATER), Next::Ask(Request::Deny { .. })));
        for _ in 0..20 {
            screen.press(b' ', LATER);
            screen.draw(80, 24);
        }
        assert_eq!(screen.press(b'a', LATER), allow("a"));
    }

    #[test]
    fn a_reason_is_written_and_sent_or_given_up() {
        let mut one = screen(&[row("a", "ls")]);
        let deny = |reason: Option<&str>| {
            let id = format!("gate_{:0>32}", "a");
            Next::Ask(Request::Deny { id, reason: reason.map(str::to_owned) })
        };
        assert_eq!(keys(&mut one, "rnöx\u{7f}\r"), deny(Some("nö")));
        assert_eq!(keys(&mut one, "r  \r"), deny(None));
        assert_eq!(keys(&mut one, "rno\u{1b}a"), allow("a"), "after escape a key is a key");
        keys(&mut one, "rno");
        one.show(Vec::new(), LATER);
        assert_eq!(one.press(b'\r', LATER), Next::Nothing, "it is over");
    }

    #[test]
    fn a_picture_never_has_more_lines_or_wider_ones_than_the_terminal() {
        let rows: Vec<Row> = (0..50).map(|at| row(&at.to_string(), &"x y ".repeat(300))).collect();
        for (columns, lines) in [(80, 24), (20, 5), (1, 1), (200, 60)] {
            let mut screen = Screen::default();
            screen.show(rows.clone(), Duration::ZERO);
            let picture = screen.draw(columns, lines);
            let shown: Vec<&str> = picture.split("\r\n").collect();
            assert!(shown.len() <= lines, "{columns}x{lines}: {}", shown.len());
            let bare = |line: &str| line.replace("\u{1b}[H", "").replace("\u{1b}[K", "").replace("\u{1b}[J", "");
            if columns >= 20 {
                assert!(shown.iter().all(|line| bare(line).chars().count() <= columns.max(28)), "{columns}x{lines}");
            }
        }
    }
}
