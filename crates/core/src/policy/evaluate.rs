//! The one function that decides. The order of its steps is the policy.

use crate::{
    gate::Step,
    policy::{
        approval::ApprovalMode,
        bound::Caller,
        compile::Compiled,
        constraints::Constraints,
        contract::{Contract, Lack},
        floor,
        grants::Grants,
        indirect,
        narrow::NarrowPath,
        needs, obeyed, path, secrets,
        shell::{self, Line, Piece, Wild},
        signature,
        spelling::{Spelled, Spellings},
        subject::{Reach, Subject},
        table::{Lookup, Table},
        verdict::{Cause, Verdict, Why},
    },
    time::Millis,
    tool::{Effect, Shell},
};

/// What stands where no rules do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Posture {
    /// Under `serve` and `demo`: what only reads inside the workspace may happen, the rest asks.
    Gateway,
    /// At the stdio doors: tools run unasked, as their hosts expect, except what the floor holds.
    Stdio,
}

/// What surrounds the calls: folders that have a meaning for every one of them. All absolute.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Surroundings {
    /// The home folder that `~` and `$HOME` stand for in the shell; none makes them unknown.
    pub home: Option<String>,
    /// Folders for temporary files, where deleting harms nobody.
    pub temporary: Vec<String>,
    /// Files and folders of the gateway itself that no governed tool may write, whether they exist or not.
    pub protected: Vec<String>,
    /// Those of them that no governed tool may read either: where keys and rules lie.
    pub unreadable: Vec<String>,
    /// The door of calls that do not name one, such as that of a process with only one.
    pub door: Option<String>,
    /// Which grants for good hold, where sessions of several agent directories share a log: those of this realm. None means
    /// those of the log itself.
    pub realm: Option<String>,
    /// Which calls of the agent a person approves each time.
    pub approval: ApprovalMode,
}

/// Everything that a decision is made from, besides its subject.
#[derive(Clone, Copy, Debug)]
pub struct Layers<'a> {
    /// The rules.
    pub compiled: &'a Compiled,
    /// Denials that bind.
    pub constraints: &'a Constraints,
    /// The contract of an unattended run.
    pub contract: Option<&'a Contract>,
    /// What people granted.
    pub grants: &'a Grants,
    /// What stands where no rules do.
    pub posture: Posture,
    /// Folders with a meaning.
    pub surroundings: &'a Surroundings,
}

/// Decides about `subject` at `now`.
///
/// In this order: protected paths and deny rules, a person's denial, the unattended contract, the floor, allow rules, grants, ask rules, defaults in order, the posture.
/// A service call that may reach what a deny rule is about, through an area or another selector, is asked about whatever allows it.
/// A change of a file that other programs obey is allowed by rules and grants alone that name it.
/// What that allows or asks is asked for this once if the approval mode says so.
/// A shell line is judged by every simple command in it. Where a call uses secrets, the use of each is judged beside it, and the strictest
/// verdict counts.
pub fn evaluate(layers: &Layers<'_>, subject: &Subject, now: Millis) -> Verdict {
    secrets::released(layers, subject, by_itself(layers, subject, now), now)
}

fn by_itself(layers: &Layers<'_>, subject: &Subject, now: Millis) -> Verdict {
    let line = shell::line_of(subject, layers.surroundings);
    let obeyed = obeyed::of_subject(subject, layers.surroundings.home.as_deref());
    let lists = signature::of_lists(&subject.tool, &subject.named, &subject.arguments, &subject.signature);
    let spellings = Spellings::of(subject, layers.surroundings.home.as_deref());
    let judge = Judge { layers, subject, line: line.as_ref(), obeyed, lists, spellings, is_of_secret: false };
    let why = |cause| Why { cause, policy: layers.compiled.digest() };
    judge
        .denied(now)
        .map(|cause| Verdict::Deny(why(cause)))
        .or_else(|| {
            let reason = judge.floor()?;
            Some(Verdict::Ask(why(Cause::Floor { reason, steps: judge.steps() })))
        })
        .unwrap_or_else(|| match (judge.covered(now), layers.surroundings.approval.reason(subject)) {
            (Outcome::Deny(cause), _) => Verdict::Deny(why(cause)),
            // Like the floor: one answer for this once, whatever rules and grants allow.
            (_, Some(reason)) => Verdict::Ask(why(Cause::Floor { reason, steps: judge.steps() })),
            (Outcome::Allow(cause), None) => Verdict::Allow(why(cause)),
            (Outcome::Ask(cause), None) => Verdict::Ask(why(cause)),
        })
}

