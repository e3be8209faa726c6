//! Logging: where log lines go, and what is told of a store that was opened.

use log_core::{RecoveryReport, Store};
use tracing_subscriber::EnvFilter;

use crate::config::LogFormat;
use crate::error::ServerError;

/// Sends log lines of this process, and of panics, to standard error. For a binary: once, at its
/// start.
///
/// # Errors
/// `IllegalSetting` for a filter that makes no sense, or if the process logs already.
pub fn start_logging(filter: &str, format: LogFormat) -> Result<(), ServerError> {
    let illegal = |why: String| ServerError::IllegalSetting { setting: "log", why };
    let filter = EnvFilter::try_new(filter).map_err(|error| illegal(error.to_string()))?;
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let started = match format {
        LogFormat::Text => lines.with_ansi(false).try_init(),
        LogFormat::Json => lines.json().try_init(),
    };
    started.map_err(|error| illegal(error.to_string()))?;
    std::panic::set_hook(Box::new(|panic| {
        tracing::error!(%panic, "a bug of ours: what was going on there has ended");
    }));
    Ok(())
}

/// Tells what the opening of a store has found: what was lost, damaged or left over as warnings.
pub(crate) fn tell_recovery(store: &Store) {
    let (mut partitions, mut clean, mut walked_bytes) = (0_u64, 0_u64, 0);
    for found in store.reports() {
        partitions += 1;
        let place = format!("{}/{}", found.topic, found.partition);
        match &found.outcome {
            Ok(report) => {
                clean += u64::from(report.clean);
                walked_bytes += report.walked_bytes;
                tell_partition(&place, report);
            }
            Err(error) => tracing::error!(
                partition = %place, %error,
                "a partition can't be used; the others can: look with `logctl check`"
            ),
        }
    }
    for leftover in store.leftovers() {
        tracing::warn!(
            path = %leftover.path.display(),
            "a directory that no topic owns: move it away, or put the right catalog back"
        );
    }
    let topics = store.topics().len();
    let data = store.dir().display();
    tracing::info!(%data, topics, partitions, clean, walked_bytes, "store opened");
}

fn tell_partition(place: &str, report: &RecoveryReport) {
    if let Some(cut) = &report.cut {
        let (file, position, end) = (cut.path.display(), cut.position, cut.offset);
        let fault = &cut.fault;
        if cut.possibly_acknowledged {
            tracing::warn!(
                partition = place, %file, position, end, %fault,
                "the log was cut after an unclean stop; what was cut may have been acknowledged: \
                 compare with what producers know"
            );
        } else {
            tracing::warn!(
                partition = place, %file, position, end, %fault,
                "the log was cut after an unclean stop, above all that is known to be on disk; \
                 nothing is to be done"
            );
        }
    }
    for damage in &report.damage {
        tracing::error!(
            partition = place, %damage,
            "records can't be read; all else can: look with `logctl check`, put a backup back"
        );
    }
    for skipped in report.skipped.iter().chain(&report.unborn) {
        tracing::warn!(
            partition = place, %skipped,
            "bytes that held no record can't be read; check the disk"
        );
    }
    for stray in &report.strays {
        let file = stray.display();
        tracing::warn!(partition = place, %file, "a file that is not the engine's; move it away");
    }
    if report.end_unproven {
        tracing::error!(
            partition = place,
            end = report.end,
            "the end can't be proven: the partition takes no writes until `logctl repair` decides"
        );
    }
}
