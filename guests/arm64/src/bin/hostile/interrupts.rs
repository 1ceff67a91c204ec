// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The interrupt controller: every register of distributor and redistributors with every size and value, SGIs
//! to whom it may not concern, storms, and all of it from all CPUs at once.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};

use turnstile_guests::platform::{MAX_CPUS, Region, platform};
use turnstile_guests::psci::status;
use turnstile_guests::random::{self, Random};
use turnstile_guests::timer::{self, Timer};
use turnstile_guests::trap;
use turnstile_guests::{cpu, gic, irq, mmio, options, println, smp, write_sysreg};

use crate::access::write_sizes;
use crate::{Tally, stride};

fn write_all(tally: &mut Tally, random: &mut Random, region: Region) {
    for value in [0, !0, random.number()] {
        for address in (region.base..region.end()).step_by(stride()) {
            write_sizes(tally, address, value ^ (random.number() & u64::from(value != 0 && value != !0)));
        }
    }
    for address in (region.base..region.end()).step_by(stride()) {
        tally.add(trap::expect(|| mmio::read8(address)).1.is_some());
        tally.add(trap::expect(|| mmio::read16(address & !1)).1.is_some());
        tally.add(trap::expect(|| mmio::read32(address & !3)).1.is_some());
        tally.add(trap::expect(|| mmio::read64(address & !7)).1.is_some());
    }
}

/// Every offset of the distributor.
pub fn distributor(tally: &mut Tally) {
    let Some(gicd) = platform().gicd else { return };
    write_all(tally, &mut random::stream(5), Region { base: gicd.base, size: 0x1_0000 });
}

/// Every offset of a GICv2's CPU interface, of which one page is the machine's own.
pub fn interface(tally: &mut Tally) {
    let Some(gicc) = platform().gicc else { return };
    write_all(tally, &mut random::stream(7), gicc);
    gic::init_cpu();
}

/// Every offset of the redistributors of the first two CPUs, and the frames behind the last one.
pub fn redistributors(tally: &mut Tally) {
    let mut random = random::stream(6);
    for index in 0..smp::count().min(2) {
        if let Some(base) = gic::redistributor_of(smp::affinity(index)) {
            write_all(tally, &mut random, Region { base, size: 0x2_0000 });
        }
    }
    for region in platform().gicr.as_slice() {
        let behind = region.base + smp::count() as u64 * 0x2_0000;
        for address in (behind..region.end().min(behind + 0x4_0000)).step_by(0x104) {
            write_sizes(tally, address & !7, !0);
            tally.add(trap::expect(|| mmio::read64(address & !7)).1.is_some());
        }
    }
}

/// Random and special SGIs by all three registers.
pub fn sgis(tally: &mut Tally) {
    let mut random = random::stream(7);
    gic::enable(0);
    for _ in 0..20_000 / stride() {
        let value = random.special();
        match random.below(3) {
            0 => tally.add(trap::caught(|| write_sysreg!("S3_0_C12_C11_5", value)).is_some()),
            1 => tally.add(trap::caught(|| write_sysreg!("S3_0_C12_C11_6", value)).is_some()),
            _ => tally.add(trap::caught(|| write_sysreg!("S3_0_C12_C11_7", value)).is_some()),
        }
    }
    // Every range selector and every affinity level set by itself.
    for range in 0..16u64 {
        for shift in [16, 32, 48] {
            for affinity in [0u64, 1, 0x7f, 0xff] {
                gic::send_sgi(0xffff | range << 44 | affinity << shift | 3 << 24);
                tally.add(false);
            }
        }
    }
}

/// Interrupts faster than they can be handled: a level that never falls, SGIs from their own handler, everything
/// pending at once with random ends.
pub fn storm(tally: &mut Tally) {
    fn again(intid: u32) {
        if intid == 1 && irq::count(1) < 20_000 {
            gic::send_sgi(gic::sgi_value(1, cpu::affinity()));
        }
        if irq::count(Timer::Virtual.intid()) >= 20_000 {
            Timer::Virtual.set_control(0);
        }
    }
    irq::set_handler(Some(again));
    gic::enable(1);
    gic::enable(Timer::Virtual.intid());
    Timer::Virtual.set_compare(0);
    Timer::Virtual.set_control(timer::ENABLE);
    gic::send_sgi(gic::sgi_value(1, cpu::affinity()));
    cpu::unmask_irq();
    timer::wait(20_000_000, || irq::count(1) >= 20_000 && irq::count(Timer::Virtual.intid()) >= 20_000);
    cpu::mask_irq();
    Timer::Virtual.set_control(0);
    irq::set_handler(None);
    println!("  {} SGIs, {} timer interrupts", irq::count(1), irq::count(Timer::Virtual.intid()));
    tally.tried += u64::from(irq::count(1)) + u64::from(irq::count(Timer::Virtual.intid()));
    let mut random = random::stream(8);
    for _ in 0..50_000 / stride() {
        confuse(&mut random, true);
        tally.add(false);
    }
}

