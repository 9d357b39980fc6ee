//! MCP servers behind a gateway: cost of a call compared with the same call made directly, the list of many tools, and servers that
//! have nothing to do.

use std::{
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use serde_json::json;

use super::{
    FigureSuite,
    agent_gate::time_turns,
    figure::{BenchFigure, FigureGroup, FigureUnit, GrowthCurve, median},
    lazy_measurement, to_millis,
};
use crate::fixture::{
    gateway::{self, GatewayProcess},
    mcp_server::{McpHost, approve_servers, servers_config, tree_processor_nanos},
    scratch::ScratchFolder,
    socket::{TOKEN, TextSocket, tool_request},
};

/// Rounds of calls. The first one warms up.
const ROUNDS: usize = 5;
/// Number of servers, in figures of many tools.
const SERVERS: usize = 20;
/// Numbers of tools of all servers together.
const TOOLS: [usize; 4] = [20, 100, 1_000, 10_000];
/// The number of tools with a target.
const TOOLS_OF_TARGET: usize = 1_000;
/// Number of lists of one kind.
const LISTS: usize = 21;
/// Time in which nothing happens.
const IDLE: Duration = Duration::from_secs(20);

const RULES: &str = r#"
defaults: [ { pattern: "*", action: ask } ]
rules: [ { pattern: "mcp__*", action: allow } ]
"#;

/// Measures every figure that the suite selects.
pub(super) fn measure_all(binary: &Path, suite: &mut FigureSuite<'_>) {
    suite.group = FigureGroup::Mcp;
    let calls = lazy_measurement(|| measure_calls(binary));
    // The yardstick is the call made directly.
    suite.measure(
        BenchFigure::new("mcp: a call from a host, over the call made directly", FigureUnit::Millis).with_target(1.0),
        &mut || {
            let calls = calls.get_result()?;
            Ok((calls.of_host - calls.direct, Some(calls.direct)))
        },
    );
    suite.measure(
        BenchFigure::new("mcp: a call from an agent, over the call made directly", FigureUnit::Millis).with_target(1.0),
        &mut || {
            let calls = calls.get_result()?;
            Ok((calls.of_agent - calls.direct, Some(calls.direct)))
        },
    );
    let lists = lazy_measurement(|| measure_lists(binary));
    suite.measure(
        BenchFigure::new("mcp: list of 1,000 tools of 20 servers", FigureUnit::Millis).with_target(20.0),
        &mut || {
            let lists = lists.get_result()?;
            Ok((
                TOOLS.iter().zip(lists).find(|(tools, _)| **tools == TOOLS_OF_TARGET).context("not measured")?.1.1,
                None,
            ))
        },
    );
    // The yardstick is the same gateway without servers.
    suite.measure(
        BenchFigure::new("mcp: processor time of an idle server in a minute", FigureUnit::Millis).with_target(1.0),
        &mut || measure_idle(binary),
    );
    suite.measure_curve("mcp: list of tools", &mut || {
        Ok(GrowthCurve { unit: FigureUnit::Millis, input: "tools", points: lists.get_result()?.clone() })
    });
}

/// A gateway with approved servers.
struct McpGateway {
    process: GatewayProcess,
    folder: PathBuf,
}

impl McpGateway {
    fn start(binary: &Path, servers: usize, tools_of_each: usize) -> anyhow::Result<Self> {
        let scratch = ScratchFolder::new("mcp")?;
        let folder = scratch.path().to_owned();
        let mut config = format!(
            "{}agent: {{ token: {TOKEN} }}\nrate_limit: {{ max_requests_per_minute: 1000000000 }}\n",
            gateway::service_config(gateway::start_service()?)
        );
        if servers > 0 {
            config += &servers_config(servers, tools_of_each)?;
        }
        gateway::write_config(&scratch, &config, RULES)?;
        approve_servers(binary, &folder, servers)?;
        Ok(Self { process: GatewayProcess::run(binary, scratch)?, folder })
    }
}

/// Medians in milliseconds.
struct CallFigures {
    direct: f64,
    of_host: f64,
    of_agent: f64,
}

/// Rounds of all kinds of calls take turns, so that they see the same machine.
fn measure_calls(binary: &Path) -> anyhow::Result<CallFigures> {
    let gateway = McpGateway::start(binary, 1, 1)?;
    let mut direct = McpHost::start_direct(1)?;
    let mut host = McpHost::start_at_gateway(binary, &gateway.folder)?;
    let mut agent = TextSocket::connect_agent(&gateway.process.address)?;
    let mut ids = 0_u64..;
    let (mut of_direct, mut of_host, mut of_agent) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..=ROUNDS {
        let first = time_turns(|| direct.call("look_0"))?;
        let second = time_turns(|| host.call("mcp__s0__look_0"))?;
        let third = time_turns(|| {
            let id = ids.next().unwrap_or_default();
            agent.send_text(tool_request(id, "mcp__s0__look_0", &json!({ "key": "lamp" })))?;
            agent.expect_executed()
        })?;
        if round > 0 {
            of_direct.extend(first);
            of_host.extend(second);
            of_agent.extend(third);
        }
    }
    let nothing = "nothing was measured";
    Ok(CallFigures {
        direct: median(of_direct).context(nothing)?,
        of_host: median(of_host).context(nothing)?,
        of_agent: median(of_agent).context(nothing)?,
    })
}

/// Returns each number of tools with the time of their list.
#[expect(clippy::cast_precision_loss, reason = "sizes here are far below 2^52")]
fn measure_lists(binary: &Path) -> anyhow::Result<Vec<(f64, f64)>> {
    TOOLS.into_iter().map(|tools| Ok((tools as f64, measure_list(binary, tools)?))).collect()
}

/// Returns the milliseconds from a host's request to the last page of the list of so many tools.
fn measure_list(binary: &Path, tools: usize) -> anyhow::Result<f64> {
    let gateway = McpGateway::start(binary, SERVERS, tools / SERVERS)?;
    let mut host = McpHost::start_at_gateway(binary, &gateway.folder)?;
    let mut took = Vec::new();
    for _ in 0..LISTS {
        let begun = Instant::now();
        let listed = host.list_tools()?;
        took.push(to_millis(begun.elapsed()));
        ensure!(listed == tools, "{listed} of {tools} tools were listed");
    }
    median(took).context("nothing was measured")
}

/// Returns the processor time of one of many connected servers in a minute without calls, and that of a gateway without any. The
/// processes of the servers count.
#[expect(clippy::cast_precision_loss, reason = "the number of servers is far below 2^52")]
fn measure_idle(binary: &Path) -> anyhow::Result<(f64, Option<f64>)> {
    let without = McpGateway::start(binary, 0, 0)?;
    let alone = idle_millis(&without)?;
    drop(without);
    let gateway = McpGateway::start(binary, SERVERS, 1)?;
    let mut host = McpHost::start_at_gateway(binary, &gateway.folder)?;
    // The first call connects a server.
    (0..SERVERS).try_for_each(|number| host.call(&format!("mcp__s{number}__look_0")))?;
    let with = idle_millis(&gateway)?;
    Ok(((with - alone).max(0.0) / SERVERS as f64, Some(alone)))
}

/// Returns the milliseconds of processor time that a gateway with its servers takes in a minute without requests.
fn idle_millis(gateway: &McpGateway) -> anyhow::Result<f64> {
    // Work that the last request left is no part of it.
    std::thread::sleep(Duration::from_secs(2));
    let before = tree_processor_nanos(gateway.process.id())?;
    std::thread::sleep(IDLE);
    let used = Duration::from_nanos(tree_processor_nanos(gateway.process.id())?.saturating_sub(before));
    Ok(to_millis(used) * 60.0 / IDLE.as_secs_f64())
}
