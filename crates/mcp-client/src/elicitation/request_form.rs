//! Form of a server's request for input, read from its JSON: the flaw for which it cannot be asked.
//!
//! It must not ask anyone.

use rmcp::model::{ElicitationSchema, ErrorCode, PrimitiveSchemaDefinition};
use serde_json::{Map, Value, json};

use crate::text::printable_excerpt;

/// Method of a request for input.
pub(crate) const ELICITATION: &str = "elicitation/create";

/// Error of an answer that wants input in an unknown mode.
pub(crate) const UNKNOWN_MODE: &str = "the server asks in a form that is not accepted";

/// Returns the flaw in the mode of a request for input. A request without one is a form, `null` included.
pub(crate) fn mode_flaw(params: Option<&Value>) -> Option<String> {
    let mode = params?.get("mode").filter(|mode| !mode.is_null())?;
    let is_known = matches!(mode.as_str(), Some("form" | "url"));
    (!is_known).then(|| format!("mode is {}, expected \"form\" or \"url\"", shown(mode)))
}

/// Returns the flaw in the mode of a request for input within a result that wants input. In any other result the member is not read.
pub(crate) fn wanted_input_flaw(message: &Value) -> Option<String> {
    let result = message.get("result").filter(|result| result["resultType"] == "input_required")?;
    let requests = result["inputRequests"].as_object().into_iter().flat_map(Map::values);
    requests.filter(|request| request["method"] == ELICITATION).find_map(|request| mode_flaw(request.get("params")))
}

/// Returns a message in place of one that asks in an unknown mode: a request that is refused for its mode, or an error in place of the
/// answer. None if the message is none of them.
pub(crate) fn refuse_unknown_mode(text: &str) -> Option<String> {
    // The method may be written with escapes.
    if !text.contains("elicitation") && !text.contains('\\') {
        return None;
    }
    let mut message: Value = serde_json::from_str(text).ok()?;
    if message["method"] == ELICITATION {
        mode_flaw(message.get("params"))?;
        // Without the other members it is read as no form.
        message["params"] = json!({ "mode": message["params"]["mode"] });
        return Some(message.to_string());
    }
    let why = format!("{UNKNOWN_MODE}: {}", wanted_input_flaw(&message)?);
    let error = json!({ "code": ErrorCode::INTERNAL_ERROR.0, "message": why });
    Some(json!({ "jsonrpc": "2.0", "id": message["id"], "error": error }).to_string())
}

/// Returns the flaw of a request for input that has not the form of one.
pub(crate) fn request_flaw(params: Option<&Value>) -> String {
    let Some(Value::Object(members)) = params else { return "params must be an object".to_owned() };
    if let Some(flaw) = mode_flaw(params) {
        return flaw;
    }
    let content = if members.get("mode").is_some_and(|mode| mode == "url") { "url" } else { "requestedSchema" };
    for name in ["message", content] {
        match members.get(name) {
            None => return format!("{name} is missing"),
            Some(value) if name == "requestedSchema" => {
                if let Some(flaw) = schema_flaw(value) {
                    return flaw;
                }
            }
            Some(value) if !value.is_string() => return format!("{name} is {}, expected a text", shown(value)),
            Some(_) => {}
        }
    }
    "params have not the form that the protocol requires".to_owned()
}

/// Returns the flaw of a form, with the field that has it.
fn schema_flaw(schema: &Value) -> Option<String> {
    let Some(members) = schema.as_object() else {
        return Some(format!("requestedSchema is {}, expected an object", shown(schema)));
    };
    let properties = members.get("properties").and_then(Value::as_object).into_iter().flat_map(Map::iter);
    for (name, field) in properties {
        if serde_json::from_value::<PrimitiveSchemaDefinition>(field.clone()).is_err() {
            let name = printable_excerpt(name);
            return Some(format!(
                "requestedSchema.properties.{name} is {}, expected the schema of a text, a number, a boolean or a choice",
                shown(field)
            ));
        }
    }
    let error = serde_json::from_value::<ElicitationSchema>(schema.clone()).err()?;
    Some(format!("requestedSchema: {}", printable_excerpt(&error.to_string())))
}

fn shown(value: &Value) -> String {
    printable_excerpt(&value.to_string())
}

#[cfg(test)]
mod tests {
    use rmcp::model::{JsonRpcMessage, ServerJsonRpcMessage, ServerRequest};
    use serde_json::{Value, json};

