// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Memory for tables that devices of the machine read.

/// Does something with it.
#[cfg(target_os = "none")]
pub fn with_tables<R, E: From<turnstile_paging::Error>>(
    f: impl FnOnce(&mut super::el2::Pool<'_>) -> Result<R, E>,
) -> Result<R, E> {
    use super::el2::{Pool, Regime};

    super::host::with(|m| Ok(f(&mut Pool { arena: &mut m.frames.arena, regime: Regime::El2 })))
        .unwrap_or_else(|_| Err(turnstile_paging::Error::OutOfTables.into()))
}

/// Does something with that of a test.
#[cfg(not(target_os = "none"))]
pub fn with_tables<R, E: From<turnstile_paging::Error>>(
    f: impl FnOnce(&mut turnstile_arch_common::heap::Heap) -> Result<R, E>,
) -> Result<R, E> {
    f(&mut turnstile_arch_common::heap::Heap)
}
