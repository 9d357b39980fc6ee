//! Parameters of what an editor requests, and its replies to what the agent requests.

use serde_json::Value;

use super::{
    content::ContentBlock,
    param_reader::{ParamFault, ParamField},
};

/// Parameters of `initialize`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InitializeParams {
    /// The latest version that the editor speaks.
    pub version: u64,
    /// What it can show.
    pub features: ClientFeatures,
    /// Its name, with its version.
    pub client: Option<String>,
}

/// What an editor can show, as far as it matters here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClientFeatures {
    /// Forms with questions.
    pub forms: bool,
    /// Notices that are no part of the conversation.
    pub notices: bool,
}

impl InitializeParams {
    /// Reads the parameters. A version may be written as a text.
    ///
    /// # Errors
    /// [`ParamFault`].
    pub fn read(params: &Value) -> Result<Self, ParamFault> {
        let root = ParamField::root(params);
        root.object()?;
        let version = root.at("protocolVersion");
        let number = match version.value() {
            Some(Value::Number(number)) => number.as_u64(),
            Some(Value::String(text)) => text.trim().parse().ok(),
            _ => None,
        };
        let number = number.ok_or_else(|| version.expected("a whole number, such as 1"))?;
        // An editor that declares something in another form does not have it.
        let capabilities = root.at("clientCapabilities");
        let has = |path: &[&str]| {
            let end = path.iter().fold(capabilities.clone(), |field, name| field.at(name));
            end.value().is_some_and(Value::is_object)
        };
        let info = root.at("clientInfo");
        let text = |name: &str| info.at(name).value().and_then(Value::as_str).filter(|text| !text.is_empty());
        let name = text("title").or_else(|| text("name"));
        Ok(Self {
            version: number,
            features: ClientFeatures { forms: has(&["elicitation", "form"]), notices: has(&["session", "notices"]) },
            client: name.map(|name| match text("version") {
                Some(version) => format!("{name} {version}"),
                None => name.to_owned(),
            }),
        })
    }
}

/// Parameters of `session/new`, and with a session of `session/load` and `session/resume`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenSessionParams {
    /// The session; absent for a new one.
    pub session: Option<String>,
    /// The working folder, an absolute path.
    pub cwd: String,
    /// MCP servers that the editor wants started.
    pub mcp_servers: Vec<McpServerParam>,
}

/// An MCP server that an editor wants started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct McpServerParam {
    /// Its name.
    pub name: String,
    /// Its command line, or its address.
    pub target: String,
}

impl OpenSessionParams {
    /// Reads the parameters of `session/new`.
    ///
    /// # Errors
    /// [`ParamFault`].
    pub fn read_new(params: &Value) -> Result<Self, ParamFault> {
        Self::read(params, None)
    }

    /// Reads the parameters of `session/load` and `session/resume`.
    ///
    /// # Errors
    /// [`ParamFault`].
    pub fn read_existing(params: &Value) -> Result<Self, ParamFault> {
        let session = ParamField::root(params).at("sessionId").filled_text()?.to_owned();
        Self::read(params, Some(session))
    }

    fn read(params: &Value, session: Option<String>) -> Result<Self, ParamFault> {
        let root = ParamField::root(params);
        root.object()?;
        let cwd = root.at("cwd");
        let path = cwd.text()?;
        if !path.starts_with('/') {
            return Err(cwd.expected("an absolute path"));
        }
        // Neither is declared, and what an agent ignores it must not seem to have done.
        let folders = root.at("additionalDirectories");
        if !folders.items()?.is_empty() {
            return Err(folders.expected("no further folders: a session has one"));
        }
        let prompt = root.at("systemPrompt");
        if !prompt.is_absent() {
            return Err(prompt.expected("no system prompt: the operator's files have it"));
        }
        let servers = root.at("mcpServers").items()?;
        let mcp_servers = servers.iter().map(McpServerParam::read).collect::<Result<_, _>>()?;
        Ok(Self { session, cwd: path.to_owned(), mcp_servers })
    }
}

impl McpServerParam {
    fn read(field: &ParamField<'_>) -> Result<Self, ParamFault> {
        field.object()?;
        let name = field.at("name").filled_text()?.to_owned();
        let url = field.at("url");
        if !url.is_absent() {
            return Ok(Self { name, target: url.text()?.to_owned() });
        }
        let mut words = vec![field.at("command").filled_text()?];
        let arguments = field.at("args").items()?;
        for argument in &arguments {
            words.push(argument.text()?);
        }
        Ok(Self { name, target: words.join(" ") })
    }
}

/// Parameters that name a session alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionParams {
    /// The session.
    pub session: String,
}

impl SessionParams {
    /// Reads the parameters.
    ///
    /// # Errors
    /// [`ParamFault`].
    pub fn read(params: &Value) -> Result<Self, ParamFault> {
        Ok(Self { session: ParamField::root(params).at("sessionId").filled_text()?.to_owned() })
    }
}

