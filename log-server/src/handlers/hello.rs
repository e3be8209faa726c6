//! Hello: who speaks, and what this server answers and allows.

use log_core::protocol::hello::{CLIENT_ID_MAX_BYTES, HelloReplyV1, HelloV1, VersionsV1};
use log_core::protocol::{ErrorCode, Refusal, RequestKind};

use crate::context::Context;

/// The oldest and the newest version of a request that is answered; `None` if it is not at all.
pub(crate) fn versions(kind: RequestKind) -> Option<(u16, u16)> {
    match kind {
        RequestKind::Authenticate => None,
        _ => Some((1, 1)),
    }
}

/// Answers a hello.
///
/// # Errors
/// `TooLarge` for a client id that is too long.
pub(crate) fn hello(context: &Context, hello: &HelloV1) -> Result<HelloReplyV1, Refusal> {
    let length = hello.client_id.len();
    if length > CLIENT_ID_MAX_BYTES {
        let why = format!("a client id of {length} bytes is over the limit");
        let numbers = [length as u64, CLIENT_ID_MAX_BYTES as u64];
        return Err(Refusal::new(ErrorCode::TooLarge, why).with_numbers(&numbers));
    }
    let answered = RequestKind::ALL.into_iter().filter_map(|kind| {
        versions(kind).map(|(min, max)| VersionsV1 { kind: kind.number(), min, max })
    });
    let config = &context.config;
    Ok(HelloReplyV1 {
        server_version: env!("CARGO_PKG_VERSION").to_owned(),
        boot_id: context.boot_id,
        server_time: context.now().as_millis(),
        versions: answered.collect(),
        frame_max_bytes: u32::try_from(config.frame_max_bytes).unwrap_or(u32::MAX),
        produce_in_flight_max: config.produce_in_flight_max,
        fetch_in_flight_max: config.fetch_in_flight_max,
        authentication: Vec::new(),
    })
}
