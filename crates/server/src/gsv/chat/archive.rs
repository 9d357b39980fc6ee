//! Where messages go that leave a conversation: compressed JSON lines in the store of the data directory, one message a line.

use std::{
    io::Write as _,
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    sync::Arc,
};

use countersign_protocol::{
    Json,
    gsv::{Fault, message::Message, session::ArchiveNote},
};
use flate2::{Compression, write::GzEncoder};

use super::{
    super::Door,
    messages,
    seen::{Line, unreadable},
};

/// Where the store lies in the data directory.
const STORE: &str = "objects";

/// The messages of these lines, in order. What was redacted is left out.
///
/// # Errors
/// 500 if the record cannot be read.
pub(super) async fn messages(door: &Arc<Door>, lines: &[Line]) -> Result<Vec<Message>, Fault> {
    let contents: Vec<_> = lines.iter().map(|line| line.content).collect();
    let texts = door.site.handle.contents().get(&contents).await.map_err(unreadable)?;
    let said = texts.iter().zip(lines).filter_map(|(text, line)| messages::wire(text.as_deref()?, line.at));
    Ok(said.collect())
}

/// Puts messages into the store under `name`, and beside them what they are. They are there before this is done.
///
/// # Errors
/// 500 if they could not be written.
pub(super) async fn put(
    door: &Arc<Door>,
    name: String,
    messages: Vec<Message>,
    note: ArchiveNote,
) -> Result<(), Fault> {
    let path = door.site.config.storage.folder.join(STORE).join(&name);
    let write = move || {
        let mut packed = GzEncoder::new(Vec::new(), Compression::default());
        for message in &messages {
            writeln!(packed, "{}", Json::of(message).text())?;
        }
        let note_path = path.with_extension("json");
        replace(&path, &packed.finish()?)?;
        replace(&note_path, Json::of(&note).text().as_bytes())
    };
    let written = tokio::task::spawn_blocking(write).await.map_err(unreadable)?;
    written.map_err(|error| unreadable(format!("{name}: {error}")))
}

/// Writes a file that is there as a whole or not at all, for nobody but the gateway.
fn replace(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let folder = path.parent().unwrap_or_else(|| Path::new("."));
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let temporary: PathBuf = path.with_extension("part");
    let mut file = std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&temporary)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    std::fs::rename(&temporary, path)?;
    std::fs::File::open(folder)?.sync_all()
}
