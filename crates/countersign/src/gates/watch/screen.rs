//! Content of the screen, and the meaning of keys there.
//!
//! A gate can only be allowed once all of it was on the screen, and never by a key that was meant for another one: the
//! choice follows the gate, and a gate that has just come under it takes no answer for a moment.

use std::{fmt::Write as _, time::Duration};

use countersign_core::gate::ApprovalScope;
use countersign_gateway::control::Request;
use countersign_view::{GateRow, LineMode, escape, label};

use crate::{
    gates::{requester_id, requester_text},
    style::{ColourMode, TextStyle, cut_to_width, end_of_width, text_width, wrap_line},
};

/// Time for which a gate that became selected by itself takes no answer.
const PAUSE: Duration = Duration::from_millis(700);
/// Maximum time after an escape within which a byte belongs to the same key, such as alt with a letter.
const AT_ONCE: Duration = Duration::from_millis(50);
/// The longest reason that is taken.
const LONGEST: usize = 500;
/// Description of the keys, in the columns of the smallest usual terminal.
const KEYS: &str = "q quit   up/down   a allow   s session   A always   d deny   ? more";
const MORE: &str = "space/b page   s allow in this session   A allow always   d deny with a reason";

/// Action of a key.
#[derive(Debug, PartialEq)]
pub(super) enum KeyAction {
    Nothing,
    Ask(Request),
    End,
}

/// Typed text that is no key of the screen.
#[derive(Debug)]
enum TypedText {
    /// A reason.
    Reason(String),
    /// Rest of a reason whose gate, named here, is over: it is discarded, and none of it is a key.
    Void(String),
}

/// Everything on the screen.
#[derive(Default)]
pub(super) struct GateScreen {
    rows: Vec<GateRow>,
    chosen: Option<String>,
    /// Until when it takes no answer.
    paused: Duration,
    /// The first line of its details that is shown.
    top: usize,
    /// Number of its lines that were shown, from the first without a gap, the number of columns, and whether all were shown.
    seen: usize,
    columns: usize,
    is_read: bool,
    /// Number of lines of details that fit.
    room: usize,
    notice: String,
    typing: Option<TypedText>,
    /// The text that an escape ended, and when: it continues if the escape was only the beginning of a key.
    ended: Option<(TypedText, Duration)>,
    /// Bytes of a key that has more than one.
    pending: Vec<u8>,
}

impl GateScreen {
    /// Takes what waits now.
    pub(super) fn show_rows(&mut self, rows: Vec<GateRow>, now: Duration) {
        self.rows = rows;
        let is_there = self.chosen.as_ref().is_some_and(|chosen| self.rows.iter().any(|row| row.id == *chosen));
        if !is_there {
            if let Some(chosen) = self.chosen.take() {
                let void = |typing: &mut TypedText| {
                    if matches!(typing, TypedText::Reason(_)) {
                        *typing = TypedText::Void(short_id(&chosen).to_owned());
                    }
                };
                let ended = self.ended.as_mut().map(|(typing, _)| typing);
                self.typing.iter_mut().chain(ended).for_each(void);
            }
            self.select_row(0);
            self.paused = now + PAUSE;
        }
    }

    /// Shows the gateway's reply to an answer.
    pub(super) fn show_notice(&mut self, text: String) {
        self.notice = escape(&text, LineMode::One).into_owned();
    }

