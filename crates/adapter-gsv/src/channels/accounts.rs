//! Methods about accounts of chat networks: their list, status, start and stop.

use std::{collections::BTreeMap, sync::Arc};

use countersign_core::{
    channel::{ChannelAccount as Named, Command as Network, KnownAccount},
    engine::Command,
    time::Millis,
};
use countersign_protocol::{
    RawJson,
    gsv::{
        GsvError,
        channel::{
            AccountStatus, ChannelAccountParams, ChannelAccountResult, ChannelEntry, ChannelStatusResult,
            ChannelsListResult,
        },
        close,
    },
};
use countersign_runtime::InboxLane;
use countersign_view::connection_status;
use serde_json::json;

use super::{
    super::{GsvAdapter, method_result::MethodResult},
    addresses::{self, TELEGRAM, WEBHOOK},
    channel_error, webhook,
};

/// Networks for which the original has drivers, and this gateway has none.
const LEFT_OUT: [&str; 2] = ["whatsapp", "discord"];

async fn known_accounts(door: &Arc<GsvAdapter>) -> Result<Vec<KnownAccount>, GsvError> {
    let source = door.context.handle.source(InboxLane::Request);
    let read = source.read_state(|engine| engine.state().channels().accounts().cloned().collect::<Vec<_>>()).await;
    read.map(|(known, _)| known).ok_or_else(|| channel_error("the gateway is closing"))
}

pub(super) async fn list_channels(door: &Arc<GsvAdapter>) -> MethodResult {
    let connected = door.networks.connected.lock().clone();
    let entries = known_accounts(door).await?.into_iter().map(|known| ChannelEntry {
        connected_at: connected.get(&known.account).copied().unwrap_or(known.since).0,
        channel: known.account.network,
        account_id: known.account.name,
        last_message_at: known.last_heard.map(|at| at.0),
    });
    let channels: Vec<ChannelEntry> = entries.collect();
    Ok(RawJson::from_wire(&ChannelsListResult { count: channels.len(), channels }))
}

/// Driver of a network.
enum ChannelDriver {
    Telegram,
    Webhook,
    /// The account connects by itself.
    Socket(Vec<KnownAccount>),
    /// Only the original has one.
    LeftOut(Vec<KnownAccount>),
}

async fn driver_for(door: &Arc<GsvAdapter>, channel: &str) -> Result<ChannelDriver, GsvError> {
    let mut of = known_accounts(door).await?;
    of.retain(|known| known.account.network == channel);
    match channel {
        TELEGRAM => Ok(ChannelDriver::Telegram),
        WEBHOOK => Ok(ChannelDriver::Webhook),
        _ if LEFT_OUT.contains(&channel) && of.is_empty() => Ok(ChannelDriver::LeftOut(of)),
        _ if of.is_empty() => Err(GsvError::unknown_channel(channel)),
        _ => Ok(ChannelDriver::Socket(of)),
    }
}

fn left_out(channel: &str) -> GsvError {
    GsvError::bad_request(format!(
        "The driver of {channel} is left out of this gateway: connect one in channel mode, or use telegram or webhook"
    ))
}

fn account_result(channel: String, account_id: String, message: Option<String>) -> RawJson {
    RawJson::from_wire(&ChannelAccountResult { ok: true, channel, account_id, qr_data_url: None, message })
}

/// Selects the account: the named one, the only one, or the default one.
fn select_account(of: &[KnownAccount], named: Option<String>) -> Option<Named> {
    let known = match (&named, of) {
        (None, [only]) => Some(only),
        (named, of) => {
            let name = named.as_deref().unwrap_or(ChannelAccountParams::DEFAULT);
            of.iter().find(|known| known.account.name == name)
        }
    };
    known.map(|known| known.account.clone())
}

fn no_account(channel: &str, account: Option<&str>) -> GsvError {
    let account = account.unwrap_or(ChannelAccountParams::DEFAULT);
    GsvError::bad_request(format!("{channel} has no account {account} here; name one that channel.status lists"))
}

