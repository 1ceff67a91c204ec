// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The exit frame: where exits store a guest's registers, and where they find what they need.
//!
//! One frame lies at the top of each stack. HSPRG0 has its address while that stack's guest runs, and R1 while an exit is
//! handled: so it begins with the linkage area that a called function may write into (ELFv2 ABI, 2.2.3.1).

use turnstile_exitstat::{Page, Timing};

use crate::cpu::area::CPU_IN_FRAME;
use crate::cpu::{PerCpu, STACK_HEAD};
use crate::service::{Served, context};
use crate::vm::Vcpu;

/// The light handler of all interrupts but calls: takes the frame and the vector; returns zero to re-enter, the attention
/// word, or a code (`exit/mod.rs:Code`).
pub type Light = extern "C" fn(&mut Frame, u32) -> u32;
/// The full tier: takes the frame and why the light tier did not re-enter. Returns when the guest is to be entered.
pub type Full = extern "C" fn(&mut Frame, u32) -> Entry;
/// Where calls of problem state go on: the vectors jump to it.
pub type User = unsafe extern "C" fn();

/// How the guest is entered behind the full tier. `vectors.S` has the same numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
#[must_use = "a guest that is entered with the wrong registers has another one's"]
pub enum Entry {
    /// R13 to R31 are in the CPU, as the exit has found them.
    Some = 0,
    /// All registers are loaded from the frame.
    All = 1,
}

/// The general registers that compiled code may change: those below.
const CHANGEABLE: usize = 13;

/// The doorbells that light exits look at first: an area of a service's device that stays where it is, rung by the value that is
/// stored.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Bells {
    /// The guest's real address of the first byte.
    pub start: u64,
    /// How many bytes there are; zero if there are no such doorbells.
    pub size: u64,
    /// The device; null if there is none.
    pub served: *const Served,
}

impl Bells {
    /// There are none.
    pub const NONE: Self = Self { start: 0, size: 0, served: core::ptr::null() };
}

/// Where the vectors go on.
#[derive(Clone, Copy, Debug)]
pub struct Entries {
    /// The light handlers of hypervisor calls: a table that vectors alone look at (`exit/hcall.rs`).
    pub calls: *const (),
    /// The handlers that those of `calls` hand on to, where they only take the time.
    pub inner: *const (),
    /// The light handler of all other interrupts.
    pub light: Light,
    /// That of hypervisor data storage interrupts alone.
    pub data: Light,
    /// That of hypervisor facility unavailable interrupts alone.
    pub facility: Light,
    /// The full tier of interrupts.
    pub full: Full,
    /// The full tier of calls.
    pub full_call: Full,
    /// What refuses calls of problem state.
    pub user: User,
    /// What `data` looks at first.
    pub bells: Bells,
}

/// The registers of the resident vCPU, and whose they are.
///
/// `vectors.S` knows this layout.
#[repr(C, align(16))]
pub struct Frame {
    /// Back chain, CR, LR and TOC of functions that exits call.
    linkage: [u64; 4],
    gpr: [u64; 32],
    /// Link register.
    pub lr: u64,
    /// Count register.
    pub ctr: u64,
    /// Fixed-point exception register.
    pub xer: u64,
    /// Condition register.
    pub cr: u64,
    /// Where the guest goes on: in a full exit.
    pub pc: u64,
    /// Its machine state: in a full exit.
    pub msr: u64,
    /// The vCPU.
    pub vcpu: *const Vcpu,
    /// One of R13 to R31 has been written in the frame: all are to be loaded.
    written: u32,
    /// The offset of the interrupt vector that was taken.
    pub vector: u32,
    /// As [`Entries`] has them; null in a frame whose stack is no guest's.
    calls: *const (),
    pub(crate) light: Option<Light>,
    full: Option<Full>,
    /// The CPU that uses this stack.
    pub cpu: *const PerCpu,
    /// The vCPU's statistics, and the exit that is being handled. Only its timed entries look at it.
    pub timing: Timing,
    inner: *const (),
    /// CFAR, in exits for a facility that is off.
    pub came_from: u64,
    pub(crate) data: Option<Light>,
    facility: Option<Light>,
    full_call: Option<Full>,
    user: Option<User>,
    pub(crate) bells: Bells,
}

