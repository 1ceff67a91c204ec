// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What each physical CPU has for itself: the ground part of it, and room for what modules above have ([`Slot`]), of which `boot::area`
//! has the list.

use core::cell::UnsafeCell;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use turnstile_vm::attention::KickToken;

/// Bytes of a block that holds a stack, and its alignment: the lowest page is unmapped, the last word is the address of
/// the area of the CPU that runs on it. So that [`this`] finds the area from the stack pointer alone: FS and GS are the
/// guest's while it is resident.
pub const STACK_BLOCK: u64 = 64 * 1024;

/// Bytes at the end of a stack's block that are not stack: the address of the CPU's area, and what keeps 16 bytes aligned.
pub const STACK_TAIL: u64 = 16;

/// Bytes at the end of a CPU's stack that it does not begin with: the tail, and below that the exit frame of the vCPU that
/// runs on it. `boot.S` has the same number.
pub const STACK_HEAD: u64 = 256;

/// Words for what modules above have for each CPU: enough, which `boot::area` asserts.
const WORDS: usize = 128;

/// The room for that.
#[repr(C, align(16))]
pub struct Room(UnsafeCell<MaybeUninit<[u64; WORDS]>>);

// SAFETY: what is in it is `Sync`, as `Slot` demands.
unsafe impl Sync for Room {}

/// What each physical CPU has for itself.
#[repr(C)]
pub struct PerCpu {
    /// Interrupts that have arrived and nobody has served: written by `interrupts.S`, which knows that it is the first field.
    pub arrived: AtomicU32,
    /// The end of its stack's block, [`STACK_TAIL`] bytes above its stack.
    pub stack_end: u64,
    /// The end of the block of the stack on which faults of the hypervisor are reported.
    pub fault_stack_end: u64,
    /// Where VMRUN saves the host's state: a page of its own.
    pub host_save: u64,
    /// Its number among the CPUs in use.
    pub index: usize,
    /// What its local APIC is called.
    pub apic_id: u32,
    /// What kicks it; known once it runs.
    pub kick_token: AtomicU64,
    /// Set by the CPU itself once it runs on its own stack.
    pub online: AtomicBool,
    room: Room,
}

const _: () = assert!(core::mem::offset_of!(PerCpu, arrived) == 0);

/// What a module has for each physical CPU.
///
/// # Safety
/// The room of each [`PerCpu`] that [`this`] returns, or that others refer to, has a `Self` at [`Slot::OFFSET`].
pub unsafe trait Slot: Sync + Sized + 'static {
    /// Where it is in the room.
    const OFFSET: usize;
}

impl PerCpu {
    /// Makes that of a CPU that has not started.
    pub const fn new(
        stack_end: u64,
        fault_stack_end: u64,
        host_save: u64,
        index: usize,
        apic_id: u32,
    ) -> Self {
        Self {
            arrived: AtomicU32::new(0),
            stack_end,
            fault_stack_end,
            host_save,
            index,
            apic_id,
            kick_token: AtomicU64::new(0),
            online: AtomicBool::new(false),
            room: Room(UnsafeCell::new(MaybeUninit::uninit())),
        }
    }

    /// Returns what kicks it.
    #[inline(always)] // One load.
    pub fn kick_token(&self) -> KickToken {
        self.kick_token.load(Ordering::Relaxed)
    }

    /// Fills the room in, before anybody asks for a slot.
    pub(crate) fn fill<S>(&mut self, slots: S) {
        const { assert!(size_of::<S>() <= size_of::<Room>() && align_of::<S>() <= align_of::<Room>()) }
        // SAFETY: it is large enough, and aligned.
        unsafe { self.room.0.get().cast::<S>().write(slots) };
    }

    /// Returns what a module has for this CPU.
    #[inline(always)] // An address computation.
    pub fn slot<S: Slot>(&self) -> &S {
        // SAFETY: `Slot` promises that it is there. Nobody has it but shared.
        unsafe { &*self.room.0.get().byte_add(S::OFFSET).cast::<S>() }
    }
}

/// Returns this CPU's area.
#[cfg(target_os = "none")]
#[inline(always)] // Three instructions.
pub fn this() -> &'static PerCpu {
    let end: u64;
    // SAFETY: each stack that Rust runs on is in a block of STACK_BLOCK bytes, whose last word boot code, or whoever moves
    // the stack to another CPU, has set to an area that lives for ever. Not `pure`: a stack may move.
    unsafe {
        core::arch::asm!(
            "mov {end}, rsp",
            "or {end}, {mask}",
            end = out(reg) end, mask = const STACK_BLOCK - 1, options(nomem, nostack)
        );
        *((end - 7) as *const &'static PerCpu)
    }
}

/// Returns this thread's area, which stands for a CPU in tests.
#[cfg(not(target_os = "none"))]
pub fn this() -> &'static PerCpu {
    unsafe extern "Rust" {
        /// Makes an area: `boot::area`, which knows all of it.
        safe fn turnstile_x86_64_area() -> &'static PerCpu;
    }
    std::thread_local!(static AREA: &'static PerCpu = turnstile_x86_64_area());
    AREA.with(|area| *area)
}
