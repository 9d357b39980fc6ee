//! Record, the newest entries first, and the check of its chain.

use std::sync::Arc;

use axum::{
    Extension,
    extract::{Query, State},
    http::StatusCode,
    response::Response,
};
use countersign_core::{
    engine::Event,
    gate::IdentityMap,
    id::{Lsn, PrincipalId},
    time::Millis,
};
use countersign_http::web::{BodyFields, HttpCaller};
use countersign_runtime::store::{Log as _, Partition, StoredRecord};
use countersign_view::{
    record::{RecordFormatter, RecordOutcome, RecordSubject},
    time::parse_iso,
};
use maud::{Markup, html};
use serde::{Deserialize, Serialize};

use super::{
    ConsoleState, PageContext,
    labels::{entry_count_text, plain_text, time_element, url_path},
    page::{ConsoleTab, PageError, render_page},
};

/// Number of entries on a page.
const ROWS: usize = 60;
/// Number of records in one step.
const WINDOW: u64 = 1500;
/// Number of earlier records that are read for the names of calls and gates.
const LOOK_BACK: u64 = 800;
/// Most steps of one page.
const WINDOWS: usize = 12;
/// Longest part of an entry's text in the list, in characters.
const LONGEST: usize = 400;
/// Most records that are read at once.
const PAGE: usize = 512;

/// Search. An empty one matches everything.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(super) struct RecordQuery {
    #[serde(default)]
    kind: String,
    #[serde(default)]
    outcome: String,
    #[serde(default)]
    tool: String,
    #[serde(default)]
    session: String,
    #[serde(default)]
    who: String,
    #[serde(default)]
    text: String,
    #[serde(default)]
    since: String,
    #[serde(default)]
    until: String,
    /// Position before which entries are listed.
    #[serde(default)]
    before: String,
}

/// One entry as it is shown.
pub(super) struct ListedEntry {
    pub(super) stored: StoredRecord,
    pub(super) about: RecordSubject,
    pub(super) text: String,
}

/// Page of entries, and the position of the next page.
struct EntryPage {
    entries: Vec<ListedEntry>,
    older: Option<u64>,
    /// True if the page ended after the most steps, and is not full.
    is_tired: bool,
}

pub(super) async fn list_entries(
    State(console): State<Arc<ConsoleState>>,
    Extension(caller): Extension<HttpCaller>,
    Query(search): Query<RecordQuery>,
) -> Result<Response, PageError> {
    let ctx = console.page_context(caller).await?;
    console.record_page(&ctx, &search, None).await
}

/// Checks the chain.
pub(super) async fn verify_chain(
    State(console): State<Arc<ConsoleState>>,
    Extension(caller): Extension<HttpCaller>,
    _: BodyFields,
) -> Result<Response, PageError> {
    let ctx = console.page_context(caller).await?;
    let Ok(_permit) = console.context.verifying.try_acquire() else {
        return Err(PageError::new(
            StatusCode::TOO_MANY_REQUESTS,
            "A chain check is already running. Try again later.",
        ));
    };
    let report =
        console.context.handle.log().verify_chain(Partition::ZERO, None).await.map_err(PageError::unreadable_record)?;
    let notice = match &report.flaw {
        None => {
            let entries = entry_count_text(report.records);
            (true, format!("Chain verified: {entries}, {} redacted.", report.redacted))
        }
        Some(flaw) => {
            let valid = match report.records {
                0 => String::new(),
                1 => " The entry before it is valid.".to_owned(),
                entries => format!(" The {entries} entries before it are valid."),
            };
            (false, format!("Chain broken: {flaw}.{valid}"))
        }
    };
    console.record_page(&ctx, &RecordQuery::default(), Some(notice)).await
}

/// Renders links between the two parts of the record.
pub(super) fn record_tabs(at: &str) -> Markup {
    html! {
        nav.sub aria-label="Record" {
            @for (href, name) in [("/console/record", "Entries"), ("/console/figures", "Statistics")] {
                a href=(href) aria-current=[(href == at).then_some("page")] { (name) }
            }
        }
    }
}

