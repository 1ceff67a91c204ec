// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the suite says: each result as it comes, and at the end what took how long and how many passed.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use turnstile::bench::report::printable;
use turnstile::failure::{Failure, Kind, Result};
use turnstile::layout::{Layout, write_atomically};
use turnstile::setup::last_lines;
use turnstile::style::{CYAN, DIM, GREEN, RED, YELLOW};
use turnstile::usage;

use super::log::log_file;

/// How many of the slowest tests are shown at the end; a file has all.
const SHOWN: usize = 25;

/// The most characters that are shown of a line that is not the suite's own.
const WIDTH: usize = 160;

/// How many tests passed, failed and were skipped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Those that passed.
    pub passed: usize,
    /// Those that failed.
    pub failed: usize,
    /// Those that were not run.
    pub skipped: usize,
}

impl Counts {
    /// One that failed.
    pub fn failed() -> Self {
        Counts { failed: 1, ..Counts::default() }
    }

    /// Those of a single test.
    pub fn of(verdict: &Verdict) -> Self {
        match verdict {
            Verdict::Passed => Counts { passed: 1, ..Counts::default() },
            Verdict::Failed(_) => Counts::failed(),
            Verdict::Skipped(_) => Counts { skipped: 1, ..Counts::default() },
        }
    }

    fn add(&mut self, other: Counts) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }
}

/// What became of a test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It passed.
    Passed,
    /// It failed, for this reason.
    Failed(String),
    /// It was not run, for this reason.
    Skipped(String),
}

impl From<Result<()>> for Verdict {
    fn from(result: Result<()>) -> Self {
        result.map_err(|failure| failure.full()).into()
    }
}

impl From<std::result::Result<(), String>> for Verdict {
    fn from(result: std::result::Result<(), String>) -> Self {
        match result {
            Ok(()) => Verdict::Passed,
            Err(reason) => Verdict::Failed(reason),
        }
    }
}

/// How long a test took.
#[derive(Clone, Debug, PartialEq)]
struct Took {
    name: String,
    elapsed: Duration,
    /// The processor time of its emulator, where one boot was all of it, or of cargo and what that ran.
    used: Option<Duration>,
}

/// What is kept of all results until the end.
#[derive(Debug, Default)]
struct Sums {
    counts: Counts,
    took: Vec<Took>,
    /// A line for each that did not pass: of a long run's output its end may be all that is at hand.
    missed: Vec<String>,
}

/// Prints results as they come, adds them up, and keeps how long each took.
pub struct Report {
    begin: Instant,
    sums: Mutex<Sums>,
}

impl Report {
    /// Begins now.
    pub fn new() -> Self {
        Report { begin: Instant::now(), sums: Mutex::default() }
    }

    /// Says on a terminal what is under way.
    pub fn starts(&self, name: &str) {
        if turnstile::ui::interactive() {
            anstream::eprintln!("{DIM}     {name} …{DIM:#}");
        }
    }

    /// Takes the result of one test, whose emulator used so much processor time if there was just one.
    pub fn single(
        &self,
        layout: &Layout,
        name: &str,
        verdict: &Verdict,
        begin: Instant,
        used: Option<Duration>,
    ) {
        self.add(
            layout,
            name,
            Counts::of(verdict),
            verdict,
            Took { name: name.to_owned(), elapsed: begin.elapsed(), used },
        );
    }

    /// Takes the results of a stage of several tests, which used so much processor time.
    pub fn stage(
        &self,
        layout: &Layout,
        name: &str,
        (counts, verdict): (Counts, &Verdict),
        begin: Instant,
        used: Option<Duration>,
    ) {
        let took = Took { name: name.to_owned(), elapsed: begin.elapsed(), used };
        self.add(layout, name, counts, verdict, took);
    }

    fn add(&self, layout: &Layout, name: &str, counts: Counts, verdict: &Verdict, took: Took) {
        let Ok(mut sums) = self.sums.lock() else { return };
        let seconds = took.elapsed.as_secs_f64();
        sums.counts.add(counts);
        sums.took.push(took);
        sums.missed.extend(missed(name, verdict));
        let several = match counts.passed {
            0 | 1 => String::new(),
            passed => format!("{passed} tests, "),
        };
        match verdict {
            Verdict::Passed => {
                anstream::println!("{GREEN}PASS{GREEN:#} {name} {DIM}({several}{seconds:.1} s){DIM:#}");
            }
            Verdict::Skipped(reason) => anstream::println!("{YELLOW}SKIP{YELLOW:#} {name}: {reason}"),
            Verdict::Failed(reason) => {
                anstream::println!("{RED}FAIL{RED:#} {name}: {reason}");
                let log = log_file(layout, name);
                if log.is_file() {
                    anstream::println!("     {CYAN}log{CYAN:#} {}", Layout::shown(&log));
                    let text = std::fs::read(&log).unwrap_or_default();
                    for line in end_of_log(&String::from_utf8_lossy(&text)).lines() {
                        anstream::println!("     {DIM}|{DIM:#} {line}");
                    }
                }
            }
        }
    }

