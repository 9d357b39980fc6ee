//! Declarations as the engine's terms, and what the engine says of them in the words of the wire.
//!
//! It must not decide anything: the engine does.

use countersign_core::{
    ledger::{self, BudgetBreach},
    policy::{Class, Contract, ContractGap, ContractScope},
    unattended::{self, BreachPoint, ContractTerms, TermsWidening},
};
use countersign_protocol::{
    JsNumber, RawJson, WireValue,
    gjc::unattended::{
        Action, ActionDenied, BreachAction, BudgetExceeded, BudgetMetric, CommandScope, DeclarationRefusal,
        DeclaredBudget, RefusalCode, ScopeDenied, UnattendedDeclaration, phase,
    },
};

/// What the engine is told of a declaration. Limits are whole; a part of a token, a call or a micro-dollar is none.
pub(crate) fn terms(declaration: &UnattendedDeclaration) -> ContractTerms {
    let actions = declaration.action_allowlist.iter().map(|action| meant(*action));
    let (mut commands, mut classes) = (Vec::new(), Vec::new());
    for action in actions {
        match action {
            Meant::Command(scope) => commands.push(scope),
            Meant::Class(class) => classes.push(class),
        }
    }
    let DeclaredBudget { max_tokens, max_tool_calls, max_wall_time_ms, max_cost_usd } = declaration.budget;
    let whole = |number: JsNumber| Some(number.0.floor() as u64);
    ContractTerms {
        actor: declaration.actor.clone(),
        may: Contract {
            scopes: declaration.scopes.iter().map(|scope| scope_of(*scope)).collect(),
            commands: commands.into_iter().collect(),
            classes: classes.into_iter().collect(),
            tools: None,
        },
        budget: ledger::BudgetLimits {
            tokens: whole(max_tokens),
            calls: whole(max_tool_calls),
            wall_time: whole(max_wall_time_ms),
            cost_micros: Some((max_cost_usd.0 * MICROS).round() as u64),
        },
        on_breach: match declaration.on_breach {
            BreachAction::Abort => unattended::BreachResponse::End,
            BreachAction::Gate => unattended::BreachResponse::Ask,
        },
        renegotiable: declaration.renegotiable,
    }
}

const MICROS: f64 = 1_000_000.0;

enum Meant {
    Command(ContractScope),
    Class(Class),
}

fn meant(action: Action) -> Meant {
    match action {
        Action::CommandPrompt => Meant::Command(ContractScope::Prompt),
        Action::CommandControl => Meant::Command(ContractScope::Control),
        Action::CommandBash => Meant::Command(ContractScope::Bash),
        Action::CommandExport => Meant::Command(ContractScope::Export),
        Action::CommandSession => Meant::Command(ContractScope::Session),
        Action::CommandModel => Meant::Command(ContractScope::Model),
        Action::CommandMessageRead => Meant::Command(ContractScope::Messages),
        Action::CommandHostTools => Meant::Command(ContractScope::HostTools),
        Action::CommandHostUri => Meant::Command(ContractScope::HostUri),
        Action::CommandAdmin => Meant::Command(ContractScope::Admin),
        Action::BashReadonly => Meant::Class(Class::BashReadonly),
        Action::BashMutating => Meant::Class(Class::BashMutating),
        Action::BashDestructive => Meant::Class(Class::BashDestructive),
        Action::GitForcePush => Meant::Class(Class::GitForcePush),
        Action::FileDelete => Meant::Class(Class::FileDelete),
        Action::FileWrite => Meant::Class(Class::FileWrite),
        Action::HostToolInvoke => Meant::Class(Class::HostToolInvoke),
        Action::HostUriRead => Meant::Class(Class::HostUriRead),
        Action::HostUriWrite => Meant::Class(Class::HostUriWrite),
        Action::AuthLogin => Meant::Class(Class::AuthLogin),
    }
}

const fn action_of(class: Class) -> Action {
    match class {
        Class::BashReadonly => Action::BashReadonly,
        Class::BashMutating => Action::BashMutating,
        Class::BashDestructive => Action::BashDestructive,
        Class::GitForcePush => Action::GitForcePush,
        Class::FileDelete => Action::FileDelete,
        Class::FileWrite => Action::FileWrite,
        Class::HostToolInvoke => Action::HostToolInvoke,
        Class::HostUriRead => Action::HostUriRead,
        Class::HostUriWrite => Action::HostUriWrite,
        Class::AuthLogin => Action::AuthLogin,
    }
}

/// The engine's name of a scope.
pub(crate) const fn scope_of(scope: CommandScope) -> ContractScope {
    match scope {
        CommandScope::Prompt => ContractScope::Prompt,
        CommandScope::Control => ContractScope::Control,
        CommandScope::Bash => ContractScope::Bash,
        CommandScope::Export => ContractScope::Export,
        CommandScope::Session => ContractScope::Session,
        CommandScope::Model => ContractScope::Model,
        CommandScope::MessageRead => ContractScope::Messages,
        CommandScope::HostTools => ContractScope::HostTools,
        CommandScope::HostUri => ContractScope::HostUri,
        CommandScope::Admin => ContractScope::Admin,
    }
}

