// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The 8259s and the 8254 of a VM, and the interrupt lines of an ISA board.
//!
//! The 8259s' INTR pin is wired to the first vCPU. Whoever changes what they assert says so in its attention word, and its owner looks.
//! The 8254 is in nanoseconds of the VM; its channel 0 rings by the timer of the first vCPU. Edges that nobody looked at in time,
//! because the vCPU's CPU did something else, come one by one: each as soon as the guest has ended the interrupt before, by
//! its APIC or the 8259. Kernels count ticks, and take a board for broken whose timer rings too seldom.

use core::sync::atomic::Ordering;

use turnstile_devices::{I8254, I8259};
use turnstile_exitstat::Event;
use turnstile_vapic::NEVER;
use turnstile_vm::attention::Reasons;

use super::objects::Vm;
use crate::irq::board::{POLLED, TIMER_PIN};
use crate::time;

/// The interrupt of the 8254.
const TIMER: u8 = 0;
/// The first 8259's commands: ends of interrupts.
const COMMAND: u16 = 0x20;

const NANOSECONDS: u128 = 1_000_000_000;

/// Returns the nanoseconds of a VM at a time of this machine's time stamp counter.
fn nanoseconds(vm: &Vm, ticks: u64) -> u64 {
    let since = ticks.wrapping_add(vm.life().tsc_offset());
    // Checked, though the frequency is never zero: the 8254's ports are light, and the light tier has no way into a panic.
    (u128::from(since) * NANOSECONDS).checked_div(time::frequency().into()).unwrap_or(0) as u64
}

/// The reverse of [`nanoseconds`], rounded up.
fn ticks(vm: &Vm, nanoseconds: u64) -> u64 {
    let since = (u128::from(nanoseconds) * u128::from(time::frequency())).div_ceil(NANOSECONDS) as u64;
    since.wrapping_sub(vm.life().tsc_offset())
}

impl Vm {
    /// Says whether a port is one of the 8259s' or the 8254's.
    #[inline(always)] // A few comparisons.
    pub fn has_port(port: u16) -> bool {
        I8259::has(port) || I8254::has(port)
    }

    /// Reads a byte from a port for which [`Vm::has_port`] is true.
    #[inline] // On the light exit of a read.
    pub fn read_port(&self, port: u16) -> u8 {
        if I8254::has(port) {
            return self.read_timer(port);
        }
        let mut pic = self.board.legacy.pic.lock();
        if !pic.is_polled(port) {
            return pic.read(port);
        }
        drop(pic);
        self.poll(port)
    }

    /// Reads the mask register of the first 8259 or of the second, without the lock; `None` if it is to be polled. HOT.
    #[inline(always)] // A load and a comparison.
    pub(crate) fn read_mask(&self, second: bool) -> Option<u8> {
        let mask = self.board.legacy.masks[usize::from(second)].load(Ordering::Relaxed);
        (mask < POLLED).then_some(mask as u8)
    }

    /// Reads a port of an 8259 that is to be polled: it acknowledges its interrupt.
    #[cold]
    fn poll(&self, port: u16) -> u8 {
        let mut value = 0;
        self.change_pic(|pic| value = pic.read(port));
        value
    }

    #[inline(never)] // So that the 8259s' ports stay cheap.
    fn read_timer(&self, port: u16) -> u8 {
        self.board.legacy.pit.lock().read(port, nanoseconds(self, time::ticks()))
    }

    /// Writes a byte to a port for which [`Vm::has_port`] is true.
    pub fn write_port(&self, port: u16, value: u8) {
        if I8254::has(port) {
            let mut pit = self.board.legacy.pit.lock();
            pit.write(port, value, nanoseconds(self, time::ticks()));
            self.set_deadline(&pit);
            drop(pit);
            return self.post_to_first(Reasons::DEADLINE);
        }
        self.change_pic(|pic| pic.write(port, value));
        if port == COMMAND && self.board.legacy.pic.lock().awaits_timer() {
            self.make_up();
        }
    }

    /// Sets the level of an ISA interrupt line: 0 to 15.
    pub fn set_irq(&self, line: u8, asserted: bool) {
        self.set_pic_line(line, asserted);
        self.set_line(if line == TIMER { TIMER_PIN } else { line.into() }, asserted);
    }

    /// The 8259s' side of it.
    fn set_pic_line(&self, line: u8, asserted: bool) {
        self.change_pic(|pic| pic.set_line(line, asserted));
        if asserted && let Some(page) = self.vcpu(0).and_then(|first| first.statistics) {
            page.count_shared(Event::PicRaised);
            page.count_shared(Event::IoApicRaised);
        }
    }

    /// Returns the vector that the 8259s assert.
    pub(crate) fn asserted(&self) -> Option<u8> {
        self.board.legacy.pic.lock().vector()
    }

    /// The first vCPU has taken the 8259s' interrupt with this vector. Returns the next.
    pub(crate) fn acknowledge_8259(&self, vector: u8) -> Option<u8> {
        let mut pic = self.board.legacy.pic.lock();
        pic.acknowledge_vector(vector);
        pic.vector()
    }

    /// Lets the 8254 ring if its time has come. On the first vCPU's CPU.
    #[inline(always)] // A comparison, when a timer rings.
    pub(crate) fn ring(&self) {
        let now = time::ticks();
        if now >= self.board.legacy.deadline() {
            self.ring_at(now);
        }
    }

    #[cold]
    #[inline(never)] // Other timers are not to pay for it.
    fn ring_at(&self, now: u64) {
        let mut pit = self.board.legacy.pit.lock();
        let (rings, owes) = (pit.ring(nanoseconds(self, now)), pit.owes());
        self.set_deadline(&pit);
        drop(pit);
        if rings {
            self.tick(owes);
        }
    }

    /// The guest has ended the 8254's interrupt: the next one that is owed follows.
    #[cold]
    #[inline(never)] // Called by light exits that are rare.
    pub(crate) fn make_up(&self) {
        let mut pit = self.board.legacy.pit.lock();
        let (rings, owes) = (pit.make_up(), pit.owes());
        drop(pit);
        if rings {
            self.tick(owes);
        }
    }

    /// The 8254's output rises. If more is owed, the end of the interrupt has to be seen.
    fn tick(&self, owes: bool) {
        self.set_irq(TIMER, false);
        self.set_pic_line(TIMER, true);
        self.assert_line(TIMER_PIN, owes);
    }

    fn set_deadline(&self, pit: &I8254) {
        let deadline = pit.deadline().map_or(NEVER, |at| ticks(self, at));
        self.board.legacy.deadline.store(deadline, Ordering::Relaxed);
    }

    fn change_pic(&self, change: impl FnOnce(&mut I8259)) {
        let mut pic = self.board.legacy.pic.lock();
        let before = pic.vector();
        change(&mut pic);
        let after = pic.vector();
        self.board.legacy.publish(&pic);
        drop(pic);
        if before != after {
            self.post_to_first(Reasons::EXTERNAL);
        }
    }

    #[cold]
    fn post_to_first(&self, reasons: Reasons) {
        if let Some(first) = self.vcpu(0) {
            first.post(reasons);
        }
    }
}