pub(super) struct Judge<'a> {
    layers: &'a Layers<'a>,
    subject: &'a Subject,
    line: Option<&'a Line>,
    /// The files that a call would change and that other programs obey, but for those of a line.
    obeyed: Vec<NarrowPath>,
    /// Signatures that lists among the arguments may come to. Rules that deny or ask see them too.
    lists: Vec<String>,
    /// The other spellings of the paths that such a call names.
    spellings: Spellings<'a>,
    /// Whether the subject is the use of a secret, which only rules that name secrets allow.
    is_of_secret: bool,
}

pub(super) enum Outcome {
    Allow(Cause),
    Deny(Cause),
    Ask(Cause),
}

impl<'a> Judge<'a> {
    /// About the use of a secret.
    pub(super) fn of_secret(layers: &'a Layers<'a>, subject: &'a Subject) -> Self {
        let (obeyed, lists, spellings) = (Vec::new(), Vec::new(), Spellings::default());
        Self { layers, subject, line: None, obeyed, lists, spellings, is_of_secret: true }
    }

    /// What rules and defaults say of the use of a secret. What nothing is said of is asked.
    pub(super) fn secret_ruled(&self) -> Outcome {
        let tables = self.layers.compiled.tables();
        match self.touched(&tables.deny) {
            Some(rank) => Outcome::Deny(Cause::Rule(tables.named(rank))),
            None => self.ruled(),
        }
    }
}