const fn named(scope: ContractScope) -> CommandScope {
    match scope {
        ContractScope::Prompt => CommandScope::Prompt,
        ContractScope::Control => CommandScope::Control,
        ContractScope::Bash => CommandScope::Bash,
        ContractScope::Export => CommandScope::Export,
        ContractScope::Session => CommandScope::Session,
        ContractScope::Model => CommandScope::Model,
        ContractScope::Messages => CommandScope::MessageRead,
        ContractScope::HostTools => CommandScope::HostTools,
        ContractScope::HostUri => CommandScope::HostUri,
        ContractScope::Admin => CommandScope::Admin,
    }
}

/// What was missing, in the words of the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Missing {
    Scope(CommandScope),
    Action(Action),
}

/// What the wire calls what a contract does not have.
pub(crate) fn missing(lack: &ContractGap) -> Missing {
    match lack {
        ContractGap::Scope(scope) => Missing::Scope(named(*scope)),
        ContractGap::Command(scope) => Missing::Action(named(*scope).action_class()),
        ContractGap::Class(class) => Missing::Action(action_of(*class)),
        // No declaration of this door names tools.
        ContractGap::Tool(_) => Missing::Scope(CommandScope::Admin),
    }
}

/// Whose contract it is, as refusals name it.
#[derive(Clone, Debug)]
pub(crate) struct Of {
    pub run: String,
    pub session: String,
}

impl Of {
    /// The `error` of a command that is not covered. `line` is that of a shell command.
    pub(crate) fn denied(self, lack: &ContractGap, line: Option<String>) -> RawJson {
        match missing(lack) {
            Missing::Scope(scope) => json(&ScopeDenied::new(scope, line, self.run, self.session)),
            Missing::Action(action) => json(&ActionDenied::new(action, line, self.run, self.session)),
        }
    }

    /// The `error` of a command for which there is no more.
    pub(crate) fn exceeded(self, breach: BudgetBreach, phase: String) -> RawJson {
        let (metric, [limit, observed]) = amounts(breach);
        json(&BudgetExceeded::new(metric, (limit, observed), phase, self.run, self.session))
    }
}

fn json(error: &impl WireValue) -> RawJson {
    RawJson::from_wire(error)
}

/// The metric, its limit and what was observed, in the units of declarations.
pub(crate) fn amounts(BudgetBreach { metric, limit, observed }: BudgetBreach) -> (BudgetMetric, [JsNumber; 2]) {
    #[expect(clippy::cast_precision_loss, reason = "declarations have no greater precision")]
    let of = |amount: u64| amount as f64;
    match metric {
        ledger::LedgerMetric::Tokens => (BudgetMetric::Tokens, [of(limit), of(observed)].map(JsNumber)),
        ledger::LedgerMetric::ToolCalls => (BudgetMetric::ToolCalls, [of(limit), of(observed)].map(JsNumber)),
        ledger::LedgerMetric::WallTime => (BudgetMetric::WallTime, [of(limit), of(observed)].map(JsNumber)),
        ledger::LedgerMetric::Cost => (BudgetMetric::Cost, [of(limit) / MICROS, of(observed) / MICROS].map(JsNumber)),
    }
}

/// Where a breach was noticed.
pub(crate) fn phase_of(place: &BreachPoint) -> String {
    match place {
        BreachPoint::Before(command) => phase::preflight(command),
        BreachPoint::Request => phase::preflight("turn"),
        BreachPoint::Call => phase::preflight("tool_call"),
        BreachPoint::Turn => phase::post_dispatch("prompt"),
        BreachPoint::Clock => phase::post_dispatch("wall_time"),
    }
}

/// Why a declaration was refused.
pub(crate) fn refused(refusal: &unattended::DeclareError) -> DeclarationRefusal {
    match refusal {
        unattended::DeclareError::Widens(more) => {
            DeclarationRefusal::for_widening(&more.iter().map(name_of).collect::<Vec<_>>())
        }
        unattended::DeclareError::ProposalPending(_) => DeclarationRefusal {
            code: RefusalCode::InvalidUnattendedDeclaration,
            message: "a person is asked about another declaration".to_owned(),
        },
        unattended::DeclareError::Another => DeclarationRefusal {
            code: RefusalCode::InvalidUnattendedDeclaration,
            message: "the session has a declaration of another run".to_owned(),
        },
        unattended::DeclareError::Over(breach) | unattended::DeclareError::Exceeds(breach) => over(*breach),
    }
}

/// What becomes of anything that begins work after a breach.
pub(crate) fn over(breach: BudgetBreach) -> DeclarationRefusal {
    let (metric, _) = amounts(breach);
    let message = format!("unattended run aborted: budget {} exceeded", metric.name());
    DeclarationRefusal { code: RefusalCode::UnattendedAborted, message }
}

