//! `audit`.

use std::{path::PathBuf, process::ExitCode};

use clap::{Args, Subcommand, ValueEnum};
use countersign_core::{engine::Event, id::SessionId, time::Millis};

use super::target::{PLACE, TargetArgs};
use crate::audit::{self, OutcomeArg, OutputFormat, RecordFilter, RedactScope};

/// Which record is read.
#[derive(Args)]
pub(super) struct LogArgs {
    /// The record itself, such as DIR/record.db of a demo [default: the gateway's]
    #[arg(long, global = true, value_name = "FILE", help_heading = PLACE, conflicts_with_all = ["config", "data"])]
    log: Option<PathBuf>,
}

impl LogArgs {
    /// Reports whether no record was named.
    pub(super) const fn is_empty(&self) -> bool {
        self.log.is_none()
    }

    /// Returns the folder of the gateway that writes it; none where a log is named.
    pub(super) fn gateway_folder(&self, at: &TargetArgs) -> anyhow::Result<Option<PathBuf>> {
        if self.log.is_some() { Ok(None) } else { Ok(Some(at.data_dir()?.folder)) }
    }

    pub(super) fn log_path(self, at: &TargetArgs) -> anyhow::Result<PathBuf> {
        self.log.map_or_else(|| Ok(at.data_dir()?.log), Ok)
    }
}

/// Which entries are meant; those that fit all of it.
#[derive(Args)]
#[command(next_help_heading = "Which entries (those that fit all of it)")]
pub(super) struct EntryFilterArgs {
    /// From this time on: 2026-11-21, 2026-11-21T20:00 (UTC), or 90s, 30m, 12h, 7d ago
    #[arg(long, value_name = "TIME", value_parser = audit::parse_time)]
    since: Option<Millis>,
    /// Before this time
    #[arg(long, value_name = "TIME", value_parser = audit::parse_time)]
    until: Option<Millis>,
    /// Of this agent
    #[arg(long, value_name = "ID")]
    agent: Option<String>,
    /// Of this session; an agent's is agent:ID
    #[arg(long, value_name = "ID", conflicts_with = "agent")]
    session: Option<String>,
    /// About this tool
    #[arg(long, value_name = "NAME")]
    tool: Vec<String>,
    /// Of this kind
    #[arg(long, value_name = "KIND", value_parser = Event::KINDS)]
    kind: Vec<String>,
    /// That say how something was decided or how it ended
    #[arg(long, value_name = "WORD", value_enum)]
    outcome: Vec<OutcomeArg>,
    /// About this call or gate, by its id or the end of it
    #[arg(long, value_name = "ID")]
    about: Option<String>,
}

impl From<EntryFilterArgs> for RecordFilter {
    fn from(which: EntryFilterArgs) -> Self {
        let EntryFilterArgs { since, until, agent, session, tool, kind, outcome, about } = which;
        let session = agent.map(|agent| format!("agent:{agent}")).or(session).map(SessionId::new);
        Self {
            since,
            until,
            session,
            tools: tool,
            kinds: kind,
            outcomes: outcome.into_iter().map(|named| named.0).collect(),
            about,
        }
    }
}

/// The forms of an export.
#[derive(Clone, Copy, ValueEnum)]
pub(super) enum ExportFormat {
    /// One JSON object a line: every fact as it was recorded, with its content and chain
    Jsonl,
    /// A table for a spreadsheet; nothing in it is taken for a formula
    Csv,
}

#[derive(Subcommand)]
pub(super) enum AuditCommand {
    /// Show the newest entries: position, time (UTC), kind, and what happened, by which rule and by whom
    Tail {
        /// How many entries
        #[arg(short = 'n', long, value_name = "COUNT", default_value_t = 20)]
        lines: usize,
        #[command(flatten)]
        which: EntryFilterArgs,
    },
    /// Check that nothing in it was changed or removed; names the first flaw and ends with 1
    ///
    /// The chain alone cannot show that its end was cut off: give a head that was printed before.
    Verify {
        /// A head that this printed before, which the record must still hold
        #[arg(long, value_name = "LSN:CHAIN", value_parser = audit::parse_head)]
        head: Option<countersign_store::LogHead>,
    },
    /// Print all of it, or what is asked for
    Export {
        /// The form
        #[arg(long, value_enum, default_value = "jsonl")]
        format: ExportFormat,
        #[command(flatten)]
        which: EntryFilterArgs,
    },
    /// Remove for good what a call was about: its arguments, its result, what a person was shown and said
    ///
    /// Who decided what when stays, and the chain still fits. What a grant covers, and the reason of a denial that binds, stay too: they
    /// are part of what was decided. Refused while a gateway runs, and for what is not over. Copies of the record, and messages in a
    /// messenger, are not reached.
    Redact {
        /// A call or gate by its id or at least its last 8 characters, or the position of one entry, such as 57 or #57
        #[arg(value_name = "ID|LSN")]
        what: String,
        /// Also what its agent did not receive yet: it will not hear of it
        #[arg(long)]
        unreceived: bool,
    },
}

pub(super) fn run(what: AuditCommand, of: LogArgs, at: &TargetArgs) -> anyhow::Result<ExitCode> {
    let (log, form) = (of.log_path(at)?, at.output_format());
    match what {
        AuditCommand::Tail { lines, which } => audit::print_tail(&log, lines, &which.into(), form),
        AuditCommand::Verify { head } => audit::verify_record(&log, head, form),
        AuditCommand::Export { format: ExportFormat::Jsonl, which } => audit::export_jsonl(&log, &which.into()),
        AuditCommand::Export { format: ExportFormat::Csv, which } => {
            anyhow::ensure!(form == OutputFormat::Text, "--json and --format csv are two forms: leave one out");
            audit::export_csv(&log, &which.into())
        }
        AuditCommand::Redact { what, unreceived } => {
            let reach = if unreceived { RedactScope::Unreceived } else { RedactScope::Received };
            audit::redact_contents(&log, &what, reach, form)
        }
    }
}
