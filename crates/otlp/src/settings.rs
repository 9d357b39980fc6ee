//! Settings of traces in the environment, in OpenTelemetry's own variables.
//!
//! It must not print possible secrets: values of headers and addresses are in no error.

use std::{fmt, time::Duration};

use percent_encoding::percent_decode_str;
use reqwest::{
    Url,
    header::{HeaderMap, HeaderName, HeaderValue},
};

/// Longest name of an attribute, and longest value.
const LONGEST: usize = 1024;

/// A variable that has no meaning here.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{variable}: {problem}")]
pub struct OtlpConfigError {
    /// Name of the variable.
    pub variable: String,
    /// The problem with it, and its allowed values.
    pub problem: String,
}

/// Destination of spans, and the settings of the export.
#[derive(Clone)]
pub(super) struct OtlpSettings {
    pub(super) endpoint: Url,
    /// Marked as sensitive, so that they are not printed.
    pub(super) headers: HeaderMap,
    /// For one request and its answer.
    pub(super) timeout: Duration,
    pub(super) is_compressed: bool,
    /// Of this process.
    pub(super) resource: Vec<(String, String)>,
    pub(super) sampler: TraceSampler,
    /// Most spans in the queue.
    pub(super) queue: usize,
    /// Most spans in one batch.
    pub(super) batch: usize,
    /// Time that the first of them waits for others.
    pub(super) delay: Duration,
}

impl fmt::Debug for OtlpSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OtlpSettings").field("sampler", &self.sampler).finish_non_exhaustive()
    }
}

/// Selection of exported traces.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum TraceSampler {
    All,
    None,
    /// Traces whose number is below this, of 2^63.
    Below(u64),
}

impl TraceSampler {
    /// Reports whether the spans of a trace are exported: all of them, or none.
    pub(super) fn samples_trace(self, trace: [u8; 16]) -> bool {
        let [.., a, b, c, d, e, f, g, h] = trace;
        match self {
            Self::All => true,
            Self::None => false,
            Self::Below(bound) => u64::from_be_bytes([a, b, c, d, e, f, g, h]) >> 1 < bound,
        }
    }
}

impl OtlpSettings {
    /// Reads them by name. `None` if nothing is to be exported.
    ///
    /// # Errors
    /// [`OtlpConfigError`], only if there is a collector.
    pub(super) fn from_variables(get: impl Fn(&str) -> Option<String>) -> Result<Option<Self>, OtlpConfigError> {
        // An empty variable is not set.
        let get = |name: &str| get(name).map(|value| value.trim().to_owned()).filter(|value| !value.is_empty());
        let of_traces = |rest: &str| {
            let all = format!("OTEL_EXPORTER_OTLP_{rest}");
            let own = format!("OTEL_EXPORTER_OTLP_TRACES_{rest}");
            match get(&own) {
                Some(value) => Some((own, value)),
                None => get(&all).map(|value| (all, value)),
            }
        };
        if get("OTEL_SDK_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true")) {
            return Ok(None);
        }
        match get("OTEL_TRACES_EXPORTER").as_deref() {
            None | Some("otlp") => {}
            Some("none") => return Ok(None),
            Some(_) => return config_error("OTEL_TRACES_EXPORTER", "expected otlp or none"),
        }
        let Some((name, address)) = of_traces("ENDPOINT") else { return Ok(None) };
        let endpoint = parse_endpoint(&name, &address)?;
        let headers = match of_traces("HEADERS") {
            Some((name, value)) => parse_headers(&name, &value)?,
            None => HeaderMap::new(),
        };
        if let Some((name, value)) = of_traces("PROTOCOL")
            && value != "http/json"
        {
            return config_error(&name, "expected http/json, the only supported protocol");
        }
        let is_compressed = match of_traces("COMPRESSION") {
            None => false,
            Some((_, value)) if value == "none" => false,
            Some((_, value)) if value == "gzip" => true,
            Some((name, _)) => return config_error(&name, "expected none or gzip"),
        };
        let timeout = match of_traces("TIMEOUT") {
            Some((name, value)) => parse_number(&name, &value, 600_000)?,
            None => 10_000,
        };
        let or =
            |name: &str, most: u64, usual: u64| get(name).map_or(Ok(usual), |value| parse_number(name, &value, most));
        let queue = or("OTEL_BSP_MAX_QUEUE_SIZE", 65_536, 2_048)?;
        let batch = or("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", 4_096, 512)?.min(queue);
        let delay = or("OTEL_BSP_SCHEDULE_DELAY", 600_000, 5_000)?;
        let size = |count: u64| usize::try_from(count).unwrap_or(usize::MAX);
        Ok(Some(Self {
            endpoint,
            headers,
            timeout: Duration::from_millis(timeout),
            is_compressed,
            resource: resource_attributes(get("OTEL_SERVICE_NAME"), get("OTEL_RESOURCE_ATTRIBUTES").as_deref())?,
            sampler: parse_sampler(get("OTEL_TRACES_SAMPLER").as_deref(), get("OTEL_TRACES_SAMPLER_ARG").as_deref())?,
            queue: size(queue),
            batch: size(batch),
            delay: Duration::from_millis(delay),
        }))
    }
}

