// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One vCPU's local APIC: its state, and how it is reset.

use crate::hardware::{Bus, Hardware};
use crate::mode::Mode;
use crate::promise::PvEoi;
use crate::registers::{LVT_MASKED, SPURIOUS_ENABLE, SPURIOUS_RESET, lvt};
use crate::routes::Logical;
use crate::state::Frequent;
use crate::timer::Timer;
use crate::{Context, VectorSet};

/// Where a VM's APIC page is unless the guest moves it.
pub const DEFAULT_BASE: u64 = 0xfee0_0000;

/// The local APIC of one vCPU. Owned by the physical CPU where the vCPU is resident; others reach it by a
/// [`Mailbox`](crate::Mailbox).
///
/// The VMCB's virtual interrupt is its list register of one: the pending interrupt of the highest priority lies there, and
/// the guest takes it by itself as soon as its interrupt flag and its task priority allow. What the guest did is looked at
/// when it matters, that is, before anything here is used: [`Lapic::sync`].
// In this order: what every interrupt uses is within reach of one instruction's offset.
#[repr(C)]
pub struct Lapic {
    /// What it is if it is one of the frequent states: then the sets, the offer and the promise are empty.
    pub(crate) frequent: Frequent,
    /// The IRR. The offered interrupt is still in it.
    pub(crate) pending: VectorSet,
    /// The ISR.
    pub(crate) serving: VectorSet,
    /// The TMR.
    pub(crate) level: VectorSet,
    /// What was put into `V_IRQ`: zero, a vector, or a mark of the 8259 with a vector.
    pub(crate) offered: u16,
    /// What the 8259 asserts on LINT0, and that gets through: zero, or the same with a vector.
    pub(crate) external: u16,
    pub(crate) mode: Mode,
    /// Enabled by software and by hardware: it accepts interrupts.
    pub(crate) accepting: bool,
    pub(crate) pv_eoi: PvEoi,
    /// The number of the vCPU, which is its APIC ID.
    pub(crate) index: usize,
    pub(crate) timer: Timer,

    /// What the guest last wrote to the TPR; of bits 7:4 the machine knows better.
    pub(crate) task_priority: u8,
    pub(crate) spurious: u32,
    pub(crate) lvt: [u32; 6],
    pub(crate) command: u64,
    /// Logical destination and destination format, as an xAPIC has them.
    pub(crate) logical: u32,
    pub(crate) format: u32,
    /// The error status as the guest reads it, and what has come together since it last asked for it.
    pub(crate) errors: u32,
    pub(crate) new_errors: u32,
    pub(crate) divide: u32,
    /// The 8259's line, and the vector that it has.
    pub(crate) line: Option<u8>,
    /// The page of an xAPIC.
    pub(crate) page: u64,
    /// How it is entered in the table of destinations.
    pub(crate) entered: Logical,
    /// Whether the VM has x2APIC.
    pub(crate) has_x2apic: bool,
}

impl Lapic {
    /// Makes the local APIC of vCPU `index`. [`Lapic::reset`] has to come before the vCPU's first run.
    pub fn new(index: usize, has_x2apic: bool) -> Self {
        Self {
            frequent: Frequent::NO,
            pending: VectorSet::EMPTY,
            serving: VectorSet::EMPTY,
            level: VectorSet::EMPTY,
            offered: 0,
            external: 0,
            mode: Mode::XApic,
            accepting: false,
            pv_eoi: PvEoi::OFF,
            index,
            timer: Timer::STOPPED,
            task_priority: 0,
            spurious: SPURIOUS_RESET,
            lvt: [LVT_MASKED; 6],
            command: 0,
            logical: 0,
            format: !0,
            errors: 0,
            new_errors: 0,
            divide: 0,
            line: None,
            page: DEFAULT_BASE,
            entered: Logical::Nowhere,
            has_x2apic,
        }
    }

    /// Returns the number of the vCPU, which is its APIC ID.
    #[inline]
    pub fn index(&self) -> usize {
        self.index
    }

    /// Resets it as power-on does, and sets it up as firmware leaves it: an xAPIC at its usual address, with the first
    /// vCPU's LINT0 open for the 8259, as one finds it in virtual wire mode.
    pub fn reset<H: Hardware, B: Bus>(&mut self, cx: &mut Context<'_, H, B>) {
        self.mode = Mode::XApic;
        self.page = DEFAULT_BASE;
        self.line = None;
        self.init(cx);
        if self.index == 0 {
            self.wire(cx);
        }
    }

    /// Lets the 8259's interrupts through, as firmware does for the first vCPU before it goes on (virtual wire mode).
    pub fn wire<H: Hardware, B: Bus>(&mut self, cx: &mut Context<'_, H, B>) {
        self.lvt[lvt::LINT0] = 0x700;
        self.settle_line(cx);
    }

    /// Does what INIT does: all registers but APIC_BASE and the ID are reset (APM vol. 2, 16.3.2), the paravirtual EOI is
    /// off.
    pub fn init<H: Hardware, B: Bus>(&mut self, cx: &mut Context<'_, H, B>) {
        self.frequent = Frequent::NO;
        self.pending = VectorSet::EMPTY;
        self.serving = VectorSet::EMPTY;
        self.level = VectorSet::EMPTY;
        self.offered = 0;
        self.external = 0;
        cx.hardware.withdraw();
        cx.hardware.set_task_priority(0);
        // The word is the guest's memory: after a reset it may be anything by now, and nothing is written there.
        self.pv_eoi = PvEoi::OFF;
        self.task_priority = 0;
        self.spurious = SPURIOUS_RESET;
        self.lvt = [LVT_MASKED; 6];
        self.command = 0;
        self.logical = 0;
        self.format = !0;
        self.errors = 0;
        self.new_errors = 0;
        self.divide = 0;
        self.timer = Timer::STOPPED;
        cx.hardware.arm(self.timer.deadline());
        self.enroll(cx);
    }

    /// Derives what follows from the mode, the spurious-vector register and the logical destination: whether it accepts
    /// interrupts, and how others find it.
    pub(crate) fn enroll<H, B: Bus>(&mut self, cx: &mut Context<'_, H, B>) {
        self.spread();
        self.accepting = self.mode != Mode::Disabled && self.spurious & SPURIOUS_ENABLE != 0;
        let entry = match self.mode {
            Mode::Disabled => Logical::Nowhere,
            Mode::X2Apic => Logical::X2Apic,
            Mode::XApic => Logical::of_xapic(self.logical, self.format),
        };
        cx.bus.routes().enroll(self.index, self.entered, entry, self.accepting);
        self.entered = entry;
    }
}
