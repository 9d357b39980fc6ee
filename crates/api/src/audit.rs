//! Record, for programs. Source: docs/protocol/api.md, Record.

use std::{str::FromStr as _, sync::Arc};

use axum::{
    extract::{Path, RawQuery, State},
    http::StatusCode,
};
use countersign_core::{
    digest::Digest,
    engine::Event,
    id::{Lsn, SessionId},
};
use countersign_http::reply::{self, HttpProblem};
use countersign_runtime::store::{AnyLog, Log as _, LogHead, LogReadError, Partition, StoredContent, StoredRecord};
use countersign_view::record::{RecordEntry, RecordFilter, RecordFormatter, RecordOutcome, time_of};
use serde_json::{Value, json};

use super::{
    ApiError, ApiResult, ApiState,
    cursor::{RecordCursor, read_record},
    params::QueryParams,
    wire::audit::{ChainReport, EntryBody, EntryList, RecordBody, RecordContent, RecordHead},
};

/// Default number of entries on a page.
const USUAL: usize = 100;
/// Largest number of entries on a page.
const MOST: usize = 1000;
/// Most records that are read for one page.
const LOOKED_AT: u64 = 20_000;
/// Most records before the first that are read for the calls and gates of a page.
const LOOK_BACK: u64 = 4096;
/// Most records that are read at once.
const AT_ONCE: usize = 512;

/// Handles `GET /api/v1/audit`.
pub(super) async fn list_records(State(api): State<Arc<ApiState>>, RawQuery(query): RawQuery) -> ApiResult {
    let known = ["after", "last", "limit", "since", "until", "session", "agent", "tool", "kind", "outcome", "about"];
    let params = QueryParams::from_query(query.as_deref(), &known)?;
    let filter = parse_filter(&params, &api)?;
    let limit = params.get_count("limit", USUAL, MOST)?;
    let log = api.context.handle.log();
    let head = log.head(Partition::ZERO).await?;
    let last = params.get_count("last", 0, MOST)?;
    let after = match (params.get("after"), last) {
        (Some(_), 1..) => {
            return Err(ApiError::bad_request("after and last cannot be used together: leave one out"));
        }
        (None, 0) => Lsn(0),
        (None, last) => Lsn(head.lsn.0.saturating_sub(last as u64)),
        (Some(text), _) => resolve_cursor(log, text).await?,
    };
    let mut formatter = RecordFormatter::default();
    let mut at = Lsn(after.0.saturating_sub(LOOK_BACK));
    let mut entries = Vec::new();
    let end = Lsn((after.0 + LOOKED_AT).min(head.lsn.0));
    let mut reached = after;
    'pages: while at < end {
        let page = log.read_records(Partition::ZERO, at, AT_ONCE).await?;
        let Some(last) = page.last() else { break };
        at = last.lsn;
        let texts = record_texts(log, &page).await?;
        for (stored, text) in page.iter().zip(texts) {
            if stored.lsn > end || entries.len() == limit {
                break 'pages;
            }
            let (about, words) = formatter.describe_record(stored, text.as_deref());
            if stored.lsn <= after {
                continue;
            }
            reached = stored.lsn;
            if filter.matches_record(stored, &about) {
                let entry = RecordEntry::new(stored, &about, &words);
                entries.push(EntryBody { entry, cursor: RecordCursor::after_record(stored) });
            }
        }
    }
    let next = if reached < head.lsn { Some(RecordCursor::at_lsn(log, reached).await?) } else { None };
    Ok(reply::ok(&EntryList { entries, next, cursor: RecordCursor::from_head(head) }))
}

/// Reads the texts of a page, if they are still there.
async fn record_texts(log: &AnyLog, page: &[StoredRecord]) -> Result<Vec<Option<Arc<str>>>, LogReadError> {
    let lsns: Vec<Lsn> = page.iter().map(|stored| stored.lsn).collect();
    let contents = log.read_contents(Partition::ZERO, &lsns).await?.into_iter();
    Ok(contents
        .map(|content| match content {
            Some(StoredContent::Text(text)) => Some(text),
            Some(StoredContent::Redacted) | None => None,
        })
        .collect())
}

async fn resolve_cursor(log: &AnyLog, text: &str) -> Result<Lsn, ApiError> {
    let cursor =
        RecordCursor::parse(text).ok_or_else(|| ApiError::bad_request(format!("after: invalid cursor {text:?}")))?;
    cursor.resolve_lsn(log).await?.map_err(|misplaced| {
        let message = format!("the cursor {text} does not belong to this record: start without a cursor");
        ApiError(HttpProblem::new(StatusCode::GONE, message).with_member("reason", json!(misplaced)))
    })
}

