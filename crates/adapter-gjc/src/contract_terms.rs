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

/// Converts a declaration to contract terms. Limits are whole; a part of a token, a call or a micro-dollar counts as none.
pub(crate) fn terms_from_declaration(declaration: &UnattendedDeclaration) -> ContractTerms {
    let actions = declaration.action_allowlist.iter().map(|action| engine_action(*action));
    let (mut commands, mut classes) = (Vec::new(), Vec::new());
    for action in actions {
        match action {
            EngineAction::Command(scope) => commands.push(scope),
            EngineAction::Class(class) => classes.push(class),
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
            // An action names no tool of a server.
            servers: false,
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

enum EngineAction {
    Command(ContractScope),
    Class(Class),
}

fn engine_action(action: Action) -> EngineAction {
    match action {
        Action::CommandPrompt => EngineAction::Command(ContractScope::Prompt),
        Action::CommandControl => EngineAction::Command(ContractScope::Control),
        Action::CommandBash => EngineAction::Command(ContractScope::Bash),
        Action::CommandExport => EngineAction::Command(ContractScope::Export),
        Action::CommandSession => EngineAction::Command(ContractScope::Session),
        Action::CommandModel => EngineAction::Command(ContractScope::Model),
        Action::CommandMessageRead => EngineAction::Command(ContractScope::Messages),
        Action::CommandHostTools => EngineAction::Command(ContractScope::HostTools),
        Action::CommandHostUri => EngineAction::Command(ContractScope::HostUri),
        Action::CommandAdmin => EngineAction::Command(ContractScope::Admin),
        Action::BashReadonly => EngineAction::Class(Class::BashReadonly),
        Action::BashMutating => EngineAction::Class(Class::BashMutating),
        Action::BashDestructive => EngineAction::Class(Class::BashDestructive),
        Action::GitForcePush => EngineAction::Class(Class::GitForcePush),
        Action::FileDelete => EngineAction::Class(Class::FileDelete),
        Action::FileWrite => EngineAction::Class(Class::FileWrite),
        Action::HostToolInvoke => EngineAction::Class(Class::HostToolInvoke),
        Action::HostUriRead => EngineAction::Class(Class::HostUriRead),
        Action::HostUriWrite => EngineAction::Class(Class::HostUriWrite),
        Action::AuthLogin => EngineAction::Class(Class::AuthLogin),
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

/// Returns the engine's name of a scope.
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

const fn wire_scope(scope: ContractScope) -> CommandScope {
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

/// Missing permission, in the terms of the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MissingPermission {
    Scope(CommandScope),
    Action(Action),
}

/// Returns the wire's name of a permission that a contract lacks.
pub(crate) fn missing_permission(lack: &ContractGap) -> MissingPermission {
    match lack {
        ContractGap::Scope(scope) => MissingPermission::Scope(wire_scope(*scope)),
        ContractGap::Command(scope) => MissingPermission::Action(wire_scope(*scope).action_class()),
        ContractGap::Class(class) => MissingPermission::Action(action_of(*class)),
        // No declaration of this adapter names tools.
        ContractGap::Tool(_) => MissingPermission::Scope(CommandScope::Admin),
    }
}

/// Ids of the contract, as refusals name it.
#[derive(Clone, Debug)]
pub(crate) struct ContractIds {
    pub run: String,
    pub session: String,
}

impl ContractIds {
    /// Returns the `error` of a command that is not covered. `line` is that of a shell command.
    pub(crate) fn denied_error(self, lack: &ContractGap, line: Option<String>) -> RawJson {
        match missing_permission(lack) {
            MissingPermission::Scope(scope) => to_json(&ScopeDenied::new(scope, line, self.run, self.session)),
            MissingPermission::Action(action) => to_json(&ActionDenied::new(action, line, self.run, self.session)),
        }
    }

    /// Returns the `error` of a command for which there is no more.
    pub(crate) fn exceeded_error(self, breach: BudgetBreach, phase: String) -> RawJson {
        let (metric, [limit, observed]) = wire_amounts(breach);
        to_json(&BudgetExceeded::new(metric, (limit, observed), phase, self.run, self.session))
    }
}

fn to_json(error: &impl WireValue) -> RawJson {
    RawJson::from_wire(error)
}

/// Returns the metric, its limit and what was observed, in the units of declarations.
pub(crate) fn wire_amounts(BudgetBreach { metric, limit, observed }: BudgetBreach) -> (BudgetMetric, [JsNumber; 2]) {
    #[expect(clippy::cast_precision_loss, reason = "declarations have no greater precision")]
    let of = |amount: u64| amount as f64;
    match metric {
        ledger::LedgerMetric::Tokens => (BudgetMetric::Tokens, [of(limit), of(observed)].map(JsNumber)),
        ledger::LedgerMetric::ToolCalls => (BudgetMetric::ToolCalls, [of(limit), of(observed)].map(JsNumber)),
        ledger::LedgerMetric::WallTime => (BudgetMetric::WallTime, [of(limit), of(observed)].map(JsNumber)),
        ledger::LedgerMetric::Cost => (BudgetMetric::Cost, [of(limit) / MICROS, of(observed) / MICROS].map(JsNumber)),
    }
}

/// Returns the wire's name of the point at which a breach was noticed.
pub(crate) fn phase_of(place: &BreachPoint) -> String {
    match place {
        BreachPoint::Before(command) => phase::preflight(command),
        BreachPoint::Request => phase::preflight("turn"),
        BreachPoint::Call => phase::preflight("tool_call"),
        BreachPoint::Turn => phase::post_dispatch("prompt"),
        BreachPoint::Clock => phase::post_dispatch("wall_time"),
    }
}

/// Returns the body of a refused declaration.
pub(crate) fn refusal_body(refusal: &unattended::DeclareError) -> DeclarationRefusal {
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
        unattended::DeclareError::Over(breach) | unattended::DeclareError::Exceeds(breach) => aborted_refusal(*breach),
    }
}

/// Builds the refusal of any work that begins after a breach.
pub(crate) fn aborted_refusal(breach: BudgetBreach) -> DeclarationRefusal {
    let (metric, _) = wire_amounts(breach);
    let message = format!("unattended run aborted: budget {} exceeded", metric.name());
    DeclarationRefusal { code: RefusalCode::UnattendedAborted, message }
}

fn name_of(widening: &TermsWidening) -> String {
    match widening {
        TermsWidening::May(lack) => match missing_permission(lack) {
            MissingPermission::Scope(scope) => scope.name(),
            MissingPermission::Action(action) => action.name(),
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

    use super::{ContractIds, MissingPermission, missing_permission, name_of, refusal_body, terms_from_declaration};

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
    fn every_scope_and_action_survives_the_way_to_the_engine_and_back() {
        let none = terms_from_declaration(&declared(json!({})));
        for scope in CommandScope::ALL {
            let terms = terms_from_declaration(&declared(json!({ "scopes": [scope.name()] })));
            let lacks: Vec<MissingPermission> = terms.widenings_over(&none).iter().map(lack).collect();
            assert_eq!(
                lacks,
                if scope == CommandScope::Prompt { vec![] } else { vec![MissingPermission::Scope(scope)] }
            );
        }
        for action in Action::ALL {
            let terms = terms_from_declaration(&declared(json!({ "action_allowlist": [action.name()] })));
            let lacks: Vec<MissingPermission> = terms.widenings_over(&none).iter().map(lack).collect();
            assert_eq!(
                lacks,
                if *action == Action::CommandPrompt { vec![] } else { vec![MissingPermission::Action(*action)] }
            );
        }
    }

    fn lack(widening: &TermsWidening) -> MissingPermission {
        match widening {
            TermsWidening::May(lack) => missing_permission(lack),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn limits_are_whole() {
        let budget = terms_from_declaration(&declared(json!({}))).budget;
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
        let names: Vec<String> =
            terms_from_declaration(&now).widenings_over(&terms_from_declaration(&before)).iter().map(name_of).collect();
        assert_eq!(names, now.widened_parts(&before));
    }

    #[test]
    fn refusals_have_every_member_of_the_wire() {
        let of = || ContractIds { run: "r".to_owned(), session: "s".to_owned() };
        let lack = ContractGap::Class(countersign_core::policy::Class::FileDelete);
        let denied: Value = of().denied_error(&lack, Some("rm x".to_owned())).decode_as().unwrap();
        assert_eq!(
            denied,
            json!({ "code": "action_denied", "action": "file.delete", "command": "rm x", "run_id": "r",
                "session_id": "s", "pre_side_effect": true })
        );
        let breach = BudgetBreach { metric: ledger::LedgerMetric::Cost, limit: 290_000, observed: 300_000 };
        let exceeded: Value = of().exceeded_error(breach, "prompt preflight".to_owned()).decode_as().unwrap();
        assert_eq!(
            exceeded,
            json!({ "code": "budget_exceeded", "metric": "cost", "limit": 0.29, "observed": 0.3,
                "phase": "prompt preflight", "run_id": "r", "session_id": "s", "abort_status": "aborting" })
        );
        let over = serde_json::to_value(refusal_body(&DeclareError::Over(breach))).unwrap();
        assert_eq!(
            over,
            json!({ "code": "unattended_aborted", "message": "unattended run aborted: budget cost exceeded" })
        );
    }
}
