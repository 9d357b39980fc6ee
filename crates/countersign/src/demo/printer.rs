//! Output of the demo, on 80 columns.
//!
//! It must not know where it comes from. All text of the model, a tool or a file passes the one escaping function first.

use std::{
    fmt,
    io::{self, Write as _},
    path::Path,
};

use countersign_core::{
    call::CallEnd,
    gate::GateResolution,
    id::PrincipalId,
    message::{ToolResult, text_of},
};
use countersign_store::{StoredRecord, VerifyReport};
use countersign_view::{GateCard, LineMode, escape, shell_quote};
use serde_json::Value;

use super::{
    driver::{self, AllowedBy, KnownCall},
    person::DemoPerson,
};
use crate::{
    audit,
    style::{ColourMode, TextStyle, cut_to_width},
    wrap::{LineWrapper, wrap_text},
};

/// Maximum width of text.
const WIDTH: usize = 78;
/// Indentation of events.
const INDENT: usize = 2;
/// Indentation of the results of tools.
const RESULT: usize = 6;
/// Maximum number of shown lines of a result.
const LINES: usize = 12;

/// The output.
pub(super) struct DemoPrinter {
    output: io::Stdout,
    paint: ColourMode,
    /// The text that is coming in.
    text: Option<LineWrapper>,
    /// Calls and what became of them, in order.
    decided: Vec<(String, String, TextStyle)>,
    /// Resolver of the last gate.
    resolver: Option<String>,
    /// True if the last line is empty.
    is_apart: bool,
}

impl DemoPrinter {
    pub(super) fn for_stdout() -> Self {
        Self {
            output: io::stdout(),
            paint: ColourMode::for_stdout(),
            text: None,
            decided: Vec::new(),
            resolver: None,
            is_apart: false,
        }
    }

    /// Prints the title, the folder and the rules.
    pub(super) fn print_intro(
        &mut self,
        project: &Path,
        rules: &[(&str, &str)],
        person: &DemoPerson,
    ) -> io::Result<()> {
        self.print_heading("Countersign demo")?;
        self.print_paragraph(
            "An agent repairs a small project. Its model is a script with fixed answers, which needs no key and no \
             network. The tools, the rules, the approval and the record are real.",
        )?;
        self.write_text(format_args!(
            "\n  {}  {}\n",
            self.paint.apply_style(TextStyle::Faint, "folder"),
            one_line(&project.display())
        ))?;
        for (at, (what, verdict)) in rules.iter().enumerate() {
            let label = self.paint.apply_style(TextStyle::Faint, if at == 0 { "rules " } else { "      " });
            self.write_text(format_args!("  {label}  {what:<48}{verdict}\n"))?;
        }
        let unasked = match person {
            DemoPerson::AtTheTerminal(_) => return Ok(()),
            DemoPerson::Yes => "You are not asked in this run: --yes allows the command that needs approval.",
            DemoPerson::No => "You are not asked in this run: --no denies the command that needs approval.",
            DemoPerson::Nobody => "No terminal is attached, so you cannot be asked in this run.",
        };
        self.write_text(format_args!("\n"))?;
        self.print_paragraph(unasked)?;
        Ok(())
    }

    /// Prints the task.
    pub(super) fn print_prompt(&mut self, text: &str) -> io::Result<()> {
        self.print_heading("The task")?;
        self.print_paragraph(text)?;
        self.print_heading("The run")
    }

    /// Prints the beginning of an answer of the model.
    pub(super) fn begin_message(&mut self, model: &str) -> io::Result<()> {
        let name = format!("{}, a scripted model", one_line(&model));
        self.write_text(format_args!("  {}\n", self.paint.apply_style(TextStyle::Strong, name)))
    }

    pub(super) fn text_begins(&mut self) -> io::Result<()> {
        self.text = Some(LineWrapper::new(INDENT, INDENT, WIDTH));
        self.write_text(format_args!("{:INDENT$}", ""))
    }

    pub(super) fn print_text(&mut self, text: &str) -> io::Result<()> {
        let Some(wrap) = &mut self.text else { return Ok(()) };
        let written = wrap.push(&escape(text, LineMode::Many));
        self.write_text(format_args!("{written}"))
    }

