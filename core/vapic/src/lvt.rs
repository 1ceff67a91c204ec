// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Local interrupts and errors (APM vol. 2, 16.4): the LVT entries, the timer's interrupt, the error status.

use crate::hardware::{Bus, Event, Hardware};
use crate::message::{Delivery, Signal};
use crate::registers::{FIRST_VECTOR, LVT_MASKED, LVT_STATUS, SPURIOUS_ENABLE, error, lvt};
use crate::timer::TimerMode;
use crate::{Context, Lapic, NEVER};

impl Lapic {
    /// Writes an LVT entry with what its register keeps of `value`.
    pub(crate) fn set_lvt<H: Hardware, B: Bus>(
        &mut self,
        cx: &mut Context<'_, H, B>,
        entry: usize,
        value: u32,
    ) {
        if entry == lvt::TIMER && self.lvt[entry] & LVT_MASKED != 0 {
            // What expired behind the mask is gone.
            self.timer.expire(cx.hardware.now());
        }
        let mut kept = value & lvt::BITS[entry] & !LVT_STATUS;
        if self.spurious & SPURIOUS_ENABLE == 0 {
            kept |= LVT_MASKED;
        }
        self.lvt[entry] = kept;
        match entry {
            lvt::TIMER => {
                self.timer.set_mode(cx.hardware.now(), TimerMode::of(kept));
                self.rearm(cx.hardware);
            }
            lvt::LINT0 => self.settle_line(cx),
            _ => {}
        }
    }

    /// Masks all entries, as disabling by software does.
    pub(crate) fn mask_lvt<H: Hardware, B: Bus>(&mut self, cx: &mut Context<'_, H, B>) {
        for entry in 0..self.lvt.len() {
            self.set_lvt(cx, entry, self.lvt[entry]);
        }
    }

    /// A local source fires: delivers what its entry says.
    pub(crate) fn local_interrupt<H: Hardware, B: Bus>(&mut self, cx: &mut Context<'_, H, B>, entry: usize) {
        let value = self.lvt[entry];
        if value & LVT_MASKED != 0 {
            return;
        }
        match Delivery::of(value) {
            Delivery::Fixed => self.accept(cx, value as u8),
            Delivery::Nmi => cx.bus.signal(self.index, Signal::Nmi),
            Delivery::Init => cx.bus.signal(self.index, Signal::Init),
            _ => {}
        }
    }

    /// Returns when the timer has to be looked at, by the guest's time stamp counter; [`NEVER`] if its interrupt is masked.
    pub fn deadline(&self) -> u64 {
        if self.lvt[lvt::TIMER] & LVT_MASKED == 0 { self.timer.deadline() } else { NEVER }
    }

    /// Arms the machine's timer for this one.
    pub(crate) fn rearm<H: Hardware>(&mut self, hardware: &mut H) {
        hardware.arm(self.deadline());
    }

    /// The time that was armed has come, or may have: delivers the timer's interrupt if so, and arms what is next,
    /// in any case: the machine's timer may be armed for more than this one.
    #[inline]
    pub fn timer<H: Hardware, B: Bus>(&mut self, cx: &mut Context<'_, H, B>) {
        if self.deadline() != NEVER && self.timer.expire(cx.hardware.now()) {
            cx.hardware.count(Event::Timer);
            self.accept(cx, self.lvt[lvt::TIMER] as u8);
        }
        self.rearm(cx.hardware);
    }

    /// The vCPU halts, and goes on doing so. Its timer is silent until [`Lapic::rise`] if all that could come of it would change
    /// nothing: its interrupt waits already, which the guest cannot take before it leaves HLT.
    pub fn rest<H: Hardware, B: Bus>(&mut self, cx: &mut Context<'_, H, B>) {
        self.settle(cx);
        let vector = self.lvt[lvt::TIMER] as u8;
        let is_noted = vector < FIRST_VECTOR && self.new_errors & error::RECEIVED_ILLEGAL_VECTOR != 0;
        let is_offered = vector >= FIRST_VECTOR && self.frequent.vector() == vector;
        let is_waiting = self.pending.contains(vector) || is_offered;
        if is_waiting || is_noted {
            self.timer.rest();
            self.rearm(cx.hardware);
        }
    }

    /// The vCPU leaves HLT: the timer is as if it had not been silent.
    pub fn rise<H: Hardware, B: Bus>(&mut self, cx: &mut Context<'_, H, B>) {
        self.timer.rise();
        self.timer(cx);
    }

    /// The vCPU's VM is paused: the timer does not ring until [`Lapic::sound`] gets what this returns. Nothing else is done with it
    /// meanwhile, and the guest's clock stands still.
    pub fn silence<H: Hardware, B: Bus>(&mut self, cx: &mut Context<'_, H, B>) -> u64 {
        let deadline = self.timer.silence();
        self.rearm(cx.hardware);
        deadline
    }

    /// The VM goes on: the timer is as if it had not been silent.
    pub fn sound<H: Hardware, B: Bus>(&mut self, cx: &mut Context<'_, H, B>, deadline: u64) {
        self.timer.sound(deadline);
        self.timer(cx);
    }

    /// Reads IA32_TSC_DEADLINE, MSR 0x6e0.
    pub fn tsc_deadline(&self) -> u64 {
        self.timer.tsc_deadline()
    }

    /// Writes IA32_TSC_DEADLINE. One that has passed already fires before the guest goes on.
    #[inline]
    pub fn set_tsc_deadline<H: Hardware, B: Bus>(&mut self, cx: &mut Context<'_, H, B>, deadline: u64) {
        self.timer.set_tsc_deadline(deadline);
        self.timer(cx);
    }

    /// The guest has moved its time stamp counter by `by`.
    pub fn shift_clock<H: Hardware>(&mut self, hardware: &mut H, by: u64) {
        self.timer.shift_clock(by);
        self.rearm(hardware);
    }

    /// Notes an error, and delivers the error interrupt. It goes into the IRR only: whoever calls this offers it.
    pub(crate) fn fail<H: Hardware>(&mut self, hardware: &mut H, error: u32) {
        let is_new = self.new_errors & error == 0;
        self.new_errors |= error;
        let entry = self.lvt[lvt::ERROR];
        // An error interrupt with an illegal vector would be an error again, and is none.
        if is_new && entry & LVT_MASKED == 0 && entry as u8 >= FIRST_VECTOR {
            self.latch(hardware, entry as u8, false);
        }
    }
}
