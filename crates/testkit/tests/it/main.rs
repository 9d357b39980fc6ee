//! Simulation, with faults that it must notice, the transcripts of the adapters, and the
//! first inputs of the fuzz loop.

#[cfg(feature = "whole")]
mod fuzz;
mod simulation;
#[cfg(feature = "whole")]
mod transcripts;
