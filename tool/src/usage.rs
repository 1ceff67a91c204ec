// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The processor time of processes, from `/proc` (proc(5), fields 14 to 17 of `stat`).

use std::process::{Child, ExitStatus};
use std::time::Duration;

use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};

/// The user and system time of a process.
pub fn own(id: u32) -> Option<Duration> {
    times(id).map(|[user, system, ..]| user + system)
}

/// The same with that of its children that have ended and for which it has waited, and of theirs.
pub fn with_children(id: u32) -> Option<Duration> {
    times(id).map(|times| times.into_iter().sum())
}

/// Waits for the end of a child; returns what it and its children have used, too.
///
/// # Errors
/// If somebody else has waited for it.
pub fn wait(child: &mut Child) -> std::io::Result<(ExitStatus, Duration)> {
    // What a process used is forgotten when its status is taken.
    waitid(WaitId::Pid(Pid::from_child(child)), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT)?;
    let used = with_children(child.id()).unwrap_or_default();
    Ok((child.wait()?, used))
}

/// The user and system time of a process, and those of its children.
fn times(id: u32) -> Option<[Duration; 4]> {
    parse(&std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?)
}

fn parse(stat: &str) -> Option<[Duration; 4]> {
    // The second field, the name, may contain spaces and brackets.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let per_second = rustix::param::clock_ticks_per_second().max(1);
    let mut next = || {
        let ticks: u64 = fields.next()?.parse().ok()?;
        Some(Duration::from_millis(ticks.saturating_mul(1000) / per_second))
    };
    Some([next()?, next()?, next()?, next()?])
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn that_of_this_process_grows() {
        let id = std::process::id();
        let before = own(id).unwrap();
        let mut sum = 0_u64;
        while own(id).unwrap() < before + Duration::from_millis(20) {
            sum = (0..100_000).fold(sum, |sum, n| std::hint::black_box(sum ^ n));
        }
        assert!(own(id).unwrap() > before);
    }

    #[test]
    fn a_child_has_used_what_its_children_have() {
        let work = "i=0; while [ $i -lt 50000 ]; do i=$((i + 1)); done";
        let mut child = Command::new("sh").args(["-c", &format!("sh -c '{work}'; exit 3")]).spawn().unwrap();
        let (status, used) = wait(&mut child).unwrap();
        assert_eq!(status.code(), Some(3));
        assert!(used > Duration::ZERO);
    }

    #[test]
    fn fields_are_found_behind_any_name() {
        let hundredth = 1000 / rustix::param::clock_ticks_per_second();
        let times = parse("7 (a) b (c) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15").unwrap();
        assert_eq!(times, [11, 12, 13, 14].map(|ticks| Duration::from_millis(ticks * hundredth)));
        assert_eq!(parse("7 (a) S 1 2 3"), None);
        assert_eq!(parse("7"), None);
    }
}
