//! Follow: `consume` from a server: a range, or everything and what comes then, alone or as a
//! member of a group.

use std::future::Future;
use std::time::Duration;

use log_client::consumer::{OnCorrupt, Records};
use log_client::{Client, CommitMode, Consumer, ConsumerEvent, ConsumerHandle, TopicDescription};
use log_core::offset::{Offset, OffsetRange, StartFrom};
use log_core::partition::Ends;
use log_core::{Timestamp, TopicName};
use tokio::time::timeout;

use crate::consume::{ConsumeArgs, Printer};
use crate::failure::{Exit, Failure, Result, note};
use crate::output::Output;
use crate::range::Place;
use crate::remote::Remote;

/// How long nothing must have come for a group's reading to count as at its end.
const QUIET: Duration = Duration::from_secs(2);
/// How often it is looked whether damage has hidden the end of a range.
const LOOK_EVERY: Duration = Duration::from_millis(200);

pub(crate) fn run(args: &ConsumeArgs, server: &Remote, output: &mut Output) -> Result<Exit> {
    TopicName::parse_any(&args.topic)?;
    let client = server.client()?;
    server.run(async {
        let mut reader =
            Reader { args, client, printer: Printer::new(args, output), damaged: false };
        match &args.group {
            Some(group) => reader.of_group(group).await?,
            None => reader.alone().await?,
        }
        Ok(if reader.damaged { Exit::Found } else { reader.printer.exit() })
    })
}

struct Reader<'a> {
    args: &'a ConsumeArgs,
    client: &'a Client,
    printer: Printer<'a>,
    damaged: bool,
}

