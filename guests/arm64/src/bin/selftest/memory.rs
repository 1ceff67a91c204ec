// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Memory as the device tree says, and stage 1 translation on top of stage 2.

use core::arch::asm;
use core::sync::atomic::{AtomicU64, Ordering::SeqCst};

use turnstile_guests::mmu::{self, BLOCK, descriptor};
use turnstile_guests::platform::{Region, platform};
use turnstile_guests::psci::status;
use turnstile_guests::test::{Outcome, Test};
use turnstile_guests::trap::{self, class};
use turnstile_guests::{check, check_eq, cpu, read_sysreg, skip, smp, timer};

pub const TESTS: &[Test] = &[
    Test { name: "memory-size", run: size },
    Test { name: "memory-every-block", run: every_block },
    Test { name: "memory-alias", run: alias },
    Test { name: "memory-faults", run: faults },
    Test { name: "memory-translate", run: translate },
    Test { name: "memory-atomics", run: atomics },
];

fn peek(address: u64) -> u64 {
    // SAFETY: memory of the device tree, or mapped to it, or a fault that the caller expects.
    unsafe { (address as *const u64).read_volatile() }
}

fn poke(address: u64, value: u64) {
    // SAFETY: as above, and outside the image and the device tree.
    unsafe { (address as *mut u64).write_volatile(value) }
}

/// Whether a block of memory holds nothing of this program.
fn is_free(base: u64, size: u64) -> bool {
    !platform().taken.as_slice().iter().any(|taken| taken.touches(Region { base, size }))
}

fn size() -> Outcome {
    for memory in platform().memory.as_slice() {
        check!(memory.base.is_multiple_of(BLOCK) && memory.size >= BLOCK, "memory at {:#x}", memory.base);
        let pages = [memory.base, memory.end() - 4096];
        for page in pages.into_iter().filter(|page| is_free(*page, 4096)) {
            for address in [page, page + 4088] {
                poke(address, address ^ 0x5555);
                check_eq!(peek(address), address ^ 0x5555, "memory at {address:#x}");
            }
        }
    }
    Ok(())
}

/// One word per 2 MiB: all are there, and none is another.
fn every_block() -> Outcome {
    for memory in platform().memory.as_slice() {
        let blocks = || (memory.base..memory.end()).step_by(BLOCK as usize).filter(|at| is_free(*at, BLOCK));
        blocks().for_each(|at| poke(at + 8, !at));
        for at in blocks() {
            check_eq!(peek(at + 8), !at, "memory at {:#x}", at + 8);
        }
    }
    Ok(())
}

fn free_block() -> Option<u64> {
    let memory = platform().memory.as_slice().iter();
    memory
        .flat_map(|region| (region.base..region.end()).step_by(BLOCK as usize))
        .find(|at| is_free(*at, BLOCK) && platform().memory.as_slice().iter().any(|r| at + BLOCK <= r.end()))
}

fn clean(address: u64) {
    // SAFETY: cleaning and invalidating changes no value.
    unsafe { asm!("dc civac, {}", "dsb sy", in(reg) address, options(nostack)) };
}

/// The same block at two more addresses, with and without caches.
fn alias() -> Outcome {
    let Some(block) = free_block() else { skip!("no free block") };
    let cached = mmu::set_window(0, Some((block, descriptor::NORMAL)));
    let plain = mmu::set_window(1, Some((block, descriptor::NON_CACHEABLE)));
    for offset in (0..BLOCK).step_by(64 << 10) {
        poke(block + offset, offset ^ 0xabcd);
        check_eq!(peek(cached + offset), offset ^ 0xabcd, "cached alias");
        clean(block + offset);
        check_eq!(peek(plain + offset), offset ^ 0xabcd, "non-cacheable alias");
        poke(plain + offset, offset ^ 0x1234);
        cpu::synchronize();
        clean(block + offset);
        check_eq!(peek(block + offset), offset ^ 0x1234, "memory after a write by the non-cacheable alias");
    }
    mmu::set_window(0, None);
    mmu::set_window(1, None);
    Ok(())
}

