//! The file of a service's tools.
//!
//! Nothing is put in from the environment here: braces are the names of arguments.

use std::{io, path::Path, time::Duration};

use countersign_core::policy::{
    arguments::{ArgumentValidator, DeclaredArgument, is_free_text},
    signature::template_names,
};
use countersign_runtime::tools::regular;

use super::{
    config_field::ConfigField, diagnostics::FileDiagnostics, problem::ConfigFault, typed_values::read_method, value,
};
use crate::yaml::LARGEST;

/// A tool that agents may ask for: one request to one service.
#[derive(Clone, Debug)]
pub struct ToolConfig {
    /// Its name.
    pub name: String,
    /// For agents.
    pub description: String,
    /// The template of the text that rules are matched with; empty means the bare name.
    pub signature: String,
    /// Declared arguments, in the order of the file.
    pub args: Vec<DeclaredArgument>,
    /// Template of the request.
    pub request: RequestTemplate,
    /// The name under which the answer is handed on; `None` hands it on as it is.
    pub wrap: Option<String>,
    /// True if it may be repeated when it is not known whether it took effect.
    pub idempotent: bool,
    /// Handling of arguments that are not in `args`.
    pub undeclared_args: UndeclaredArguments,
    /// Time limit of the whole request.
    pub timeout: Duration,
    /// The largest answer, in bytes.
    pub max_response: u64,
}

/// Template of a request to the service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestTemplate {
    /// As it is written: only POST, PUT and PATCH in capitals have a body.
    pub method: String,
    /// With `{argument}` wherever one is put in.
    pub path: String,
    /// Arguments that the body leaves out.
    pub body_exclude: Vec<String>,
    /// Arguments that stand in the query, where a request has them, and not in the body.
    pub query: Vec<String>,
}

/// Handling of arguments that a tool does not declare.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UndeclaredArguments {
    /// A person decides, unless a rule covers them.
    #[default]
    Ask,
    /// Allowed, as good as declared.
    Allow,
    /// The request is refused.
    Refuse,
}

const TOOL: &[&str] = &[
    "description",
    "signature",
    "args",
    "request",
    "response",
    "idempotent",
    "undeclared_args",
    "timeout",
    "max_response",
];

/// The tools of Home Assistant that come with the gateway.
const HOMEASSISTANT: &str = include_str!("../../../examples/homeassistant.yaml");

pub(super) fn homeassistant_tools() -> Vec<ToolConfig> {
    let notes = FileDiagnostics::for_file(Path::new("homeassistant.yaml"));
    parse_tools(HOMEASSISTANT, &notes)
}

/// Reads the file that `place` names; without a name there are no tools.
pub(super) fn of_file(place: &ConfigField<'_>) -> Vec<ToolConfig> {
    let Some(path) = place.path() else { return Vec::new() };
    let text = match regular::read_text(&path, LARGEST) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            place.report_refusal(format!("Tools file not found: {}", path.display()));
            return Vec::new();
        }
        Err(error) => {
            place.report_fault(ConfigFault::Io(format!("{}: {error}", path.display())));
            return Vec::new();
        }
    };
    let notes = FileDiagnostics::for_file(&path);
    let tools = parse_tools(&text, &notes);
    place.notes.problems.borrow_mut().append(&mut notes.take_problems());
    place.notes.warnings.borrow_mut().append(&mut notes.warnings.borrow_mut());
    place.notes.files.borrow_mut().push(path);
    tools
}

fn parse_tools(text: &str, notes: &FileDiagnostics) -> Vec<ToolConfig> {
    let value = value::read_value(text, notes, None);
    let root = ConfigField::root(notes, value.as_ref());
    root.check_mapping(&["tools"]);
    root.at("tools").members().unwrap_or_default().into_iter().map(|(name, place)| read_tool(name, &place)).collect()
}

fn read_tool(name: &str, place: &ConfigField<'_>) -> ToolConfig {
    place.check_mapping(TOOL);
    let text = |key| place.at(key).text().unwrap_or_default();
    let response = place.at("response");
    response.check_mapping(&["wrap"]);
    let args = place.at("args").members().unwrap_or_default();
    let args: Vec<DeclaredArgument> = args.into_iter().map(|(arg, place)| read_argument(name, arg, &place)).collect();
    let signature = place.at("signature");
    let template = signature.text().unwrap_or_default();
    for free in template_names(&template).into_iter().filter(|arg| is_free_text(&args, arg)) {
        signature.report_warning(&format!("'{free}' is free_text and left out of the signature: rules do not see it"));
    }
    ToolConfig {
        name: name.to_owned(),
        description: text("description"),
        signature: template,
        request: read_request(&place.at("request"), &args),
        args,
        wrap: response.at("wrap").text().filter(|wrap| !wrap.is_empty()),
        idempotent: place.at("idempotent").flag().unwrap_or(false),
        undeclared_args: read_undeclared(&place.at("undeclared_args")),
        timeout: place.at("timeout").above_zero().map_or(Duration::from_secs(300), Duration::from_secs_f64),
        max_response: place.at("max_response").positive_integer().unwrap_or(1 << 20),
    }
}

