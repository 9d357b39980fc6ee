//! Service of the gateway: it does actions and counts them, with faults in between.

use std::net::SocketAddr;

use tokio::{io::AsyncWriteExt as _, net::TcpStream};

use crate::{fixture::HistoryFixture, http};

const DONE: &str = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 14\r\nconnection: close\r\n\r\n{\"state\":\"on\"}";
const DOWN: &str = "HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";

/// Serves until its runtime ends.
pub(crate) async fn start(world: HistoryFixture) -> SocketAddr {
    http::serve(world, answer).await
}

async fn answer(mut stream: TcpStream, world: HistoryFixture) -> std::io::Result<()> {
    let Some(request) = http::request(&mut stream).await? else { return Ok(()) };
    let Some(thing) = request.path.strip_prefix("/turn/") else { return stream.write_all(DOWN.as_bytes()).await };
    tokio::time::sleep(world.pause()).await;
    if world.fails(8) {
        return stream.write_all(DOWN.as_bytes()).await;
    }
    // It breaks off before the action.
    if world.fails(4) {
        return Ok(());
    }
    world.with_ledger(|ledger| ledger.record_done(thing));
    tokio::time::sleep(world.pause()).await;
    // It breaks off after the action, or in the middle of its reply.
    if world.fails(4) {
        return Ok(());
    }
    if world.fails(4) {
        return stream.write_all(&DONE.as_bytes()[..40]).await;
    }
    stream.write_all(DONE.as_bytes()).await?;
    if world.fails(8) {
        stream.write_all(DONE.as_bytes()).await?;
    }
    Ok(())
}
