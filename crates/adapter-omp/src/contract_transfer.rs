//! Another session in the place of one with a contract is under the same contract, and its meters continue.

use countersign_core::{
    engine::Command,
    unattended::{Command as OfContract, ContractCarryover},
};

use super::{open_session::OpenSession, refusal_text::refusal_message};

/// Hands the contract of `old`, if it has one, on to `new`.
///
/// # Errors
/// Why `new` cannot be under it. It must not take the place of `old` then.
pub(super) async fn transfer_contract(old: &OpenSession, new: &OpenSession) -> Result<(), String> {
    let session = old.id.clone();
    let read = old.requests.read_state(move |engine| {
        let contract = engine.state().session(&session)?.unattended()?;
        let ledger = contract.ledger();
        let carried = ContractCarryover {
            under: contract.declared_in().clone(),
            // Reservations that have not come back yet count whole: their end goes to a session without readers.
            spent: ledger.total_taken(),
            began: ledger.began_at().unwrap_or_else(|| contract.declared_at()),
            declared: contract.narrower_terms().cloned().map(Box::new),
        };
        Some((Box::new(contract.terms().clone()), carried))
    });
    let Some((found, _)) = read.await else { return Err("the session is closed".to_owned()) };
    let Some((terms, carried)) = found else { return Ok(()) };
    let declare = OfContract::Declare { session: new.id.clone(), terms, carried: Some(carried) };
    new.requests.send_command(Command::Unattended(declare)).await.map(drop).map_err(|refused| refusal_message(&refused))
}
