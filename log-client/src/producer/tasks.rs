//! Tasks of a producer: one keeps its time, one its connection, one what it knows of topics.

use std::sync::Arc;
use std::time::Duration;

use log_core::protocol::ErrorCode;
use log_core::protocol::topics::DescribeTopicV1;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::sender::Sender;
use crate::admin::TopicDescription;
use crate::backoff::Backoff;
use crate::error::Result;

/// The least time between two looks at topics, or two attempts to connect that failed for good.
const PAUSE: Duration = Duration::from_millis(50);

/// Starts the tasks; they run until they are aborted.
pub(crate) fn start(sender: &Arc<Sender>) -> Vec<AbortHandle> {
    vec![
        tokio::spawn(keep_time(Arc::clone(sender))).abort_handle(),
        tokio::spawn(keep_connected(Arc::clone(sender))).abort_handle(),
        tokio::spawn(keep_topics(Arc::clone(sender))).abort_handle(),
    ]
}

async fn keep_time(sender: Arc<Sender>) {
    loop {
        let next = sender.tick(Instant::now());
        tokio::select! {
            () = sleep_until(next) => {}
            () = sender.earlier.notified() => {}
        }
    }
}

async fn keep_connected(sender: Arc<Sender>) {
    loop {
        if sender.is_connected() {
            sender.disconnected.notified().await;
            continue;
        }
        match sender.link.connection(sender.link.deadline()).await {
            Ok(connection) => sender.connected(connection),
            // What waits ends at its own deadline; until then, the server may come to its senses.
            Err(_) => sleep(PAUSE).await,
        }
    }
}

async fn keep_topics(sender: Arc<Sender>) {
    let mut waits = Backoff::new(sender.link.config().backoff);
    loop {
        let stale = timeout(sender.config.metadata_every, sender.stale.notified()).await.is_ok();
        for name in sender.topics(stale) {
            match describe(&sender, &name).await {
                Ok(told) => drop(sender.learn(&told)),
                Err(error) if error.code() == Some(ErrorCode::UnknownTopic) => {
                    sender.gone(&name, &error);
                }
                // Looked for again: by the next tick if records wait for it.
                Err(_) => sender.stale.notify_one(),
            }
        }
        if stale {
            sleep(waits.next_wait()).await;
        } else {
            waits.reset();
        }
    }
}

/// Looks at a topic.
///
/// # Errors
/// `Refused` with `UnknownTopic`, or why the server could not be asked.
pub(crate) async fn describe(sender: &Sender, topic: &str) -> Result<TopicDescription> {
    let call = DescribeTopicV1 { name: topic.to_owned() };
    let told = sender.control.call(&call, sender.control.deadline()).await?;
    TopicDescription::try_from(told)
}
