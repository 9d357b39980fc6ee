//! Log of the program: on stderr, in the requested form and at the requested level.

use std::sync::{Mutex, PoisonError};

use countersign_config::{
    LogConfig,
    logging::{LogLevels, LogLineFormat, with_successors},
};
use countersign_node_client::{NodeLogFile, NodeLogFormat};
use tracing::{Level, Metadata};
use tracing_subscriber::{
    EnvFilter, Layer as _,
    filter::{FilterFn, ParseError},
    fmt,
    layer::SubscriberExt as _,
    reload,
    util::SubscriberInitExt as _,
};

/// Default filter.
const USUAL: &str = "warn";
/// Default filter of a node.
const OF_NODE: &str = "warn,countersign_node_client=info";
/// Says what is logged, before any setting.
const VARIABLE: &str = "COUNTERSIGN_LOG";

/// Logs what the environment says, as lines for people.
pub(crate) fn start() {
    drop(start_with(&LogConfig::default()));
}

/// Logs what the environment says, else the settings, and gives how that is changed.
pub(crate) fn start_with(settings: &LogConfig) -> LogLevels {
    let from_variable = std::env::var(VARIABLE).ok().filter(|text| EnvFilter::try_new(text).is_ok());
    let level = from_variable.or_else(|| settings.level.clone()).unwrap_or_else(|| USUAL.to_owned());
    let filter = parse_filter(&level).unwrap_or_else(|_| EnvFilter::new(USUAL));
    let shown = EnvFilter::try_new(&level).map_or_else(|_| USUAL.to_owned(), |level| level.to_string());
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(false);
    match settings.form {
        LogLineFormat::Text => {
            let lines = lines.with_filter_reloading();
            let handle = lines.reload_handle();
            let _ = lines.finish().with(own_alone()).try_init();
            reloadable_levels(handle, shown)
        }
        LogLineFormat::Json => {
            let lines = lines.json().flatten_event(true).with_filter_reloading();
            let handle = lines.reload_handle();
            let _ = lines.finish().with(own_alone()).try_init();
            reloadable_levels(handle, shown)
        }
    }
}

/// Returns the filter for a text about a log.
///
/// # Errors
/// The text says nothing about a log.
fn parse_filter(text: &str) -> Result<EnvFilter, ParseError> {
    EnvFilter::try_new(with_successors(text))
}

/// Logs what happens in a node on stderr, and in the file that the gateway can ask for.
///
/// # Errors
/// The process logs already.
pub(crate) fn start_for_node(form: NodeLogFormat, file: NodeLogFile) -> anyhow::Result<()> {
    let filter = || {
        let requested = std::env::var(VARIABLE).ok();
        requested.and_then(|text| parse_filter(&text).ok()).unwrap_or_else(|| EnvFilter::new(OF_NODE))
    };
    let kept = fmt::layer().json().with_writer(file).with_filter(filter());
    let shown = match form {
        NodeLogFormat::Text => {
            fmt::layer().with_writer(std::io::stderr).with_ansi(false).with_target(false).with_filter(filter()).boxed()
        }
        NodeLogFormat::Json => fmt::layer().json().with_writer(std::io::stderr).with_filter(filter()).boxed(),
    };
    tracing_subscriber::registry().with(shown).with(kept).with(own_alone()).try_init()?;
    Ok(())
}

/// Suppresses log events of libraries, whatever the level: parsers and connections log the data that passes through them, and that may be
/// texts, commands and keys of users.
fn own_alone() -> FilterFn {
    fn is_shown(metadata: &Metadata<'_>) -> bool {
        let is_own = metadata.target().starts_with("countersign");
        // It warns of every error reply to a client, with what the client sent.
        is_own || *metadata.level() <= Level::WARN && !metadata.target().starts_with("rmcp")
    }
    FilterFn::new(is_shown)
}

/// Changes the filter of `handle`. `shown` is its current text, as it was requested.
fn reloadable_levels<S: 'static>(handle: reload::Handle<EnvFilter, S>, shown: String) -> LogLevels {
    let shown = Mutex::new(shown);
    LogLevels::new(move |requested| {
        let mut shown = shown.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(level) = requested {
            let parsed = EnvFilter::try_new(level).map_err(|error| error.to_string())?;
            let filter = parse_filter(level).map_err(|error| error.to_string())?;
            handle.reload(filter).map_err(|error| error.to_string())?;
            *shown = parsed.to_string();
        }
        Ok(shown.clone())
    })
}
