//! Calls at a peer: their owner, and their outcome when the peer goes, is silent or is stopped.

use std::time::Duration;

use countersign_core::{
    call,
    engine::{Command, Event, ResumeMode},
    id::PeerId,
    peer::PeerMemory,
    policy::DefaultPolicy,
    run,
};
use countersign_runtime::{
    CommandSource, InboxLane, LiveKind, OwnerHandle, PeerCall, PeerExchange, PeerOrder, PeerRegistry, PeerTexts,
    ReleasedItem, ResultTiming, Subscriber,
    models::scripted::{ScriptedModel, ScriptedReply},
    store::MemoryLog,
    tools::CallOutput,
};

use crate::fixture::{FAR, at_rest, begin_with, eventually, name, open_with, prompt};

/// An owner whose model wants one call at the peer `p`, and then ends.
struct PeerFixture {
    owner: OwnerHandle,
    peers: PeerRegistry,
    requests: CommandSource,
    released: Subscriber,
}

impl PeerFixture {
    async fn begin(calls: usize, patience: Duration) -> Self {
        let wants =
            (0..calls).fold(ScriptedReply::new(), |reply, at| reply.add_call(&format!("c{at}"), FAR, "{}")).end();
        let model = ScriptedModel::new([wants, ScriptedReply::from_text("ok")]);
        let peers = PeerRegistry::default();
        let owner = open_with(peers.clone(), MemoryLog::new(), &model, DefaultPolicy::Stdio, ResumeMode::Wait).await;
        let requests = begin_with(&owner, "/".as_ref(), patience).await;
        let released = owner.subscribe().await.unwrap();
        Self { owner, peers, requests, released }
    }

    async fn prompt(&self) {
        self.requests.send_command(prompt()).await.unwrap();
    }

    async fn link(&self) -> countersign_runtime::PeerLink {
        self.peers.open(PeerId::new("p"), self.owner.source(InboxLane::Result)).await
    }

    /// Opens a line to the same peer, which notes the outcome of calls.
    async fn noting(&self) -> countersign_runtime::PeerLink {
        self.peers.open_to(PeerId::new("p"), PeerMemory::Keeps, self.owner.source(InboxLane::Result)).await
    }

    /// Returns the text of the next result of a call, and its end.
    async fn result(&mut self) -> (String, call::CallEnd) {
        let look = async {
            let mut text = String::new();
            loop {
                if let Some(ReleasedItem::Fact(recorded)) = self.released.next().await {
                    let content = recorded.fact.content.as_deref();
                    match &recorded.fact.event {
                        Event::Session(_) => text = content.unwrap_or_default().to_owned(),
                        Event::Call(call::Event::Ended { end, .. }) => return (text, *end),
                        _ => {}
                    }
                }
            }
        };
        tokio::time::timeout(Duration::from_secs(120), look).await.expect("no call ends")
    }

    async fn end(self) {
        at_rest(&self.owner).await;
        self.owner.close().await;
    }
}

fn words() -> PeerTexts {
    PeerTexts { stopped: "was stopped".to_owned(), gone: "has gone".to_owned(), silent: "says nothing".to_owned() }
}

async fn order(link: &mut countersign_runtime::PeerLink) -> PeerOrder {
    let order = tokio::time::timeout(Duration::from_secs(120), link.next()).await;
    order.expect("no order comes").expect("the line is the peer's")
}

async fn errand(link: &mut countersign_runtime::PeerLink) -> PeerCall {
    match order(link).await {
        PeerOrder::Do(errand) => *errand,
        PeerOrder::Ask(errand) => panic!("{} is asked about", errand.call),
        PeerOrder::Stop(call) => panic!("{call} is to stop"),
    }
}

async fn sent(link: &mut countersign_runtime::PeerLink) -> PeerExchange {
    errand(link).await.mark_sent(words()).expect("it is waited for")
}

const LONG: Duration = Duration::from_secs(3600);

