//! What is said in a session: a command, an answer to what waits, directives, or a message that begins a run.

use std::sync::Arc;

use countersign_core::{
    engine::{Command, Reply},
    id::PrincipalId,
    message::{self, Block, Message, estimate_tokens},
    run::Marks,
    session::{self, Said},
};
use countersign_protocol::{
    Json,
    gsv::{
        Fault,
        chat::{Send, Sent, State},
        code,
        command::{self, Style},
        directive,
        message::Message as Shown,
    },
};

use super::{
    super::{Door, dispatch::Answer, peer::Peer},
    Moment, answering, commands, lives,
    seen::{Seen, see},
};

/// How long a client's name of a run may be, in bytes.
const LONGEST_RUN: usize = 256;

/// Who says something, where it came from, and how it is answered.
pub(in crate::gsv) struct Speaker {
    /// In the record.
    pub(in crate::gsv) by: PrincipalId,
    /// Where the answer goes, in the words of whoever brings it there.
    pub(in crate::gsv) origin: Option<String>,
    /// How texts for it are written.
    pub(in crate::gsv) style: Style,
    /// When it was said, as cards go: nobody answers one that was told later.
    pub(in crate::gsv) came: Moment,
}

/// How many messages may wait in a session.
const MOST_QUEUED: usize = 200;

pub(super) async fn from_client(door: &Arc<Door>, peer: &Peer, send: Send, came: Moment) -> Answer {
    let key = lives::canonical(door, &send.session_key)?;
    peer.wrote(&key, &send.session_key);
    let speaker = Speaker { by: peer.principal(), origin: None, style: Style::Plain, came };
    let sent = say(door, &key, &send.message, send.run_id, &speaker).await?;
    Ok(Json::of(&sent))
}

/// Says something in the session with this canonical key. `run` is what whoever says it calls the run.
///
/// # Errors
/// 400 for what cannot be said, 503 where too much waits to be said, 500 if nothing was recorded.
pub(in crate::gsv) async fn say(
    door: &Arc<Door>,
    key: &str,
    text: &str,
    run: Option<String>,
    speaker: &Speaker,
) -> Result<Sent, Fault> {
    if text.trim().is_empty() {
        return Err(Fault::invalid("sessionKey and message required"));
    }
    if run.as_ref().is_some_and(|run| run.len() > LONGEST_RUN) {
        return Err(Fault::invalid(format!("runId has at most {LONGEST_RUN} bytes")));
    }
    let _turn = door.desks.turn(key).await;
    let seen = see(door, key).await?;
    if let Some(command) = command::Command::read(text) {
        return Ok(commands::answer(door, seen, command, speaker).await);
    }
    let run = run.unwrap_or_else(|| uuid::Uuid::new_v4().to_string());
    if let Some(sent) = answering::answer(door, &seen, text, &run, speaker).await {
        return Ok(sent);
    }
    let provider = seen.model.as_ref().map_or_else(|| door.settings.model().provider, |model| model.provider.clone());
    let parsed = directive::parse(text, &provider);
    if parsed.is_all() {
        let mut response = parsed.acknowledgement();
        if parsed.status {
            let status = commands::status(&seen).text(speaker.style);
            response = Some(response.map_or_else(|| status.clone(), |told| format!("{told}\n{status}")));
        }
        return Ok(Sent::DirectiveOnly { response, directives: parsed.directives });
    }
    begin(door, seen, parsed, run, speaker).await
}

async fn begin(
    door: &Arc<Door>,
    mut seen: Seen,
    parsed: directive::Parsed,
    run: String,
    speaker: &Speaker,
) -> Result<Sent, Fault> {
    if seen.queued >= MOST_QUEUED {
        let why = format!("Too many messages wait in this session (at most {MOST_QUEUED})");
        return Err(Fault::new(code::UNAVAILABLE, why));
    }
    let id = lives::open(door, &seen.key).await?;
    if lives::is_due(door, &seen) {
        lives::renew(door, seen.clone(), &PrincipalId::new("system")).await?;
        seen = see(door, &seen.key).await?;
    }
    lives::catch_up(door, &id, &seen).await?;
    let directives = parsed.directives;
    let marks = Marks {
        reference: Some(run.clone()),
        origin: speaker.origin.clone(),
        model: directives.model.as_ref().map(|model| door.settings.reference(&door.site, model)),
        thinking: directives.think_level.map(|level| level.shown().to_owned()),
    };
    let said = session::Command::Say { said: said(&parsed.text), marks: Box::new(marks) };
    let queued = match lives::ask(door, Command::Session(id, said)).await? {
        Reply::Queued => !seen.is_at_rest,
        _ => false,
    };
    if let Some(asked) = seen.waiting.as_ref().filter(|_| queued) {
        let text = answering::awaited(asked);
        let partial = State::partial(&Shown::said(&text, door.site.clock.now().0));
        door.tell(&seen.key, Some(&run), partial, None);
    }
    Ok(Sent::Started { run_id: run, queued, directives })
}

/// A message of a person, as content.
fn said(text: &str) -> Said {
    let message = Message::User(message::Said { content: vec![Block::text(text)], ..message::Said::default() });
    let content = serde_json::to_string(&message).unwrap_or_default();
    Said { content: content.into(), tokens: estimate_tokens(text.len()) }
}
