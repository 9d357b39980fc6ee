//! Sessions that work without approvers: the coverage of their contracts, their use, and their end.

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

use crate::engine_fixture::{EngineFixture, EngineOutcome, open_rules, sample_message, session_id, tool_call};

/// Terms that cover prompts and files, without limits.
fn terms() -> ContractTerms {
    ContractTerms {
        actor: "ci".to_owned(),
        may: Contract {
            scopes: [ContractScope::Prompt].into(),
            commands: [ContractScope::Prompt].into(),
            classes: [Class::FileWrite].into(),
            tools: None,
            servers: false,
        },
        ..ContractTerms::default()
    }
}

fn limited(budget: BudgetLimits) -> ContractTerms {
    ContractTerms { budget, ..terms() }
}

/// Terms under which a person is asked for more.
fn asking(budget: BudgetLimits) -> ContractTerms {
    ContractTerms { on_breach: BreachResponse::Ask, ..limited(budget) }
}

fn declare(terms: ContractTerms) -> Command {
    let terms = Box::new(terms);
    Command::Unattended(unattended::Command::Declare { session: session_id(), terms, carried: None })
}

fn admit(need: HostCommandNeeds) -> Command {
    Command::Unattended(unattended::Command::Admit { session: session_id(), need })
}

/// Requirements of `prompt`.
fn prompting() -> HostCommandNeeds {
    HostCommandNeeds { command: "prompt".to_owned(), scope: ContractScope::Prompt, takes_a_call: true, line: None }
}

fn under(terms: ContractTerms, rules: ActiveRules) -> EngineFixture {
    let mut stage = EngineFixture::new(rules);
    assert_eq!(stage.send_command(declare(terms)).1, Ok(EngineReply::Unattended(ContractOutcome::InForce)));
    stage
}

/// Returns a run under `terms` with a model request in flight.
fn thinking(terms: ContractTerms) -> EngineFixture {
    let mut stage = under(terms, open_rules());
    stage.send_prompt(WhenBusy::Refuse);
    stage
}

/// Returns a run under `terms` whose model requests `calls`, which run together or one after the other.
fn calling(terms: ContractTerms, calls: usize, tool: &str) -> EngineFixture {
    let mut stage = thinking(terms);
    stage.answer(StopReason::ToolUse, (0..calls).map(|at| tool_call(tool, &at.to_string())).collect(), None);
    stage
}

/// Returns a run that requests a second call with a budget of one: the first works, and a person is asked for more.
pub(crate) fn held() -> EngineFixture {
    calling(asking(BudgetLimits { calls: Some(1), ..BudgetLimits::default() }), 2, "look")
}

fn contract(stage: &EngineFixture) -> &UnattendedContract {
    stage.current_session().unattended().expect("it was declared")
}

/// Returns the status of the contract, in a word, and whether anything works.
fn standing(stage: &EngineFixture) -> (&'static str, bool) {
    let word = match contract(stage).status() {
        ContractStatus::InForce => "in force",
        ContractStatus::AwaitingDecision { .. } => "asked",
        ContractStatus::Over { .. } => "over",
        ContractStatus::Settled { .. } => "settled",
    };
    (word, !stage.current_session().is_at_rest())
}

fn tokens(tokens: u64) -> BudgetAmount {
    BudgetAmount { tokens, ..BudgetAmount::default() }
}

fn spend(
    stage: &mut EngineFixture,
    stop: StopReason,
    calls: Vec<ResolvedCall>,
    spent: Option<BudgetAmount>,
) -> EngineOutcome {
    let run = stage.current_run();
    let epoch = stage.engine.state().run(run).expect("it works").epoch();
    stage.answer_run(
        run,
        epoch,
        ModelAnswer {
            message: sample_message(1),
            stop,
            total_tokens: 0,
            calls,
            failure: None,
            others: Vec::new(),
            spent,
        },
    )
}

fn refused(outcome: &EngineOutcome) -> Option<unattended::DeclareError> {
    match &outcome.1 {
        Err(CommandError::Unattended(refusal)) => Some(refusal.clone()),
        _ => None,
    }
}
