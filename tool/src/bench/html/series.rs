// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The subjects as the page shows them: order, heading, colour, and the one that others are compared with.

use crate::bench::document::{Document, SubjectInfo};

/// The subject that ratios refer to, where it is there.
const REFERENCE: &str = "turnstile";
/// Those whose colour is always the same.
const COLOURED: [&str; 5] = ["turnstile", "kvm-vhe", "kvm-nvhe", "xen", "kvm-6.1-vhe"];
/// How many colours the style sheet has.
const COLOURS: usize = 8;

/// A subject.
#[derive(Clone, Copy, Debug)]
pub struct Series<'d> {
    /// What the document says of it.
    pub info: &'d SubjectInfo,
    /// The number of its colour.
    pub colour: usize,
    /// Whether others are compared with it.
    pub reference: bool,
}

impl<'d> Series<'d> {
    /// The subjects in the document's order.
    pub fn all(document: &'d Document) -> Vec<Self> {
        let named = document.subjects.iter().any(|info| info.subject == REFERENCE);
        let mut next = COLOURED.len();
        let mut series = Vec::new();
        for (index, info) in document.subjects.iter().enumerate() {
            let colour = COLOURED.iter().position(|name| *name == info.subject).unwrap_or_else(|| {
                next += 1;
                (next - 1) % COLOURS
            });
            let reference = if named { info.subject == REFERENCE } else { index == 0 };
            series.push(Series { info, colour, reference });
        }
        series
    }

    /// The heading of a subject by its name, or the name.
    pub fn title(all: &[Self], subject: &'d str) -> &'d str {
        all.iter().find(|series| series.info.subject == subject).map_or(subject, |series| &series.info.title)
    }

    /// The colour of a subject by its name.
    pub fn colour(all: &[Self], subject: &str) -> usize {
        all.iter().find(|series| series.info.subject == subject).map_or(0, |series| series.colour)
    }
}
