//! Asks the gateway on this machine about each call, on a connection of its own.
//!
//! A gateway that ends while a call waits keeps the gate. The same call asked again takes its decision, so it is asked again.

use std::{
    io::ErrorKind,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use countersign_agent_proxy::{AgentCall, CallAnswer, CallDecision, CallLinks, Decider, GateNotice};
use countersign_gateway::control::{
    ControlReply, FILE, ProxiedCall, ProxyAnswer, ProxyDecision, Request, SurfaceAnswer, SurfaceDecision,
};
use sha2::{Digest as _, Sha256};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader},
    net::{UnixStream, unix::OwnedReadHalf},
    time::{Instant, sleep},
};

use super::DecidingGateway;
use crate::{data_dir::DataDir, no_gateway::no_gateway_text};

/// Waits between two attempts to reach the gateway.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// Longest id of a session that the gateway takes as it is.
const LONGEST_ID: usize = 100;

/// Decider at the control socket of a gateway.
pub(super) struct GatewayDecider {
    program: &'static str,
    place: DataDir,
    reconnect: Duration,
    /// True once the gateway was reached.
    was_reached: AtomicBool,
}

/// Reason why the gateway has not decided.
enum DecisionFailure {
    /// It is not there, or has gone. Asking again helps.
    Gone(String),
    /// It refused.
    Refused(String),
}

/// Wait for a gateway that has gone.
struct ReconnectState {
    gone_at: Option<Instant>,
    /// Time until the next attempt.
    pause: Duration,
}

impl Default for ReconnectState {
    fn default() -> Self {
        Self { gone_at: None, pause: FIRST_PAUSE }
    }
}

impl GatewayDecider {
    pub(super) fn new(program: &'static str, gateway: DecidingGateway) -> Self {
        let DecidingGateway { place, reconnect } = gateway;
        Self { program, place, reconnect, was_reached: AtomicBool::new(false) }
    }

    fn no_gateway(&self) -> String {
        no_gateway_text(&self.place)
    }

    fn proxied(&self, call: AgentCall) -> ProxiedCall {
        ProxiedCall {
            program: self.program.to_owned(),
            session: plain_id(&call.session),
            subagent: None,
            call: call.id,
            tool: call.tool,
            arguments: call.arguments,
            cwd: call.cwd,
            wait: None,
        }
    }

    async fn connect(&self, request: &Request) -> Result<UnixStream, DecisionFailure> {
        let mut stream =
            UnixStream::connect(self.place.folder.join(FILE)).await.map_err(|error| match error.kind() {
                ErrorKind::NotFound | ErrorKind::ConnectionRefused => DecisionFailure::Gone(self.no_gateway()),
                _ => DecisionFailure::Refused(format!("cannot connect to the gateway: {error}")),
            })?;
        let mut line = serde_json::to_vec(request)
            .map_err(|error| DecisionFailure::Refused(format!("the call cannot be written: {error}")))?;
        line.push(b'\n');
        stream.write_all(&line).await.map_err(|_| DecisionFailure::Gone(self.no_gateway()))?;
        self.was_reached.store(true, Ordering::Relaxed);
        Ok(stream)
    }

    /// Waits before the next attempt. False if the gateway was never there, or has been gone for too long.
    async fn waits_for_gateway(&self, reconnection: &mut ReconnectState, requested_at: Instant) -> bool {
        // One that was there for a while has gone only now.
        if requested_at.elapsed() > LONGEST_PAUSE {
            *reconnection = ReconnectState::default();
        }
        let gone_at = *reconnection.gone_at.get_or_insert_with(Instant::now);
        if !self.was_reached.load(Ordering::Relaxed) || gone_at.elapsed() >= self.reconnect {
            return false;
        }
        sleep(reconnection.pause).await;
        reconnection.pause = (reconnection.pause * 2).min(LONGEST_PAUSE);
        true
    }

    /// Reports once a call that ran.
    async fn report_once(&self, request: &Request) -> Result<(), DecisionFailure> {
        let mut reading = BufReader::new(self.connect(request).await?);
        let mut line = String::new();
        match reading.read_line(&mut line).await {
            Ok(_) if line.ends_with('\n') => {}
            Ok(_) | Err(_) => return Err(DecisionFailure::Gone(self.no_gateway())),
        }
        match serde_json::from_str(&line) {
            Ok(ControlReply::Ok(_)) => Ok(()),
            Ok(ControlReply::Error(problem)) => Err(DecisionFailure::Refused(problem)),
            Err(error) => Err(DecisionFailure::Refused(format!("invalid answer of the gateway: {error}"))),
        }
    }