pub(super) async fn start_account(door: &Arc<GsvAdapter>, params: ChannelAccountParams) -> MethodResult {
    let ChannelAccountParams { channel, account, config, .. } = params;
    match driver_for(door, &channel).await? {
        ChannelDriver::LeftOut(_) => Err(left_out(&channel)),
        ChannelDriver::Telegram | ChannelDriver::Webhook if !config.is_empty() => {
            let message = format!("{channel} is set up in the configuration and by config.set, not by channel.start");
            Err(GsvError::bad_request(message))
        }
        ChannelDriver::Telegram => {
            let carrier = door.networks.telegram.get();
            let Some(_) = carrier else { return Err(GsvError::bad_request("messenger.telegram is not configured")) };
            only_default(&channel, account.as_deref())?;
            record_account(door, addresses::channel_account(&channel, ChannelAccountParams::DEFAULT)).await?;
            Ok(account_result(channel, ChannelAccountParams::DEFAULT.to_owned(), None))
        }
        ChannelDriver::Webhook => {
            let account = account.unwrap_or_else(|| ChannelAccountParams::DEFAULT.to_owned());
            webhook::WebhookSettings::for_account(door, &account).map_err(GsvError::bad_request)?;
            record_account(door, addresses::channel_account(&channel, &account)).await?;
            Ok(account_result(channel, account, None))
        }
        ChannelDriver::Socket(_) if !config.is_empty() => {
            let message = format!(
                "{channel} connects by itself: set channels.{channel} by config.set, not by config of channel.start"
            );
            Err(GsvError::bad_request(message))
        }
        ChannelDriver::Socket(of) => {
            let named = account.clone();
            let account = select_account(&of, account).ok_or_else(|| no_account(&channel, named.as_deref()))?;
            if !door.networks.connected.lock().contains_key(&account) {
                let message = format!("{} connects by itself, and is not connected now", account.network);
                return Err(GsvError::bad_request(message));
            }
            Ok(account_result(channel, account.name, None))
        }
    }
}

fn only_default(channel: &str, account: Option<&str>) -> Result<(), GsvError> {
    match account {
        None | Some(ChannelAccountParams::DEFAULT) => Ok(()),
        Some(_) => Err(no_account(channel, account)),
    }
}

async fn record_account(door: &Arc<GsvAdapter>, account: Named) -> Result<(), GsvError> {
    let met = Command::Channel(Network::Meet(account));
    door.context.handle.source(InboxLane::Request).send_command(met).await.map(drop).map_err(channel_error)
}

pub(super) async fn stop_account(door: &Arc<GsvAdapter>, params: ChannelAccountParams) -> MethodResult {
    let ChannelAccountParams { channel, account, .. } = params;
    match driver_for(door, &channel).await? {
        ChannelDriver::LeftOut(_) => Err(left_out(&channel)),
        ChannelDriver::Telegram => Err(GsvError::bad_request(
            "telegram is part of the gateway: take messenger.telegram out of the configuration, or set channels.telegram.dmPolicy",
        )),
        ChannelDriver::Webhook => Err(GsvError::bad_request(
            "webhook is on as long as channels.webhook has a secret: take that out by config.set",
        )),
        ChannelDriver::Socket(of) => {
            let named = account.clone();
            let account = select_account(&of, account).ok_or_else(|| no_account(&channel, named.as_deref()))?;
            disconnect_account(door, &account, "Stopped");
            Ok(account_result(channel, account.name, None))
        }
    }
}

fn disconnect_account(door: &Arc<GsvAdapter>, account: &Named, why: &str) {
    if let Some(peer) = door.roster.find_channel(&account.network, &account.name) {
        peer.close(close::NORMAL, why);
    }
}

pub(super) async fn log_in(door: &Arc<GsvAdapter>, params: ChannelAccountParams) -> MethodResult {
    let channel = params.channel;
    Err(match driver_for(door, &channel).await? {
        ChannelDriver::LeftOut(_) => left_out(&channel),
        ChannelDriver::Telegram => {
            GsvError::bad_request("telegram is logged in by messenger.telegram.token of the configuration")
        }
        ChannelDriver::Webhook => {
            GsvError::bad_request("webhook is logged in by channels.webhook.secret, set by config.set")
        }
        ChannelDriver::Socket(_) => {
            GsvError::bad_request(format!("{channel} does not support login: it connects by itself"))
        }
    })
}

pub(super) async fn log_out(door: &Arc<GsvAdapter>, params: ChannelAccountParams) -> MethodResult {
    let ChannelAccountParams { channel, account, .. } = params;
    let of = match driver_for(door, &channel).await? {
        ChannelDriver::LeftOut(_) => return Err(left_out(&channel)),
        ChannelDriver::Telegram => {
            let message = "telegram is logged in by messenger.telegram.token of the configuration: take it out there";
            return Err(GsvError::bad_request(message));
        }
        ChannelDriver::Webhook => {
            let mut of = known_accounts(door).await?;
            of.retain(|known| known.account.network == channel);
            of
        }
        ChannelDriver::Socket(of) => of,
    };
    let named = account.clone();
    let account = select_account(&of, account).ok_or_else(|| no_account(&channel, named.as_deref()))?;
    disconnect_account(door, &account, "Logged out");
    let forget = Command::Channel(Network::Forget(account.clone()));
    door.context.handle.source(InboxLane::Request).send_command(forget).await.map_err(channel_error)?;
    Ok(account_result(channel, account.name, None))
}

