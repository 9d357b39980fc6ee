use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures_util::future::BoxFuture;
use serde_json::{Map, Value, json};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::{call, done, in_doubt};
use crate::{
    connection_monitor::ProgressSink,
    options::McpLimits,
    questions::{QuestionAnswer, QuestionAsker, ServerQuestion},
    scripted_server::{ScriptedServer, Step, answer, method, text_result, tool},
    servers::McpServers,
    tool_call::CallOutcome,
};

/// A person who gives one answer after a time, or whose question ends unanswered.
#[derive(Debug)]
struct Person {
    answer: QuestionAnswer,
    takes: Duration,
    asked: AtomicUsize,
    withdrawn: AtomicUsize,
    begun: Notify,
}

impl Person {
    fn new(answer: &str, takes: Duration) -> Arc<Self> {
        let answer = QuestionAnswer::Answered(vec![answer.to_owned()]);
        Arc::new(Self { answer, takes, asked: 0.into(), withdrawn: 0.into(), begun: Notify::new() })
    }

    /// A person who declines each question.
    fn declining() -> Arc<Self> {
        let (takes, begun) = (Duration::ZERO, Notify::new());
        Arc::new(Self { answer: QuestionAnswer::Declined, takes, asked: 0.into(), withdrawn: 0.into(), begun })
    }

    fn counts(&self) -> (usize, usize) {
        (self.asked.load(Ordering::SeqCst), self.withdrawn.load(Ordering::SeqCst))
    }
}

impl QuestionAsker for Person {
    fn is_ready(&self) -> bool {
        true
    }

    fn ask(&self, _: ServerQuestion, cancel: CancellationToken) -> BoxFuture<'_, QuestionAnswer> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        self.begun.notify_one();
        Box::pin(async move {
            tokio::select! {
                () = tokio::time::sleep(self.takes) => self.answer.clone(),
                () = cancel.cancelled() => {
                    self.withdrawn.fetch_add(1, Ordering::SeqCst);
                    QuestionAnswer::Unanswered { reason: "the question was withdrawn".to_owned() }
                }
            }
        })
    }
}

fn people(server: &ScriptedServer, person: &Arc<Person>) -> McpServers {
    server.servers_for(McpLimits::default(), Some(Arc::clone(person) as _))
}