impl Judge<'_> {
    fn denied(&self, now: Millis) -> Option<Cause> {
        let tables = self.layers.compiled.tables();
        self.protected()
            .map(|path| Cause::Protected { path })
            .or_else(|| self.unreadable().map(|path| Cause::Unreadable { path }))
            .or_else(|| self.touched(&tables.deny).map(|rank| Cause::Rule(tables.named(rank))))
            .or_else(|| {
                let stop = self.layers.constraints.stops(self.subject, now)?;
                let session = stop.session.clone();
                Some(Cause::Constraint { by: stop.by.clone(), reason: stop.reason.clone(), until: stop.until, session })
            })
            .or_else(|| Some(Cause::Contract { lacks: self.lacks()? }))
    }

    /// What the contract does not cover. It knows no folders in which deleting harms nobody.
    fn lacks(&self) -> Option<Lack> {
        let contract = self.layers.contract?;
        let surroundings = self.layers.surroundings;
        if surroundings.temporary.is_empty() || self.line.is_none() {
            return contract.lacks(self.subject, self.line);
        }
        let place = shell::ShellContext { temporary: Vec::new(), ..shell::context_of(self.subject, surroundings) };
        contract.lacks(self.subject, shell::line_in(self.subject, &place).as_ref())
    }

    fn protected(&self) -> Option<String> {
        match self.line {
            Some(line) => line.protected.clone(),
            None => floor::protected(self.subject, self.layers.surroundings),
        }
    }

    fn unreadable(&self) -> Option<String> {
        match self.line {
            Some(line) => line.unreadable.clone(),
            None => floor::unreadable(self.subject, self.layers.surroundings),
        }
    }

    fn floor(&self) -> Option<String> {
        match self.line {
            Some(line) => line.floor.clone().or_else(|| needs::reason(self.subject)),
            None => floor::reason(self.subject, self.layers.surroundings),
        }
    }

    /// Who has to allow, as far as rules alone say so. What holds a call for another reason must not make it easier.
    fn steps(&self) -> Vec<Step> {
        if !self.layers.compiled.tables().has_steps {
            return Vec::new();
        }
        match self.ruled() {
            Outcome::Ask(Cause::Rule(rule) | Cause::Default(rule)) => rule.steps,
            Outcome::Ask(_) | Outcome::Allow(_) | Outcome::Deny(_) => Vec::new(),
        }
    }

    fn covered(&self, now: Millis) -> Outcome {
        let outcome = self.ruled();
        let may_reach = self.may_reach(&outcome);
        match &outcome {
            Outcome::Allow(Cause::Rule(_)) if may_reach.is_none() => outcome,
            // What particular people have to allow, or several, is not covered by what one of them allowed once.
            Outcome::Ask(Cause::Rule(rule) | Cause::Default(rule)) if !rule.steps.is_empty() => outcome,
            _ => match (self.granted(may_reach.as_ref(), now), may_reach, outcome) {
                (Some(granted), _, _) => granted,
                (None, Some(cause), Outcome::Allow(_) | Outcome::Ask(_)) => Outcome::Ask(cause),
                (None, _, outcome) => outcome,
            },
        }
    }

    /// The denial that a call may break though its signatures do not say so. A person has to look at such a call, whatever allows it.
    /// A default denies what no default before it allows.
    fn may_reach(&self, outcome: &Outcome) -> Option<Cause> {
        let tables = self.layers.compiled.tables();
        let denying = [self.of(&tables.deny), self.of(&tables.tighten_deny)];
        let default_deny = self.of(&tables.default_deny);
        let default_allow = match outcome {
            Outcome::Allow(Cause::Default(_)) => self.covering(&tables.default_allow).ok(),
            _ => None,
        };
        let (tool, arguments) = (&self.subject.tool, &self.subject.arguments);
        let by_service = indirect::possible_calls(self.subject).into_iter().find_map(|possible| {
            let met = denying.iter().filter_map(|table| table.first_possible(tool, arguments, &possible));
            let by_default = || {
                let denied = default_deny.first_possible(tool, arguments, &possible)?;
                (denied < default_allow?).then_some(denied)
            };
            Some((met.min().or_else(by_default)?, possible.through))
        });
        // Of a shell line: the words that are only known when it runs.
        let by_line = || {
            self.line?.begun().find_map(|begun| {
                let met = denying.iter().filter_map(|table| table.first_going_on(begun)).min();
                let by_default = || {
                    let denied = default_deny.first_going_on(begun)?;
                    (denied < default_allow?).then_some(denied)
                };
                Some((
                    met.or_else(by_default)?,
                    format!("{begun}…, which goes on with what is only known when it runs,"),
                ))
            })
        };
        let (rank, through) = by_service.or_else(by_line)?;
        Some(Cause::MayReach { denial: tables.named(rank), through })
    }

    /// What a person granted. Where the call may break a denial, only a grant of this very call counts.
    fn granted(&self, may_reach: Option<&Cause>, now: Millis) -> Option<Outcome> {
        let grants = self.layers.grants;
        let realm = self.layers.surroundings.realm.as_deref();
        let exact = grants.exact(self.subject, realm, now);
        let by_pattern = || grants.by_pattern(self.subject, self.line, &self.narrow(), &self.spellings, realm, now);
        let is_covered = || may_reach.is_none() && self.perhaps_denied().is_none();
        let grant = exact.or_else(|| by_pattern().filter(|_| is_covered()))?;
        Some(Outcome::Allow(Cause::Grant { id: grant.id, by: grant.by.clone() }))
    }

    /// What rules, defaults and the posture come to, whatever was granted.
    fn ruled(&self) -> Outcome {
        let tables = self.layers.compiled.tables();
        let tightened = self.touched(&tables.tighten);
        let (allowed, uncovered) = match self.covering(&tables.allow) {
            Ok(rank) => (Some(rank), None),
            Err(uncovered) => (None, uncovered),
        };
        if let Some(rank) = allowed.filter(|_| tightened.is_none()) {
            return Outcome::Allow(Cause::Rule(tables.named(rank)));
        }
        if let Some(rank) = self.touched(&tables.tighten_deny).filter(|_| allowed.is_none()) {
            return Outcome::Deny(Cause::Default(tables.named(rank)));
        }
        let asked = match tightened {
            // Nor who has to allow, where the owner's rules say so.
            Some(rank) if tables.has_steps && !tables.demands(rank) => {
                let own = self.touched(&tables.ask).filter(|_| allowed.is_none());
                own.filter(|own| tables.demands(*own)).or(Some(rank))
            }
            Some(rank) => Some(rank),
            None => self.touched(&tables.ask),
        };
        let default = self.default();
        match (asked, default) {
            // A repository's ask must not soften a deny among the owner's defaults.
            (Some(_), Some(Outcome::Deny(cause))) if tightened.is_some() && allowed.is_none() => Outcome::Deny(cause),
            (Some(rank), _) => Outcome::Ask(Cause::Rule(tables.named(rank))),
            // What an ask for everything does not say, people are told.
            (None, Some(Outcome::Ask(Cause::Default(rule)))) if rule.steps.is_empty() && self.held().is_some() => {
                self.posture(self.held())
            }
            (None, Some(outcome)) => outcome,
            (None, None) => self.posture(self.held().or(uncovered)),
        }
    }

    /// The paths that a rule has to name, beside those of a line.
    fn narrow(&self) -> Vec<&NarrowPath> {
        self.obeyed.iter().collect()
    }

    /// What no broad rule covers, for people: a change of a file that other programs obey.
    fn held(&self) -> Option<String> {
        let narrow = self.line.and_then(Line::obeyed).or_else(|| self.obeyed.first());
        narrow.map(ToString::to_string)
    }

    /// The first default that matches. Of the commands of a shell line each has its own; the strictest counts.
    fn default(&self) -> Option<Outcome> {
        let tables = self.layers.compiled.tables();
        let deny = self.touched(&tables.default_deny);
        let ask = self.touched(&tables.default_ask);
        let allow = self.covering(&tables.default_allow).ok();
        match self.line {
            None => [(allow, 0), (deny, 1), (ask, 2)].into_iter().filter_map(|(rank, kind)| Some((rank?, kind))).min(),
            Some(line) => self.strictest_default(line),
        }
        .map(|(rank, kind)| {
            let cause = Cause::Default(tables.named(rank));
            match kind {
                0 => Outcome::Allow(cause),
                1 => Outcome::Deny(cause),
                _ => Outcome::Ask(cause),
            }
        })
    }

    fn strictest_default(&self, line: &Line) -> Option<(usize, u8)> {
        let tables = self.layers.compiled.tables();
        let (allow, deny, ask) =
            (self.of(&tables.default_allow), self.of(&tables.default_deny), self.of(&tables.default_ask));
        let everything = self.everything(&allow);
        let structured = [(self.structured(&deny, |_| true), 1), (self.structured(&ask, |_| true), 2)];
        let mut all_allowed = true;
        let mut strictest: Option<(usize, u8)> = None;
        for command in line.pieces() {
            // What may be denied once it is known is allowed by no default but a bare `*`.
            let may_be_denied = command.begun().iter().any(|begun| deny.may_go_on(begun))
                || command.wild().iter().any(|wild| deny.may_match(wild));
            let covered = command.covered_by(&|text, paths| self.first_allowing(&allow, text, paths), everything);
            let patterns = [
                (covered.filter(|rank| !may_be_denied || everything == Some(*rank)), 0),
                (self.touches(&command, &deny), 1),
                (self.touches(&command, &ask), 2),
            ];
            let found = patterns.into_iter().chain(structured).filter_map(|(rank, kind)| Some((rank?, kind))).min();
            let strictness = |kind: u8| [0, 2, 1][usize::from(kind)];
            match found {
                Some((_, 0)) => strictest = strictest.or(found),
                Some((_, kind)) => {
                    all_allowed = false;
                    if strictest.is_none_or(|(_, known)| strictness(known) < strictness(kind)) {
                        strictest = found;
                    }
                }
                None => {
                    all_allowed = false;
                }
            }
        }
        strictest.filter(|(_, kind)| *kind != 0 || all_allowed)
    }

    /// The rules of `table` that are bound to whoever wants this, or to nobody.
    fn of<'t>(&self, table: &'t Table) -> Lookup<'t> {
        table.of(Caller::of(self.subject, self.layers.surroundings.door.as_deref()))
    }

    fn touches(&self, piece: &Piece<'_>, table: &Lookup<'_>) -> Option<usize> {
        let whole = table.first(&self.subject.signature).filter(|_| piece.is_opaque());
        whole.into_iter().chain(piece.touched_by(&|text| table.first(text))).min()
    }

    fn posture(&self, uncovered: Option<String>) -> Outcome {
        if !self.is_of_secret && !self.layers.compiled.has_rules() {
            match self.layers.posture {
                Posture::Stdio => return Outcome::Allow(Cause::NoRules),
                Posture::Gateway if self.reads_inside() => return Outcome::Allow(Cause::ReadsInside),
                Posture::Gateway => {}
            }
        }
        Outcome::Ask(Cause::Unmatched { uncovered })
    }

    fn reads_inside(&self) -> bool {
        let subject = self.subject;
        subject.shell == Shell::Nothing
            && subject.effect == Effect::Reads
            && subject.reach == Reach::Files
            && subject.paths.iter().chain(&subject.leads_to).all(|path| {
                !path.starts_with('~')
                    && path::is_within(&path::resolve("/", &subject.cwd), &path::resolve(&subject.cwd, path))
            })
    }

    /// The first deny or ask rule that any part of the subject meets.
    fn touched(&self, table: &Table) -> Option<usize> {
        let table = self.of(table);
        let whole = self.subject.signatures().filter_map(|signature| table.first(signature)).min();
        let lists = self.lists.iter().filter_map(|text| table.first_that_may(text));
        let parts = self.line.and_then(|line| line.touched_by(&|text| table.first(text)));
        let spelled = self.spellings.first_in(&table);
        whole.into_iter().chain(lists).chain(parts).chain(self.structured(&table, |_| true)).chain(spelled).min()
    }

    /// The last of the allow rules that it takes to cover the whole of the subject, or what they leave uncovered.
    fn covering(&self, table: &Table) -> Result<usize, Option<String>> {
        let table = self.of(table);
        let narrow = self.narrow();
        let names = |rank: usize| self.layers.compiled.tables().names(rank, &narrow);
        let structured = || self.structured(&table, |rank| self.may_allow(rank) && names(rank));
        if let Some(rank) = self.line.is_none().then(structured).flatten() {
            return self.reached(&table).map(|reached| rank.max(reached)).map_err(Some);
        }
        match self.line {
            Some(line) => {
                let everything = self.everything(&table);
                if let Some(rule) = self.perhaps_denied().filter(|_| everything.is_none()) {
                    return Err(Some(rule));
                }
                let first = |text: &str, paths: &[&NarrowPath]| self.first_allowing(&table, text, paths);
                line.covered_by(&first, everything).map_err(Some)
            }
            None => {
                let first = |text: &str| self.first_allowing(&table, text, &[]);
                let ranks: Option<Vec<usize>> = self.subject.signatures().map(first).collect();
                let rank = ranks.and_then(|ranks| ranks.into_iter().max()).ok_or(None)?;
                self.reached(&table).map(|reached| rank.max(reached)).map_err(Some)
            }
        }
    }

    /// The last of the allow rules that it takes to cover the files which paths lead to that are not plain.
    fn reached(&self, table: &Lookup<'_>) -> Result<usize, String> {
        let (tables, narrow) = (self.layers.compiled.tables(), self.narrow());
        self.spellings.covered_by(&|spelled: &Spelled| {
            let wanted = |rank: usize| {
                self.may_allow(rank) && tables.names(rank, &narrow) && tables.steps_up(rank) >= spelled.steps_up
            };
            self.spellings.first_for(table, spelled, wanted)
        })
    }

    /// What a deny rule may turn out to say of a line that goes on with what is only known when it runs, such as `git $X` where
    /// `git push*` is denied. Only a person, or a bare `*`, lets that pass.
    fn perhaps_denied(&self) -> Option<String> {
        let tables = self.layers.compiled.tables();
        let denying = [self.of(&tables.deny), self.of(&tables.tighten_deny)];
        let line = self.line?;
        let begun = line.begun().find(|begun| denying.iter().any(|table| table.may_go_on(begun)));
        if let Some(found) = begun {
            return Some(format!("{found}…, which goes on with what is only known when it runs, and may be denied"));
        }
        let wild = line.wild().find(|wild| denying.iter().any(|table| table.may_match(wild)))?;
        Some(format!("{}, which may be denied once files give it names", wild.text.replace(Wild::SIGN, "*")))
    }

    fn structured(&self, table: &Lookup<'_>, wanted: impl Fn(usize) -> bool) -> Option<usize> {
        table.first_structured(&self.subject.tool, &self.subject.arguments, wanted)
    }

    /// The first rule with a bare `*` that allows. None for a change of what other programs obey.
    fn everything(&self, table: &Lookup<'_>) -> Option<usize> {
        table.everything().filter(|rank| self.may_allow(*rank) && self.obeyed.is_empty())
    }

    /// The first rule that matches `text` and allows it, and names `paths` and the files of the call that other programs obey.
    fn first_allowing(&self, table: &Lookup<'_>, text: &str, paths: &[&NarrowPath]) -> Option<usize> {
        let (tables, narrow) = (self.layers.compiled.tables(), self.narrow());
        let names = |rank: usize| tables.names(rank, paths) && tables.names(rank, &narrow);
        table.first_where(text, |rank| self.may_allow(rank) && names(rank))
    }

    /// Whether a rule that allows and matches was meant for this.
    fn may_allow(&self, rank: usize) -> bool {
        let tables = self.layers.compiled.tables();
        (!self.is_of_secret || tables.names_secrets(rank))
            && (self.subject.undeclared.is_empty() || tables.covers_undeclared(rank))
    }
}

#[cfg(test)]
mod tests;
