//! The simulation, with mistakes that it must notice, and the transcripts of the doors.

mod simulation;
#[cfg(feature = "whole")]
mod transcripts;