fn read_argument(tool: &str, name: &str, place: &ConfigField<'_>) -> DeclaredArgument {
    place.check_mapping(&["required", "validate", "free_text"]);
    let validate = place.at("validate");
    let compiled = validate.text().and_then(|source| {
        // An empty pattern matches every text.
        if source.is_empty() {
            validate
                .report_refusal("expected a regular expression that is not empty: an empty one matches every value");
        }
        ArgumentValidator::new(&source)
            .map_err(|error| {
                validate.report_refusal(format!("Invalid regex pattern for tool '{tool}' arg '{name}': {error}"))
            })
            .ok()
    });
    let required = place.at("required").flag().unwrap_or(false);
    let free_text = place.at("free_text");
    free_text.not_empty("true or false");
    let free_text = free_text.flag().unwrap_or(false);
    DeclaredArgument { name: name.to_owned(), required, validate: compiled, free_text }
}

fn read_request(place: &ConfigField<'_>, args: &[DeclaredArgument]) -> RequestTemplate {
    place.check_mapping(&["method", "path", "body_exclude", "query"]);
    let query = place.at("query");
    query.not_empty("a list of arguments");
    let query = query.items().into_iter().filter_map(|item| {
        let name = item.needed_text()?;
        if !args.iter().any(|declared| declared.name == name) {
            let known: Vec<&str> = args.iter().map(|declared| &*declared.name).collect();
            item.report_refusal(format!("'{name}' is not an argument under args: {}", known.join(", ")));
        }
        Some(name)
    });
    let query = query.collect();
    let path = place.at("path");
    let text = path.text().filter(|path| !path.is_empty()).unwrap_or_else(|| "/".to_owned());
    if !text.starts_with('/') {
        path.report_refusal("expected a path that starts with /");
    }
    RequestTemplate {
        method: read_method(&place.at("method")),
        path: text,
        body_exclude: place.at("body_exclude").items().iter().filter_map(ConfigField::needed_text).collect(),
        query,
    }
}

fn read_undeclared(place: &ConfigField<'_>) -> UndeclaredArguments {
    match place.text().as_deref() {
        None | Some("ask") => UndeclaredArguments::Ask,
        Some("allow") => UndeclaredArguments::Allow,
        Some("refuse") => UndeclaredArguments::Refuse,
        Some(_) => {
            place.report_refusal("expected ask, allow or refuse");
            UndeclaredArguments::Ask
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{FileDiagnostics, HOMEASSISTANT, homeassistant_tools, parse_tools};

    #[test]
    fn the_tools_that_come_with_the_gateway_are_sound() {
        let notes = FileDiagnostics::for_file(Path::new("homeassistant.yaml"));
        let tools = parse_tools(HOMEASSISTANT, &notes);
        assert_eq!(notes.take_problems(), []);
        let rows: Vec<String> = tools
            .iter()
            .map(|tool| {
                let arg = |arg: &super::DeclaredArgument| {
                    let source = arg.validate.as_ref().map_or("-", |validate| validate.source());
                    format!("{}{} {source}", arg.name, if arg.required { "!" } else { "" })
                };
                let args: Vec<String> = tool.args.iter().map(arg).collect();
                let (request, wrap) = (&tool.request, tool.wrap.as_deref().unwrap_or("-"));
                format!(
                    "{} | {} | {} | {} {}{} | {} | {wrap} | {}",
                    tool.name,
                    args.join("; "),
                    tool.signature,
                    request.method,
                    request.path,
                    request.query.iter().map(|name| format!(" ?{name}")).collect::<String>(),
                    request.body_exclude.join(" "),
                    tool.idempotent
                )
            })
            .collect();
        let entity = r"entity_id! ^[a-z][a-z0-9_]*\.[a-z0-9][a-z0-9_]*$";
        let optional = r"entity_id ^[a-z][a-z0-9_]*\.[a-z0-9][a-z0-9_]*$";
        assert_eq!(
            rows,
            [
                format!("ha_get_state | {entity} | {{entity_id}} | GET /api/states/{{entity_id}} |  | - | true"),
                "ha_get_states |  |  | GET /api/states |  | states | true".to_owned(),
                "ha_get_services |  |  | GET /api/services |  | services | true".to_owned(),
                format!(
                    "ha_get_history | {entity} | {{entity_id}} | GET /api/history/period?filter_entity_id={{entity_id}} |  | history | true"
                ),
                format!("ha_get_logbook | {entity} | {{entity_id}} | GET /api/logbook?entity={{entity_id}} |  | logbook | true"),
                "ha_get_config |  |  | GET /api/config |  | config | true".to_owned(),
                "ha_render_template | template! - | {template} | POST /api/template |  | rendered | false".to_owned(),
                format!(
                    "ha_call_service | domain! ^[a-z][a-z0-9_]*$; service! ^[a-z][a-z0-9_]*$; {optional}; return_response ^true$ | {{domain}}.{{service}}, {{entity_id}} | POST /api/services/{{domain}}/{{service}} ?return_response | domain service | result | false"
                ),
                "ha_fire_event | event_type! ^[a-z][a-z0-9_.]*$ | {event_type} | POST /api/events/{event_type} | event_type | - | false"
                    .to_owned(),
            ]
        );
        assert_eq!(homeassistant_tools().len(), 9);
    }
}
