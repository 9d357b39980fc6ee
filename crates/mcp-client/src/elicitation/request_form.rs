//! Form of a server's request for input, read from its JSON: the flaw for which it cannot be asked.
//!
//! It must not ask anyone.

use rmcp::model::{ElicitationSchema, PrimitiveSchemaDefinition};
use serde_json::{Map, Value};

use crate::text::printable_excerpt;

/// Method of a request for input.
pub(crate) const ELICITATION: &str = "elicitation/create";

/// Returns the flaw in the mode of a request for input. A request without one is a form, `null` included.
pub(crate) fn mode_flaw(params: Option<&Value>) -> Option<String> {
    let mode = params?.get("mode").filter(|mode| !mode.is_null())?;
    let is_known = matches!(mode.as_str(), Some("form" | "url"));
    (!is_known).then(|| format!("mode is {}, expected \"form\" or \"url\"", shown(mode)))
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
    use serde_json::{Value, json};

    use super::request_flaw;

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
