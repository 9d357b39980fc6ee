//! The gsv door through the real binary: clients, nodes and channels over real sockets, models on loopback.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod agents;
mod approvals;
mod channels;
mod chat;
mod connect;
mod console;
mod crash;
mod crowd;
mod files;
#[path = "../serve/gateway.rs"]
#[allow(dead_code, reason = "its other half is used by the tests of other doors")]
mod gateway;
mod heartbeats;
#[path = "../serve/host.rs"]
mod host;
#[path = "../serve/http.rs"]
#[allow(dead_code, reason = "as the gateway")]
mod http;
mod jobs;
mod methods;
mod nodes;
mod nodes_in_runs;
mod outside;
#[allow(dead_code, reason = "what one part of the door needs, another does not")]
mod peer;
#[path = "../serve/place.rs"]
#[allow(dead_code, reason = "as the gateway")]
mod place;
#[path = "../it/provider.rs"]
#[allow(dead_code, reason = "as the gateway")]
mod provider;
mod real_node;
#[allow(dead_code, reason = "as the peer")]
mod scene;
#[path = "../serve/service.rs"]
#[allow(dead_code, reason = "as the gateway")]
mod service;
mod sessions;
mod settings;
mod speaking;
mod telegram;
#[cfg(feature = "otlp")]
mod traces;
mod transcripts;
mod webhook;
#[path = "../it/wire.rs"]
#[allow(dead_code, reason = "as the gateway")]
mod wire;
mod workspace;