fn parse_filter(params: &QueryParams, api: &ApiState) -> Result<RecordFilter, ApiError> {
    let now = api.context.clock.now();
    let time = |name: &str| {
        let read = params.get(name).map(|text| time_of(text, now));
        read.transpose().map_err(|problem| ApiError::bad_request(format!("{name}: {problem}")))
    };
    let outcome = |word: &str| {
        let known = || RecordOutcome::ALL.map(|(outcome, _)| outcome.as_str()).join(", ");
        RecordOutcome::from_word(word)
            .ok_or_else(|| ApiError::bad_request(format!("unknown outcome {word:?}: expected one of {}", known())))
    };
    if let Some(kind) = params.get_all("kind").into_iter().find(|kind| !Event::KINDS.contains(kind)) {
        return Err(ApiError::bad_request(format!(
            "unknown kind {kind:?}: expected one of {}",
            Event::KINDS.join(", ")
        )));
    }
    let session = params.get("agent").map(|agent| format!("agent:{agent}"));
    let owned = |name: &str| params.get_all(name).into_iter().map(str::to_owned).collect();
    Ok(RecordFilter {
        since: time("since")?,
        until: time("until")?,
        session: session.or_else(|| params.get("session").map(str::to_owned)).map(SessionId::new),
        tools: owned("tool"),
        kinds: owned("kind"),
        outcomes: params.get_all("outcome").into_iter().map(outcome).collect::<Result<_, _>>()?,
        about: params.get("about").map(str::to_owned),
    })
}

/// Handles `GET /api/v1/audit/{lsn}`.
pub(super) async fn get_record(State(api): State<Arc<ApiState>>, Path(lsn): Path<String>) -> ApiResult {
    let log = api.context.handle.log();
    let missing = || ApiError::new(StatusCode::NOT_FOUND, format!("there is no entry {lsn}"));
    let lsn = Lsn(lsn.parse().map_err(|_| missing())?);
    let stored = read_record(log, lsn).await?.ok_or_else(missing)?;
    let content = log.read_contents(Partition::ZERO, &[lsn]).await?.pop().flatten();
    let text = match &content {
        Some(StoredContent::Text(text)) => Some(&**text),
        Some(StoredContent::Redacted) | None => None,
    };
    let mut formatter = RecordFormatter::default();
    let (about, words) = formatter.describe_record(&stored, text);
    Ok(reply::ok(&RecordBody {
        entry: RecordEntry::new(&stored, &about, &words),
        version: stored.version,
        facts: serde_json::from_str(&stored.facts).unwrap_or(Value::Null),
        content: content.map(|content| match content {
            StoredContent::Text(text) => RecordContent::with_text(stored.content_digest, text.to_string()),
            StoredContent::Redacted => RecordContent::redacted(stored.content_digest),
        }),
        chain: stored.chain,
        cursor: RecordCursor::after_record(&stored),
    }))
}

/// Handles `GET /api/v1/audit/head`.
pub(super) async fn get_head(State(api): State<Arc<ApiState>>) -> ApiResult {
    let head = api.context.handle.log().head(Partition::ZERO).await?;
    Ok(reply::ok(&RecordHead {
        lsn: head.lsn.0,
        chain: head.chain,
        head: head_text(head),
        cursor: RecordCursor::from_head(head),
    }))
}

/// Handles `GET /api/v1/audit/verify`.
pub(super) async fn verify_chain(State(api): State<Arc<ApiState>>, RawQuery(query): RawQuery) -> ApiResult {
    let params = QueryParams::from_query(query.as_deref(), &["head"])?;
    let expected = params.get("head").map(parse_head).transpose()?;
    let Ok(_permit) = api.context.verifying.try_acquire() else {
        return Err(ApiError::new(StatusCode::TOO_MANY_REQUESTS, "a chain check is already running: try again later"));
    };
    let report = api.context.handle.log().verify_chain(Partition::ZERO, expected).await?;
    Ok(reply::ok(&ChainReport {
        ok: report.flaw.is_none(),
        records: report.records,
        redacted: report.redacted,
        head: head_text(report.head),
        flaw: report.flaw.map(|flaw| flaw.to_string()),
    }))
}

fn head_text(head: LogHead) -> String {
    format!("{}:{}", head.lsn, head.chain)
}

fn parse_head(text: &str) -> Result<LogHead, ApiError> {
    let read = text
        .split_once(':')
        .and_then(|(lsn, chain)| Some(LogHead { lsn: Lsn(lsn.parse().ok()?), chain: Digest::from_str(chain).ok()? }));
    read.ok_or_else(|| ApiError::bad_request("invalid head: expected a position, a colon and 64 hex digits"))
}
