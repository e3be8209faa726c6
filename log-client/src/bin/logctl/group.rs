//! `group`: list, describe, reset and delete consumer groups.

use std::time::Duration;

use clap::{Args, Subcommand};
use log_client::{Group, GroupLine, GroupPartition, Position, ResetRun};
use log_core::clock::{Clock, SystemClock};
use log_core::offset::{Offset, StartFrom};
use log_core::protocol::Refusal;
use log_core::store::{GroupCommitted, Store};
use log_core::{GroupName, OffsetCommit, Timestamp, TopicName};
use serde::Serialize;

use crate::directory::{Directory, topic};
use crate::failure::{Exit, Failure, Result};
use crate::output::{Output, count};
use crate::target::Target;
use crate::time;
use crate::units::exact_duration;

const RESET_HELP: &str = "\
Examples:
  logctl group reset billing orders --to earliest --dry-run
  logctl group reset billing orders --to @2013-01-01 -p 3
  logctl group reset billing orders --to 4096 -p 3
Partitions that members hold are taken back first, and given out again from there.";

#[derive(Debug, Args)]
pub(crate) struct GroupArgs {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// List the groups
    List,
    /// Say who is in a group, who holds what, and how far it is behind
    Describe {
        /// The group
        group: String,
    },
    /// Set what a group has committed, back, too
    #[command(after_help = RESET_HELP)]
    Reset {
        /// The group
        group: String,
        /// The topic
        topic: String,
        /// Only this partition. Can be repeated
        #[arg(short, long = "partition", value_name = "PARTITION")]
        partitions: Vec<u32>,
        /// Where to: earliest, latest, an offset, or @TIME
        #[arg(long, value_name = "WHERE", value_parser = parse_start)]
        to: StartFrom,
        /// Say what would be done, and do nothing
        #[arg(long)]
        dry_run: bool,
    },
    /// Forget a group that has no members, and what it has committed
    Delete {
        /// The group
        group: String,
        /// Yes, delete it
        #[arg(long)]
        yes: bool,
    },
}

fn parse_start(text: &str) -> std::result::Result<StartFrom, String> {
    match text {
        "earliest" => Ok(StartFrom::Earliest),
        "latest" => Ok(StartFrom::Latest),
        _ => match text.strip_prefix('@') {
            Some(text) => match time::parse_front(text)? {
                (time, "") => Ok(StartFrom::Time(time)),
                (_, rest) => Err(format!("{rest:?} is too much")),
            },
            None => text.parse().map(StartFrom::Offset).map_err(|_| {
                format!("{text:?} is no place: write earliest, latest, an offset, or @time")
            }),
        },
    }
}

pub(crate) fn run(args: GroupArgs, target: &Target, output: &mut Output) -> Result<Exit> {
    match args.verb {
        Verb::List => list(&lines(target)?, output),
        Verb::Describe { group } => describe(&described(target, &group)?, output),
        Verb::Reset { group, topic, partitions, to, dry_run } => {
            let run = if dry_run { ResetRun::Dry } else { ResetRun::Applied };
            reset(target, &Wanted { group, topic, partitions, to, run }, output)
        }
        Verb::Delete { group, yes } => delete(target, &group, yes, output),
    }
}

fn lines(target: &Target) -> Result<Vec<GroupLine>> {
    match target {
        Target::Server(server) => server.wait(server.admin()?.list_groups()),
        Target::Directory(directory) => {
            let offsets = directory.read()?.group_offsets();
            let groups = offsets.groups()?.into_iter().map(|group| {
                let partitions = u32::try_from(offsets.list(&group)?.len()).unwrap_or(u32::MAX);
                Ok(GroupLine { group: group.to_string(), members: 0, partitions })
            });
            groups.collect()
        }
    }
}

#[derive(Serialize)]
struct Listed<'a> {
    group: &'a str,
    members: u32,
    partitions: u32,
}

