// SPDX-License-Identifier: Apache-2.0 OR MIT
//! PSCI (DEN 0022) and SMCCC discovery (DEN 0028).

use core::sync::atomic::{AtomicU64, Ordering::SeqCst};

use turnstile_guests::platform::{Conduit, MAX_CPUS, platform};
use turnstile_guests::psci::{self, function, status};
use turnstile_guests::test::{Outcome, Test};
use turnstile_guests::timer::{self, Timer};
use turnstile_guests::{check, check_eq, cpu, crash, gic, patch, println, skip, smp};

use crate::is_bare;

pub const TESTS: &[Test] = &[
    Test { name: "psci-version", run: version },
    Test { name: "psci-features", run: features },
    Test { name: "psci-unknown", run: unknown },
    Test { name: "psci-affinity-info", run: affinity_info },
    Test { name: "psci-invalid", run: invalid },
    Test { name: "psci-invalid-address", run: invalid_address },
    Test { name: "psci-cpu-on", run: cpu_on },
    Test { name: "psci-off-and-on", run: off_and_on },
    Test { name: "psci-suspend", run: suspend },
    Test { name: "smccc-discovery", run: discovery },
    Test { name: "smccc-smc", run: smc },
];

/// An affinity that no machine here has.
const ABSENT: u64 = 0xab_00cd_ef12;

fn version() -> Outcome {
    let version = psci::call(function::VERSION, [0; 3]);
    check!(version >> 16 == 1, "version {version:#x} is not 1.x");
    check_eq!(psci::call(function::MIGRATE_INFO_TYPE, [0; 3]), 2, "MIGRATE_INFO_TYPE");
    Ok(())
}

fn features() -> Outcome {
    for function in [
        function::VERSION,
        function::CPU_SUSPEND,
        function::CPU_OFF,
        function::CPU_ON,
        function::AFFINITY_INFO,
        function::SYSTEM_OFF,
        function::SYSTEM_RESET,
        function::FEATURES,
        0x8400_0003,
        0x8400_0004,
    ] {
        let found = psci::call(function::FEATURES, [function, 0, 0]);
        check!(found >= 0, "function {function:#x}: {found}");
    }
    for function in [0x8400_ffff, 0xc400_0000, 0x8400_0025, 0] {
        let found = psci::call(function::FEATURES, [function, 0, 0]);
        check_eq!(found, status::NOT_SUPPORTED, "function {function:#x}");
    }
    Ok(())
}

fn unknown() -> Outcome {
    for function in [0x8400_ffff, 0xc400_00ff, 0x8400_7777] {
        check_eq!(psci::call(function, [1, 2, 3]), status::NOT_SUPPORTED, "function {function:#x}");
    }
    Ok(())
}

fn affinity_info() -> Outcome {
    check_eq!(smp::state(cpu::this().index()), 0, "this CPU");
    for index in smp::others() {
        check_eq!(smp::state(index), 1, "cpu {index}");
    }
    check_eq!(psci::call(function::AFFINITY_INFO, [ABSENT, 0, 0]), status::INVALID_PARAMETERS, "absent");
    if !is_bare() {
        let level = psci::call(function::AFFINITY_INFO, [cpu::affinity(), 4, 0]);
        check_eq!(level, status::INVALID_PARAMETERS, "affinity level 4");
    }
    Ok(())
}

fn invalid() -> Outcome {
    let entry = smp::entry_point();
    check_eq!(psci::call(function::CPU_ON, [ABSENT, entry, 0]), status::INVALID_PARAMETERS, "absent");
    check_eq!(psci::call(function::CPU_ON, [cpu::affinity(), entry, 0]), status::ALREADY_ON, "itself");
    if !is_bare() {
        // MPIDR_EL1's own bit 31 is no part of the affinity.
        let with_bit = cpu::affinity() | 1 << 31;
        check_eq!(psci::call(function::CPU_ON, [with_bit, entry, 0]), status::INVALID_PARAMETERS, "bit 31");
    }
    Ok(())
}

fn invalid_address() -> Outcome {
    if is_bare() {
        skip!("QEMU starts a CPU anywhere");
    }
    let Some(other) = smp::others().next() else { skip!("one CPU") };
    for address in [crash::outside(), 0, u64::MAX << 48] {
        let result = psci::call(function::CPU_ON, [smp::affinity(other), address, 0]);
        check_eq!(result, status::INVALID_ADDRESS, "entry {address:#x}");
        check_eq!(smp::state(other), 1, "cpu {other} after entry {address:#x}");
    }
    Ok(())
}

static SEEN: [AtomicU64; MAX_CPUS] = [const { AtomicU64::new(0) }; MAX_CPUS];
static GO_OFF: AtomicU64 = AtomicU64::new(0);

/// Notes argument and MPIDR as seen by the CPU itself, and stays on until told.
fn note(argument: u64) {
    let index = cpu::this().index();
    if let Some(slot) = SEEN.get(index) {
        let right = smp::affinity(index) == cpu::affinity();
        slot.store(if right { argument } else { u64::MAX }, SeqCst);
    }
    while GO_OFF.load(SeqCst) == 0 {
        cpu::relax();
    }
}