fn name_of(widening: &TermsWidening) -> String {
    match widening {
        TermsWidening::May(lack) => match missing(lack) {
            Missing::Scope(scope) => scope.name(),
            Missing::Action(action) => action.name(),
        },
        TermsWidening::Limit(ledger::LedgerMetric::Tokens) => "max_tokens",
        TermsWidening::Limit(ledger::LedgerMetric::ToolCalls) => "max_tool_calls",
        TermsWidening::Limit(ledger::LedgerMetric::WallTime) => "max_wall_time_ms",
        TermsWidening::Limit(ledger::LedgerMetric::Cost) => "max_cost_usd",
        TermsWidening::OnBreach => "on_breach",
        TermsWidening::Renegotiable => "renegotiable",
    }
    .to_owned()
}

#[cfg(test)]
mod tests {
    use countersign_core::{
        ledger::{self, BudgetBreach},
        policy::ContractGap,
        unattended::{DeclareError, TermsWidening},
    };
    use countersign_protocol::gjc::unattended::{Action, CommandScope, UnattendedDeclaration, UsageMetering};
    use serde_json::{Value, json};

    use super::{Missing, Of, missing, name_of, refused, terms};

    fn declared(more: Value) -> UnattendedDeclaration {
        let mut declaration = json!({
            "actor": "ci",
            "budget": { "max_tokens": 2.9, "max_tool_calls": 3, "max_wall_time_ms": 4, "max_cost_usd": 0.29 },
            "scopes": [], "action_allowlist": [],
        });
        declaration.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        UnattendedDeclaration::from_json(Some(&declaration), UsageMetering::Reported).unwrap()
    }

    #[test]
    fn every_scope_and_action_is_told_to_the_engine_and_read_back_by_its_name() {
        let none = terms(&declared(json!({})));
        for scope in CommandScope::ALL {
            let terms = terms(&declared(json!({ "scopes": [scope.name()] })));
            let lacks: Vec<Missing> = terms.widenings_over(&none).iter().map(lack).collect();
            assert_eq!(lacks, if scope == CommandScope::Prompt { vec![] } else { vec![Missing::Scope(scope)] });
        }
        for action in Action::ALL {
            let terms = terms(&declared(json!({ "action_allowlist": [action.name()] })));
            let lacks: Vec<Missing> = terms.widenings_over(&none).iter().map(lack).collect();
            assert_eq!(lacks, if *action == Action::CommandPrompt { vec![] } else { vec![Missing::Action(*action)] });
        }
    }

    fn lack(widening: &TermsWidening) -> Missing {
        match widening {
            TermsWidening::May(lack) => missing(lack),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn limits_are_whole() {
        let budget = terms(&declared(json!({}))).budget;
        let want =
            ledger::BudgetLimits { tokens: Some(2), calls: Some(3), wall_time: Some(4), cost_micros: Some(290_000) };
        assert_eq!(budget, want);
    }

    #[test]
    fn what_the_engine_finds_wider_has_the_name_that_declarations_give_it() {
        let wide = json!({
            "budget": { "max_tokens": 9, "max_tool_calls": 9, "max_wall_time_ms": 9, "max_cost_usd": 9 },
            "scopes": ["admin"], "action_allowlist": ["bash.mutating"], "on_breach": "gate", "renegotiable": true,
        });
        let (before, now) = (declared(json!({})), declared(wide));
        let names: Vec<String> = terms(&now).widenings_over(&terms(&before)).iter().map(name_of).collect();
        assert_eq!(names, now.widened_parts(&before));
    }

    #[test]
    fn refusals_have_every_member_of_the_wire() {
        let of = || Of { run: "r".to_owned(), session: "s".to_owned() };
        let lack = ContractGap::Class(countersign_core::policy::Class::FileDelete);
        let denied: Value = of().denied(&lack, Some("rm x".to_owned())).decode_as().unwrap();
        assert_eq!(
            denied,
            json!({ "code": "action_denied", "action": "file.delete", "command": "rm x", "run_id": "r",
                "session_id": "s", "pre_side_effect": true })
        );
        let breach = BudgetBreach { metric: ledger::LedgerMetric::Cost, limit: 290_000, observed: 300_000 };
        let exceeded: Value = of().exceeded(breach, "prompt preflight".to_owned()).decode_as().unwrap();
        assert_eq!(
            exceeded,
            json!({ "code": "budget_exceeded", "metric": "cost", "limit": 0.29, "observed": 0.3,
                "phase": "prompt preflight", "run_id": "r", "session_id": "s", "abort_status": "aborting" })
        );
        let over = serde_json::to_value(refused(&DeclareError::Over(breach))).unwrap();
        assert_eq!(
            over,
            json!({ "code": "unattended_aborted", "message": "unattended run aborted: budget cost exceeded" })
        );
    }
}
