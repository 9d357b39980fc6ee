//! `audit`.

use std::{io::Write as _, path::PathBuf, process::ExitCode};

use clap::{Args, Subcommand, ValueEnum};
use countersign_core::{engine::Event, id::SessionId, time::Millis};
use serde_json::json;

use super::target::{PLACE, TargetArgs};
use crate::{
    audit::{self, MissingRecord, OutcomeArg, OutputFormat, RecordFilter, RedactScope},
    exit::print_notice,
    record_location::RecordLocation,
};

/// Which record is read.
#[derive(Args)]
pub(super) struct LogArgs {
    /// Path of the record, for example DIR/record.db of a demo [default: the gateway's]
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

    pub(super) fn record(self, at: &TargetArgs) -> anyhow::Result<RecordLocation> {
        self.log.map_or_else(|| Ok(at.data_dir()?.record()), |path| Ok(RecordLocation::File(path)))
    }
}

/// Which entries are meant; those that fit all of it.
#[derive(Args)]
#[command(next_help_heading = "Filters (an entry must match all)")]
pub(super) struct EntryFilterArgs {
    /// Entries from this time on: 2026-11-21, 2026-11-21T20:00 (UTC), or 90s, 30m, 12h, 7d ago
    #[arg(long, value_name = "TIME", value_parser = audit::parse_time)]
    since: Option<Millis>,
    /// Entries before this time
    #[arg(long, value_name = "TIME", value_parser = audit::parse_time)]
    until: Option<Millis>,
    /// Entries of this agent
    #[arg(long, value_name = "ID")]
    agent: Option<String>,
    /// Entries of this session; agent:ID for the session of an agent
    #[arg(long, value_name = "ID", conflicts_with = "agent")]
    session: Option<String>,
    /// Entries about this tool
    #[arg(long, value_name = "NAME")]
    tool: Vec<String>,
    /// Entries of this kind
    #[arg(long, value_name = "KIND", value_parser = Event::KINDS)]
    kind: Vec<String>,
    /// Entries that record this decision or outcome
    #[arg(long, value_name = "WORD", value_enum)]
    outcome: Vec<OutcomeArg>,
    /// Entries about this call or gate; the end of its id is enough
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
    /// One JSON object per line: each fact as recorded, with its content and chain hash
    Jsonl,
    /// A table for spreadsheets; formulas in it are escaped
    Csv,
}

#[derive(Subcommand)]
pub(super) enum AuditCommand {
    /// Show the newest entries: position, time (UTC), kind, event, and the rule or approver
    Tail {
        /// Number of entries
        #[arg(short = 'n', long, value_name = "COUNT", default_value_t = 20)]
        lines: usize,
        #[command(flatten)]
        which: EntryFilterArgs,
    },
    /// Verify that no entry was changed or removed; prints the first flaw, with exit code 1
    ///
    /// The hash chain alone cannot show that the newest entries were removed: pass a head that was printed earlier.
    Verify {
        /// A head that `audit verify` printed earlier; the record must still contain it
        #[arg(long, value_name = "LSN:CHAIN", value_parser = audit::parse_head)]
        head: Option<countersign_store::LogHead>,
    },
    /// Print all entries, or those that match the filters
    Export {
        /// Format of the export
        #[arg(long, value_enum, default_value = "jsonl")]
        format: ExportFormat,
        #[command(flatten)]
        which: EntryFilterArgs,
    },
    /// Permanently remove the contents of a call: arguments, result, and the texts that approvers saw and wrote
    ///
    /// Decisions, approvers and times stay, and the hash chain stays valid. The scope of a standing approval and the reason of an
    /// active denial also stay, because they are part of the decision. Refused while a gateway runs, and for a call
    /// that has not ended. Copies of the record, and messages in a messenger, are not changed.
    Redact {
        /// Id of a call or gate, or at least its last 8 characters; or the position of one entry, such as 57 or #57
        #[arg(value_name = "ID|LSN")]
        what: String,
        /// Also remove results that the agent has not received yet; the agent never gets them
        #[arg(long)]
        unreceived: bool,
    },
}

pub(super) fn run(what: AuditCommand, of: LogArgs, at: &TargetArgs) -> anyhow::Result<ExitCode> {
    let is_named = !of.is_empty();
    let (log, form) = (of.record(at)?, at.output_format());
    // A head that was printed earlier has to be in the record, and contents to remove too.
    let may_be_empty = !matches!(what, AuditCommand::Verify { head: Some(_) } | AuditCommand::Redact { .. });
    let is_verified = matches!(what, AuditCommand::Verify { .. });
    match run_on_record(what, &log, form) {
        Err(error) if may_be_empty && MissingRecord::is_unwritten(&error) => {
            if is_verified && form == OutputFormat::Json {
                let report = json!({ "records": 0, "redacted": 0, "head": null, "flaw": null });
                writeln!(std::io::stdout(), "{report}")?;
            }
            print_notice(&error.to_string());
            Ok(ExitCode::SUCCESS)
        }
        Err(error) if is_named => Err(MissingRecord::of_named(error)),
        done => done,
    }
}

fn run_on_record(what: AuditCommand, log: &RecordLocation, form: OutputFormat) -> anyhow::Result<ExitCode> {
    match what {
        AuditCommand::Tail { lines, which } => audit::print_tail(log, lines, &which.into(), form),
        AuditCommand::Verify { head } => audit::verify_record(log, head, form),
        AuditCommand::Export { format: ExportFormat::Jsonl, which } => audit::export_jsonl(log, &which.into()),
        AuditCommand::Export { format: ExportFormat::Csv, which } => {
            anyhow::ensure!(
                form == OutputFormat::Text,
                "--json and --format csv cannot be used together: remove one of them"
            );
            audit::export_csv(log, &which.into())
        }
        AuditCommand::Redact { what, unreceived } => {
            let reach = if unreceived { RedactScope::Unreceived } else { RedactScope::Received };
            audit::redact_contents(log, &what, reach, form)
        }
    }
}
