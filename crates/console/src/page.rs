//! Shared parts of all pages: the frame around them, and errors.

use std::error::Error;

use axum::{
    http::StatusCode,
    response::{IntoResponse, Response},
};
use countersign_http::{read_failures::log_read_failure, reply, web::AuthMethod};
use countersign_runtime::store::LogReadError;
use maud::{DOCTYPE, Markup, html};

use super::{
    PageContext,
    assets::{SCRIPT_AT, STYLE_AT},
};

/// Icon of the tab, so that browsers request none.
const ICON: &str = "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'%3E%3Crect width='16' height='16' rx='4' fill='%230f5c6e'/%3E%3Cpath d='M4 8.5l2.8 2.8L12 5.5' fill='none' stroke='white' stroke-width='2'/%3E%3C/svg%3E";

/// Part of the console that a page belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConsoleTab {
    Inbox,
    Sessions,
    Record,
    Policy,
    Agents,
}

impl ConsoleTab {
    const ALL: [(Self, &'static str, &'static str); 5] = [
        (Self::Inbox, "/console/", "Inbox"),
        (Self::Sessions, "/console/sessions", "Sessions"),
        (Self::Record, "/console/record", "Record"),
        (Self::Policy, "/console/policy", "Policy"),
        (Self::Agents, "/console/agents", "Agents"),
    ];
}

/// Renders a page.
pub(super) fn render_page(ctx: &PageContext, tab: ConsoleTab, title: &str, body: &Markup) -> Response {
    render_page_with(StatusCode::OK, ctx, tab, title, None, body)
}

/// Renders a page with its status, of `session` if it follows one.
pub(super) fn render_page_with(
    status: StatusCode,
    ctx: &PageContext,
    tab: ConsoleTab,
    title: &str,
    session: Option<&str>,
    body: &Markup,
) -> Response {
    let csrf = ctx.caller.csrf_token();
    let is_known = matches!(ctx.caller.via, AuthMethod::Cookie { .. });
    let page = html! {
        (page_head(title))
        body data-after=(ctx.head) data-now=(ctx.now.0) data-csrf=(csrf) data-waiting=(ctx.waiting) data-session=[session] {
            a.skip href="#main" { "Skip to content" }
            header.top {
                a.brand href="/console/" { span.mark aria-hidden="true" { "✓" } "Countersign" }
                nav aria-label="Console" {
                    @for (at, href, name) in ConsoleTab::ALL {
                        a href=(href) aria-current=[(at == tab).then_some("page")] {
                            (name)
                            @if at == ConsoleTab::Inbox {
                                " " span.count #count hidden[ctx.waiting == 0] { (ctx.waiting) span.unseen { " pending" } }
                            }
                        }
                    }
                }
                div.tools {
                    span.link #link hidden { "offline" }
                    button.quiet #notify type="button" hidden { "Notify me" }
                    button.quiet #theme type="button" hidden aria-label="Colour theme: light, dark or system" { "◐" }
                    @if is_known {
                        form method="post" action="/logout" {
                            input type="hidden" name="csrf" value=(csrf);
                            button.quiet type="submit" { "Log out" }
                        }
                    }
                }
            }
            p.unseen #said role="status" aria-live="polite" {}
            main #main tabindex="-1" { (body) }
            (help_dialog())
        }
    };
    reply::html(status, format!("{}{}</html>", DOCTYPE.into_string() + "<html lang=\"en\">", page.into_string()))
}

fn page_head(title: &str) -> Markup {
    html! {
        head {
            meta charset="utf-8";
            meta name="viewport" content="width=device-width, initial-scale=1";
            meta name="color-scheme" content="light dark";
            title { (title) " · Countersign" }
            link rel="icon" href=(ICON);
            link rel="stylesheet" href=(*STYLE_AT);
            script src=(*SCRIPT_AT) defer {}
        }
    }
}

fn help_dialog() -> Markup {
    const KEYS: [(&[&str], &str); 10] = [
        (&["j", "k"], "next card, previous card"),
        (&["a"], "allow once"),
        (&["s"], "allow for the session"),
        (&["l"], "always: open a new rule that allows calls like this one"),
        (&["d"], "deny: write a reason, then Enter"),
        (&["x"], "select the card, to decide several at once"),
        (&["Enter"], "open the card"),
        (&["Esc"], "leave a field and return to its card"),
        (&["g", "i"], "inbox; g s, g r, g p, g a, g m: sessions, record, policy, agents, MCP servers"),
        (&["?"], "show this list"),
    ];
    html! {
        dialog #help aria-labelledby="help-title" {
            h2 #help-title { "Keyboard shortcuts" }
            dl.keys {
                @for (keys, what) in KEYS {
                    dt { @for key in keys { kbd { (key) } " " } }
                    dd { (what) }
                }
            }
            form method="dialog" { button type="submit" { "Close" } }
        }
    }
}

/// Error page.
#[derive(Debug)]
pub(super) struct PageError {
    status: StatusCode,
    text: String,
}

impl PageError {
    pub(super) fn new(status: StatusCode, text: impl Into<String>) -> Self {
        Self { status, text: text.into() }
    }

    pub(super) fn not_found(what: impl std::fmt::Display) -> Self {
        Self::new(StatusCode::NOT_FOUND, format!("There is no {what}."))
    }

    pub(super) fn gateway_closing() -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "The gateway is closing.")
    }

    /// Returns the error for a record that could not be read.
    pub(super) fn unreadable_record(error: impl Error + 'static) -> Self {
        log_read_failure(&error, "refused a page of the console");
        let error: &(dyn Error + 'static) = &error;
        if error.downcast_ref::<LogReadError>().is_some_and(LogReadError::is_of_silent_database) {
            return Self::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "The record cannot be read: its database does not answer. Try again later.",
            );
        }
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, format!("The record cannot be read: {error}"))
    }
}

impl IntoResponse for PageError {
    fn into_response(self) -> Response {
        let text = super::labels::escape_lines(&self.text);
        let page = html! {
            (page_head("Error"))
            body {
                header.top { a.brand href="/console/" { span.mark aria-hidden="true" { "✓" } "Countersign" } }
                main #main {
                    h1 { (self.status.canonical_reason().unwrap_or("Error")) }
                    p.problem role="alert" { (text) }
                    p { a href="/console/" { "Back to the inbox" } }
                }
            }
        };
        let page = format!("{}<html lang=\"en\">{}</html>", DOCTYPE.into_string(), page.into_string());
        reply::html(self.status, page)
    }
}

/// Writes a table with these heads, which scrolls by itself if it is wide.
pub(super) fn render_table(heads: &[&str], rows: impl Iterator<Item = Markup>) -> Markup {
    html! {
        div.scroll tabindex="0" role="region" aria-label=(heads[0]) {
            table.plain { thead { tr { @for head in heads { th scope="col" { (head) } } } } tbody { @for row in rows { tr { (row) } } } }
        }
    }
}
