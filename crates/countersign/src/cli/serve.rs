//! `serve`.

use std::{path::PathBuf, process::ExitCode};

use clap::{Args, ValueEnum, builder::PossibleValue};
use countersign_config::{ConfigFlags, logging::LogLineFormat};

use super::target::{GlobalArgs, default_config};
use crate::serve;

#[derive(Args)]
pub(super) struct ServeArgs {
    /// The configuration [default: config.yaml in this folder]; without one, adapters listen on loopback, and those
    /// that need a credential are closed
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The rules [default: permissions.yaml next to the configuration, else in this folder]
    #[arg(long, value_name = "FILE")]
    permissions: Option<PathBuf>,
    /// The data directory, which contains the record
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// The address to listen on
    #[arg(long, value_name = "HOST")]
    host: Option<String>,
    /// The port to listen on; 0 lets the system choose
    #[arg(long, value_name = "PORT")]
    port: Option<u16>,
    /// Serve the hermes front end in this folder at /
    #[arg(long, value_name = "DIR")]
    webui: Option<PathBuf>,
    /// Log format on stderr; overrides `log.format` [default: text]
    #[arg(long, value_name = "FORMAT", value_enum, hide_default_value = true)]
    log_format: Option<LogFormatArg>,
    /// Permit listening without TLS on an address that other machines can reach
    #[arg(long)]
    insecure: bool,
}

impl ServeArgs {
    pub(super) fn run(self, before: GlobalArgs) -> anyhow::Result<ExitCode> {
        let Self { config, permissions, data, host, port, webui, log_format, insecure } = self;
        let (config, data) = (config.or(before.config).or_else(default_config), data.or(before.data));
        let log_format = log_format.map(|named| named.0);
        let flags = ConfigFlags { permissions, data, host, port, webui, log_format, insecure };
        serve::run(serve::ServeOptions { config, flags })
    }
}

/// Format of the log's lines.
#[derive(Clone, Copy, Debug)]
struct LogFormatArg(LogLineFormat);

impl ValueEnum for LogFormatArg {
    fn value_variants<'a>() -> &'a [Self] {
        &[Self(LogLineFormat::Text), Self(LogLineFormat::Json)]
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(PossibleValue::new(self.0.as_str()))
    }
}
