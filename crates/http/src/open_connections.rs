//! How many connections are open, by door.

use countersign_runtime::meters::Gauge;

/// Of agents.
pub static AGENT_GATE: Gauge = Gauge::new();
/// Of clients, nodes and channels.
pub static GSV: Gauge = Gauge::new();
/// Replies that go on.
pub static STREAM: Gauge = Gauge::new();
/// At the port, whatever they became.
pub static HTTP: Gauge = Gauge::new();
/// Of hosts whose session lives here.
pub static ATTACHED: Gauge = Gauge::new();
