//! The rules file of a gateway that runs: who has it read again, and who changes it, one after the other.
//!
//! A change is recorded with who makes it before the file is replaced, and the rules come into force by reading the file, as
//! they would at the next start. Whatever is wrong leaves the file and the rules as they were.

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use countersign_config::{RulesText, rule_lines, yaml::LARGEST};
use countersign_core::{
    digest::Digest,
    engine::{ActiveRules, Command, Engine},
    id::PrincipalId,
    policy::Rule,
};
use countersign_files::replace::{FileAccess, replace_file};
use countersign_runtime::{InboxLane, OwnerError, OwnerHandle, tools::regular};
use tokio::sync::Semaphore;

use super::{rules, rules_error::RulesLoadError, tool_inventory::ToolInventory};

/// A change of the file: a rule that comes, goes, or replaces another.
#[derive(Clone, Debug, PartialEq)]
pub struct RuleEdit {
    /// The line, counted from 1, in which the rule or default begins that goes.
    pub instead: Option<u64>,
    /// Rule to add.
    pub comes: Option<NewRule>,
}

/// Rule to add to the file.
#[derive(Clone, Debug, PartialEq)]
pub enum NewRule {
    /// A rule that [`is_plain`].
    Plain(Rule),
    /// The text of any, as it is to stand there.
    Written(String),
}

/// Draft of the changed file.
#[derive(Clone, Debug)]
pub struct RulesDraft {
    /// Digest of the text that it was made from.
    pub seen: Digest,
    /// Lines to insert and to cut out, each after its sign.
    pub change: String,
    /// The rules that would be in force.
    pub rules: ActiveRules,
    /// Warnings for a person about the new rule.
    pub warnings: Vec<String>,
    /// The rule that comes; none if that is a default.
    pub rule: Option<Rule>,
    before: String,
    after: String,
}

/// Effect of the first rule of all in addition to its own.
const FIRST: &str = "this is the first rule. As long as there are no rules, reading files in the workspace needs no approval; \
    from the first rule on it does. To keep it as it is, also add a rule that allows \"read*\"";

