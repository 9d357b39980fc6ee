//! Chat networks on which people see gates and answer them.
//!
//! They decide nothing: a tap becomes an answer, and the engine says whether it counts.

pub mod telegram;
