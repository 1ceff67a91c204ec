// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Whole lines of consoles, which come byte by byte.
//!
//! A line that its guest does not end, such as a prompt, is complete when nothing has followed for a while.

use std::time::{Duration, Instant, SystemTime};

/// The longest piece of a line.
pub const MAX_LINE: usize = 4096;

/// What has come of a line, and when its first byte came.
#[derive(Debug)]
struct Begun {
    text: Vec<u8>,
    since: Instant,
    time: SystemTime,
}

/// A line, with its end if that has come, or a piece of a long one.
#[derive(Debug, PartialEq, Eq)]
pub struct Line {
    /// The console's index.
    pub index: usize,
    /// The bytes.
    pub text: Vec<u8>,
    /// When the first of them came.
    pub time: SystemTime,
}

/// Gathers the lines of several consoles.
#[derive(Debug)]
pub struct Gatherer {
    begun: Vec<Option<Begun>>,
}

impl Gatherer {
    /// Begins with so many consoles.
    pub fn new(count: usize) -> Self {
        Gatherer { begun: (0..count).map(|_| None).collect() }
    }

    /// Takes bytes of a console; returns the lines that are complete by them.
    pub fn push(&mut self, index: usize, text: &[u8]) -> Vec<Line> {
        let mut lines = Vec::new();
        for piece in text.split_inclusive(|&byte| byte == b'\n') {
            let Some(begun) = self.begun.get_mut(index) else { break };
            let (since, time) = (Instant::now(), SystemTime::now());
            let line = begun.get_or_insert_with(|| Begun { text: Vec::new(), since, time });
            line.text.extend_from_slice(piece);
            if line.text.ends_with(b"\n") || line.text.len() >= MAX_LINE {
                lines.extend(self.take(index));
            }
        }
        lines
    }

    /// The lines whose ends have been waited for long enough; with no patience all that is left.
    pub fn overdue(&mut self, patience: Duration) -> Vec<Line> {
        let is_overdue =
            |begun: &Option<Begun>| begun.as_ref().is_some_and(|begun| begun.since.elapsed() >= patience);
        let all = (0..self.begun.len()).filter(|index| self.begun.get(*index).is_some_and(is_overdue));
        let all: Vec<usize> = all.collect();
        all.into_iter().filter_map(|index| self.take(index)).collect()
    }

    /// What has come of a console's line.
    pub fn take(&mut self, index: usize) -> Option<Line> {
        let Begun { text, time, .. } = self.begun.get_mut(index)?.take()?;
        Some(Line { index, text, time })
    }
}
