//! Where the program's log goes: stderr, in the form and at the level that are asked for.

use countersign_config::{
    Logging,
    logging::{Form, Levels},
};
use tracing::{Level, Metadata};
use tracing_subscriber::{
    EnvFilter, filter::FilterFn, layer::SubscriberExt as _, reload, util::SubscriberInitExt as _,
};

/// What is logged where nobody says anything.
const USUAL: &str = "warn";
/// Says what is logged, before any setting.
pub(crate) const VARIABLE: &str = "COUNTERSIGN_LOG";

/// Logs what the environment says, as lines for people.
pub(crate) fn start() {
    drop(start_with(&Logging::default()));
}

/// Logs what the environment says, else the settings, and gives how that is changed.
pub(crate) fn start_with(settings: &Logging) -> Levels {
    let said = std::env::var(VARIABLE).ok().filter(|said| EnvFilter::try_new(said).is_ok());
    let level = said.or_else(|| settings.level.clone()).unwrap_or_else(|| USUAL.to_owned());
    let filter = EnvFilter::try_new(&level).unwrap_or_else(|_| EnvFilter::new(USUAL));
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(false);
    match settings.form {
        Form::Text => {
            let lines = lines.with_filter_reloading();
            let handle = lines.reload_handle();
            let _ = lines.finish().with(own_alone()).try_init();
            levels(handle)
        }
        Form::Json => {
            let lines = lines.json().flatten_event(true).with_filter_reloading();
            let handle = lines.reload_handle();
            let _ = lines.finish().with(own_alone()).try_init();
            levels(handle)
        }
    }
}

/// Keeps back what libraries tell of their work, whatever level is asked for: parsers and connections tell what passes through them, and
/// that may be anybody's words, commands and keys.
pub(crate) fn own_alone() -> FilterFn {
    fn is_told(metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("countersign") || *metadata.level() <= Level::WARN
    }
    FilterFn::new(is_told)
}

fn levels<S: 'static>(handle: reload::Handle<EnvFilter, S>) -> Levels {
    Levels::new(move |wanted| {
        let problem = |problem: &dyn std::fmt::Display| problem.to_string();
        if let Some(wanted) = wanted {
            let filter = EnvFilter::try_new(wanted).map_err(|error| problem(&error))?;
            handle.reload(filter).map_err(|error| problem(&error))?;
        }
        handle.with_current(ToString::to_string).map_err(|error| problem(&error))
    })
}
