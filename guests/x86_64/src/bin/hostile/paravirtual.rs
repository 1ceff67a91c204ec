// SPDX-License-Identifier: Apache-2.0 OR MIT
//! KVM's interface with addresses that are not memory, and with words that the guest changes when it should not.

use core::sync::atomic::Ordering::Relaxed;

use turnstile_guests_x86_64::platform::platform;
use turnstile_guests_x86_64::random;
use turnstile_guests_x86_64::{apic, boot, cpu, crash, io_apic, irq, kvm, mmu, pv_eoi, timer, trap};

use crate::{Tally, is_bare, stride};

/// The registers that take an address, the clock's older ones among them.
const REGISTERS: [u32; 11] = [
    0x11,
    0x12,
    0x4b56_4d00,
    0x4b56_4d01,
    0x4b56_4d02,
    0x4b56_4d03,
    0x4b56_4d04,
    0x4b56_4d05,
    0x4b56_4d06,
    0x4b56_4d07,
    0x4b56_4d08,
];

/// Every register with every address, and then whatever makes the hypervisor use it.
pub fn addresses(tally: &mut Tally) {
    if is_bare() {
        return;
    }
    let mut random = random::stream(12);
    let end = platform().end_of_memory();
    let scratch = boot::image().1.next_multiple_of(mmu::WINDOW_SIZE);
    let places = [
        scratch,
        scratch + 0xffc,
        scratch + 0xffd,
        scratch + 0xff8,
        scratch + 0xfe4,
        scratch + 2,
        end,
        end - 4,
        end - 8,
        end - 63,
        end - 1,
        crash::outside(),
        0xa_0000,
        0xf_fffc,
        0xb_fffe,
        apic::PAGE,
        apic::PAGE + 0xb0,
        io_apic::base(),
        0xffff_fffc,
        1 << 40,
        (1 << 52) - 4,
        1 << 63,
        u64::MAX,
        u64::MAX - 3,
    ];
    for register in REGISTERS {
        for place in places {
            for low in [0, 1, 3] {
                attack(tally, register, place & !1 | low);
            }
        }
        for _ in 0..200 / stride() {
            // Not into this program.
            let place = random.number() | 1 << (32 + random.below(31));
            attack(tally, register, place);
        }
    }
}

fn attack(tally: &mut Tally, register: u32, value: u64) {
    tally.add(trap::caught(|| cpu::write_msr(register, value)).is_some());
    use_it();
    let off = trap::caught(|| cpu::write_msr(register, 0));
    tally.add(off.is_some());
    let _ = trap::caught(|| _ = cpu::read_msr(register));
}

/// Interrupts, a wait, and a hypercall.
fn use_it() {
    let before = irq::total();
    apic::send_to_self(0x61);
    apic::send_to_self(0x41);
    cpu::take_interrupts();
    timer::arm(0x51, timer::now() + 1000);
    while irq::total().wrapping_sub(before) < 3 {
        cpu::wait();
    }
    kvm::hypercall(0x7fff, [0; 4]);
}

/// The word set when nothing was offered, cleared before its interrupt, and given back in service.
pub fn eoi(tally: &mut Tally) {
    if !pv_eoi::is_offered() {
        return;
    }
    fn meddle(vector: u8) {
        let word = &cpu::this().eoi.0;
        match vector & 7 {
            0 => word.store(1, Relaxed),
            1 => word.store(0, Relaxed),
            2 => word.store(u64::MAX, Relaxed),
            3 => cpu::write_msr(kvm::msr::PV_EOI, 0),
            4 => cpu::write_msr(kvm::msr::PV_EOI, word.as_ptr() as u64 | 1),
            5 => apic::send_to_self(vector.wrapping_add(0x11) | 0x30),
            _ => {}
        }
    }
    let mut random = random::stream(13);
    irq::set_handler(Some(meddle));
    pv_eoi::enable();
    for round in 0..20_000 / stride() {
        let vector = 0x30 + random.below(0xc0) as u8;
        apic::send_to_self(vector);
        match random.below(6) {
            0 => cpu::this().eoi.0.store(random.special(), Relaxed),
            1 => apic::end(),
            2 => cpu::write_msr(kvm::msr::PV_EOI, cpu::this().eoi.0.as_ptr() as u64 | 1),
            _ => {}
        }
        cpu::take_interrupts();
        tally.add(false);
        // What is in service for ever because of all this ends sooner or later.
        if round % 16 == 0 {
            (0..4).for_each(|_| apic::end());
        }
    }
    pv_eoi::disable();
}