impl ConsoleState {
    async fn record_page(
        &self,
        ctx: &PageContext,
        search: &RecordQuery,
        notice: Option<(bool, String)>,
    ) -> Result<Response, PageError> {
        let head = self.context.handle.log().head(Partition::ZERO).await.map_err(PageError::unreadable_record)?;
        let listed = self.find_entries(search, ctx.head.0, &ctx.people).await?;
        let body = html! {
            h1 { "Record" }
            (record_tabs("/console/record"))
            @if let Some((is_whole, text)) = &notice {
                div.(if *is_whole { "told" } else { "problem" }) role=(if *is_whole { "status" } else { "alert" }) { p { (text) } }
            }
            div.panel.chain {
                div #chain data-follows { p #records { strong { (entry_count_text(head.lsn.0)) } ", hash-chained. Head:" }
                p #head { code.head { (head.lsn) ":" (head.chain) } } }
                p.note { "Keep the head in another place, so that you can detect a truncated record later." }
                form method="post" action="/console/record" {
                    input type="hidden" name="csrf" value=(ctx.caller.csrf_token());
                    button type="submit" { "Verify the chain" }
                }
            }
            (filter_form(search))
            @for (name, text) in [("From", &search.since), ("Before", &search.until)] {
                @if !text.trim().is_empty() && parse_time(text).is_none() {
                    p.problem role="alert" { (name) ": “" (plain_text(text)) "” is not a valid time and was ignored. Use for example 2026-01-31 or 2026-01-31 14:05." }
                }
            }
            (entries_table(&listed.entries, EntryLinks::ToDecisions))
            div #further data-follows {
                @if listed.entries.is_empty() { p.empty { "No matching entries." } }
                @if let Some(older) = listed.older {
                    p { a.button href={ "/console/record?" (query_before(search, older)) } { @if listed.is_tired { "Search further back" } @else { "Older entries" } } }
                }
            }
        };
        Ok(render_page(ctx, ConsoleTab::Record, "Record", &body))
    }

    /// Finds the newest matching entries, from the end or from the end of the page before.
    async fn find_entries(
        &self,
        search: &RecordQuery,
        head: u64,
        people: &IdentityMap,
    ) -> Result<EntryPage, PageError> {
        let filter = EntryFilter::from_query(search, people);
        let mut end = search.before.parse::<u64>().map_or(head, |before| before.saturating_sub(1).min(head));
        let mut entries: Vec<ListedEntry> = Vec::new();
        for _ in 0..WINDOWS {
            let first = end.saturating_sub(WINDOW);
            let mut found = self.read_window(first, end, people).await?;
            let is_past = found.first().is_some_and(|entry| filter.since.is_some_and(|since| entry.stored.at < since));
            found.retain(|entry| filter.matches_entry(entry));
            entries.extend(found.into_iter().rev());
            if entries.len() > ROWS {
                entries.truncate(ROWS);
                let older = entries.last().map(|entry| entry.stored.lsn.0);
                return Ok(EntryPage { entries, older, is_tired: false });
            }
            end = first;
            if end == 0 || is_past {
                return Ok(EntryPage { entries, older: None, is_tired: false });
            }
        }
        Ok(EntryPage { entries, older: Some(end + 1), is_tired: true })
    }

    /// Reads the entries after `first` and up to `last`, each described in words.
    async fn read_window(&self, first: u64, last: u64, people: &IdentityMap) -> Result<Vec<ListedEntry>, PageError> {
        let mut formatter = RecordFormatter::with_names(people.clone());
        let mut entries = Vec::new();
        let mut after = Lsn(first.saturating_sub(LOOK_BACK));
        while after.0 < last {
            let page = self.read_page(after).await?;
            let Some((stored, _)) = page.last() else { break };
            after = stored.lsn;
            for (stored, text) in page {
                let (about, text) = formatter.describe_record(&stored, text.as_deref());
                if stored.lsn.0 > first && stored.lsn.0 <= last {
                    entries.push(ListedEntry { stored, about, text });
                }
            }
        }
        Ok(entries)
    }

    /// Reads some records after `after`, with their contents.
    pub(super) async fn read_page(&self, after: Lsn) -> Result<Vec<(StoredRecord, Option<Arc<str>>)>, PageError> {
        let handle = &self.context.handle;
        let page =
            handle.log().read_records(Partition::ZERO, after, PAGE).await.map_err(PageError::unreadable_record)?;
        let lsns: Vec<Lsn> = page.iter().map(|stored| stored.lsn).collect();
        let texts = handle.contents().get(&lsns).await.map_err(PageError::unreadable_record)?;
        Ok(page.into_iter().zip(texts).collect())
    }
}

