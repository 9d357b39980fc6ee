//! `get_messages_page`: the messages of the context in parts, while nothing changes them.

use countersign_core::{
    id::{EntryId, Lsn},
    session::{Session, SessionEntry},
};
use countersign_protocol::{
    RawJson,
    omp::{OmpRequestId, OmpResponse, command::PageLimit, state::MessagesPage},
};

use crate::{
    adapter::{AdapterCallback, OmpAdapter},
    entries,
};

const NAME: &str = "get_messages_page";
/// The most bytes of a page that has more than one message.
const MOST: usize = 768 * 1024;
/// Error for a host whose session works.
const BUSY: (&str, &str) = ("Cannot page messages while the session is changing", "session_busy");
/// Error for a host whose session has changed since the page before.
const STALE: (&str, &str) = ("RPC message cursor is stale", "stale_cursor");

/// Position of a page, and the state of its session.
#[derive(Clone, Debug, PartialEq, Eq)]
struct PageCursor {
    offset: usize,
    total: usize,
    leaf: String,
    session: String,
}

impl PageCursor {
    fn to_text(&self) -> String {
        let hex = |text: &str| hex::encode(text.as_bytes());
        format!("{}-{}-{}-{}", self.offset, self.total, hex(&self.leaf), hex(&self.session))
    }

    fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('-');
        let mut next = || parts.next();
        let (offset, total, leaf, session) = (next()?, next()?, next()?, next()?);
        let text = |hex: &str| String::from_utf8(hex::decode(hex).ok()?).ok();
        let cursor = Self {
            offset: offset.parse().ok()?,
            total: total.parse().ok()?,
            leaf: text(leaf)?,
            session: text(session)?,
        };
        (cursor.offset <= cursor.total && parts.next().is_none()).then_some(cursor)
    }
}

/// Content to page through.
enum PageLookup {
    Busy,
    Stale,
    /// The entries of the page at most, and where it begins.
    Page(Vec<SessionEntry>, PageCursor),
}

fn find_page(session: &Session, cursor: Option<&PageCursor>, limit: usize) -> PageLookup {
    if session.run().is_some() || session.active_compaction().is_some() {
        return PageLookup::Busy;
    }
    let context = session.model_context();
    let now = PageCursor {
        offset: cursor.map_or(0, |cursor| cursor.offset),
        total: context.len(),
        leaf: session.leaf().map(EntryId::to_string).unwrap_or_default(),
        session: session.id().to_string(),
    };
    if cursor.is_some_and(|cursor| *cursor != now) {
        return PageLookup::Stale;
    }
    let entries = context.iter().skip(now.offset).take(limit).map(|piece| piece.entry().clone());
    PageLookup::Page(entries.collect(), now)
}

pub(super) async fn get_messages_page(
    adapter: &mut OmpAdapter,
    id: Option<OmpRequestId>,
    cursor: Option<String>,
    limit: PageLimit,
) {
    let cursor = match cursor.map(|text| PageCursor::parse(&text).ok_or(text)) {
        Some(Err(text)) => {
            let problem = format!("{NAME}: `cursor` {text:?} is not the nextCursor of a page");
            return adapter.write_frame(&OmpResponse::failure(id, NAME, problem));
        }
        Some(Ok(cursor)) => Some(cursor),
        None => None,
    };
    let Some(seat) = adapter.current_session() else { return };
    let (session, requests) = (seat.id.clone(), seat.requests.clone());
    let contents = seat.handle.contents().clone();
    adapter.reply_in_order(async move {
        let read = requests
            .read_state(move |engine| Some(find_page(engine.state().session(&session)?, cursor.as_ref(), limit.get())));
        let failed = |(problem, code): (&str, &'static str), id| OmpResponse::coded_failure(id, NAME, problem, code);
        let (position, response) = match read.await {
            Some((Some(PageLookup::Page(entries, from)), position)) => {
                let lsns: Vec<Lsn> = entries.iter().map(|entry| entry.content).collect();
                let response = match contents.get(&lsns).await {
                    Ok(texts) => {
                        let messages = entries.iter().zip(texts);
                        let messages = messages.map(|(entry, text)| entries::to_wire(entry, &text?));
                        OmpResponse::success(id, NAME, &cut_page(messages, from))
                    }
                    Err(error) => OmpResponse::failure(id, NAME, format!("the conversation cannot be read: {error}")),
                };
                (position, response)
            }
            Some((Some(PageLookup::Busy), position)) => (position, failed(BUSY, id)),
            Some((Some(PageLookup::Stale), position)) => (position, failed(STALE, id)),
            Some((None, _)) | None => (0, OmpResponse::failure(id, NAME, "the session is closed")),
        };
        let then: AdapterCallback = Box::new(move |adapter| adapter.write_frame(&response));
        (position, then)
    });
}

/// Returns as many of the messages as a page may hold, at least one. An entry without a message counts and is not shown.
fn cut_page(found: impl Iterator<Item = Option<RawJson>>, from: PageCursor) -> MessagesPage {
    let (mut messages, mut bytes, mut taken) = (Vec::new(), 0, 0);
    for message in found {
        bytes += message.as_ref().map_or(0, |message| message.as_text().len() + 1);
        if bytes > MOST && taken > 0 {
            break;
        }
        taken += 1;
        messages.extend(message);
    }
    let total_messages = from.total;
    let next = PageCursor { offset: from.offset + taken, ..from };
    let next_cursor = (next.offset < next.total).then(|| next.to_text());
    MessagesPage { messages, next_cursor, total_messages }
}

#[cfg(test)]
mod tests {
    use countersign_protocol::RawJson;

    use super::{MOST, PageCursor, cut_page};

    fn cursor(offset: usize, total: usize) -> PageCursor {
        PageCursor { offset, total, leaf: "a1".to_owned(), session: "s-1".to_owned() }
    }

    #[test]
    fn a_cursor_reads_back_and_nothing_else_does() {
        let one = cursor(3, 7);
        assert_eq!(PageCursor::parse(&one.to_text()), Some(one));
        for text in ["", "1", "1-2-3", "8-7-6131-732d31", "1-2-zz-00", "1-2-61-61-61", "-1-2-61-61"] {
            assert_eq!(PageCursor::parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_page_ends_where_it_would_grow_too_large() {
        let large = || Some(RawJson::from_wire("x".repeat(MOST / 2).as_str()));
        let page = cut_page([large(), large(), large()].into_iter(), cursor(4, 7));
        assert_eq!((page.messages.len(), page.total_messages), (1, 7));
        assert_eq!(page.next_cursor, Some(cursor(5, 7).to_text()));
        let page = cut_page([Some(RawJson::from_wire("x".repeat(MOST * 2).as_str())), None].into_iter(), cursor(6, 7));
        assert_eq!((page.messages.len(), page.next_cursor), (1, None));
    }
}