fn list(lines: &[GroupLine], output: &mut Output) -> Result<Exit> {
    let heading = ["GROUP", "MEMBERS", "PARTITIONS"];
    let mut rows = vec![heading.map(str::to_owned).to_vec()];
    for line in lines {
        let GroupLine { group, members, partitions } = line;
        if output.is_json() {
            let (members, partitions) = (*members, *partitions);
            output.object(&Listed { group, members, partitions })?;
        } else {
            rows.push(vec![group.clone(), members.to_string(), partitions.to_string()]);
        }
    }
    if !output.is_json() {
        output.table(&rows)?;
    }
    Ok(Exit::Done)
}

fn described(target: &Target, group: &str) -> Result<Group> {
    match target {
        Target::Server(server) => server.wait(server.admin()?.describe_group(group)),
        Target::Directory(directory) => at_rest(&directory.read()?, group),
    }
}

/// A group as it was left: its members are gone.
fn at_rest(store: &Store, group: &str) -> Result<Group> {
    let name = GroupName::parse(group)?;
    let committed = store.group_offsets().list(&name)?;
    if committed.is_empty() {
        return Err(unknown(group));
    }
    let now = SystemClock::new().now();
    let partitions = committed.iter().map(|entry| partition_at_rest(store, entry, now)).collect();
    Ok(Group { group: group.to_owned(), members: Vec::new(), partitions, forced: 0 })
}

fn unknown(group: &str) -> Failure {
    let why = format!("there is no group {group}");
    let refusal = Refusal::new(log_core::protocol::ErrorCode::UnknownGroup, why);
    Failure::Client(refusal.into())
}

fn partition_at_rest(store: &Store, entry: &GroupCommitted, now: Timestamp) -> GroupPartition {
    let committed = &entry.committed;
    let partition = store.topic(&entry.topic).and_then(|topic| topic.partition(entry.partition));
    let next = partition.as_ref().ok().and_then(|partition| {
        partition.visit(committed.offset, |record| record.timestamp).ok().flatten()
    });
    let ends =
        partition.as_ref().map(|partition| (partition.ends().log_start, partition.readable_end()));
    let (log_start, end) = ends.map_or((0, 0), |ends| ends);
    let lag_time = next.map(|stamped| {
        u64::try_from(now.saturating_since(stamped).as_millis()).unwrap_or(u64::MAX)
    });
    GroupPartition {
        topic: entry.topic.to_string(),
        topic_id: entry.topic_id,
        partition: entry.partition,
        owner: None,
        epoch: committed.grant.as_ref().map_or(0, |grant| grant.epoch),
        revoking: false,
        committed: Some(Position::with_settled(committed.offset, &committed.settled)),
        committed_at: Some(committed.committed_at.as_millis()),
        log_start,
        end,
        lag_time,
        refusal: partition.as_ref().err().map(Refusal::from),
    }
}

#[derive(Serialize)]
struct Described<'a> {
    group: &'a str,
    members: Vec<Member<'a>>,
    partitions: Vec<Partition<'a>>,
    forced: u64,
}

#[derive(Serialize)]
struct Member<'a> {
    member: &'a str,
    client_id: &'a str,
    address: &'a str,
    topics: &'a [String],
    leaving: bool,
    heard_ms_ago: u64,
    processing_ms: u64,
}

#[derive(Serialize)]
struct Partition<'a> {
    topic: &'a str,
    partition: u32,
    owner: Option<&'a str>,
    epoch: u64,
    revoking: bool,
    committed: Option<Offset>,
    settled_ranges: usize,
    committed_at: Option<i64>,
    log_start: Offset,
    end: Offset,
    lag: Option<u64>,
    lag_ms: Option<u64>,
    error: Option<&'a str>,
}

impl<'a> From<&'a GroupPartition> for Partition<'a> {
    fn from(told: &'a GroupPartition) -> Partition<'a> {
        let committed = told.committed.as_ref();
        Partition {
            topic: &told.topic,
            partition: told.partition,
            owner: told.owner.as_deref(),
            epoch: told.epoch,
            revoking: told.revoking,
            committed: committed.map(|position| position.offset),
            settled_ranges: committed.map_or(0, |position| position.settled.len()),
            committed_at: told.committed_at,
            log_start: told.log_start,
            end: told.end,
            lag: committed.map(|position| lag(position, told)),
            lag_ms: told.lag_time,
            error: told.refusal.as_ref().map(|refusal| refusal.message.as_str()),
        }
    }
}

