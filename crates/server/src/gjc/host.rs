//! What a host lends the agent: its tools, and what it has behind URIs of its own.

mod desk;
mod lent;

use countersign_protocol::{
    gjc::{
        host_tool::{HostTool, HostToolAnswer, ToolNames},
        host_uri::{HostScheme, HostUriResult, SchemeNames},
    },
    omp::{Id, Response},
};
use countersign_runtime::Order;

use crate::omp::{Dialect, Door, Frame};

pub(crate) use desk::{Desk, Told};
pub(crate) use lent::Lent;

/// Takes over the tools of the host.
pub(super) async fn set_tools(door: &mut Door, id: Option<Id>, tools: Vec<HostTool>) {
    const NAME: &str = "set_host_tools";
    let Some(lent) = door.shelf.common.lent.clone() else { return };
    match lent.set_tools(tools) {
        Ok(tool_names) => {
            serve(door).await;
            door.write(&Response::success(id, NAME, &ToolNames { tool_names }));
        }
        Err(error) => door.write(&Response::failure(id, NAME, error.to_string())),
    }
}

/// Takes over the URI schemes of the host.
pub(super) async fn set_uri_schemes(door: &mut Door, id: Option<Id>, schemes: Vec<HostScheme>) {
    let names = SchemeNames { schemes: schemes.iter().map(|scheme| scheme.scheme.clone()).collect() };
    let Some(lent) = door.shelf.common.lent.clone() else { return };
    lent.set_schemes(schemes);
    serve(door).await;
    door.write(&Response::success(id, "set_host_uri_schemes", &names));
}

/// Has the host be given the calls of the session that is open, if it lends anything.
pub(crate) async fn serve(door: &mut Door) {
    let Dialect::Gjc(gjc) = &mut door.dialect else { return };
    let (Some(seat), Some(lent)) = (&door.seat, &door.shelf.common.lent) else { return };
    gjc.desk.serve(lent, &seat.id, &seat.answers).await;
}

/// Waits for the next thing that the host is to be told; for good in a dialect that has none.
pub(crate) async fn next(dialect: &mut Dialect) -> Order {
    match dialect {
        Dialect::Omp => std::future::pending().await,
        Dialect::Gjc(gjc) => gjc.desk.next().await,
    }
}

/// Tells the host.
pub(crate) fn tell(door: &mut Door, order: Order) {
    let Dialect::Gjc(gjc) = &mut door.dialect else { return };
    let Some(lent) = &door.shelf.common.lent else { return };
    match gjc.desk.take(order, lent) {
        Some(Told::Tool(frame)) => door.write(Frame::HostTool(&frame)),
        Some(Told::Uri(frame)) => door.write(Frame::HostUri(&frame)),
        None => {}
    }
}

/// Takes what the host says of a call of its tool. Whether it was asked for that.
pub(crate) async fn tool_answered(door: &mut Door, id: &str, answer: HostToolAnswer) -> bool {
    match &mut door.dialect {
        Dialect::Omp => false,
        Dialect::Gjc(gjc) => gjc.desk.tool_answered(id, answer).await,
    }
}

/// Takes what the host says of a request at one of its URIs. Whether it was asked for that.
pub(crate) async fn uri_answered(door: &mut Door, id: &str, result: HostUriResult) -> bool {
    match &mut door.dialect {
        Dialect::Omp => false,
        Dialect::Gjc(gjc) => gjc.desk.uri_answered(id, result).await,
    }
}

/// Ends what the host has in hand: it has gone.
pub(crate) fn leave(dialect: &mut Dialect) {
    if let Dialect::Gjc(gjc) = dialect {
        gjc.desk.leave();
    }
}