const _: () = {
    use core::mem::offset_of;
    assert!(offset_of!(Frame, gpr) == 32);
    assert!(offset_of!(Frame, lr) == 288);
    assert!(offset_of!(Frame, ctr) == 296);
    assert!(offset_of!(Frame, xer) == 304);
    assert!(offset_of!(Frame, cr) == 312);
    assert!(offset_of!(Frame, pc) == 320);
    assert!(offset_of!(Frame, msr) == 328);
    assert!(offset_of!(Frame, vcpu) == 336);
    assert!(offset_of!(Frame, written) == 344);
    assert!(offset_of!(Frame, vector) == 348);
    assert!(offset_of!(Frame, calls) == 352);
    assert!(offset_of!(Frame, light) == 360);
    assert!(offset_of!(Frame, full) == 368);
    assert!(offset_of!(Frame, cpu) == 376 && CPU_IN_FRAME == 376);
    assert!(offset_of!(Frame, timing) == 384);
    assert!(offset_of!(Frame, inner) == 408);
    assert!(offset_of!(Frame, came_from) == 416);
    assert!(offset_of!(Frame, data) == 424);
    assert!(offset_of!(Frame, facility) == 432);
    assert!(offset_of!(Frame, full_call) == 440);
    assert!(offset_of!(Frame, user) == 448);
    assert!(size_of::<Frame>() == 480);
    // The frame of a service, as far as vectors look at it.
    assert!(offset_of!(Frame, light) == context::LIGHT && offset_of!(Frame, full) == context::FULL);
    assert!(offset_of!(Frame, data) == context::DATA && offset_of!(Frame, facility) == context::FACILITY);
    assert!(offset_of!(Frame, user) == context::USER);
    assert!(size_of::<Frame>() as u64 <= STACK_HEAD && STACK_HEAD.is_multiple_of(16));
};

impl Frame {
    /// Makes the frame of a stack on which no guest runs.
    pub fn idle(cpu: *const PerCpu) -> Self {
        Self {
            linkage: [0; 4],
            gpr: [0; 32],
            lr: 0,
            ctr: 0,
            xer: 0,
            cr: 0,
            pc: 0,
            msr: 0,
            vcpu: core::ptr::null(),
            written: 0,
            vector: 0,
            calls: core::ptr::null(),
            light: None,
            full: None,
            cpu,
            timing: Timing::new(None),
            inner: core::ptr::null(),
            came_from: 0,
            data: None,
            facility: None,
            full_call: None,
            user: None,
            bells: Bells::NONE,
        }
    }

    /// Makes an empty frame for `vcpu`, which may keep statistics in a `page`, and whose exits lead to `entries`.
    pub fn new(
        cpu: *const PerCpu,
        vcpu: &'static Vcpu,
        page: Option<&'static Page>,
        entries: Entries,
    ) -> Self {
        let Entries { calls, inner, light, data, facility, full, full_call, user, bells } = entries;
        Self {
            vcpu,
            timing: Timing::new(page),
            calls,
            inner,
            light: Some(light),
            data: Some(data),
            facility: Some(facility),
            full: Some(full),
            full_call: Some(full_call),
            user: Some(user),
            bells,
            ..Self::idle(cpu)
        }
    }

    /// Clears every register of the guest.
    pub fn clear(&mut self) {
        self.gpr = [0; 32];
        self.written = 1;
        (self.lr, self.ctr, self.xer, self.cr, self.pc, self.msr) = (0, 0, 0, 0, 0, 0);
    }

    /// Reads a general register, when it has been stored: in exits other than calls.
    #[inline(always)] // One load.
    pub fn gpr(&self, number: usize) -> u64 {
        self.gpr[number & 31]
    }

    /// How the guest is to be entered: with all registers, if one was written that compiled code leaves alone.
    #[inline(always)] // One load.
    pub fn entry(&mut self) -> Entry {
        if self.written == 0 {
            return Entry::Some;
        }
        self.written = 0;
        Entry::All
    }

    /// Writes a general register, where it has been stored and is loaded again.
    #[inline(always)] // One store.
    pub fn set_gpr(&mut self, number: usize, value: u64) {
        self.gpr[number & 31] = value;
        if number & 31 >= CHANGEABLE {
            self.written = 1;
        }
    }

    /// Clears what a call may change, but for its answer in R3 and R4: nothing of the hypervisor's is seen behind it.
    #[inline(always)] // A few stores.
    pub fn clear_changeable(&mut self) {
        (self.ctr, self.xer) = (0, 0);
        self.gpr[0] = 0;
        // One by one: a loop, or a call that fills memory, would cost more than the stores.
        let [a, b, c, d, e, f, g, h] = &mut self.gpr[5..CHANGEABLE] else { return };
        (*a, *b, *c, *d, *e, *f, *g, *h) = (0, 0, 0, 0, 0, 0, 0, 0);
    }

    /// Stores the arguments of a hypervisor call that goes on to the full tier: R4 to R10.
    #[inline(always)] // A few stores.
    pub fn set_arguments(&mut self, arguments: [u64; 7]) {
        self.gpr[4..11].copy_from_slice(&arguments);
    }

    /// The arguments of a hypervisor call in the full tier: R4 to R10.
    pub fn arguments(&self) -> [u64; 7] {
        core::array::from_fn(|n| self.gpr[4 + n])
    }
}