    /// Asks once, and passes the gate and its answers on.
    async fn ask(
        &self,
        request: &Request,
        links: &mut CallLinks,
        given: &mut Option<CallAnswer>,
    ) -> Result<CallDecision, DecisionFailure> {
        let (reading, mut writing) = self.connect(request).await?.into_split();
        let mut reading = BufReader::new(reading);
        let mut line = Vec::new();
        let mut has_client = true;
        loop {
            let answer = tokio::select! {
                reply = read_reply(&mut reading, &mut line) => match reply? {
                    None => return Err(DecisionFailure::Gone(format!("the gateway ended while the call waited; {}", self.no_gateway()))),
                    Some(ProxyAnswer::Decided(ProxyDecision::Allow)) => return Ok(CallDecision::Allow),
                    Some(ProxyAnswer::Decided(ProxyDecision::Deny { reason })) => return Ok(CallDecision::Deny(reason)),
                    Some(ProxyAnswer::Waiting { gate, title }) => match given.as_ref().filter(|given| given.gate == gate) {
                        // The gateway that got it may have ended before it was recorded.
                        Some(given) => given.clone(),
                        None => {
                            let _ = links.gates.send(GateNotice { gate, title });
                            continue;
                        }
                    },
                },
                answer = links.answers.recv(), if has_client => match answer {
                    Some(answer) => answer,
                    None => {
                        has_client = false;
                        continue;
                    }
                },
            };
            let CallAnswer { gate, allow, surface } = answer.clone();
            *given = Some(answer);
            let answer = SurfaceAnswer { answer: SurfaceDecision { gate, allow, surface } };
            let mut answer = serde_json::to_vec(&answer)
                .map_err(|error| DecisionFailure::Refused(format!("the answer cannot be written: {error}")))?;
            answer.push(b'\n');
            // If the gateway has gone, the next read says so.
            let _ = writing.write_all(&answer).await;
        }
    }
}

/// Reads the next answer; none at the end. A dropped future keeps the part of a line that it has read.
async fn read_reply(
    reading: &mut BufReader<OwnedReadHalf>,
    line: &mut Vec<u8>,
) -> Result<Option<ProxyAnswer>, DecisionFailure> {
    // Unlike `read_line`, this keeps the part of a line that it has read when it is dropped.
    match reading.read_until(b'\n', line).await {
        Ok(0) | Err(_) => return Ok(None),
        Ok(_) if !line.ends_with(b"\n") => return Ok(None),
        Ok(_) => {}
    }
    let reply = serde_json::from_slice(&std::mem::take(line));
    let invalid =
        |error: serde_json::Error| DecisionFailure::Refused(format!("invalid answer of the gateway: {error}"));
    match reply.map_err(invalid)? {
        ControlReply::Ok(answer) => serde_json::from_value(answer).map(Some).map_err(invalid),
        ControlReply::Error(problem) => Err(DecisionFailure::Refused(problem)),
    }
}

impl Decider for GatewayDecider {
    async fn decide(&self, call: AgentCall, mut links: CallLinks) -> CallDecision {
        let request = Request::ProxiedCall(Box::new(self.proxied(call)));
        let (mut given, mut reconnection) = (None, ReconnectState::default());
        loop {
            let requested_at = Instant::now();
            match self.ask(&request, &mut links, &mut given).await {
                Ok(decision) => return decision,
                Err(DecisionFailure::Refused(reason)) => return CallDecision::Deny(reason),
                Err(DecisionFailure::Gone(reason)) => {
                    if !self.waits_for_gateway(&mut reconnection, requested_at).await {
                        return CallDecision::Deny(reason);
                    }
                }
            }
        }
    }

    async fn report_run(&self, call: AgentCall) -> Result<(), String> {
        let request = Request::ProxiedRun(Box::new(self.proxied(call)));
        let mut reconnection = ReconnectState::default();
        loop {
            let requested_at = Instant::now();
            match self.report_once(&request).await {
                Ok(()) => return Ok(()),
                Err(DecisionFailure::Refused(problem)) => return Err(problem),
                Err(DecisionFailure::Gone(problem)) => {
                    if !self.waits_for_gateway(&mut reconnection, requested_at).await {
                        return Err(problem);
                    }
                }
            }
        }
    }
}

/// Returns an id of a session as the gateway takes it: with letters, digits, dashes, dots and underscores.
fn plain_id(id: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
    if !id.is_empty() && id.len() <= LONGEST_ID && id.chars().all(is_plain) {
        return id.to_owned();
    }
    let digest = Sha256::digest(id.as_bytes());
    let hex: String = digest.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
    format!("id-{hex}")
}

#[cfg(test)]
mod tests {
    use super::plain_id;

    #[test]
    fn an_id_of_a_session_is_kept_if_the_gateway_takes_it() {
        assert_eq!(plain_id("ses_01.a-b"), "ses_01.a-b");
        for other in ["", "a b", "a/b", &"x".repeat(101)] {
            let plain = plain_id(other);
            assert!(plain.starts_with("id-") && plain.len() == 35, "{plain}");
        }
        assert_ne!(plain_id("a b"), plain_id("a/b"));
    }
}