/// Why a change cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum DraftError {
    /// The file cannot be read or written.
    #[error("cannot {action} {file}: {source}", file = .file.display())]
    Io {
        /// Failed action: `read` or `write`.
        action: &'static str,
        /// The file.
        file: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The text cannot be edited so.
    #[error("{file}: {why}", file = .file.display())]
    Form {
        /// The file.
        file: PathBuf,
        /// The obstacle.
        why: String,
    },
    /// The rule is in the file already.
    #[error("{file}:{line}: the file has this rule already", file = .file.display())]
    There {
        /// The file.
        file: PathBuf,
        /// Line of the problem.
        line: u32,
    },
    /// The rule would match nothing.
    #[error("{0}")]
    Idle(String),
    /// The file would not be taken.
    #[error(transparent)]
    Rules(#[from] RulesLoadError),
    /// The work on it was lost.
    #[error("internal error: the work on the rules file was interrupted")]
    Lost,
}

/// Why a change was not made, or is not in force.
#[derive(Debug, thiserror::Error)]
pub enum SaveError {
    /// The draft cannot be made.
    #[error(transparent)]
    Draft(#[from] DraftError),
    /// The file is not the one that was seen. Nothing was saved.
    #[error("the rules file has changed since this page was loaded")]
    Changed,
    /// The change was not recorded. Nothing was saved.
    #[error("{0}")]
    NotRecorded(OwnerError),
    /// The change was saved, and the rules of before are in force.
    #[error("{0}")]
    NotInForce(String),
}

/// The file of the rules, the inventory that they name, and the handle of the owner. One edit at a time.
pub struct RulesFile {
    handle: OwnerHandle,
    path: PathBuf,
    household: ToolInventory,
    turn: Semaphore,
}

impl RulesFile {
    pub fn new(handle: OwnerHandle, path: PathBuf, household: ToolInventory) -> Arc<Self> {
        Arc::new(Self { handle, path, household, turn: Semaphore::new(1) })
    }

    /// Returns the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Brings the rules of the file into force. Returns the warnings for a person about them.
    ///
    /// # Errors
    /// The problems with them, for people. Those of before stay in force.
    pub async fn reload(self: &Arc<Self>, by: Option<PrincipalId>) -> Result<Vec<String>, String> {
        let book = Arc::clone(self);
        // The caller may go away: begun work is done.
        let work = tokio::spawn(async move {
            let _turn = book.turn.acquire().await.map_err(|error| error.to_string())?;
            book.apply_file(by).await
        });
        work.await.unwrap_or_else(|error| Err(error.to_string()))
    }

    /// Returns the draft of the changed file.
    ///
    /// # Errors
    /// [`DraftError`].
    pub async fn draft_edit(self: &Arc<Self>, edit: RuleEdit) -> Result<RulesDraft, DraftError> {
        let book = Arc::clone(self);
        tokio::task::spawn_blocking(move || book.build_draft(&edit)).await.unwrap_or(Err(DraftError::Lost))
    }

    /// Returns the text of the rule or default that begins in a line of the file, counted from 1.
    ///
    /// # Errors
    /// [`DraftError::Io`], [`DraftError::Form`], [`DraftError::Lost`].
    pub async fn rule_text(self: &Arc<Self>, line: u64) -> Result<String, DraftError> {
        let book = Arc::clone(self);
        let read = move || rule_lines::rule_text(&book.read_text()?, line).map_err(|why| book.form_error(why));
        tokio::task::spawn_blocking(read).await.unwrap_or(Err(DraftError::Lost))
    }

    /// Makes a change of the file whose text has the digest `seen`, and brings its rules into force. If this is dropped, what
    /// was begun is done all the same.
    ///
    /// # Errors
    /// [`SaveError`]
    pub async fn save_edit(self: &Arc<Self>, edit: RuleEdit, seen: String, by: PrincipalId) -> Result<(), SaveError> {
        let book = Arc::clone(self);
        let work = tokio::spawn(async move {
            let _turn = book.turn.acquire().await.map_err(|_| DraftError::Lost)?;
            let draft = book.draft_edit(edit).await?;
            if draft.seen.to_string() != seen {
                return Err(SaveError::Changed);
            }
            let change = Some(draft.change.as_str().into());
            let edit = Command::EditRules { by, to: draft.rules.digest(), change };
            book.handle.source(InboxLane::Request).send_command(edit).await.map_err(SaveError::NotRecorded)?;
            let writer = Arc::clone(&book);
            let written = tokio::task::spawn_blocking(move || writer.write_draft(&draft));
            written.await.unwrap_or(Err(SaveError::Draft(DraftError::Lost)))?;
            book.apply_file(None).await.map(drop).map_err(SaveError::NotInForce)
        });
        work.await.unwrap_or(Err(SaveError::Draft(DraftError::Lost)))
    }

    async fn apply_file(self: &Arc<Self>, by: Option<PrincipalId>) -> Result<Vec<String>, String> {
        let book = Arc::clone(self);
        let read = move || (book.path.exists(), rules::load_rules(&book.path, &book.household));
        let (is_there, loaded) = tokio::task::spawn_blocking(read).await.map_err(|error| error.to_string())?;
        let loaded = loaded.map_err(|error| error.to_string())?;
        let source = self.handle.source(InboxLane::Request);
        let has_rules = |engine: &Engine| engine.rules().compiled.rules().next().is_some();
        if !is_there && source.read_state(has_rules).await.is_some_and(|(has_rules, _)| has_rules) {
            let file = self.path.display();
            return Err(format!("{file}: the file is missing; to remove all rules, save a file without rules"));
        }
        if let Some(by) = by {
            let edit = Command::EditRules { by, to: loaded.rules.digest(), change: None };
            source.send_command(edit).await.map_err(|refused| refused.to_string())?;
        }
        let warnings = loaded.start_warnings();
        let taken = source.send_command(Command::UseRules(Box::new(loaded.rules))).await;
        taken.map(|_| warnings).map_err(|refused| refused.to_string())
    }

    fn read_text(&self) -> Result<String, DraftError> {
        match regular::read_text(&self.path, LARGEST) {
            Ok(text) => Ok(text),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
            Err(source) => Err(DraftError::Io { action: "read", file: self.path.clone(), source }),
        }
    }

    fn form_error(&self, why: String) -> DraftError {
        DraftError::Form { file: self.path.clone(), why }
    }

    fn build_draft(&self, RuleEdit { instead, comes }: &RuleEdit) -> Result<RulesDraft, DraftError> {
        let form = |why: String| self.form_error(why);
        let before = self.read_text()?;
        let known = self.rules_text(&before).parse().map_err(RulesLoadError::from)?.source.rules;
        let is_old = |rule: &&Rule| Some(u64::from(rule.line)) == *instead;
        if let Some(NewRule::Plain(rule)) = comes {
            self.is_new(rule, known.rules.iter().chain(known.defaults.iter().filter(is_old)))?;
        }
        let item = comes.as_ref().map(|comes| match comes {
            NewRule::Plain(rule) => rule_lines::rule_line(rule),
            NewRule::Written(text) => text.clone(),
        });
        let (after, cut) = match (instead, &item) {
            (Some(at), item) => {
                let old = known.rules.iter().chain(&known.defaults).find(is_old);
                if matches!(comes, Some(NewRule::Plain(_))) && !old.is_none_or(is_plain) {
                    let why = format!("the rule on line {at} has fields that this form does not have: edit it as YAML");
                    return Err(form(why));
                }
                let (after, cut) = rule_lines::without_rule(&before, *at, item.as_deref()).map_err(form)?;
                (after, Some(cut))
            }
            (None, Some(item)) => (rule_lines::with_rule(&before, item).map_err(form)?, None),
            (None, None) => return Err(form("no change was given".to_owned())),
        };
        let cut = cut.iter().flat_map(|cut| cut.lines()).map(|line| format!("- {line}"));
        let come = item.iter().map(|item| rule_lines::list_entry(item, 2, "\n"));
        let come = come.flat_map(|entry| entry.lines().map(|line| format!("+ {line}")).collect::<Vec<_>>());
        let change = cut.chain(come).collect::<Vec<_>>().join("\n");
        let read = self.rules_text(&after).parse().map_err(RulesLoadError::from)?;
        let rule = item.as_ref().and_then(|_| come_into(&read.source.rules.rules, *instead)).cloned();
        if let (Some(NewRule::Written(_)), Some(rule)) = (comes, &rule) {
            self.is_new(rule, known.rules.iter().filter(|rule| !is_old(rule)))?;
        }
        if let Some(line) = instead.and_then(|at| u32::try_from(at).ok()).filter(|_| before == after) {
            return Err(DraftError::There { file: self.path.clone(), line });
        }
        let loaded = rules::check_cases(rules::compile_rules(read, &self.household)?, &self.household)?;
        let (mut warnings, mut idle) = (Vec::new(), Vec::new());
        if item.is_some() {
            let lines = rule_lines::added_lines(&before, &after);
            let is_there = |line: usize| lines.contains(&line.wrapping_sub(1));
            let line_prefix = |line: usize| format!("{}:{line}: ", self.path.display());
            let starts: Vec<String> = lines.clone().map(|line| line_prefix(line + 1)).collect();
            warnings = loaded.warnings;
            warnings.retain(|warning| starts.iter().any(|start| warning.starts_with(start.as_str())));
            idle = loaded.idle;
            idle.retain(|(line, _)| usize::try_from(*line).is_ok_and(is_there));
        }
        if let Some((_, warning)) = idle.into_iter().next() {
            return Err(DraftError::Idle(warning));
        }
        let is_first = instead.is_none() && loaded.rules.compiled.rules().nth(1).is_none();
        if is_first {
            warnings.push(FIRST.to_owned());
        }
        Ok(RulesDraft {
            seen: Digest::hash_bytes(before.as_bytes()),
            change,
            rules: loaded.rules,
            warnings,
            rule,
            before,
            after,
        })
    }

    /// Checks that no rule of `known` does the same as `rule`.
    fn is_new<'a>(&self, rule: &Rule, mut known: impl Iterator<Item = &'a Rule>) -> Result<(), DraftError> {
        // Its line is no part of its meaning.
        let same = known.find(|known| Rule { line: rule.line, ..(*known).clone() } == *rule);
        same.map_or(Ok(()), |same| Err(DraftError::There { file: self.path.clone(), line: same.line }))
    }

    fn rules_text(&self, text: &str) -> RulesText {
        RulesText { path: self.path.clone(), tightens: false, text: text.to_owned() }
    }

    fn write_draft(&self, draft: &RulesDraft) -> Result<(), SaveError> {
        if self.read_text()? != draft.before {
            return Err(SaveError::Changed);
        }
        let io = |source| DraftError::Io { action: "write", file: self.path.clone(), source };
        Ok(replace_file(&self.path, draft.after.as_bytes(), FileAccess::Private).map_err(io)?)
    }
}

/// Returns the rule that came into a file: in the place of another, or after all others.
fn come_into(rules: &[Rule], instead: Option<u64>) -> Option<&Rule> {
    match instead {
        Some(at) => rules.iter().find(|rule| u64::from(rule.line) == at),
        None => rules.last(),
    }
}

/// Reports whether a rule has no more than a pattern, an agent, an action and a description.
pub fn is_plain(rule: &Rule) -> bool {
    let Rule { pattern, tool, args, principal: _, door, target, action: _, description: _, steps, line: _ } = rule;
    let is_more = tool.is_some() || args.is_some() || door.is_some() || target.is_some() || !steps.is_empty();
    pattern.is_some() && !is_more
}
