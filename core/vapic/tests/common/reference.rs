// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An ideal local APIC and its CPU, by the letter of APM vol. 2, 16.6: no slot, no promise, nothing is ever late. It shares
//! nothing with the model under test.

#[derive(Clone)]
pub struct Reference {
    requested: [bool; 256],
    in_service: [bool; 256],
    level_triggered: [bool; 256],
    pub task_priority: u8,
    pub interrupt_flag: bool,
    pub enabled: bool,
    /// The vectors whose ends were told to the I/O APIC.
    pub broadcasts: Vec<u8>,
}

impl Reference {
    pub fn new() -> Self {
        Self {
            requested: [false; 256],
            in_service: [false; 256],
            level_triggered: [false; 256],
            task_priority: 0,
            interrupt_flag: true,
            enabled: false,
            broadcasts: Vec::new(),
        }
    }

    pub fn accept(&mut self, vector: u8, level: bool) {
        if self.enabled && vector >= 16 {
            self.requested[usize::from(vector)] = true;
            self.level_triggered[usize::from(vector)] = level;
        }
    }

    pub fn processor_priority(&self) -> u8 {
        let serving = self.in_service.iter().rposition(|bit| *bit).unwrap_or(0) as u8;
        if self.task_priority >> 4 >= serving >> 4 { self.task_priority } else { serving & 0xf0 }
    }

    /// The CPU takes an interrupt, if it can.
    pub fn take(&mut self) -> Option<u8> {
        let vector = self.requested.iter().rposition(|bit| *bit)?;
        if !self.interrupt_flag || vector >> 4 <= usize::from(self.processor_priority() >> 4) {
            return None;
        }
        self.requested[vector] = false;
        self.in_service[vector] = true;
        Some(vector as u8)
    }

    pub fn end_of_interrupt(&mut self) {
        if let Some(vector) = self.in_service.iter().rposition(|bit| *bit) {
            self.in_service[vector] = false;
            if self.level_triggered[vector] {
                self.broadcasts.push(vector as u8);
            }
        }
    }

    pub fn init(&mut self) {
        *self = Self { broadcasts: self.broadcasts.clone(), ..Self::new() };
    }

    fn word(bits: &[bool; 256], n: usize) -> u32 {
        (0..32).fold(0, |word, bit| word | u32::from(bits[n * 32 + bit]) << bit)
    }

    /// ISR, TMR of what is pending or in service, and IRR: eight words of each.
    pub fn registers(&self) -> [u32; 16] {
        core::array::from_fn(|n| match n / 8 {
            0 => Self::word(&self.in_service, n % 8),
            _ => Self::word(&self.requested, n % 8),
        })
    }
}
