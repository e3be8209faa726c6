//! Progress on stderr; there is none where stderr is no terminal.

use indicatif::{ProgressBar, ProgressStyle};

/// A bar over a number of bytes that is known.
pub(crate) fn bytes(total: u64, what: &str) -> ProgressBar {
    let bar = ProgressBar::new(total).with_message(what.to_owned());
    bar.with_style(style("{msg} {bar:30} {binary_bytes} of {binary_total_bytes}, {eta} left"))
}

/// A count of records, how many there will be is not known.
pub(crate) fn records(what: &str) -> ProgressBar {
    let bar = ProgressBar::no_length().with_message(what.to_owned());
    bar.with_style(style("{spinner} {msg} {human_pos} records, {per_sec}"))
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).expect("the templates here are well-formed")
}
