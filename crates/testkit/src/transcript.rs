//! Transcripts: a conversation with a stdio adapter in plain text, played against the adapter in process and compared frame by frame.
//!
//! Nothing in it is real but the files: the replies of the model are in the transcript, and time stands still until the
//! transcript moves it. A line is one of these; `NAME` before an arrow distinguishes surfaces if there are several.
//!
//! | line | meaning |
//! |---|---|
//! | `# …` | for the reader |
//! | `model says "a" "b" and wants ls {"path":"."}` | the next reply of the model: `thinks`, `says`, `wants TOOL ARGUMENTS`, `pauses`, `hangs`, `breaks off`, `fails KIND "text"`, `used INPUT OUTPUT`, `stops short`, joined by `and`; each string is a piece as a provider sends it, and `pause` or `hang` may follow it |
//! | `model goes on`, `model was asked` | ends the pause that the model is in; waits until it got requests for all its replies |
//! | `file agent/config.yml` and lines that begin with a bar | writes a file below the root: `agent`, `work`, `home`, `sessions` |
//! | `speaks gjc` | every adapter speaks that dialect, not omp's; an event in its envelope is `{"seq":1,"session_id":…,"event":{…}}` |
//! | `keep sessions` | sessions are on disk; without it they are in memory |
//! | `flags --continue`, `NAME flags …` | flags of adapters that open from here on |
//! | `> {…}`, `NAME> {…}` | the host sends a line |
//! | `< {…}`, `NAME< {…}` | the next frame that it reads |
//! | `<~ {…}` | one of the next frames: lines like this in a row may come in any order |
//! | `<? {…}` | a frame that comes here, or between the following ones up to the next line that is no frame |
//! | `< ...` | any frames up to the next one in the transcript |
//! | `! text` | the adapter did not open, with this error; `...` is any text |
//! | `clock +2s` | time moves at once: `ms`, `s`, `min` |
//! | `work/x appears` | waits for a file |
//! | `restart` | the process dies without an end and is started again on the same files |
//! | `end` | the host closes its input; the frames of the ending follow |
//!
//! In frames, ids (of gates too) and times have names in the order of their appearance: `<session-1>`, `<dialog-1>`, `<entry-1>`,
//! `<t+50ms>`, and `<root>` for the folder of all. A message, a usage or a model that came before is named instead of written
//! again: `<user-1>`, `<assistant-1>`, `<result of call-1>`, `<usage-1>`; `<local/small>` are an assistant message's `api`,
//! `provider` and `model`, `<message>` is the message of the same frame. In lines that the host sends the names of ids
//! stand for the ids.

mod fixture;
mod placeholders;
mod player;
mod reply;
mod script;

use std::path::Path;

use countersign_tools::exec::ExecLauncher;

/// Variable that has frames that differ written into the transcript instead of reported.
const UPDATE: &str = "UPDATE_TRANSCRIPTS";

/// Plays the transcript at `path`. `launcher` starts the child that runs commands.
///
/// With `UPDATE_TRANSCRIPTS` in the environment, frames other than the expected ones are written into the file.
///
/// # Errors
/// The first line with a problem, with file and line, for a person to read.
pub fn check(path: &Path, launcher: ExecLauncher) -> Result<(), String> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let at = |(line, problem): (usize, String)| format!("{}:{line}: {problem}", path.display());
    let script = script::parse_script(&text).map_err(at)?;
    if std::env::var_os(UPDATE).is_none() {
        return player::check_script(&script, launcher).map_err(at);
    }
    let updated = player::update_script(&script, launcher).map_err(at)?;
    if updated == text {
        return Ok(());
    }
    std::fs::write(path, updated).map_err(|error| format!("{}: {error}", path.display()))
}
