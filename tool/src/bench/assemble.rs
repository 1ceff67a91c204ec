// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Measures a selection, and makes the document of it and of what was recorded of others.

use std::fs;
use std::path::PathBuf;
use std::time::SystemTime;

use turnstile_techniques::Set;

use super::document::{Ablation, Document, Figure, Host, SCHEMA, SubjectInfo, WorkFigure};
use super::measure::blank;
use super::platform::Platform;
use super::recorded::Recorded;
use super::runner::{Job, Measured, Runner};
use super::selection::Selection;
use super::subjects::Subject;
use super::work;
use crate::failure::{Failure, Result};
use crate::isa::Isa;
use crate::layout::Layout;
use crate::setup::qemu::Qemu;

/// A document, and what went wrong while it was measured.
#[derive(Debug)]
pub struct Assembled {
    /// The figures, with an error in the place of each that could not be had.
    pub document: Document,
    /// Those errors, with everything that is known about them.
    pub failures: Vec<Failure>,
}

/// Measures, and adds recorded figures of the subjects that are not measured: they were taken on the usual machine.
pub fn measure(layout: &Layout, qemu: &Qemu, selection: &Selection) -> Result<Assembled> {
    let recorded = Recorded::load(layout)?;
    let jobs = selection.jobs();
    let results = match jobs.is_empty() {
        // Whole work alone: nothing of this is needed.
        true => Vec::new(),
        false => Runner::new(layout, qemu, selection.isa, selection.iterations)?.measure(&jobs),
    };
    let mut assembled = Assembled { document: empty(qemu, selection), failures: Vec::new() };
    let here = selection.variant.platform;
    for (job, result) in jobs.iter().zip(results) {
        match job.variant.platform == here {
            true => assembled.add(job, result),
            false => assembled.add_elsewhere(job, result),
        }
    }
    if here == Platform::usual_of(selection.isa) {
        for subject in Subject::of(selection.isa).filter(|subject| !selection.subjects.contains(subject)) {
            assembled.add_recorded(subject, selection, &recorded);
        }
    }
    if !selection.work.is_empty() {
        let Selection { isa, subjects, work, apart, .. } = selection;
        let counted = work::measure(layout, qemu, *isa, subjects, work, *apart)?;
        assembled.document.work = counted.figures;
        assembled.failures.extend(counted.failures);
        assembled.add_recorded_work(selection, &recorded);
    }
    // The table's order, whoever was measured.
    let place =
        |name: &str| Subject::ALL.iter().position(|subject| subject.name() == name).unwrap_or(usize::MAX);
    assembled.document.subjects.sort_by_key(|info| place(&info.subject));
    assembled.document.rows.sort_by_key(|figure| place(&figure.subject));
    Ok(assembled)
}

/// The document of figures that are written down: Turnstile's own, and recorded ones of others for the same rows.
pub fn written(isa: Isa, own: Vec<Figure>, recorded: &Recorded) -> Result<Document> {
    let mut selection = Selection { footprint: true, ..Selection::own(isa, &[])? };
    selection.rows.retain(|row| own.iter().any(|figure| figure.row == row.name));
    let qemu = Qemu { path: PathBuf::new(), version: String::new() };
    let mut assembled = Assembled { document: empty(&qemu, &selection), failures: Vec::new() };
    let platform = selection.variant.platform;
    let version = format!("Turnstile {}", env!("CARGO_PKG_VERSION"));
    // What its CPU needs is not written down.
    assembled.document.subjects.push(info(Subject::Turnstile, platform, (version, String::new())));
    assembled.document.rows = own;
    for subject in Subject::of(isa).filter(|subject| *subject != Subject::Turnstile) {
        assembled.add_recorded(subject, &selection, recorded);
    }
    Ok(assembled.document)
}

fn empty(qemu: &Qemu, selection: &Selection) -> Document {
    Document {
        schema: SCHEMA,
        date: humantime::format_rfc3339_seconds(SystemTime::now()).to_string(),
        host: host(),
        tool: env!("CARGO_PKG_VERSION").to_owned(),
        qemu: qemu.version.clone(),
        isa: selection.isa.name().to_owned(),
        platform: selection.variant.platform.machine(),
        command: selection.command(),
        subjects: Vec::new(),
        rows: Vec::new(),
        elsewhere: Vec::new(),
        traces: Vec::new(),
        work: Vec::new(),
        ablation: None,
        weights: None,
    }
}

impl Assembled {
    /// Adds what techniques are worth.
    pub fn ablate(&mut self, (ablation, failures): (Ablation, Vec<Failure>), chosen: Set) {
        self.document.command.push_str(&match chosen {
            Set::ALL => " --ablate".to_owned(),
            some => format!(" --ablate={some}"),
        });
        self.document.ablation = Some(ablation);
        self.failures.extend(failures);
    }

    fn add(&mut self, job: &Job, result: Result<Measured>) {
        let (figure, told) = match result {
            Ok(measured) => {
                self.document.traces.extend(measured.trace);
                (measured.figure, Some((measured.version, measured.mitigations)))
            }
            Err(failure) => (self.failed(job, failure), None),
        };
        self.document.rows.push(figure);
        match self.document.subjects.iter_mut().find(|info| info.subject == job.subject.name()) {
            Some(info) => {
                if let Some(told) = told {
                    (info.version, info.mitigations) = told;
                }
            }
            // What could not be run cannot say its version.
            None => {
                let info = info(job.subject, job.variant.platform, told.unwrap_or_default());
                self.document.subjects.push(info);
            }
        }
    }

    fn add_elsewhere(&mut self, job: &Job, result: Result<Measured>) {
        let figure = result.map_or_else(|failure| self.failed(job, failure), |measured| measured.figure);
        self.document.elsewhere.push(figure);
    }

