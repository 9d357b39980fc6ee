//! The demo at a terminal: what a person sees and types.

use std::{
    fs::File,
    io::{Read as _, Write as _},
    os::fd::{AsFd as _, OwnedFd},
    path::Path,
    process::{Child, Command},
    sync::mpsc::{Receiver, channel},
    thread,
};

use countersign_testkit::process::{WAIT_TIMEOUT, binary_path, eventually};
use nix::{
    pty::{Winsize, openpty},
    sys::{
        signal::{Signal, kill},
        termios::{Termios, tcgetattr},
    },
    unistd::Pid,
};

/// The demo on a terminal of its own.
struct DemoTerminal {
    child: Child,
    keys: File,
    /// Content of the screen, as it comes.
    screen: Receiver<String>,
    seen: String,
    /// The terminal itself, and how it was before.
    end: OwnedFd,
    before: Termios,
    folder: tempfile::TempDir,
}

impl DemoTerminal {
    /// Starts the demo in a folder that stays.
    fn open() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path().join("demo").display().to_string();
        Self::start(folder, &["--dir", &dir])
    }

    /// Starts the demo with these flags, its temporary files in `folder`.
    fn start(folder: tempfile::TempDir, flags: &[&str]) -> Self {
        let size = Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
        let pair = openpty(&size, None).unwrap();
        let before = tcgetattr(&pair.slave).unwrap();
        let end = || pair.slave.try_clone().unwrap();
        // It makes the terminal that of the demo, so that its keys become signals.
        let child = Command::new("setsid")
            .arg("--ctty")
            .arg(binary_path())
            .arg("demo")
            .args(flags)
            .env("NO_COLOR", "1")
            .env("TMPDIR", folder.path())
            .stdin(end())
            .stdout(end())
            .stderr(end())
            .spawn()
            .unwrap();
        let keys = File::from(pair.master);
        let (mut output, (sender, screen)) = (keys.try_clone().unwrap(), channel());
        thread::spawn(move || {
            let (mut buffer, mut rest) = ([0; 4096], Vec::new());
            while let Ok(count) = output.read(&mut buffer)
                && count > 0
            {
                rest.extend_from_slice(&buffer[..count]);
                // The rest of a character that was cut comes with the next bytes.
                let whole = std::str::from_utf8(&rest).map_or_else(|error| error.valid_up_to(), str::len);
                let text: Vec<u8> = rest.drain(..whole).collect();
                if sender.send(String::from_utf8_lossy(&text).replace('\r', "")).is_err() {
                    break;
                }
            }
        });
        Self { child, keys, screen, seen: String::new(), end: pair.slave, before, folder }
    }

    /// Waits until `text` stands on the screen, and gives what came up to it. What was seen is not looked at again.
    fn see(&mut self, text: &str) -> String {
        loop {
            if let Some(at) = self.seen.find(text) {
                return self.seen.drain(..at + text.len()).collect();
            }
            match self.screen.recv_timeout(WAIT_TIMEOUT) {
                Ok(more) => self.seen.push_str(&more),
                Err(_) => panic!("{text:?} did not come; this did: {}", self.seen),
            }
        }
    }

    fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
    }

    /// Waits for the end, which leaves the terminal as it was, and gives its code.
    fn end(&mut self) -> Option<i32> {
        let status = eventually("the end of the demo", || self.child.try_wait().unwrap());
        assert_eq!(tcgetattr(self.end.as_fd()).unwrap(), self.before);
        status.code()
    }

    /// Reports whether the action that needed approval was done.
    fn is_published(&self) -> bool {
        let file = self.folder.path().join(Path::new("demo/published/greet.sh"));
        std::fs::read_to_string(file).unwrap().contains("Hello, $name!")
    }
}

impl Drop for DemoTerminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const APPROVAL_PROMPT: &str = "Allow it once? (y / n, or n and a reason)";

#[test]
fn the_card_is_shown_whole_and_only_a_clear_yes_allows() {
    let mut terminal = DemoTerminal::open();
    let shown = terminal.see(APPROVAL_PROMPT);
    let card = &shown[shown.find("┌ Approval needed").unwrap()..];
    let lines: Vec<&str> =
        card.lines().filter_map(|line| Some(line.trim_start().strip_prefix("│ ")?.trim_end())).collect();
    for want in ["command: rm -rf ../published && cp -R . ../published", "asked: ", "the agent says: "] {
        assert!(lines.iter().any(|line| line.starts_with(want)), "{want}: {card}");
    }
    assert!(card.contains("in folder: ") && card.trim_end().ends_with(&format!("└\n  {APPROVAL_PROMPT}")), "{card}");
    for wrong in ["\n", "x\n", "yes please\n", "\u{1b}[Ay\n"] {
        terminal.press(wrong);
        terminal.see("Please answer y to allow it once, or n to deny it:");
        assert!(!terminal.is_published(), "{wrong:?}");
    }
    terminal.press("y\n");
    terminal.see("Allowed by you. This decision is in the record.");
    assert_eq!(terminal.end(), Some(0));
    assert!(terminal.is_published());
}

#[test]
fn a_no_denies_with_the_reason_from_the_prompt() {
    let mut terminal = DemoTerminal::open();
    terminal.see(APPROVAL_PROMPT);
    terminal.press("n\n");
    terminal.see("Reason for the agent (Enter for none):");
    terminal.press("not on a Friday\n");
    terminal.see("Denied by you. This decision is in the record.");
    terminal.see("not on a Friday");
    assert_eq!(terminal.end(), Some(0));
    assert!(!terminal.is_published());
}

#[test]
fn an_interrupt_at_the_prompt_ends_it_and_allows_nothing() {
    let mut terminal = DemoTerminal::open();
    terminal.see(APPROVAL_PROMPT);
    terminal.press("\u{3}");
    terminal.see("Interrupted. Running commands were stopped, and pending ones were not allowed.");
    assert_eq!(terminal.end(), Some(130));
    assert!(!terminal.is_published());
}

#[test]
fn a_no_whose_reason_never_comes_is_still_the_persons() {
    let mut terminal = DemoTerminal::open();
    terminal.see(APPROVAL_PROMPT);
    terminal.press("n\n");
    terminal.see("Reason for the agent (Enter for none):");
    terminal.press("\u{4}");
    terminal.see("Denied by you. This decision is in the record.");
    assert_eq!(terminal.end(), Some(0));
    assert!(!terminal.is_published());
}

#[test]
fn a_terminal_that_closes_leaves_no_scratch_folder() {
    let mut terminal = DemoTerminal::start(tempfile::tempdir().unwrap(), &[]);
    terminal.see(APPROVAL_PROMPT);
    assert_eq!(terminal.folder.path().read_dir().unwrap().count(), 1);
    kill(Pid::from_raw(i32::try_from(terminal.child.id()).unwrap()), Signal::SIGHUP).unwrap();
    assert_eq!(terminal.end(), Some(130));
    assert_eq!(terminal.folder.path().read_dir().unwrap().count(), 0);
}
