// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Runs what is to be measured, two at a time; what fails is an error in its place, and the others go on.

use std::collections::BTreeMap;
use std::fs::remove_dir_all;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::document::{Figure, Trace};
use super::measure;
use super::platform::Platform;
use super::rows::Row;
use super::subjects::difference::{self, Difference};
use super::subjects::{self, Outcome, Run, Subject, Variant};
use super::trace;
use crate::failure::{Failure, Result};
use crate::isa::Isa;
use crate::layout::Layout;
use crate::meter::reading::Group;
use crate::setup;
use crate::setup::qemu::Qemu;
use crate::ui;

/// Runs at a time: each is one thread of QEMU's.
const PARALLEL: usize = 2;
/// Processor time for booting, in seconds, and iterations that surely fit into one more second.
const BOOT_SECONDS: u64 = 120;
const ITERATIONS_PER_SECOND: u64 = 2_000;

/// One row of one subject.
#[derive(Clone, Debug)]
pub struct Job {
    /// Whom.
    pub subject: Subject,
    /// What.
    pub row: &'static Row,
    /// What is special about Turnstile.
    pub variant: Variant,
    /// Whether the instructions of a visit are wanted.
    pub trace: bool,
    /// Whether the lines and pages that it touches are wanted.
    pub footprint: bool,
}

impl Job {
    /// A row on a subject as it usually is.
    pub fn new(subject: Subject, row: &'static Row) -> Self {
        let variant = Variant { platform: Platform::usual_of(row.isa), ..Variant::default() };
        Job { subject, row, variant, trace: false, footprint: false }
    }

    /// What is measured where, for people.
    pub fn shown(&self) -> String {
        match self.variant.platform == Platform::usual_of(self.row.isa) {
            true => format!("{} on {}", self.row.name, self.subject.title()),
            false => format!("{} on {}", self.row.name, self.variant.platform.name),
        }
    }
}

/// What a job found.
#[derive(Debug)]
pub struct Measured {
    /// The figures.
    pub figure: Figure,
    /// What was measured, with its version.
    pub version: String,
    /// What it does against speculation, as it says itself.
    pub mitigations: String,
    /// What ran, if that was wanted.
    pub trace: Option<Trace>,
}

/// Measures with the meter in QEMU.
pub struct Runner<'a> {
    layout: &'a Layout,
    qemu: &'a Qemu,
    iterations: u64,
    limit: Duration,
    meter: PathBuf,
}

impl<'a> Runner<'a> {
    /// Builds what all runs need, and sees that QEMU can load the meter.
    pub fn new(layout: &'a Layout, qemu: &'a Qemu, isa: Isa, iterations: u64) -> Result<Self> {
        let meter = setup::images::meter(layout)?;
        setup::qemu::can_load(qemu, &meter)?;
        setup::images::guests(layout, isa)?;
        let limit = Duration::from_secs(BOOT_SECONDS + iterations / ITERATIONS_PER_SECOND);
        Ok(Runner { layout, qemu, iterations, limit, meter })
    }

    /// Gives each run as much processor time, and no more.
    pub fn with_limit(self, limit: Duration) -> Self {
        Runner { limit, ..self }
    }