/// How many records are still to be handled.
fn lag(position: &Position, told: &GroupPartition) -> u64 {
    let settled: u64 = position.settled.iter().map(|(start, end)| end - start).sum();
    let behind = told.end.saturating_sub(position.offset.max(told.log_start));
    behind.saturating_sub(settled)
}

fn describe(group: &Group, output: &mut Output) -> Result<Exit> {
    let members = group.members.iter().map(|member| Member {
        member: &member.member,
        client_id: &member.client_id,
        address: &member.address,
        topics: &member.topics,
        leaving: member.leaving,
        heard_ms_ago: member.heard,
        processing_ms: member.processing,
    });
    let described = Described {
        group: &group.group,
        members: members.collect(),
        partitions: group.partitions.iter().map(Partition::from).collect(),
        forced: group.forced,
    };
    if output.is_json() {
        output.object(&described)?;
        return Ok(Exit::Done);
    }
    let (members, forced) = (described.members.len() as u64, described.forced);
    let title = format!("group {}: {}", described.group, count(members, "member"));
    output.line(&format!(
        "{title}, {} since the server started",
        count(forced, "forced hand-over")
    ))?;
    if members > 0 {
        output.table(&member_rows(&described.members))?;
    }
    output.table(&partition_rows(&described.partitions))?;
    for partition in &described.partitions {
        if let Some(error) = partition.error {
            output.line(&format!("{}/{}: {error}", partition.topic, partition.partition))?;
        }
    }
    Ok(Exit::Done)
}

