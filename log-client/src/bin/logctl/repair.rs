//! `repair`: says, or does, what damage has left to decide. It never acts by itself.

use std::path::PathBuf;

use clap::{ArgGroup, Args};
use log_core::disk::{Disk, OsDisk};
use log_core::offset::{Offset, OffsetRange};
use log_core::store::{Rebuild, Store};
use serde::Serialize;

use crate::catalog;
use crate::directory::{Directory, topic, topics};
use crate::failure::{Exit, Result};
use crate::output::{Output, count};
use crate::survey::{Finding, Kind, Survey, start_and_end};

const AFTER_HELP: &str = "\
Examples:
  logctl --data ./data repair --dry-run
  logctl --data ./data repair --apply orders
What is damaged is isolated when a store is opened: it can't be read, all else can, and appends
go on. Three things are left:
  - A catalog that can't be read is made anew from the topics' directories, with default settings.
  - A partition whose end can't be proven takes no writes. Repair lets appends go on behind
    everything that is known to have been acknowledged; what lies before and can't be read is
    given up, and stays told as corrupt. No stored byte is removed.
  - An index file that is damaged is removed; it is made anew when it is needed.
Exit code of --dry-run: 0 if there is nothing to do, else 1. Copy the directory before --apply.";

#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
#[command(group(ArgGroup::new("how").required(true)))]
pub(crate) struct RepairArgs {
    /// Only this topic
    topic: Option<String>,

    /// Say what would be done, and lost
    #[arg(long, group = "how")]
    dry_run: bool,

    /// Do it
    #[arg(long, group = "how")]
    apply: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Action {
    /// Let appends go on.
    GoOn,
    /// Remove an index file.
    RemoveIndex,
    /// None: the damage is isolated already.
    Isolated,
    /// None that would help.
    OutOfReach,
}

/// What is to be done about a finding.
#[derive(Debug, Serialize)]
struct Step {
    action: Action,
    done: bool,
    topic: String,
    partition: u32,
    #[serde(skip)]
    path: PathBuf,
    /// Where appends go on.
    goes_on_at: Option<Offset>,
    /// What can't be read, and stays so.
    #[serde(serialize_with = "start_and_end")]
    lost: Option<OffsetRange>,
    what: String,
}

pub(crate) fn run(args: &RepairArgs, directory: &Directory, output: &mut Output) -> Result<Exit> {
    let how = if args.apply { Rebuild::Apply } else { Rebuild::DryRun };
    if let Some(exit) = catalog::rebuild(directory.path(), how, output)? {
        return Ok(exit);
    }
    if args.apply { apply(args, directory, output) } else { dry_run(args, directory, output) }
}

fn dry_run(args: &RepairArgs, directory: &Directory, output: &mut Output) -> Result<Exit> {
    let at_rest = directory.read_at_rest()?;
    let steps = plan(&at_rest.store, args)?;
    for step in &steps {
        output.fact(step, &step.text())?;
    }
    let open = steps.iter().filter(|step| step.action != Action::Isolated).count();
    if !output.is_json() {
        output.line(if open == 0 {
            "there is nothing to repair"
        } else {
            "nothing was changed; `logctl repair --apply` does what can be done"
        })?;
    }
    Ok(if open == 0 { Exit::Done } else { Exit::Found })
}

fn apply(args: &RepairArgs, directory: &Directory, output: &mut Output) -> Result<Exit> {
    let mut steps = Vec::new();
    let outcome = directory.change(|store| {
        steps = plan(store, args)?;
        steps.iter_mut().try_for_each(|step| step.carry_out(store))
    });
    // What was done is told at the end: a reader that goes away stops nothing half way.
    for step in &steps {
        output.fact(step, &step.text())?;
    }
    outcome?;
    if !output.is_json() {
        output.line("done; `logctl check` says what is still damaged")?;
    }
    let out_of_reach = steps.iter().any(|step| step.action == Action::OutOfReach);
    Ok(if out_of_reach { Exit::Found } else { Exit::Done })
}

fn plan(store: &Store, args: &RepairArgs) -> Result<Vec<Step>> {
    let survey = Survey::of(&topics(store, args.topic.as_deref())?)?;
    Ok(survey.findings.into_iter().filter_map(Step::about).collect())
}

impl Step {
    fn about(finding: Finding) -> Option<Step> {
        let action = match finding.kind {
            Kind::EndUnproven => Action::GoOn,
            Kind::Index => Action::RemoveIndex,
            Kind::Corrupt => Action::Isolated,
            Kind::Unusable => Action::OutOfReach,
            Kind::Cut | Kind::Beside => return None,
        };
        Some(Step {
            action,
            done: false,
            topic: finding.topic?,
            partition: finding.partition?,
            path: finding.path,
            goes_on_at: finding.goes_on_at,
            lost: finding.offsets,
            what: finding.what,
        })
    }

    fn carry_out(&mut self, store: &Store) -> Result<()> {
        match self.action {
            Action::GoOn => {
                let partition = topic(store, &self.topic)?.partition(self.partition)?;
                self.goes_on_at = partition.repair()?.or(self.goes_on_at);
            }
            Action::RemoveIndex => {
                let dir = self.path.parent().unwrap_or(&self.path);
                OsDisk.remove_file(&self.path)?;
                OsDisk.sync_dir(dir)?;
            }
            Action::Isolated | Action::OutOfReach => return Ok(()),
        }
        self.done = true;
        Ok(())
    }

    fn text(&self) -> String {
        let Step { topic, partition, what, .. } = self;
        let file = self.path.file_name().unwrap_or_default().to_string_lossy();
        let lost = self.lost.map_or("bytes that held no record".to_owned(), |lost| {
            format!("offsets {lost}, {},", count(lost.len(), "record"))
        });
        let at = self.goes_on_at.unwrap_or_default();
        let text = match (self.action, self.done) {
            (Action::GoOn, false) => format!("appends would go on at offset {at}: {what}"),
            (Action::GoOn, true) => format!("appends go on at offset {at}"),
            (Action::RemoveIndex, false) => {
                format!("{file} would be removed, and made anew when it is needed: {what}")
            }
            (Action::RemoveIndex, true) => format!("{file} was removed"),
            (Action::Isolated, _) => {
                format!("{lost} can't be read and are given up; all else is there: {file}: {what}")
            }
            (Action::OutOfReach, _) => {
                format!("it can't be opened, put back a copy of it: {what}")
            }
        };
        format!("topic {topic} partition {partition}: {text}")
    }
}
