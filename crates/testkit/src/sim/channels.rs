//! Chat networks and settings of a simulation: inbound messages, outbound messages, pairing and settings.
//!
//! It must not ask the engine: it reads the record as an outsider would.

use std::collections::{BTreeMap, BTreeSet};

use countersign_core::{
    channel::{
        self, AddressKind, ChannelAccount, ChatAddress, DeliveryEnd, Event as Told, InboundMessage, MessageOrigin,
        OutboundRequest, PairingRequest,
    },
    digest::Digest,
    engine::{Command, Event, Fact, FactMeta, RecordedFact, State},
    gate,
    id::{GateId, Lsn, OutboundId, PrincipalId, SessionId},
    run, session,
    settings::{self, SettingsPath},
};
use serde_json::{Map, Value, json};

use super::{commands, messages, rng::SimRng};

/// All chat networks and settings, by the record.
#[derive(Clone, Debug, Default)]
pub(super) struct ChannelAudit {
    /// Ids of messages by account, for as long as they are remembered.
    accounts: BTreeMap<ChannelAccount, BTreeSet<String>>,
    /// Outbound messages on their way, and those that ended.
    owed: BTreeMap<OutboundId, ChannelAccount>,
    ended: BTreeSet<OutboundId>,
    /// Idempotency keys of outbound messages.
    keys: BTreeSet<String>,
    /// Senders who wait for pairing.
    knocking: BTreeMap<Digest, GateId>,
    /// Settings, by their whole path, and the secrets among them.
    set: BTreeMap<String, Value>,
    secrets: BTreeSet<String>,
}