    /// Prints what took longest, what did not pass, and the last line.
    pub fn finish(self, layout: &Layout) -> Result<()> {
        let Sums { counts, mut took, missed } = self.sums.into_inner().unwrap_or_default();
        took.sort_by_key(|took| std::cmp::Reverse(took.elapsed));
        let file = log_file(layout, "times").with_extension("txt");
        let all = lines(&took).join("\n") + "\n";
        if took.len() > 1 && write_atomically(&file, all.as_bytes()).is_ok() {
            // Of two processors, what is missing to twice the time was idle.
            let used = usage::with_children(std::process::id()).unwrap_or_default();
            let [elapsed, used] = [self.begin.elapsed(), used].map(|time| time.as_secs_f64() / 60.0);
            println!(
                "\nThe slowest of {elapsed:.1} minutes, and {used:.1} of processors (all: {}):",
                Layout::shown(&file)
            );
            lines(&took).iter().take(SHOWN).for_each(|line| println!("{line}"));
            println!("");
            if !missed.is_empty() {
                println!("What did not pass:");
                missed.iter().for_each(|line| println!("{line}"));
                println!("");
            }
        }
        println!("{} passed, {} failed, {} skipped", counts.passed, counts.failed, counts.skipped);
        match counts.failed {
            0 => Ok(()),
            _ => Err(Failure::reported(Kind::Failed)),
        }
    }
}

/// The line that says at the end that a test did not pass.
fn missed(name: &str, verdict: &Verdict) -> Option<String> {
    let (word, reason) = match verdict {
        Verdict::Passed => return None,
        Verdict::Skipped(reason) => ("skipped", reason),
        Verdict::Failed(reason) => ("failed", reason),
    };
    let reason: String = reason.lines().next().unwrap_or_default().chars().take(WIDTH).collect();
    Some(format!("{word:>8} {name}: {reason}"))
}

/// A line for each test: seconds, processor seconds if they are known, and the name.
fn lines(took: &[Took]) -> Vec<String> {
    let line = |took: &Took| {
        let used = took.used.map_or_else(String::new, |used| format!("{:.1}", used.as_secs_f64()));
        format!("{:>8.1} s {used:>9} {}", took.elapsed.as_secs_f64(), took.name)
    };
    let head = format!("{:>10} {:>9} {}", "elapsed", "processor", "test");
    std::iter::once(head).chain(took.iter().map(line)).collect()
}

/// Returns the last lines of a log that are not empty, printable and not too long: where the log itself is not at hand, they
/// are what there is.
fn end_of_log(log: &str) -> String {
    const LINES: usize = 24;
    let log = printable(log);
    let cut = log.lines().map(|line| line.chars().take(WIDTH).collect::<String>());
    let shown: Vec<String> = cut.filter(|line| !line.trim().is_empty()).collect();
    last_lines(&shown.join("\n"), LINES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_in_columns() {
        let took = |name: &str, elapsed, used: Option<u64>| Took {
            name: name.to_owned(),
            elapsed: Duration::from_millis(elapsed),
            used: used.map(Duration::from_millis),
        };
        let times = [took("arm64/a", 61_250, Some(60_000)), took("host/b", 900, None)];
        let expected =
            ["   elapsed processor test", "    61.2 s      60.0 arm64/a", "     0.9 s           host/b"];
        assert_eq!(lines(&times), expected);
    }

    #[test]
    fn what_did_not_pass_is_named_again() {
        assert_eq!(missed("arm64/a", &Verdict::Passed), None);
        let failed = Verdict::Failed("above its budget\nby 3".to_owned());
        assert_eq!(missed("arm64/a", &failed).as_deref(), Some("  failed arm64/a: above its budget"));
        let skipped = Verdict::Skipped("no network".to_owned());
        assert_eq!(missed("host/b", &skipped).as_deref(), Some(" skipped host/b: no network"));
    }

    #[test]
    fn the_end_of_a_log_is_shown() {
        let log: String = (0..30).map(|n| format!("line {n}\n\n")).collect();
        let end = end_of_log(&log);
        let lines: Vec<&str> = end.lines().collect();
        assert_eq!((lines.len(), lines.first(), lines.last()), (24, Some(&"line 6"), Some(&"line 29")));
        assert_eq!(end_of_log("\x1b[2J\x07a\n\x00\n"), "[2Ja", "nothing of a guest's reaches the terminal");
        assert_eq!(end_of_log(&"x".repeat(500)), "x".repeat(160));
        assert!(end_of_log("").is_empty());
    }
}
