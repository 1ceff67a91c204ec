// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is to be measured, as the command line says it.

use super::platform::{self, Platform};
use super::rows::{self, Counted, ITERATIONS, Row};
use super::runner::Job;
use super::subjects::{ALL, Subject, Variant};
use super::work;
use super::work::rows::{WORK, Work};
use crate::failure::{Failure, Result};
use crate::isa::Isa;

/// The row whose trace is always taken: it is what the cheapest exit consists of.
const SHOWN: &str = "null-hypercall";

/// Subjects, rows, and how often.
#[derive(Clone, Debug)]
pub struct Selection {
    /// The architecture.
    pub isa: Isa,
    /// Whom.
    pub subjects: Vec<Subject>,
    /// What.
    pub rows: Vec<&'static Row>,
    /// Which whole work in Linux, besides.
    pub work: Vec<&'static Work>,
    /// Whether it is told what of that is outside the guest.
    pub apart: bool,
    /// How often.
    pub iterations: u64,
    /// Whether traces of all rows are wanted.
    pub trace: bool,
    /// Whether the lines and pages that operations touch are counted.
    pub footprint: bool,
    /// What is special about Turnstile. Its platform is that of the other subjects, too.
    pub variant: Variant,
    /// More platforms on which Turnstile is measured.
    pub elsewhere: Vec<&'static Platform>,
}

impl Selection {
    /// Turnstile's rows with the usual iterations.
    pub fn own(isa: Isa, rows: &[String]) -> Result<Self> {
        Self::new(isa, &[], rows, ITERATIONS)
    }

    /// Takes names; no subjects are Turnstile, and no rows are all rows.
    pub fn new(isa: Isa, subjects: &[String], rows: &[String], iterations: u64) -> Result<Self> {
        let named = |subject: &Subject| subjects.iter().any(|name| name == subject.name() || name == ALL);
        let mut chosen: Vec<Subject> = Subject::of(isa).filter(named).collect();
        let other =
            |name: &&String| *name != ALL && !Subject::of(isa).any(|subject| subject.name() == **name);
        if let Some(other) = subjects.iter().find(other) {
            let what = format!("`{other}` does not run on {isa}");
            return Err(Failure::usage(what).help("choose another --isa, or other --subjects"));
        }
        if subjects.is_empty() {
            chosen.push(Subject::Turnstile);
        }
        let (work, others) = work::rows::split(rows);
        let rows = match others.is_empty() && !work.is_empty() {
            true => Vec::new(),
            false => rows::select(isa, &others)?,
        };
        let variant = Variant { platform: Platform::usual_of(isa), ..Variant::default() };
        let selection = Selection {
            isa,
            subjects: chosen,
            rows,
            work,
            apart: false,
            iterations,
            trace: false,
            footprint: false,
            variant,
            elsewhere: Vec::new(),
        };
        match selection.is_empty() {
            true => Err(Failure::usage("none of the subjects has any of the rows")),
            false => Ok(selection),
        }
    }

    /// Whether there is nothing to be measured.
    pub fn is_empty(&self) -> bool {
        self.work.is_empty() && self.jobs().is_empty()
    }

    /// The runs, by subject and then by row, and then those elsewhere. What is elsewhere is not traced.
    pub fn jobs(&self) -> Vec<Job> {
        let here = self.subjects.iter().map(|&subject| (subject, self.variant.platform));
        let elsewhere = self.elsewhere.iter().map(|&platform| (Subject::Turnstile, platform));
        let all = here.chain(elsewhere);
        let all =
            all.flat_map(|(subject, platform)| self.rows.iter().map(move |&row| (subject, platform, row)));
        let job = |(subject, platform, row): (Subject, &'static Platform, &'static Row)| Job {
            subject,
            row,
            variant: Variant { platform, ..self.variant.clone() },
            // What has no visit has nothing to be traced.
            trace: platform == self.variant.platform
                && (self.trace || row.name == SHOWN)
                && !matches!(row.counted, Counted::InAll | Counted::Boot),
            footprint: self.footprint,
        };
        all.filter(|(subject, platform, row)| subject.has(row) && row.is_on(platform)).map(job).collect()
    }

