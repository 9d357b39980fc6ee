//! Streams of a proxy: reads the lines of both sides, asks its interceptor, and does what follows.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::mpsc,
    task::{AbortHandle, JoinHandle, JoinSet},
    time::Instant,
};

use crate::{
    agent_call::{AgentCall, CallAnswer, CallDecision, CallLinks, Decider, GateNotice},
    byte_queue::ByteQueue,
    interceptor::{CallToken, Interceptor, ProxyAction, ProxyActions},
    line_reader::{LARGEST_LINE, LineReader, ReadLine},
};

/// Time for the last lines of an agent once its client or its process has gone.
const FAREWELL: Duration = Duration::from_secs(5);
/// The same once its process has ended: others may hold its output open.
const LAST_LINES: Duration = Duration::from_secs(1);
/// Time for the last lines to a client.
const LAST_WRITES: Duration = Duration::from_secs(5);
/// Time for the last reports of calls that ran.
const LAST_REPORTS: Duration = Duration::from_secs(5);

/// Most reports that wait for the gateway. The agent is read no further until one of them has arrived.
const MOST_REPORTS: usize = 100;

/// How a proxy ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProxyEnd {
    /// The client closed its side.
    Client,
    /// The agent ended, or was ended, for this reason.
    Agent(String),
    /// It was asked to stop.
    Stopped,
}

/// Event of a call that waits.
enum CallEvent {
    Gate(CallToken, GateNotice),
    Decided(CallToken, CallDecision),
}

/// Sender of a decision, which is a denial if its task fails.
struct DecisionGuard {
    token: CallToken,
    decision: CallDecision,
    events: mpsc::UnboundedSender<CallEvent>,
}

impl Drop for DecisionGuard {
    fn drop(&mut self) {
        let decision = std::mem::replace(&mut self.decision, CallDecision::Allow);
        let _ = self.events.send(CallEvent::Decided(self.token, decision));
    }
}

/// Wait for a decision.
struct WaitingCall {
    task: AbortHandle,
    answers: mpsc::UnboundedSender<CallAnswer>,
}

/// Proxy between a client and an agent.
pub struct Proxy<I, D> {
    interceptor: I,
    decider: Arc<D>,
    notice: fn(&str),
    waiting: BTreeMap<CallToken, WaitingCall>,
    /// Reports that have not arrived at the gateway.
    reports: JoinSet<()>,
    events: mpsc::UnboundedSender<CallEvent>,
    received: mpsc::UnboundedReceiver<CallEvent>,
}

/// Next thing that happens.
enum ProxyEvent {
    Client(std::io::Result<Option<ReadLine>>),
    Agent(std::io::Result<Option<ReadLine>>),
    Call(CallEvent),
    Deadline,
    Farewell,
    ClientUnreachable,
    AgentUnreachable,
    ProcessEnded(String),
    Stop,
}

impl<I: Interceptor, D: Decider> Proxy<I, D> {
    /// Creates a proxy. Texts for the user go to `notice`.
    pub fn new(interceptor: I, decider: D, notice: fn(&str)) -> Self {
        let (events, received) = mpsc::unbounded_channel();
        Self {
            interceptor,
            decider: Arc::new(decider),
            notice,
            waiting: BTreeMap::new(),
            reports: JoinSet::new(),
            events,
            received,
        }
    }