#[tokio::test(flavor = "multi_thread")]
async fn a_call_waits_for_its_peer_and_ends_with_what_that_says() {
    let mut scene = PeerFixture::begin(1, LONG).await;
    scene.prompt().await;
    eventually(&scene.owner, |engine| engine.state().next_deadline()).await;
    let mut link = scene.link().await;
    let exchange = sent(&mut link).await;
    exchange.send_update(CallOutput::from_text("half"));
    let progress = async {
        loop {
            if let Some(ReleasedItem::Live(live)) = scene.released.next().await
                && let LiveKind::CallProgress { content, .. } = &live.kind
            {
                return content[0].as_text().map(str::to_owned);
            }
        }
    };
    let progress = tokio::time::timeout(Duration::from_secs(120), progress).await.unwrap();
    assert_eq!(progress.as_deref(), Some("half"));
    assert_eq!(exchange.end_with(CallOutput::from_text("whole")).await, ResultTiming::InTime);
    let (text, end) = scene.result().await;
    assert!(text.contains("whole"), "{text}");
    assert_eq!(end, call::CallEnd::Done { error: false });
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_update_that_comes_with_the_end_is_reported_before_it() {
    for _ in 0..20 {
        let mut scene = PeerFixture::begin(1, LONG).await;
        let mut link = scene.link().await;
        scene.prompt().await;
        let exchange = sent(&mut link).await;
        exchange.send_update(CallOutput::from_text("half"));
        exchange.end_with(CallOutput::from_text("whole")).await;
        let mut updates = Vec::new();
        let until_the_end = async {
            loop {
                match scene.released.next().await {
                    Some(ReleasedItem::Live(live)) => {
                        if let LiveKind::CallProgress { content, .. } = &live.kind {
                            updates.push(content[0].as_text().map(str::to_owned));
                        }
                    }
                    Some(ReleasedItem::Fact(recorded)) => {
                        if let Event::Call(call::Event::Ended { .. }) = recorded.fact.event {
                            return;
                        }
                    }
                    None => panic!("the owner has ended"),
                }
            }
        };
        tokio::time::timeout(Duration::from_secs(120), until_the_end).await.unwrap();
        assert_eq!(updates, [Some("half".to_owned())]);
        scene.end().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_calls_that_a_peer_had_when_it_went_only_those_that_were_not_sent_go_to_the_next() {
    let mut scene = PeerFixture::begin(2, LONG).await;
    let mut link = scene.link().await;
    scene.prompt().await;
    let exchange = sent(&mut link).await;
    let was_sent = exchange.content().tool_call_id.clone();
    drop(errand(&mut link).await);
    link.close().await;
    drop(exchange);
    let (text, end) = scene.result().await;
    assert!(text.contains("has gone"), "{text}");
    assert_eq!(end, call::CallEnd::Unknown);
    let mut link = scene.link().await;
    let exchange = sent(&mut link).await;
    assert_ne!(exchange.content().tool_call_id, was_sent);
    exchange.end_with(CallOutput::from_text("done")).await;
    assert_eq!(scene.result().await.1, call::CallEnd::Done { error: false });
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_is_stopped_ends_at_once_and_what_comes_later_is_recorded_as_too_late() {
    let mut scene = PeerFixture::begin(1, LONG).await;
    let mut link = scene.link().await;
    scene.prompt().await;
    let exchange = sent(&mut link).await;
    scene.requests.send_command(Command::Run(run::Command::Abort { session: name() })).await.unwrap();
    assert!(matches!(order(&mut link).await, PeerOrder::Stop(call) if call == exchange.call()));
    let (text, end) = scene.result().await;
    assert!(text.contains("was stopped"), "{text}");
    assert_eq!(end, call::CallEnd::Unknown);
    assert_eq!(exchange.end_with(CallOutput::from_text("late")).await, ResultTiming::TooLate);
    let dropped = async {
        loop {
            if let Some(ReleasedItem::Fact(recorded)) = scene.released.next().await
                && matches!(recorded.fact.event, Event::Call(call::Event::ResultDropped { .. }))
            {
                return recorded.fact.content.as_deref().unwrap_or_default().to_owned();
            }
        }
    };
    let dropped = tokio::time::timeout(Duration::from_secs(120), dropped).await.unwrap();
    assert!(dropped.contains("late"), "{dropped}");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_peer_that_says_nothing_is_not_waited_for() {
    let mut scene = PeerFixture::begin(1, Duration::from_millis(1)).await;
    let mut link = scene.link().await;
    scene.prompt().await;
    let exchange = sent(&mut link).await;
    let (text, end) = scene.result().await;
    assert!(text.contains("says nothing"), "{text}");
    assert_eq!(end, call::CallEnd::Unknown);
    assert!(matches!(order(&mut link).await, PeerOrder::Stop(call) if call == exchange.call()));
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_errand_fails_with_its_reason() {
    let mut scene = PeerFixture::begin(1, LONG).await;
    let mut link = scene.link().await;
    scene.prompt().await;
    errand(&mut link).await.refuse("it was taken back");
    let (text, end) = scene.result().await;
    assert!(text.contains("it was taken back"), "{text}");
    assert_eq!(end, call::CallEnd::Failed);
    scene.end().await;
}

async fn next_asked_exchange(link: &mut countersign_runtime::PeerLink) -> PeerExchange {
    match order(link).await {
        PeerOrder::Ask(errand) => errand.mark_sent(words()).expect("it is waited for"),
        PeerOrder::Do(errand) => panic!("{} is sent once more", errand.call),
        PeerOrder::Stop(call) => panic!("{call} is to stop"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_peer_with_a_journal_reports_calls_over_its_next_connection_and_repeats_none() {
    let mut scene = PeerFixture::begin(1, LONG).await;
    let mut link = scene.noting().await;
    scene.prompt().await;
    let exchange = sent(&mut link).await;
    let call = exchange.call();
    link.close().await;
    drop(exchange.let_go());
    let mut link = scene.noting().await;
    // Its line breaks once more before it can answer.
    let exchange = next_asked_exchange(&mut link).await;
    link.close().await;
    drop(exchange);
    let mut link = scene.noting().await;
    let exchange = next_asked_exchange(&mut link).await;
    assert_eq!(exchange.call(), call);
    assert_eq!(exchange.end_with(CallOutput::from_text("was done")).await, ResultTiming::InTime);
    let (text, end) = scene.result().await;
    assert!(text.contains("was done"), "{text}");
    assert_eq!(end, call::CallEnd::Done { error: false });
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_queried_peer_can_report_that_a_call_never_began() {
    for (case, want) in [("sent", call::CallEnd::Unknown), ("asked", call::CallEnd::Failed)] {
        let mut scene = PeerFixture::begin(1, LONG).await;
        let mut link = scene.noting().await;
        scene.prompt().await;
        let mut exchange = sent(&mut link).await;
        if case == "asked" {
            link.close().await;
            drop(exchange);
            link = scene.noting().await;
            exchange = next_asked_exchange(&mut link).await;
        }
        assert_eq!(exchange.never_began("it never came"), ResultTiming::InTime);
        let (text, end) = scene.result().await;
        assert!(text.contains("it never came"), "{text}");
        assert_eq!(end, want, "{case}");
        drop(link);
        scene.end().await;
    }
}
