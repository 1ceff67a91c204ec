// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Those who wait for a reading, where a machine runs.

use std::sync::mpsc::Sender;

use turnstile_link::Command;

use super::collector::Collector;
use crate::session::Heard;

/// Those who wait for a reading.
pub struct Desk {
    collector: Collector,
    waiting: Vec<Sender<String>>,
}

impl Desk {
    /// Makes a desk for VMs of these names.
    pub fn new(names: Vec<String>) -> Self {
        Desk { collector: Collector::new(names), waiting: Vec::new() }
    }

    /// Takes somebody who asks; returns what the hypervisor has to be told.
    pub fn ask(&mut self, answer: Sender<String>) -> Vec<Command> {
        self.waiting.push(answer);
        self.collector.begin()
    }

    /// Takes what was heard, and answers all who wait if that completes a reading.
    pub fn hear(&mut self, heard: &Heard) {
        let Some(reading) = self.collector.hear(heard) else { return };
        let text = serde_json::to_string(&reading).unwrap_or_default();
        for answer in self.waiting.drain(..) {
            // Somebody who has left wants none.
            let _ = answer.send(text.clone());
        }
    }
}
