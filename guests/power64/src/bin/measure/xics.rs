// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The handler of an interrupt of XICS, by three hypervisor calls.

/// Assembly that takes an interrupt, counts it by the given instructions, and ends it: R26 is this server. It changes R22, R23 and
/// R25, beside what calls change.
macro_rules! xics_handler {
    ($count:literal) => {
        concat!(
            "mfsrr0 23\n", // calls overwrite them
            "mfsrr1 22\n",
            $count,
            r#"
    li      3, 0x74                 // H_XIRR
    sc      1
    mr      25, 4
    li      3, 0x6c                 // H_IPI
    mr      4, 26
    li      5, 0xff
    sc      1
    li      3, 0x64                 // H_EOI
    mr      4, 25
    sc      1
    mtsrr0  23
    mtsrr1  22
    rfid
            "#
        )
    };
}

pub(crate) use xics_handler;
