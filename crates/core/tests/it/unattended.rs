//! Sessions that work without people: what their contracts cover, what they use up, and what becomes of them.

mod admission;
mod budgets;
mod coverage;
mod more;
mod terms;

use countersign_core::{
    engine::{ActiveRules, Command, CommandError, EngineReply},
    ledger::{BudgetAmount, BudgetLimits},
    message::StopReason,
    policy::{Class, Contract, ContractScope},
    run::{ModelAnswer, ResolvedCall},
    session::WhenBusy,
    unattended::{
        self, BreachResponse, ContractOutcome, ContractStatus, ContractTerms, HostCommandNeeds, UnattendedContract,
    },
};

use crate::stage::{Stage, Told, open, session, text, wanted};

/// Terms that cover prompts and files, without limits.
fn terms() -> ContractTerms {
    ContractTerms {
        actor: "ci".to_owned(),
        may: Contract {
            scopes: [ContractScope::Prompt].into(),
            commands: [ContractScope::Prompt].into(),
            classes: [Class::FileWrite].into(),
            tools: None,
        },
        ..ContractTerms::default()
    }
}

fn limited(budget: BudgetLimits) -> ContractTerms {
    ContractTerms { budget, ..terms() }
}

/// The same where a person is asked for more.
fn asking(budget: BudgetLimits) -> ContractTerms {
    ContractTerms { on_breach: BreachResponse::Ask, ..limited(budget) }
}

fn declare(terms: ContractTerms) -> Command {
    let terms = Box::new(terms);
    Command::Unattended(unattended::Command::Declare { session: session(), terms, carried: None })
}

fn admit(need: HostCommandNeeds) -> Command {
    Command::Unattended(unattended::Command::Admit { session: session(), need })
}

/// What `prompt` needs.
fn prompting() -> HostCommandNeeds {
    HostCommandNeeds { command: "prompt".to_owned(), scope: ContractScope::Prompt, takes_a_call: true, line: None }
}

fn under(terms: ContractTerms, rules: ActiveRules) -> Stage {
    let mut stage = Stage::new(rules);
    assert_eq!(stage.tell(declare(terms)).1, Ok(EngineReply::Unattended(ContractOutcome::InForce)));
    stage
}

/// A run under `terms` that asks the model.
fn thinking(terms: ContractTerms) -> Stage {
    let mut stage = under(terms, open());
    stage.prompt(WhenBusy::Refuse);
    stage
}

/// A run under `terms` whose model wants `calls`, of which each shares its lane or none does.
fn calling(terms: ContractTerms, calls: usize, tool: &str) -> Stage {
    let mut stage = thinking(terms);
    stage.answer(StopReason::ToolUse, (0..calls).map(|at| wanted(tool, &at.to_string())).collect(), None);
    stage
}

/// A run that wants a second call where there is only one: the first works, and a person is asked for more.
pub(crate) fn held() -> Stage {
    calling(asking(BudgetLimits { calls: Some(1), ..BudgetLimits::default() }), 2, "look")
}

fn contract(stage: &Stage) -> &UnattendedContract {
    stage.here().unattended().expect("it was declared")
}

/// Where the contract stands, in a word, and whether anything works.
fn standing(stage: &Stage) -> (&'static str, bool) {
    let word = match contract(stage).status() {
        ContractStatus::InForce => "in force",
        ContractStatus::AwaitingDecision { .. } => "asked",
        ContractStatus::Over { .. } => "over",
        ContractStatus::Settled { .. } => "settled",
    };
    (word, !stage.here().is_at_rest())
}

fn tokens(tokens: u64) -> BudgetAmount {
    BudgetAmount { tokens, ..BudgetAmount::default() }
}

fn spend(stage: &mut Stage, stop: StopReason, wanted: Vec<ResolvedCall>, spent: Option<BudgetAmount>) -> Told {
    let run = stage.run();
    let epoch = stage.engine.state().run(run).expect("it works").epoch();
    stage.answered(
        run,
        epoch,
        ModelAnswer {
            message: text(1),
            stop,
            total_tokens: 0,
            calls: wanted,
            failure: None,
            others: Vec::new(),
            spent,
        },
    )
}

fn refused(told: &Told) -> Option<unattended::DeclareError> {
    match &told.1 {
        Err(CommandError::Unattended(refusal)) => Some(refusal.clone()),
        _ => None,
    }
}
