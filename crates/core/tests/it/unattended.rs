//! Sessions that work without people: what their contracts cover, what they use up, and what becomes of them.

mod admission;
mod budgets;
mod coverage;
mod more;
mod terms;

use countersign_core::{
    engine::{Command, Refusal, Reply, Rules},
    ledger::{Amount, Budget},
    message::StopReason,
    policy::{Class, Contract, ContractScope},
    run::{Answer, Wanted},
    session::WhenBusy,
    unattended::{self, Need, OnBreach, Outcome, Standing, Terms, Unattended},
};

use crate::stage::{Stage, Told, open, session, text, wanted};

/// Terms that cover prompts and files, without limits.
fn terms() -> Terms {
    Terms {
        actor: "ci".to_owned(),
        may: Contract {
            scopes: [ContractScope::Prompt].into(),
            commands: [ContractScope::Prompt].into(),
            classes: [Class::FileWrite].into(),
            tools: None,
        },
        ..Terms::default()
    }
}

fn limited(budget: Budget) -> Terms {
    Terms { budget, ..terms() }
}

/// The same where a person is asked for more.
fn asking(budget: Budget) -> Terms {
    Terms { on_breach: OnBreach::Ask, ..limited(budget) }
}

fn declare(terms: Terms) -> Command {
    let terms = Box::new(terms);
    Command::Unattended(unattended::Command::Declare { session: session(), terms, carried: None })
}

fn admit(need: Need) -> Command {
    Command::Unattended(unattended::Command::Admit { session: session(), need })
}

/// What `prompt` needs.
fn prompting() -> Need {
    Need { command: "prompt".to_owned(), scope: ContractScope::Prompt, takes_a_call: true, line: None }
}

fn under(terms: Terms, rules: Rules) -> Stage {
    let mut stage = Stage::new(rules);
    assert_eq!(stage.tell(declare(terms)).1, Ok(Reply::Unattended(Outcome::InForce)));
    stage
}

/// A run under `terms` that asks the model.
fn thinking(terms: Terms) -> Stage {
    let mut stage = under(terms, open());
    stage.prompt(WhenBusy::Refuse);
    stage
}

/// A run under `terms` whose model wants `calls`, of which each shares its lane or none does.
fn calling(terms: Terms, calls: usize, tool: &str) -> Stage {
    let mut stage = thinking(terms);
    stage.answer(StopReason::ToolUse, (0..calls).map(|at| wanted(tool, &at.to_string())).collect(), None);
    stage
}

/// A run that wants a second call where there is only one: the first works, and a person is asked for more.
pub(crate) fn held() -> Stage {
    calling(asking(Budget { calls: Some(1), ..Budget::default() }), 2, "look")
}

fn contract(stage: &Stage) -> &Unattended {
    stage.here().unattended().expect("it was declared")
}

/// Where the contract stands, in a word, and whether anything works.
fn standing(stage: &Stage) -> (&'static str, bool) {
    let word = match contract(stage).standing() {
        Standing::InForce => "in force",
        Standing::Asked { .. } => "asked",
        Standing::Over { .. } => "over",
        Standing::Settled { .. } => "settled",
    };
    (word, !stage.here().is_at_rest())
}

fn tokens(tokens: u64) -> Amount {
    Amount { tokens, ..Amount::default() }
}

fn spend(stage: &mut Stage, stop: StopReason, wanted: Vec<Wanted>, spent: Option<Amount>) -> Told {
    let run = stage.run();
    let epoch = stage.engine.state().run(run).expect("it works").epoch();
    stage.answered(
        run,
        epoch,
        Answer { said: text(1), stop, total_tokens: 0, wanted, failure: None, others: Vec::new(), spent },
    )
}

fn refused(told: &Told) -> Option<unattended::Refusal> {
    match &told.1 {
        Err(Refusal::Unattended(refusal)) => Some(refusal.clone()),
        _ => None,
    }
}
