//! OTLP in JSON: requests to a collector, and its answers.

use serde_json::{Value as Json, json};

use super::spans::{AttributeValue, SpanKind, TraceSpan};

/// The most of a collector's message that is logged.
const LONGEST_MESSAGE: usize = 200;

/// Encodes a request with these spans.
pub(super) fn encode_request(resource: &[(String, String)], spans: &[TraceSpan]) -> Vec<u8> {
    let resource: Vec<Json> =
        resource.iter().map(|(name, value)| json!({ "key": name, "value": { "stringValue": value } })).collect();
    let spans: Vec<Json> = spans.iter().map(encode_span).collect();
    let scope = json!({ "name": "countersign", "version": env!("CARGO_PKG_VERSION") });
    let payload = json!({ "resourceSpans": [{
        "resource": { "attributes": resource },
        "scopeSpans": [{ "scope": scope, "spans": spans }],
    }] });
    payload.to_string().into_bytes()
}

fn encode_span(span: &TraceSpan) -> Json {
    let mut attributes: Vec<Json> =
        span.attributes.iter().map(|(name, value)| json!({ "key": name, "value": encode_value(value) })).collect();
    if let Some(error) = span.error {
        attributes.push(json!({ "key": "error.type", "value": { "stringValue": error } }));
    }
    let kind = match span.kind {
        SpanKind::Internal => 1,
        SpanKind::Client => 3,
    };
    // 64 bits are text in this form.
    let nanos = |millis: u64| millis.saturating_mul(1_000_000).to_string();
    let mut encoded = json!({
        "traceId": hex::encode(span.trace),
        "spanId": hex::encode(span.id),
        "name": span.name,
        "kind": kind,
        "startTimeUnixNano": nanos(span.start.0),
        "endTimeUnixNano": nanos(span.end.0.max(span.start.0)),
        "attributes": attributes,
        "status": if span.error.is_some() { json!({ "code": 2 }) } else { json!({}) },
    });
    if let Some(parent) = span.parent {
        encoded["parentSpanId"] = hex::encode(parent).into();
    }
    encoded
}

fn encode_value(value: &AttributeValue) -> Json {
    match value {
        AttributeValue::Text(text) => json!({ "stringValue": text }),
        AttributeValue::Number(number) => json!({ "intValue": number.to_string() }),
        AttributeValue::Texts(texts) => {
            let values: Vec<Json> = texts.iter().map(|text| json!({ "stringValue": text })).collect();
            json!({ "arrayValue": { "values": values } })
        }
    }
}

/// Returns the number of spans that a collector rejected although it took the request, and its message.
pub(super) fn parse_rejection(answer: &[u8]) -> Option<(u64, String)> {
    let answer: Json = serde_json::from_slice(answer).ok()?;
    let partial = answer.get("partialSuccess")?;
    let count = match &partial["rejectedSpans"] {
        Json::String(count) => count.parse().ok()?,
        other => other.as_u64().unwrap_or_default(),
    };
    let message: String = partial["errorMessage"].as_str().unwrap_or_default().chars().take(LONGEST_MESSAGE).collect();
    let message = message.escape_debug().to_string();
    (count > 0 || !message.is_empty()).then_some((count, message))
}

#[cfg(test)]
mod tests {
    use countersign_core::time::Millis;
    use serde_json::{Value as Json, json};

    use super::{encode_request, parse_rejection};
    use crate::spans::{AttributeValue, SpanKind, TraceSpan};

    #[test]
    fn a_span_has_the_form_of_the_wire() {
        let span = TraceSpan {
            trace: [0xab; 16],
            id: [1; 8],
            parent: Some([2; 8]),
            name: "chat m".to_owned(),
            kind: SpanKind::Client,
            start: Millis(1_700_000_000_123),
            end: Millis(1_700_000_000_120),
            attributes: vec![("a", "b".into()), ("n", 7_u64.into()), ("l", AttributeValue::Texts(vec!["x", "y"]))],
            error: Some("failed"),
        };
        let payload: Json =
            serde_json::from_slice(&encode_request(&[("service.name".into(), "s".into())], &[span])).unwrap();
        let text = |text: &str| json!({ "stringValue": text });
        assert_eq!(
            payload["resourceSpans"][0]["resource"]["attributes"],
            json!([{ "key": "service.name", "value": text("s") }])
        );
        assert_eq!(
            payload["resourceSpans"][0]["scopeSpans"][0]["spans"][0],
            json!({
                "traceId": "abababababababababababababababab",
                "spanId": "0101010101010101",
                "parentSpanId": "0202020202020202",
                "name": "chat m",
                "kind": 3,
                // A clock that went back makes no span that ends before it begins.
                "startTimeUnixNano": "1700000000123000000",
                "endTimeUnixNano": "1700000000123000000",
                "attributes": [
                    { "key": "a", "value": text("b") },
                    { "key": "n", "value": { "intValue": "7" } },
                    { "key": "l", "value": { "arrayValue": { "values": [text("x"), text("y")] } } },
                    { "key": "error.type", "value": text("failed") },
                ],
                "status": { "code": 2 },
            })
        );
    }

    #[test]
    fn what_a_collector_takes_back_is_read() {
        for (answer, want) in [
            ("", None),
            ("{}", None),
            (r#"{"partialSuccess":{}}"#, None),
            (r#"{"partialSuccess":{"rejectedSpans":"0","errorMessage":""}}"#, None),
            (
                r#"{"partialSuccess":{"rejectedSpans":"3","errorMessage":"too\u001b[1mold"}}"#,
                Some((3, "too\\u{1b}[1mold")),
            ),
            (r#"{"partialSuccess":{"rejectedSpans":2}}"#, Some((2, ""))),
            (r#"{"partialSuccess":{"errorMessage":"soon gone"}}"#, Some((0, "soon gone"))),
        ] {
            assert_eq!(
                parse_rejection(answer.as_bytes()),
                want.map(|(count, message)| (count, message.to_owned())),
                "{answer}"
            );
        }
    }
}
