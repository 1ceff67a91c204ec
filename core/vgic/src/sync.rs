// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The atomics: the processor's, or loom's when the protocol is being model-checked.

#[cfg(not(loom))]
pub(crate) use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