/// Parameters of `session/list`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListSessionsParams {
    /// The folder in which listed sessions work; absent for all.
    pub cwd: Option<String>,
    /// The end of the page before.
    pub cursor: Option<String>,
}

impl ListSessionsParams {
    /// Reads the parameters.
    ///
    /// # Errors
    /// [`ParamFault`].
    pub fn read(params: &Value) -> Result<Self, ParamFault> {
        let root = ParamField::root(params);
        let text = |name: &str| root.at(name).optional_text().map(|text| text.map(str::to_owned));
        Ok(Self { cwd: text("cwd")?, cursor: text("cursor")? })
    }
}

/// Parameters of `session/prompt`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PromptParams {
    /// The session.
    pub session: String,
    /// The blocks of the message, at least one.
    pub prompt: Vec<ContentBlock>,
}

impl PromptParams {
    /// Reads the parameters.
    ///
    /// # Errors
    /// [`ParamFault`].
    pub fn read(params: &Value) -> Result<Self, ParamFault> {
        let root = ParamField::root(params);
        let session = root.at("sessionId").filled_text()?.to_owned();
        let prompt = root.at("prompt");
        let blocks = prompt.items()?;
        if blocks.is_empty() {
            return Err(prompt.expected("a list with at least one block of content"));
        }
        let blocks = blocks.iter().map(ContentBlock::read).collect::<Result<_, _>>()?;
        Ok(Self { session, prompt: blocks })
    }
}

/// Parameters of `session/set_mode`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetModeParams {
    /// The session.
    pub session: String,
    /// The mode.
    pub mode: String,
}

impl SetModeParams {
    /// Reads the parameters.
    ///
    /// # Errors
    /// [`ParamFault`].
    pub fn read(params: &Value) -> Result<Self, ParamFault> {
        let root = ParamField::root(params);
        let session = root.at("sessionId").filled_text()?.to_owned();
        Ok(Self { session, mode: root.at("modeId").filled_text()?.to_owned() })
    }
}

/// Parameters of `session/set_config_option`. All options here are choices, so their values are texts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetConfigOptionParams {
    /// The session.
    pub session: String,
    /// The option.
    pub option: String,
    /// The chosen value.
    pub value: String,
}

impl SetConfigOptionParams {
    /// Reads the parameters.
    ///
    /// # Errors
    /// [`ParamFault`].
    pub fn read(params: &Value) -> Result<Self, ParamFault> {
        let root = ParamField::root(params);
        let session = root.at("sessionId").filled_text()?.to_owned();
        let option = root.at("configId").filled_text()?.to_owned();
        Ok(Self { session, option, value: root.at("value").filled_text()?.to_owned() })
    }
}

/// Reply to `session/request_permission`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PermissionAnswer {
    /// An option was chosen, by its id.
    Selected(String),
    /// None was: the turn was cancelled, or no person was there.
    Cancelled,
}

impl PermissionAnswer {
    /// Reads the reply.
    ///
    /// # Errors
    /// [`ParamFault`].
    pub fn read(result: &Value) -> Result<Self, ParamFault> {
        let outcome = ParamField::root(result).at("outcome");
        let kind = outcome.at("outcome");
        match kind.text()? {
            "selected" => Ok(Self::Selected(outcome.at("optionId").text()?.to_owned())),
            "cancelled" => Ok(Self::Cancelled),
            _ => Err(kind.expected("selected or cancelled")),
        }
    }
}

/// Reply to `elicitation/create`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ElicitationAnswer {
    /// The texts of the fields `answer` and `other`; a list has several.
    Accepted(Vec<String>),
    /// No answer.
    Dismissed,
}

impl ElicitationAnswer {
    /// Reads the reply.
    ///
    /// # Errors
    /// [`ParamFault`].
    pub fn read(result: &Value) -> Result<Self, ParamFault> {
        let root = ParamField::root(result);
        let action = root.at("action");
        match action.text()? {
            "accept" => {}
            "decline" | "cancel" => return Ok(Self::Dismissed),
            _ => return Err(action.expected("accept, decline or cancel")),
        }
        let content = root.at("content");
        let mut texts = Vec::new();
        let answer = content.at("answer");
        match answer.value() {
            Some(Value::Array(_)) => {
                for item in answer.items()? {
                    texts.push(item.text()?.to_owned());
                }
            }
            _ => texts.extend(answer.optional_text()?.map(str::to_owned)),
        }
        texts.extend(content.at("other").optional_text()?.map(str::to_owned));
        texts.retain(|text| !text.trim().is_empty());
        if texts.is_empty() { Err(content.expected("an answer")) } else { Ok(Self::Accepted(texts)) }
    }
}

#[cfg(test)]
mod tests;
