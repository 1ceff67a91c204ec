// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Extended state: x87, SSE, AVX and whatever else XSAVE stores (AMD APM vol. 2, 11.5). FXSAVE where there is no XSAVE.
//!
//! All components that the CPU has are stored and loaded, not those alone that the guest has switched on in XCR0: what it has
//! switched off is still in the registers, and must not be found there by the next guest that switches it on.

use alloc::boxed::Box;
use alloc::vec;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::cpu;
use crate::cpu::regs::{CR4, cr4};

/// The components that this machine's CPUs have; zero if they have no XSAVE.
static COMPONENTS: AtomicU64 = AtomicU64::new(0);
/// Whether XSAVEOPT is there, which stores nothing of components in their initial state.
static OPTIMIZED: AtomicBool = AtomicBool::new(false);
/// Whether loading leaves the last instruction's address, operand and opcode of the x87 unit as they were, unless an
/// exception is pending: those of the guest before.
static KEEPS_POINTERS: AtomicBool = AtomicBool::new(true);

/// x87: always there.
const X87: u64 = 1;
/// Bytes of the legacy area and the header (APM vol. 2, 11.5.1).
const LEAST: usize = 576;

/// XCR0 after a reset (APM vol. 2, 11.5.2).
pub const XCR0_RESET: u64 = X87;

/// Finds out how this CPU stores its extended state, and allows that. All CPUs are taken to be alike.
pub fn start_cpu() {
    const XSAVE: u32 = 1 << 26;
    const OPTIMIZING: u32 = 1;
    const RESTORES_POINTERS: u32 = 1 << 2;
    let has_xsave = cpu::cpuid(1, 0)[2] & XSAVE != 0;
    // SAFETY: the hypervisor uses none of this state; it may store it.
    unsafe { CR4.write(CR4.read() | cr4::OSFXSR | if has_xsave { cr4::OSXSAVE } else { 0 }) };
    if has_xsave {
        let [low, _, _, high] = cpu::cpuid(0xd, 0);
        COMPONENTS.store(u64::from(high) << 32 | u64::from(low), Ordering::Relaxed);
        OPTIMIZED.store(cpu::cpuid(0xd, 1)[0] & OPTIMIZING != 0, Ordering::Relaxed);
    }
    let restores = cpu::cpuid(0x8000_0000, 0)[0] >= 0x8000_0008
        && cpu::cpuid(0x8000_0008, 0)[1] & RESTORES_POINTERS != 0;
    KEEPS_POINTERS.store(!restores, Ordering::Relaxed);
}

/// Bytes of an area for all components.
fn size() -> usize {
    if COMPONENTS.load(Ordering::Relaxed) == 0 { LEAST } else { (cpu::cpuid(0xd, 0)[2] as usize).max(LEAST) }
}

#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Block([u64; 8]);

/// The extended state of a vCPU whose registers are another's.
pub struct Extended {
    area: Box<[Block]>,
    xcr0: u64,
}

impl Extended {
    /// Makes that of a vCPU that has never run.
    pub fn new() -> Self {
        let mut extended = Self { area: vec![Block([0; 8]); size().div_ceil(64)].into(), xcr0: XCR0_RESET };
        extended.reset();
        extended
    }

    /// Makes it what it is after a reset (APM vol. 2, 14.1.3): the x87 control word 0x40, all its registers valid and zero;
    /// MXCSR 0x1f80; the rest as it is initially.
    pub fn reset(&mut self) {
        self.area.fill(Block([0; 8]));
        let legacy = &mut self.area[0].0;
        // Control word; status word; one bit for each register that is not empty.
        legacy[0] = 0x40 | 0xff << 32;
        legacy[3] = 0x1f80;
        // The header: which components are not in their initial state.
        self.area[LEAST / 64 - 1].0[0] = X87;
        self.xcr0 = XCR0_RESET;
    }

    /// Stores the registers.
    pub fn save(&mut self) {
        let components = COMPONENTS.load(Ordering::Relaxed);
        let area = self.area.as_mut_ptr().cast();
        if components == 0 {
            return instructions::fxsave(area);
        }
        self.xcr0 = instructions::xgetbv();
        if self.xcr0 != components {
            instructions::xsetbv(components);
        }
        if OPTIMIZED.load(Ordering::Relaxed) {
            instructions::xsaveopt(area, components);
        } else {
            instructions::xsave(area, components);
        }
    }