    pub(super) fn text_ends(&mut self) -> io::Result<()> {
        match self.text.take() {
            None => Ok(()),
            Some(wrap) => self.write_text(format_args!("{}\n\n", wrap.finish())),
        }
    }

    /// Prints a call that has ended, the reason why it was allowed, and its result.
    pub(super) fn print_call(
        &mut self,
        known: &KnownCall,
        end: CallEnd,
        result: Option<&ToolResult>,
    ) -> io::Result<()> {
        let signature = one_line(&known.content.signature);
        let (mark, tone) = match end {
            CallEnd::Done { error: false } => ("✓", TextStyle::Good),
            CallEnd::Done { error: true } => ("!", TextStyle::Bad),
            CallEnd::Failed
            | CallEnd::Denied
            | CallEnd::Refused
            | CallEnd::Expired
            | CallEnd::Limited
            | CallEnd::Skipped
            | CallEnd::Cancelled
            | CallEnd::Unknown => ("✗", TextStyle::Bad),
        };
        let resolver = if end == CallEnd::Denied { self.resolver.take() } else { None };
        let (verdict, who) = match (&known.allowed, end) {
            (_, CallEnd::Denied) => {
                let who = resolver.as_ref().map_or_else(|| "denied by a rule".to_owned(), |by| format!("denied{by}"));
                ("denied, not run".to_owned(), who)
            }
            (Some(AllowedBy { why, by: None }), _) => (one_line(&allowed_text(why)), "allowed by a rule".to_owned()),
            (Some(AllowedBy { by: Some(by), .. }), _) => {
                let text = format!("allowed{}", resolver_text(by));
                (text.clone(), text)
            }
            (None, _) => (audit::end_text(end).to_owned(), audit::end_text(end).to_owned()),
        };
        let shown = self.paint.apply_style(TextStyle::Strong, cut_to_width(&signature, WIDTH - 4));
        self.write_text(format_args!("  {} {shown}\n", self.paint.apply_style(tone, mark)))?;
        self.write_text(format_args!("    {}\n", self.paint.apply_style(TextStyle::Faint, &verdict)))?;
        self.decided.push((signature, who, tone));
        match known.content.tool.as_ref() {
            "edit" if end == (CallEnd::Done { error: false }) => self.print_change(known)?,
            _ => {
                let text = result.map(|result| text_of(&result.content)).unwrap_or_default();
                self.print_result(&without_refusal(&text))?;
            }
        }
        self.write_text(format_args!("\n"))
    }

    fn print_change(&mut self, known: &KnownCall) -> io::Result<()> {
        let of = |name: &str| known.content.arguments.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        for (sign, tone, text) in [("-", TextStyle::Bad, of("old_text")), ("+", TextStyle::Good, of("new_text"))] {
            for line in escape(&text, LineMode::Many).lines() {
                let line = cut_to_width(&format!("{sign} {line}"), WIDTH - RESULT);
                self.write_text(format_args!("{:RESULT$}{}\n", "", self.paint.apply_style(tone, line)))?;
            }
        }
        Ok(())
    }

    fn print_result(&mut self, text: &str) -> io::Result<()> {
        let text = escape(text.trim_end(), LineMode::Many);
        let count = text.lines().count();
        for line in text.lines().take(LINES) {
            let line = cut_to_width(&line.replace('\t', "    "), WIDTH - RESULT);
            self.write_text(format_args!("{:RESULT$}{}\n", "", self.paint.apply_style(TextStyle::Faint, line)))?;
        }
        if count > LINES {
            self.write_text(format_args!("{:RESULT$}… and {} more lines\n", "", count - LINES))?;
        }
        Ok(())
    }

    /// Prints the pending gate, whole.
    pub(super) fn print_card(&mut self, card: &GateCard) -> io::Result<()> {
        let bar = self.paint.apply_style(TextStyle::Asking, "│");
        let title = format!("┌ Approval needed: {}", card.title);
        self.write_text(format_args!("  {}\n", self.paint.apply_style(TextStyle::Asking, title)))?;
        for line in card.text().lines() {
            // A long line continues after a sign that no line of the card begins with.
            let line = wrap_text(line, 0, 4, WIDTH - RESULT);
            for (at, piece) in line.lines().enumerate() {
                let piece = if at == 0 { piece.to_owned() } else { piece.replacen("    ", "  ↳ ", 1) };
                self.write_text(format_args!("  {bar} {piece}\n"))?;
            }
        }
        self.write_text(format_args!("  {}\n", self.paint.apply_style(TextStyle::Asking, "└")))
    }

