//! The simulation, with mistakes that it must notice, the transcripts of the doors, and the
//! first inputs of the fuzz loop.

#[cfg(feature = "whole")]
mod fuzz;
mod simulation;
#[cfg(feature = "whole")]
mod transcripts;
