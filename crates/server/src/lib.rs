//! The doors: it turns what clients send into commands of the engine, and what happens into what clients read.
//!
//! It decides nothing: what may happen is decided in core, what is done is done by the runtime.

pub mod gateway;