    /// Runs until the client or the agent has gone, or `stop` is ready. `ended` becomes ready when the process of the agent has ended,
    /// with how.
    pub async fn run(
        mut self,
        client: (impl AsyncRead + Unpin, impl AsyncWrite + Unpin + Send + 'static),
        agent: (impl AsyncRead + Unpin, impl AsyncWrite + Unpin + Send + 'static),
        ended: impl Future<Output = String>,
        stop: impl Future<Output = ()>,
    ) -> ProxyEnd {
        let mut from_client = LineReader::new(client.0, LARGEST_LINE);
        let mut from_agent = LineReader::new(agent.0, LARGEST_LINE);
        let (to_client, mut client_writing) = ByteQueue::start(client.1);
        let (to_agent, mut agent_writing) = ByteQueue::start(agent.1);
        let mut to_agent = Some(to_agent);
        let (mut ended, mut stop) = (std::pin::pin!(ended), std::pin::pin!(stop));
        let (mut has_ended, mut ending) = (None, None::<Instant>);
        let end = loop {
            let deadline = self.interceptor.deadline().map(Instant::from_std);
            let event = tokio::select! {
                line = read_with_room(&mut from_client, to_agent.as_ref()), if to_agent.is_some() => {
                    ProxyEvent::Client(line)
                }
                line = read_with_room(&mut from_agent, Some(&to_client)), if self.reports.len() < MOST_REPORTS => {
                    ProxyEvent::Agent(line)
                }
                Some(_) = self.reports.join_next() => continue,
                Some(event) = self.received.recv() => ProxyEvent::Call(event),
                () = sleep_until(deadline) => ProxyEvent::Deadline,
                () = sleep_until(ending) => ProxyEvent::Farewell,
                _ = &mut client_writing => ProxyEvent::ClientUnreachable,
                _ = &mut agent_writing, if to_agent.is_some() => ProxyEvent::AgentUnreachable,
                how = &mut ended, if has_ended.is_none() => ProxyEvent::ProcessEnded(how),
                () = &mut stop => ProxyEvent::Stop,
            };
            let mut actions = ProxyActions::new();
            let now = Instant::now().into_std();
            match event {
                ProxyEvent::Client(Ok(Some(ReadLine::Line(line)))) => {
                    self.interceptor.client_line(line, now, &mut actions);
                }
                ProxyEvent::Client(Ok(Some(ReadLine::TooLong))) => self.interceptor.long_client_line(&mut actions),
                ProxyEvent::Client(Ok(None) | Err(_)) => {
                    // Its calls can get no answer any more. The agent may still say something.
                    to_agent = None;
                    self.abandon_all();
                    ending = Some(Instant::now() + FAREWELL);
                }
                ProxyEvent::Agent(Ok(Some(ReadLine::Line(line)))) => {
                    self.interceptor.agent_line(line, now, &mut actions)
                }
                ProxyEvent::Agent(Ok(Some(ReadLine::TooLong))) => {
                    actions.push(ProxyAction::End(format!("the agent sent a line of more than {LARGEST_LINE} bytes")));
                }
                ProxyEvent::Agent(Ok(None) | Err(_)) | ProxyEvent::Farewell => {
                    break match to_agent {
                        None => ProxyEnd::Client,
                        Some(_) => ProxyEnd::Agent(end_of_agent(has_ended, ended).await),
                    };
                }
                ProxyEvent::Call(CallEvent::Gate(token, gate)) if self.waiting.contains_key(&token) => {
                    self.interceptor.gate_opened(token, gate, now, &mut actions);
                }
                ProxyEvent::Call(CallEvent::Decided(token, decision)) if self.waiting.remove(&token).is_some() => {
                    self.interceptor.decided(token, decision, now, &mut actions);
                }
                ProxyEvent::Call(_) => {}
                ProxyEvent::Deadline => self.interceptor.time_passed(now, &mut actions),
                ProxyEvent::ClientUnreachable => break ProxyEnd::Client,
                ProxyEvent::AgentUnreachable => break ProxyEnd::Agent("the agent closed its input".to_owned()),
                ProxyEvent::ProcessEnded(how) => {
                    has_ended = Some(how);
                    ending = Some(Instant::now() + LAST_LINES);
                }
                ProxyEvent::Stop => break ProxyEnd::Stopped,
            }
            if let Some(reason) = self.perform(actions, &to_client, to_agent.as_ref()) {
                break ProxyEnd::Agent(reason);
            }
        };
        self.abandon_all();
        if let ProxyEnd::Agent(reason) = &end {
            let mut actions = ProxyActions::new();
            self.interceptor.agent_ended(reason, &mut actions);
            self.perform(actions, &to_client, None);
        }
        drop(to_client);
        finish_writing(client_writing).await;
        self.finish_reports().await;
        end
    }

    /// Does what an interceptor wants. Returns the reason if the agent must end.
    fn perform(
        &mut self,
        actions: ProxyActions,
        to_client: &ByteQueue,
        to_agent: Option<&ByteQueue>,
    ) -> Option<String> {
        let mut end = None;
        for action in actions {
            match action {
                ProxyAction::ToClient(line) => to_client.send(line),
                ProxyAction::ToAgent(line) => {
                    if let Some(to_agent) = to_agent {
                        to_agent.send(line);
                    }
                }
                ProxyAction::Decide { token, call } => {
                    if to_agent.is_some() {
                        self.start_decision(token, call);
                    }
                }
                ProxyAction::Answer { token, answer } => {
                    if let Some(waiting) = self.waiting.get(&token) {
                        let _ = waiting.answers.send(answer);
                    }
                }
                ProxyAction::Abandon(token) => {
                    if let Some(waiting) = self.waiting.remove(&token) {
                        waiting.task.abort();
                    }
                }
                ProxyAction::Report(call) => self.start_report(call),
                ProxyAction::Notice(text) => (self.notice)(&text),
                ProxyAction::End(reason) => end = end.or(Some(reason)),
            }
        }
        end
    }

    fn start_decision(&mut self, token: CallToken, call: AgentCall) {
        let (gates, mut opened) = mpsc::unbounded_channel();
        let (answers, received) = mpsc::unbounded_channel();
        let (decider, events) = (Arc::clone(&self.decider), self.events.clone());
        let task = tokio::spawn(async move {
            let failed = CallDecision::Deny("The proxy failed, so the call is denied".to_owned());
            let mut guard = DecisionGuard { token, decision: failed, events: events.clone() };
            let mut deciding = std::pin::pin!(decider.decide(call, CallLinks { gates, answers: received }));
            guard.decision = loop {
                tokio::select! {
                    biased;
                    Some(gate) = opened.recv() => drop(events.send(CallEvent::Gate(token, gate))),
                    decision = &mut deciding => break decision,
                }
            };
        });
        self.waiting.insert(token, WaitingCall { task: task.abort_handle(), answers });
    }

    fn start_report(&mut self, call: AgentCall) {
        let (decider, notice) = (Arc::clone(&self.decider), self.notice);
        self.reports.spawn(async move {
            let tool = call.tool.clone();
            if let Err(problem) = decider.report_run(call).await {
                notice(&format!(
                    "a call of {tool} that was not allowed in this form ran, and is not recorded: {problem}"
                ));
            }
        });
    }

    /// Waits for the reports that are under way.
    async fn finish_reports(&mut self) {
        let arrived = async { while self.reports.join_next().await.is_some() {} };
        if tokio::time::timeout(LAST_REPORTS, arrived).await.is_err() {
            let count = self.reports.len();
            (self.notice)(&format!(
                "{count} calls ran that were not allowed in this form, and are not recorded: the gateway did not answer"
            ));
        }
    }

    fn abandon_all(&mut self) {
        for waiting in std::mem::take(&mut self.waiting).into_values() {
            waiting.task.abort();
        }
    }
}

async fn read_with_room<R: AsyncRead + Unpin>(
    reader: &mut LineReader<R>,
    other: Option<&ByteQueue>,
) -> std::io::Result<Option<ReadLine>> {
    if let Some(other) = other {
        other.has_room().await;
    }
    reader.next().await
}

async fn sleep_until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

async fn end_of_agent(known: Option<String>, ended: impl Future<Output = String>) -> String {
    match known {
        Some(how) => how,
        // Its output is closed, so its end is near.
        None => match tokio::time::timeout(LAST_LINES, ended).await {
            Ok(how) => how,
            Err(_) => "the agent closed its output".to_owned(),
        },
    }
}

async fn finish_writing(mut writing: JoinHandle<std::io::Result<()>>) {
    if !writing.is_finished() && tokio::time::timeout(LAST_WRITES, &mut writing).await.is_err() {
        writing.abort();
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::{
            Arc,
            atomic::{AtomicUsize, Ordering},
        },
        time::Instant,
    };

    use serde_json::Map;
    use tokio::{
        io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, duplex, split},
        sync::Semaphore,
    };

    use super::{MOST_REPORTS, Proxy, ProxyEnd};
    use crate::{
        acp::{AcpOptions, AcpProxy, EditorApprovals, GuardedAgent},
        agent_call::{AgentCall, CallDecision, CallLinks, Decider, GateNotice},
        interceptor::{CallToken, Interceptor, OpenSettings, ProxyAction, ProxyActions},
    };

    /// Allows all commands but one, at which it fails.
    struct FakeDecider;

    impl Decider for FakeDecider {
        async fn decide(&self, call: AgentCall, _: CallLinks) -> CallDecision {
            assert_ne!(call.arguments["command"], "panic");
            CallDecision::Allow
        }

        async fn report_run(&self, _: AgentCall) -> Result<(), String> {
            Ok(())
        }
    }

    const OPTIONS: &str = r#"[{"optionId":"y","kind":"allow_once"},{"optionId":"n","kind":"reject_once"}]"#;

    #[tokio::test]
    async fn lines_pass_byte_by_byte_and_a_failed_decision_is_a_denial() {
        let options = AcpOptions {
            approvals: EditorApprovals::Gateway,
            open: OpenSettings::Refuse,
            agent: GuardedAgent::Other,
            cwd: "/w".to_owned(),
        };
        let ((client, ours), (agent, theirs)) = (duplex(1 << 16), duplex(1 << 16));
        let (client_in, client_out) = split(ours);
        let (agent_out, agent_in) = split(theirs);
        let proxy = Proxy::new(AcpProxy::new(options), FakeDecider, |_| {});
        let ended = async { "the agent ended with exit status: 3".to_owned() };
        let (ends, has_ended) = tokio::sync::oneshot::channel::<()>();
        let ended = async move {
            let _ = has_ended.await;
            ended.await
        };
        let running =
            tokio::spawn(proxy.run((client_in, client_out), (agent_out, agent_in), ended, std::future::pending()));
        let (client_reading, mut client) = split(client);
        let (agent_reading, mut agent) = split(agent);
        let mut client_lines = BufReader::new(client_reading).lines();
        let mut agent_lines = BufReader::new(agent_reading).lines();
        let odd = r#" {  "method" : "session/prompt", "id":0, "params":{"a":1,"a":2, "t":"\u0041"} }"#;
        client.write_all(format!("{odd}\n").as_bytes()).await.unwrap();
        assert_eq!(agent_lines.next_line().await.unwrap().unwrap(), odd);
        for (command, want) in [("ls", "\"y\""), ("panic", "\"n\"")] {
            let ask = format!(
                r#"{{"id":0,"method":"session/request_permission","params":{{"sessionId":"s","toolCall":{{"toolCallId":"c","kind":"execute","rawInput":{{"command":"{command}"}}}},"options":{OPTIONS}}}}}"#
            );
            agent.write_all(format!("{ask}\n").as_bytes()).await.unwrap();
            let answer = agent_lines.next_line().await.unwrap().unwrap();
            assert!(answer.contains(&format!("\"optionId\":{want}")), "{answer}");
        }
        drop(ends);
        drop((agent, agent_lines));
        let answer = client_lines.next_line().await.unwrap().unwrap();
        assert!(answer.contains("\"id\":0,\"error\"") && answer.contains("exit status: 3"), "{answer}");
        assert_eq!(running.await.unwrap(), ProxyEnd::Agent("the agent ended with exit status: 3".to_owned()));
    }
    /// Reports each line of the agent, and passes it on.
    struct ReportingInterceptor;

    impl Interceptor for ReportingInterceptor {
        fn client_line(&mut self, _: Vec<u8>, _: Instant, _: &mut ProxyActions) {}

        fn agent_line(&mut self, line: Vec<u8>, _: Instant, actions: &mut ProxyActions) {
            actions.push(ProxyAction::Report(AgentCall {
                session: "s".to_owned(),
                id: None,
                tool: "bash".to_owned(),
                arguments: Map::new(),
                cwd: "/".to_owned(),
            }));
            actions.push(ProxyAction::ToClient(line));
        }

        fn long_client_line(&mut self, _: &mut ProxyActions) {}

        fn gate_opened(&mut self, _: CallToken, _: GateNotice, _: Instant, _: &mut ProxyActions) {}

        fn decided(&mut self, _: CallToken, _: CallDecision, _: Instant, _: &mut ProxyActions) {}

        fn deadline(&self) -> Option<Instant> {
            None
        }

        fn time_passed(&mut self, _: Instant, _: &mut ProxyActions) {}

        fn agent_ended(&mut self, _: &str, _: &mut ProxyActions) {}
    }

    /// Takes a report for each permit.
    struct AbsentGateway(Arc<Semaphore>, Arc<AtomicUsize>);

    impl Decider for AbsentGateway {
        async fn decide(&self, _: AgentCall, _: CallLinks) -> CallDecision {
            CallDecision::Allow
        }

        async fn report_run(&self, _: AgentCall) -> Result<(), String> {
            self.0.acquire().await.unwrap().forget();
            self.1.fetch_add(1, Ordering::Relaxed);
            Ok(())
        }
    }

    #[tokio::test]
    async fn an_agent_is_read_no_further_while_its_reports_wait() {
        let (permits, taken) = (Arc::new(Semaphore::new(0)), Arc::new(AtomicUsize::new(0)));
        let ((client, ours), (agent, theirs)) = (duplex(1 << 16), duplex(1 << 16));
        let gateway = AbsentGateway(Arc::clone(&permits), Arc::clone(&taken));
        let proxy = Proxy::new(ReportingInterceptor, gateway, |_| {});
        let running =
            tokio::spawn(proxy.run(split(ours), split(theirs), std::future::pending(), std::future::pending()));
        let (client_reading, _client) = split(client);
        let mut lines = BufReader::new(client_reading).lines();
        let (_agent_reading, mut agent) = split(agent);
        let count = 3 * MOST_REPORTS;
        let sent: Vec<u8> = (0..count).flat_map(|at| format!("{at}\n").into_bytes()).collect();
        agent.write_all(&sent).await.unwrap();
        for at in 0..MOST_REPORTS {
            assert_eq!(lines.next_line().await.unwrap(), Some(at.to_string()));
        }
        // Everything that can run has run: the proxy waits for its gateway.
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        let more = tokio::select! {
            biased;
            line = lines.next_line() => Some(line),
            () = tokio::task::yield_now() => None,
        };
        assert!(more.is_none(), "no line comes before a report has arrived: {more:?}");
        permits.add_permits(count);
        for at in MOST_REPORTS..count {
            assert_eq!(lines.next_line().await.unwrap(), Some(at.to_string()));
        }
        drop((agent, _agent_reading));
        assert!(matches!(running.await.unwrap(), ProxyEnd::Agent(_)));
        assert_eq!(taken.load(Ordering::Relaxed), count);
    }
}
