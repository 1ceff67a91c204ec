// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Whether the computer's processors have anything to do, from `/proc/stat` (proc(5)).

use std::time::{Duration, Instant};

/// Looks on for a while; returns how many processors had nothing to do meanwhile. Where that is not to be known, that is none.
pub fn processors(span: Duration) -> f64 {
    let (begin, before) = (Instant::now(), ticks());
    std::thread::sleep(span);
    let elapsed = begin.elapsed().as_secs_f64();
    let idle = ticks().zip(before).map_or(0, |(after, before)| after.saturating_sub(before));
    idle as f64 / rustix::param::clock_ticks_per_second() as f64 / elapsed
}

/// For how many ticks all processors have had nothing to do since the computer was started.
fn ticks() -> Option<u64> {
    parse(&std::fs::read_to_string("/proc/stat").ok()?)
}

/// Adds up what they did nothing in, and what they waited for a disk in: the fourth and the fifth field.
fn parse(stat: &str) -> Option<u64> {
    let fields = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let mut fields = fields.split_whitespace().skip(3).map(|field| field.parse::<u64>().ok());
    Some(fields.next()??.saturating_add(fields.next()??))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_is_who_waits_for_a_disk_too() {
        assert_eq!(parse("cpu  1 2 3 40 50 6 7 8 9 10\ncpu0 1 2 3 4 5 6\n"), Some(90));
        assert_eq!(parse("cpu  1 2 3 40\n"), None);
        assert_eq!(parse("intr 1 2 3 4 5 6\n"), None);
    }

    #[test]
    fn no_more_are_idle_than_there_are() {
        let idle = processors(Duration::from_millis(100));
        let online = std::fs::read_to_string("/proc/stat").unwrap();
        let online = online.lines().filter(|line| line.starts_with("cpu")).count() - 1;
        assert!((0.0..=online as f64 * 1.3).contains(&idle), "{idle} of {online}");
    }
}