    /// Takes one byte from the keyboard.
    pub(super) fn press_key(&mut self, byte: u8, now: Duration) -> KeyAction {
        if let Some((typing, since)) = self.ended.take()
            && (matches!(byte, b'[' | b'O') || now.saturating_sub(since) < AT_ONCE)
        {
            self.typing = Some(typing);
            self.pending = vec![0x1b, byte];
            if is_whole(&self.pending) {
                self.pending.clear();
            }
            return KeyAction::Nothing;
        }
        if self.typing.is_some() {
            return self.type_byte(byte, now);
        }
        self.pending.push(byte);
        if !is_whole(&self.pending) {
            return KeyAction::Nothing;
        }
        let key = std::mem::take(&mut self.pending);
        match &key[..] {
            b"q" | b"\x03" | b"\x04" | b"\x1bq" | b"\x1b\x1b" => return KeyAction::End,
            b"\x1b[A" | b"\x1bOA" | b"k" => self.move_selection(false),
            b"\x1b[B" | b"\x1bOB" | b"j" => self.move_selection(true),
            b" " | b"\x1b[6~" => self.top += self.room.max(1),
            b"b" | b"\x1b[5~" => self.top = self.top.saturating_sub(self.room.max(1)),
            b"a" => return self.allow_gate(ApprovalScope::Once, now),
            b"s" => return self.allow_gate(ApprovalScope::Session, now),
            b"A" => return self.allow_gate(ApprovalScope::Always, now),
            // As in the console: text typed after it is a reason, and no key for the next gate.
            b"d" | b"r" if self.may_answer(now) => self.typing = Some(TypedText::Reason(String::new())),
            b"?" => MORE.clone_into(&mut self.notice),
            _ => {}
        }
        KeyAction::Nothing
    }

    /// Handles a typed byte.
    fn type_byte(&mut self, byte: u8, now: Duration) -> KeyAction {
        // An arrow has no meaning here, and its letter none of its own.
        if self.pending.first() == Some(&0x1b) {
            self.pending.push(byte);
            if is_whole(&self.pending) {
                self.pending.clear();
            }
            return KeyAction::Nothing;
        }
        match byte {
            b'\r' | b'\n' => {
                let typed = self.leave_typing(now);
                return match (typed, self.chosen.clone()) {
                    (Some(TypedText::Reason(reason)), Some(id)) => KeyAction::Ask(Request::Deny {
                        id,
                        reason: Some(reason).filter(|reason| !reason.trim().is_empty()),
                    }),
                    _ => KeyAction::Nothing,
                };
            }
            0x1b => self.ended = self.leave_typing(now).map(|typing| (typing, now)),
            0x03 => drop(self.leave_typing(now)),
            0x08 | 0x7f => {
                if let Some(TypedText::Reason(reason)) = &mut self.typing {
                    reason.pop();
                }
            }
            byte => {
                self.pending.push(byte);
                // Letters of more than one byte come byte by byte.
                match std::str::from_utf8(&self.pending) {
                    Ok(text) => {
                        if let Some(TypedText::Reason(reason)) = &mut self.typing
                            && reason.len() < LONGEST
                        {
                            reason.extend(text.chars().filter(|letter| !letter.is_control()));
                        }
                        self.pending.clear();
                    }
                    Err(error) if error.error_len().is_some() => self.pending.clear(),
                    Err(_) => {}
                }
            }
        }
        KeyAction::Nothing
    }

    /// Keys are keys again.
    fn leave_typing(&mut self, now: Duration) -> Option<TypedText> {
        self.pending.clear();
        let typed = self.typing.take();
        if matches!(typed, Some(TypedText::Void(_))) {
            // The newly selected gate was hardly read meanwhile.
            self.paused = now + PAUSE;
        }
        typed
    }

    fn allow_gate(&mut self, scope: ApprovalScope, now: Duration) -> KeyAction {
        if self.chosen.is_some() && !self.is_read {
            self.notice = "not fully shown yet: press space until the end, in a larger terminal if needed".to_owned();
            return KeyAction::Nothing;
        }
        self.answer_gate(now, |id| Request::Allow { id, scope, rule: None, lasts: None })
    }

    fn answer_gate(&mut self, now: Duration, request: impl FnOnce(String) -> Request) -> KeyAction {
        if !self.may_answer(now) {
            return KeyAction::Nothing;
        }
        self.chosen.clone().map_or(KeyAction::Nothing, |id| KeyAction::Ask(request(id)))
    }

    fn may_answer(&mut self, now: Duration) -> bool {
        if self.chosen.is_some() && now < self.paused {
            self.notice = "this approval has just appeared: read it, and press the key again".to_owned();
            return false;
        }
        self.notice.clear();
        self.chosen.is_some()
    }

