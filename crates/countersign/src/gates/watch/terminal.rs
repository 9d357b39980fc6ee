//! The terminal while it shows a screen of ours: every key at once, and everything as it was when we leave.

use std::io::{Write as _, stdin, stdout};

use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};

/// A second page, which leaves the first as it was; the cursor is hidden.
const ENTER: &str = "\u{1b}[?1049h\u{1b}[?25l";
const LEAVE: &str = "\u{1b}[?25h\u{1b}[?1049l";

/// A terminal in our hands until it is dropped.
pub(super) struct RawTerminal(Termios);

impl RawTerminal {
    pub(super) fn enter_raw() -> std::io::Result<Self> {
        let before = tcgetattr(stdin())?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(stdin(), OptionalActions::Flush, &raw)?;
        let terminal = Self(before);
        let mut out = stdout();
        out.write_all(ENTER.as_bytes())?;
        out.flush()?;
        Ok(terminal)
    }

    /// Returns columns and lines, as far as they are known.
    pub(super) fn size(&self) -> (usize, usize) {
        let size = tcgetwinsize(stdout()).ok().filter(|size| size.ws_col > 0 && size.ws_row > 0);
        size.map_or((80, 24), |size| (usize::from(size.ws_col), usize::from(size.ws_row)))
    }
}

impl Drop for RawTerminal {
    fn drop(&mut self) {
        let mut out = stdout();
        // Nothing can be done about a terminal that is gone.
        let _ = out.write_all(LEAVE.as_bytes()).and_then(|()| out.flush());
        let _ = tcsetattr(stdin(), OptionalActions::Flush, &self.0);
    }
}
