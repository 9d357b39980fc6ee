//! Time from a gate to its card, time from a decision to its action, and events that a reconnecting client misses.

use std::{
    collections::BTreeSet,
    io::{BufRead as _, BufReader, Write as _},
    net::TcpStream,
    path::Path,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use serde_json::json;

use crate::{
    bench::{figure::median, to_millis},
    fixture::{
        bot_api_stub::BotApiStub,
        gateway::{self, GatewayProcess},
        socket::{TextSocket, tool_request},
        web,
    },
};

/// More would be held back: a bot may send so many messages at once.
const APPROVALS: usize = 10;
/// Number of requests during interrupted reading, and of events between two interruptions.
const REQUESTS: u64 = 400;
const CUT_EVERY: usize = 37;
const PATIENCE: Duration = Duration::from_secs(20);

/// Milliseconds from the request that opens a gate to its card at the messenger, and from the delivery of the tap to the call at the
/// service.
pub(crate) struct ApprovalFigures {
    pub(crate) card: f64,
    pub(crate) exec: f64,
}

pub(crate) fn measure_approval(binary: &Path) -> anyhow::Result<ApprovalFigures> {
    let called: Arc<Mutex<Option<Instant>>> = Arc::default();
    let calls = Arc::clone(&called);
    let service = web::start_server(move |http_request| {
        if http_request.path.starts_with("/turn/")
            && let Ok(mut at) = calls.lock()
        {
            *at = Some(Instant::now());
        }
        r#"{"state":"on"}"#.to_owned()
    })?;
    let bot_api = BotApiStub::start()?;
    let gateway = GatewayProcess::start(binary, service, Some(bot_api.address))?;
    let mut agent = TextSocket::connect_agent(&gateway.address)?;
    let (mut card, mut exec) = (Vec::new(), Vec::new());
    for number in 0..APPROVALS {
        let requested_at = Instant::now();
        agent.send_text(tool_request(u64::try_from(number)?, "turn", &json!({ "thing": format!("door{number}") })))?;
        agent.expect_executed()?;
        let shown = bot_api.last_shown().context("no card was sent")?;
        let tapped = bot_api.last_delivered().context("the card was not tapped")?;
        let ran = called.lock().ok().and_then(|at| *at).context("the service was not called")?;
        card.push(to_millis(shown.duration_since(requested_at)));
        exec.push(to_millis(ran.duration_since(tapped)));
    }
    let nothing = "nothing was measured";
    Ok(ApprovalFigures { card: median(card).context(nothing)?, exec: median(exec).context(nothing)? })
}

/// Returns how many events a reader missed, or had twice, that was cut off again and again while they came; and the number of
/// interruptions.
pub(crate) fn measure_lost(binary: &Path) -> anyhow::Result<(f64, f64)> {
    let gateway = GatewayProcess::start(binary, gateway::start_service()?, None)?;
    let address = gateway.address.clone();
    let writer = std::thread::spawn(move || {
        let mut agent = TextSocket::connect_agent(&address)?;
        for id in 0..REQUESTS {
            agent.send_text(tool_request(id, "look", &json!({ "thing": "lamp" })))?;
            agent.expect_executed()?;
        }
        anyhow::Ok(())
    });
    let (mut received, mut twice, mut cuts) = (BTreeSet::new(), 0_usize, 0_u32);
    let mut last = "start".to_owned();
    let begun = Instant::now();
    let mut end = None;
    loop {
        let mut stream = ApiEventStream::open(&gateway.address, &last)?;
        for _ in 0..CUT_EVERY {
            let Some(id) = stream.next_id()? else { break };
            twice += usize::from(!received.insert(id.clone()));
            last = id;
        }
        cuts += 1;
        if writer.is_finished() && end.is_none() {
            // No more events come: one uninterrupted reading must give what the reader got.
            end = Some(read_all_ids(&gateway.address)?);
        }
        if let Some(all) = &end
            && all.iter().all(|id| received.contains(id))
        {
            break;
        }
        if begun.elapsed() > PATIENCE {
            break;
        }
    }
    writer.join().map_err(|_| anyhow::anyhow!("the thread of the agent panicked"))??;
    let all = end.context("the requests took too long")?;
    if all.len() < usize::try_from(REQUESTS)? {
        bail!("only {} events were recorded", all.len());
    }
    let missed = all.iter().filter(|id| !received.contains(*id)).count();
    Ok((f64::from(u32::try_from(missed + twice)?), f64::from(cuts)))
}

/// Returns the ids of all events from the start until no more come.
fn read_all_ids(address: &str) -> anyhow::Result<Vec<String>> {
    let mut stream = ApiEventStream::open(address, "start")?;
    let mut ids = Vec::new();
    while let Some(id) = stream.next_id()? {
        ids.push(id);
    }
    Ok(ids)
}

/// The stream of events for programs.
struct ApiEventStream(BufReader<TcpStream>);

impl ApiEventStream {
    fn open(address: &str, after: &str) -> anyhow::Result<Self> {
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(Duration::from_millis(500)))?;
        write!(
            stream,
            "GET /api/v1/events?after={after} HTTP/1.1\r\nhost: {address}\r\naccept: text/event-stream\r\n\r\n"
        )?;
        let mut stream = BufReader::new(stream);
        let mut line = String::new();
        stream.read_line(&mut line)?;
        if !line.contains(" 200 ") {
            bail!("no stream of events: {}", line.trim());
        }
        Ok(Self(stream))
    }

    /// Returns the id of the next event; `None` where none comes for a while.
    fn next_id(&mut self) -> anyhow::Result<Option<String>> {
        let mut id = None;
        loop {
            let mut line = String::new();
            match self.0.read_line(&mut line) {
                Ok(0) => return Ok(None),
                Ok(_) => {}
                Err(error) if matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut) => {
                    return Ok(None);
                }
                Err(error) => return Err(error.into()),
            }
            if let Some(value) = line.strip_prefix("id:") {
                id = Some(value.trim().to_owned());
            } else if let Some(event) = line.strip_prefix("event:") {
                // The events at the beginning of a stream repeat where it was resumed, and those without an id are only for current
                // followers.
                match id.take() {
                    Some(id) if event.trim() != "ready" => return Ok(Some(id)),
                    _ => {}
                }
            }
        }
    }
}
