//! Calls: each ends once, in ok, an error or an unknown outcome, within its deadline.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use log_client::{Client, ClientConfig, Error, TopicLine};
use log_core::TopicConfig;
use log_core::codec;
use log_core::protocol::topics::ListTopicsReplyV1;
use log_core::protocol::{ErrorCode, Refusal};
use tokio::net::TcpListener;
use tokio::time::{Instant, timeout};

use crate::hasty_client;
use crate::server::{Act, ScriptedServer, reply};

fn one_topic() -> ListTopicsReplyV1 {
    let line = TopicLine { name: "orders".to_owned(), id: 5, partitions: 3 };
    ListTopicsReplyV1 { topics: vec![line] }
}

fn body() -> Bytes {
    Bytes::from(codec::encode(&one_topic()))
}

/// A server that does these in turn, the last one for good, and counts requests.
async fn acting(acts: Vec<Act>) -> (ScriptedServer, Arc<AtomicUsize>) {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let server = ScriptedServer::start(move |_| {
        let n = count.fetch_add(1, Ordering::SeqCst);
        acts[n.min(acts.len() - 1)].clone()
    });
    (server.await, asked)
}

#[tokio::test]
async fn a_harmless_call_is_made_again_over_cuts_and_retriable_refusals() {
    let loading = Refusal::new(ErrorCode::Loading, "not yet");
    let acts = vec![Act::Cut, Act::Refuse(loading), Act::CutInReply(body()), reply(&one_topic())];
    let (server, asked) = acting(acts).await;
    let client = hasty_client(&server).await;
    let topics = client.admin().list_topics(false).await.unwrap();
    assert_eq!(topics, one_topic().topics);
    assert_eq!(asked.load(Ordering::SeqCst), 4);
}

#[tokio::test]
async fn what_changes_something_is_not_made_again_once_it_was_sent() {
    let (server, asked) = acting(vec![Act::Cut]).await;
    let client = hasty_client(&server).await;
    let outcome = client.admin().create_topic("orders", 1, &TopicConfig::default()).await;
    assert!(matches!(outcome, Err(Error::OutcomeUnknown { .. })), "{outcome:?}");
    assert_eq!(asked.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_refusal_means_nothing_was_done_and_one_that_may_pass_is_waited_out() {
    let full = Refusal::new(ErrorCode::DiskFull, "full");
    let exists = Refusal::new(ErrorCode::TopicExists, "it exists");
    let (server, asked) = acting(vec![Act::Refuse(full), Act::Refuse(exists)]).await;
    let client = hasty_client(&server).await;
    let outcome = client.admin().create_topic("orders", 1, &TopicConfig::default()).await;
    assert_eq!(outcome.unwrap_err().code(), Some(ErrorCode::TopicExists));
    assert_eq!(asked.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn a_call_without_an_answer_ends_at_its_deadline() {
    let (server, _) = acting(vec![Act::Ignore]).await;
    let client = hasty_client(&server).await;
    let began = Instant::now();
    let listed = client.admin().list_topics(false).await;
    assert!(matches!(listed, Err(Error::TimedOut { .. })), "{listed:?}");
    let deleted = client.admin().delete_topic("orders").await;
    assert!(matches!(deleted, Err(Error::OutcomeUnknown { .. })), "{deleted:?}");
    assert!(began.elapsed() < Duration::from_secs(3));
}

#[tokio::test]
async fn what_changes_something_and_may_be_done_ends_as_unknown_though_it_is_repeated() {
    let refused = || Act::Refuse(Refusal::new(ErrorCode::UnknownTopic, "gone"));
    let garbled = || Act::Reply(Bytes::from_static(b"\xff\xff\xff"));
    for acts in [vec![Act::Ignore], vec![Act::Cut, refused()], vec![garbled()]] {
        let (server, asked) = acting(acts.clone()).await;
        let client = hasty_client(&server).await;
        let trimmed = client.admin().trim_partition("orders", 0, 5).await;
        assert!(matches!(trimmed, Err(Error::OutcomeUnknown { .. })), "{trimmed:?} of {acts:?}");
        assert_eq!(asked.load(Ordering::SeqCst), acts.len());
    }
    let (server, _) = acting(vec![refused()]).await;
    let trimmed = hasty_client(&server).await.admin().trim_partition("orders", 0, 5).await;
    assert_eq!(trimmed.unwrap_err().code(), Some(ErrorCode::UnknownTopic));
}

#[tokio::test]
async fn a_repeated_reply_answers_nobody_else() {
    let other = ListTopicsReplyV1 { topics: Vec::new() };
    let (server, _) = acting(vec![Act::ReplyTwice(body()), reply(&other)]).await;
    let admin = hasty_client(&server).await.admin();
    assert_eq!(admin.list_topics(false).await.unwrap().len(), 1);
    assert_eq!(admin.list_topics(false).await.unwrap().len(), 0);
}

#[tokio::test]
async fn many_calls_share_a_connection_and_each_gets_its_own_reply() {
    let server = ScriptedServer::start(|asked| {
        assert_eq!(asked.connection, 0);
        reply(&one_topic())
    });
    let server = server.await;
    let admin = hasty_client(&server).await.admin();
    let calls: Vec<_> = (0..200)
        .map(|_| {
            let admin = admin.clone();
            tokio::spawn(async move { admin.list_topics(true).await })
        })
        .collect();
    for call in calls {
        assert_eq!(call.await.unwrap().unwrap(), one_topic().topics);
    }
}

#[tokio::test]
async fn an_unreachable_server_is_told_within_the_deadline() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let config = ClientConfig {
        request_timeout: Duration::from_millis(300),
        ..ClientConfig::at(address.to_string())
    };
    let connected = timeout(Duration::from_secs(3), Client::with(config)).await.unwrap();
    assert!(matches!(connected, Err(Error::Unreachable { .. })), "{connected:?}");
}

#[tokio::test]
async fn a_silent_server_is_given_up_and_the_call_goes_to_a_new_connection() {
    let server = ScriptedServer::start(|asked| {
        if asked.connection == 0 { Act::Ignore } else { reply(&one_topic()) }
    });
    let server = server.await;
    let config = ClientConfig {
        keepalive: Duration::from_millis(50),
        request_timeout: Duration::from_secs(5),
        ..ClientConfig::at(server.address.to_string())
    };
    let client = Client::with(config).await.unwrap();
    assert_eq!(client.admin().list_topics(false).await.unwrap(), one_topic().topics);
}

#[tokio::test]
async fn a_garbled_reply_is_an_error_and_not_a_panic() {
    let (server, _) = acting(vec![Act::Reply(Bytes::from_static(b"\xff\xff\xff"))]).await;
    let client = hasty_client(&server).await;
    let listed = client.admin().list_topics(false).await;
    assert!(matches!(listed, Err(Error::Protocol(_))), "{listed:?}");
}
