//! The simulation: many seeds, and mistakes that it must notice.

mod simulation;
