use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
};

use futures_util::future::BoxFuture;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    task::JoinSet,
};

use super::{CONNECTIONS, HostProxy, WAITING};
use crate::live_questions::{CallQuestions, HostAccessAnswer, HostApprover};

/// A proxy for the listed hosts with a call that runs.
struct ProxyFixture {
    proxy: HostProxy,
    port: u16,
}

impl ProxyFixture {
    fn new(hosts: &[&str], asks: CallQuestions) -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let hosts = hosts.iter().map(|host| host.parse().unwrap()).collect();
        let proxy = HostProxy::start(listener, hosts).unwrap();
        proxy.begin_call("call", asks);
        Self { proxy, port }
    }

    /// Connects a client that has sent `text`.
    async fn says(&self, text: &str) -> TcpStream {
        let mut client = TcpStream::connect(("127.0.0.1", self.port)).await.unwrap();
        client.write_all(text.as_bytes()).await.unwrap();
        client
    }

    /// A tunnel that is open.
    async fn tunnel(&self, address: &str) -> TcpStream {
        let mut client = self.says(&format!("CONNECT {address} HTTP/1.1\r\n\r\n")).await;
        let mut head = [0; 39];
        client.read_exact(&mut head).await.unwrap();
        assert_eq!(&head, b"HTTP/1.1 200 Connection established\r\n\r\n");
        client
    }
}

async fn rest(client: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    client.read_to_end(&mut bytes).await.unwrap();
    String::from_utf8(bytes).unwrap()
}

/// A host with its address.
async fn host() -> (TcpListener, String) {
    let host = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = host.local_addr().unwrap().to_string();
    (host, address)
}

/// Reads a head.
async fn head(connection: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(connection.read_u8().await.unwrap());
    }
    String::from_utf8(head).unwrap()
}

#[tokio::test]
async fn either_side_of_a_tunnel_may_say_that_it_is_done() {
    let (host, address) = host().await;
    let case = ProxyFixture::new(&[&address], CallQuestions::default());
    let answering = async {
        let (mut connection, _) = host.accept().await.unwrap();
        let received = rest(&mut connection).await;
        connection.write_all(format!("heard {}", received.len()).as_bytes()).await.unwrap();
    };
    let asking = async {
        let mut client = case.tunnel(&address).await;
        client.write_all(&vec![b'a'; 1 << 20]).await.unwrap();
        client.shutdown().await.unwrap();
        assert_eq!(rest(&mut client).await, "heard 1048576");
    };
    tokio::join!(answering, asking);
    // The other way round: the host is done, and still listens.
    let answering = async {
        let (mut connection, _) = host.accept().await.unwrap();
        connection.shutdown().await.unwrap();
        assert_eq!(rest(&mut connection).await, "late");
    };
    let asking = async {
        let mut client = case.tunnel(&address).await;
        assert_eq!(rest(&mut client).await, "");
        client.write_all(b"late").await.unwrap();
    };
    tokio::join!(answering, asking);
}

#[tokio::test]
async fn bodies_arrive_whole_and_answers_come_back() {
    let body = "b".repeat(300_000);
    let parts = format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len());
    for (field, sent) in
        [(format!("Content-Length: {}", body.len()), &body), ("Transfer-Encoding: chunked".to_owned(), &parts)]
    {
        let (host, address) = host().await;
        let case = ProxyFixture::new(&[&address], CallQuestions::default());
        let answering = async {
            let (mut connection, _) = host.accept().await.unwrap();
            let request = head(&mut connection).await;
            assert!(request.starts_with("POST /in?a=b HTTP/1.1\r\n") && request.contains(&field), "{request}");
            let mut received = vec![0; sent.len()];
            connection.read_exact(&mut received).await.unwrap();
            assert_eq!(String::from_utf8(received).unwrap(), *sent);
            connection.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await.unwrap();
        };
        let asking = async {
            let mut client = case
                .says(&format!("POST http://{address}/in?a=b HTTP/1.1\r\nHost: other.org\r\n{field}\r\n\r\n"))
                .await;
            client.write_all(sent.as_bytes()).await.unwrap();
            assert!(rest(&mut client).await.ends_with("\r\n\r\nok"), "{field}");
        };
        tokio::join!(answering, asking);
    }
}