    /// The command that measures this.
    pub fn command(&self) -> String {
        let mut command = "./x bench".to_owned();
        if self.isa != Isa::default() {
            command.push_str(&format!(" --isa {}", self.isa));
        }
        if Subject::of(self.isa).eq(self.subjects.iter().copied()) {
            command.push_str(&format!(" --subjects {ALL}"));
        } else if self.subjects != [Subject::Turnstile] {
            let names: Vec<&str> = self.subjects.iter().map(|subject| subject.name()).collect();
            command.push_str(&format!(" --subjects {}", names.join(",")));
        }
        if self.rows.len() != rows::of(self.isa).len() {
            let all = self.work.len() == WORK.len();
            let work = self.work.iter().map(|work| work.name).filter(|_| !all);
            let names: Vec<&str> = self
                .rows
                .iter()
                .map(|row| row.name)
                .chain(work)
                .chain(all.then_some(work::rows::ALL))
                .collect();
            command.push_str(&format!(" --rows {}", names.join(",")));
        }
        let platforms: Vec<&str> = [&self.variant.platform]
            .into_iter()
            .chain(&self.elsewhere)
            .map(|platform| platform.name)
            .collect();
        let usual = Platform::usual_of(self.isa);
        if platforms.len() == Platform::of(self.isa).len() && self.variant.platform == usual {
            command.push_str(&format!(" --platform {}", platform::ALL));
        } else if platforms != [usual.name] {
            command.push_str(&format!(" --platform {}", platforms.join(",")));
        }
        if self.variant.vm == Variant::statistics().vm {
            command.push_str(" --statistics");
        }
        if let Some(mitigations) = &self.variant.mitigations {
            command.push_str(&format!(" --mitigations {mitigations}"));
        }
        if let Some(turn) = self.variant.turn {
            command.push_str(&format!(" --turn {turn}"));
        }
        if self.footprint {
            command.push_str(" --footprint");
        }
        if self.iterations != ITERATIONS {
            command.push_str(&format!(" --iterations {}", self.iterations));
        }
        command
    }
}

#[cfg(test)]
mod tests {
    use super::super::platform::PLATFORMS;
    use super::*;

    fn select(subjects: &[&str], rows: &[&str]) -> Selection {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        Selection::new(Isa::Arm64, &owned(subjects), &owned(rows), ITERATIONS).unwrap()
    }

    #[test]
    fn names_become_jobs_in_the_tables_order() {
        let selection = select(&["xen", "turnstile"], &["self-sgi", "null-hypercall"]);
        let jobs: Vec<_> =
            selection.jobs().iter().map(|job| (job.subject, job.row.name, job.trace)).collect();
        let (own, xen) = (Subject::Turnstile, Subject::Xen);
        assert_eq!(
            jobs,
            [
                (own, "null-hypercall", true),
                (own, "self-sgi", false),
                (xen, "null-hypercall", true),
                (xen, "self-sgi", false)
            ]
        );
    }

    #[test]
    fn commands_repeat_the_selection() {
        assert_eq!(select(&[], &[]).command(), "./x bench");
        assert_eq!(select(&["all"], &[]).command(), "./x bench --subjects all");
        let timed = Selection { variant: Variant::statistics(), ..select(&[], &[]) };
        assert_eq!(timed.command(), "./x bench --statistics");
        let variant = Variant { platform: &PLATFORMS[2], ..Variant::statistics() };
        let elsewhere = Selection { variant, ..select(&[], &[]) };
        assert_eq!(elsewhere.command(), "./x bench --platform max-gicv2 --statistics");
        let variant = Variant { mitigations: Some("loop:24".to_owned()), ..Variant::default() };
        let guarded = Selection { variant, ..select(&[], &[]) };
        assert_eq!(guarded.command(), "./x bench --mitigations loop:24");
        let variant = Variant { turn: Some(0), ..Variant::default() };
        let turned = Selection { variant, ..select(&["kvm-vhe"], &["packet"]) };
        assert_eq!(turned.command(), "./x bench --subjects kvm-vhe --rows packet --turn 0");
        let touched = Selection { footprint: true, ..select(&[], &[]) };
        assert_eq!(touched.command(), "./x bench --footprint");
        let elsewhere = PLATFORMS.iter().skip(1).collect();
        let everywhere = Selection { elsewhere, ..select(&[], &[]) };
        assert_eq!(everywhere.command(), "./x bench --platform all");
        let pcs = Selection::new(Isa::X86_64, &[], &["cpuid".to_owned()], ITERATIONS).unwrap();
        assert_eq!(pcs.command(), "./x bench --isa x86_64 --rows cpuid");
        assert_eq!(select(&[], &["linux-work"]).command(), "./x bench --rows linux-work");
        let mixed = select(&[], &["sleep-1ms", "self-sgi"]);
        assert_eq!(mixed.command(), "./x bench --rows self-sgi,sleep-1ms");
        let some = Selection { iterations: 20000, ..select(&["xen"], &["self-sgi"]) };
        assert_eq!(some.command(), "./x bench --subjects xen --rows self-sgi --iterations 20000");
    }
}