impl ChannelAudit {
    /// Reads one record, and reports the rule that it breaks.
    pub(super) fn read_record(&mut self, event: &Event) -> Result<(), String> {
        match event {
            Event::Channel(event) => self.read_channel_event(event),
            Event::Settings(event) => self.read_setting_event(event),
            Event::Gate(gate::Event::Opened { gate, kind: gate::Kind::Pairing, subject, .. }) => ensure(
                self.knocking.insert(*subject, *gate).is_none(),
                "a second pairing gate opens for the same sender",
            ),
            Event::Gate(gate::Event::Resolved { gate, .. }) => {
                self.knocking.retain(|_, knocking| knocking != gate);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn read_channel_event(&mut self, event: &Told) -> Result<(), String> {
        match event {
            Told::Met { account } => {
                ensure(self.accounts.insert(account.clone(), BTreeSet::new()).is_none(), "an account is added twice")
            }
            Told::Forgotten { account } => {
                ensure(self.accounts.remove(account).is_some(), "an unknown account is removed")?;
                ensure(!self.owed.values().any(|of| of == account), "outgoing messages of a removed account remain")
            }
            Told::Received { from, id, .. } => {
                let known_ids = self.accounts.get_mut(&from.account).ok_or("a message from an unknown account")?;
                ensure(id.as_ref().is_none_or(|id| known_ids.insert(id.clone())), "a message is received twice")
            }
            Told::Owed { letter, to, key, .. } => {
                ensure(self.accounts.contains_key(&to.account), "an outgoing message to an unknown account")?;
                ensure(
                    key.as_ref().is_none_or(|key| self.keys.insert(key.clone())),
                    "two outgoing messages with one key",
                )?;
                let is_new = !self.ended.contains(letter) && self.owed.insert(*letter, to.account.clone()).is_none();
                ensure(is_new, "two outgoing messages with one id")
            }
            Told::Ended { letter, .. } => {
                ensure(self.owed.remove(letter).is_some(), "an outgoing message ends that is not pending")?;
                ensure(self.ended.insert(*letter), "an outgoing message ends twice")
            }
        }
    }

    fn read_setting_event(&mut self, event: &settings::Event) -> Result<(), String> {
        let at = event.path().to_string();
        match event {
            settings::Event::Set { value, secrets, .. } => {
                self.set.remove(&at);
                self.set.extend(value.clone().map(|value| (at.clone(), value)));
                self.secrets.retain(|secret| !secret.starts_with(&at));
                self.secrets.extend(secrets.iter().map(|(path, _)| path.to_string()));
                Ok(())
            }
            settings::Event::Added { item, .. } => {
                let list = self.set.entry(at).or_insert_with(|| json!([]));
                let list = list.as_array_mut().ok_or("a text is added to a value that is not a list")?;
                ensure(!list.iter().any(|there| there == item), "a list has a text twice")?;
                list.push(item.as_str().into());
                Ok(())
            }
        }
    }

    /// Reports whether a state has exactly the content of the record.
    pub(super) fn is_all_there(&self, state: &State) -> Result<(), String> {
        let letters: BTreeSet<OutboundId> = state.channels().pending_messages().map(|letter| letter.id).collect();
        ensure(letters == self.owed.keys().copied().collect(), "the pending outgoing messages differ from the record")?;
        let accounts: BTreeSet<ChannelAccount> =
            state.channels().accounts().map(|known| known.account.clone()).collect();
        ensure(accounts == self.accounts.keys().cloned().collect(), "the known accounts differ from the record")?;
        let set = |at: &String| parse_path(at).and_then(|path| state.settings().get(&path).cloned());
        ensure(
            PATHS.iter().all(|at| set(&(*at).to_owned()) == self.set.get(*at).cloned()),
            "the settings differ from the record",
        )?;
        let secrets: BTreeSet<String> = state.settings().secrets().map(|(path, _)| path.to_string()).collect();
        ensure(secrets == self.secrets, "the secrets differ from the record")
    }
}

/// Paths of settings. None of them is within another.
const PATHS: [&str; 4] = ["auth.token", "channels.wx.allowFrom", "cron.enabled", "agents.list"];

fn parse_path(text: &str) -> Option<SettingsPath> {
    SettingsPath::from_names(text.split('.').map(str::to_owned))
}

/// Returns a command of a network that brings or takes a message, or of a user who changes a setting.
pub(super) fn random_command(rng: &mut SimRng, seen: &ChannelAudit) -> Command {
    let from = random_address(rng);
    let network = match rng.below(20) {
        0 | 1 => channel::Command::Meet(from.account),
        2 => channel::Command::Forget(from.account),
        3..10 => channel::Command::Hear(Box::new(inbound_message(rng, from))),
        10 | 11 => channel::Command::Send(Box::new(OutboundRequest {
            to: from,
            text: "words".into(),
            session: None,
            reply_to: None,
            // Seldom the key of an earlier outbound message of an account.
            key: rng.chance(60).then(|| format!("k{}", rng.below(6))),
            media: None,
        })),
        12..14 => {
            let owed: Vec<OutboundId> = seen.owed.keys().chain(&seen.ended).copied().collect();
            let Some(letter) = owed.get(rng.index(owed.len() + 1)) else { return set_command(rng) };
            let end = rng.pick(&[DeliveryEnd::Delivered, DeliveryEnd::Refused]);
            channel::Command::Ended { letter: *letter, end, why: None }
        }
        14..17 => channel::Command::Knock(Box::new(PairingRequest {
            from,
            sender: rng.pick(&["p1", "p2"]).to_owned(),
            question: "May they?".to_owned(),
            why: None,
            about: Map::new(),
            notice: "wait".into(),
        })),
        _ => return set_command(rng),
    };
    Command::Channel(network)
}

fn random_address(rng: &mut SimRng) -> ChatAddress {
    let account = ChannelAccount { network: "wx".to_owned(), name: rng.pick(&["a", "b"]).to_owned() };
    ChatAddress { account, kind: AddressKind::Dm, chat: rng.pick(&["c1", "c2"]).to_owned() }
}

fn inbound_message(rng: &mut SimRng, from: ChatAddress) -> InboundMessage<Command> {
    let id = format!("m{}", rng.below(12));
    let by = PrincipalId::new("channel:wx:p1");
    let origin = MessageOrigin { from: from.clone(), by, message: Some(id.clone()) };
    let marks = Box::new(run::RunMetadata { origin: Some(Box::new(origin)), ..run::RunMetadata::default() });
    let session = SessionId::new(rng.pick(&commands::SESSIONS));
    let then = match rng.below(10) {
        0..6 => Some(Command::Session(session, session::Command::Say { message: messages::user_message(rng), marks })),
        // Commands of users in a chat are recorded with their message, as texts are.
        6 => Some(Command::Run(run::Command::Abort { session })),
        7 => Some(Command::Session(
            session,
            session::Command::Renew { by: PrincipalId::new("channel:wx:p1"), owed: None },
        )),
        _ => None,
    };
    InboundMessage { from, agent: "main".to_owned(), id: rng.chance(90).then_some(id), then: then.map(Box::new) }
}

fn set_command(rng: &mut SimRng) -> Command {
    let by = PrincipalId::new("person:ana");
    let at = rng.pick(&PATHS);
    let Some(path) = parse_path(at) else { return Command::Tick };
    Command::Settings(match (at, rng.chance(20)) {
        (_, true) => settings::Command::Set { by, path, value: None, secrets: Vec::new() },
        ("channels.wx.allowFrom" | "agents.list", _) => {
            let item = rng.pick(&["p1", "p2", "p3"]).to_owned();
            settings::Command::Add { by, path, item }
        }
        ("auth.token", _) => {
            let secrets = vec![(path.clone(), Digest::hash_bytes(rng.pick(&["one", "other"]).as_bytes()))];
            settings::Command::Set { by, path, value: None, secrets }
        }
        _ => settings::Command::Set { by, path, value: Some(rng.chance(50).into()), secrets: Vec::new() },
    })
}

/// Plants the fault of an owner that takes a repeated message once more.
pub(super) fn receive_again(recorded: &RecordedFact, head: Lsn) -> Option<RecordedFact> {
    let Event::Channel(Told::Received { id: Some(_), .. }) = &recorded.fact.event else { return None };
    let meta = FactMeta { lsn: head.next(), ..recorded.meta.clone() };
    Some(RecordedFact { meta, fact: Fact { event: recorded.fact.event.clone(), session: None, content: None } })
}

fn ensure(holds: bool, broken: &str) -> Result<(), String> {
    if holds { Ok(()) } else { Err(broken.to_owned()) }
}
