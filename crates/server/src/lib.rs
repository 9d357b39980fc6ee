//! The doors: it turns what clients send into commands of the engine, and what happens into what clients read.
//!
//! It decides nothing: what may happen is decided in core, what is done is done by the runtime.

pub mod agent_dir;
pub mod agent_gate;
pub mod config;
pub mod control;
pub mod gateway;
pub mod listen;
pub mod messenger;
pub mod omp;
pub mod prompt;
pub mod session_file;
mod slips;
mod strangers;
pub mod view;
pub mod yaml;