pub(super) async fn account_status(door: &Arc<GsvAdapter>, params: ChannelAccountParams) -> MethodResult {
    let ChannelAccountParams { channel, account, .. } = params;
    let accounts = match driver_for(door, &channel).await? {
        ChannelDriver::LeftOut(of) | ChannelDriver::Socket(of) => socket_statuses(door, of),
        ChannelDriver::Telegram => telegram_status(door).await?,
        ChannelDriver::Webhook => webhook_statuses(door).await?,
    };
    let is_meant = |status: &AccountStatus| account.as_ref().is_none_or(|account| status.account_id == *account);
    let accounts = accounts.into_iter().filter(is_meant).collect();
    Ok(RawJson::from_wire(&ChannelStatusResult { channel, accounts }))
}

/// Returns the status of accounts that connect by themselves.
fn socket_statuses(door: &GsvAdapter, of: Vec<KnownAccount>) -> Vec<AccountStatus> {
    let connected = door.networks.connected.lock().clone();
    let status = |known: KnownAccount| {
        let is_connected = connected.contains_key(&known.account);
        AccountStatus {
            last_activity: known.last_heard.map(|at| at.0),
            account_id: known.account.name,
            connected: is_connected,
            authenticated: is_connected,
            ..AccountStatus::default()
        }
    };
    of.into_iter().map(status).collect()
}

/// Returns every account for status pages, by network. The messenger serves Telegram. `None` if the gateway closes.
pub(crate) async fn account_overview(door: &Arc<GsvAdapter>) -> Option<Vec<connection_status::ChannelAccountStatus>> {
    let source = door.context.handle.source(InboxLane::Request);
    let read = source.read_state(|engine| {
        let state = engine.state().channels();
        let mut waiting = BTreeMap::<Named, usize>::new();
        for letter in state.pending_messages() {
            *waiting.entry(letter.to.account.clone()).or_default() += 1;
        }
        (state.accounts().cloned().collect::<Vec<_>>(), waiting)
    });
    let ((known, waiting), _) = read.await?;
    let mut networks = BTreeMap::<String, Vec<KnownAccount>>::from([(WEBHOOK.to_owned(), Vec::new())]);
    for known in known.into_iter().filter(|known| known.account.network != TELEGRAM) {
        networks.entry(known.account.network.clone()).or_default().push(known);
    }
    let mut all = Vec::new();
    for (network, of) in networks {
        let of = if network == WEBHOOK { webhook_statuses(door).await.ok()? } else { socket_statuses(door, of) };
        all.extend(of.into_iter().map(|status| connection_status::ChannelAccountStatus {
            waiting:
                waiting.get(&addresses::channel_account(&network, &status.account_id)).copied().unwrap_or_default(),
            network: network.clone(),
            name: status.account_id,
            is_connected: status.connected,
            last_inbound: status.last_activity.map(Millis),
            problem: status.error,
        }));
    }
    Some(all)
}

/// Returns the time of the last inbound message of each account of a network.
async fn last_message_times(door: &Arc<GsvAdapter>, network: &str) -> Result<BTreeMap<String, Option<u64>>, GsvError> {
    let mut of = known_accounts(door).await?;
    of.retain(|known| known.account.network == network);
    Ok(of.into_iter().map(|known| (known.account.name, known.last_heard.map(|at| at.0))).collect())
}

async fn telegram_status(door: &Arc<GsvAdapter>) -> Result<Vec<AccountStatus>, GsvError> {
    let Some(report) = door.context.telegram.as_ref().map(|report| report()) else { return Ok(Vec::new()) };
    let is_well = report.is_well();
    let times = last_message_times(door, TELEGRAM).await?;
    Ok(vec![AccountStatus {
        account_id: ChannelAccountParams::DEFAULT.to_owned(),
        connected: is_well,
        authenticated: is_well,
        error: report.failed.map(|(_, why)| why).filter(|_| !is_well),
        extra: None,
        last_activity: times.get(ChannelAccountParams::DEFAULT).copied().flatten(),
    }])
}

async fn webhook_statuses(door: &Arc<GsvAdapter>) -> Result<Vec<AccountStatus>, GsvError> {
    let times = last_message_times(door, WEBHOOK).await?;
    let names = webhook::WebhookSettings::account_names(door).into_iter().chain(times.keys().cloned());
    let names: std::collections::BTreeSet<String> = names.collect();
    let status = |name: String| {
        let settings = webhook::WebhookSettings::for_account(door, &name);
        let is_set = settings.is_ok();
        let url = settings.as_ref().ok().and_then(|settings| settings.url.clone());
        let extra = json!({ "inbound": webhook::account_path(&name), "outbound": url });
        AccountStatus {
            last_activity: times.get(&name).copied().flatten(),
            account_id: name,
            connected: is_set,
            authenticated: is_set,
            error: settings.err(),
            extra: extra.as_object().cloned(),
        }
    };
    Ok(names.into_iter().map(status).collect())
}