/// One random operation on the interrupt controller: states, priorities, ends that fit nothing.
fn confuse(random: &mut Random, may_route: bool) {
    let intid = random.below(128) as u32;
    match random.below(16) {
        0 | 1 => gic::set_pending(intid.max(16)),
        2 => gic::clear_pending(intid),
        3 | 4 => gic::enable(intid),
        5 => gic::disable(intid),
        6 => gic::set_active(intid),
        7 => gic::clear_active(intid),
        8 => gic::set_priority(intid, random.number() as u8),
        9 => gic::end(gic::acknowledge()),
        10 => drop_one(random),
        11 => gic::deactivate(random.below(1100) as u32),
        12 if may_route => gic::set_route(intid.max(32), smp::affinity(random.below(65) as usize)),
        13 => gic::set_group1(intid, random.below(2) == 0),
        14 => gic::set_priority_mask(random.number() as u8),
        _ => gic::send_sgi(random.special()),
    }
}

fn drop_one(random: &mut Random) {
    match random.below(4) {
        0 => gic::set_eoi_mode(random.below(2) == 0),
        1 => gic::end_group0(random.below(1100) as u32),
        2 => gic::set_binary_point(random.number() as u8 & 7),
        _ => gic::end(random.below(1100) as u32),
    }
}

static WAITS: AtomicU32 = AtomicU32::new(0);

/// Waits for an interrupt that nobody sends, until it is told to stop.
fn wait(_: u64) {
    gic::init_cpu();
    gic::enable(0);
    while WAITS.load(SeqCst) != 0 {
        cpu::wfi();
    }
}

/// Switches the distributor off and on without a pause, which concerns all CPUs, while the others wait for an interrupt;
/// `for=` milliseconds long (10 by default).
pub fn control(tally: &mut Tally) {
    let Some(gicd) = platform().gicd else { return };
    let address = gicd.base + gic::offset::CTLR;
    let (on, off) = (mmio::read32(address), mmio::read32(address) & !3);
    WAITS.store(1, SeqCst);
    for index in smp::others() {
        if smp::start(index, wait, 0) != status::SUCCESS {
            println!("@error cpu {index} does not start");
        }
    }
    let end = timer::now() + timer::ticks(options::number("for", 10) * 1000);
    while timer::now() < end {
        for value in [off, on] {
            mmio::write32(address, value);
            tally.add(false);
        }
    }
    WAITS.store(0, SeqCst);
    gic::send_sgi(gic::sgi_to_others(0));
    for index in smp::others() {
        if !smp::wait_off(index) {
            println!("@error cpu {index} does not go off");
        }
    }
}

static RUNNING: AtomicU32 = AtomicU32::new(0);
static DONE: [AtomicU64; MAX_CPUS] = [const { AtomicU64::new(0) }; MAX_CPUS];
const OPERATIONS: u64 = 20_000;

fn rage(index: u64) {
    gic::init_cpu();
    let mut random = random::stream(100 + index);
    let count = OPERATIONS / stride() as u64;
    for operation in 1..=count {
        confuse(&mut random, true);
        if let Some(done) = DONE.get(index as usize) {
            done.store(operation, SeqCst);
        }
    }
    RUNNING.fetch_sub(1, SeqCst);
}

/// All CPUs do random things to the one interrupt controller at the same time.
pub fn cpus(tally: &mut Tally) {
    RUNNING.store(0, SeqCst);
    for index in smp::others() {
        RUNNING.fetch_add(1, SeqCst);
        if smp::start(index, rage, index as u64) != status::SUCCESS {
            RUNNING.fetch_sub(1, SeqCst);
            println!("@error cpu {index} does not start");
        }
    }
    RUNNING.fetch_add(1, SeqCst);
    rage(cpu::this().index() as u64);
    if !timer::wait(60_000_000, || RUNNING.load(SeqCst) == 0) {
        println!("@error {} CPUs do not come back", RUNNING.load(SeqCst));
    }
    for index in smp::others() {
        if !smp::wait_off(index) {
            println!("@error cpu {index} does not go off");
        }
    }
    tally.tried += DONE.iter().map(|done| done.load(SeqCst)).sum::<u64>();
}
