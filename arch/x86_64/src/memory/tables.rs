// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Memory for tables that devices of the machine read.

/// What they are allocated from.
#[cfg(target_os = "none")]
pub type TablePool<'a> = super::host::Pool<'a>;

/// That of tests.
#[cfg(not(target_os = "none"))]
pub type TablePool = turnstile_arch_common::heap::Heap;

/// Does something with it.
#[cfg(target_os = "none")]
pub fn with_tables<R, E: From<turnstile_paging::Error>>(
    f: impl FnOnce(&mut TablePool<'_>) -> Result<R, E>,
) -> Result<R, E> {
    super::host::with(|m| Ok(f(&mut TablePool::new(&mut m.frames.arena))))
        .unwrap_or_else(|_| Err(turnstile_paging::Error::OutOfTables.into()))
}

/// Does something with it.
#[cfg(not(target_os = "none"))]
pub fn with_tables<R, E: From<turnstile_paging::Error>>(
    f: impl FnOnce(&mut TablePool) -> Result<R, E>,
) -> Result<R, E> {
    f(&mut turnstile_arch_common::heap::Heap)
}