    /// Prints why the user cannot answer, and how to run the demo so that they can.
    pub(super) fn print_no_terminal(&mut self) -> io::Result<()> {
        self.print_paragraph(
            "No terminal is attached, so you cannot answer, and the demo denies the command. To answer yourself, run \
             `countersign demo` in a terminal, without a pipe. To decide without a terminal, add --yes or --no.",
        )
    }

    pub(super) fn ask_approval(&mut self) -> io::Result<()> {
        self.print_question("Allow it once? (y / n, or n and a reason) ")
    }

    pub(super) fn ask_again(&mut self) -> io::Result<()> {
        self.print_question("Please answer y to allow it once, or n to deny it: ")
    }

    pub(super) fn ask_why(&mut self) -> io::Result<()> {
        self.print_question("Reason for the agent (Enter for none): ")
    }

    fn print_question(&mut self, text: &str) -> io::Result<()> {
        self.write_text(format_args!("  {}", self.paint.apply_style(TextStyle::Asking, text)))
    }

    /// Goes to the next line where the person did not.
    pub(super) fn line_ends(&mut self) -> io::Result<()> {
        self.write_text(format_args!("\n"))
    }

    /// Prints the decision, and its approver.
    pub(super) fn print_resolution(&mut self, resolution: &GateResolution, by: Option<&PrincipalId>) -> io::Result<()> {
        let (tone, word) = match resolution {
            GateResolution::Allowed { .. } | GateResolution::Granted => (TextStyle::Good, "Allowed"),
            GateResolution::Denied => (TextStyle::Bad, "Denied"),
            GateResolution::Declined | GateResolution::Answered => (TextStyle::Faint, "Answered"),
            GateResolution::Expired => (TextStyle::Bad, "Denied: no answer in time"),
            GateResolution::Withdrawn => (TextStyle::Bad, "Withdrawn"),
        };
        let by = by.map_or_else(String::new, resolver_text);
        self.resolver = Some(by.clone());
        self.write_text(format_args!(
            "  {}\n\n",
            self.paint.apply_style(tone, format!("{word}{by}. This decision is in the record."))
        ))
    }

    /// Prints an answer that did not count.
    pub(super) fn print_refusal(&mut self, why: &str) -> io::Result<()> {
        self.write_text(format_args!(
            "  {}\n",
            self.paint.apply_style(TextStyle::Bad, format!("The answer was rejected: {}", one_line(&why)))
        ))
    }

    /// Prints the end of the run.
    pub(super) fn print_end(&mut self, completed: bool) -> io::Result<()> {
        if completed {
            return Ok(());
        }
        self.write_text(format_args!(
            "  {}\n",
            self.paint.apply_style(TextStyle::Bad, "The run failed; see the record.")
        ))
    }

    /// Prints the decisions, and the state of the folder outside of the project.
    pub(super) fn print_decisions(&mut self, is_published: bool) -> io::Result<()> {
        self.print_heading("Decisions")?;
        for (signature, verdict, tone) in std::mem::take(&mut self.decided) {
            let signature = cut_to_width(&signature, 49);
            self.write_text(format_args!("  {signature:<49}  {}\n", self.paint.apply_style(tone, verdict)))?;
        }
        let text = if is_published {
            "../published/greet.sh has the fix: the command ran."
        } else {
            "../published/greet.sh is as it was before: the command did not run."
        };
        self.write_text(format_args!("\n"))?;
        self.print_paragraph(text)
    }

    pub(super) fn record_begins(&mut self) -> io::Result<()> {
        self.print_heading("The record")
    }

    /// Prints one entry of the record.
    pub(super) fn print_entry(&mut self, stored: &StoredRecord, text: &str) -> io::Result<()> {
        let line = audit::format_entry(stored, &entry_text(text), audit::TimestampStyle::Time, None, ColourMode::Plain);
        let line = cut_to_width(&line, audit::COLUMNS);
        let tone = match stored.kind.as_ref() {
            "gate" | "policy" => TextStyle::Strong,
            _ => TextStyle::Faint,
        };
        self.write_text(format_args!("{}\n", self.paint.apply_style(tone, line)))
    }

