//! `/api/v1` in the program: programs with tokens, over HTTP.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod events;
mod routes;
