//! Consuming from a server that leaves out, refuses and garbles.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use log_client::{Client, ClientConfig, CommitMode, Error};
use log_core::StartFrom;
use log_core::protocol::fetch::FetchRequest;
use log_core::protocol::offsets::{CommitOffsetsReplyV1, FetchOffsetsReplyV1};
use log_core::protocol::{ErrorCode, Refusal, RequestKind};
use parking_lot::Mutex;
use tokio::time::timeout;

use crate::fake_log::{FakeLog, TOPIC};
use crate::hasty_client;
use crate::server::{Act, ScriptedServer, reply};

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

#[tokio::test]
async fn answers_to_fetches_that_cannot_be_used_are_told_once() {
    let server = ScriptedServer::start(|asked| match RequestKind::from_number(asked.kind) {
        Some(RequestKind::Fetch) => {
            let request = FetchRequest::decode(&asked.body).unwrap();
            assert!(request.max_bytes < 100_000, "it fits into a frame: {}", request.max_bytes);
            Act::Reply(Bytes::from_static(b"garbled"))
        }
        _ => FakeLog::new(1).answer(&asked),
    });
    let server = server.await;
    let config =
        ClientConfig { frame_max_bytes: 100_000, ..ClientConfig::at(server.address.to_string()) };
    let client = Client::with(config).await.unwrap();
    let at = [(TOPIC, 0, StartFrom::Offset(0))];
    let mut consumer = client.consumer().assign(at).build().await.unwrap();
    let told = timeout(Duration::from_secs(5), consumer.next()).await.unwrap();
    assert!(matches!(told, Err(Error::Protocol(_))), "{told:?}");
    let more = timeout(Duration::from_millis(500), consumer.next()).await;
    assert!(more.is_err(), "{more:?}");
}

#[tokio::test]
async fn a_commit_of_which_too_little_is_told_is_not_taken_for_done() {
    let server = ScriptedServer::start(|asked| match RequestKind::from_number(asked.kind) {
        Some(RequestKind::Fetch) => Act::Ignore,
        Some(RequestKind::FetchOffsets) => reply(&FetchOffsetsReplyV1 { committed: Vec::new() }),
        Some(RequestKind::CommitOffsets) => reply(&CommitOffsetsReplyV1 { outcomes: Vec::new() }),
        _ => FakeLog::new(1).answer(&asked),
    });
    let server = server.await;
    let at = [(TOPIC, 0, StartFrom::Offset(0))];
    let builder = hasty_client(&server).await.consumer().group("billing").assign(at);
    let consumer = builder.commit(CommitMode::Manual).build().await.unwrap();
    consumer.seek(TOPIC, 0, StartFrom::Offset(5)).await.unwrap();
    let committed = consumer.handle().commit().await;
    assert!(matches!(committed, Err(Error::OutcomeUnknown { .. })), "{committed:?}");
}
