// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The interrupt controllers: every register, every command, everything at once.

use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

use turnstile_guests_x86_64::apic::{self, icr, register};
use turnstile_guests_x86_64::console::IER;
use turnstile_guests_x86_64::cpu::{self, feature, msr};
use turnstile_guests_x86_64::exception::vector;
use turnstile_guests_x86_64::mmu;
use turnstile_guests_x86_64::probe::{self, place};
use turnstile_guests_x86_64::random::{self, Random};
use turnstile_guests_x86_64::{boot, crash, io_apic, irq, mmio, pit, port, smp, timer, trap};

use crate::io::ACCESSES;
use crate::{Tally, is_bare, stride};

/// Every offset of the page, in every size.
pub fn page(tally: &mut Tally) {
    let mut random = random::stream(7);
    apic::init_as(false);
    for offset in (0..4096_u64).step_by(stride()) {
        for (index, code) in ACCESSES.into_iter().enumerate() {
            // The command has an attack of its own.
            if index >= 4 && (0x2f9..0x304).contains(&offset) {
                continue;
            }
            let mut registers = probe::pattern(offset);
            registers[place::RDI] = apic::PAGE + offset;
            registers[place::RDX] = random.special();
            // SAFETY: nothing of this program is there.
            tally.add(unsafe { probe::execute(code, &registers, 0) }.is_err());
        }
    }
}

/// Every MSR of the x2APIC.
pub fn msrs(tally: &mut Tally) {
    if !cpu::has(feature::X2APIC) {
        return;
    }
    let mut random = random::stream(8);
    apic::init_as(true);
    for number in 0x800..0x900 {
        for _ in 0..64 / stride().min(64) {
            tally.add(trap::caught(|| _ = cpu::read_msr(number)).is_some());
            if number != 0x830 {
                let value = random.special();
                tally.add(trap::caught(|| cpu::write_msr(number, value)).is_some());
            }
        }
    }
}

/// Says whether a command stops this CPU: INIT that names it.
fn is_own(command: u64, destination: u32) -> bool {
    const MODE: u64 = 7 << 8;
    const SHORTHAND: u64 = 3 << 18;
    let init = command & MODE == icr::INIT;
    let startup = command & MODE == icr::STARTUP;
    // SMIs and reserved kinds are the machine's own affair.
    let strange = is_bare() && ![0, icr::LOWEST, icr::NMI].contains(&(command & MODE));
    let others = command & SHORTHAND == icr::OTHERS;
    let physical = command & (SHORTHAND | icr::LOGICAL) == 0;
    let elsewhere = physical && destination != smp::apic_id(0) && destination & 0xff != 0xff;
    // A CPU that starts anywhere would meddle with this one's memory: `other_cpu` does that with care.
    let absent = physical && (64..0xff).contains(&(destination & 0xff));
    strange || init && !(others || elsewhere) || startup && !absent
}

/// Commands of all kinds to everybody, by MSR and by the page.
pub fn commands(tally: &mut Tally) {
    let mut random = random::stream(9);
    for x2apic in [false, cpu::has(feature::X2APIC)] {
        apic::init_as(x2apic);
        cpu::unmask();
        for _ in 0..20_000 / stride() {
            let command = match random.below(3) {
                0 => random.number() & 0xf_ffff,
                // Valid, with a vector that means nothing.
                1 => random.below(8) << 8 | icr::ASSERT | random.below(4) << 18 | 0x40 | random.below(128),
                _ => random.special() & 0xffff_ffff,
            };
            let destination = match random.below(3) {
                0 => random.below(8) as u32,
                1 => random.special() as u32,
                _ => smp::apic_id(0),
            };
            if is_own(command, if x2apic { destination } else { destination & 0xff }) {
                continue;
            }
            tally.add(trap::caught(|| send(x2apic, destination, command)).is_some());
        }
        cpu::mask();
        // Masked, and with NMIs of its own.
        for _ in 0..1000 / stride() {
            apic::send(smp::apic_id(0), icr::NMI | icr::ASSERT);
            tally.add(false);
        }
    }
}

fn send(x2apic: bool, destination: u32, command: u64) {
    if x2apic {
        cpu::write_msr(msr::X2APIC + register::ICR / 16, u64::from(destination) << 32 | command);
    } else {
        apic::write(register::ICR_HIGH, destination << 24);
        apic::write(register::ICR, command as u32);
    }
}