    fn move_selection(&mut self, is_down: bool) {
        let at = self.rows.iter().position(|row| Some(&row.id) == self.chosen.as_ref()).unwrap_or(0);
        let to = if is_down { (at + 1).min(self.rows.len().saturating_sub(1)) } else { at.saturating_sub(1) };
        if to != at {
            self.select_row(to);
            self.paused = Duration::ZERO;
            self.notice.clear();
        }
    }

    fn select_row(&mut self, at: usize) {
        self.chosen = self.rows.get(at).map(|row| row.id.clone());
        (self.top, self.seen, self.is_read) = (0, 0, false);
    }

    /// Returns the whole picture for a terminal of this size.
    pub(super) fn draw(&mut self, columns: usize, lines: usize) -> String {
        let paint = ColourMode::for_stdout();
        let at = self.rows.iter().position(|row| Some(&row.id) == self.chosen.as_ref());
        // A third for the list, around the choice; the rest for what is chosen.
        let shown = (lines / 3).max(1);
        let from = at.unwrap_or(0).saturating_sub(shown.saturating_sub(1));
        let mut text = Vec::new();
        let waits = match self.rows.len() {
            0 => "No pending approvals.".to_owned(),
            1 => "1 pending approval".to_owned(),
            count => format!("{count} pending approvals"),
        };
        text.push(paint.apply_style(TextStyle::Strong, cut_to_width(&waits, columns)));
        for (number, row) in self.rows.iter().enumerate().skip(from).take(shown) {
            let line = format!("{}  {}  {}", short_id(&row.id), one_line(&row.subject), requester_id(row));
            let is_chosen = Some(number) == at;
            let line = cut_to_width(&format!("{} {line}", if is_chosen { ">" } else { " " }), columns);
            text.push(paint.apply_style(if is_chosen { TextStyle::Asking } else { TextStyle::Faint }, line));
        }
        text.push(String::new());
        self.room = lines.saturating_sub(text.len() + 3).max(1);
        if let Some(row) = at.and_then(|at| self.rows.get(at)) {
            let details = detail_lines(row, columns);
            if columns != self.columns {
                (self.columns, self.seen) = (columns, 0);
            }
            self.top = self.top.min(details.len().saturating_sub(self.room));
            if !self.is_read {
                // Nothing is passed over, however fast the keys come.
                self.top = self.top.min(self.seen);
            }
            let end = (self.top + self.room).min(details.len());
            let shown = &details[self.top..end];
            // Lines that do not fit into the terminal are not seen.
            let fit =
                shown.iter().take(lines.saturating_sub(text.len())).take_while(|line| text_width(line) <= columns);
            self.seen = self.seen.max(self.top + fit.count());
            self.is_read |= self.seen == details.len();
            text.extend_from_slice(shown);
            let left = details.len() - end;
            let more = if left > 0 { format!("… {left} more lines: space") } else { String::new() };
            text.push(cut_to_width(&more, columns));
        }
        text.resize(lines.saturating_sub(2).max(text.len()), String::new());
        let (first, second) = match &self.typing {
            Some(TypedText::Reason(reason)) => {
                let tail = end_of_width(reason, columns.saturating_sub(9));
                (cut_to_width(&format!("reason: {tail}_"), columns), "enter: deny   escape: cancel")
            }
            Some(TypedText::Void(gate)) => {
                let notice = format!("{gate} has ended: the reason is discarded, and nothing that you type is sent");
                (
                    paint.apply_style(TextStyle::Asking, cut_to_width(&notice, columns)),
                    "enter or escape: back to the list",
                )
            }
            None => (paint.apply_style(TextStyle::Asking, cut_to_width(&self.notice, columns)), KEYS),
        };
        text.push(first);
        text.push(paint.apply_style(TextStyle::Faint, cut_to_width(second, columns)));
        text.truncate(lines.max(1));
        // Line by line over the old content, so that nothing flickers. A line is cleared before it is written: after its last column that
        // would clear the last character.
        let mut picture = String::from("\u{1b}[H");
        for (number, line) in text.iter().enumerate() {
            let clear = if number + 1 < text.len() { "K" } else { "J" };
            let _ = write!(picture, "{}\u{1b}[{clear}{line}", if number > 0 { "\r\n" } else { "" });
        }
        picture
    }
}

