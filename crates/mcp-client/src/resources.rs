//! Resources and prompts of servers: listed and read within the same bounds as tools.
//!
//! It must not know what they are used for.

use countersign_core::message::MessageBlock;
use rmcp::model::{
    ClientRequest, GetPromptRequest, GetPromptRequestParams, ListPromptsRequest, ListResourcesRequest,
    ReadResourceRequest, ReadResourceRequestParams, Role, ServerResult,
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Map, Value};

use crate::{
    connection::{Connection, RequestWait},
    content::ContentBuilder,
    error::McpError,
    pages::{PageRequest, read_entries, request_error},
    server::ServerUse,
    servers::McpServers,
    text::printable_excerpt,
};

const RESOURCES: PageRequest = PageRequest {
    method: "resources/list",
    member: "resources",
    request: |params| {
        ClientRequest::ListResourcesRequest(ListResourcesRequest { params, ..ListResourcesRequest::default() })
    },
};
const PROMPTS: PageRequest = PageRequest {
    method: "prompts/list",
    member: "prompts",
    request: |params| ClientRequest::ListPromptsRequest(ListPromptsRequest { params, ..ListPromptsRequest::default() }),
};

/// A resource that a server lists.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ServerResource {
    /// Its address.
    pub uri: String,
    /// Its name.
    pub name: String,
    /// Its description.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Its MIME type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mime_type: Option<String>,
}

/// A prompt that a server lists.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerPrompt {
    /// Its name.
    pub name: String,
    /// Its description.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Its arguments, all of them texts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub arguments: Vec<PromptArgument>,
}

/// An argument of a prompt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PromptArgument {
    /// Its name.
    pub name: String,
    /// Its description.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// True if it must be given.
    #[serde(default)]
    pub required: bool,
}

/// Entries of a list of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedEntries<T> {
    /// Usable entries, in the order of the server.
    pub entries: Vec<T>,
    /// Entries that are left out: the place of each with its flaw, escaped and cut.
    pub problems: Vec<String>,
}

/// One message of a prompt.
#[derive(Clone, Debug, PartialEq)]
pub struct PromptText {
    /// True for a message of the model, false for one of the user.
    pub is_assistant: bool,
    /// Its content, up to the limits.
    pub content: Vec<MessageBlock>,
}

impl McpServers {
    /// Lists the resources of a server.
    ///
    /// # Errors
    /// [`McpError`].
    pub async fn list_resources(&self, server: &str) -> Result<ListedEntries<ServerResource>, McpError> {
        self.list_entries(server, &RESOURCES, Connection::has_resources).await
    }

    /// Reads a resource of a server, up to the limits.
    ///
    /// # Errors
    /// [`McpError`].
    pub async fn read_resource(&self, server: &str, uri: &str) -> Result<Vec<MessageBlock>, McpError> {
        let params = ReadResourceRequestParams::new(uri.to_owned());
        let request = ClientRequest::ReadResourceRequest(ReadResourceRequest::new(params));
        match self.request_answer(server, "resources/read", request).await? {
            (ServerResult::ReadResourceResult(read), mut content) => {
                for contents in read.contents {
                    content.push_resource(contents);
                }
                Ok(content.finish())
            }
            (other, _) => Err(invalid_answer(server, "resources/read", &other)),
        }
    }

    /// Lists the prompts of a server.
    ///
    /// # Errors
    /// [`McpError`].
    pub async fn list_prompts(&self, server: &str) -> Result<ListedEntries<ServerPrompt>, McpError> {
        self.list_entries(server, &PROMPTS, Connection::has_prompts).await
    }

    /// Gets a prompt of a server, filled with `arguments`, up to the limits for each message.
    ///
    /// # Errors
    /// [`McpError`].
    pub async fn get_prompt(
        &self,
        server: &str,
        prompt: &str,
        arguments: Map<String, Value>,
    ) -> Result<Vec<PromptText>, McpError> {
        let mut params = GetPromptRequestParams::new(prompt.to_owned());
        params.arguments = Some(arguments);
        let request = ClientRequest::GetPromptRequest(GetPromptRequest::new(params));
        match self.request_answer(server, "prompts/get", request).await? {
            (ServerResult::GetPromptResult(got), content) => {
                let messages = got.messages.into_iter().map(|message| {
                    let mut content = content.clone();
                    content.push_block(message.content);
                    let is_assistant = match message.role {
                        Role::Assistant => true,
                        Role::User => false,
                    };
                    PromptText { is_assistant, content: content.finish() }
                });
                Ok(messages.collect())
            }
            (other, _) => Err(invalid_answer(server, "prompts/get", &other)),
        }
    }

    async fn list_entries<T: DeserializeOwned>(
        &self,
        server: &str,
        list: &PageRequest,
        is_offered: fn(&Connection) -> bool,
    ) -> Result<ListedEntries<T>, McpError> {
        let handle = self.server(server)?;
        let connection = handle.connection(self.epoch(server)).await?;
        if !is_offered(&connection) {
            return Ok(ListedEntries { entries: Vec::new(), problems: Vec::new() });
        }
        let (mut entries, mut problems) = (Vec::new(), Vec::new());
        for (index, entry) in read_entries(&connection, handle.definition(), list).await?.into_iter().enumerate() {
            match serde_json::from_value(entry) {
                Ok(entry) => entries.push(entry),
                Err(error) => problems.push(format!(
                    "entry {} of {}: {}",
                    index + 1,
                    list.member,
                    printable_excerpt(&error.to_string())
                )),
            }
        }
        Ok(ListedEntries { entries, problems })
    }

    /// Sends a request and returns its answer, with an empty builder of content.
    async fn request_answer(
        &self,
        server: &str,
        method: &'static str,
        request: ClientRequest,
    ) -> Result<(ServerResult, ContentBuilder), McpError> {
        let handle = self.server(server)?;
        let limit = handle.definition().request_timeout;
        let of = ServerUse { approved: None, epoch: self.epoch(server) };
        let answer = handle.request(request, of, RequestWait::with_limit(limit)).await?;
        let answer = answer.map_err(|failure| request_error(handle.definition(), method, failure))?;
        Ok((answer, ContentBuilder::new(handle.limits())))
    }
}

fn invalid_answer(server: &str, request: &'static str, answer: &ServerResult) -> McpError {
    let reason = match answer {
        ServerResult::InputRequiredResult(_) => "the server wants input from a person",
        _ => "it has another form",
    };
    McpError::Invalid { server: server.to_owned(), request, reason: reason.to_owned() }
}
