// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Registration of virtual processor areas (LoPAR, section 14.11.1.5).

use turnstile_guests_power64::hcall::{self, call};
use turnstile_guests_power64::test::{Outcome, Test};
use turnstile_guests_power64::{check, check_eq, cpu, crash, irq, mmio, skip, smp, timer};

pub const TESTS: &[Test] = &[
    Test { name: "vpa-register", run: register },
    Test { name: "vpa-order", run: order },
    Test { name: "vpa-refused", run: refused },
    Test { name: "vpa-dispatches", run: dispatches },
];

/// Functions of H_REGISTER_VPA, where its argument has them.
const REGISTER: u64 = 1 << 45;
const REGISTER_LOG: u64 = 2 << 45;
const REGISTER_SHADOW: u64 = 3 << 45;
const DEREGISTER: u64 = 5 << 45;
const DEREGISTER_LOG: u64 = 6 << 45;
const DEREGISTER_SHADOW: u64 = 7 << 45;
/// Bytes of an area.
const SIZE: u32 = 640;

fn vpa(function: u64, address: u64) -> i64 {
    call(hcall::REGISTER_VPA, [function, u64::from(smp::server(0)), address, 0])
}

/// Zeros, and the length: of 16 bits in an area, of 32 in shadow and log.
fn prepare(address: u64, size: u32) {
    for offset in (0..4096).step_by(8) {
        mmio::write64(address + offset, 0);
    }
    mmio::write32(address + 4, size.to_be());
}

/// The same for an area, whose length is told in the first half of the word.
fn prepare_area(address: u64, size: u32) {
    prepare(address, size << 16);
}

fn release() {
    vpa(DEREGISTER_LOG, 0);
    vpa(DEREGISTER_SHADOW, 0);
    vpa(DEREGISTER, 0);
}

fn register() -> Outcome {
    release();
    let area = crate::scratch();
    prepare_area(area, SIZE);
    check_eq!(vpa(REGISTER, area), hcall::SUCCESS, "the area");
    prepare(area + 0x1000, 0x90);
    check_eq!(vpa(REGISTER_SHADOW, area + 0x1000), hcall::SUCCESS, "the shadow of the SLB");
    prepare(area + 0x2000, 4096);
    check_eq!(vpa(REGISTER_LOG, area + 0x2000), hcall::SUCCESS, "the dispatch trace log");
    // Exits while it is registered.
    cpu::take_interrupts();
    call(hcall::CONFER, [u64::MAX, 0, 0, 0]);
    check_eq!(vpa(DEREGISTER_LOG, 0), hcall::SUCCESS, "away with the log");
    check_eq!(vpa(DEREGISTER_SHADOW, 0), hcall::SUCCESS, "away with the shadow");
    check_eq!(vpa(DEREGISTER, 0), hcall::SUCCESS, "away with the area");
    Ok(())
}

/// The count of dispatches is even while the vCPU runs, odd once nobody counts there, and has moved behind each wait.
fn dispatches() -> Outcome {
    if crate::is_bare() {
        skip!("QEMU's own partition counts otherwise");
    }
    release();
    let area = crate::scratch();
    prepare_area(area, SIZE);
    let count = || u32::from_be(mmio::read32(area + 0x100));
    check_eq!(vpa(REGISTER, area), hcall::SUCCESS, "the area");
    let waits = || {
        let before = count();
        let interrupts = irq::count(irq::TIMER);
        timer::arm(timer::now() + timer::ticks(1000));
        while irq::count(irq::TIMER) == interrupts {
            cpu::wait();
        }
        count() > before && count() & 1 == 0
    };
    for _ in 0..3 {
        let before = count();
        check_eq!(before & 1, 0, "while it runs");
        // Where the CPU was somebody else's for so long, the interrupt was there before the wait.
        check!((0..20).any(|_| waits()), "{before} before a wait, {} behind it", count());
    }
    check_eq!(vpa(DEREGISTER, 0), hcall::SUCCESS, "away with the area");
    check_eq!(count() & 1, 1, "behind that");
    Ok(())
}

/// Log and shadow need an area, and keep it.
fn order() -> Outcome {
    release();
    let area = crate::scratch();
    prepare_area(area, SIZE);
    prepare(area + 0x1000, 0x90);
    check!(vpa(REGISTER_SHADOW, area + 0x1000) < 0, "a shadow without an area is taken");
    check_eq!(vpa(REGISTER, area), hcall::SUCCESS, "the area");
    check_eq!(vpa(REGISTER_SHADOW, area + 0x1000), hcall::SUCCESS, "the shadow");
    check!(vpa(DEREGISTER, 0) < 0, "the area goes away below its shadow");
    release();
    Ok(())
}

fn refused() -> Outcome {
    release();
    let area = crate::scratch();
    prepare_area(area, SIZE);
    check!(vpa(REGISTER, area + 64) < 0, "an address that is not aligned is taken");
    check!(vpa(REGISTER, crash::outside()) < 0, "an address where no memory is is taken");
    check!(vpa(REGISTER, 0) < 0, "the address zero is taken");
    check!(vpa(REGISTER, !0xfff) < 0, "the last address is taken");
    check!(vpa(9 << 45, area) < 0, "a function that is none is taken");
    check!(call(hcall::REGISTER_VPA, [REGISTER, 0xdead, area, 0]) < 0, "a CPU that is not there is taken");
    prepare_area(area, 64);
    check!(vpa(REGISTER, area) < 0, "an area of 64 bytes is taken");
    // Behind the page that it begins in.
    prepare_area(area, 0);
    mmio::write32(area + 0xf84, (SIZE << 16).to_be());
    check!(vpa(REGISTER, area + 0xf80) < 0, "an area over the end of its page is taken");
    Ok(())
}