/// Reports whether these bytes are all of a key; an arrow or a page key has several.
fn is_whole(key: &[u8]) -> bool {
    match key {
        b"\x1b" | b"\x1b[" | b"\x1bO" => false,
        [0x1b, b'[', .., last] => !(0x20..=0x3f).contains(last),
        _ => true,
    }
}

/// Returns the end of an id, which is enough to name it.
fn short_id(id: &str) -> &str {
    &id[id.len().saturating_sub(8)..]
}

fn one_line(text: &str) -> String {
    escape(text, LineMode::One).into_owned()
}

/// Returns all details that an approver needs, in lines that fit.
fn detail_lines(row: &GateRow, columns: usize) -> Vec<String> {
    let mut text = vec![one_line(&row.subject)];
    for (name, value) in &row.arguments {
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let shown = escape(&value, LineMode::Many).replace('\t', "    ");
        let name = label(name);
        if shown.contains('\n') {
            text.push(format!("{name}:"));
            text.extend(shown.split('\n').map(|line| format!("  | {line}")));
        } else {
            text.push(format!("{name}: {shown}"));
        }
    }
    text.extend(row.runs.iter().map(|line| format!("runs {}", one_line(line))));
    if let Some(folder) = &row.folder {
        text.push(format!("in folder {}", one_line(folder)));
    }
    if let Some(intent) = &row.intent {
        text.push(format!("purpose {}", one_line(intent)));
    }
    if !row.reason.is_empty() {
        text.push(format!("reason {}", one_line(&row.reason)));
    }
    if let Some(approvals) = &row.approvals {
        text.push(format!("approvals {}", one_line(&approvals.to_string())));
    }
    text.push(format!("asked by {}", requester_text(row)));
    if let Some(deadline) = &row.deadline {
        text.push(format!("until {deadline}"));
    }
    text.iter().flat_map(|line| fold_line(line, columns)).collect()
}

/// Indentation of the continuation of a line.
const FURTHER: &str = "    ";

