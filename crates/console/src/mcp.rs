//! Pages of MCP servers: their list, one server with its tools, and the actions of operators.
//!
//! They approve nothing: a person answers the gate of a server, whose card they show.

mod actions;
mod server_page;
mod server_state;

use std::sync::Arc;

use axum::{Extension, extract::State, response::Response};
use countersign_http::web::HttpCaller;
use maud::{Markup, html};

use super::{
    ConsoleState,
    labels::{escape_line, escape_rest_lines, time_ago, url_path},
    page::{ConsoleTab, PageError, render_page, render_table},
};

use self::server_state::{ServerHistory, ServerState};
pub(super) use self::{actions::act_on_server, server_page::show_server};

/// Path of the list. The page of a server has its name after it.
const PATH: &str = "/console/mcp";

/// Example of a configuration, for an empty list.
const EXAMPLE: &str = "\
mcp:
  servers:
    files:
      command: npx
      args: [\"-y\", \"@modelcontextprotocol/server-filesystem\", \".\"]
      cwd: share";

pub(super) async fn list_servers(
    State(console): State<Arc<ConsoleState>>,
    Extension(caller): Extension<HttpCaller>,
) -> Result<Response, PageError> {
    let ctx = console.page_context(caller).await?;
    let listed = Arc::clone(&console.context.mcp_servers).list_servers().await;
    let past = console.history.upto_now(&console.context.handle).await.map_err(PageError::unreadable_record)?;
    let table = match &listed {
        Err(problem) => html! { p.problem role="alert" { (escape_line(problem)) ". No tool of an MCP server is offered." } },
        Ok(servers) if servers.is_empty() => no_servers(),
        Ok(servers) => render_table(
            &["Server", "State", "Tools", "Last call"],
            servers.iter().map(|server| {
                let history = ServerHistory::read(&past, server);
                let state = ServerState::new(server, &history);
                html! {
                    td {
                        a href=(server_path(&server.name)) { (escape_line(&server.name)) }
                        p.note { (server.transport) ": " code { (escape_line(&server.address)) } }
                    }
                    td { (state.render_badge()) @if let Some(note) = state.note(server) { p.note { (escape_rest_lines(&note)) } } }
                    td.number data-label="Tools" { (server.tools.len()) }
                    td data-label="Last call" { @match history.calls.first() { Some(call) => (time_ago(call.at, ctx.now)), None => "none" } }
                }
            }),
        ),
    };
    drop(past);
    let body = html! {
        h1 { "MCP servers" }
        (agents_tabs(PATH))
        p.lead { "Servers that give agents more tools. Rules and approvers decide about each call." }
        (table)
    };
    Ok(render_page(&ctx, ConsoleTab::Agents, "MCP servers", &body))
}

/// Renders what to do as long as there is no server.
fn no_servers() -> Markup {
    html! {
        div.empty {
            p { "No MCP servers are configured. Add one to " code { "config.yaml" } ", for example the filesystem server of the MCP project:" }
            pre.copy { "\n" (EXAMPLE) }
            p { "Then restart the gateway, and approve the server here or with " code { "countersign mcp-servers approve files" } "." }
            p { "The guide " code { "docs/start/mcp.md" } " has all steps." }
        }
    }
}

/// Renders links between the parts of the page of agents.
pub(super) fn agents_tabs(at: &str) -> Markup {
    html! {
        nav.sub aria-label="Agents" {
            @for (href, name) in [("/console/agents", "Agents and nodes"), (PATH, "MCP servers")] {
                a href=(href) aria-current=[(href == at).then_some("page")] { (name) }
            }
        }
    }
}

fn server_path(name: &str) -> String {
    url_path(&format!("{PATH}/"), name)
}
