//! Accepted parameters of each method, and errors for all others.

#![allow(clippy::unwrap_used, reason = "these are tests")]

mod channels;
mod jobs;
mod methods;
mod nodes;
mod refusals;
mod settings;

use std::collections::BTreeMap;

use countersign_protocol::RawJson;
use countersign_protocol::gsv::channel::{
    ChannelAccountParams, ChannelInboundParams, ChatPeer, MediaAttachment, MediaKind, MessageSender, PeerKind,
};
use countersign_protocol::gsv::chat::ChatSendParams;
use countersign_protocol::gsv::cron::{
    CronAddParams, CronListParams, CronRemoveParams, CronRunParams, CronRunsParams, CronSchedule, CronSpec, CronTask,
};
use countersign_protocol::gsv::directive::ThinkLevel;
use countersign_protocol::gsv::heartbeat::HeartbeatTriggerParams;
use countersign_protocol::gsv::node::{ExecEvent, ExecReport, ExecState, LogsGet, LogsResult, NodeProbeResult};
use countersign_protocol::gsv::pairing::PairDecisionParams;
use countersign_protocol::gsv::session::{
    FieldPatch, PageParams, ResetMode, SessionCompactParams, SessionParams, SessionPatchParams, SessionPreviewParams,
};
use countersign_protocol::gsv::settings::{ConfigGetParams, ConfigSetParams, SettingPath};
use countersign_protocol::gsv::tool::{NoResultReason, ToolInvokeParams, ToolRequestParams, ToolResultParams};
use countersign_protocol::gsv::workspace::{self, WorkspacePath};
use countersign_protocol::gsv::{GsvError, GsvRequest, Method, session, skill};
use serde_json::{Map, Value, json};

fn read(method: &str, params: Value) -> Result<GsvRequest, GsvError> {
    GsvRequest::from_params(Method::named(method).unwrap(), Some(&RawJson::from(params)))
}

fn text(text: &str) -> String {
    text.to_owned()
}

fn args() -> Map<String, Value> {
    json!({"a": 1}).as_object().unwrap().clone()
}

fn session_params() -> SessionParams {
    SessionParams { session_key: text("k") }
}

fn file(path: &str) -> workspace::WorkspaceFileParams {
    workspace::WorkspaceFileParams { agent: None, path: WorkspacePath::from_text(path).unwrap(), echo: text(path) }
}

fn account(account: Option<&str>) -> ChannelAccountParams {
    ChannelAccountParams {
        channel: text("discord"),
        account: account.map(str::to_owned),
        config: Map::new(),
        force: false,
    }
}
