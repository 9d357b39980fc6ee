//! Pairing of unknown senders: a gate for each, and the steps after its decision.

use std::{collections::BTreeMap, sync::Arc};

use countersign_core::{
    channel::{AddressKind, ChannelError, ChatAddress, Command as Network, OutboundRequest, PairingRequest},
    engine::{Command, CommandError as Refused, Engine, ResidencyScope as At},
    gate::{self, ApprovalScope, Gate, GateReply, GateResolution, Kind},
    id::{GateId, Lsn, PrincipalId},
};
use countersign_protocol::{
    RawJson,
    gsv::{
        GsvError,
        channel::{ChannelInboundParams, ChannelInboundResult, PeerKind},
        code,
        key::phone_number,
        pairing::{
            LONGEST_FIRST, PairApproveResult, PairDecisionParams, PairListResult, PairRejectResult, PendingPairing,
            pairing_key,
        },
    },
};
use countersign_runtime::{InboxLane, OwnerError as Unasked};
use countersign_view::{GateRequest, LineMode, escape};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{
    super::{GsvAdapter, delivery, method_result::MethodResult as Answered},
    access, addresses, channel_error,
};

/// Surface of a pairing gate, until all steps after its decision are done.
pub(super) const SURFACE: &str = "pairing";
/// Reply to an unknown sender.
const AWAITED: &str = "You are not known here yet. Somebody has to let you in first; you will hear of it.";
/// Message to a sender who was admitted.
const WELCOME: &str = "You were let in. What do you have to say?";

/// Stored data about an unknown sender.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PairingSubject {
    from: ChatAddress,
    sender_id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sender_name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    first_message: Option<String>,
}

impl PairingSubject {
    fn from_request(request: &GateRequest) -> Option<Self> {
        serde_json::from_value(Value::Object(request.go_on()?.about.clone())).ok()
    }
}

/// Opens a gate about an unknown sender, once.
///
/// # Errors
/// 503 if too many wait already, 500 if it was not recorded.
pub(super) async fn request_pairing(
    door: &Arc<GsvAdapter>,
    inbound: &ChannelInboundParams,
    from: ChatAddress,
) -> Result<ChannelInboundResult, GsvError> {
    let sender = phone_number(addresses::sender_id(inbound));
    let line = |text: &str| escape(text, LineMode::One).into_owned();
    let name = name_of(inbound);
    let short = |text: &str, most: usize| text.chars().take(most).collect::<String>();
    let name = name.map(|name| short(&name, 100));
    let first = Some(short(inbound.text.trim(), LONGEST_FIRST)).filter(|first| !first.is_empty());
    let who = match &name {
        Some(name) => format!("{} ({})", line(name), line(&sender)),
        None => line(&sender),
    };
    let channel = line(&inbound.channel);
    let about = PairingSubject {
        from: from.clone(),
        sender_id: sender.clone(),
        sender_name: name,
        first_message: first.clone(),
    };
    let about = match serde_json::to_value(about) {
        Ok(Value::Object(about)) => about,
        _ => Map::new(),
    };
    let knock = PairingRequest {
        from,
        sender: sender.clone(),
        question: format!("{who} wants to speak with an agent through {channel}. May they, from now on?"),
        why: Some(first.map_or_else(
            || "they are not known yet".to_owned(),
            |first| format!("they are not known yet, and say: {}", line(&first)),
        )),
        about,
        notice: AWAITED.into(),
    };
    let command = Command::Channel(Network::Knock(Box::new(knock)));
    match door.context.handle.source(InboxLane::Request).send_command(command).await {
        Ok(_) => Ok(ChannelInboundResult::PendingPairing { sender_id: sender }),
        Err(Unasked::Refusal(Refused::Channel(refusal @ ChannelError::Crowded(_)))) => {
            Err(GsvError::new(code::UNAVAILABLE, refusal.to_string()))
        }
        Err(refused) => Err(channel_error(refused)),
    }
}

/// Returns the name of the sender of a message. The name of a chat is its sender's in a chat with one person, if the message
/// has no other name.
fn name_of(inbound: &ChannelInboundParams) -> Option<String> {
    let (sender, peer) = (inbound.sender.as_ref(), &inbound.peer);
    let is_theirs = sender.is_none() || peer.kind == PeerKind::Dm;
    let names = [
        sender.and_then(|sender| sender.name.as_ref()),
        peer.name.as_ref().filter(|_| is_theirs),
        sender.and_then(|sender| sender.handle.as_ref()),
        peer.handle.as_ref().filter(|_| is_theirs),
    ];
    names.into_iter().flatten().find(|name| !name.trim().is_empty()).cloned()
}

/// Sender who waits for a decision.
struct WaitingSender {
    gate: GateId,
    since: u64,
    about: PairingSubject,
}

fn waiting_senders(engine: &Engine) -> Vec<WaitingSender> {
    let gates = engine.state().pending_gates().filter(|gate| gate.kind() == Kind::Pairing);
    let look = |gate: &Gate| {
        let about = PairingSubject::from_request(&GateRequest::at_hand(engine, gate.id())?)?;
        Some(WaitingSender { gate: gate.id(), since: gate.opened_at().0, about })
    };
    gates.filter_map(look).collect()
}

async fn read_waiting(door: &Arc<GsvAdapter>) -> Result<Vec<WaitingSender>, GsvError> {
    let read = door.context.handle.source(InboxLane::Request).read_state(waiting_senders).await;
    read.map(|(waiting, _)| waiting).ok_or_else(|| channel_error("the gateway is closing"))
}