#[tokio::test]
async fn a_second_request_of_a_connection_goes_nowhere() {
    let ((host, address), (other, elsewhere)) = (host().await, host().await);
    let case = ProxyFixture::new(&[&address, &elsewhere], CallQuestions::default());
    let second = format!("GET http://{elsewhere}/ HTTP/1.1\r\n\r\n");
    let mut client = case.says(&format!("GET http://{address}/ HTTP/1.1\r\n\r\n{second}")).await;
    let (mut connection, _) = host.accept().await.unwrap();
    let request = head(&mut connection).await;
    assert_eq!(request, format!("GET / HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n"));
    connection.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nfirst").await.unwrap();
    connection.shutdown().await.unwrap();
    assert!(rest(&mut client).await.ends_with("\r\n\r\nfirst"));
    drop(client);
    assert_eq!(rest(&mut connection).await, "", "nothing of the second request is told to the first host");
    // The next one that connects there is the first.
    let tunnel = case.tunnel(&elsewhere).await;
    let (accepted, _) = other.accept().await.unwrap();
    drop((tunnel, accepted));
}

#[tokio::test]
async fn no_more_connections_than_a_shell_may_have_are_open_at_a_time() {
    let (host, address) = host().await;
    let case = Arc::new(ProxyFixture::new(&[&address], CallQuestions::default()));
    let (open, most, done) =
        (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)), Arc::new(Semaphore::new(0)));
    let all = CONNECTIONS + 40;
    let mut clients = JoinSet::new();
    for _ in 0..all {
        let (case, address) = (Arc::clone(&case), address.clone());
        clients.spawn(async move {
            let mut client = case.tunnel(&address).await;
            assert_eq!(rest(&mut client).await, "served");
        });
    }
    let mut served = JoinSet::new();
    for taken in 1..=all {
        let (mut connection, _) = host.accept().await.unwrap();
        most.fetch_max(open.fetch_add(1, SeqCst) + 1, SeqCst);
        let (open, free) = (Arc::clone(&open), Arc::clone(&done));
        served.spawn(async move {
            free.acquire().await.unwrap().forget();
            open.fetch_sub(1, SeqCst);
            connection.write_all(b"served").await.unwrap();
            connection.shutdown().await.unwrap();
        });
        // All slots are taken before the first is free again.
        if taken >= CONNECTIONS {
            done.add_permits(1);
        }
    }
    done.add_permits(all);
    while let Some(client) = clients.join_next().await {
        client.unwrap();
    }
    assert_eq!(most.load(SeqCst), CONNECTIONS);
}

#[tokio::test]
async fn the_end_of_a_call_cuts_its_connections_and_reports_the_refused_ones() {
    let (host, address) = host().await;
    let case = ProxyFixture::new(&[&address], CallQuestions::default());
    let mut client = case.tunnel(&address).await;
    let (mut connection, _) = host.accept().await.unwrap();
    let mut refused = case.says("CONNECT 127.0.0.1:1 HTTP/1.1\r\n\r\n").await;
    let answer = rest(&mut refused).await;
    assert!(answer.starts_with("HTTP/1.1 403 Forbidden") && answer.contains("\"hosts\""), "{answer}");
    let expected = BTreeMap::from([("127.0.0.1:1 is not in sandbox.network.hosts".to_owned(), true)]);
    assert_eq!(case.proxy.end_call(), expected);
    assert_eq!((rest(&mut client).await, rest(&mut connection).await), (String::new(), String::new()));
    // A request without a call is not served.
    assert_eq!(rest(&mut case.says("").await).await, "");
}

/// Gives every question the same answer.
struct FixedApprover(HostAccessAnswer);

impl HostApprover for FixedApprover {
    fn approve_host(&self, _: Arc<str>) -> BoxFuture<'_, HostAccessAnswer> {
        Box::pin(std::future::ready(self.0.clone()))
    }
}

/// Never answers.
struct SilentApprover;

impl HostApprover for SilentApprover {
    fn approve_host(&self, _: Arc<str>) -> BoxFuture<'_, HostAccessAnswer> {
        Box::pin(std::future::pending())
    }
}

