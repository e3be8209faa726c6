//! Consuming from a server that leaves out, refuses and garbles.

use std::sync::Arc;
use std::time::Duration;

use log_core::protocol::{ErrorCode, Refusal, RequestKind};
use parking_lot::Mutex;

use crate::hasty_client;
use crate::server::{Act, ScriptedServer};

#[tokio::test]
async fn a_member_that_is_not_answered_tries_again_over_another_connection() {
    let joins = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&joins);
    let server = ScriptedServer::start(move |asked| {
        assert_eq!(asked.kind, RequestKind::JoinGroup.number());
        let mut seen = seen.lock();
        seen.push(asked.connection);
        match seen.len() {
            1 => Act::Ignore,
            _ => Act::Refuse(Refusal::new(ErrorCode::IllegalName, "no such group")),
        }
    });
    let server = server.await;
    let client = hasty_client(&server).await;
    let builder = client.consumer().group("billing").topics(["orders"]);
    let built = builder.session_timeout(Duration::from_millis(200)).build().await;
    assert_eq!(built.unwrap_err().code(), Some(ErrorCode::IllegalName));
    let joins = joins.lock();
    assert!(joins.len() == 2 && joins[0] != joins[1], "{joins:?}");
}
