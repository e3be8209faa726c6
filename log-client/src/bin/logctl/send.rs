//! Send: `produce` to a server.
//!
//! As on a directory: what one read of stdin gives is sent together, and is acknowledged before
//! more is read.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, IsTerminal, Read};

use indicatif::ProgressBar;
use log_client::{Delivery, Producer};
use log_core::TopicName;

use crate::failure::{Exit, Failure, Result, note};
use crate::output::Output;
use crate::produce::{ProduceArgs, Produced, parse_headers, parse_line, tell};
use crate::progress;
use crate::remote::Remote;

const READ_BYTES: usize = 1024 * 1024;

pub(crate) fn run(args: &ProduceArgs, server: &Remote, output: &mut Output) -> Result<Exit> {
    let name = TopicName::parse(&args.topic)?;
    let client = server.client()?;
    server.run(async {
        let topic = client.admin().describe_topic(name.as_str()).await?;
        let producer = client.producer().acks(args.acks.into()).codec(args.compression.into());
        let mut sender = Sender {
            args,
            producer: producer.build()?,
            record_max_bytes: topic.config.record_max_bytes,
            lines: 0,
            sent: Vec::new(),
            acknowledged: BTreeMap::new(),
            progress: match io::stdin().is_terminal() {
                true => ProgressBar::hidden(),
                false => progress::records("appended"),
            },
        };
        let mut input = BufReader::with_capacity(READ_BYTES, io::stdin().lock());
        let sent = sender.run(&mut input).await;
        sender.progress.finish_and_clear();
        // What was acknowledged is told, whatever came after it.
        let told = tell(name.as_str(), sender.acknowledged.into_values().collect(), output);
        sent.and(told).map(|()| Exit::Done)
    })
}

struct Sender<'a> {
    args: &'a ProduceArgs,
    producer: Producer,
    record_max_bytes: u32,
    lines: u64,
    sent: Vec<Delivery>,
    acknowledged: BTreeMap<u32, Produced>,
    progress: ProgressBar,
}

impl Sender<'_> {
    async fn run(&mut self, input: &mut BufReader<impl Read>) -> Result<()> {
        let headers = parse_headers(&self.args.headers)?;
        let mut line = Vec::new();
        loop {
            line.clear();
            self.lines += 1;
            // A line that is too long is not read to its end, which may never come.
            let most = u64::from(self.record_max_bytes) + 1;
            let read = input.by_ref().take(most).read_until(b'\n', &mut line);
            if read.map_err(Failure::Input)? == 0 {
                return self.flush().await;
            }
            if line.last() == Some(&b'\n') {
                line.pop();
            }
            let put = match parse_line(self.args, &headers, &line, self.lines) {
                Ok(record) => match self.args.partition {
                    Some(partition) => {
                        self.producer.send_to(&self.args.topic, partition, &record).await
                    }
                    None => self.producer.send(&self.args.topic, &record).await,
                }
                .map_err(Failure::from),
                Err(failure) => Err(failure),
            };
            match put {
                Ok(delivery) => self.sent.push(delivery),
                Err(failure) => {
                    // Those before a line that is refused are stored all the same.
                    self.flush().await?;
                    note(&format!("line {} was not appended, nor what follows it", self.lines));
                    return Err(failure);
                }
            }
            if input.buffer().is_empty() {
                self.flush().await?;
            }
        }
    }

    /// Waits for all that was sent. Where one fails, what the others have acknowledged counts.
    async fn flush(&mut self) -> Result<()> {
        let mut outcome = Ok(());
        for delivery in self.sent.drain(..) {
            match delivery.await {
                Ok(appended) => {
                    let partition = appended.partition;
                    let first = appended.offset.unwrap_or(0);
                    let produced = self.acknowledged.entry(partition).or_insert(Produced {
                        partition,
                        records: 0,
                        first,
                        end: first,
                    });
                    produced.records += 1;
                    // Without acknowledgements, no offset is known.
                    produced.end = appended.offset.map_or(0, |offset| offset + 1);
                    self.progress.inc(1);
                }
                Err(error) => outcome = outcome.and(Err(error)),
            }
        }
        Ok(outcome?)
    }
}