    /// Loads the registers: all of every component.
    ///
    /// # Safety
    /// Nobody needs what they hold.
    pub unsafe fn load(&self) {
        let components = COMPONENTS.load(Ordering::Relaxed);
        let area = self.area.as_ptr().cast();
        if KEEPS_POINTERS.load(Ordering::Relaxed) {
            instructions::clear_pointers();
        }
        if components == 0 {
            return instructions::fxrstor(area);
        }
        if instructions::xgetbv() != components {
            instructions::xsetbv(components);
        }
        instructions::xrstor(area, components);
        if self.xcr0 != components {
            instructions::xsetbv(self.xcr0);
        }
    }
}

impl Default for Extended {
    fn default() -> Self {
        Self::new()
    }
}

/// The instructions. The functions are not `unsafe`, because this module alone has them: areas are large enough, and of
/// the guest's registers nobody else is in the way.
#[cfg(target_os = "none")]
mod instructions {
    macro_rules! with_area {
        ($name:ident, $asm:literal) => {
            pub fn $name(area: *mut u64, components: u64) {
                // SAFETY: the area is aligned to 64 bytes and large enough for all components; the state is a guest's.
                unsafe {
                    core::arch::asm!(
                        concat!($asm, " [{}]"), in(reg) area,
                        in("eax") components as u32, in("edx") (components >> 32) as u32, options(nostack)
                    );
                }
            }
        };
    }

    with_area!(xsave, "xsave64");
    with_area!(xsaveopt, "xsaveopt64");

    pub fn xrstor(area: *const u64, components: u64) {
        // SAFETY: the area was stored by `xsave`, or made as it would be. The hypervisor uses none of these registers.
        unsafe {
            core::arch::asm!(
                "xrstor64 [{}]", in(reg) area,
                in("eax") components as u32, in("edx") (components >> 32) as u32, options(nostack)
            );
        }
    }

    pub fn fxsave(area: *mut u64) {
        // SAFETY: the area is aligned and has 512 bytes.
        unsafe { core::arch::asm!("fxsave64 [{}]", in(reg) area, options(nostack)) };
    }

    pub fn fxrstor(area: *const u64) {
        // SAFETY: as for `xrstor`.
        unsafe { core::arch::asm!("fxrstor64 [{}]", in(reg) area, options(nostack)) };
    }

    /// Makes the x87 unit's last instruction one of the hypervisor's.
    pub fn clear_pointers() {
        static ZERO: u32 = 0;
        // SAFETY: changes x87 state only, all of which is loaded next.
        unsafe {
            core::arch::asm!("fnclex", "emms", "fild dword ptr [{}]", in(reg) &raw const ZERO, options(nostack));
        }
    }

    pub fn xgetbv() -> u64 {
        let (low, high): (u32, u32);
        // SAFETY: the CPU has XSAVE, and CR4.OSXSAVE is set.
        unsafe {
            core::arch::asm!("xgetbv", in("ecx") 0, out("eax") low, out("edx") high, options(nomem, nostack))
        };
        u64::from(high) << 32 | u64::from(low)
    }

    pub fn xsetbv(value: u64) {
        // SAFETY: all components of the CPU, or what the guest was allowed.
        unsafe {
            core::arch::asm!(
                "xsetbv", in("ecx") 0, in("eax") value as u32, in("edx") (value >> 32) as u32, options(nostack)
            );
        }
    }
}

#[cfg(not(target_os = "none"))]
mod instructions {
    use crate::cpu::regs::fakes;

    /// What the registers hold, of all that there is, is one word: the first after the control words.
    const WORD: usize = 4;

    fn store(area: *mut u64) {
        // SAFETY: an area has more words.
        unsafe { *area.add(WORD) = fakes::get("EXTENDED") };
    }

    pub fn xsave(area: *mut u64, components: u64) {
        fakes::write("XSAVE", components);
        store(area);
    }

    pub fn xsaveopt(area: *mut u64, components: u64) {
        fakes::write("XSAVEOPT", components);
        store(area);
    }

    pub fn fxsave(area: *mut u64) {
        fakes::write("FXSAVE", 0);
        store(area);
    }

    fn load(area: *const u64) {
        // SAFETY: an area has more words.
        fakes::set("EXTENDED", unsafe { *area.add(WORD) });
    }

    pub fn xrstor(area: *const u64, components: u64) {
        fakes::write("XRSTOR", components);
        load(area);
    }

    pub fn fxrstor(area: *const u64) {
        fakes::write("FXRSTOR", 0);
        load(area);
    }

    pub fn clear_pointers() {}

    pub fn xgetbv() -> u64 {
        fakes::read("XCR0")
    }

    pub fn xsetbv(value: u64) {
        fakes::write("XCR0", value);
    }
}
