// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the model needs of the machine, and of the VM's other vCPUs.

use core::num::NonZeroU64;

use crate::{Message, Routes, Signal};

/// What a vCPU has of the machine: the VMCB's virtual interrupt (APM vol. 2, 15.21.4), its word for paravirtual EOIs, and
/// its clock. Whoever implements it caches nothing: the model asks for exactly what it must know.
pub trait Hardware {
    /// Reads `V_IRQ`: the offered interrupt waits. The CPU clears it when the guest takes the interrupt.
    fn is_waiting(&self) -> bool;
    /// Writes `V_IRQ` = 1, `V_INTR_VECTOR`, and the vector's class as `V_INTR_PRIO`; `V_IGN_TPR` is `unmasked`: for an
    /// interrupt that comes from an 8259, which knows no priority mask.
    fn offer(&mut self, vector: u8, unmasked: bool);
    /// Writes `V_IRQ` = 0.
    fn withdraw(&mut self);
    /// Reads `V_TPR`: the class of priorities that are masked, CR8.
    fn task_priority(&self) -> u8;
    /// Writes `V_TPR`.
    fn set_task_priority(&mut self, class: u8);

    /// Reads bit 0 of the guest's word for paravirtual EOIs. `place` is what the MSR write was resolved to.
    fn eoi_word(&self, place: NonZeroU64) -> bool;
    /// Writes the guest's word for paravirtual EOIs.
    fn set_eoi_word(&mut self, place: NonZeroU64, promised: bool);

    /// Reads the guest's time stamp counter, which is the APIC timer's clock, too.
    fn now(&self) -> u64;
    /// Sets when the timer shall call [`Lapic::timer`](crate::Lapic::timer), by the guest's time stamp counter;
    /// [`NEVER`](crate::NEVER) if it shall not. It may come earlier, or again.
    fn arm(&mut self, deadline: u64);

    /// Counts an event. For VMs that keep statistics; nothing for others.
    #[inline(always)] // Nothing.
    fn count(&mut self, _event: Event) {}
}

/// What is worth counting about interrupts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Event {
    /// An interrupt was accepted: it went into the IRR.
    Accepted,
    /// The guest was seen to have taken an interrupt.
    Injected,
    /// The guest ended an interrupt by the EOI register.
    Eoi,
    /// The guest was seen to have ended an interrupt by its word in memory: an exit saved.
    PvEoi,
    /// The guest sent an interprocessor interrupt.
    Ipi,
    /// The timer has expired.
    Timer,
    /// The I/O APIC was told of the end of a level-triggered interrupt.
    LevelEnded,
}

/// The VM as a local APIC sees it: the way to the other vCPUs, the I/O APIC and the 8259.
pub trait Bus {
    /// Returns the VM's table of destinations.
    fn routes(&self) -> &Routes;
    /// Posts an interrupt to a vCPU, by its number. HOT: no lock, two atomic operations.
    fn post(&self, vcpu: usize, vector: u8, level: bool);
    /// Sends a vCPU what is not an interrupt by vector.
    fn signal(&self, vcpu: usize, signal: Signal);
    /// Tells the I/O APIC that a level-triggered interrupt has ended (APM vol. 2, 16.6.3; SDM vol. 3A, "Signaling Interrupt
    /// Servicing Completion").
    fn end_of_interrupt(&self, vector: u8);
    /// Tells the 8259 that the guest has taken the interrupt of `vector` that it asserted: its INTA cycle. Returns the
    /// vector that it asserts from then on.
    fn acknowledge(&self, vector: u8) -> Option<u8>;

    /// Delivers a message from the I/O APIC, or of any other origin than a local APIC's own registers.
    fn deliver(&self, message: &Message)
    where
        Self: Sized,
    {
        self.routes().deliver(message, self);
    }
}

/// A vCPU's machine and its VM, as most operations need both.
pub struct Context<'a, H, B> {
    /// The machine.
    pub hardware: &'a mut H,
    /// The VM.
    pub bus: &'a B,
}
