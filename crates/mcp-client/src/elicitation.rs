//! Requests of servers for input from a person: each becomes questions, and the answers are checked before the server gets them.
//!
//! It must not know who answers. A server that gets no answer gets `cancel`, never the `decline` of a person.

mod form_field;
mod request_form;
mod text_format;

use std::sync::Arc;

use rmcp::model::{ElicitRequestParams, ElicitResult, ElicitationAction, ElicitationSchema};
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;
use url::Url;

use self::form_field::FormField;
pub(crate) use self::request_form::{
    ELICITATION, UNKNOWN_MODE, mode_flaw, refuse_unknown_mode, request_flaw, wanted_input_flaw,
};
use crate::{
    open_call::OpenCall,
    questions::{QuestionAnswer, QuestionAsker, ServerQuestion},
    text::{quoted_lines, single_line},
};

/// Most fields of a form: each is a question of its own.
const MOST_FIELDS: usize = 12;
/// Most attempts to answer one field.
const ATTEMPTS: usize = 3;
/// Longest message of a server, in bytes. A longer one is refused: people must see all of it.
const LONGEST_MESSAGE: usize = 4000;
/// Longest address that people are shown, in bytes.
const LONGEST_ADDRESS: usize = 2000;
/// Answers to a question without fields, in the order of their actions.
const ACTIONS: [(&str, ElicitationAction); 3] = [
    ("Accept", ElicitationAction::Accept),
    ("Decline", ElicitationAction::Decline),
    ("Cancel", ElicitationAction::Cancel),
];
const ADDRESS_NOTE: &str = "Open the address yourself if you trust its host. Accept means that you open it; what you \
    enter there is not seen here.";
const FORM_NOTE: &str = "The answer goes to this server and into the record: enter no password.";

/// A request of a server for input.
pub(crate) struct Elicitation<'a> {
    /// The calls that the server works on. It does not say for which it asks.
    pub(crate) calls: &'a [Arc<OpenCall>],
    pub(crate) asker: &'a dyn QuestionAsker,
    /// Ends it: its questions are withdrawn.
    pub(crate) cancel: &'a CancellationToken,
}