/// Links of entries to the page of their call or gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EntryLinks {
    ToDecisions,
    /// The page is already that one.
    None,
}

/// Cuts a text to the room of an entry in the list.
fn truncate_text(text: &str) -> String {
    if text.chars().count() <= LONGEST {
        return text.to_owned();
    }
    text.chars().take(LONGEST - 1).chain(['…']).collect()
}

/// Renders entries as a table.
pub(super) fn entries_table(entries: &[ListedEntry], links: EntryLinks) -> Markup {
    html! {
        div.scroll tabindex="0" role="region" aria-label="Entries" {
            table.entries {
                thead { tr { th scope="col" { "Position" } th scope="col" { "Time" } th scope="col" { "Kind" } th scope="col" { "Event" } } }
                tbody #entries data-follows[links == EntryLinks::ToDecisions] {
                    @for ListedEntry { stored, about, text } in entries {
                        tr #{ "r-" (stored.lsn.0) } {
                            td.number { (stored.lsn) }
                            td.when { (time_element(stored.at)) }
                            td { span.kind { (stored.kind) } @if let Some(session) = &stored.session { br; a href=(url_path("/console/sessions/", session.as_str())) { (plain_text(session.as_str())) } } }
                            td.text {
                                @if let Some(outcome) = about.outcome { span.badge.(outcome_class(outcome)) { (outcome.as_str()) } " " }
                                (super::labels::mark_escapes(&truncate_text(text_after_outcome(about.outcome, text))))
                                @let id = about.gate.map(|id| id.to_string()).or_else(|| about.call.map(|id| id.to_string()));
                                @if let (EntryLinks::ToDecisions, Some(id)) = (links, id) {
                                    " " a.more href=(url_path("/console/record/", &id)) { "Details" span.unseen { ", " (id) } }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Returns the text without the outcome at its beginning, which precedes it already.
fn text_after_outcome(outcome: Option<RecordOutcome>, text: &str) -> &str {
    let repeated = match outcome {
        None => return text,
        Some(RecordOutcome::Error) => "done, with an error",
        Some(RecordOutcome::Unknown) => "outcome unknown",
        Some(outcome) => outcome.as_str(),
    };
    let rest = text.strip_prefix(repeated).filter(|rest| rest.starts_with([' ', ',', ':']));
    rest.map_or(text, |rest| rest.trim_start_matches([' ', ',', ':']))
}

const fn outcome_class(outcome: RecordOutcome) -> &'static str {
    match outcome {
        RecordOutcome::Allowed | RecordOutcome::Granted | RecordOutcome::Done | RecordOutcome::Answered => "good",
        RecordOutcome::Denied
        | RecordOutcome::Expired
        | RecordOutcome::Error
        | RecordOutcome::Failed
        | RecordOutcome::Limited
        | RecordOutcome::Unknown => "bad",
        RecordOutcome::Gated => "ask",
        RecordOutcome::Withdrawn | RecordOutcome::Declined | RecordOutcome::Skipped | RecordOutcome::Cancelled => {
            "still"
        }
    }
}

fn filter_form(search: &RecordQuery) -> Markup {
    let field = |name: &str, label: &str, value: &str, hint: &str| {
        html! { div { label for={ "f-" (name) } { (label) } input #{ "f-" (name) } name=(name) value=(value) placeholder=(hint) autocomplete="off"; } }
    };
    html! {
        form.filter method="get" action="/console/record" role="search" aria-label="Entries" {
            div { label for="f-kind" { "Kind" } select #f-kind name="kind" { option value="" { "any" } @for kind in Event::KINDS { option value=(kind) selected[search.kind == kind] { (kind) } } } }
            div { label for="f-outcome" { "Outcome" } select #f-outcome name="outcome" { option value="" { "any" } @for (outcome, _) in RecordOutcome::ALL { option value=(outcome.as_str()) selected[search.outcome == outcome.as_str()] { (outcome.as_str()) } } } }
            (field("tool", "Tool", &search.tool, "bash"))
            (field("session", "Agent or session", &search.session, ""))
            (field("who", "Decided by", &search.who, ""))
            (field("since", "From (UTC)", &search.since, "2026-01-31"))
            (field("until", "Before (UTC)", &search.until, "2026-02-01"))
            (field("text", "Text", &search.text, ""))
            div.act { button.primary type="submit" { "Search" } a.button.quiet href="/console/record" { "Clear" } }
        }
    }
}

fn query_before(search: &RecordQuery, before: u64) -> String {
    let search = RecordQuery { before: before.to_string(), ..search.clone() };
    serde_urlencoded::to_string(&search).unwrap_or_default()
}

/// Filter whose times are parsed.
struct EntryFilter<'a> {
    search: &'a RecordQuery,
    text: String,
    since: Option<Millis>,
    until: Option<Millis>,
    people: &'a IdentityMap,
}

impl<'a> EntryFilter<'a> {
    fn from_query(search: &'a RecordQuery, people: &'a IdentityMap) -> Self {
        Self {
            search,
            people,
            text: search.text.trim().to_lowercase(),
            since: parse_time(&search.since),
            until: parse_time(&search.until),
        }
    }

    fn matches_entry(&self, ListedEntry { stored, about, text }: &ListedEntry) -> bool {
        let RecordQuery { kind, outcome, tool, session, who, .. } = self.search;
        let is = |expected: &str, found: Option<&str>| expected.trim().is_empty() || found == Some(expected.trim());
        let of = stored.session.as_ref().map(|session| session.as_str());
        let decided = about.outcome.map(RecordOutcome::as_str);
        is(kind, Some(&stored.kind))
            && is(outcome, decided)
            && is(tool, about.tool.as_deref())
            && (is(session, of) || of.and_then(|of| of.strip_prefix("agent:")) == Some(session.trim()))
            && (who.trim().is_empty() || about.by.as_ref().is_some_and(|by| self.is_decided_by(by, who.trim())))
            && self.since.is_none_or(|since| stored.at >= since)
            && self.until.is_none_or(|until| stored.at < until)
            && (self.text.is_empty() || text.to_lowercase().contains(&self.text))
    }

    /// Reports whether the id `by`, or the name of its person, contains `who`.
    fn is_decided_by(&self, by: &Arc<str>, who: &str) -> bool {
        by.contains(who)
            || self.people.person_of(&PrincipalId::new(Arc::clone(by))).is_some_and(|person| person.contains(who))
    }
}

/// Parses a day, a minute or a whole moment.
fn parse_time(text: &str) -> Option<Millis> {
    let text = text.trim().replacen(' ', "T", 1);
    ["", "Z", ":00Z", "T00:00:00Z"].iter().find_map(|rest| parse_iso(&format!("{text}{rest}")))
}

#[cfg(test)]
mod tests {
    use super::{RecordOutcome, RecordQuery, parse_time, query_before, text_after_outcome};

    #[test]
    fn the_outcome_of_an_entry_is_not_repeated_in_its_text() {
        for (outcome, text, want) in [
            (RecordOutcome::Done, "done: bash(ls)", "bash(ls)"),
            (RecordOutcome::Error, "done, with an error: bash(ls)", "bash(ls)"),
            (RecordOutcome::Allowed, "allowed because no rule covers it: ls(.)", "because no rule covers it: ls(.)"),
            (RecordOutcome::Expired, "expired without an answer, not run: ls(.)", "without an answer, not run: ls(.)"),
            (RecordOutcome::Failed, "could not be run: ls(.)", "could not be run: ls(.)"),
        ] {
            assert_eq!(text_after_outcome(Some(outcome), text), want);
        }
        assert_eq!(text_after_outcome(None, "done: x"), "done: x");
    }

    #[test]
    fn a_page_of_older_entries_keeps_what_was_looked_for() {
        let search = RecordQuery { tool: "bash".to_owned(), text: "a&b".to_owned(), ..RecordQuery::default() };
        let query = query_before(&search, 17);
        assert!(query.contains("tool=bash") && query.contains("text=a%26b") && query.ends_with("before=17"), "{query}");
    }

    #[test]
    fn times_are_days_minutes_or_moments() {
        for text in ["2026-02-03", "2026-02-03 00:00", "2026-02-03T00:00:00Z"] {
            assert_eq!(parse_time(text).map(|at| at.0), Some(1_770_076_800_000), "{text}");
        }
        assert_eq!(parse_time("soon"), None);
    }
}