/// The page moved to memory, to other devices, away.
pub fn base(tally: &mut Tally) {
    let before = cpu::read_msr(msr::APIC_BASE);
    let scratch = boot::image().1.next_multiple_of(mmu::WINDOW_SIZE);
    let places =
        [scratch, 0, 0xb_8000, io_apic::base(), crash::outside(), 0xffff_f000, 1 << 36, 0xf_ffff_ffff_f000];
    for place in places {
        for mode in [0, 0x800, 0xc00] {
            let value = before & !0xf_ffff_ffff_fc00 | place | mode;
            let trap = trap::caught(|| cpu::write_msr(msr::APIC_BASE, value));
            tally.add(trap.is_some());
            if trap.is_none() && place < 4 << 30 {
                tally.add(trap::caught(|| _ = mmio::read32(place + 0x30)).is_some());
                tally.add(trap::caught(|| mmio::write32(place + 0x80, 0)).is_some());
                tally.add(trap::caught(|| _ = mmio::read32(apic::PAGE + 0x30)).is_some());
            }
            let off = before & !0xf_ffff_ffff_fc00 | apic::PAGE;
            // Over the APIC that is switched off every mode can be reached.
            tally.add(trap::caught(|| cpu::write_msr(msr::APIC_BASE, off)).is_some());
            apic::init();
        }
    }
}

/// Interrupts since the last step of [`io_apic`].
static SINCE_STEP: AtomicU32 = AtomicU32::new(0);
/// So many of them are a line that is never lowered.
const STUCK: u32 = 64;

/// Random registers, and entries of all kinds with lines that are never quiet.
pub fn io_apic(tally: &mut Tally) {
    // A level that is never lowered leaves no instruction to anybody else, on any machine.
    fn handle(_: u8) {
        if SINCE_STEP.fetch_add(1, Relaxed) == STUCK {
            let selected = mmio::read32(io_apic::base() + io_apic::SELECT);
            io_apic::mask_all();
            mmio::write32(io_apic::base() + io_apic::SELECT, selected);
        }
    }
    irq::set_handler(Some(handle));
    let mut random = random::stream(10);
    pit::start_periodic(200);
    port::write8(IER, 2);
    cpu::unmask();
    for _ in 0..10_000 / stride() {
        let register = random.special() as u32 & 0xff;
        io_apic::read(register);
        let pins = io_apic::TABLE..io_apic::TABLE + 2 * 24;
        let mut value = random.special() as u32;
        // INIT would stop this CPU; on the machine itself SMI and ExtINT are others' business.
        let kinds = if is_bare() { 0x700 } else { 0x500 };
        if pins.contains(&register) && register.is_multiple_of(2) && (value & 0x700 == 0x500 || is_bare()) {
            value &= !kinds;
        }
        if register == 0 || pins.contains(&register) || !is_bare() {
            io_apic::write(register, value);
        }
        mmio::write32(io_apic::base() + io_apic::EOI, random.special() as u32);
        SINCE_STEP.store(0, Relaxed);
        tally.add(false);
    }
    cpu::mask();
    port::write8(IER, 0);
    pit::stop();
    io_apic::mask_all();
}

/// Everything at once: fast timers, a level that is rarely lowered, interrupts without their ends.
pub fn storm(tally: &mut Tally) {
    // A level that is never lowered leaves no instruction to anybody else, on any machine.
    fn handle(vector: u8) {
        if vector == 0x72 && irq::count(vector).is_multiple_of(8) {
            port::write8(IER, 0);
        }
    }
    irq::set_handler(Some(handle));
    let mut random: Random = random::stream(11);
    let destination = apic::id();
    io_apic::route_isa(0, 0x71, destination);
    let pin = u32::from(turnstile_guests_x86_64::platform::platform().acpi.isa[4].0);
    io_apic::set_entry(pin, u64::from(destination) << 56 | io_apic::LEVEL | 0x72);
    pit::start_periodic(50);
    port::write8(IER, 2);
    let before = cpu::this().nmis.load(Relaxed);
    for mode in [apic::PERIODIC, 0] {
        // Fast, but not so fast that nothing else ever happens (see `fatal`).
        apic::set_timer(0x73, mode, 20_000);
        irq::set_ending(if random.below(2) == 0 { irq::Ending::Eoi } else { irq::Ending::Handler });
        let end = timer::now() + timer::ticks(20_000);
        while timer::now() < end {
            match random.below(6) {
                5 => port::write8(IER, 2),
                0 => apic::send_to_self(0x30 + random.below(0xcf) as u8),
                1 => apic::send(destination, icr::NMI | icr::ASSERT),
                2 => apic::end(),
                3 => apic::write(register::TPR, random.below(256) as u32),
                _ => cpu::take_interrupts(),
            }
            tally.add(false);
        }
    }
    port::write8(IER, 0);
    pit::stop();
    apic::stop_timer();
    let nmis = cpu::this().nmis.load(Relaxed) - before;
    if nmis == 0 {
        turnstile_guests_x86_64::println!("@error no NMI came ({})", vector::NMI);
    }
}
