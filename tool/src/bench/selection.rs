// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is to be measured, as the command line says it.

use super::ITERATIONS;
use super::platform::Platform;
use super::rows::{self, ROWS, Row};
use super::runner::Job;
use super::subjects::{Subject, Variant};
use crate::failure::{Failure, Result};

/// The row whose trace is always taken: it is what the cheapest exit consists of.
const SHOWN: &str = "null-hypercall";
/// The word for all subjects.
pub const ALL: &str = "all";

/// Subjects, rows, and how often.
#[derive(Clone, Debug)]
pub struct Selection {
    /// Whom.
    pub subjects: Vec<Subject>,
    /// What.
    pub rows: Vec<&'static Row>,
    /// How often.
    pub iterations: u64,
    /// Whether traces of all rows are wanted.
    pub trace: bool,
    /// What is special about Turnstile.
    pub variant: Variant,
}

impl Selection {
    /// Turnstile's rows with the usual iterations.
    pub fn own(rows: &[String]) -> Result<Self> {
        Self::new(&[], rows, ITERATIONS)
    }

    /// Takes names; no subjects are Turnstile, and no rows are all rows.
    pub fn new(subjects: &[String], rows: &[String], iterations: u64) -> Result<Self> {
        let named = |subject: &Subject| subjects.iter().any(|name| name == subject.name() || name == ALL);
        let mut chosen: Vec<Subject> = Subject::ALL.into_iter().filter(named).collect();
        if subjects.is_empty() {
            chosen.push(Subject::Turnstile);
        }
        let rows = rows::select(rows)?;
        let selection =
            Selection { subjects: chosen, rows, iterations, trace: false, variant: Variant::default() };
        match selection.jobs().is_empty() {
            true => Err(Failure::usage("none of the subjects has any of the rows")),
            false => Ok(selection),
        }
    }

    /// The runs, by subject and then by row.
    pub fn jobs(&self) -> Vec<Job> {
        let all = self.subjects.iter().flat_map(|&subject| self.rows.iter().map(move |&row| (subject, row)));
        let job = |(subject, row): (Subject, &'static Row)| Job {
            subject,
            row,
            variant: self.variant.clone(),
            trace: self.trace || row.name == SHOWN,
        };
        all.filter(|(subject, row)| subject.has(row)).map(job).collect()
    }

    /// The command that measures this.
    pub fn command(&self) -> String {
        let mut command = "./x bench".to_owned();
        if self.subjects == Subject::ALL {
            command.push_str(&format!(" --subjects {ALL}"));
        } else if self.subjects != [Subject::Turnstile] {
            let names: Vec<&str> = self.subjects.iter().map(|subject| subject.name()).collect();
            command.push_str(&format!(" --subjects {}", names.join(",")));
        }
        if self.rows.len() != ROWS.len() {
            let names: Vec<&str> = self.rows.iter().map(|row| row.name).collect();
            command.push_str(&format!(" --rows {}", names.join(",")));
        }
        if self.variant.platform != Platform::default() {
            command.push_str(&format!(" --platform {}", self.variant.platform.name()));
        }
        if self.variant.vm == Variant::statistics().vm {
            command.push_str(" --statistics");
        }
        if let Some(mitigations) = &self.variant.mitigations {
            command.push_str(&format!(" --mitigations {mitigations}"));
        }
        if self.iterations != ITERATIONS {
            command.push_str(&format!(" --iterations {}", self.iterations));
        }
        command
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn select(subjects: &[&str], rows: &[&str]) -> Selection {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        Selection::new(&owned(subjects), &owned(rows), ITERATIONS).unwrap()
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
        let variant = Variant { platform: Platform::NvheGicv3, ..Variant::statistics() };
        let elsewhere = Selection { variant, ..select(&[], &[]) };
        assert_eq!(elsewhere.command(), "./x bench --platform nvhe-gicv3 --statistics");
        let variant = Variant { mitigations: Some("loop:24".to_owned()), ..Variant::default() };
        let guarded = Selection { variant, ..select(&[], &[]) };
        assert_eq!(guarded.command(), "./x bench --mitigations loop:24");
        let some = Selection { iterations: 20000, ..select(&["xen"], &["self-sgi"]) };
        assert_eq!(some.command(), "./x bench --subjects xen --rows self-sgi --iterations 20000");
    }
}