    /// Measures all jobs; the results are in their order.
    pub fn measure(&self, jobs: &[Job]) -> Vec<Result<Measured>> {
        let absent = absent(jobs, |job| {
            subjects::fetch(job.subject, self.layout)?;
            if difference::has(job.subject, job.row) {
                difference::fetch(job.subject, self.layout, job.row.isa)
            } else {
                Ok(())
            }
        });
        let step = ui::Step::start_counted("measuring", jobs.len() as u64);
        let results: Vec<Mutex<Option<Result<Measured>>>> =
            absent.into_iter().map(|failure| Mutex::new(failure.map(Err))).collect();
        let next = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..PARALLEL.min(jobs.len()) {
                scope.spawn(|| {
                    loop {
                        // From the end: the subjects that take longest are last in the table.
                        let taken = next.fetch_add(1, Ordering::Relaxed) + 1;
                        let Some(index) = jobs.len().checked_sub(taken) else { break };
                        let (Some(job), Some(slot)) = (jobs.get(index), results.get(index)) else { break };
                        let Ok(mut slot) = slot.lock() else { break };
                        if slot.is_none() {
                            step.detail(job.shown());
                            *slot = Some(self.one(index, job));
                        }
                        step.advance();
                    }
                });
            }
        });
        step.done();
        let unmeasured = || Err(Failure::failed("it was not measured"));
        let result = |slot: Mutex<Option<_>>| slot.into_inner().ok().flatten().unwrap_or_else(unmeasured);
        results.into_iter().map(result).collect()
    }

    fn one(&self, index: usize, job: &Job) -> Result<Measured> {
        let run = Run {
            layout: self.layout,
            qemu: self.qemu,
            row: job.row,
            iterations: self.iterations,
            limit: self.limit,
            trace: job.trace,
            footprint: job.footprint,
            meter: self.meter.clone(),
            folder: self.layout.bundles().join(format!("bench-{index}")),
            variant: &job.variant,
        };
        if difference::has(job.subject, job.row) {
            let difference = difference::measure(job.subject, &run)?;
            let figure = measure::of_difference(job.subject, job.row, job.variant.platform, &difference);
            let _ = remove_dir_all(&run.folder);
            let Difference { version, mitigations, .. } = difference;
            return Ok(Measured { figure, version, mitigations, trace: None });
        }
        let outcome = subjects::run(job.subject, &run)?;
        let figure = measure::figure(job.subject, job.row, job.variant.platform, &outcome)?;
        let trace = if job.trace { Some(self.trace(job, &outcome)?) } else { None };
        // What is left of a run that failed may tell why.
        let _ = remove_dir_all(&run.folder);
        Ok(Measured { figure, version: outcome.version, mitigations: outcome.mitigations, trace })
    }

    fn trace(&self, job: &Job, outcome: &Outcome) -> Result<Trace> {
        let kinds = measure::counted_kinds(job.row, outcome)?;
        let visits: Vec<&Group> = kinds.iter().map(|kind| kind.typical).collect();
        let symbols = subjects::symbols(
            job.subject,
            job.row.name,
            self.layout,
            self.qemu,
            &job.variant,
            &visits,
            &outcome.modules,
        )?;
        Ok(trace::trace(job.subject.name(), job.row.name, &kinds, &symbols))
    }
}

/// The failures of the jobs whose subjects cannot be had. Each is tried once: without a network that takes its time.
fn absent(jobs: &[Job], fetch: impl Fn(&Job) -> Result<()>) -> Vec<Option<Failure>> {
    let mut known: BTreeMap<(Subject, bool), Option<String>> = BTreeMap::new();
    let failure = |job: &Job| {
        // Rows of disks and networks need more.
        let what = (job.subject, difference::has(job.subject, job.row));
        match known.get(&what) {
            Some(said) => said.as_deref().map(Failure::failed),
            None => {
                let failure = fetch(job).err();
                known.insert(what, failure.as_ref().map(Failure::to_string));
                failure
            }
        }
    };
    jobs.iter().map(failure).collect()
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::super::rows::ROWS;
    use super::*;

    #[test]
    fn each_subject_is_fetched_once() {
        let subjects = [Subject::Xen, Subject::Turnstile, Subject::Xen];
        let jobs = subjects.map(|subject| Job::new(subject, &ROWS[0]));
        let asked = RefCell::new(Vec::new());
        let failures = absent(&jobs, |&Job { subject, .. }| {
            asked.borrow_mut().push(subject);
            match subject {
                Subject::Xen => Err(Failure::missing("no network").details("long").help("connect it")),
                _ => Ok(()),
            }
        });
        assert_eq!(*asked.borrow(), [Subject::Xen, Subject::Turnstile]);
        let said: Vec<_> = failures.iter().map(|failure| failure.as_ref().map(Failure::to_string)).collect();
        let failed = Some("no network (connect it)".to_owned());
        assert_eq!(said, [failed.clone(), None, failed], "the table's and the JSON's");
    }
}