impl Elicitation<'_> {
    /// Asks a person what the server wants to know.
    ///
    /// # Errors
    /// The flaw of a request that people cannot be asked.
    pub(crate) async fn run(&self, request: ElicitRequestParams) -> Result<ElicitResult, String> {
        let _pauses: Vec<_> = self.calls.iter().map(|call| call.pause()).collect();
        match request {
            ElicitRequestParams::FormElicitationParams { message, requested_schema, .. } => {
                self.ask_form(&message, &requested_schema).await
            }
            ElicitRequestParams::UrlElicitationParams { message, url, .. } => {
                let (host, address) = readable_address(&url)?;
                let (asker, message) = self.introduction(&message)?;
                let text = format!(
                    "{asker} asks you to open an address.\nHost: {host}\nAddress: {address}\n{ADDRESS_NOTE}\n\n{message}"
                );
                Ok(self.ask_action(text).await)
            }
            _ => Err("unknown mode: expected form or url".to_owned()),
        }
    }

    /// Returns the server with its calls, and its own words, marked as such.
    fn introduction(&self, message: &str) -> Result<(String, String), String> {
        let Some(first) = self.calls.first() else { return Err("no call of a tool is open".to_owned()) };
        if message.len() > LONGEST_MESSAGE {
            return Err(format!("message is longer than {LONGEST_MESSAGE} bytes"));
        }
        let calls: Vec<String> = self.calls.iter().map(|call| call.description()).collect();
        let asker = format!("MCP server {}, which runs {},", first.server, calls.join(", "));
        Ok((asker, quoted_lines(&first.redact(message), LONGEST_MESSAGE)))
    }

    async fn ask_action(&self, text: String) -> ElicitResult {
        let choices = ACTIONS.iter().map(|(label, _)| (*label).to_owned()).collect();
        let answer = self.ask(text, choices, None, (false, true)).await;
        let action = match &answer {
            QuestionAnswer::Answered(words) => {
                let labels = ACTIONS.iter().map(|(label, _)| *label);
                form_field::chosen_index(labels, words).map_or(ElicitationAction::Cancel, |at| ACTIONS[at].1.clone())
            }
            QuestionAnswer::Declined => ElicitationAction::Decline,
            QuestionAnswer::Unanswered { .. } => ElicitationAction::Cancel,
        };
        ElicitResult::new(action)
    }

    async fn ask_form(&self, message: &str, schema: &ElicitationSchema) -> Result<ElicitResult, String> {
        let (asker, message) = self.introduction(message)?;
        let fields = form_fields(schema, |text, limit| {
            let call = self.calls.first();
            single_line(&call.map_or_else(|| text.into(), |call| call.redact(text)), limit)
        })?;
        if fields.is_empty() {
            let mut result = self.ask_action(format!("{asker} asks:\n{message}")).await;
            result.content = (result.action == ElicitationAction::Accept).then(|| Map::new().into());
            return Ok(result);
        }
        let mut content = Map::new();
        for (index, field) in fields.iter().enumerate() {
            let place = format!("Field {} of {}", index + 1, fields.len());
            let text = format!("{asker} asks. {FORM_NOTE}\n{message}\n\n{place}:\n> {}", field.question);
            match self.ask_field(&text, field).await {
                Ok(Some(value)) => drop(content.insert(field.name.clone(), value)),
                Ok(None) => {}
                Err(action) => return Ok(ElicitResult::new(action)),
            }
        }
        Ok(ElicitResult::new(ElicitationAction::Accept).with_content(Value::Object(content)))
    }

    /// Asks for one field until the answer fits. Without one, the action that ends the form.
    async fn ask_field(&self, text: &str, field: &FormField) -> Result<Option<Value>, ElicitationAction> {
        let mut problem = String::new();
        for _ in 0..ATTEMPTS {
            let text = if problem.is_empty() { text.to_owned() } else { format!("{problem}\n\n{text}") };
            match self.ask(text, field.labels(), field.recommended, (field.is_multi(), field.is_closed())).await {
                QuestionAnswer::Answered(words) => match field.parse(&words) {
                    Ok(value) => return Ok(value),
                    Err(flaw) => problem = format!("The last answer does not fit: {flaw}."),
                },
                QuestionAnswer::Declined => return Err(ElicitationAction::Decline),
                QuestionAnswer::Unanswered { .. } => break,
            }
        }
        Err(ElicitationAction::Cancel)
    }

    async fn ask(
        &self,
        text: String,
        choices: Vec<String>,
        recommended: Option<usize>,
        (is_multi, is_closed): (bool, bool),
    ) -> QuestionAnswer {
        let Some(first) = self.calls.iter().find(|call| call.take_question()) else {
            let reason = "the server asked too many questions during one call".to_owned();
            return QuestionAnswer::Unanswered { reason };
        };
        let question = ServerQuestion {
            server: first.server.clone(),
            tools: self.calls.iter().map(|call| call.tool.clone()).collect(),
            callers: self.calls.iter().filter_map(|call| call.caller.principal.clone()).collect(),
            text,
            choices,
            recommended,
            is_multi,
            is_closed,
        };
        self.asker.ask(question, self.cancel.clone()).await
    }
}

fn form_fields(schema: &ElicitationSchema, show: impl Fn(&str, usize) -> String) -> Result<Vec<FormField>, String> {
    if schema.properties.len() > MOST_FIELDS {
        return Err(format!("the form has more than {MOST_FIELDS} fields"));
    }
    let required = schema.required.as_deref().unwrap_or_default();
    if let Some(unknown) = required.iter().find(|name| !schema.properties.contains_key(*name)) {
        return Err(format!("required names the unknown field {}", show(unknown, 100)));
    }
    let order = schema.property_order.clone().unwrap_or_else(|| schema.properties.keys().cloned().collect());
    let fields = order.iter().filter_map(|name| Some((name, schema.properties.get(name)?)));
    fields.map(|(name, property)| FormField::from_schema(name, property, required.contains(name), &show)).collect()
}

/// Returns the host of an address and the whole address, both in ASCII.
fn readable_address(address: &str) -> Result<(String, String), String> {
    let url = Url::parse(address).map_err(|error| format!("url is not an address: {error}"))?;
    let host = url.host_str().filter(|host| !host.is_empty()).map(str::to_owned);
    let (Some(host), "http" | "https") = (host, url.scheme()) else {
        return Err("url is not an http or https address".to_owned());
    };
    if !url.username().is_empty() || url.password().is_some() {
        return Err("url has a user before its host".to_owned());
    }
    if url.as_str().len() > LONGEST_ADDRESS {
        return Err(format!("url is longer than {LONGEST_ADDRESS} bytes"));
    }
    let host = url.port().map_or_else(|| host.clone(), |port| format!("{host}:{port}"));
    Ok((host, url.into()))
}

#[cfg(test)]
mod tests;