    /// What stands in the place of a figure that could not be had.
    fn failed(&mut self, job: &Job, failure: Failure) -> Figure {
        let error = Some(failure.to_string());
        self.failures.push(failure.context_line(&job.shown()));
        Figure { error, ..blank(job.subject, job.row, job.variant.platform) }
    }

    fn add_recorded(&mut self, subject: Subject, selection: &Selection, recorded: &Recorded) {
        let platform = selection.variant.platform;
        let figures: Vec<Figure> = selection
            .rows
            .iter()
            .filter_map(|row| {
                let instructions = Some(recorded.instructions(subject, row.name)?);
                let footprint = recorded.footprint(subject, row.name).filter(|_| selection.footprint);
                Some(Figure { recorded: true, instructions, footprint, ..blank(subject, row, platform) })
            })
            .collect();
        if !figures.is_empty() {
            let version = recorded.version(subject).unwrap_or_default().to_owned();
            let mitigations = recorded.mitigations(subject).to_owned();
            self.document.subjects.push(info(subject, platform, (version, mitigations)));
            self.document.rows.extend(figures);
        }
    }
}

impl Assembled {
    /// Adds the recorded ratios of whole work on hypervisors that are not measured.
    fn add_recorded_work(&mut self, selection: &Selection, recorded: &Recorded) {
        for subject in Subject::of(selection.isa).filter(|subject| !selection.subjects.contains(subject)) {
            let figures = selection.work.iter().filter_map(|work| {
                Some(WorkFigure {
                    row: work.name.to_owned(),
                    what: work.what.to_owned(),
                    under: subject.name().to_owned(),
                    title: subject.title().to_owned(),
                    version: recorded.version(subject).unwrap_or_default().to_owned(),
                    isa: selection.isa.name().to_owned(),
                    recorded: true,
                    ratio: Some(recorded.work(subject, work.name)?),
                    ..WorkFigure::default()
                })
            });
            self.document.work.extend(figures);
        }
    }
}

fn info(subject: Subject, platform: &Platform, (version, mitigations): (String, String)) -> SubjectInfo {
    SubjectInfo {
        subject: subject.name().to_owned(),
        mode: subject.mode(platform).to_owned(),
        title: subject.title().to_owned(),
        version,
        mitigations,
    }
}

/// The machine that this runs on.
fn host() -> Host {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let field = |text: &str, key: &str, separator: char| {
        let line = text.lines().find(|line| line.starts_with(key))?;
        Some(line.split_once(separator)?.1.trim().trim_matches('"').to_owned())
    };
    let system = field(&read("/etc/os-release"), "PRETTY_NAME", '=').unwrap_or_else(|| "Linux".to_owned());
    let kernel = read("/proc/sys/kernel/osrelease");
    Host {
        // Not every architecture's kernel names its CPU.
        cpu: field(&read("/proc/cpuinfo"), "model name", ':')
            .unwrap_or_else(|| std::env::consts::ARCH.to_owned()),
        cores: std::thread::available_parallelism().map_or(1, usize::from),
        os: format!("{system}, {}", kernel.trim()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::rows::ROWS;
    use super::super::samples::turnstile;
    use super::*;

    fn assembled() -> Assembled {
        let selection = Selection::own(Isa::Arm64, &[]).unwrap();
        let qemu = Qemu { path: PathBuf::from("qemu"), version: "10.0.2".to_owned() };
        Assembled { document: empty(&qemu, &selection), failures: Vec::new() }
    }

    fn measured() -> Result<Measured> {
        let (version, mitigations) = ("Turnstile 0.0.0".to_owned(), "nothing".to_owned());
        Ok(Measured { figure: turnstile(0, &[]), version, mitigations, trace: None })
    }

    #[test]
    fn a_failure_is_an_error_in_its_place_and_the_others_come_out() {
        let mut all = assembled();
        let help = "see whether it is there";
        all.add(&Job::new(Subject::Xen, &ROWS[0]), Err(Failure::failed("it does not boot").help(help)));
        all.add(&Job::new(Subject::Turnstile, &ROWS[0]), measured());
        let [failed, good] = all.document.rows.as_slice() else { panic!("two rows") };
        assert!(failed.error.as_ref().unwrap().contains("it does not boot"));
        assert_eq!((failed.instructions, good.error.is_none()), (None, true));
        assert!(all.failures[0].to_string().starts_with("null-hypercall on Xen: it does not boot"));
        let versions: Vec<&str> = all.document.subjects.iter().map(|info| &*info.version).collect();
        assert_eq!(versions, ["", "Turnstile 0.0.0"], "what did not run has not said its version");
        let mitigations: Vec<&str> = all.document.subjects.iter().map(|info| &*info.mitigations).collect();
        assert_eq!(mitigations, ["", "nothing"]);
    }

    #[test]
    fn recorded_figures_are_for_what_was_measured() {
        let recorded = Recorded::load(&Layout::find().unwrap()).unwrap();
        let selection = Selection::own(Isa::Arm64, &["null-hypercall".to_owned()]).unwrap();
        let mut all = assembled();
        all.add_recorded(Subject::KvmVhe, &selection, &recorded);
        all.add_recorded(Subject::Turnstile, &selection, &recorded);
        let [figure] = all.document.rows.as_slice() else { panic!("one row") };
        assert!(figure.recorded && figure.instructions.is_some() && figure.classes.is_empty());
        assert!(all.document.subjects[0].version.starts_with("Linux"));
    }

    #[test]
    fn dates_have_the_agreed_form() {
        let date = assembled().document.date;
        assert!(date.len() == 20 && date.ends_with('Z') && date.as_bytes()[10] == b'T', "{date}");
    }
}
