//! How many connections are open, by door.

use countersign_runtime::meters::Gauge;

/// Of agents.
pub(crate) static AGENT_GATE: Gauge = Gauge::new();
/// Of clients, nodes and channels.
pub(crate) static GSV: Gauge = Gauge::new();
/// Replies that go on.
pub(crate) static STREAM: Gauge = Gauge::new();
/// At the port, whatever they became.
pub(crate) static HTTP: Gauge = Gauge::new();
/// Of hosts whose session lives here.
pub(crate) static ATTACHED: Gauge = Gauge::new();
