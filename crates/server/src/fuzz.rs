//! The ways in for a fuzz loop to what is read here: files of settings and rules, bodies of requests, what chat networks say.

pub use countersign_adapter_gsv::channels::webhook::fuzz::fuzz as webhook;
pub use countersign_config::fuzz::{rules, settings};
pub use countersign_http::web::body::fuzz as body;
pub use countersign_telegram::wire::fuzz as telegram;
