// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Pages of the interrupt controller: its own with wrong accesses, those of others, and addresses behind memory.

use turnstile_guests_power64::platform::{Controller, platform};
use turnstile_guests_power64::random::{self, Random};
use turnstile_guests_power64::{cpu, crash, hcall, irq, mmio, println, smp, trap, xive};

use crate::{Tally, scratch, stride};

/// Bytes of a page of a source.
const PAGE: u64 = 64 << 10;

/// Returns the address of some page that is no memory.
pub fn any_page(random: &mut Random) -> u64 {
    let source =
        if matches!(platform().controller, Controller::Xive(_)) { xive::management_page(0) } else { 0 };
    let device = platform().uart.map_or(0, |uart| uart.base);
    let far = crash::outside() + random.below(1 << 20) * PAGE;
    [if source == 0 { far } else { source }, if device == 0 { far } else { device }, far]
        [random.below(3) as usize]
}

/// Reads and writes of any width.
fn touch(tally: &mut Tally, random: &mut Random, address: u64) {
    let trap = trap::caught(|| match random.below(6) {
        0 => _ = mmio::read8(address),
        1 => _ = mmio::read32(address & !3),
        2 => _ = mmio::read64(address & !7),
        3 => mmio::write8(address, random.number() as u8),
        4 => mmio::write32(address & !3, random.number() as u32),
        _ => mmio::write64(address & !7, random.special()),
    });
    tally.add(trap.is_some());
}

/// Pages of sources, this partition's and what lies around them.
pub fn sources(tally: &mut Tally) {
    let Controller::Xive(facts) = platform().controller else { return };
    let mut random = random::stream(50);
    let base = xive::trigger_page(0).min(xive::management_page(0));
    for _ in 0..10_000 / stride() {
        let page = match random.below(4) {
            0 => base + random.below(2 * u64::from(facts.sources)) * PAGE,
            1 => base.wrapping_sub((1 + random.below(64)) * PAGE),
            2 => base + random.below(1 << 16) * PAGE,
            _ => base + random.below(4) * PAGE,
        };
        // Sources take accesses of 64 bits alone; others are machine checks, see `fatal`.
        let (address, value) = (page + random.below(PAGE / 8) * 8, random.special());
        let store = random.below(2) == 0;
        let access = || if store { mmio::write64(address, value) } else { _ = mmio::read64(address) };
        tally.add(trap::caught(access).is_some());
        if random.below(64) == 0 {
            cpu::take_interrupts();
        }
    }
    irq::init();
}

/// The page of the presentation: its registers of all rings, and pages of the rings above.
pub fn presentation(tally: &mut Tally) {
    let Controller::Xive(facts) = platform().controller else { return };
    let mut random = random::stream(51);
    for round in 0..10_000 / stride() {
        // The pages of hardware and hypervisor lie below; the user's above.
        // QEMU's own partition has those of the hypervisor, too.
        let page = if round % 4 == 0 && !crate::is_bare() {
            facts.presentation - 2 * PAGE + random.below(4) * PAGE
        } else {
            facts.presentation
        };
        let offset = if random.below(2) == 0 { random.below(0x40) } else { random.below(0x1000) };
        touch(tally, &mut random, page + offset);
        if random.below(64) == 0 {
            cpu::take_interrupts();
        }
    }
    irq::init();
}

/// Configuration with anything for an argument: sources, targets and queues of nobody.
pub fn calls(tally: &mut Tally) {
    let mut random = random::stream(52);
    let calls = [
        hcall::INT_GET_SOURCE_INFO,
        hcall::INT_SET_SOURCE_CONFIG,
        hcall::INT_GET_SOURCE_CONFIG,
        hcall::INT_GET_QUEUE_INFO,
        hcall::INT_SET_QUEUE_CONFIG,
        hcall::INT_GET_QUEUE_CONFIG,
        hcall::INT_ESB,
        hcall::INT_SYNC,
        0x3c0,
        0x3c4,
    ];
    for round in 0..10_000 / stride() {
        let number = calls[random.below(calls.len() as u64) as usize];
        let arguments = core::array::from_fn(|index| match random.below(5) {
            0 => random.below(16),
            1 => u64::from(smp::server(0)),
            2 if index > 1 => scratch() + random.below(16) * PAGE,
            3 => crash::outside(),
            // No queue where this program is.
            _ => match random.special() {
                value if (16..scratch()).contains(&value) => value | scratch(),
                value => value,
            },
        });
        let is_queue_at_zero = number == hcall::INT_SET_QUEUE_CONFIG && arguments[3] < scratch();
        if !is_queue_at_zero {
            tally.add(hcall::call9(number, arguments).0 < 0);
        }
        if round % 256 == 0 && matches!(platform().controller, Controller::Xive(_)) {
            hcall::call(hcall::INT_RESET, [0; 4]);
        }
    }
    irq::init();
}

/// Triggers without end to a CPU that takes nothing, then takes all.
pub fn storm(tally: &mut Tally) {
    for _ in 0..100_000 / stride() {
        irq::send(0);
        tally.add(false);
    }
    cpu::take_interrupts();
    if irq::count(irq::IPI) == 0 {
        println!("@error nothing comes after a storm");
    }
}

/// Behind memory, between devices, at the ends of the address space. Reads of nothing and writes to it are the partition's
/// own trouble.
pub fn outside(tally: &mut Tally) {
    if crate::is_bare() {
        return;
    }
    let mut random = random::stream(53);
    for _ in 0..2000 / stride() {
        let address = match random.below(4) {
            0 => platform().end_of_memory() + random.below(PAGE),
            1 => crash::outside() + random.below(1 << 40),
            2 => random.number() >> 12,
            _ => random.number() & 0x0fff_ffff_ffff_ffff,
        };
        if address >= platform().end_of_memory() {
            touch(tally, &mut random, address);
        }
    }
}