fn form() -> Value {
    let schema = json!({"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]});
    json!({"mode": "form", "message": "Who?", "requestedSchema": schema})
}

/// A server that asks during a call, and answers the call with the answer.
fn asking() -> ScriptedServer {
    let open = Arc::new(Mutex::new(Value::Null));
    ScriptedServer::older(json!([tool("open")]), move |message| match method(message) {
        "tools/call" => {
            *open.lock().unwrap() = message.clone();
            vec![Step::Send(json!({"jsonrpc": "2.0", "id": "q", "method": "elicitation/create", "params": form()}))]
        }
        "answer" => vec![answer(&open.lock().unwrap(), text_result(&message["result"].to_string()))],
        _ => Vec::new(),
    })
}

#[tokio::test(start_paused = true)]
async fn a_call_outlives_its_limit_while_a_person_thinks() {
    let (server, person) = (asking(), Person::new("Ann", Duration::from_secs(3000)));
    let outcome = call(&people(&server, &person)).await;
    assert_eq!(outcome, done(r#"{"action":"accept","content":{"name":"Ann"}}"#));
    let declared = &server.seen_requests("initialize")[0]["params"]["capabilities"]["elicitation"];
    assert_eq!(*declared, json!({"form": {"schemaValidation": true}, "url": {}}));
}

#[tokio::test]
async fn a_server_is_told_that_it_cannot_ask_where_nobody_answers() {
    let server = asking();
    assert_eq!(call(&server.servers()).await, done(r#"{"action":"cancel"}"#));
    assert_eq!(server.seen_requests("initialize")[0]["params"]["capabilities"], json!({}));
}

#[tokio::test]
async fn a_question_is_withdrawn_with_its_call() {
    let (server, person) = (asking(), Person::new("Ann", Duration::from_secs(3000)));
    let (servers, cancel) = (people(&server, &person), CancellationToken::new());
    let calling = servers.call_tool("box", "open", Map::new(), cancel.clone(), ProgressSink::default());
    let stopping = async {
        person.begun.notified().await;
        cancel.cancel();
    };
    let (outcome, ()) = tokio::join!(calling, stopping);
    assert_eq!(outcome, in_doubt("the call was cancelled"));
    while person.counts() != (1, 1) {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_server_that_asks_without_a_call_gets_an_error() {
    let person = Person::new("Ann", Duration::ZERO);
    let server = ScriptedServer::older(json!([tool("open")]), |message| match method(message) {
        "notifications/initialized" => {
            vec![Step::Send(json!({"jsonrpc": "2.0", "id": "q", "method": "elicitation/create", "params": form()}))]
        }
        "tools/call" => vec![answer(message, text_result("opened"))],
        _ => Vec::new(),
    });
    let servers = people(&server, &person);
    servers.list_tools("box").await.unwrap();
    while server.seen_answers().is_empty() {
        tokio::task::yield_now().await;
    }
    assert_eq!(call(&servers).await, done("opened"));
    assert_eq!(server.seen_answers()[0]["error"]["message"], "no call of a tool is open");
    assert_eq!(person.counts(), (0, 0));
}

#[tokio::test]
async fn a_malformed_question_is_refused_with_its_member_and_no_person_is_asked() {
    let schema = json!({"type": "object", "properties": {"name": {"type": "string"}}});
    for (params, want) in [
        (
            json!({"mode": "foo", "message": "m", "requestedSchema": schema}),
            "mode is \"foo\", expected \"form\" or \"url\"",
        ),
        (json!({"message": "m"}), "requestedSchema is missing"),
        (json!({"message": 5, "requestedSchema": schema}), "message is 5, expected a text"),
    ] {
        let person = Person::new("Ann", Duration::ZERO);
        let open = Arc::new(Mutex::new(Value::Null));
        let server = ScriptedServer::older(json!([tool("open")]), move |message| match method(message) {
            "tools/call" => {
                *open.lock().unwrap() = message.clone();
                vec![Step::Send(json!({"jsonrpc": "2.0", "id": "q", "method": "elicitation/create", "params": params}))]
            }
            "answer" => vec![answer(&open.lock().unwrap(), text_result("asked"))],
            _ => Vec::new(),
        });
        assert_eq!(call(&people(&server, &person)).await, done("asked"));
        let error = json!({"code": -32602, "message": want});
        assert_eq!((&server.seen_answers()[0]["error"], person.counts()), (&error, (0, 0)), "{want}");
    }
}

#[tokio::test]
async fn input_that_is_wanted_in_an_unknown_mode_ends_the_call() {
    let person = Person::new("Ann", Duration::ZERO);
    let mut params = form();
    params["mode"] = json!("foo");
    let server = wanting(1, json!({"x": {"method": "elicitation/create", "params": params}}));
    let why = "the server asks in a form that is not accepted: mode is \"foo\", expected \"form\" or \"url\"";
    let CallOutcome::Failed { text } = call(&people(&server, &person)).await else { panic!("not failed") };
    assert_eq!(text, format!("MCP server box: open failed: {why} (code -32603)"));
    assert_eq!(person.counts(), (0, 0));
}

/// A server of 2026 that wants input in this many rounds. Its state counts them.
fn wanting(rounds: usize, inputs: Value) -> ScriptedServer {
    ScriptedServer::newer(json!([tool("open")]), move |message| {
        if method(message) != "tools/call" {
            return Vec::new();
        }
        let params = &message["params"];
        let round = params["requestState"].as_str().map_or(0, |state| state.trim_start_matches("s ").parse().unwrap());
        if round < rounds {
            let state = format!("s {}", round + 1);
            let wanted = json!({"resultType": "input_required", "inputRequests": inputs, "requestState": state});
            return vec![answer(message, wanted)];
        }
        let mut result = text_result(&params["inputResponses"].to_string());
        result["resultType"] = "complete".into();
        vec![answer(message, result)]
    })
}

fn elicitation() -> Value {
    json!({"who": {"method": "elicitation/create", "params": form()}})
}

#[tokio::test(start_paused = true)]
async fn input_is_given_in_rounds_with_the_state_of_the_server() {
    let (server, person) = (wanting(2, elicitation()), Person::new("Ann", Duration::from_secs(3000)));
    let outcome = call(&people(&server, &person)).await;
    assert_eq!(outcome, done(r#"{"who":{"action":"accept","content":{"name":"Ann"}}}"#));
    let calls = server.seen_requests("tools/call");
    let states: Vec<&Value> = calls.iter().map(|call| &call["params"]["requestState"]).collect();
    assert_eq!(states, [&Value::Null, &json!("s 1"), &json!("s 2")]);
    assert_eq!(person.counts(), (2, 0));
    let declared = &calls[0]["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"]["elicitation"];
    assert_eq!(*declared, json!({"form": {"schemaValidation": true}, "url": {}}));
}

#[tokio::test]
async fn the_outcome_of_a_call_whose_server_does_not_get_its_input_is_unknown() {
    let sampling = json!({"m": {"method": "sampling/createMessage", "params": {"messages": [], "maxTokens": 1}}});
    let roots = json!({"r": {"method": "roots/list"}});
    let bad =
        json!({"b": {"method": "elicitation/create", "params": {"mode": "url", "message": "x", "url": "file:///x"}}});
    for (rounds, inputs, asked, why) in [
        (9, elicitation(), 8, "the server wanted input more than 8 times"),
        (1, sampling, 0, "sampling is refused: this client gives servers no access to its models"),
        (1, roots, 0, "the server wants input that this client does not give"),
        (1, bad, 0, "the server asks in a form that is not accepted: url is not an http or https address"),
    ] {
        let (server, person) = (wanting(rounds, inputs), Person::new("Ann", Duration::ZERO));
        let want = in_doubt(&format!("the call was not finished: {why}"));
        assert_eq!(call(&people(&server, &person)).await, want);
        assert_eq!(person.counts(), (asked, 0), "{why}");
    }
    let outcome = call(&wanting(1, elicitation()).servers()).await;
    let why = "the server wants input from a person, and no approver can be asked here";
    assert_eq!(outcome, in_doubt(&format!("the call was not finished: {why}")));
}

#[tokio::test]
async fn a_call_that_is_stopped_while_its_server_waits_for_input_is_in_doubt() {
    let (server, person) = (wanting(1, elicitation()), Person::new("Ann", Duration::from_secs(3000)));
    let (servers, cancel) = (people(&server, &person), CancellationToken::new());
    let calling = servers.call_tool("box", "open", Map::new(), cancel.clone(), ProgressSink::default());
    let stopping = async {
        person.begun.notified().await;
        cancel.cancel();
    };
    let (outcome, ()) = tokio::join!(calling, stopping);
    assert_eq!(outcome, in_doubt("the call was not finished: the call was cancelled"));
    assert_eq!((person.counts(), server.seen_requests("tools/call").len()), ((1, 1), 1));
}

#[tokio::test]
async fn a_call_whose_input_a_person_declined_ends_as_the_server_says() {
    let (server, person) = (wanting(1, elicitation()), Person::declining());
    assert_eq!(call(&people(&server, &person)).await, done(r#"{"who":{"action":"decline"}}"#));
}