fn start_and_stop(round: u64) -> Outcome {
    GO_OFF.store(0, SeqCst);
    for index in smp::others() {
        let argument = 0xc0de_0000_0000_0000 | round << 16 | index as u64;
        let context = smp::prepare(index, note, argument);
        let on = || psci::call(function::CPU_ON, [smp::affinity(index), smp::entry_point(), context]);
        check_eq!(on(), status::SUCCESS, "CPU_ON of cpu {index}");
        // QEMU itself has a race here, and would start the CPU twice.
        let again = if is_bare() { status::ON_PENDING } else { on() };
        let refused = again == status::ALREADY_ON || again == status::ON_PENDING;
        check!(refused, "CPU_ON of cpu {index} at once again: {again}");
        let seen = || SEEN.get(index).map_or(0, |slot| slot.load(SeqCst));
        timer::wait(2_000_000, || seen() == argument);
        check_eq!(seen(), argument, "context of cpu {index}");
        check_eq!(on(), status::ALREADY_ON, "CPU_ON of running cpu {index}");
        check_eq!(smp::state(index), 0, "AFFINITY_INFO of running cpu {index}");
    }
    GO_OFF.store(1, SeqCst);
    for index in smp::others() {
        check!(smp::wait_off(index), "cpu {index} does not go off");
    }
    Ok(())
}

fn cpu_on() -> Outcome {
    if smp::count() < 2 {
        skip!("one CPU");
    }
    start_and_stop(1)
}

fn off_and_on() -> Outcome {
    if smp::count() < 2 {
        skip!("one CPU");
    }
    (2..22).try_for_each(start_and_stop)
}

/// Standby with a timer that is to end it.
fn suspend() -> Outcome {
    let found = psci::call(function::FEATURES, [function::CPU_SUSPEND, 0, 0]);
    if found < 0 {
        skip!("no CPU_SUSPEND");
    }
    let intid = Timer::Virtual.intid();
    gic::enable(intid);
    let due = timer::now() + timer::ticks(2_000);
    Timer::Virtual.set_compare(due);
    Timer::Virtual.set_control(timer::ENABLE);
    let result = psci::call(function::CPU_SUSPEND, [0, 0, 0]);
    check_eq!(result, status::SUCCESS, "CPU_SUSPEND");
    // Standby may end early, as WFI may.
    check!(timer::wait(1_000_000, || gic::highest_pending() == intid), "no timer interrupt");
    check!(timer::now() >= due, "the interrupt came early");
    Ok(())
}

fn discovery() -> Outcome {
    let found = psci::call(function::FEATURES, [function::SMCCC_VERSION, 0, 0]);
    if found < 0 && is_bare() {
        skip!("no SMCCC_VERSION");
    }
    check_eq!(found, status::SUCCESS, "PSCI_FEATURES of SMCCC_VERSION");
    let version = psci::call(function::SMCCC_VERSION, [0; 3]);
    check!(version >= 0x1_0001, "SMCCC version {version:#x}");
    let itself = psci::call(function::SMCCC_ARCH_FEATURES, [function::SMCCC_ARCH_FEATURES, 0, 0]);
    check_eq!(itself, status::SUCCESS, "SMCCC_ARCH_FEATURES of itself");
    for function in [0x8000_0002, 0x8000_7ffe] {
        let unknown = psci::call(function::SMCCC_ARCH_FEATURES, [function, 0, 0]);
        check_eq!(unknown, status::NOT_SUPPORTED, "ARCH_FEATURES of {function:#x}");
    }
    // Workarounds 1 and 3: to be called, not needed (1), or not there. Workaround 2: not needed (-2), or not there.
    for (function, known) in [(0x8000_8000, [0, 1]), (0x8000_3fff, [0, 1]), (0x8000_7fff, [-2, -2])] {
        let answer = psci::call(function::SMCCC_ARCH_FEATURES, [function, 0, 0]);
        check!(answer == -1 || known.contains(&answer), "ARCH_FEATURES of {function:#x} is {answer}");
        if answer >= 0 {
            check_eq!(psci::call(function, [1, 2, 3]), status::SUCCESS, "workaround {function:#x}");
        }
    }
    // One function of each owner: none may be answered by accident.
    for owner in [1u64, 2, 3, 7, 48, 50, 63] {
        let result = psci::call(0x8000_1234 | owner << 24, [1, 2, 3]);
        check_eq!(result, status::NOT_SUPPORTED, "owner {owner}");
    }
    Ok(())
}

/// SMC from a guest whose conduit is HVC: either it is UNDEFINED or it is answered as the HVC is.
fn smc() -> Outcome {
    if platform().psci == Some(Conduit::Smc) {
        skip!("SMC is the conduit");
    }
    // SAFETY: SMC #0 of PSCI_VERSION changes x0 to x17 at most.
    let (x0, trap) = unsafe { patch::execute(0xd400_0003, function::VERSION) };
    match trap {
        Some(trap) => check!(trap.is_undefined(), "SMC: {trap}"),
        None => {
            let by_hvc = psci::call(function::VERSION, [0; 3]);
            println!("SMC answers {:#x}", x0 as i32);
            let same = i64::from(x0 as i32) == by_hvc || x0 as i32 == -1;
            check!(same, "SMC answers {x0:#x}, HVC {by_hvc:#x}");
        }
    }
    Ok(())
}