#[tokio::test]
async fn what_nobody_listed_is_for_people_to_say() {
    let (host, address) = host().await;
    let case = ProxyFixture::new(&["a.org"], CallQuestions::new(FixedApprover(HostAccessAnswer::Yes)));
    let client = case.tunnel(&address).await;
    host.accept().await.unwrap();
    drop(client);
    assert_eq!(case.proxy.end_call(), BTreeMap::new());

    case.proxy
        .begin_call("next", CallQuestions::new(FixedApprover(HostAccessAnswer::No("a person refused it".to_owned()))));
    let answer = rest(&mut case.says(&format!("GET http://{address}/ HTTP/1.1\r\n\r\n")).await).await;
    assert!(answer.starts_with("HTTP/1.1 403 Forbidden") && answer.contains("a person refused it"), "{answer}");
    assert!(!answer.contains("Ask for exactly"), "{answer}");
    let expected = format!("{address} is not in sandbox.network.hosts, and a person refused it");
    assert_eq!(case.proxy.end_call(), BTreeMap::from([(expected, false)]));

    case.proxy.begin_call("last", CallQuestions::new(SilentApprover));
    let mut client = case.says(&format!("CONNECT {address} HTTP/1.1\r\n\r\n")).await;
    tokio::join!(async { assert_eq!(rest(&mut client).await, "") }, async {
        tokio::task::yield_now().await;
        case.proxy.end_call();
    });
}

/// Approves once it is permitted to.
struct GatedApprover {
    questions: Arc<Semaphore>,
    leave: Arc<Semaphore>,
}

impl HostApprover for GatedApprover {
    fn approve_host(&self, _: Arc<str>) -> BoxFuture<'_, HostAccessAnswer> {
        Box::pin(async {
            self.questions.add_permits(1);
            self.leave.acquire().await.unwrap().forget();
            HostAccessAnswer::Yes
        })
    }
}

#[tokio::test]
async fn a_connection_abandoned_while_pending_is_not_opened() {
    let ((host, address), (listed, open)) = (host().await, host().await);
    let (questions, leave) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let case = ProxyFixture::new(
        &[&open],
        CallQuestions::new(GatedApprover { questions: Arc::clone(&questions), leave: Arc::clone(&leave) }),
    );
    let pay = |number| format!("POST http://{address}/pay/{number} HTTP/1.1\r\nContent-Length: 1\r\n\r\nb");
    let first = case.says(&pay(0)).await;
    questions.acquire().await.unwrap().forget();
    // Connections that wait for their turn leave their slots to others when they close.
    let mut others = Vec::new();
    for number in 1..CONNECTIONS {
        others.push(case.says(&pay(number)).await);
    }
    drop((first, others));
    let tunnel = case.tunnel(&open).await;
    listed.accept().await.unwrap();
    drop(tunnel);
    let mut last = case.says(&pay(CONNECTIONS)).await;
    leave.add_permits(1);
    let (mut connection, _) = host.accept().await.unwrap();
    assert!(head(&mut connection).await.starts_with(&format!("POST /pay/{CONNECTIONS} ")));
    connection.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await.unwrap();
    drop(connection);
    assert!(rest(&mut last).await.ends_with("ok"));
    assert_eq!(questions.available_permits(), 0, "people were asked once");
    assert_eq!(case.proxy.end_call(), BTreeMap::new());
}

#[tokio::test]
async fn a_connection_that_waits_for_an_approver_takes_no_place_and_too_many_are_refused() {
    let (host, address) = host().await;
    let case = ProxyFixture::new(&[&address], CallQuestions::new(SilentApprover));
    let mut waiting = Vec::new();
    for _ in 0..WAITING + CONNECTIONS {
        waiting.push(case.says("CONNECT a.org:443 HTTP/1.1\r\n\r\n").await);
    }
    // A listed host is served, after all of them.
    let tunnel = case.tunnel(&address).await;
    host.accept().await.unwrap();
    drop(tunnel);
    for client in waiting.split_off(WAITING) {
        let answer = rest(&mut { client }).await;
        assert!(
            answer.starts_with("HTTP/1.1 502 Bad Gateway") && answer.contains("are waiting for an answer already"),
            "{answer}"
        );
    }
}

#[tokio::test]
async fn unanswered_hosts_are_reported_at_the_end() {
    let questions = Arc::new(Semaphore::new(0));
    let people = GatedApprover { questions: Arc::clone(&questions), leave: Arc::new(Semaphore::new(0)) };
    let case = ProxyFixture::new(&[], CallQuestions::new(people));
    let client = case.says("CONNECT a.org:443 HTTP/1.1\r\n\r\n").await;
    questions.acquire().await.unwrap().forget();
    let expected = "a.org:443 is not in sandbox.network.hosts, and the command gave up before a person had answered";
    assert_eq!(case.proxy.end_call(), BTreeMap::from([(expected.to_owned(), true)]));
    drop(client);
}
