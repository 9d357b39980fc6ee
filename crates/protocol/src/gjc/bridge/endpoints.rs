//! What of the bridge is switched on, and where it is found.
//!
//! It must not know where the switches come from. Everything is off by default.

use serde::Serialize;

use crate::gjc::unattended::Scope;
use crate::json::Wire;

/// One group of routes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Endpoint {
    /// The stream of frames.
    Events,
    /// Commands.
    Commands,
    /// Taking and leaving control.
    Control,
    /// Answers to dialogs, permissions and gates.
    UiResponses,
    /// What is said about calls.
    HostToolResults,
    /// What is said about requests at URIs.
    HostUriResults,
}

/// The routes that are on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Endpoints {
    events: bool,
    commands: bool,
    control: bool,
    ui_responses: bool,
    host_tool_results: bool,
    host_uri_results: bool,
}

/// Where each route of a session is found; empty if it is off.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Paths {
    events: String,
    commands: String,
    ui_responses: String,
    claim_control: String,
    disconnect_control: String,
    host_tool_results: String,
    host_uri_results: String,
}

/// Why the bridge does not start.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StartError {
    /// A name of `GJC_BRIDGE_SCOPES` is no scope.
    #[error("GJC_BRIDGE_SCOPES names an unknown scope: {0}")]
    Scope(String),
    /// A name of `GJC_BRIDGE_ENDPOINTS` is no endpoint.
    #[error("GJC_BRIDGE_ENDPOINTS names an unknown endpoint: {0}")]
    Endpoint(String),
}

impl Endpoint {
    const ALL: [Self; 6] =
        [Self::Events, Self::Commands, Self::Control, Self::UiResponses, Self::HostToolResults, Self::HostUriResults];

    /// Returns the name on the wire.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Events => "events",
            Self::Commands => "commands",
            Self::Control => "control",
            Self::UiResponses => "uiResponses",
            Self::HostToolResults => "hostToolResults",
            Self::HostUriResults => "hostUriResults",
        }
    }
}

impl Endpoints {
    /// Reads `GJC_BRIDGE_ENDPOINTS`: `all`, or names with commas between them.
    ///
    /// # Errors
    /// [`StartError::Endpoint`] for a name that is unknown.
    pub fn read(text: &str) -> Result<Self, StartError> {
        let mut endpoints = Self::default();
        for name in names(text) {
            match Endpoint::ALL.into_iter().find(|endpoint| endpoint.name() == name) {
                Some(endpoint) => *endpoints.switch(endpoint) = true,
                None if name == "all" => Endpoint::ALL.into_iter().for_each(|one| *endpoints.switch(one) = true),
                None => return Err(StartError::Endpoint(name.to_owned())),
            }
        }
        Ok(endpoints)
    }

    /// True if `endpoint` is on.
    pub fn has(mut self, endpoint: Endpoint) -> bool {
        *self.switch(endpoint)
    }

    /// Returns where a session's routes are found.
    pub fn paths(self, session_id: &str) -> Paths {
        let path = |endpoint: Endpoint, route: &str| match self.has(endpoint) {
            true => format!("/v1/sessions/{session_id}/{route}"),
            false => String::new(),
        };
        Paths {
            events: path(Endpoint::Events, "events"),
            commands: path(Endpoint::Commands, "commands"),
            ui_responses: path(Endpoint::UiResponses, "ui-responses"),
            claim_control: path(Endpoint::Control, "control:claim"),
            disconnect_control: path(Endpoint::Control, "control:disconnect"),
            host_tool_results: path(Endpoint::HostToolResults, "host-tool-results"),
            host_uri_results: path(Endpoint::HostUriResults, "host-uri-results"),
        }
    }

    fn switch(&mut self, endpoint: Endpoint) -> &mut bool {
        match endpoint {
            Endpoint::Events => &mut self.events,
            Endpoint::Commands => &mut self.commands,
            Endpoint::Control => &mut self.control,
            Endpoint::UiResponses => &mut self.ui_responses,
            Endpoint::HostToolResults => &mut self.host_tool_results,
            Endpoint::HostUriResults => &mut self.host_uri_results,
        }
    }
}

/// Reads `GJC_BRIDGE_SCOPES`: names with commas between them, to which `prompt` is added.
///
/// # Errors
/// [`StartError::Scope`] for a name that is unknown.
pub fn scopes(text: &str) -> Result<Vec<Scope>, StartError> {
    let mut scopes = vec![Scope::Prompt];
    for name in names(text) {
        let scope = Scope::read(name).ok_or_else(|| StartError::Scope(name.to_owned()))?;
        if !scopes.contains(&scope) {
            scopes.push(scope);
        }
    }
    Ok(scopes)
}

fn names(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').map(str::trim).filter(|name| !name.is_empty())
}

/// The body of `GET /v1/help`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Help {
    status: &'static str,
    message: &'static str,
    endpoints: Endpoints,
}

impl Endpoints {
    /// Returns the body of `GET /v1/help`.
    pub fn help(self) -> Help {
        Help {
            status: "experimental_gated",
            message: "Session endpoints are off unless GJC_BRIDGE_ENDPOINTS names them.",
            endpoints: self,
        }
    }
}

impl Wire for Help {}
impl Wire for Paths {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_on_that_was_not_named() {
        for (text, want) in [
            ("", Ok(vec![])),
            (" events , control,", Ok(vec!["events", "control"])),
            ("all", Ok(Endpoint::ALL.map(Endpoint::name).to_vec())),
            ("events,evnts", Err(StartError::Endpoint("evnts".to_owned()))),
        ] {
            let on = Endpoints::read(text)
                .map(|on| Endpoint::ALL.into_iter().filter(|one| on.has(*one)).map(Endpoint::name).collect::<Vec<_>>());
            assert_eq!(on, want, "{text}");
        }
    }

    #[test]
    fn prompt_is_always_a_scope() {
        assert_eq!(scopes(""), Ok(vec![Scope::Prompt]));
        assert_eq!(scopes("message:read, prompt"), Ok(vec![Scope::Prompt, Scope::MessageRead]));
        assert_eq!(scopes("root"), Err(StartError::Scope("root".to_owned())));
    }
}
