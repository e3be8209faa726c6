//! Row: what was measured of one piece of work, and the bars it has to clear.

use benches::stats::Figure;

use crate::contest::{CONTROL, Measured, OURS};

/// One piece of work. Its first part stands for it.
pub(crate) struct Row {
    pub(crate) parts: Vec<Part>,
}

/// One figure of it.
pub(crate) struct Part {
    /// What it is, where a row has several.
    pub(crate) name: &'static str,
    pub(crate) unit: &'static str,
    pub(crate) ours: Option<Figure>,
    pub(crate) control: Option<Figure>,
    pub(crate) peers: Vec<(&'static str, Figure)>,
    pub(crate) bars: Vec<Bar>,
}

/// What our figure, or its ratio to another, should be.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bar {
    pub(crate) against: Against,
    pub(crate) bound: Bound,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Against {
    /// The figure itself.
    Nothing,
    Control,
    Peer(&'static str),
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Bound {
    AtLeast(f64),
    AtMost(f64),
}

impl Bar {
    pub(crate) const fn at_least(value: f64, against: Against) -> Bar {
        Bar { against, bound: Bound::AtLeast(value) }
    }

    pub(crate) const fn at_most(value: f64, against: Against) -> Bar {
        Bar { against, bound: Bound::AtMost(value) }
    }

    /// What is held against the bound, if it was measured.
    pub(crate) fn value(&self, part: &Part) -> Option<f64> {
        let ours = part.ours?.median;
        match self.against {
            Against::Nothing => Some(ours),
            Against::Control => part.ratio(),
            Against::Peer(wanted) => {
                let (_, peer) = part.peers.iter().find(|(name, _)| *name == wanted)?;
                Some(ours / peer.median)
            }
        }
    }

    /// Whether the bar is met, if that can be told.
    pub(crate) fn is_met(&self, part: &Part) -> Option<bool> {
        let value = self.value(part)?;
        Some(match self.bound {
            Bound::AtLeast(least) => value >= least,
            Bound::AtMost(most) => value <= most,
        })
    }
}

impl Part {
    /// The figure at `index` of each side.
    pub(crate) fn of(
        measured: &Measured,
        index: usize,
        name: &'static str,
        unit: &'static str,
        bars: Vec<Bar>,
    ) -> Part {
        let figure = |side| measured.figure(side, index);
        let (ours, control) = (figure(OURS), figure(CONTROL));
        Part { name, unit, ours, control, peers: measured.peers(index), bars }
    }

    /// Ours to the control's.
    pub(crate) fn ratio(&self) -> Option<f64> {
        Some(self.ours?.median / self.control?.median)
    }
}

impl Row {
    pub(crate) fn of(parts: Vec<Part>) -> Row {
        Row { parts }
    }

    /// A row whose parts have the same bar, on how far ours may be above the control: the worst
    /// stands for it.
    pub(crate) fn of_worst(mut parts: Vec<Part>) -> Row {
        let ratio = |part: &Part| part.ratio().unwrap_or(0.0);
        parts.sort_by(|left, right| ratio(right).total_cmp(&ratio(left)));
        Row { parts }
    }
}
