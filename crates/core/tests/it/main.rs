//! Tables of what the machines decide, each rule by its name.

mod approvals;
mod breaker;
mod call_table;
mod context;
mod edited_files;
mod engine_table;
mod gate_table;
mod gates;
mod hosts;
mod keys;
mod ledger_table;
mod owed_table;
mod peers;
mod reading;
mod recover_table;
mod requests;
mod restarts;
mod run_table;
mod runs;
mod schedule;
mod session_table;
mod settle;
mod shown;
mod snapshot_form;
mod stage;
mod states;
