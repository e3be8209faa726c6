//! Listener: accepts connections, and deals them out to the threads that serve them.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use log_core::protocol::{ErrorCode, Refusal};
use rustix::net::sockopt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::UnboundedSender;

use crate::connection;
use crate::context::Context;
use crate::shutdown::Phase;

/// How many connections may wait to be accepted.
pub(crate) const BACKLOG: i32 = 1_024;
/// How long nothing is accepted after the system has run out of something.
const PAUSE: Duration = Duration::from_millis(100);
/// A peer that is silent for so long is asked whether it lives, …
const KEEPALIVE_AFTER: Duration = Duration::from_secs(60);
/// … and asked again after so long.
const KEEPALIVE_EVERY: Duration = Duration::from_secs(10);
/// The most connections over the limit that are told so, rather than cut off at once.
const TURNED_AWAY_MAX: usize = 256;

/// A connection that was accepted, on its way to its thread.
#[derive(Debug)]
pub(crate) struct Accepted {
    pub(crate) id: u64,
    pub(crate) stream: std::net::TcpStream,
    pub(crate) address: SocketAddr,
}

/// Accepts connections until the server stops.
pub(crate) async fn listen(
    context: Arc<Context>,
    listener: TcpListener,
    threads: Vec<UnboundedSender<Accepted>>,
) {
    let mut turned_away = tokio::task::JoinSet::new();
    let mut dealt = threads.iter().cycle();
    for id in 1.. {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = context.shutdown.reached(Phase::Draining) => return,
        };
        while turned_away.try_join_next().is_some() {}
        let (stream, address) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection; trying again soon");
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        let limit = context.config.connections_max;
        if context.shutdown.connection_opened() > limit {
            context.shutdown.connection_closed();
            context.metrics.connections_refused.add(1);
            tracing::warn!(%address, limit, "refused a connection: there are as many as may be");
            if turned_away.len() < TURNED_AWAY_MAX {
                let why = format!("the server has {limit} connections, as many as it may");
                let refusal = Refusal::new(ErrorCode::LimitReached, why);
                turned_away
                    .spawn_local(async move { connection::turn_away(stream, &refusal).await });
            }
            continue;
        }
        context.metrics.connections_accepted.add(1);
        let sent = prepare(&context, stream).map(|stream| {
            let accepted = Accepted { id, stream, address };
            dealt.next().is_some_and(|thread| thread.send(accepted).is_ok())
        });
        if !matches!(sent, Ok(true)) {
            context.shutdown.connection_closed();
        }
    }
}

/// Sets what matters for latency, and for peers that are gone without a word.
fn prepare(context: &Context, stream: TcpStream) -> io::Result<std::net::TcpStream> {
    stream.set_nodelay(true)?;
    sockopt::set_socket_keepalive(&stream, true)?;
    sockopt::set_tcp_keepidle(&stream, KEEPALIVE_AFTER)?;
    sockopt::set_tcp_keepintvl(&stream, KEEPALIVE_EVERY)?;
    let unacknowledged = context.config.write_timeout.as_millis();
    let unacknowledged = u32::try_from(unacknowledged).unwrap_or(u32::MAX);
    sockopt::set_tcp_user_timeout(&stream, unacknowledged)?;
    stream.into_std()
}
