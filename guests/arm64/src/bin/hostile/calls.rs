// SPDX-License-Identifier: Apache-2.0 OR MIT
//! PSCI and SMCCC with random arguments, by HVC and by SMC, and races of CPU_ON against CPU_OFF.

use core::sync::atomic::{AtomicU32, Ordering::SeqCst};

use turnstile_guests::platform::Conduit;
use turnstile_guests::psci::{self, function, status};
use turnstile_guests::random::{self, Random};
use turnstile_guests::timer::{self, Timer};
use turnstile_guests::{cpu, crash, gic, println, smp, trap};

use crate::{Tally, end_elsewhere, is_bare, stride};

/// Functions that end this machine or this CPU, or let it go on somewhere else (numbers without the SMC64 bit).
const EXCLUDED: [u64; 8] = [
    0x8400_0001, // CPU_SUSPEND: by itself below
    0x8400_0002, // CPU_OFF
    0x8400_0003, // CPU_ON: by itself below
    0x8400_0008, // SYSTEM_OFF
    0x8400_0009, // SYSTEM_RESET
    0x8400_000b, // CPU_FREEZE
    0x8400_000c, // CPU_DEFAULT_SUSPEND
    0x8400_000e, // SYSTEM_SUSPEND
];
const RESET2: u64 = 0x8400_0012;

fn is_excluded(function: u64) -> bool {
    let number = function & 0xbfff_ffff;
    EXCLUDED.contains(&number) || number == RESET2
}

fn call(tally: &mut Tally, random: &mut Random, function: u64, conduit: Conduit) -> u64 {
    let mut arguments: [u64; 8] = core::array::from_fn(|_| random.special());
    if let Some(x0) = arguments.first_mut() {
        // The upper half of a function number is nothing.
        *x0 = function | random.special() << 32;
    }
    let ([x0, ..], trap) = trap::expect(|| psci::smccc(conduit, arguments));
    tally.add(trap.is_some());
    x0
}

/// Every function of PSCI's range, some of every owner, and random numbers.
pub fn all(tally: &mut Tally) {
    let mut random = random::stream(9);
    for conduit in [Conduit::Hvc, Conduit::Smc] {
        for base in [0x8400_0000u64, 0xc400_0000] {
            for function in (base..base + 0x100).filter(|function| !is_excluded(*function)) {
                for _ in 0..10 {
                    call(tally, &mut random, function, conduit);
                }
            }
        }
        for owner in 0..64u64 {
            for kind in [0, 0x8000_0000, 0x4000_0000, 0xc000_0000u64] {
                for number in [0, 1, 2, 0x10, 0x3fff, 0x8000, 0xff00, 0xff01, 0xff03, 0xffff] {
                    let function = kind | owner << 24 | number;
                    if !is_excluded(function) {
                        call(tally, &mut random, function, conduit);
                    }
                }
            }
        }
        for _ in 0..10_000 / stride() {
            let function = random.special() & 0xffff_ffff;
            if !is_excluded(function) {
                call(tally, &mut random, function, conduit);
            }
        }
    }
    known(tally, &mut random);
}

/// The functions left out above, with arguments that must be refused or are harmless.
fn known(tally: &mut Tally, random: &mut Random) {
    for _ in 0..2_000 / stride() {
        let mut target = random.special();
        if (0..smp::count()).any(|index| smp::affinity(index) == target & 0xff_00ff_ffff) {
            target |= 0xff << 16;
        }
        let result = psci::call(function::CPU_ON, [target, random.special(), random.special()]);
        if result == status::SUCCESS {
            println!("@error CPU_ON of {target:#x} succeeds");
        }
        tally.add(false);
    }
    let standby_end = || {
        gic::enable(Timer::Virtual.intid());
        Timer::Virtual.set_compare(timer::now() + timer::ticks(20));
        Timer::Virtual.set_control(timer::ENABLE);
    };
    for _ in 0..500 / stride() {
        standby_end();
        // StateType stays standby: a power-down state may go on at the entry point.
        let state = random.special() & !(1 << 16 | 1 << 30);
        psci::call(function::CPU_SUSPEND, [state, crash::outside(), random.special()]);
        Timer::Virtual.set_control(0);
        tally.add(false);
    }
    if let (Some(other), false) = (smp::others().next(), is_bare()) {
        for address in [crash::outside(), 0, 2, !0, smp::entry_point() | 1 << 50] {
            let result = psci::call(function::CPU_ON, [smp::affinity(other), address, 0]);
            println!("  CPU_ON at {address:#x}: {result}");
            tally.add(false);
        }
    }
}

static WON: AtomicU32 = AtomicU32::new(0);

fn come_and_go(_: u64) {
    WON.fetch_add(1, SeqCst);
}

/// Starts every other CPU again and again while it goes off; each start must succeed exactly once.
pub fn cpu_races(tally: &mut Tally) {
    WON.store(0, SeqCst);
    let mut started = 0u32;
    for _ in 0..200 / stride() {
        for index in smp::others() {
            match smp::start(index, come_and_go, 0) {
                status::SUCCESS => started += 1,
                status::ALREADY_ON | status::ON_PENDING => {}
                other => println!("@error CPU_ON of cpu {index}: {other}"),
            }
            tally.add(false);
            // QEMU's own CPU_ON has a race when one is on its way.
            if is_bare() {
                timer::wait(1_000_000, || WON.load(SeqCst) == started);
                smp::wait_off(index);
            }
        }
    }
    if !smp::others().all(smp::wait_off) {
        println!("@error CPUs do not go off");
    }
    if WON.load(SeqCst) != started {
        println!("@error {started} starts, {} CPUs came", WON.load(SeqCst));
    }
}

fn resumed(_: u64) {
    println!("  the machine suspended and came back");
    end_elsewhere("suspend", &Tally { tried: 1, trapped: 0 });
}

/// SYSTEM_SUSPEND with a timer to end it; the machine comes back at the entry point.
pub fn suspend(tally: &mut Tally) {
    gic::enable(Timer::Virtual.intid());
    Timer::Virtual.set_compare(timer::now() + timer::ticks(2_000));
    Timer::Virtual.set_control(timer::ENABLE);
    let context = smp::prepare(cpu::this().index(), resumed, 0);
    let result = psci::call(function::SYSTEM_SUSPEND, [smp::entry_point(), context, 0]);
    println!("  SYSTEM_SUSPEND: {result}");
    tally.add(false);
}