fn member_rows(members: &[Member<'_>]) -> Vec<Vec<String>> {
    let heading = ["MEMBER", "CLIENT", "ADDRESS", "TOPICS", "HEARD", "PROCESSING", "STATE"];
    let mut rows = vec![heading.map(str::to_owned).to_vec()];
    rows.extend(members.iter().map(|member| {
        vec![
            member.member.to_owned(),
            member.client_id.to_owned(),
            member.address.to_owned(),
            member.topics.join(","),
            format!("{} ago", millis(member.heard_ms_ago)),
            millis(member.processing_ms),
            if member.leaving { "leaving" } else { "reading" }.to_owned(),
        ]
    }));
    rows
}

fn partition_rows(partitions: &[Partition<'_>]) -> Vec<Vec<String>> {
    let heading = [
        "TOPIC",
        "PARTITION",
        "COMMITTED",
        "END",
        "LAG",
        "BEHIND",
        "OWNER",
        "EPOCH",
        "COMMITTED AT",
    ];
    let mut rows = vec![heading.map(str::to_owned).to_vec()];
    let or_none = |number: Option<u64>| number.map_or("-".to_owned(), |number| number.to_string());
    rows.extend(partitions.iter().map(|partition| {
        let owner = partition.owner.unwrap_or("-");
        vec![
            partition.topic.to_owned(),
            partition.partition.to_string(),
            or_none(partition.committed),
            partition.end.to_string(),
            or_none(partition.lag),
            partition.lag_ms.map_or("-".to_owned(), millis),
            if partition.revoking { format!("{owner} (revoking)") } else { owner.to_owned() },
            partition.epoch.to_string(),
            partition
                .committed_at
                .map_or("-".to_owned(), |at| time::show(Timestamp::from_millis(at))),
        ]
    }));
    rows
}

fn millis(millis: u64) -> String {
    exact_duration(Duration::from_millis(millis))
}

/// What a reset is asked to do.
struct Wanted {
    group: String,
    topic: String,
    partitions: Vec<u32>,
    to: StartFrom,
    run: ResetRun,
}

#[derive(Serialize)]
struct Reset {
    partition: u32,
    from: Option<Offset>,
    to: Option<Offset>,
    error: Option<String>,
}

fn reset(target: &Target, wanted: &Wanted, output: &mut Output) -> Result<Exit> {
    let resets = match target {
        Target::Server(server) => {
            let Wanted { group, topic, partitions, to, run } = wanted;
            let admin = server.admin()?;
            let told = server.wait(admin.reset_offsets(group, topic, partitions, *to, *run))?;
            let shown = told.into_iter().map(|reset| Reset {
                partition: reset.partition,
                from: reset.from,
                to: reset.to.as_ref().ok().copied(),
                error: reset.to.err().map(|refusal| refusal.message),
            });
            shown.collect()
        }
        Target::Directory(directory) => reset_at_rest(directory, wanted)?,
    };
    let failed = resets.iter().any(|reset| reset.error.is_some());
    if output.is_json() {
        resets.iter().try_for_each(|reset| output.object(reset))?;
    } else {
        let heading = ["PARTITION", "FROM", "TO"];
        let mut rows = vec![heading.map(str::to_owned).to_vec()];
        rows.extend(resets.iter().map(|reset| {
            let or = |offset: Option<Offset>, none: &str| {
                offset.map_or(none.to_owned(), |offset| offset.to_string())
            };
            let to = or(reset.to, reset.error.as_deref().unwrap_or("-"));
            vec![reset.partition.to_string(), or(reset.from, "-"), to]
        }));
        output.table(&rows)?;
        if wanted.run == ResetRun::Dry {
            output.line("nothing was changed: leave --dry-run out to do it")?;
        }
    }
    Ok(if failed { Exit::Refused } else { Exit::Done })
}

fn reset_at_rest(directory: &Directory, wanted: &Wanted) -> Result<Vec<Reset>> {
    let group = GroupName::parse(&wanted.group)?;
    let name = TopicName::parse(&wanted.topic)?;
    let plan = |store: &Store| -> Result<Vec<Reset>> {
        let found = topic(store, name.as_str())?;
        let mut numbers = wanted.partitions.clone();
        if numbers.is_empty() {
            numbers.extend(0..found.partition_count());
        }
        let resets = numbers.into_iter().map(|number| {
            let from = store.group_offsets().fetch(&group, &name, number)?;
            let to = found.partition(number).and_then(|partition| partition.resolve(wanted.to));
            Ok(Reset {
                partition: number,
                from: from.map(|committed| committed.offset),
                to: to.as_ref().ok().copied(),
                error: to.err().map(|error| error.to_string()),
            })
        });
        resets.collect()
    };
    if wanted.run == ResetRun::Dry {
        return plan(&directory.read()?);
    }
    directory.change(|store| {
        let resets = plan(store)?;
        let commits = resets
            .iter()
            .filter_map(|reset| Some(OffsetCommit::new(&name, reset.partition, reset.to?)));
        store.group_offsets().reset(&group, &commits.collect::<Vec<_>>())?;
        Ok(resets)
    })
}

#[derive(Serialize)]
struct Deleted<'a> {
    group: &'a str,
    done: &'a str,
}

fn delete(target: &Target, group: &str, yes: bool, output: &mut Output) -> Result<Exit> {
    if !yes {
        let found = described(target, group)?;
        let partitions = found.partitions.iter().filter(|at| at.committed.is_some()).count();
        return Err(Failure::Usage(format!(
            "group {group} has committed offsets for {}; say --yes to forget them",
            count(partitions as u64, "partition")
        )));
    }
    match target {
        Target::Server(server) => server.wait(server.admin()?.delete_group(group))?,
        Target::Directory(directory) => {
            let name = GroupName::parse(group)?;
            let removed =
                directory.change(|store| Ok(store.group_offsets().delete_group(&name)?))?;
            if removed == 0 {
                return Err(unknown(group));
            }
        }
    }
    output.fact(&Deleted { group, done: "deleted" }, &format!("deleted group {group}"))?;
    Ok(Exit::Done)
}