    use super::{ELICITATION, refuse_unknown_mode, request_flaw};

    #[test]
    fn a_message_that_asks_in_an_unknown_mode_is_refused_also_if_it_is_escaped() {
        let form = |mode: Value| {
            let schema = json!({"type": "object", "properties": {}});
            json!({"mode": mode, "message": "m", "requestedSchema": schema})
        };
        let request = |mode: Value| json!({"jsonrpc": "2.0", "id": 3, "method": ELICITATION, "params": form(mode)});
        for text in [
            request(json!("foo")).to_string(),
            request(json!(5)).to_string(),
            request(json!("foo")).to_string().replace("elicitation", "el\\u0069citation"),
        ] {
            let refused = refuse_unknown_mode(&text).unwrap();
            let message: ServerJsonRpcMessage = serde_json::from_str(&refused).unwrap();
            let JsonRpcMessage::Request(request) = message else { panic!("{refused}") };
            let ServerRequest::CustomRequest(custom) = request.request else { panic!("{refused}") };
            assert_eq!(custom.method, ELICITATION);
            let flaw = request_flaw(custom.params.as_ref());
            assert!(flaw.starts_with("mode is ") && flaw.ends_with("expected \"form\" or \"url\""), "{flaw}");
        }
        let wanting = |mode: Value| {
            let input = json!({"a": {"method": ELICITATION, "params": form(mode)}});
            json!({"jsonrpc": "2.0", "id": 4, "result": {"resultType": "input_required", "inputRequests": input}})
        };
        let refused: Value =
            serde_json::from_str(&refuse_unknown_mode(&wanting(json!("foo")).to_string()).unwrap()).unwrap();
        let message = "the server asks in a form that is not accepted: mode is \"foo\", expected \"form\" or \"url\"";
        assert_eq!(refused, json!({"jsonrpc": "2.0", "id": 4, "error": {"code": -32603, "message": message}}));
        let mut without = request(json!("form"));
        without["params"].as_object_mut().unwrap().remove("mode");
        let text =
            json!({"jsonrpc": "2.0", "id": 5, "result": {"content": [{"type": "text", "text": "elicitation\\"}]}});
        let complete = |kind: Value| {
            let mut answer = wanting(json!("foo"));
            answer["result"]["resultType"] = kind;
            answer["result"]["content"] = json!([{"type": "text", "text": "opened"}]);
            answer
        };
        let mut untyped = complete(Value::Null);
        untyped["result"].as_object_mut().unwrap().remove("resultType");
        for passing in [
            request(json!("form")),
            request(Value::Null),
            without,
            wanting(json!("url")),
            text,
            complete(json!("complete")),
            complete(json!("other")),
            untyped,
        ] {
            assert_eq!(refuse_unknown_mode(&passing.to_string()), None, "{passing}");
        }
    }

    #[test]
    fn a_malformed_request_for_input_is_refused_with_its_member() {
        let form = |field: Value| json!({"type": "object", "properties": {"x": field}});
        let text = json!({"type": "string"});
        for (params, want) in [
            (
                json!({"mode": "foo", "message": "m", "requestedSchema": form(text.clone())}),
                "mode is \"foo\", expected \"form\" or \"url\"",
            ),
            (
                json!({"mode": 5, "message": "m", "requestedSchema": form(text.clone())}),
                "mode is 5, expected \"form\" or \"url\"",
            ),
            (json!({"message": "m"}), "requestedSchema is missing"),
            (json!({"requestedSchema": form(text.clone())}), "message is missing"),
            (json!({"message": 5, "requestedSchema": form(text)}), "message is 5, expected a text"),
            (json!({"mode": "url", "message": "m"}), "url is missing"),
            (json!({"mode": "url", "message": "m", "url": 1}), "url is 1, expected a text"),
            (json!({"message": "m", "requestedSchema": "x"}), "requestedSchema is \"x\", expected an object"),
            (
                json!({"message": "m", "requestedSchema": form(json!({"type": "object"}))}),
                "requestedSchema.properties.x is {\"type\":\"object\"}, expected the schema of a text, a number, a boolean or a choice",
            ),
            (json!([1]), "params must be an object"),
        ] {
            assert_eq!(request_flaw(Some(&params)), want, "{params}");
        }
        assert_eq!(request_flaw(None), "params must be an object");
    }
}