fn config_error<T>(variable: &str, problem: &str) -> Result<T, OtlpConfigError> {
    Err(OtlpConfigError { variable: variable.to_owned(), problem: problem.to_owned() })
}

/// Parses an endpoint: the address of all signals has that of traces below it; that of traces is used as it is.
fn parse_endpoint(name: &str, address: &str) -> Result<Url, OtlpConfigError> {
    let Some(mut url) = Url::parse(address).ok().filter(|url| matches!(url.scheme(), "http" | "https")) else {
        return config_error(name, "expected a URL that starts with http:// or https://");
    };
    if !url.username().is_empty() || url.password().is_some() {
        return config_error(name, "the URL must not contain credentials; put them in OTEL_EXPORTER_OTLP_HEADERS");
    }
    if url.query().is_some() || url.fragment().is_some() {
        return config_error(name, "the URL must not have a query (?) or fragment (#)");
    }
    if !name.contains("_TRACES_")
        && let Ok(mut path) = url.path_segments_mut()
    {
        path.pop_if_empty().extend(["v1", "traces"]);
    }
    Ok(url)
}

/// Parses `name=value` between commas, percent-encoded.
fn parse_pairs(variable: &str, text: &str) -> Result<Vec<(String, String)>, OtlpConfigError> {
    let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
    let read = |part: &str| {
        let (name, value) = part.split_once('=')?;
        let value = percent_decode_str(value.trim()).decode_utf8().ok()?.into_owned();
        let name = name.trim().to_owned();
        (!name.is_empty() && name.len() <= LONGEST && value.len() <= LONGEST << 3).then_some((name, value))
    };
    match parts.map(read).collect::<Option<Vec<_>>>() {
        Some(pairs) => Ok(pairs),
        None => config_error(
            variable,
            "expected name=value pairs separated by commas, with special characters percent-encoded",
        ),
    }
}

fn parse_headers(variable: &str, text: &str) -> Result<HeaderMap, OtlpConfigError> {
    let mut headers = HeaderMap::new();
    for (name, value) in parse_pairs(variable, text)? {
        let name = name.to_ascii_lowercase();
        let (Ok(name), Ok(mut value)) = (HeaderName::try_from(name.as_str()), HeaderValue::try_from(value)) else {
            return config_error(variable, "invalid header name or value");
        };
        if matches!(
            name.as_str(),
            "host" | "content-length" | "content-type" | "content-encoding" | "transfer-encoding"
        ) {
            return config_error(variable, &format!("{name} is set by the exporter and cannot be changed"));
        }
        value.set_sensitive(true);
        headers.insert(name, value);
    }
    Ok(headers)
}