pub(super) async fn list_pairings(door: &Arc<GsvAdapter>) -> Answered {
    let listed = read_waiting(door).await?.into_iter().map(|WaitingSender { since, about, .. }| {
        let channel = about.from.account.network;
        let pending = PendingPairing {
            channel: channel.clone(),
            sender_id: about.sender_id.clone(),
            sender_name: about.sender_name,
            requested_at: since,
            first_message: about.first_message,
        };
        (pairing_key(&channel, &about.sender_id), pending)
    });
    Ok(RawJson::from_wire(&PairListResult { pairs: listed.collect::<BTreeMap<_, _>>() }))
}

/// Decides about a sender, and returns it once that is recorded.
async fn decide_pairing(
    door: &Arc<GsvAdapter>,
    decide: &PairDecisionParams,
    answer: GateReply,
    by: PrincipalId,
) -> Result<PairingSubject, GsvError> {
    let requested_key = pairing_key(&decide.channel, &decide.sender_id);
    let is_meant = |waiting: &WaitingSender| {
        pairing_key(&waiting.about.from.account.network, &waiting.about.sender_id) == requested_key
    };
    let found = read_waiting(door).await?.into_iter().find(is_meant);
    let Some(WaitingSender { gate, about, .. }) = found else { return Err(GsvError::no_pairing(&requested_key)) };
    let answer = gate::Command::Answer { gate, answer, by, key: None };
    match door.context.handle.source(InboxLane::Result).send_command(Command::Gate(answer)).await {
        Ok(_) => {}
        // Another approver was first.
        Err(Unasked::Refusal(Refused::Answer(gate::AnswerError::AlreadyResolved { .. }))) => {
            return Err(GsvError::no_pairing(&requested_key));
        }
        Err(refused) => return Err(channel_error(refused)),
    }
    finish_pairing(door, gate).await?;
    Ok(about)
}

pub(super) async fn approve_sender(door: &Arc<GsvAdapter>, params: &PairDecisionParams, by: PrincipalId) -> Answered {
    let about = decide_pairing(door, params, GateReply::Allow(ApprovalScope::Once), by).await?;
    Ok(RawJson::from_wire(&PairApproveResult {
        approved: true,
        sender_id: about.sender_id,
        sender_name: about.sender_name,
    }))
}

pub(super) async fn reject_sender(door: &Arc<GsvAdapter>, params: &PairDecisionParams, by: PrincipalId) -> Answered {
    let about = decide_pairing(door, params, GateReply::Deny { reason: None }, by).await?;
    Ok(RawJson::from_wire(&PairRejectResult { rejected: true, sender_id: about.sender_id }))
}

/// Gate that was decided and has steps left.
struct DecidedPairing {
    content: Lsn,
    is_in: bool,
    by: Option<PrincipalId>,
    reference: String,
}

fn decided_pairing(gate: &Gate) -> Option<DecidedPairing> {
    let open = gate.shown_surfaces().iter().find(|showing| showing.surface == SURFACE && !showing.is_final)?;
    let is_in = matches!(gate.resolution()?, GateResolution::Allowed { .. });
    let reference = open.reference.clone();
    Some(DecidedPairing { content: gate.content_lsn(), is_in, by: gate.resolved_by().cloned(), reference })
}

/// Does the steps after a decision: an admitted sender is added to the list of its network, and gets a message.
///
/// # Errors
/// 500 if a step was not recorded. The next caller continues from there.
pub(super) async fn finish_pairing(door: &Arc<GsvAdapter>, id: GateId) -> Result<(), GsvError> {
    let _turn = door.networks.finishing.lock().await;
    let source = door.context.handle.source(InboxLane::Result);
    let read = source.read_of(At::Gate(id), move |engine| engine.state().gate(id).and_then(decided_pairing)).await;
    let (decided, _) = read.ok_or_else(|| channel_error("the gateway is closing"))?;
    let Some(decided) = decided else { return Ok(()) };
    if decided.is_in {
        let texts = door.context.handle.contents().get(&[decided.content]).await.map_err(channel_error)?;
        let text = texts.into_iter().next().flatten();
        let request = text.and_then(|text| GateRequest::from_record(&text));
        if let Some(about) = request.as_ref().and_then(PairingSubject::from_request) {
            let by = decided.by.unwrap_or_else(|| PrincipalId::new("system"));
            let tree = door.settings.tree();
            let network = access::configured_name(&tree, &about.from.account.network);
            door.settings.add_item(&door.context, by, &["channels", network, "allowFrom"], &about.sender_id).await?;
            send_welcome(door, id, about.from).await;
        }
    }
    let updated = gate::Command::Updated { gate: id, surface: SURFACE.to_owned(), reference: decided.reference };
    source.send_command(Command::Gate(updated)).await.map(drop).map_err(channel_error)
}

async fn send_welcome(door: &Arc<GsvAdapter>, gate: GateId, to: ChatAddress) {
    if to.kind != AddressKind::Dm {
        // A group need not know who may speak in it.
        return;
    }
    let key = Some(format!("welcome:{gate}"));
    let message = OutboundRequest { to, text: WELCOME.into(), session: None, reply_to: None, key, media: None };
    if let Err(problem) = delivery::enqueue_message(door, message).await {
        tracing::warn!(%gate, %problem, "failed to notify a sender of the approved pairing");
    }
}
