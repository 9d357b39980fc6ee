//! Client of the MCP conformance suites: connects to the server at its last argument as a gateway does, and uses everything that it
//! offers. Started by `cargo xtask conformance`.
//!
//! The suites name the scenario in `MCP_CONFORMANCE_SCENARIO` and pass its data in `MCP_CONFORMANCE_CONTEXT`.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command-line tool talks on its streams")]

use std::{collections::BTreeMap, env, error::Error, process::ExitCode, time::Duration};

use countersign_mcp_client::{
    CallOutcome, ClientCredentials, McpOptions, McpServers, ProgressSink, ServerDefinition, ServerTool,
    ServerTransport, ToolCaller,
};
use countersign_runtime::tools::exec::ExecLauncher;
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;

type Failure = Box<dyn Error>;

/// Name of the server.
const SERVER: &str = "suite";
/// Time limit of each request, below that of the suites.
const LIMIT: Duration = Duration::from_secs(10);

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let Some(url) = env::args().next_back().filter(|url| url.starts_with("http")) else {
        eprintln!("usage: conformance_client URL");
        return ExitCode::from(2);
    };
    match run(&url).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("conformance client: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run(url: &str) -> Result<(), Failure> {
    // One provider of cryptography, as the binary installs it. A second install does nothing.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let context = match env::var("MCP_CONFORMANCE_CONTEXT") {
        Ok(text) => serde_json::from_str(&text)?,
        Err(_) => Value::Null,
    };
    let transport = ServerTransport::Http {
        url: url.to_owned(),
        headers: BTreeMap::new(),
        auth: find_credentials(url, &context).await?,
    };
    let definition = ServerDefinition {
        call_timeout: LIMIT,
        start_timeout: LIMIT,
        request_timeout: LIMIT,
        ..ServerDefinition::new(SERVER, transport)
    };
    let launcher = ExecLauncher::new(&env::current_exe()?);
    let servers = McpServers::new(vec![definition], McpOptions::new(launcher, env::temp_dir()))?;
    let used = use_everything(&servers, &context).await;
    servers.close().await;
    used
}

/// Lists and uses the tools, resources and prompts of the server.
async fn use_everything(servers: &McpServers, context: &Value) -> Result<(), Failure> {
    let listing = servers.list_tools(SERVER).await?;
    for problem in &listing.problems {
        println!("left out: {}: {}", problem.tool, problem.problem);
    }
    let mut failed = Vec::new();
    for (tool, arguments) in planned_calls(&listing.tools, context) {
        let cancel = CancellationToken::new();
        let outcome =
            servers.call_approved(tool, &ToolCaller::default(), arguments, cancel, ProgressSink::default()).await;
        println!("{}: {outcome:?}", tool.name);
        if !matches!(outcome, CallOutcome::Done { .. }) {
            failed.push(tool.name.as_str());
        }
    }
    for resource in servers.list_resources(SERVER).await?.entries {
        println!("{}: {:?}", resource.uri, servers.read_resource(SERVER, &resource.uri).await?);
    }
    for prompt in servers.list_prompts(SERVER).await?.entries {
        let required = prompt.arguments.iter().filter(|argument| argument.required);
        let arguments = required.map(|argument| (argument.name.clone(), json!("x"))).collect();
        println!("{}: {:?}", prompt.name, servers.get_prompt(SERVER, &prompt.name, arguments).await?);
    }
    if failed.is_empty() { Ok(()) } else { Err(format!("calls without a result: {}", failed.join(", ")).into()) }
}

/// Returns the calls that the scenario names, else one of each tool.
fn planned_calls<'a>(tools: &'a [ServerTool], context: &Value) -> Vec<(&'a ServerTool, Map<String, Value>)> {
    let Some(named) = context["toolCalls"].as_array() else {
        let mut planned: Vec<_> = tools.iter().map(|tool| (tool, minimal_arguments(&tool.schema))).collect();
        for (_, arguments) in &mut planned {
            // A suite compares the schema that arrived with the one that it sent.
            if let (Some(schema), Some(first)) = (arguments.get_mut("schema"), tools.first()) {
                *schema = first.schema.clone();
            }
        }
        return planned;
    };
    let planned = named.iter().filter_map(|call| {
        let tool = tools.iter().find(|tool| call["name"] == tool.name.as_str())?;
        Some((tool, call["arguments"].as_object().cloned().unwrap_or_default()))
    });
    planned.collect()
}

/// Returns a value for each required argument.
fn minimal_arguments(schema: &Value) -> Map<String, Value> {
    let required = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let value_for = |name: &str| match schema["properties"][name]["type"].as_str() {
        Some("number" | "integer") => json!(2),
        Some("boolean") => json!(true),
        Some("array") => json!([]),
        Some("object") => json!({}),
        _ => json!("x"),
    };
    required.map(|name| (name.to_owned(), value_for(name))).collect()
}

/// Returns the credentials of a scenario that has some. A gateway's operator configures the token endpoint, which this finds out as
/// the operator would.
async fn find_credentials(url: &str, context: &Value) -> Result<Option<ClientCredentials>, Failure> {
    let (Some(id), Some(secret)) = (context["client_id"].as_str(), context["client_secret"].as_str()) else {
        return Ok(None);
    };
    let refused = reqwest::Client::new().post(url).send().await?;
    let challenge = refused.headers().get("www-authenticate").and_then(|value| value.to_str().ok()).unwrap_or_default();
    let metadata = challenge.split_once("resource_metadata=\"").and_then(|(_, rest)| rest.split('"').next());
    let resource = fetch_json(metadata.ok_or("the server names no metadata")?).await?;
    let issuer = resource["authorization_servers"][0].as_str().ok_or("no authorization server")?;
    let issuer = reqwest::Url::parse(issuer)?;
    let server = fetch_json(issuer.join("/.well-known/oauth-authorization-server")?.as_str()).await?;
    let token_url = server["token_endpoint"].as_str().ok_or("no token endpoint")?;
    Ok(Some(ClientCredentials {
        token_url: token_url.to_owned(),
        client_id: id.to_owned(),
        client_secret: secret.into(),
        scope: None,
    }))
}

async fn fetch_json(url: &str) -> Result<Value, Failure> {
    Ok(reqwest::get(url).await?.json().await?)
}