/// Returns a line in lines that fit. What goes on is set in: a long text must not look as if something else began in it.
fn fold_line(line: &str, columns: usize) -> Vec<String> {
    if text_width(line) <= columns {
        return vec![line.to_owned()];
    }
    // A narrow terminal has less to spare.
    let further = &FURTHER[..FURTHER.len().min(columns / 3)];
    let pieces = wrap_line(line, (columns - further.len()).max(1)).into_iter().enumerate();
    pieces.map(|(at, piece)| if at == 0 { piece } else { format!("{further}{piece}") }).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use countersign_core::gate::ApprovalScope;
    use countersign_gateway::control::Request;
    use countersign_view::GateRow;
    use serde_json::json;

    use super::{GateScreen, KEYS, KeyAction, MORE, PAUSE, detail_lines};

    const LATER: Duration = Duration::from_secs(60);

    fn row(id: &str, command: &str) -> GateRow {
        serde_json::from_value(json!({
            "id": format!("gate_{id:0>32}"), "kind": "approval", "door": "agent-gate", "session": "agent:pi", "title": "t",
            "subject": "t(x)", "arguments": { "command": command }, "reason": "rule", "opened_at": "", "deadline": null,
        }))
        .unwrap()
    }

    fn screen(rows: &[GateRow]) -> GateScreen {
        let mut screen = GateScreen::default();
        screen.show_rows(rows.to_vec(), Duration::ZERO);
        screen.draw(80, 24);
        screen
    }

    fn allow(id: &str) -> KeyAction {
        let id = format!("gate_{id:0>32}");
        KeyAction::Ask(Request::Allow { id, scope: ApprovalScope::Once, rule: None, lasts: None })
    }

    fn keys(screen: &mut GateScreen, keys: &str) -> KeyAction {
        keys.bytes().map(|byte| screen.press_key(byte, LATER)).last().unwrap()
    }

    #[test]
    fn a_key_answers_what_is_chosen() {
        let rows = [row("a", "ls"), row("b", "pwd")];
        for (pressed, want) in
            [("a", allow("a")), ("ja", allow("b")), ("\u{1b}[B\u{1b}[Aa", allow("a")), ("q", KeyAction::End)]
        {
            let mut screen = screen(&rows);
            let mut next = KeyAction::Nothing;
            for byte in pressed.bytes() {
                next = screen.press_key(byte, LATER);
                screen.draw(80, 24);
            }
            assert_eq!(next, want, "{pressed:?}");
        }
    }

    #[test]
    fn the_keys_fit_into_eighty_columns_and_help_lists_more() {
        let mut screen = screen(&[row("a", "ls")]);
        assert!(screen.draw(80, 24).contains(KEYS));
        assert_eq!(screen.press_key(b'?', LATER), KeyAction::Nothing);
        assert!(screen.draw(80, 24).contains(MORE));
    }

    #[test]
    fn a_gate_that_took_the_place_of_another_is_not_answered_in_its_stead() {
        let mut screen = screen(&[row("a", "ls"), row("b", "pwd")]);
        screen.show_rows(vec![row("b", "pwd")], LATER);
        screen.draw(80, 24);
        assert_eq!(screen.press_key(b'a', LATER), KeyAction::Nothing);
        assert_eq!(screen.press_key(b'a', LATER + PAUSE), allow("b"));
        // One that comes above moves nothing.
        screen.show_rows(vec![row("c", "id"), row("b", "pwd")], LATER + PAUSE);
        screen.draw(80, 24);
        assert_eq!(screen.press_key(b'a', LATER + PAUSE), allow("b"));
    }

    #[test]
    fn what_was_not_shown_whole_is_not_allowed_but_can_be_denied() {
        let mut screen = screen(&[row("a", &"x".repeat(5_000))]);
        assert_eq!(screen.press_key(b'a', LATER), KeyAction::Nothing);
        assert_eq!(screen.press_key(b'd', LATER), KeyAction::Nothing);
        assert!(matches!(screen.press_key(b'\r', LATER), KeyAction::Ask(Request::Deny { .. })));
        for _ in 0..20 {
            screen.press_key(b' ', LATER);
            screen.draw(80, 24);
        }
        assert_eq!(screen.press_key(b'a', LATER), allow("a"));
    }

    #[test]
    fn a_reason_is_written_and_sent_or_given_up() {
        let mut one = screen(&[row("a", "ls")]);
        let deny = |reason: Option<&str>| {
            let id = format!("gate_{:0>32}", "a");
            KeyAction::Ask(Request::Deny { id, reason: reason.map(str::to_owned) })
        };
        assert_eq!(keys(&mut one, "rnöx\u{7f}\r"), deny(Some("nö")));
        assert_eq!(keys(&mut one, "d  \r"), deny(None));
        keys(&mut one, "rno\u{1b}");
        assert_eq!(one.press_key(b'a', LATER + PAUSE), allow("a"), "after escape a key is a key");
    }

    #[test]
    fn a_reason_whose_gate_is_over_answers_no_other_gate() {
        let rows = [row("a", "ls"), row("b", "pwd")];
        for end in [b'\r', 0x1b] {
            let mut screen = screen(&rows);
            keys(&mut screen, "rthat");
            screen.show_rows(rows[1..].to_vec(), LATER);
            assert!(screen.draw(120, 24).contains("the reason is discarded"));
            let much_later = LATER + 10 * PAUSE;
            for byte in " was a bad Ads".bytes() {
                assert_eq!(screen.press_key(byte, much_later), KeyAction::Nothing);
                assert!(screen.draw(120, 24).contains("the reason is discarded"));
            }
            assert_eq!(screen.press_key(end, much_later), KeyAction::Nothing);
            assert!(!screen.draw(120, 24).contains("the reason is discarded"));
            assert_eq!(screen.press_key(b'a', much_later + PAUSE / 2), KeyAction::Nothing, "it was hardly looked at");
            assert_eq!(screen.press_key(b'a', much_later + 2 * PAUSE), allow("b"));
        }
    }

    #[test]
    fn an_arrow_in_a_reason_is_no_answer() {
        for arrow in ["\u{1b}[A", "\u{1b}[1;5A", "\u{1b}OA", "\u{1b}d", "\u{1b}\u{7f}"] {
            let mut one = screen(&[row("a", "ls")]);
            for byte in format!("rn{arrow}o").bytes() {
                assert_eq!(one.press_key(byte, LATER), KeyAction::Nothing, "{arrow:?}");
            }
            let KeyAction::Ask(Request::Deny { reason, .. }) = one.press_key(b'\r', LATER) else { panic!("{arrow:?}") };
            assert_eq!(reason.as_deref(), Some("no"), "{arrow:?}");
        }
        let mut one = screen(&[row("a", "ls")]);
        for byte in "\u{1b}[1;5A".bytes() {
            assert_eq!(one.press_key(byte, LATER), KeyAction::Nothing, "an arrow with control");
        }
    }

    #[test]
    fn what_goes_on_in_the_next_line_looks_like_no_beginning() {
        let lines = detail_lines(&row("a", &format!("{} allowed by ana", "x".repeat(25))), 40);
        assert!(lines.iter().any(|line| line == "    allowed by ana"), "{lines:?}");
        let lines = detail_lines(&row("a", &format!("{} allowed by ana", "x".repeat(25))), 8);
        let is_piece = |line: &&String| line.trim_start().starts_with("allow");
        assert!(lines.iter().filter(is_piece).all(|line| line.starts_with("  ")), "{lines:?}");
        let mut asking = row("a", "ls");
        asking.arguments.insert("asked by agent".to_owned(), json!("trusted"));
        assert!(detail_lines(&asking, 80).contains(&"\"asked by agent\": trusted".to_owned()));
    }

    #[test]
    fn what_a_terminal_has_no_room_for_is_not_allowed() {
        let wide = "\u{6f22}".repeat(300);
        for (columns, lines, command) in [(80, 1, "ls"), (80, 2, "ls"), (80, 3, "ls"), (1, 24, "\u{6f22}")] {
            let mut screen = GateScreen::default();
            screen.show_rows(vec![row("a", command)], Duration::ZERO);
            for _ in 0..40 {
                screen.draw(columns, lines);
                screen.press_key(b' ', LATER);
            }
            assert_eq!(screen.press_key(b'a', LATER), KeyAction::Nothing, "{columns}x{lines}");
        }
        // Spaces that come together pass over nothing.
        let mut screen = screen(&[row("a", &"x".repeat(5_000))]);
        keys(&mut screen, &" ".repeat(20));
        screen.draw(80, 24);
        assert_eq!(screen.press_key(b'a', LATER), KeyAction::Nothing);
        // Letters of two cells take two.
        let mut screen = GateScreen::default();
        screen.show_rows(vec![row("a", &wide)], Duration::ZERO);
        let picture = screen.draw(40, 12);
        for line in picture.split("\r\n").filter_map(|line| line.split_once("\u{1b}[K")) {
            assert!(
                line.1.chars().map(|letter| if letter.is_ascii() { 1 } else { 2 }).sum::<usize>() <= 41,
                "{line:?}"
            );
        }
        assert_eq!(screen.press_key(b'a', LATER), KeyAction::Nothing, "600 cells need more than these lines");
    }

    #[test]
    fn a_picture_never_has_more_lines_or_wider_ones_than_the_terminal() {
        let rows: Vec<GateRow> = (0..50).map(|at| row(&at.to_string(), &"x y ".repeat(300))).collect();
        for (columns, lines) in [(80, 24), (20, 5), (1, 1), (200, 60)] {
            let mut screen = GateScreen::default();
            screen.show_rows(rows.clone(), Duration::ZERO);
            let picture = screen.draw(columns, lines);
            let shown: Vec<&str> = picture.split("\r\n").collect();
            assert!(shown.len() <= lines, "{columns}x{lines}: {}", shown.len());
            let bare = |line: &str| line.replace("\u{1b}[H", "").replace("\u{1b}[K", "").replace("\u{1b}[J", "");
            assert!(shown.iter().all(|line| bare(line).chars().count() <= columns), "{columns}x{lines}");
        }
    }
}
