// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The xAPIC's page of registers (APM vol. 2, 16.3.2): 32-bit registers, 16 bytes apart.

use crate::hardware::{Bus, Hardware};
use crate::mode::Mode;
use crate::registers::{self as reg, LVT_FIRST, LVT_LAST, error};
use crate::{Context, Lapic};

impl Lapic {
    /// Reads `size` bytes at `offset` of the page. Bytes beside a register are zero, and a register that there is not is an
    /// error to be found in the error status.
    pub fn read_page<H: Hardware, B: Bus>(
        &mut self,
        cx: &mut Context<'_, H, B>,
        offset: u32,
        size: u8,
    ) -> u64 {
        let within = offset & 0xf;
        if within + u32::from(size) > 4 {
            return 0;
        }
        match self.read_register(cx, offset >> 4 & 0xff) {
            Some(value) => u64::from(value >> (within * 8)) & (u64::MAX >> (64 - 8 * u32::from(size.max(1)))),
            None => {
                self.illegal_register(cx);
                0
            }
        }
    }

    /// Writes `size` bytes at `offset` of the page. Only aligned 32-bit accesses are defined; others have no effect.
    pub fn write_page<H: Hardware, B: Bus>(
        &mut self,
        cx: &mut Context<'_, H, B>,
        offset: u32,
        size: u8,
        value: u32,
    ) {
        if size != 4 || offset & 0xf != 0 {
            return;
        }
        let register = offset >> 4 & 0xff;
        match register {
            reg::END_OF_INTERRUPT => self.eoi(cx),
            reg::COMMAND_LOW => {
                self.command = self.command & !0xffff_ffff | u64::from(value & 0x000c_cfff);
                self.command(cx, value, self.command_destination());
            }
            reg::COMMAND_HIGH => {
                self.command = self.command & 0xffff_ffff | u64::from(value & 0xff00_0000) << 32
            }
            reg::LOGICAL_DESTINATION => {
                self.logical = value & 0xff00_0000;
                self.enroll(cx);
            }
            reg::DESTINATION_FORMAT => {
                self.format = value | 0x0fff_ffff;
                self.enroll(cx);
            }
            reg::ID
            | reg::VERSION
            | reg::ARBITRATION_PRIORITY
            | reg::PROCESSOR_PRIORITY
            | reg::REMOTE_READ
            | reg::IN_SERVICE..=reg::REQUEST_LAST
            | reg::CURRENT_COUNT => {}
            _ if self.write_register(cx, register, value) => {}
            _ => self.illegal_register(cx),
        }
    }

    fn illegal_register<H: Hardware, B: Bus>(&mut self, cx: &mut Context<'_, H, B>) {
        self.sync(cx);
        self.fail(cx.hardware, error::ILLEGAL_REGISTER);
        self.offer(cx.hardware);
    }

    /// Reads a register that both kinds of APIC have, or an xAPIC alone.
    pub(crate) fn read_register<H: Hardware, B: Bus>(
        &mut self,
        cx: &mut Context<'_, H, B>,
        register: u32,
    ) -> Option<u32> {
        Some(match register {
            reg::ID if self.mode == Mode::X2Apic => self.index as u32,
            reg::ID => (self.index as u32) << 24,
            reg::VERSION => reg::VERSION_VALUE,
            reg::TASK_PRIORITY => self.task_priority(cx.hardware).into(),
            reg::ARBITRATION_PRIORITY | reg::REMOTE_READ => 0,
            reg::PROCESSOR_PRIORITY => self.processor_priority(cx).into(),
            reg::LOGICAL_DESTINATION => self.logical_destination(),
            reg::DESTINATION_FORMAT => self.format,
            reg::SPURIOUS => self.spurious,
            reg::IN_SERVICE..=reg::IN_SERVICE_LAST => {
                self.settle(cx);
                self.serving.word((register & 7) as u8)
            }
            reg::TRIGGER_MODE..=reg::TRIGGER_MODE_LAST => self.level.word((register & 7) as u8),
            reg::REQUEST..=reg::REQUEST_LAST => {
                self.sync(cx);
                let word = self.pending.word((register & 7) as u8);
                self.offer(cx.hardware);
                word
            }
            reg::ERROR_STATUS => self.errors,
            reg::COMMAND_LOW => self.command as u32,
            reg::COMMAND_HIGH => (self.command >> 32) as u32,
            LVT_FIRST..=LVT_LAST => self.lvt[(register - LVT_FIRST) as usize],
            reg::INITIAL_COUNT => self.timer.initial(),
            reg::CURRENT_COUNT => self.timer.current(cx.hardware.now()),
            reg::DIVIDE => self.divide,
            _ => return None,
        })
    }

    /// Writes a register that both kinds of APIC have; false if it is none of those.
    pub(crate) fn write_register<H: Hardware, B: Bus>(
        &mut self,
        cx: &mut Context<'_, H, B>,
        register: u32,
        value: u32,
    ) -> bool {
        match register {
            reg::TASK_PRIORITY => self.set_task_priority(cx.hardware, value as u8),
            reg::SPURIOUS => self.set_spurious(cx, value),
            reg::ERROR_STATUS => self.errors = core::mem::take(&mut self.new_errors),
            LVT_FIRST..=LVT_LAST => self.set_lvt(cx, (register - LVT_FIRST) as usize, value),
            reg::INITIAL_COUNT => {
                self.timer.set_initial(cx.hardware.now(), value);
                self.rearm(cx.hardware);
            }
            reg::DIVIDE => {
                self.divide = value & 0xb;
                self.timer.set_divide(cx.hardware.now(), value);
                self.rearm(cx.hardware);
            }
            _ => return false,
        }
        true
    }

    fn set_spurious<H: Hardware, B: Bus>(&mut self, cx: &mut Context<'_, H, B>, value: u32) {
        self.spurious = value & reg::SPURIOUS_BITS;
        if value & reg::SPURIOUS_ENABLE == 0 {
            self.mask_lvt(cx);
        }
        self.enroll(cx);
    }

    /// Writes the task priority; the machine compares its class with the offered interrupt's.
    #[inline]
    pub(crate) fn set_task_priority<H: Hardware>(&mut self, hardware: &mut H, value: u8) {
        self.task_priority = value;
        hardware.set_task_priority(value >> 4);
    }

    /// Reads the task priority. The guest may have changed its class by CR8, which clears the rest.
    pub(crate) fn task_priority<H: Hardware>(&mut self, hardware: &H) -> u8 {
        let class = hardware.task_priority();
        if self.task_priority >> 4 != class {
            self.task_priority = class << 4;
        }
        self.task_priority
    }

    /// Reads the processor priority (APM vol. 2, 16.6.4).
    fn processor_priority<H: Hardware, B: Bus>(&mut self, cx: &mut Context<'_, H, B>) -> u8 {
        self.settle(cx);
        let (task, serving) = (self.task_priority(cx.hardware), self.serving.highest());
        if task >> 4 >= serving >> 4 { task } else { serving & 0xf0 }
    }

    fn logical_destination(&self) -> u32 {
        match self.mode {
            Mode::X2Apic => (self.index as u32 >> 4) << 16 | 1 << (self.index & 15),
            _ => self.logical,
        }
    }
}
