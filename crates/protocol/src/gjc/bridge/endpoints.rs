//! The enabled endpoints of the bridge and their paths.
//!
//! It must not know where the switches come from. Everything is off by default.

use serde::Serialize;

use crate::gjc::unattended::CommandScope;
use crate::json::wire_values;

/// One group of routes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum BridgeEndpoint {
    /// The stream of frames.
    Events,
    /// Commands.
    Commands,
    /// Taking and leaving control.
    Control,
    /// Answers to dialogs, permissions and gates.
    UiResponses,
    /// Results of calls.
    HostToolResults,
    /// Results of requests at URIs.
    HostUriResults,
}

/// The routes that are on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EnabledEndpoints {
    events: bool,
    commands: bool,
    control: bool,
    ui_responses: bool,
    host_tool_results: bool,
    host_uri_results: bool,
}

/// Path of each route of a session; empty if the route is off.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EndpointPaths {
    events: String,
    commands: String,
    ui_responses: String,
    claim_control: String,
    disconnect_control: String,
    host_tool_results: String,
    host_uri_results: String,
}

/// Reason that the bridge does not start.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BridgeConfigError {
    /// A name of `GJC_BRIDGE_SCOPES` is no scope.
    #[error("GJC_BRIDGE_SCOPES names an unknown scope: {0}")]
    Scope(String),
    /// A name of `GJC_BRIDGE_ENDPOINTS` is no endpoint.
    #[error("GJC_BRIDGE_ENDPOINTS names an unknown endpoint: {0}")]
    Endpoint(String),
}

impl BridgeEndpoint {
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

impl EnabledEndpoints {
    /// Reads `GJC_BRIDGE_ENDPOINTS`: `all`, or names with commas between them.
    ///
    /// # Errors
    /// [`BridgeConfigError::Endpoint`] for a name that is unknown.
    pub fn from_names(text: &str) -> Result<Self, BridgeConfigError> {
        let mut endpoints = Self::default();
        for name in split_names(text) {
            match BridgeEndpoint::ALL.into_iter().find(|endpoint| endpoint.name() == name) {
                Some(endpoint) => *endpoints.flag_mut(endpoint) = true,
                None if name == "all" => {
                    BridgeEndpoint::ALL.into_iter().for_each(|one| *endpoints.flag_mut(one) = true)
                }
                None => return Err(BridgeConfigError::Endpoint(name.to_owned())),
            }
        }
        Ok(endpoints)
    }

    /// Returns true if `endpoint` is on.
    pub fn is_enabled(mut self, endpoint: BridgeEndpoint) -> bool {
        *self.flag_mut(endpoint)
    }

    /// Returns where a session's routes are found.
    pub fn session_paths(self, session_id: &str) -> EndpointPaths {
        let path = |endpoint: BridgeEndpoint, route: &str| match self.is_enabled(endpoint) {
            true => format!("/v1/sessions/{session_id}/{route}"),
            false => String::new(),
        };
        EndpointPaths {
            events: path(BridgeEndpoint::Events, "events"),
            commands: path(BridgeEndpoint::Commands, "commands"),
            ui_responses: path(BridgeEndpoint::UiResponses, "ui-responses"),
            claim_control: path(BridgeEndpoint::Control, "control:claim"),
            disconnect_control: path(BridgeEndpoint::Control, "control:disconnect"),
            host_tool_results: path(BridgeEndpoint::HostToolResults, "host-tool-results"),
            host_uri_results: path(BridgeEndpoint::HostUriResults, "host-uri-results"),
        }
    }

    fn flag_mut(&mut self, endpoint: BridgeEndpoint) -> &mut bool {
        match endpoint {
            BridgeEndpoint::Events => &mut self.events,
            BridgeEndpoint::Commands => &mut self.commands,
            BridgeEndpoint::Control => &mut self.control,
            BridgeEndpoint::UiResponses => &mut self.ui_responses,
            BridgeEndpoint::HostToolResults => &mut self.host_tool_results,
            BridgeEndpoint::HostUriResults => &mut self.host_uri_results,
        }
    }
}

/// Reads `GJC_BRIDGE_SCOPES`: names with commas between them, to which `prompt` is added.
///
/// # Errors
/// [`BridgeConfigError::Scope`] for a name that is unknown.
pub fn read_scopes(text: &str) -> Result<Vec<CommandScope>, BridgeConfigError> {
    let mut scopes = vec![CommandScope::Prompt];
    for name in split_names(text) {
        let scope = CommandScope::from_name(name).ok_or_else(|| BridgeConfigError::Scope(name.to_owned()))?;
        if !scopes.contains(&scope) {
            scopes.push(scope);
        }
    }
    Ok(scopes)
}

fn split_names(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').map(str::trim).filter(|name| !name.is_empty())
}

/// The body of `GET /v1/help`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HelpBody {
    status: &'static str,
    message: &'static str,
    endpoints: EnabledEndpoints,
}

impl EnabledEndpoints {
    /// Returns the body of `GET /v1/help`.
    pub fn help_body(self) -> HelpBody {
        HelpBody {
            status: "experimental_gated",
            message: "Session endpoints are off unless GJC_BRIDGE_ENDPOINTS names them.",
            endpoints: self,
        }
    }
}

wire_values! { HelpBody, EndpointPaths }

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_on_that_was_not_named() {
        for (text, want) in [
            ("", Ok(vec![])),
            (" events , control,", Ok(vec!["events", "control"])),
            ("all", Ok(BridgeEndpoint::ALL.map(BridgeEndpoint::name).to_vec())),
            ("events,evnts", Err(BridgeConfigError::Endpoint("evnts".to_owned()))),
        ] {
            let on = EnabledEndpoints::from_names(text).map(|on| {
                BridgeEndpoint::ALL
                    .into_iter()
                    .filter(|one| on.is_enabled(*one))
                    .map(BridgeEndpoint::name)
                    .collect::<Vec<_>>()
            });
            assert_eq!(on, want, "{text}");
        }
    }

    #[test]
    fn prompt_is_always_a_scope() {
        assert_eq!(read_scopes(""), Ok(vec![CommandScope::Prompt]));
        assert_eq!(read_scopes("message:read, prompt"), Ok(vec![CommandScope::Prompt, CommandScope::MessageRead]));
        assert_eq!(read_scopes("root"), Err(BridgeConfigError::Scope("root".to_owned())));
    }
}
