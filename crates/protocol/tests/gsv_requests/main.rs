//! What each method takes, and what it says to anything else.

#![allow(clippy::unwrap_used, reason = "these are tests")]

mod channels;
mod jobs;
mod methods;
mod nodes;
mod refusals;
mod settings;

use std::collections::BTreeMap;

use countersign_protocol::Json;
use countersign_protocol::gsv::channel::{Account, Inbound, Media, MediaKind, Peer, PeerKind, Sender};
use countersign_protocol::gsv::chat::Send;
use countersign_protocol::gsv::cron::{Create, List, Remove, Run, Runs, Schedule, Spec, Task};
use countersign_protocol::gsv::directive::Level;
use countersign_protocol::gsv::heartbeat::Trigger;
use countersign_protocol::gsv::node::{ExecEvent, ExecReport, ExecState, LogsGet, LogsResult, Probed};
use countersign_protocol::gsv::pairing::Decide;
use countersign_protocol::gsv::session::{Change, Compact, Of, Page, Patch, Preview, ResetMode};
use countersign_protocol::gsv::settings::{Get, Path as SettingPath, Set};
use countersign_protocol::gsv::tool::{Ask, Fate, Invoke, Outcome};
use countersign_protocol::gsv::workspace::{self, Path};
use countersign_protocol::gsv::{Fault, Method, Request, session, skill};
use serde_json::{Map, Value, json};

fn read(method: &str, params: Value) -> Result<Request, Fault> {
    Request::read(Method::named(method).unwrap(), Some(&Json::from(params)))
}

fn text(text: &str) -> String {
    text.to_owned()
}

fn args() -> Map<String, Value> {
    json!({"a": 1}).as_object().unwrap().clone()
}

fn of() -> Of {
    Of { session_key: text("k") }
}

fn file(path: &str) -> workspace::File {
    workspace::File { agent: None, path: Path::read(path).unwrap(), echo: text(path) }
}

fn account(account: Option<&str>) -> Account {
    Account { channel: text("discord"), account: account.map(str::to_owned), config: Map::new(), force: false }
}