impl Reader<'_> {
    async fn of_group(&mut self, group: &str) -> Result<()> {
        let commit = CommitMode::Automatic { every: Duration::from_secs(1) };
        let consumer = self.client.consumer().group(group).topics([&*self.args.topic]);
        let consumer = consumer.start(StartFrom::Earliest).on_corrupt(OnCorrupt::Skip);
        let mut consumer = consumer.commit(commit).build().await?;
        while self.printer.left > 0 {
            // One at a time: what was not printed is not committed.
            let next = unless_stopped(consumer.next());
            let record = match self.args.exit {
                true => match timeout(QUIET, next).await {
                    Ok(record) => record,
                    Err(_) => break,
                },
                false => match timeout(LOOK_EVERY, next).await {
                    Ok(record) => record,
                    Err(_) => {
                        self.printer.output.flush()?;
                        continue;
                    }
                },
            };
            let Some(Some(record)) = record.transpose()? else { break };
            self.printer.take_owned(&record)?;
        }
        self.printer.output.flush()?;
        self.note_skips(&consumer.handle()).await;
        Ok(consumer.close().await?)
    }

    async fn alone(&mut self) -> Result<()> {
        let topic = self.client.admin().describe_topic(&self.args.topic).await?;
        let mut starts = Vec::new();
        for number in self.chosen(&topic)? {
            if let Some(range) = self.resolve(&topic, number).await? {
                starts.push((number, range));
            }
        }
        if self.args.exit || self.args.offsets.to.is_some() {
            for (number, range) in starts {
                if unless_stopped(self.range(number, range)).await.transpose()?.is_none() {
                    break;
                }
            }
            return Ok(());
        }
        let topic = &self.args.topic;
        let starts = starts
            .iter()
            .map(|(number, range)| (topic.as_str(), *number, StartFrom::Offset(range.start)));
        let mut consumer = self.reading(starts).await?;
        while self.printer.left > 0 {
            let Some(records) = unless_stopped(consumer.next_batch()).await.transpose()? else {
                break;
            };
            if let Some(records) = records {
                self.print(&records, Offset::MAX)?;
            }
            self.note_skips(&consumer.handle()).await;
            self.printer.output.flush()?;
        }
        Ok(())
    }

    async fn reading(
        &self,
        starts: impl Iterator<Item = (&str, u32, StartFrom)>,
    ) -> Result<Consumer> {
        let consumer = self.client.consumer().assign(starts).on_corrupt(OnCorrupt::Skip);
        Ok(consumer.build().await?)
    }

    fn chosen(&self, topic: &TopicDescription) -> Result<Vec<u32>> {
        let count = u32::try_from(topic.partitions.len()).unwrap_or(u32::MAX);
        let mut numbers = self.args.partitions.clone();
        if let Some(unknown) = numbers.iter().find(|number| **number >= count) {
            let (topic, partition) = (TopicName::parse_any(&topic.name)?, *unknown);
            let partitions = count;
            return Err(log_core::Error::UnknownPartition { topic, partition, partitions }.into());
        }
        if numbers.is_empty() {
            numbers.extend(0..count);
        }
        numbers.sort_unstable();
        numbers.dedup();
        Ok(numbers)
    }

    /// The offsets that are wanted of a partition; none if it can't be read.
    async fn resolve(
        &mut self,
        topic: &TopicDescription,
        number: u32,
    ) -> Result<Option<OffsetRange>> {
        let slot = usize::try_from(number).ok().and_then(|at| topic.partitions.get(at));
        let ends = match slot {
            Some(Ok(ends)) => *ends,
            Some(Err(refusal)) => {
                self.step_over(number, &refusal.message);
                return Ok(None);
            }
            None => return Ok(None),
        };
        let admin = self.client.admin();
        let span = self.args.offsets;
        let mut times: Vec<(Timestamp, Offset)> = Vec::new();
        for place in [Some(span.from), span.to].into_iter().flatten() {
            let start = match place {
                Place::Time(time) => StartFrom::Time(time),
                // It is refused if it is not there.
                Place::At(offset) if place == span.from => StartFrom::Offset(offset),
                _ => continue,
            };
            let resolved = admin.resolve_offset(&topic.name, number, start).await;
            let resolved = resolved.inspect_err(|_| {
                note(&format!("topic {} partition {number}:", topic.name));
            })?;
            if let Place::Time(time) = place {
                times.push((time, resolved.offset));
            }
        }
        let at_time = |wanted: Timestamp| {
            let found = times.iter().find(|(time, _)| *time == wanted);
            Ok::<_, Failure>(found.map_or(ends.readable_end, |(_, offset)| *offset))
        };
        let (log_start, durable_end, end) = (ends.log_start, ends.durable_end, ends.readable_end);
        span.resolve(Ends { log_start, durable_end, end }, at_time).map(Some)
    }

    async fn range(&mut self, number: u32, range: OffsetRange) -> Result<()> {
        if range.is_empty() || self.printer.left == 0 {
            return Ok(());
        }
        let topic = self.args.topic.as_str();
        let start = (topic, number, StartFrom::Offset(range.start));
        let mut consumer = self.reading(std::iter::once(start)).await?;
        let handle = consumer.handle();
        while self.printer.left > 0 {
            if let Ok(records) = timeout(LOOK_EVERY, consumer.next_batch()).await
                && let Some(records) = records?
            {
                self.print(&records, range.end)?;
            }
            self.note_skips(&handle).await;
            if handle.position(topic, number).is_none_or(|next| next >= range.end) {
                break;
            }
        }
        Ok(())
    }

    fn print(&mut self, records: &Records, end: Offset) -> Result<()> {
        for record in records.iter() {
            let record = record?;
            if record.offset >= end || self.printer.left == 0 {
                break;
            }
            self.printer.take(records.partition(), &record)?;
        }
        Ok(())
    }

    async fn note_skips(&mut self, handle: &ConsumerHandle) {
        while let Ok(Some(event)) = timeout(Duration::ZERO, handle.next_event()).await {
            if let ConsumerEvent::Skipped { of, offsets, reason } = event {
                self.step_over(of.partition, &format!("offsets {offsets} left out: {reason:?}"));
            }
        }
    }

    fn step_over(&mut self, number: u32, why: &str) {
        self.damaged = true;
        note(&format!("topic {} partition {number}: {why}", self.args.topic));
    }
}

/// What `work` ends with; none if it is stopped from the keyboard first.
async fn unless_stopped<T>(work: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        done = work => Some(done),
        _ = tokio::signal::ctrl_c() => None,
    }
}