    /// Prints whether the record is whole.
    pub(super) fn print_verification(&mut self, report: &VerifyReport) -> io::Result<()> {
        let verdict = match &report.flaw {
            None => self.paint.apply_style(TextStyle::Good, "chain verified"),
            Some(flaw) => self.paint.apply_style(TextStyle::Bad, format!("FLAW: {flaw}")),
        };
        self.write_text(format_args!("\n  {} entries, {verdict}.\n", report.records))?;
        let head = format!("{}:{}", report.head.lsn, report.head.chain);
        self.write_text(format_args!("  head {}\n", self.paint.apply_style(TextStyle::Faint, head)))
    }

    /// Prints the path of the record, if it stays, and the next steps.
    pub(super) fn print_closing(&mut self, record: Option<&Path>) -> io::Result<()> {
        match record {
            None => self.write_text(format_args!(
                "\n  The demo removes its folder. With --keep, the folder and its record stay.\n"
            ))?,
            Some(record) => self.write_text(format_args!(
                "\n  The record is kept. To verify it again:\n  countersign audit verify --log {}\n",
                shell_quote(one_line(&record.display()))
            ))?,
        }
        self.write_text(format_args!("\n  Next: countersign serve, or the guides in docs/start.\n"))
    }

    pub(super) fn print_interrupted(&mut self) -> io::Result<()> {
        self.write_text(format_args!(
            "\n\n  Interrupted. Running commands were stopped, and pending ones were not allowed.\n"
        ))
    }

    fn print_heading(&mut self, text: &str) -> io::Result<()> {
        let rule = "─".repeat(WIDTH.saturating_sub(text.chars().count() + 4));
        let before = if self.is_apart { "" } else { "\n" };
        self.write_text(format_args!(
            "{before}{}\n\n",
            self.paint.apply_style(TextStyle::Strong, format!("── {text} {rule}"))
        ))
    }

    fn print_paragraph(&mut self, text: &str) -> io::Result<()> {
        self.write_text(format_args!("  {}\n", wrap_text(text, INDENT, INDENT, WIDTH)))
    }

    /// Writes at once: people read along.
    fn write_text(&mut self, text: fmt::Arguments<'_>) -> io::Result<()> {
        let text = text.to_string();
        self.is_apart = text.ends_with("\n\n") || text == "\n";
        self.output.write_all(text.as_bytes())?;
        self.output.flush()
    }
}

/// Returns the reason why a call was allowed, beginning with "allowed".
fn allowed_text(why: &str) -> String {
    if why.starts_with("allowed") { why.to_owned() } else { format!("allowed {why}") }
}

/// Returns the approver of a decision, to follow a word such as "denied".
fn resolver_text(by: &PrincipalId) -> String {
    match by.as_str() {
        driver::NO_USER => ": no answer".to_owned(),
        driver::PERSON => " by you".to_owned(),
        id => format!(" by {}", one_line(&id.strip_prefix("flag:").unwrap_or(id))),
    }
}

/// Returns the result of a denied call without the sentence about a refusal if no user refused it.
fn without_refusal(text: &str) -> String {
    let Some(rest) = text.strip_prefix("Denied by ") else { return text.to_owned() };
    if rest.starts_with(driver::BY_FLAG) {
        return "Denied by --no.".to_owned();
    }
    match rest.strip_prefix(driver::NO_USER) {
        Some(rest) => {
            let reason = rest.trim_start_matches(": ").lines().next().unwrap_or_default();
            format!("{}.", reason.trim_end_matches('.'))
        }
        None => text.to_owned(),
    }
}

/// Returns the text of an entry with flags as on the command line, and without the sentence about a refusal if no user refused.
fn entry_text(text: &str) -> String {
    let is_of_user = text.contains(driver::PERSON);
    let text = text.replace("flag:--", "--");
    match text.split_once("A person refused").filter(|_| !is_of_user) {
        Some((before, _)) => format!("{}.", before.trim_end().trim_end_matches('.')),
        None => text,
    }
}

fn one_line(text: &dyn fmt::Display) -> String {
    escape(&text.to_string(), LineMode::One).into_owned()
}
