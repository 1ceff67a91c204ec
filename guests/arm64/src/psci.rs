// SPDX-License-Identifier: Apache-2.0 OR MIT
//! PSCI (DEN 0022) and SMC calling convention (DEN 0028) calls.

use core::arch::asm;

use crate::platform::{Conduit, platform};
use crate::{cpu, println};

/// Function numbers.
pub mod function {
    /// PSCI_VERSION.
    pub const VERSION: u64 = 0x8400_0000;
    /// CPU_SUSPEND (SMC64).
    pub const CPU_SUSPEND: u64 = 0xc400_0001;
    /// CPU_OFF.
    pub const CPU_OFF: u64 = 0x8400_0002;
    /// CPU_ON (SMC64).
    pub const CPU_ON: u64 = 0xc400_0003;
    /// AFFINITY_INFO (SMC64).
    pub const AFFINITY_INFO: u64 = 0xc400_0004;
    /// MIGRATE_INFO_TYPE.
    pub const MIGRATE_INFO_TYPE: u64 = 0x8400_0006;
    /// SYSTEM_OFF.
    pub const SYSTEM_OFF: u64 = 0x8400_0008;
    /// SYSTEM_RESET.
    pub const SYSTEM_RESET: u64 = 0x8400_0009;
    /// PSCI_FEATURES.
    pub const FEATURES: u64 = 0x8400_000a;
    /// SYSTEM_SUSPEND (SMC64).
    pub const SYSTEM_SUSPEND: u64 = 0xc400_000e;
    /// SYSTEM_RESET2 (SMC64).
    pub const SYSTEM_RESET2: u64 = 0xc400_0012;
    /// SMCCC_VERSION.
    pub const SMCCC_VERSION: u64 = 0x8000_0000;
    /// SMCCC_ARCH_FEATURES.
    pub const SMCCC_ARCH_FEATURES: u64 = 0x8000_0001;
}

/// Return values.
pub mod status {
    /// Done.
    pub const SUCCESS: i64 = 0;
    /// There is no such function.
    pub const NOT_SUPPORTED: i64 = -1;
    /// An argument is wrong.
    pub const INVALID_PARAMETERS: i64 = -2;
    /// The CPU runs already.
    pub const ALREADY_ON: i64 = -4;
    /// The CPU is being started.
    pub const ON_PENDING: i64 = -5;
    /// The entry point is no memory.
    pub const INVALID_ADDRESS: i64 = -9;
}

/// Makes a call by `conduit` with x0 to x7 and returns x0 to x3.
pub fn smccc(conduit: Conduit, arguments: [u64; 8]) -> [u64; 4] {
    let [mut x0, mut x1, mut x2, mut x3, x4, x5, x6, x7] = arguments;
    macro_rules! call {
        ($instruction:literal) => {
            // SAFETY: the convention lets the callee change x0 to x17 and nothing else; what the call does
            // to this machine is what the caller asked for.
            unsafe {
                asm!($instruction, inout("x0") x0, inout("x1") x1, inout("x2") x2, inout("x3") x3,
                    inout("x4") x4 => _, inout("x5") x5 => _, inout("x6") x6 => _, inout("x7") x7 => _,
                    out("x8") _, out("x9") _, out("x10") _, out("x11") _, out("x12") _, out("x13") _,
                    out("x14") _, out("x15") _, out("x16") _, out("x17") _, options(nostack))
            }
        };
    }
    match conduit {
        Conduit::Hvc => call!("hvc #0"),
        Conduit::Smc => call!("smc #0"),
    }
    [x0, x1, x2, x3]
}

/// Calls a function with up to three arguments by the device tree's conduit; returns x0.
pub fn call(function: u64, arguments: [u64; 3]) -> i64 {
    let [x1, x2, x3] = arguments;
    let conduit = platform().psci.unwrap_or(Conduit::Hvc);
    let [x0, ..] = smccc(conduit, [function, x1, x2, x3, 0, 0, 0, 0]);
    // Functions of the 32-bit convention return 32 bits.
    if function & 1 << 30 == 0 { i64::from(x0 as i32) } else { x0 as i64 }
}

/// Ends this machine.
pub fn system_off() -> ! {
    let status = call(function::SYSTEM_OFF, [0; 3]);
    println!("@error SYSTEM_OFF returned {status}");
    loop {
        cpu::wfi();
    }
}

/// Restarts this machine.
pub fn system_reset() -> ! {
    let status = call(function::SYSTEM_RESET, [0; 3]);
    println!("@error SYSTEM_RESET returned {status}");
    system_off()
}