fn parse_number(variable: &str, text: &str, most: u64) -> Result<u64, OtlpConfigError> {
    match text.parse() {
        Ok(number) if (1..=most).contains(&number) => Ok(number),
        Ok(_) | Err(_) => config_error(variable, &format!("expected a whole number from 1 to {most}")),
    }
}

fn resource_attributes(service: Option<String>, text: Option<&str>) -> Result<Vec<(String, String)>, OtlpConfigError> {
    let mut given = text.map_or(Ok(Vec::new()), |text| parse_pairs("OTEL_RESOURCE_ATTRIBUTES", text))?;
    if let Some(service) = service {
        given.retain(|(name, _)| name != "service.name");
        given.push(("service.name".to_owned(), service));
    }
    let ours = [
        ("service.name", "countersign".to_owned()),
        ("service.version", env!("CARGO_PKG_VERSION").to_owned()),
        ("service.instance.id", uuid::Uuid::new_v4().to_string()),
    ];
    for (name, value) in ours {
        if !given.iter().any(|(known, _)| known == name) {
            given.push((name.to_owned(), value));
        }
    }
    Ok(given)
}

fn parse_sampler(name: Option<&str>, argument: Option<&str>) -> Result<TraceSampler, OtlpConfigError> {
    // No span of ours has a parent elsewhere.
    match name.map(|name| name.strip_prefix("parentbased_").unwrap_or(name)) {
        None | Some("always_on") => Ok(TraceSampler::All),
        Some("always_off") => Ok(TraceSampler::None),
        Some("traceidratio") => {
            let ratio = argument.map_or(Some(1.0), |ratio| ratio.parse::<f64>().ok());
            let Some(ratio) = ratio.filter(|ratio| (0.0..=1.0).contains(ratio)) else {
                return config_error("OTEL_TRACES_SAMPLER_ARG", "expected a number from 0 to 1");
            };
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of 2^63")]
            let bound = (ratio * (1_u64 << 63) as f64) as u64;
            Ok(TraceSampler::Below(bound))
        }
        Some(_) => config_error(
            "OTEL_TRACES_SAMPLER",
            "expected always_on, always_off or traceidratio, also with the prefix parentbased_",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::{OtlpSettings, TraceSampler};

    const ALL: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
    const OWN: &str = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT";

    fn read(set: &[(&str, &str)]) -> Result<Option<OtlpSettings>, String> {
        let get = |name: &str| set.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
        OtlpSettings::from_variables(get).map_err(|error| error.to_string())
    }

    #[test]
    fn nothing_is_exported_without_a_collector_or_if_disabled() {
        for set in [
            &[][..],
            &[("OTEL_SERVICE_NAME", "x"), ("OTEL_TRACES_SAMPLER", "nonsense")],
            &[(ALL, " ")],
            &[(ALL, "http://c:4318"), ("OTEL_SDK_DISABLED", "true")],
            &[(ALL, "http://c:4318"), ("OTEL_TRACES_EXPORTER", "none")],
        ] {
            assert!(read(set).unwrap().is_none(), "{set:?}");
        }
    }

    #[test]
    fn the_address_of_traces_is_taken_as_it_is_and_that_of_all_signals_has_it_below() {
        for (name, address, want) in [
            (ALL, "http://c:4318", "http://c:4318/v1/traces"),
            (ALL, "http://c:4318/", "http://c:4318/v1/traces"),
            (ALL, "https://c/otlp/", "https://c/otlp/v1/traces"),
            (OWN, "http://c:4318/spans", "http://c:4318/spans"),
        ] {
            assert_eq!(read(&[(name, address)]).unwrap().unwrap().endpoint.as_str(), want);
        }
        assert_eq!(read(&[(ALL, "http://a"), (OWN, "http://b/x")]).unwrap().unwrap().endpoint.as_str(), "http://b/x");
    }

    #[test]
    fn what_has_no_meaning_is_refused_by_name_and_without_what_may_be_secret() {
        for (name, value, want) in [
            (ALL, "collector:4318", "expected a URL"),
            (ALL, "unix:///run/otel", "expected a URL"),
            (ALL, "http://me:hunter2@c", "must not contain credentials"),
            (ALL, "http://c?key=hunter2", "query (?)"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "hunter2", "name=value"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "a b=hunter2", "invalid header"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "a=hunter2%0d%0ax", "invalid header"),
            ("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "Host=hunter2", "host is set by the exporter"),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc", "http/json"),
            ("OTEL_EXPORTER_OTLP_COMPRESSION", "zstd", "none or gzip"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "10s", "whole number"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "0", "whole number"),
            ("OTEL_BSP_MAX_QUEUE_SIZE", "-1", "whole number"),
            ("OTEL_TRACES_SAMPLER", "sometimes", "always_on"),
            ("OTEL_TRACES_EXPORTER", "zipkin", "otlp or none"),
            ("OTEL_RESOURCE_ATTRIBUTES", "hunter2", "name=value"),
        ] {
            let result = match name {
                ALL => read(&[(name, value)]),
                _ => read(&[(ALL, "http://c"), (name, value)]),
            };
            let error = result.map(drop).unwrap_err();
            assert!(error.starts_with(name) && error.contains(want) && !error.contains("hunter2"), "{name}: {error}");
        }
        for ratio in ["2", "-0.1", "NaN", "half"] {
            let set = [(ALL, "http://c"), ("OTEL_TRACES_SAMPLER", "traceidratio"), ("OTEL_TRACES_SAMPLER_ARG", ratio)];
            assert!(read(&set).map(drop).unwrap_err().contains("from 0 to 1"), "{ratio}");
        }
    }

    #[test]
    fn what_is_set_holds_and_headers_are_not_printed() {
        let settings = read(&[
            (ALL, "http://c"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "Authorization=Basic%20hunter2, x-team = a=b"),
            ("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip"),
            ("OTEL_SERVICE_NAME", "gate"),
            ("OTEL_RESOURCE_ATTRIBUTES", "service.name=other,deployment.environment.name=a%20b"),
            ("OTEL_TRACES_SAMPLER", "parentbased_always_off"),
        ])
        .unwrap()
        .unwrap();
        assert_eq!(settings.headers["authorization"], "Basic hunter2");
        assert_eq!(settings.headers["x-team"], "a=b");
        assert!(!format!("{settings:?} {:?}", settings.headers).contains("hunter2"));
        let find = |key: &str| {
            let found = settings.resource.iter().filter(|(name, _)| name == key);
            found.map(|(_, value)| value.as_str()).collect::<Vec<_>>()
        };
        assert_eq!((find("service.name"), find("deployment.environment.name")), (vec!["gate"], vec!["a b"]));
        assert!(settings.is_compressed && find("service.instance.id").len() == 1);
        assert_eq!(settings.sampler, TraceSampler::None);
    }

    #[test]
    fn a_share_of_traces_is_the_same_share_wherever_it_is_taken() {
        let trace = |last: u64| {
            let mut trace = [7; 16];
            trace[8..].copy_from_slice(&last.to_be_bytes());
            trace
        };
        for (ratio, last, want) in [
            ("0", 0, false),
            ("1", u64::MAX, true),
            ("0.5", u64::MAX / 2 - 2, true),
            ("0.5", u64::MAX / 2 + 2, false),
            ("0.25", u64::MAX / 4 - 2, true),
            ("0.25", u64::MAX / 2 - 2, false),
        ] {
            let set = [(ALL, "http://c"), ("OTEL_TRACES_SAMPLER", "traceidratio"), ("OTEL_TRACES_SAMPLER_ARG", ratio)];
            assert_eq!(read(&set).unwrap().unwrap().sampler.samples_trace(trace(last)), want, "{ratio} {last}");
        }
    }
}
