//! `status`: how a server is, and what it has counted.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

use crate::failure::{Exit, Result};
use crate::output::Output;
use crate::remote::Remote;
use crate::units::exact_duration;

#[derive(Serialize)]
struct Status<'a> {
    server_version: &'a str,
    uptime_ms: u64,
    metrics: BTreeMap<&'a str, u64>,
}

pub(crate) fn run(server: &Remote, output: &mut Output) -> Result<Exit> {
    let told = server.wait(server.admin()?.metrics())?;
    let metrics = told.metrics.iter().map(|metric| (metric.name.as_str(), metric.value));
    let status = Status {
        server_version: &told.server_version,
        uptime_ms: told.uptime,
        metrics: metrics.collect(),
    };
    if output.is_json() {
        output.object(&status)?;
        return Ok(Exit::Done);
    }
    let up = exact_duration(Duration::from_secs(told.uptime / 1_000));
    output.line(&format!("log-server {}, up for {up}", told.server_version))?;
    let mut rows = vec![vec!["METRIC".to_owned(), "VALUE".to_owned()]];
    let counted = status.metrics.iter();
    rows.extend(counted.map(|(name, value)| vec![(*name).to_owned(), value.to_string()]));
    output.table(&rows)?;
    Ok(Exit::Done)
}