/// Stage 1 faults are the guest's own: it gets class, status and address of its own translation.
fn faults() -> Outcome {
    let Some(block) = free_block() else { skip!("no free block") };
    let nothing = mmu::set_window(2, None);
    let Some(fault) = trap::expect(|| peek(nothing + 0x1238)).1 else {
        check!(false, "no translation fault");
        return Ok(());
    };
    check_eq!(fault.class(), class::DATA_ABORT, "class of a translation fault");
    check_eq!(fault.status(), 0x06, "status of a translation fault");
    check_eq!(fault.far, nothing + 0x1238, "FAR of a translation fault");
    let read_only = mmu::set_window(2, Some((block, descriptor::NORMAL | descriptor::READ_ONLY)));
    check!(trap::expect(|| peek(read_only)).1.is_none(), "reading a read-only block");
    let Some(fault) = trap::caught(|| poke(read_only + 16, 1)) else {
        check!(false, "no permission fault");
        return Ok(());
    };
    check_eq!(fault.status(), 0x0e, "status of a permission fault");
    check_eq!(fault.far, read_only + 16, "FAR of a permission fault");
    check!(fault.esr >> 6 & 1 == 1, "WnR of a permission fault");
    let no_code = mmu::set_window(2, Some((block, descriptor::NORMAL | descriptor::EXECUTE_NEVER)));
    let call = || {
        // SAFETY: the fetch faults and the handler returns to the link register.
        unsafe { asm!("blr {}", in(reg) no_code, clobber_abi("C")) };
    };
    let Some(fault) = trap::caught(call) else {
        check!(false, "no fault for a fetch");
        return Ok(());
    };
    check_eq!(fault.class(), class::INSTRUCTION_ABORT, "class of a fetch");
    check_eq!(fault.status(), 0x0e, "status of a fetch");
    check_eq!(fault.far, no_code, "FAR of a fetch");
    mmu::set_window(2, None);
    Ok(())
}

/// AT S1E1R and PAR_EL1 give the guest's own physical address.
fn translate() -> Outcome {
    let Some(block) = free_block() else { skip!("no free block") };
    let window = mmu::set_window(3, Some((block, descriptor::NORMAL)));
    let translation = |address: u64| {
        // SAFETY: writes PAR_EL1 only.
        unsafe { asm!("at s1e1r, {}", "isb", in(reg) address, options(nostack)) };
        read_sysreg!("par_el1")
    };
    let found = translation(window + 0x3210);
    check!(found & 1 == 0, "PAR_EL1 {found:#x}");
    check_eq!(found & 0x000f_ffff_ffff_f000, block + 0x3000, "address in PAR_EL1");
    mmu::set_window(3, None);
    let found = translation(window);
    check!(found & 1 == 1, "PAR_EL1 {found:#x} of an unmapped address");
    check_eq!(found >> 1 & 0x3f, 0x06, "status in PAR_EL1");
    Ok(())
}

const ROUNDS: u64 = 20_000;
static SUM: AtomicU64 = AtomicU64::new(0);
static FINISHED: AtomicU64 = AtomicU64::new(0);

fn add(_: u64) {
    for _ in 0..ROUNDS {
        SUM.fetch_add(1, SeqCst);
    }
    FINISHED.fetch_add(1, SeqCst);
}

fn atomics() -> Outcome {
    SUM.store(0, SeqCst);
    FINISHED.store(0, SeqCst);
    for index in smp::others() {
        check_eq!(smp::start(index, add, 0), status::SUCCESS, "CPU_ON");
    }
    add(0);
    check!(timer::wait(10_000_000, || FINISHED.load(SeqCst) as usize == smp::count()), "CPUs are missing");
    check!(smp::others().all(smp::wait_off), "CPUs do not go off");
    check_eq!(SUM.load(SeqCst), ROUNDS * smp::count() as u64, "sum");
    Ok(())
}
