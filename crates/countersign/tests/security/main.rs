//! What went wrong in programs of this kind, tried here: each class of fault on every door that it can come through, with the
//! real binary. [`classes`] has the table of all of them, those that other tests show among them.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "../serve/agent.rs"]
#[allow(dead_code, reason = "its other half is used by the tests of its own door")]
mod agent;
mod approved_files;
mod browsers;
mod canaries;
mod classes;
mod door_table;
mod foreign_folders;
#[path = "../serve/gateway.rs"]
#[allow(dead_code, reason = "as the agent")]
mod gateway;
mod hidden;
#[path = "../serve/host.rs"]
mod host;
#[path = "../serve/http.rs"]
#[allow(dead_code, reason = "as the agent")]
mod http;
mod modes;
mod names;
#[path = "../gsv/outside.rs"]
#[allow(dead_code, reason = "as the agent")]
mod outside;
mod own_children;
#[path = "../gsv/peer.rs"]
#[allow(dead_code, reason = "as the agent")]
mod peer;
#[path = "../serve/place.rs"]
#[allow(dead_code, reason = "as the agent")]
mod place;
#[path = "../it/provider.rs"]
#[allow(dead_code, reason = "as the agent")]
mod provider;
#[path = "../gsv/scene.rs"]
#[allow(dead_code, reason = "as the agent")]
mod scene;
mod secrets;
#[path = "../serve/service.rs"]
#[allow(dead_code, reason = "as the agent")]
mod service;
mod shell_forms;
mod stage;
mod way_out;
#[path = "../it/wire.rs"]
#[allow(dead_code, reason = "as the agent")]
mod wire;
